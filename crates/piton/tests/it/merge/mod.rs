//! Tests of the three-way merge: random histories against stock git, and cases by name.

mod cases;
mod history;
mod hunks;
mod oracle;
