//! The library's tests. Each works in a place of its own, with real files, and with stock git as the oracle.

mod damaged;
mod diff;
mod hostile;
mod ignore_oracle;
mod kit;
mod restore;
mod restore_kit;
mod restore_left;
mod restore_model;
mod take;
