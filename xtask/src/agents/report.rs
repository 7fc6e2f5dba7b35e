//! Results: one line per check, a summary at the end.

use std::fmt;
use std::path::Path;

use anyhow::Result;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mode {
    Headless,
    Tui,
}

impl fmt::Display for Mode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Headless => "headless",
            Self::Tui => "TUI",
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Report {
    passed: usize,
    failed: usize,
    skipped: usize,
}

impl Report {
    /// Records the result of one check. `kept` is the scratch directory with everything needed to find out why it
    /// failed.
    pub(super) fn add(&mut self, agent: &str, mode: Mode, check: &str, result: &Result<()>, kept: &Path) {
        match result {
            Ok(()) => {
                self.passed += 1;
                println!("{agent:<9} {mode:<9} {check:<22} ok");
            }
            Err(error) => {
                self.failed += 1;
                let error = format!("{error:#}").replace('\n', " | ");
                println!("{agent:<9} {mode:<9} {check:<22} FAILED: {error:.1200}");
                println!("{:<42} kept: {}", "", kept.display());
            }
        }
    }

    pub(super) fn skip(&mut self, agent: &str, mode: Mode, check: &str, why: &str) {
        self.skipped += 1;
        println!("{agent:<9} {mode:<9} {check:<22} skipped: {why}");
    }

    pub(super) fn failed(&self) -> usize {
        self.failed
    }

    pub(super) fn summary(&self) -> String {
        format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}
