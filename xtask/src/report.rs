//! Measured values, as data and as Markdown.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use anyhow::Result;

use crate::bars::{self, Bar};
use crate::contestants::Column;
use crate::trees::{Size, Tree};

const LEGEND: &str = "\
## Times

Milliseconds, minimum / median; whole processes from start to exit; the tree is in memory. All contestants of a row ran
in turn in the same run.

- piton: durable, everything synced before it exits.
- (a) Hermes: the git processes that it runs for a checkpoint, with git's defaults; its list is a log and 20 diffs.
- (b) warm git: `add -A`, `write-tree`, `commit-tree`, `update-ref` with a kept index; the first two where nothing
  changed; `checkout-index` into an empty directory for the restore. Nothing is synced.
- (c) restic: `backup` into a local repository.
- (d) stat walk: two threads that read every directory and stat every entry, no ignore rules.

";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    First,
    Nothing,
    OneFile,
    RestoreTen,
    RestoreAll,
    List,
}

impl Work {
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::First => "first checkpoint",
            Self::Nothing => "nothing changed",
            Self::OneFile => "one file changed",
            Self::RestoreTen => "restore after 10 files changed",
            Self::RestoreAll => "restore of everything",
            Self::List => "list with change counts, 20 checkpoints",
        }
    }
}

/// Times of one contestant for one task.
#[derive(Default)]
pub(crate) struct Samples(Vec<Duration>);

impl From<Vec<Duration>> for Samples {
    fn from(mut times: Vec<Duration>) -> Self {
        times.sort();
        Self(times)
    }
}

impl Samples {
    pub(crate) fn min_ms(&self) -> Option<f64> {
        self.0.first().map(|time| time.as_secs_f64() * 1e3)
    }

    fn median_ms(&self) -> Option<f64> {
        let middle = self.0.len() / 2;
        let upper = self.0.get(middle)?.as_secs_f64() * 1e3;
        let lower = if self.0.len().is_multiple_of(2) { self.0[middle - 1].as_secs_f64() * 1e3 } else { upper };
        Some(f64::midpoint(lower, upper))
    }

    fn shown(&self) -> String {
        match (self.min_ms(), self.median_ms()) {
            (Some(min), Some(median)) => format!("{} / {}", number(min), number(median)),
            _ => "-".to_owned(),
        }
    }
}

pub(crate) struct Row {
    work: Work,
    size: Size,
    times: BTreeMap<Column, Vec<Duration>>,
}

impl Row {
    pub(crate) fn new(work: Work, size: Size) -> Self {
        Self { work, size, times: BTreeMap::new() }
    }

    pub(crate) fn label(&self) -> String {
        format!("{}, {}", self.work.title(), self.size.name())
    }

    pub(crate) fn add(&mut self, column: Column, time: Duration) {
        self.times.entry(column).or_default().push(time);
    }

    /// Removes a contestant that failed once: all contestants in a row have the same number of runs.
    pub(crate) fn strike(&mut self, column: Column) {
        self.times.remove(&column);
    }

    pub(crate) fn has(&self, column: Column) -> bool {
        self.times.contains_key(&column)
    }

    fn samples(&self, column: Column) -> Samples {
        self.times.get(&column).cloned().unwrap_or_default().into()
    }

    fn rounds(&self) -> usize {
        self.times.values().map(Vec::len).max().unwrap_or(0)
    }
}

/// A short-lived process, for which processor time matters.
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) cpu_ms: Option<f64>,
    pub(crate) wall: Samples,
}

#[derive(Default)]
pub(crate) struct Report {
    pub(crate) trees: Vec<String>,
    pub(crate) rows: Vec<Row>,
    /// The first call is piton's.
    pub(crate) calls: Vec<Call>,
    pub(crate) peaks_kib: Vec<(Size, u64)>,
    pub(crate) remarks: Vec<String>,
    pub(crate) facts: Vec<(&'static str, String)>,
}

impl Report {
    pub(crate) fn add_tree(&mut self, tree: &Tree) {
        let megabytes = number(tree.bytes as f64 / 1e6);
        self.trees.push(format!("{}: {} files, {megabytes} MB", tree.size.name(), number(tree.files as f64)));
    }

    pub(crate) fn remark(&mut self, remark: String) {
        eprintln!("  {remark}");
        self.remarks.push(remark);
    }

    /// Returns the value; turns an error into a remark.
    pub(crate) fn keep<T>(&mut self, what: &str, result: Result<T>) -> Option<T> {
        result.map_err(|error| self.remark(format!("{what}: {error:#}"))).ok()
    }

    pub(crate) fn min_ms(&self, work: Work, size: Size, column: Column) -> Option<f64> {
        let row = self.rows.iter().find(|row| row.work == work && row.size == size)?;
        row.samples(column).min_ms()
    }

    /// Returns true if piton failed at anything: then its figure is missing.
    pub(crate) fn piton_failed(&self) -> bool {
        let is_unmeasured = |call: &Call| call.name.starts_with("piton ") && call.wall.min_ms().is_none();
        self.rows.iter().any(|row| !row.has(Column::Piton)) || self.calls.iter().any(is_unmeasured)
    }

    pub(crate) fn has(&self, size: Size) -> bool {
        self.rows.iter().any(|row| row.size == size)
    }

    pub(crate) fn markdown(&self, bars: &[Bar]) -> String {
        let mut out = LEGEND.to_owned();
        out += &self.times();
        if !self.calls.is_empty() {
            out +=
                "\n## Calls of a hook\n\nMilliseconds; processor time is user and system, the mean of many calls.\n\n";
            out += &self.calls();
        }
        if !self.peaks_kib.is_empty() {
            out += "\n## Peak memory of piton\n\n";
        }
        for (size, kib) in &self.peaks_kib {
            let megabytes = number(*kib as f64 * 1024.0 / 1e6);
            let _ = writeln!(out, "- first checkpoint, {}: {megabytes} MB", size.name());
        }
        out += "\n## Bars\n\nFrom the minima above.\n\n";
        out += &bars::table(bars);
        out += "\n## Machine\n\n";
        for (name, value) in &self.facts {
            let _ = writeln!(out, "- {name}: {value}");
        }
        for tree in &self.trees {
            let _ = writeln!(out, "- tree {tree}");
        }
        if !self.remarks.is_empty() {
            out += "\n## Remarks\n\n";
            for remark in &self.remarks {
                let _ = writeln!(out, "- {remark}");
            }
        }
        out
    }

    fn times(&self) -> String {
        let mut head = vec!["work".to_owned(), "runs".to_owned()];
        head.extend(Column::ALL.map(|column| column.title().to_owned()));
        let body = self.rows.iter().map(|row| {
            let mut line = vec![row.label(), row.rounds().to_string()];
            line.extend(Column::ALL.map(|column| row.samples(column).shown()));
            line
        });
        table(1, &head, &body.collect::<Vec<_>>())
    }

    fn calls(&self) -> String {
        let head = ["process", "processor time", "wall time"].map(str::to_owned);
        let body = self.calls.iter().map(|call| {
            let cpu = call.cpu_ms.map_or_else(|| "-".to_owned(), number);
            vec![call.name.clone(), cpu, call.wall.shown()]
        });
        table(1, &head, &body.collect::<Vec<_>>())
    }
}

/// Formats a number with about three digits, and commas between thousands.
pub(crate) fn number(value: f64) -> String {
    let text = match value {
        value if value < 10.0 => return format!("{value:.2}"),
        value if value < 100.0 => return format!("{value:.1}"),
        value => format!("{value:.0}"),
    };
    let mut out = String::new();
    for (index, digit) in text.chars().enumerate() {
        if index > 0 && (text.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a Markdown table that is also readable as plain text. The first columns are text, the others are numbers.
pub(crate) fn table(text_columns: usize, head: &[String], body: &[Vec<String>]) -> String {
    let width =
        |column: usize| body.iter().map(|line| line[column].len()).chain([head[column].len()]).max().unwrap_or(0);
    let widths: Vec<usize> = (0..head.len()).map(width).collect();
    let line = |cells: &[String]| {
        let mut out = String::from("|");
        for (column, (cell, width)) in cells.iter().zip(&widths).enumerate() {
            let _ =
                if column < text_columns { write!(out, " {cell:<width$} |") } else { write!(out, " {cell:>width$} |") };
        }
        out + "\n"
    };
    let mut out = line(head);
    let dashes = widths.iter().enumerate().map(|(column, width)| match column < text_columns {
        true => format!("{}|", "-".repeat(width + 2)),
        false => format!("{}:|", "-".repeat(width + 1)),
    });
    out += &format!("|{}\n", dashes.collect::<String>());
    body.iter().for_each(|cells| out += &line(cells));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_about_three_digits() {
        assert_eq!([1.234, 12.34, 123.4, 1_234_567.0].map(number), ["1.23", "12.3", "123", "1,234,567"]);
    }

    #[test]
    fn median_of_an_even_number_of_runs_is_the_middle_of_two() {
        let samples = Samples::from([40, 10, 30, 20].map(Duration::from_millis).to_vec());
        assert_eq!(samples.shown(), "10.0 / 25.0");
    }

    #[test]
    fn a_failure_of_piton_alone_fails_the_run() {
        let row = |columns: &[Column]| {
            let mut row = Row::new(Work::First, Size::Small);
            columns.iter().for_each(|column| row.add(*column, Duration::from_millis(1)));
            row
        };
        let with = |row: Row| Report { rows: vec![row], ..Report::default() };
        assert!(!with(row(&[Column::Piton])).piton_failed());
        assert!(with(row(&[Column::Git])).piton_failed());
        let call = |name: &str| Call { name: name.to_owned(), cpu_ms: None, wall: Samples::default() };
        let mut report = with(row(&[Column::Piton]));
        report.calls.push(call("python3 -c pass"));
        assert!(!report.piton_failed());
        report.calls.push(call("piton hook claude"));
        assert!(report.piton_failed());
    }

    #[test]
    fn a_failed_contestant_shows_no_time() {
        let mut row = Row::new(Work::First, Size::Small);
        row.add(Column::Git, Duration::from_millis(10));
        row.strike(Column::Git);
        assert_eq!(row.samples(Column::Git).shown(), "-");
    }
}
