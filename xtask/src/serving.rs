//! `bench --serve`: takes over `piton serve`, measured by its client, beside takes of a program that calls the library, in
//! turn; and turns of an agent that reports both ends of them.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::bench::{Setup, pause_after_edit, wait_until_old};
use crate::measure::settle;
use crate::scale::ScaleRow;
use crate::trees;
use crate::workspace;

const FILES: usize = 34_000;
/// About the size of a source file.
const BYTES_PER_FILE: usize = 4_000;
/// Timed runs. With the turns, the store stays below the number of checkpoints at which old ones are dropped.
const ROUNDS: usize = 9;

const OVER_LIBRARY_MAX: Duration = Duration::from_millis(1);
const TURN_MAX: Duration = Duration::from_millis(200);

/// Measures all rows, in a tree of 34,000 files or the `divisor`-th part of it.
pub(crate) fn rows(setup: &Setup, divisor: usize) -> Result<Vec<ScaleRow>> {
    let files = (FILES / divisor).max(1000);
    let tree = setup.scratch.join("served");
    fs::create_dir_all(&tree)?;
    trees::generate(&tree, files, files * BYTES_PER_FILE)?;
    settle();
    let mut library = Library::start(setup, &tree)?;
    let mut server = Server::start(setup, &tree)?;
    // The first checkpoints, and a second one to reach a steady state.
    for _ in 0..2 {
        library.take()?;
        server.take()?;
        wait_until_old();
    }
    let edited = tree.join("Makefile");
    let mut rows = Vec::new();
    for (work, is_changed) in [("nothing changed", false), ("one file changed", true)] {
        let edit = || if is_changed { edit(&edited) } else { Ok(()) };
        let (mut by_library, mut over_serve) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            edit()?;
            by_library.push(expect(is_changed, &library.take()?)?);
            over_serve.push(expect(is_changed, &server.take()?)?);
        }
        let beside = ("call of the library", median(&mut by_library));
        let row = ScaleRow::ratio(format!("take over `serve`, {work}, {files} files"), median(&mut over_serve), beside);
        rows.push(row.with_difference_max(beside.1, OVER_LIBRARY_MAX));
    }
    let (mut turns, mut takes) = (Vec::new(), Vec::new());
    for number in 0..ROUNDS {
        turns.push(server.turn(number, || edit(&edited))?);
        edit(&edited)?;
        takes.push(expect(true, &library.take()?)?);
    }
    let work = format!("turn over `serve`, both ends, one file changed, {files} files");
    let beside = ("one take by the library", median(&mut takes));
    rows.push(ScaleRow::ratio(work, median(&mut turns), beside).with_time_max(TURN_MAX));
    library.end()?;
    server.end()?;
    trees::remove(&tree)?;
    Ok(rows)
}

fn median(times: &mut [Duration]) -> Duration {
    times.sort();
    times[times.len() / 2]
}

/// Changes the file, and lets the disk and the clock come to rest.
fn edit(file: &Path) -> Result<()> {
    let mut file = fs::File::options().append(true).open(file)?;
    writeln!(file, "# {:?}", std::time::SystemTime::now())?;
    drop(file);
    pause_after_edit();
    settle();
    Ok(())
}

/// A take as it was measured.
struct Taken {
    outcome: String,
    time: Duration,
}

fn expect(is_changed: bool, taken: &Taken) -> Result<Duration> {
    let expected = if is_changed { "taken" } else { "unchanged" };
    ensure!(taken.outcome == expected, "the outcome is {}, not {expected}", taken.outcome);
    Ok(taken.time)
}

/// A child process that answers each line with a line.
struct Answering {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Answering {
    fn start(command: &mut Command) -> Result<Self> {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = BufReader::new(stdout.context("no stdout")?);
        Ok(Self { child, stdin: stdin.context("no stdin")?, stdout })
    }

    fn ask(&mut self, line: &str) -> Result<String> {
        self.stdin.write_all(format!("{line}\n").as_bytes())?;
        let mut answer = String::new();
        ensure!(self.stdout.read_line(&mut answer)? > 0, "no answer to {line}");
        Ok(answer)
    }

    fn end(mut self) -> Result<()> {
        drop(self.stdin);
        ensure!(self.child.wait()?.success(), "it failed at its end");
        Ok(())
    }
}

/// The example `take_loop`, which measures its calls of the library itself.
struct Library(Answering);

impl Library {
    fn start(setup: &Setup, tree: &Path) -> Result<Self> {
        let program = workspace::build_example("take_loop")?;
        let mut command = crate::measure::isolated(program, &setup.home);
        Ok(Self(Answering::start(command.arg(setup.scratch.join("library.base")).arg(tree))?))
    }

    fn take(&mut self) -> Result<Taken> {
        settle();
        let answer = self.0.ask("")?;
        let (outcome, nanos) = answer.trim().split_once(' ').context("no time in the answer")?;
        Ok(Taken { outcome: outcome.to_owned(), time: Duration::from_nanos(nanos.parse()?) })
    }

    fn end(self) -> Result<()> {
        self.0.end()
    }
}

/// `piton serve`, measured from the request to the answer.
struct Server {
    process: Answering,
    tree: PathBuf,
    last_id: u64,
}

impl Server {
    fn start(setup: &Setup, tree: &Path) -> Result<Self> {
        let piton = setup.piton(tree, "served.base");
        let mut command = crate::measure::isolated(&piton.program, &setup.home);
        command.env("PITON_ENABLED", "true").env("PITON_AUTO_PRUNE", "false");
        command.arg("--base").arg(&piton.base).arg("serve");
        Ok(Self { process: Answering::start(&mut command)?, tree: tree.to_owned(), last_id: 0 })
    }

    /// Sends a request, and returns its result and the time until it was there. Warnings come before it.
    fn call(&mut self, method: &str, params: &Value) -> Result<(Value, Duration)> {
        self.last_id += 1;
        let request = json!({"jsonrpc": "2.0", "id": self.last_id, "method": method, "params": params}).to_string();
        let began = Instant::now();
        let mut answer: Value = serde_json::from_str(&self.process.ask(&request)?)?;
        while answer["id"] != self.last_id {
            let mut line = String::new();
            ensure!(self.process.stdout.read_line(&mut line)? > 0, "no answer to {request}");
            answer = serde_json::from_str(&line)?;
        }
        let time = began.elapsed();
        ensure!(answer["error"].is_null(), "{answer}");
        Ok((answer["result"].take(), time))
    }

    fn take(&mut self) -> Result<Taken> {
        settle();
        let (result, time) = self.call("take", &json!({"directory": self.tree, "reason": "bench"}))?;
        Ok(Taken { outcome: result["outcome"].as_str().unwrap_or_default().to_owned(), time })
    }

    /// Reports a turn with its two ends. Returns the time of both requests.
    fn turn(&mut self, number: usize, work: impl Fn() -> Result<()>) -> Result<Duration> {
        let mut total = Duration::ZERO;
        for event in ["prompt", "turn_end"] {
            let turn = format!("t{number}");
            let payload = json!({
                "event": event, "cwd": self.tree, "session_id": "s", "turn_id": turn, "prompt": "bench",
            });
            let (result, time) = self.call("event", &json!({"payload": payload}))?;
            ensure!(result["protected"] != false, "{event}: {result}");
            total += time;
            if event == "prompt" {
                work()?;
            }
        }
        Ok(total)
    }

    fn end(self) -> Result<()> {
        self.process.end()
    }
}
