//! `bench --scale`: a long history, a file of gigabytes, a million files. Each time stands beside another of the same run.
//!
//! Judged is what must hold on any machine: a take does not depend on the length of the history, and what is read or
//! written in pieces needs no memory for the whole.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, bail, ensure};

use crate::bench::{Setup, pause_after_edit, wait_until_old};
use crate::contestants::{Contestant as _, Piton};
use crate::measure::{self, isolated, settle};
use crate::reading;
use crate::report::{number, table};
use crate::trees;

const CHECKPOINTS: usize = 10_000;
const CHECKPOINTS_FEW: usize = 20;
const LISTED: &str = "20";
const FILES_OF_HISTORY: usize = 200;
const BYTES_OF_HISTORY: usize = 800_000;
const LARGE_FILE_BYTES: u64 = 3_000_000_000;
/// Size of the small file: the memory that it takes is subtracted from the memory that the large one takes.
const SMALL_FILE_BYTES: u64 = 1_000_000;
const FILES: usize = 1_000_000;
const FILES_PER_DIR: usize = 1_000;

const HISTORY_RATIO_MAX: f64 = 1.5;
const STREAMING_MB_MAX: f64 = 64.0;

/// One line of the report.
pub(crate) struct ScaleRow {
    work: String,
    measured: String,
    beside: String,
    ratio: Option<f64>,
    time: Option<Duration>,
    /// The rule, and whether it is met.
    bar: Option<(String, bool)>,
}

impl ScaleRow {
    pub(crate) fn ratio(work: impl Into<String>, time: Duration, beside: (&str, Duration)) -> Self {
        Self {
            work: work.into(),
            measured: ms(time),
            beside: format!("{}: {}", beside.0, ms(beside.1)),
            ratio: Some(time.as_secs_f64() / beside.1.as_secs_f64()),
            time: Some(time),
            bar: None,
        }
    }

    pub(crate) fn with_ratio_max(mut self, most: f64) -> Self {
        self.bar = self.ratio.map(|ratio| (format!("ratio at most {most}"), ratio <= most));
        self
    }

    /// Limits the time by which the row is slower than what stands beside it.
    pub(crate) fn with_difference_max(mut self, beside: Duration, most: Duration) -> Self {
        let slower = self.time.map(|time| time.saturating_sub(beside));
        self.bar = slower.map(|slower| (format!("at most {} more", ms(most)), slower <= most));
        self
    }

    /// Adds a limit to the rule of the row.
    pub(crate) fn with_time_max(mut self, most: Duration) -> Self {
        let is_met = self.time.is_some_and(|time| time <= most);
        self.bar = Some(match self.bar {
            Some((rule, met)) => (format!("{rule}, at most {}", ms(most)), met && is_met),
            None => (format!("at most {}", ms(most)), is_met),
        });
        self
    }

    fn memory(work: impl Into<String>, kib: u64, beside: &str) -> Self {
        let (work, measured) = (work.into(), format!("{} MB", number(megabytes(kib))));
        Self { work, measured, beside: beside.to_owned(), ratio: None, time: None, bar: None }
    }

    fn with_memory_above(mut self, kib: u64, base_kib: u64) -> Self {
        let above = megabytes(kib.saturating_sub(base_kib));
        self.bar = Some((format!("at most {STREAMING_MB_MAX} MB above that"), above <= STREAMING_MB_MAX));
        self
    }

    fn cells(&self) -> Vec<String> {
        let ratio = self.ratio.map_or_else(|| "-".to_owned(), number);
        let (rule, verdict) = match &self.bar {
            Some((rule, met)) => (rule.clone(), if *met { "met" } else { "MISSED" }),
            None => ("-".to_owned(), "-"),
        };
        vec![self.work.clone(), self.measured.clone(), self.beside.clone(), ratio, rule, verdict.to_owned()]
    }
}

fn ms(time: Duration) -> String {
    format!("{} ms", number(time.as_secs_f64() * 1e3))
}

fn megabytes(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}

/// The report as Markdown, and whether a bar was missed.
pub(crate) struct ScaleReport {
    pub(crate) markdown: String,
    pub(crate) is_missed: bool,
}

/// Measures all rows. `large` is the large tree of the benchmark; `divisor` makes everything smaller by that factor, to try the benchmark itself.
pub(crate) fn run(setup: &Setup, large: Option<&Path>, divisor: usize) -> Result<ScaleReport> {
    let mut rows = long_history(setup, (CHECKPOINTS / divisor).max(2 * CHECKPOINTS_FEW))?;
    rows.extend(reading::rows(setup, large, divisor)?);
    rows.extend(large_file(setup, LARGE_FILE_BYTES / divisor as u64)?);
    rows.extend(many_files(setup, (FILES / divisor).max(FILES_PER_DIR))?);
    Ok(ScaleReport::new("Scale", &rows))
}

impl ScaleReport {
    pub(crate) fn new(title: &str, rows: &[ScaleRow]) -> Self {
        let head = ["work", "piton", "beside", "ratio", "bar", "verdict"].map(str::to_owned);
        let body: Vec<_> = rows.iter().map(ScaleRow::cells).collect();
        let is_missed = rows.iter().any(|row| row.bar.as_ref().is_some_and(|(_, met)| !met));
        Self { markdown: format!("## {title}\n\n{}", table(6, &head, &body)), is_missed }
    }
}

/// The time and the peak memory of one process.
struct Run {
    time: Duration,
    peak_kib: u64,
}

fn measured(command: &mut Command) -> Result<Run> {
    settle();
    let (time, peak_kib) = measure::timed_with_peak_kib(command)?;
    Ok(Run { time, peak_kib })
}

fn long_history(setup: &Setup, checkpoints: usize) -> Result<Vec<ScaleRow>> {
    eprintln!("a project with {checkpoints} checkpoints");
    let tree = setup.scratch.join("history");
    fs::create_dir_all(&tree)?;
    trees::generate(&tree, FILES_OF_HISTORY, BYTES_OF_HISTORY)?;
    let edited = tree.join("Makefile");
    let stores = [setup.piton(&tree, "few.base"), setup.piton(&tree, "many.base")];
    for (piton, checkpoints) in stores.iter().zip([CHECKPOINTS_FEW, checkpoints]) {
        for number in 0..checkpoints {
            fs::write(&edited, format!("all:\n# checkpoint {number}\n"))?;
            measure::run(&mut keeping(piton, &["take", "--json"]))?;
        }
        let listed = measure::run(&mut keeping(piton, &["rollback", "--json"]))?;
        let listed = String::from_utf8_lossy(&listed).matches("\"short_id\"").count();
        ensure!(listed == checkpoints, "{listed} checkpoints listed, {checkpoints} taken");
        // As maintenance leaves it.
        measure::run(&mut keeping(piton, &["prune"]))?;
    }
    wait_until_old();
    let mut edits = 0;
    let mut fastest = |arguments: &[&str], is_edited: bool| -> Result<[Duration; 2]> {
        let mut best = [Duration::MAX; 2];
        for round in 0..=setup.rounds {
            for (piton, best) in stores.iter().zip(&mut best) {
                if is_edited {
                    edits += 1;
                    fs::write(&edited, format!("all:\n# edit {edits}\n"))?;
                    pause_after_edit();
                }
                settle();
                let (time, _) = measure::timed(&mut keeping(piton, arguments))?;
                // The first settles what the store knows of the files.
                *best = if round == 0 { *best } else { time.min(*best) };
            }
        }
        Ok(best)
    };
    let nothing = fastest(&["take", "--json"], false)?;
    let one_file = fastest(&["take", "--json"], true)?;
    let list = fastest(&["rollback", "--limit", LISTED, "--json"], false)?;
    stores.iter().try_for_each(|piton| trees::remove(&piton.base))?;
    trees::remove(&tree)?;
    let few = format!("{CHECKPOINTS_FEW} checkpoints");
    let row = |work: &str, [short, long]: [Duration; 2]| {
        ScaleRow::ratio(format!("{work}, {checkpoints} checkpoints"), long, (&few, short))
    };
    Ok(vec![
        row("nothing changed", nothing).with_ratio_max(HISTORY_RATIO_MAX),
        row("one file changed", one_file).with_ratio_max(HISTORY_RATIO_MAX),
        row("list of 20", list),
    ])
}

/// A command that drops no checkpoint and starts no maintenance.
pub(crate) fn keeping(piton: &Piton, arguments: &[&str]) -> Command {
    let mut command = piton.command(arguments);
    command.env("PITON_MAX_SNAPSHOTS", "1000000").env("PITON_RETENTION_DAYS", "0").env("PITON_AUTO_PRUNE", "false");
    command
}

/// The first checkpoint of a file, and bringing it back.
struct OneFile {
    take: Run,
    restore: Run,
}

fn large_file(setup: &Setup, bytes: u64) -> Result<Vec<ScaleRow>> {
    let size = format!("one file of {} MB", number(bytes as f64 / 1e6));
    eprintln!("{size}");
    let base = one_file(setup, SMALL_FILE_BYTES.min(bytes), |_| Ok(()))?;
    let mut others = Vec::new();
    let large = one_file(setup, bytes, |path| {
        others = beside_large_file(setup, path)?;
        Ok(())
    })?;
    let (cp, hash_object) = match others[..] {
        [cp, hash_object] => (cp, hash_object),
        _ => bail!("nothing to compare the large file with"),
    };
    let beside = |what: &str, kib: u64| format!("{what} of a file of 1 MB: {} MB", number(megabytes(kib)));
    let (take, restore) = (&large.take, &large.restore);
    let take_beside = beside("first checkpoint", base.take.peak_kib);
    let restore_beside = beside("restore", base.restore.peak_kib);
    Ok(vec![
        ScaleRow::ratio(format!("first checkpoint, {size}"), take.time, ("git hash-object -w", hash_object)),
        ScaleRow::ratio(format!("first checkpoint, {size}"), take.time, ("cp and sync", cp)),
        ScaleRow::memory(format!("memory, first checkpoint, {size}"), take.peak_kib, &take_beside)
            .with_memory_above(take.peak_kib, base.take.peak_kib),
        ScaleRow::ratio(format!("restore, {size}"), restore.time, ("cp and sync", cp)),
        ScaleRow::memory(format!("memory, restore, {size}"), restore.peak_kib, &restore_beside)
            .with_memory_above(restore.peak_kib, base.restore.peak_kib),
    ])
}

/// Takes a project of one file, deletes the file and restores it. `between` sees the file before it is deleted.
fn one_file(setup: &Setup, bytes: u64, between: impl FnOnce(&Path) -> Result<()>) -> Result<OneFile> {
    let tree = setup.scratch.join("one-file");
    fs::create_dir_all(&tree)?;
    let path = tree.join("large.bin");
    write_large(&path, bytes)?;
    let piton = setup.piton(&tree, "one-file.base");
    let take = measured(&mut piton.take_command())?;
    let kept = setup.scratch.join("kept.bin");
    between(&path)?;
    fs::rename(&path, &kept)?;
    let restore = measured(&mut piton.command(&["restore", "1", "-y"]))?;
    measure::run(isolated("cmp", &setup.home).arg(&path).arg(&kept))?;
    fs::remove_file(&kept)?;
    trees::remove(&piton.base)?;
    trees::remove(&tree)?;
    Ok(OneFile { take, restore })
}

/// The times of `cp` with a sync, and of git writing the file as an object.
fn beside_large_file(setup: &Setup, path: &Path) -> Result<Vec<Duration>> {
    let copy = setup.scratch.join("copy.bin");
    settle();
    let mut cp = isolated("sh", &setup.home);
    cp.args(["-c", "cp -- \"$1\" \"$2\" && sync -- \"$2\"", "sh"]).arg(path).arg(&copy);
    let (cp, _) = measure::timed(&mut cp)?;
    fs::remove_file(&copy)?;
    let repository = setup.scratch.join("objects.git");
    measure::run(isolated("git", &setup.home).args(["init", "-q", "--bare"]).arg(&repository))?;
    settle();
    let mut hash = isolated("git", &setup.home);
    hash.arg("--git-dir").arg(&repository).args(["hash-object", "-w", "--no-filters", "--"]).arg(path);
    let (hash, _) = measure::timed(&mut hash)?;
    trees::remove(&repository)?;
    Ok(vec![cp, hash])
}

/// Half of it noise and half text, in pieces of 64 KiB, none like another.
fn write_large(path: &Path, bytes: u64) -> Result<()> {
    const PIECE_BYTES: usize = 64 << 10;
    let mut file = BufWriter::with_capacity(1 << 20, File::create(path)?);
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    let mut written = 0;
    while written < bytes {
        let mut piece = Vec::with_capacity(PIECE_BYTES);
        let is_text = (written / PIECE_BYTES as u64).is_multiple_of(2);
        while piece.len() < PIECE_BYTES {
            noise ^= noise << 13;
            noise ^= noise >> 7;
            noise ^= noise << 17;
            if is_text {
                writeln!(piece, "line {} of {written}", noise % 1000)?;
            } else {
                piece.extend_from_slice(&noise.to_le_bytes());
            }
        }
        piece.truncate(usize::try_from(bytes - written)?);
        file.write_all(&piece)?;
        written += piece.len() as u64;
    }
    file.into_inner().map_err(std::io::IntoInnerError::into_error)?.sync_all()?;
    Ok(())
}

fn many_files(setup: &Setup, files: usize) -> Result<Vec<ScaleRow>> {
    eprintln!("{files} files");
    let tree = setup.scratch.join("many-files");
    write_many(&tree, files)?;
    settle();
    wait_until_old();
    let mut piton = setup.piton(&tree, "many-files.base");
    let walk = |setup: &Setup| -> Result<Duration> {
        let mut best = Duration::MAX;
        for _ in 0..3 {
            let mut walk = isolated(&setup.this, &setup.home);
            best = best.min(measure::timed(walk.arg("statwalk").arg(&tree))?.0);
        }
        Ok(best)
    };
    let floor = walk(setup)?;
    let first = measured(&mut piton.take_command())?;
    // One more, by which all is settled.
    piton.take()?;
    let mut nothing = measured(&mut piton.take_command())?;
    for _ in 0..2 {
        let again = measured(&mut piton.take_command())?;
        nothing = if again.time < nothing.time { again } else { nothing };
    }
    trees::remove(&piton.base)?;
    trees::remove(&tree)?;
    let of = |work: &str| format!("{work}, {} files", number(files as f64));
    Ok(vec![
        ScaleRow::ratio(of("first checkpoint"), first.time, ("stat walk", floor)),
        ScaleRow::memory(of("memory, first checkpoint"), first.peak_kib, "-"),
        ScaleRow::ratio(of("nothing changed"), nothing.time, ("stat walk", floor)),
        ScaleRow::memory(of("memory, nothing changed"), nothing.peak_kib, "-"),
    ])
}

fn write_many(tree: &Path, files: usize) -> Result<()> {
    for dir in 0..files.div_ceil(FILES_PER_DIR) {
        let dir_path: PathBuf = tree.join(format!("d{}/e{dir}", dir / 32));
        fs::create_dir_all(&dir_path)?;
        for file in 0..FILES_PER_DIR.min(files - dir * FILES_PER_DIR) {
            fs::write(dir_path.join(format!("f{file}.txt")), format!("file {file} of directory {dir}\n"))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_take_that_grows_with_the_history_misses_the_bar_and_other_ratios_are_only_shown() {
        let row = |ms: u64| ScaleRow::ratio("take", Duration::from_millis(ms), ("few", Duration::from_millis(10)));
        assert!(row(40).bar.is_none());
        assert!(row(15).with_ratio_max(HISTORY_RATIO_MAX).bar.is_some_and(|(_, met)| met));
        assert!(row(16).with_ratio_max(HISTORY_RATIO_MAX).bar.is_some_and(|(_, met)| !met));
    }

    #[test]
    fn memory_is_judged_above_that_of_a_small_file() {
        let met = |kib: u64| {
            let row = ScaleRow::memory("take", kib, "-").with_memory_above(kib, 10_000);
            row.bar.is_some_and(|(_, met)| met)
        };
        assert!(met(10_000 + 62_500) && !met(10_000 + 62_600) && met(9_000));
    }

    #[test]
    fn a_large_file_has_the_asked_length_and_no_two_pieces_alike() {
        let dir = std::env::temp_dir().join(format!("xtask-scale-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join("large.bin");
        write_large(&path, 300_001).expect("written");
        let bytes = fs::read(&path).expect("read");
        fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(bytes.len(), 300_001);
        let pieces: std::collections::HashSet<_> = bytes.chunks(64 << 10).collect();
        assert_eq!(pieces.len(), 5);
    }
}
