//! Tests of the three-way merge: random histories against stock git, and cases by name.

mod cases;
pub(super) mod history;
mod oracle;
