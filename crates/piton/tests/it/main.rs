//! The library's tests. Each works in a place of its own, with real files, and with stock git as the oracle.

mod cap;
mod compat;
mod damaged;
mod diff;
mod exact;
mod hostile;
mod ignore_oracle;
mod kit;
mod matcher_oracle;
mod model;
mod oracle;
mod rescan;
mod restore;
mod restore_kit;
mod restore_left;
mod restore_model;
mod retention;
mod scope;
mod stock;
mod store;
mod take;
mod tidy;
mod traps;
mod triggers;
mod upkeep;
