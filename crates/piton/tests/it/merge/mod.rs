//! Tests of the three-way merge: random histories against stock git, and cases by name.

mod cases;
pub(crate) mod history;
mod hunks;
pub(crate) mod oracle;
