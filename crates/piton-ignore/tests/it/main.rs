//! Tests of the gitignore matcher, with stock git as the oracle.

mod matcher_oracle;
