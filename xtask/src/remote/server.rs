//! Servers of object stores as child processes, with one bucket.

use std::fs::{self, File};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use super::{azurite, ceph, garage};
use crate::{measure, trees};

/// The bucket on each server.
pub(super) const BUCKET: &str = "bucket";
/// Access key, secret and region. Garage wants keys of this form.
pub(super) const KEY: &str = "GK0123456789abcdef01234567";
pub(super) const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
pub(super) const CREDENTIALS: [(&str, &str); 3] =
    [("AWS_ACCESS_KEY_ID", KEY), ("AWS_SECRET_ACCESS_KEY", SECRET), ("AWS_REGION", "us-east-1")];

/// Time for a server to answer.
const START_SECS_MAX: u64 = 120;
/// Checksum of an empty body, which curl does not send of its own accord.
const EMPTY_SHA256: &str = "x-amz-content-sha256: e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ServerKind {
    /// PyPI's moto 5, installed into a virtual environment
    Moto,
    /// Debian's Ceph: monitor, OSD and gateway on one machine, all data in memory
    Radosgw,
    /// The crate `garage` 2, which ignores conditional writes; built if it is missing
    Garage,
    /// Microsoft's emulator of Azure, from npm
    Azurite,
}

impl ServerKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Moto => "moto",
            Self::Radosgw => "radosgw",
            Self::Garage => "garage",
            Self::Azurite => "azurite",
        }
    }

    /// Starts a server with an empty bucket.
    pub(super) fn start(self, work: &Work) -> Result<Server> {
        let scratch = work.scratch(self.name())?;
        match self {
            Self::Moto => moto(work, &scratch),
            Self::Radosgw => ceph::start(&scratch),
            Self::Garage => garage::start(work, &scratch),
            Self::Azurite => azurite::start(work, &scratch),
        }
    }
}

/// The work directory: programs that were installed, scratch data of servers, trees.
pub(super) struct Work {
    pub(super) root: PathBuf,
}

impl Work {
    pub(super) fn new(root: &Path) -> Result<Self> {
        fs::create_dir_all(root).with_context(|| format!("cannot make {}", root.display()))?;
        Ok(Self { root: root.canonicalize()? })
    }

    /// Returns an empty directory.
    pub(super) fn scratch(&self, name: &str) -> Result<PathBuf> {
        let dir = self.root.join("scratch").join(name);
        trees::remove(&dir)?;
        fs::create_dir_all(&dir)?;
        Ok(dir)
    }
}

/// A running server. Dropping it kills its processes; its log files stay in the scratch directory.
pub(super) struct Server {
    pub(super) endpoint: String,
    pub(super) version: String,
    /// Scheme of the URL of the bucket.
    pub(super) scheme: &'static str,
    /// Variables with the credentials.
    pub(super) credentials: &'static [(&'static str, &'static str)],
    /// Held for its end only.
    pub(super) _processes: Processes,
}

impl Server {
    /// Returns a server of S3.
    pub(super) fn s3(endpoint: String, version: String, processes: Processes) -> Self {
        Self { endpoint, version, scheme: "s3", credentials: &CREDENTIALS, _processes: processes }
    }
}

/// Processes that end with the value, the last one first.
#[derive(Default)]
pub(super) struct Processes(Vec<Child>);

impl Processes {
    /// Starts a program with its output in a file.
    pub(super) fn spawn(&mut self, command: &mut Command, log: &Path) -> Result<()> {
        let out = File::create(log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdout(out.try_clone()?).stderr(out);
        let name = command.get_program().display().to_string();
        self.0.push(command.spawn().with_context(|| format!("cannot start {name}"))?);
        Ok(())
    }

    /// Blocks until `port` accepts connections. Fails if a process ends before.
    pub(super) fn wait_for(&mut self, port: u16) -> Result<()> {
        let start = Instant::now();
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            for child in &mut self.0 {
                if let Some(status) = child.try_wait()? {
                    bail!("a process of the server ended with {status}: see the scratch directory");
                }
            }
            ensure!(start.elapsed().as_secs() < START_SECS_MAX, "the server did not answer in {START_SECS_MAX} s");
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(())
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        for child in self.0.iter_mut().rev() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Returns a port that was free a moment ago.
pub(super) fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Creates the bucket by a signed request.
pub(super) fn create_bucket(endpoint: &str) -> Result<()> {
    let mut curl = Command::new("curl");
    curl.args(["--silent", "--show-error", "--fail-with-body", "-X", "PUT", "-H", EMPTY_SHA256]);
    curl.args(["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", &format!("{KEY}:{SECRET}")]);
    measure::run(curl.arg(format!("{endpoint}/{BUCKET}"))).context("cannot create the bucket").map(drop)
}

/// Installs moto, and starts it.
fn moto(work: &Work, scratch: &Path) -> Result<Server> {
    let venv = work.root.join("moto");
    let program = venv.join("bin/moto_server");
    if !program.exists() {
        println!("installing moto");
        measure::run(Command::new("python3").args(["-m", "venv"]).arg(&venv))?;
        measure::run(Command::new(venv.join("bin/pip")).args(["install", "--quiet", "moto[server]==5.*"]))?;
    }
    let version = "import moto; print(moto.__version__)";
    let version = measure::text(Command::new(venv.join("bin/python")).args(["-c", version]))?;
    let port = free_port()?;
    let mut processes = Processes::default();
    let mut command = measure::isolated(&program, scratch);
    processes.spawn(command.args(["-H", "127.0.0.1", "-p", &port.to_string()]), &scratch.join("moto.log"))?;
    processes.wait_for(port)?;
    let endpoint = format!("http://127.0.0.1:{port}");
    create_bucket(&endpoint)?;
    Ok(Server::s3(endpoint, format!("moto {version}"), processes))
}
