//! `dist-check`: installs what `dist` made in every way, on a new Debian system without Rust, compilers and git, and
//! hooks up an agent, takes and restores there.
//!
//! Needs root, debootstrap, npm and the package mirrors. The system is made once, in `target/dist/fresh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::workspace_root;

/// Release of Debian, and what an owner of such a system may have installed.
const SUITE: &str = "trixie";
const PACKAGES: &str = "python3-venv,nodejs,curl,ca-certificates";
/// npm of Debian brings 300 packages.
const NPM: &str = "npm@10.9.9";
const MIRROR: &str = "http://deb.debian.org/debian";

/// Ways to install, in the words of `check.sh`.
const WAYS: [&str; 6] = ["file", "http", "tampered", "deb", "wheel", "npm"];

#[derive(clap::Args)]
pub(crate) struct DistCheckArgs {
    /// Directory that `dist` made
    #[arg(long, value_name = "DIR", default_value = "target/dist/artifacts")]
    artifacts: PathBuf,
    /// Ways to install [default: all]
    #[arg(long = "way", value_name = "LIST", value_delimiter = ',', value_parser = WAYS)]
    ways: Vec<String>,
}

pub(crate) fn run(args: &DistCheckArgs) -> Result<ExitCode> {
    ensure!(args.artifacts.join(super::SUMS).is_file(), "run `cargo xtask dist` first");
    let work = workspace_root().join("target/dist/fresh");
    let system = system(&work)?;
    for (name, text) in [("check.sh", include_str!("check.sh")), ("server.py", include_str!("server.py"))] {
        fs::create_dir_all(system.join("check"))?;
        fs::write(system.join("check").join(name), text)?;
    }
    let dist = system.join("dist");
    let _ = fs::remove_dir_all(&dist);
    sh(Command::new("cp").arg("-r").arg(&args.artifacts).arg(&dist))?;
    let _mounted = SystemMounts::new(&system)?;
    let all = || WAYS.map(str::to_owned).to_vec();
    let ways = if args.ways.is_empty() { all() } else { args.ways.clone() };
    for way in ways {
        // Of the network, only loopback is there.
        let script = "ip link set lo up && exec chroot \"$0\" sh /check/check.sh \"$1\"";
        let mut command = Command::new("unshare");
        command.args(["--net", "sh", "-c", script]).arg(&system).arg(&way);
        command.env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin").env("VERSION", env!("CARGO_PKG_VERSION"));
        command.env("PROGRAMS", super::build::names().join(" "));
        sh(&mut command).with_context(|| format!("{way} does not give a working program"))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes the system, unless it is there. Returns its root directory.
fn system(work: &Path) -> Result<PathBuf> {
    let (root, ready) = (work.join("root"), work.join("ready"));
    if ready.is_file() {
        return Ok(root);
    }
    let _ = fs::remove_dir_all(&root);
    let (debs, npm) = (work.join("debs"), root.join("opt/npm"));
    fs::create_dir_all(&debs)?;
    let mut debootstrap = Command::new("debootstrap");
    debootstrap.args(["--variant=minbase", &format!("--include={PACKAGES}")]);
    debootstrap.arg(format!("--cache-dir={}", debs.display())).arg(SUITE).arg(&root).arg(MIRROR);
    sh(debootstrap.stdout(std::process::Stdio::null()))?;
    fs::create_dir_all(&npm)?;
    sh(Command::new("npm").args(["pack", "--silent", NPM]).current_dir(work))?;
    let archive = format!("{}.tgz", NPM.replace('@', "-"));
    sh(Command::new("tar").args(["-xzf", &archive, "--strip-components=1", "-C"]).arg(&npm).current_dir(work))?;
    fs::write(ready, "")?;
    Ok(root)
}

/// The file systems that a running system has. They are unmounted when dropped.
struct SystemMounts(Vec<PathBuf>);

impl SystemMounts {
    fn new(root: &Path) -> Result<Self> {
        let mut mounted = Self(Vec::new());
        for (kind, name) in [("proc", "proc"), ("tmpfs", "tmp")] {
            let dir = root.join(name);
            sh(Command::new("mount").args(["-t", kind, kind]).arg(&dir))?;
            mounted.0.push(dir);
        }
        Ok(mounted)
    }
}

impl Drop for SystemMounts {
    fn drop(&mut self) {
        for dir in self.0.iter().rev() {
            let _ = Command::new("umount").arg("-l").arg(dir).status();
        }
    }
}

fn sh(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed: {status}", command.get_program().display());
    Ok(())
}
