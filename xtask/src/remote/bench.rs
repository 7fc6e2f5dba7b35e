//! Pushes of a tree by piton, restic and rclone to one server, with time, bytes and requests.
//!
//! All of them talk to the same proxy, which counts. The tree is in memory. Making a repository is not measured, and a
//! take is measured apart from the push: restic and rclone read the tree while they send it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::meter::{Proxy, Traffic};
use super::server::{BUCKET, CREDENTIALS, ServerKind, Work};
use crate::contestants::{Piton, Repository};
use crate::measure::{self, isolated};
use crate::report::number;
use crate::trees::{self, Edited, Size};
use crate::workspace;

/// Pushes after a changed file; the fastest counts.
const ROUNDS: usize = 3;

/// One push.
#[derive(Clone, Copy, Default)]
struct Pushed {
    time: Duration,
    traffic: Traffic,
}

/// A program that sends a tree to a server.
trait Sender {
    fn name(&self) -> &'static str;

    /// Makes a repository.
    fn prepare(&self) -> Result<()>;

    /// Does what precedes a push, and returns the time that it took.
    fn before(&self) -> Result<Duration> {
        Ok(Duration::ZERO)
    }

    fn push(&self) -> Command;

    /// Fails if a push that printed `stdout` did not send `files` files (links apart), of which `changed` is one.
    fn check(&self, stdout: &[u8], files: u64, changed: &Path) -> Result<()>;
}

pub(super) fn run(work: &Work, kind: ServerKind, size: Size, large: Option<&Path>) -> Result<()> {
    let programs = build()?;
    let tree = trees::prepare(&work.root, size, large)?;
    let tree = tree.context("there is no large tree: install Debian's linux-source-6.1, or name a directory")?;
    let home = work.scratch("bench")?;
    let server = kind.start(work).with_context(|| format!("cannot start {}", kind.name()))?;
    let port = server.endpoint.rsplit(':').next().and_then(|port| port.parse().ok()).context("a server has a port")?;
    let proxy = Proxy::start(port)?;
    let senders = senders(&programs, &tree.path, &home, &proxy.endpoint);
    let files = scope(&tree.path, &home)?;
    let changed = trees::spread(&tree.path, &files, 1)?.remove(0);
    let mut edited = Edited::new(changed.clone())?;
    println!("{}, {} files, {} MB", server.version, tree.files, number(tree.bytes as f64 / 1e6));
    let mut columns = Vec::new();
    for sender in &senders {
        sender.prepare()?;
        columns.push(vec![measured(sender.as_ref(), &proxy, tree.files - tree.links, &changed)?]);
    }
    for _ in 0..ROUNDS {
        edited.append_line()?;
        for (sender, pushes) in senders.iter().zip(&mut columns) {
            pushes.push(measured(sender.as_ref(), &proxy, 1, &changed)?);
        }
    }
    print!("{}", table(&senders, &columns));
    Ok(())
}

/// Builds both programs, and returns the directory with them.
fn build() -> Result<PathBuf> {
    let piton = workspace::build_piton()?;
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut build = Command::new(cargo);
    build.args(["build", "--release", "-p", "piton-remote"]).current_dir(workspace::workspace_root());
    ensure!(build.status()?.success(), "piton-remote does not build");
    Ok(piton.parent().context("a program has a directory")?.to_owned())
}

/// Returns all files of the tree, by their paths in it.
fn scope(tree: &Path, home: &Path) -> Result<Vec<PathBuf>> {
    let (dir, index) = (home.join("scope"), home.join("scope.index"));
    let repository = Repository { dir, index, tree: tree.to_owned(), home: home.to_owned() };
    repository.init()?;
    let names = measure::run(&mut repository.git(["ls-files", "--others", "--exclude-standard", "*.c"]))?;
    Ok(String::from_utf8_lossy(&names).lines().map(PathBuf::from).collect())
}

fn senders(programs: &Path, tree: &Path, home: &Path, endpoint: &str) -> Vec<Box<dyn Sender>> {
    let (tree, home) = (tree.to_owned(), home.to_owned());
    let base = home.join("base");
    let piton = Piton { program: programs.join("piton"), base, tree: tree.clone(), home: home.clone() };
    let remote = programs.join("piton-remote");
    vec![
        Box::new(PitonSender { piton, remote, endpoint: endpoint.to_owned() }),
        Box::new(ResticSender { tree: tree.clone(), home: home.clone(), endpoint: endpoint.to_owned() }),
        Box::new(RcloneSender { tree, home, endpoint: endpoint.to_owned() }),
    ]
}

/// Times and counts one push. The first element is what precedes it.
fn measured(sender: &dyn Sender, proxy: &Proxy, files: u64, changed: &Path) -> Result<(Duration, Pushed)> {
    let before = sender.before()?;
    measure::settle();
    proxy.take();
    let (time, stdout) = measure::timed(&mut sender.push())?;
    let traffic = proxy.take();
    eprintln!("{}: {before:.2?} and {time:.2?}, {traffic:?}", sender.name());
    sender.check(&stdout, files, changed).with_context(|| format!("{} did not send the change", sender.name()))?;
    Ok((before, Pushed { time, traffic }))
}

type Pushes = Vec<(Duration, Pushed)>;

/// Returns the table, with the ratio to the first column in each other one.
fn table(senders: &[Box<dyn Sender>], columns: &[Pushes]) -> String {
    let names: Vec<_> = senders.iter().map(|sender| sender.name()).collect();
    let mut text = format!("| push | {} |\n|---|{}\n", names.join(" | "), "--:|".repeat(names.len()));
    for (what, range) in [("first", 0..1), ("one file changed", 1..1 + ROUNDS)] {
        let fastest = |pushes: &Pushes| {
            let some = pushes[range.clone()].iter().min_by_key(|(before, pushed)| *before + pushed.time);
            some.copied().unwrap_or_default()
        };
        let columns: Vec<_> = columns.iter().map(fastest).collect();
        let mut row = |what: String, unit: &str, value: &dyn Fn(&(Duration, Pushed)) -> f64| {
            let first = value(&columns[0]);
            let cell = |(at, column): (usize, &(Duration, Pushed))| match (at, value(column)) {
                (0, value) => format!(" {}{unit} |", number(value)),
                (_, value) => format!(" {}{unit} ({}×) |", number(value), number(value / first)),
            };
            let cells: String = columns.iter().enumerate().map(cell).collect();
            text.push_str(&format!("| {what} |{cells}\n"));
        };
        row(format!("{what}, with the take"), " s", &|(before, pushed)| (*before + pushed.time).as_secs_f64());
        row(format!("{what}, without"), " s", &|(_, pushed)| pushed.time.as_secs_f64());
        row(format!("{what}, sent"), " kB", &|(_, pushed)| pushed.traffic.bytes_sent as f64 / 1e3);
        row(format!("{what}, received"), " kB", &|(_, pushed)| pushed.traffic.bytes_received as f64 / 1e3);
        row(format!("{what}, requests"), "", &|(_, pushed)| pushed.traffic.requests as f64);
    }
    text
}

/// piton, with encryption.
struct PitonSender {
    piton: Piton,
    remote: PathBuf,
    endpoint: String,
}

impl PitonSender {
    fn remote(&self, arguments: &[&str]) -> Command {
        let mut command = isolated(&self.remote, &self.piton.home);
        command.arg("--base").arg(&self.piton.base).args(arguments).envs(CREDENTIALS);
        command
    }
}

impl Sender for PitonSender {
    fn name(&self) -> &'static str {
        "piton"
    }

    fn prepare(&self) -> Result<()> {
        let url = format!("s3://{BUCKET}/piton");
        measure::run(&mut self.remote(&["add", &url, "--endpoint", &self.endpoint])).map(drop)
    }

    fn before(&self) -> Result<Duration> {
        let mut take = self.piton.take_command();
        let (time, stdout) = measure::timed(take.env("PITON_REMOTE", "false"))?;
        let answer: Value = serde_json::from_slice(&stdout)?;
        ensure!(answer["outcome"] == "taken", "piton overlooked the change: {answer}");
        Ok(time)
    }

    fn push(&self) -> Command {
        self.remote(&["push"])
    }

    fn check(&self, stdout: &[u8], _: u64, _: &Path) -> Result<()> {
        let report: Value = serde_json::from_slice(stdout)?;
        ensure!(report["projects"][0]["checkpoints"].as_u64() >= Some(1), "it answered {report}");
        Ok(())
    }
}

/// Restic.
struct ResticSender {
    tree: PathBuf,
    home: PathBuf,
    endpoint: String,
}

impl ResticSender {
    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = isolated("restic", &self.home);
        command.env("RESTIC_PASSWORD", "bench").env("RESTIC_CACHE_DIR", self.home.join("restic-cache"));
        command.envs(CREDENTIALS).env("RESTIC_REPOSITORY", format!("s3:{}/{BUCKET}/restic", self.endpoint));
        command.current_dir(&self.tree).args(arguments);
        command
    }
}

impl Sender for ResticSender {
    fn name(&self) -> &'static str {
        "restic"
    }

    fn prepare(&self) -> Result<()> {
        measure::run(&mut self.command(&["init"])).map(drop)
    }

    fn push(&self) -> Command {
        self.command(&["backup", ".", "--json"])
    }

    fn check(&self, stdout: &[u8], files: u64, _: &Path) -> Result<()> {
        let last = String::from_utf8_lossy(stdout).lines().last().unwrap_or_default().to_owned();
        let summary: Value = serde_json::from_str(&last)?;
        let sent = summary["files_new"].as_u64().unwrap_or(0) + summary["files_changed"].as_u64().unwrap_or(0);
        ensure!(sent >= files, "its summary is {last}");
        Ok(())
    }
}

/// Rclone, which keeps neither history nor encrypts: one object for each file.
struct RcloneSender {
    tree: PathBuf,
    home: PathBuf,
    endpoint: String,
}

impl RcloneSender {
    fn command(&self, verb: &str) -> Command {
        let mut command = isolated("rclone", &self.home);
        let settings = [("TYPE", "s3"), ("PROVIDER", "Ceph"), ("ENV_AUTH", "true"), ("ENDPOINT", &self.endpoint)];
        command.envs(settings.map(|(key, value)| (format!("RCLONE_CONFIG_BENCH_{key}"), value)));
        command.envs(CREDENTIALS).current_dir(&self.tree).args(["--config", "", verb]);
        command
    }

    fn place(&self) -> String {
        format!("bench:{BUCKET}/rclone")
    }
}

impl Sender for RcloneSender {
    fn name(&self) -> &'static str {
        "rclone"
    }

    fn prepare(&self) -> Result<()> {
        Ok(())
    }

    fn push(&self) -> Command {
        let mut command = self.command("sync");
        command.args(["--links", "."]).arg(self.place());
        command
    }

    fn check(&self, _: &[u8], _: u64, changed: &Path) -> Result<()> {
        let path = changed.strip_prefix(&self.tree)?;
        let sent = measure::run(self.command("cat").arg(format!("{}/{}", self.place(), path.display())))?;
        ensure!(sent == fs::read(changed)?, "{} is not as in the tree", path.display());
        Ok(())
    }
}
