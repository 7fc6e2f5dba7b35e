//! Runs processes and measures them: time, processor time, peak memory.
//!
//! Every process starts with a cleared environment, so that neither the user's git configuration nor piton settings
//! affect the measurement.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Milliseconds per tick: processor times in `/proc` are in hundredths of a second on every Linux except on Alpha.
const MS_PER_TICK: f64 = 10.0;

/// Returns a command that inherits only `PATH`; its home is an empty directory.
pub(crate) fn isolated(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = testkit::clean_command(program);
    command.env("HOME", home);
    command
}

/// Runs a command to completion and returns its stdout. Fails with the first line of stderr if the exit code is not 0.
pub(crate) fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = output(command)?;
    if !output.status.success() {
        bail!("{}: {}: {}", shown(command), output.status, complaint(&output));
    }
    Ok(output.stdout)
}

/// Like [`run`], but returns the output whatever the exit code.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// Like [`run`], and returns the time from before the start until after the exit.
pub(crate) fn timed(command: &mut Command) -> Result<(Duration, Vec<u8>)> {
    let start = Instant::now();
    let stdout = run(command)?;
    Ok((start.elapsed(), stdout))
}

/// Returns the stdout of a command as trimmed text.
pub(crate) fn text(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&run(command)?).trim().to_owned())
}

/// Returns the command line with only the last component of each absolute path: the location of the work directory is
/// irrelevant.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let short = words.map(|word| match Path::new(word) {
        path if path.is_absolute() => path.file_name().unwrap_or(word).to_string_lossy(),
        _ => word.to_string_lossy(),
    });
    short.collect::<Vec<_>>().join(" ")
}

/// Returns the first line of output: programs name the error there, and say further down where to find help.
fn complaint(output: &Output) -> String {
    let texts = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes));
    let line = texts.iter().find_map(|text| text.trim().lines().next().map(str::to_owned));
    line.unwrap_or_else(|| "it printed nothing".to_owned())
}

/// Writes dirty pages to disk. A contestant that syncs would otherwise wait for the unwritten pages of the previous
/// one.
pub(crate) fn settle() {
    rustix::fs::sync();
}

/// Mean processor time (user and system), and the wall time of each call.
pub(crate) struct Cost {
    pub(crate) cpu_ms: f64,
    pub(crate) wall: Vec<Duration>,
}

/// Measures the mean processor time of a call. The kernel adds up the times of reaped children to the nanosecond but
/// reports them in ticks, so only the sum over many calls is precise enough.
pub(crate) fn cpu_per_call(calls: u32, stdin: &str, mut command: impl FnMut() -> Command) -> Result<Cost> {
    let mut wall = Vec::new();
    let before = children_ticks()?;
    for _ in 0..calls {
        let mut command = command();
        let start = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // A program that does not read its stdin may close the pipe before the write.
            let _ = pipe.write_all(stdin.as_bytes());
        }
        let status = child.wait()?;
        wall.push(start.elapsed());
        if !status.success() {
            bail!("{}: {status}", shown(&command));
        }
    }
    Ok(Cost { cpu_ms: (children_ticks()? - before) * MS_PER_TICK / f64::from(calls), wall })
}

fn children_ticks() -> Result<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat")?;
    // The second field is the program's name in parentheses and may contain any character.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat has no name")?;
    let ticks = |index: usize| -> Result<f64> {
        let field = fields.split_whitespace().nth(index).context("/proc/self/stat is short")?;
        Ok(field.parse()?)
    };
    // `cutime` and `cstime`, fields 16 and 17 of the whole line.
    Ok(ticks(13)? + ticks(14)?)
}

/// Returns the peak resident memory of a process in KiB. Read from `/proc` while it runs: the high-water mark only
/// grows, so the last sample misses at most the growth of the last few milliseconds.
pub(crate) fn peak_memory_kib(command: &mut Command) -> Result<u64> {
    timed_with_peak_kib(command).map(|(_, peak)| peak)
}

/// The time of a process and its peak memory in KiB. For long runs: each look costs a little of the time.
pub(crate) fn timed_with_peak_kib(command: &mut Command) -> Result<(Duration, u64)> {
    let start = Instant::now();
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        let text = std::fs::read_to_string(&status_file).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let now = line.and_then(|rest| rest.split_whitespace().next()?.parse().ok());
        peak = peak.max(now.unwrap_or(0));
        std::thread::sleep(Duration::from_millis(2));
    };
    let time = start.elapsed();
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok((time, peak))
}
