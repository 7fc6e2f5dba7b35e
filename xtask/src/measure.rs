//! Runs processes and measures them: time, processor time, peak memory.
//!
//! Every process starts with a cleared environment, so that neither the user's git configuration nor settings of
//! piton reach what is measured.

use std::ffi::OsStr;
use std::io::Write;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Processor times in `/proc` come in hundredths of a second on every Linux but that of the Alpha.
const MS_PER_TICK: f64 = 10.0;

/// A command that inherits nothing but `PATH`; its home is an empty directory.
pub(crate) fn isolated(program: impl AsRef<OsStr>, home: &Path) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("HOME", home).env("LC_ALL", "C").stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    command
}

/// Runs to the end and gives what it printed. An exit code other than 0 is an error that carries the first line of
/// stderr.
pub(crate) fn run(command: &mut Command) -> Result<Vec<u8>> {
    let output = output(command)?;
    if !output.status.success() {
        bail!("{}: {}: {}", shown(command), output.status, complaint(&output));
    }
    Ok(output.stdout)
}

/// Like [`run`], for commands whose exit code is an answer.
pub(crate) fn output(command: &mut Command) -> Result<Output> {
    command.output().with_context(|| format!("cannot start {}", command.get_program().display()))
}

/// Like [`run`], with the time from before the start until after the exit.
pub(crate) fn timed(command: &mut Command) -> Result<(Duration, Vec<u8>)> {
    let start = Instant::now();
    let stdout = run(command)?;
    Ok((start.elapsed(), stdout))
}

/// What a command prints, as one trimmed line of text.
pub(crate) fn text(command: &mut Command) -> Result<String> {
    Ok(String::from_utf8_lossy(&run(command)?).trim().to_owned())
}

/// The command line with the last component of each path: where the work directory lies says nothing.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let short = words.map(|word| match Path::new(word) {
        path if path.is_absolute() => path.file_name().unwrap_or(word).to_string_lossy(),
        _ => word.to_string_lossy(),
    });
    short.collect::<Vec<_>>().join(" ")
}

/// The first line: programs name the fault there, and say further down where to find help.
fn complaint(output: &Output) -> String {
    let texts = [&output.stderr, &output.stdout].map(|bytes| String::from_utf8_lossy(bytes));
    let line = texts.iter().find_map(|text| text.trim().lines().next().map(str::to_owned));
    line.unwrap_or_else(|| "it printed nothing".to_owned())
}

/// Gets dirty pages out of the way. A contestant that syncs would otherwise wait for what the one before left
/// unwritten.
pub(crate) fn settle() {
    rustix::fs::sync();
}

/// Processor time, user and system, and the wall time of each call.
pub(crate) struct Cost {
    pub(crate) cpu_ms: f64,
    pub(crate) wall: Vec<Duration>,
}

/// The mean processor time of a call. The kernel adds up the times of reaped children to the nanosecond but shows
/// them in ticks: only the sum of many calls says something about one.
pub(crate) fn cpu_per_call(calls: u32, stdin: &str, mut command: impl FnMut() -> Command) -> Result<Cost> {
    let mut wall = Vec::new();
    let before = children_ticks()?;
    for _ in 0..calls {
        let mut command = command();
        let start = Instant::now();
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        if let Some(mut pipe) = child.stdin.take() {
            // A program that does not read its input closes the pipe before we have written.
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
    // The second field is the program's name in parentheses and may hold anything.
    let (_, fields) = stat.rsplit_once(')').context("/proc/self/stat has no name")?;
    let ticks = |index: usize| -> Result<f64> {
        let field = fields.split_whitespace().nth(index).context("/proc/self/stat is short")?;
        Ok(field.parse()?)
    };
    // cutime and cstime, fields 16 and 17 of the whole line.
    Ok(ticks(13)? + ticks(14)?)
}

/// The most memory that a process ever had resident, in KiB. Read from `/proc` while it runs: the high-water mark
/// only grows, so the last look misses at most what the last few milliseconds added.
pub(crate) fn peak_memory_kib(command: &mut Command) -> Result<u64> {
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
    if !status.success() {
        bail!("{}: {status}", shown(command));
    }
    Ok(peak)
}
