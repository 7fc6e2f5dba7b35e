//! Programs for other platforms. Linux: static, with musl, linked by the linker that comes with Rust. macOS: linked by
//! zig, which brings what a Mac has. The C and assembler that `piton-remote` needs is compiled by zig for all of them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::frameworks;

/// Versions of the compiler of C, and of the program that links for macOS with it, from PyPI.
const ZIG: [&str; 2] = ["ziglang==0.17.0", "cargo-zigbuild==0.24.0"];

/// Directory of the stubs of frameworks, below the root.
const FRAMEWORKS: &str = "target/dist/frameworks";

/// The programs of a release, which every artifact carries: the crate of each, and its name.
const PROGRAMS: [(&str, &str); 2] = [("piton-cli", "piton"), ("piton-remote", "piton-remote")];

/// A program that was built.
#[derive(Debug, Clone)]
pub(super) struct Program {
    pub(super) name: &'static str,
    pub(super) bytes: Vec<u8>,
}

/// Platform that piton is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    LinuxX86,
    LinuxArm,
    MacX86,
    MacArm,
}

impl Target {
    pub(super) const ALL: [Self; 4] = [Self::LinuxX86, Self::LinuxArm, Self::MacX86, Self::MacArm];

    pub(super) fn parse(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|target| target.name() == name).context("no such target")
    }

    /// Returns the target whose programs run on this machine.
    pub(super) fn host() -> Result<Self> {
        let name = format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS);
        Self::parse(&name).with_context(|| format!("piton is not published for {name}"))
    }

    /// Returns the name in the names of artifacts, from which the installer chooses by `uname`.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LinuxX86 => "x86_64-linux",
            Self::LinuxArm => "aarch64-linux",
            Self::MacX86 => "x86_64-macos",
            Self::MacArm => "aarch64-macos",
        }
    }

    /// Returns the name that Rust has for it.
    fn triple(self) -> &'static str {
        match self {
            Self::LinuxX86 => "x86_64-unknown-linux-musl",
            Self::LinuxArm => "aarch64-unknown-linux-musl",
            Self::MacX86 => "x86_64-apple-darwin",
            Self::MacArm => "aarch64-apple-darwin",
        }
    }

    /// Returns the name that Debian has for the architecture, if there is a package for it.
    pub(super) fn debian(self) -> Option<&'static str> {
        match self {
            Self::LinuxX86 => Some("amd64"),
            Self::LinuxArm => Some("arm64"),
            Self::MacX86 | Self::MacArm => None,
        }
    }

    /// Returns the platforms that pip installs a wheel on. The programs for Linux are static, and need no C library.
    pub(super) fn wheel_tags(self) -> &'static [&'static str] {
        match self {
            Self::LinuxX86 => &["manylinux_2_17_x86_64", "manylinux2014_x86_64", "musllinux_1_1_x86_64"],
            Self::LinuxArm => &["manylinux_2_17_aarch64", "manylinux2014_aarch64", "musllinux_1_1_aarch64"],
            Self::MacX86 => &["macosx_10_12_x86_64"],
            Self::MacArm => &["macosx_11_0_arm64"],
        }
    }

    /// Returns the names that npm has for the system and the processor.
    pub(super) fn npm(self) -> (&'static str, &'static str) {
        match self {
            Self::LinuxX86 => ("linux", "x64"),
            Self::LinuxArm => ("linux", "arm64"),
            Self::MacX86 => ("darwin", "x64"),
            Self::MacArm => ("darwin", "arm64"),
        }
    }

    /// Returns the name of the npm package with the program, which the client looks for.
    pub(super) fn npm_package(self) -> String {
        let (os, cpu) = self.npm();
        format!("piton-{os}-{cpu}")
    }

    pub(super) fn is_linux(self) -> bool {
        self.debian().is_some()
    }
}

/// Builds the programs for a target from the sources in `root`, and returns the directory with them.
pub(crate) fn build(root: &Path, target: Target) -> Result<PathBuf> {
    let mut cargo = cargo_for(root, target)?;
    run(cargo.arg("--release"))?;
    Ok(build_dir(root).join(target.triple()).join("release"))
}

/// Builds and links the programs for a target without optimisation.
pub(super) fn link(root: &Path, target: Target) -> Result<()> {
    run(cargo_for(root, target)?.args(["--profile", "link"]))
}

/// Returns the names of the programs.
pub(super) fn names() -> Vec<&'static str> {
    PROGRAMS.iter().map(|(_, name)| *name).collect()
}

/// Returns the programs in a directory.
pub(super) fn programs_in(dir: &Path) -> Result<Vec<Program>> {
    let read = |(_, name): (_, &'static str)| {
        let path = dir.join(name);
        let bytes = fs::read(&path).with_context(|| format!("there is no {}", path.display()))?;
        Ok(Program { name, bytes })
    };
    PROGRAMS.into_iter().map(read).collect()
}

/// Returns a call of cargo that builds the programs for a target.
fn cargo_for(root: &Path, target: Target) -> Result<Command> {
    let triple = target.triple();
    add_standard_library(triple)?;
    let build = if target.is_linux() { "build" } else { "zigbuild" };
    let mut cargo = cargo(root, build, target)?;
    cargo.args(["--locked", "--target", triple]);
    for (package, _) in PROGRAMS {
        cargo.args(["-p", package]);
    }
    let bin = zig(root)?;
    if target.is_linux() {
        let variable = format!("CARGO_TARGET_{}_LINKER", triple.to_uppercase().replace('-', "_"));
        // Part of every toolchain, and it links for each architecture without a C compiler for it.
        cargo.env(variable, "rust-lld");
        for (name, script) in compilers(&bin, triple) {
            let path = bin.join(format!("{name}-{triple}"));
            fs::write(&path, script)?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
            cargo.env(format!("{}_{}", name.to_uppercase(), triple.replace('-', "_")), path);
        }
        cargo.env(format!("CFLAGS_{}", triple.replace('-', "_")), c_flags(root)?);
    } else {
        frameworks::write_stubs(root, &root.join(FRAMEWORKS))?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = std::iter::once(bin).chain(std::env::split_paths(&path));
        cargo.env("PATH", std::env::join_paths(dirs)?);
    }
    Ok(cargo)
}

/// Returns scripts that call zig as a compiler and as an archiver for a Linux target. Zig has other names of targets than
/// those that it is called with.
fn compilers(bin: &Path, triple: &str) -> [(&'static str, String); 2] {
    let (zig, target) = (bin.join("python-zig"), triple.replace("-unknown", ""));
    let drop_target = "for arg do shift; case $arg in --target=*) ;; *) set -- \"$@\" \"$arg\" ;; esac; done";
    [
        ("cc", format!("#!/bin/sh\n{drop_target}\nexec '{}' cc -target {target} \"$@\"\n", zig.display())),
        ("ar", format!("#!/bin/sh\nexec '{}' ar \"$@\"\n", zig.display())),
    ]
}

/// Returns flags for C, with which the place of the sources is not found in the program.
fn c_flags(root: &Path) -> Result<String> {
    let map = |dir: &Path, name| format!("-ffile-prefix-map={}={name}", dir.display());
    Ok(format!("-fno-sanitize=undefined {} {}", map(&registry()?, "/cargo"), map(root, "/piton")))
}

/// Returns the directory in which cargo keeps the sources of crates.
fn registry() -> Result<PathBuf> {
    let home = || std::env::home_dir().map(|home| home.join(".cargo"));
    std::env::var_os("CARGO_HOME").map(PathBuf::from).or_else(home).context("there is no home directory")
}

fn build_dir(root: &Path) -> PathBuf {
    root.join("target/dist")
}

/// Returns a call of cargo in a fixed environment: neither the caller's flags nor the place of the sources is found in the
/// program.
fn cargo(root: &Path, command: &str, target: Target) -> Result<Command> {
    let mut flags = vec![
        format!("--remap-path-prefix={}=/cargo", registry()?.display()),
        format!("--remap-path-prefix={}=/piton", root.display()),
    ];
    if !target.is_linux() {
        // Relative, as flags are part of what names of symbols are made from.
        flags.push(format!("-Lframework={FRAMEWORKS}"));
    }
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.arg(command).current_dir(root).env("CARGO_TARGET_DIR", build_dir(root)).env("CARGO_INCREMENTAL", "0");
    cargo.env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f")).env_remove("RUSTFLAGS");
    Ok(cargo)
}

fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(status.success(), "{} failed: {status}", command.get_program().display());
    Ok(())
}

fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Installs the standard library for a target with rustup, if it is missing.
fn add_standard_library(triple: &str) -> Result<()> {
    let dir = output(Command::new("rustc").args(["--print", "target-libdir", "--target", triple]))?;
    if Path::new(&dir).is_dir() {
        return Ok(());
    }
    run(Command::new("rustup").args(["target", "add", triple]))
}

/// Installs zig and cargo-zigbuild from PyPI below `target`, and returns the directory of the programs.
fn zig(root: &Path) -> Result<PathBuf> {
    let dir = build_dir(root).join("zig");
    let bin = dir.join("bin");
    if !bin.join("cargo-zigbuild").is_file() {
        fs::create_dir_all(&dir)?;
        run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
        run(Command::new(bin.join("pip")).args(["install", "-q"]).args(ZIG))?;
    }
    Ok(bin)
}
