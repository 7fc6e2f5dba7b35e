//! `remote`: the suites of `piton-remote` for a long time, against servers that others wrote, and beside other programs.
//!
//! Servers listen on the loopback address only, keep their data in a scratch directory below the work directory, and are
//! stopped when the command ends.

mod azurite;
mod bench;
mod ceph;
mod garage;
mod meter;
mod server;

use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result};

use self::server::{Server, ServerKind, Work};
use crate::trees::Size;
use crate::workspace::workspace_root;

const STRESS: &str = "stress::no_live_object_is_ever_deleted_and_every_ref_can_be_restored";
const CONTRACT: &str = "contract::the_server_that_the_environment_names_keeps_the_contract";

/// Bucket of a stress run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum StressBucket {
    /// The server of the tests, which delays, fails, repeats, and lists what was there a while ago
    Hostile,
    /// A directory
    Directory,
    /// PyPI's moto
    Moto,
}

#[derive(clap::Args)]
#[command(group = clap::ArgGroup::new("what").required(true).args(["stress", "contract", "bench"]))]
pub(crate) struct RemoteArgs {
    /// Many machines and one collector
    #[arg(long)]
    stress: bool,
    /// Buckets of the stress run, one after the other
    #[arg(long, value_name = "BUCKET", value_delimiter = ',', default_value = "hostile")]
    on: Vec<StressBucket>,
    /// Length of the stress run on each bucket
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Machines of the stress run
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u64).range(1..))]
    writers: u64,
    /// Projects of the stress run
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    projects: u64,
    /// Run the contract suite against these servers
    #[arg(long, value_name = "SERVER", value_delimiter = ',')]
    contract: Vec<ServerKind>,
    /// Measure pushes beside restic and rclone
    #[arg(long)]
    bench: bool,
    /// Server of the benchmark
    #[arg(long, value_name = "SERVER", default_value = "radosgw")]
    server: ServerKind,
    /// Tree of the benchmark
    #[arg(long, value_name = "SIZE", default_value = "large")]
    size: Size,
    /// Directory to copy as the large tree [default: Debian's linux-source-6.1]
    #[arg(long, value_name = "DIR")]
    large: Option<PathBuf>,
    /// Directory for servers and trees
    #[arg(long, value_name = "DIR", default_value = "target/remote")]
    work: PathBuf,
}

pub(crate) fn run(args: &RemoteArgs) -> Result<ExitCode> {
    let work = Work::new(&workspace_root().join(&args.work))?;
    if args.stress {
        let mut all = true;
        for bucket in &args.on {
            all &= stress(&work, *bucket, args)?;
        }
        return Ok(code(all));
    }
    if args.bench {
        bench::run(&work, args.server, args.size, args.large.as_deref())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut all = true;
    for kind in &args.contract {
        let server = kind.start(&work).with_context(|| format!("cannot start {}", kind.name()))?;
        println!("{}: {} at {}", kind.name(), server.version, server.endpoint);
        let is_kept = passes(on_server(&mut suite(CONTRACT), &server))?;
        println!("{}: {}", kind.name(), if is_kept { "keeps the contract" } else { "FAILED" });
        all &= is_kept;
    }
    Ok(code(all))
}

/// Runs the stress test on one bucket. Returns whether it passed.
fn stress(work: &Work, bucket: StressBucket, args: &RemoteArgs) -> Result<bool> {
    let mut suite = suite(STRESS);
    suite.env("PITON_REMOTE_SECONDS", (args.minutes * 60).to_string());
    suite.env("PITON_REMOTE_WRITERS", args.writers.to_string());
    suite.env("PITON_REMOTE_PROJECTS", args.projects.to_string());
    // Runs until the test has ended.
    let mut server = None;
    match bucket {
        StressBucket::Hostile => {}
        StressBucket::Directory => {
            let url = format!("file://{}", work.scratch("directory")?.display());
            suite.env("PITON_REMOTE_URL", url);
        }
        StressBucket::Moto => {
            let started = ServerKind::Moto.start(work).context("cannot start moto")?;
            println!("{} at {}", started.version, started.endpoint);
            on_server(&mut suite, &started);
            server = Some(started);
        }
    }
    let passed = passes(&mut suite)?;
    drop(server);
    Ok(passed)
}

/// Gives a test the bucket on a server.
fn on_server<'a>(suite: &'a mut Command, server: &Server) -> &'a mut Command {
    suite.env("PITON_REMOTE_URL", format!("{}://{}/prefix", server.scheme, server::BUCKET));
    suite.env("PITON_REMOTE_ENDPOINT", &server.endpoint).envs(server.credentials.iter().copied())
}

/// Returns the command for one test of `piton-remote`.
fn suite(test: &str) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(workspace_root());
    cargo.args(["test", "-p", "piton-remote", "--test", "it", "--", "--exact", "--nocapture", test]);
    cargo
}

fn passes(suite: &mut Command) -> Result<bool> {
    Ok(suite.status().context("cargo does not run")?.success())
}

fn code(passed: bool) -> ExitCode {
    if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
