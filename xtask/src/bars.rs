//! Targets for piton's speed beside the measured values, as ratios of minima of one run.

use crate::contestants::Column;
use crate::extras::{HOOK_AT_END, TAKE_BESIDE_END};
use crate::report::{Report, Work, number};
use crate::trees::Size;

const HOOK_CPU_MS_MAX: f64 = 5.0;
const LIST_MS_MAX: f64 = 20.0;
const PEAK_MB_MAX: f64 = 300.0;

pub(crate) struct Bar {
    work: String,
    rule: String,
    /// `None` if one of the two sides was not measured.
    measured: Option<Measured>,
}

struct Measured {
    shown: String,
    met: bool,
}

impl Bar {
    pub(crate) fn is_missed(&self) -> bool {
        self.measured.as_ref().is_some_and(|measured| !measured.met)
    }
}

/// Returns all targets on trees that were measured.
pub(crate) fn bars(report: &Report) -> Vec<Bar> {
    use Column::{Git, Hermes, Restic, Walk};
    use Size::{Large, Medium, Small};
    let mut bars = Vec::new();
    for size in [Large, Medium].into_iter().filter(|&size| report.has(size)) {
        bars.push(faster(report, Work::First, size, Git, 2.5));
        bars.push(faster(report, Work::First, size, Restic, 1.5));
    }
    if report.has(Large) {
        bars.push(at_most(report, Work::Nothing, Large, Walk, 1.5));
        bars.push(faster(report, Work::Nothing, Large, Git, 1.0));
        bars.push(faster(report, Work::Nothing, Large, Hermes, 40.0));
        bars.push(at_most(report, Work::OneFile, Large, Walk, 1.7));
        bars.push(faster(report, Work::OneFile, Large, Git, 1.0));
    }
    if report.has(Medium) {
        bars.push(faster(report, Work::OneFile, Medium, Git, 1.0));
        bars.push(faster(report, Work::OneFile, Medium, Hermes, 25.0));
    }
    if report.has(Small) {
        bars.push(faster(report, Work::OneFile, Small, Git, 1.0));
    }
    if report.has(Large) {
        bars.push(faster(report, Work::RestoreAll, Large, Git, 1.0));
        bars.push(restore_ten(report));
        bars.push(peak(report));
    }
    for size in Size::ALL.into_iter().filter(|&size| report.has(size)) {
        let list_ms = report.min_ms(Work::List, size, Column::Piton);
        bars.push(below(label(Work::List, size), "ms", LIST_MS_MAX, list_ms));
    }
    let hook_ms = report.calls.first().and_then(|call| call.cpu_ms);
    bars.push(below("hook call that needs no checkpoint".to_owned(), "ms of CPU", HOOK_CPU_MS_MAX, hook_ms));
    for (work, factor) in [("nothing changed", 1.2), ("one file changed", 1.1)] {
        bars.push(end_of_turn(report, work, factor));
    }
    bars
}

fn label(work: Work, size: Size) -> String {
    format!("{}, {}", work.title(), size.name())
}

fn both(report: &Report, work: Work, size: Size, rival: Column) -> Option<(f64, f64)> {
    Some((report.min_ms(work, size, Column::Piton)?, report.min_ms(work, size, rival)?))
}

fn faster(report: &Report, work: Work, size: Size, rival: Column, factor: f64) -> Bar {
    let rule = match factor {
        1.0 => format!("ahead of {}", rival.title()),
        _ => format!("{factor} times faster than {}", rival.title()),
    };
    let measured = both(report, work, size, rival).map(|(piton, other)| {
        let ratio = other / piton;
        let met = if factor > 1.0 { ratio >= factor } else { ratio > 1.0 };
        Measured { shown: format!("{} times as fast", number(ratio)), met }
    });
    Bar { work: label(work, size), rule, measured }
}

fn at_most(report: &Report, work: Work, size: Size, rival: Column, factor: f64) -> Bar {
    let measured = both(report, work, size, rival).map(|(piton, other)| times_as_long(piton / other, factor));
    Bar { work: label(work, size), rule: format!("at most {factor} times {}", rival.title()), measured }
}

fn times_as_long(ratio: f64, factor: f64) -> Measured {
    Measured { shown: format!("{} times as long", number(ratio)), met: ratio <= factor }
}

fn restore_ten(report: &Report) -> Bar {
    let scan = report.min_ms(Work::Nothing, Size::Large, Column::Piton);
    let restore = report.min_ms(Work::RestoreTen, Size::Large, Column::Piton);
    Bar {
        work: label(Work::RestoreTen, Size::Large),
        rule: "at most 2 times its own nothing changed".to_owned(),
        measured: scan.zip(restore).map(|(scan, restore)| times_as_long(restore / scan, 2.0)),
    }
}

fn end_of_turn(report: &Report, work: &str, factor: f64) -> Bar {
    let min_ms = |name: &str| {
        let name = format!("{name}, {work}");
        report.calls.iter().find(|call| call.name == name)?.wall.min_ms()
    };
    let both = min_ms(HOOK_AT_END).zip(min_ms(TAKE_BESIDE_END));
    Bar {
        work: format!("end of a turn, {work}"),
        rule: format!("at most {factor} times a take"),
        measured: both.map(|(end, take)| times_as_long(end / take, factor)),
    }
}

fn peak(report: &Report) -> Bar {
    let kib = report.peaks_kib.iter().find_map(|&(size, kib)| (size == Size::Large).then_some(kib));
    let megabytes = kib.map(|kib| kib as f64 * 1024.0 / 1e6);
    below("memory, first checkpoint, large".to_owned(), "MB", PEAK_MB_MAX, megabytes)
}

fn below(work: String, unit: &str, limit: f64, value: Option<f64>) -> Bar {
    let measured = value.map(|value| Measured { shown: format!("{} {unit}", number(value)), met: value < limit });
    Bar { work, rule: format!("under {limit} {unit}"), measured }
}

pub(crate) fn table(bars: &[Bar]) -> String {
    let head = ["work", "bar", "measured", "verdict"].map(str::to_owned);
    let body = bars.iter().map(|bar| {
        let (measured, verdict) = match &bar.measured {
            Some(measured) => (measured.shown.clone(), if measured.met { "met" } else { "MISSED" }),
            None => ("-".to_owned(), "not measured"),
        };
        vec![bar.work.clone(), bar.rule.clone(), measured, verdict.to_owned()]
    });
    crate::report::table(4, &head, &body.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::report::Row;

    fn report(piton_ms: u64, git_ms: u64) -> Report {
        let mut row = Row::new(Work::OneFile, Size::Medium);
        row.add(Column::Piton, Duration::from_millis(piton_ms));
        row.add(Column::Git, Duration::from_millis(git_ms));
        Report { rows: vec![row], ..Report::default() }
    }

    #[test]
    fn being_ahead_takes_more_than_being_equal() {
        let is_missed = |report: &Report| faster(report, Work::OneFile, Size::Medium, Column::Git, 1.0).is_missed();
        assert!(!is_missed(&report(10, 11)));
        assert!(is_missed(&report(10, 10)));
    }

    #[test]
    fn what_was_not_measured_is_neither_met_nor_missed() {
        let bar = faster(&report(10, 11), Work::OneFile, Size::Medium, Column::Hermes, 25.0);
        assert!(bar.measured.is_none() && !bar.is_missed());
        assert!(table(&[bar]).contains("not measured"));
    }
}
