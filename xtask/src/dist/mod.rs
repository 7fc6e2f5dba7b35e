//! `dist`: everything that is published, from one command: a static program for each architecture of Linux (and a
//! program for macOS, with `--macos`), in an archive with manual pages, completions and licences; packages for Debian,
//! Python and npm; the installer; and the checksums of all of them.
//!
//! The same sources give the same bytes, in any directory: `--twice` builds a second time, from a clone elsewhere, and
//! compares.

mod archive;
pub(crate) mod build;
mod frameworks;
pub(crate) mod fresh;
mod packages;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail, ensure};
use sha2::{Digest as _, Sha256};

use self::archive::{Entry, deb, tar_gz};
use self::build::{Program, Target};
use crate::deps;
use crate::workspace::workspace_root;

/// Name of the list of checksums, in the format of `sha256sum`. The installer finds the archive in it.
const SUMS: &str = "SHA256SUMS";
const INSTALLER: &str = "packages/install.sh";
/// Stands in the installer for the address of the releases.
const RELEASES: &str = "@RELEASES@";

#[derive(clap::Args)]
pub(crate) struct DistArgs {
    /// Targets to build [default: both of Linux]
    #[arg(long = "target", value_name = "LIST", value_delimiter = ',', value_parser = Target::parse)]
    targets: Vec<Target>,
    /// Build for macOS, too
    #[arg(long)]
    macos: bool,
    /// Repository that publishes: the npm packages name it, and the installer downloads from its release of this version
    /// [default: none; the installer takes what is beside it]
    #[arg(long, value_name = "URL")]
    repository: Option<String>,
    /// Directory for the artifacts
    #[arg(long, value_name = "DIR", default_value = "target/dist/artifacts")]
    out: PathBuf,
    /// Build again from a clone in another directory, and compare every byte
    #[arg(long)]
    twice: bool,
    /// Only build and link the programs of the targets, without optimisation [default: both of macOS]
    #[arg(long, conflicts_with_all = ["macos", "twice", "repository"])]
    link: bool,
}

pub(crate) fn run(args: &DistArgs) -> Result<ExitCode> {
    let targets = match &args.targets[..] {
        [] if args.link => Target::ALL.into_iter().filter(|target| !target.is_linux()).collect(),
        [] if args.macos => Target::ALL.to_vec(),
        [] => Target::ALL.into_iter().filter(|target| target.is_linux()).collect(),
        given => given.to_vec(),
    };
    let out = std::path::absolute(&args.out)?;
    let root = workspace_root();
    if args.link {
        for target in targets {
            build::link(&root, target)?;
            println!("{}: linked", target.name());
        }
        return Ok(ExitCode::SUCCESS);
    }
    let repository = args.repository.as_deref();
    make(&root, &targets, repository, &out)?;
    if args.twice {
        compare_with_clone(&root, &targets, repository, &out)?;
    }
    print!("{}", fs::read_to_string(out.join(SUMS))?);
    Ok(ExitCode::SUCCESS)
}

/// Builds all artifacts of the sources in `root` into `out`, which is emptied first.
fn make(root: &Path, targets: &[Target], repository: Option<&str>, out: &Path) -> Result<()> {
    let _ = fs::remove_dir_all(out);
    fs::create_dir_all(out)?;
    let release = Release { version: env!("CARGO_PKG_VERSION"), secs: commit_secs(root) };
    let documents = documents(root)?;
    for target in targets {
        eprintln!("building for {}", target.name());
        let programs = build::programs_in(&build::build(root, *target)?)?;
        let archive = release.archive(*target, &programs, &documents);
        let name = format!("piton-{}-{}", release.version, target.name());
        fs::write(out.join(format!("{name}.tar.gz")), tar_gz(&archive, release.secs)?)?;
        let wheel = packages::wheel(root, *target, release.version, &programs, release.secs)?;
        let npm = packages::npm_program(*target, release.version, repository, &programs, release.secs)?;
        for (name, bytes) in [wheel, npm] {
            fs::write(out.join(name), bytes)?;
        }
        if let Some(architecture) = target.debian() {
            let package = Release::debian_files(&programs, &documents);
            let name = format!("piton_{}_{architecture}.deb", release.version);
            fs::write(out.join(name), deb(&release.control(architecture), &package, release.secs)?)?;
        }
    }
    let (name, bytes) = packages::npm_client(root, targets, release.version, repository, release.secs)?;
    fs::write(out.join(name), bytes)?;
    let releases = repository.map(|url| format!("{url}/releases/download/v{}", release.version));
    fs::write(out.join("install.sh"), installer(root, releases.as_deref())?)?;
    fs::write(out.join(SUMS), sums(out)?)?;
    Ok(())
}

/// Returns the installer. It downloads from `releases`, or takes the archives from its own directory.
fn installer(root: &Path, releases: Option<&str>) -> Result<String> {
    let text = fs::read_to_string(root.join(INSTALLER))?;
    ensure!(text.contains(RELEASES), "{INSTALLER} has no {RELEASES}");
    Ok(releases.map_or_else(|| text.clone(), |url| text.replace(RELEASES, url)))
}

/// Version and time of what is published.
struct Release {
    version: &'static str,
    /// Time of the commit: the mtime of every file in an archive.
    secs: u64,
}

/// Files of the documentation, by their path in an archive.
type Documents = Vec<(String, Vec<u8>)>;

impl Release {
    /// Returns the files of an archive, in a directory named after version and target.
    fn archive(&self, target: Target, programs: &[Program], documents: &Documents) -> Vec<Entry> {
        let dir = format!("piton-{}-{}", self.version, target.name());
        let mut entries = archive::programs_in(&format!("{dir}/bin"), programs);
        entries.extend(documents.iter().map(|(path, bytes)| Entry::file(format!("{dir}/{path}"), bytes.clone())));
        entries
    }

    /// Returns the same files in the places that Debian has for them.
    fn debian_files(programs: &[Program], documents: &Documents) -> Vec<Entry> {
        let place = |path: &str| match path.strip_prefix("doc/") {
            Some(name) => format!("usr/share/doc/piton/{name}"),
            None => format!("usr/{path}"),
        };
        let mut entries = archive::programs_in("usr/bin", programs);
        entries.extend(documents.iter().map(|(path, bytes)| Entry::file(place(path), bytes.clone())));
        entries
    }

    fn control(&self, architecture: &str) -> String {
        format!(
            "Package: piton\nVersion: {}\nArchitecture: {architecture}\nMaintainer: the authors of piton <piton@localhost>\n\
             Section: vcs\nPriority: optional\nDescription: undo layer for AI coding agents\n \
             Takes checkpoints of a project before each turn of a coding agent, and restores\n \
             them exactly. The store can be read with git.\n",
            self.version
        )
    }
}

/// Returns the licences, manual pages and completions. The pages are written by a program for this machine.
fn documents(root: &Path) -> Result<Documents> {
    let host = build::build(root, Target::host()?)?.join("piton");
    let scratch = root.join("target/dist/documents");
    let _ = fs::remove_dir_all(&scratch);
    fs::create_dir_all(&scratch)?;
    let run = |arguments: &[&str]| -> Result<Vec<u8>> {
        let mut command = Command::new(&host);
        let output = command.args(arguments).env("HOME", &scratch).env("XDG_CONFIG_HOME", &scratch).output()?;
        ensure!(output.status.success(), "piton {}: {}", arguments[0], String::from_utf8_lossy(&output.stderr));
        Ok(output.stdout)
    };
    let pages = scratch.join("man1");
    run(&["man", "--dir", pages.to_str().context("the path of the workspace is not UTF-8")?])?;
    let mut documents = Vec::new();
    for entry in fs::read_dir(&pages)? {
        let entry = entry?;
        documents.push((format!("share/man/man1/{}", entry.file_name().display()), fs::read(entry.path())?));
    }
    for (shell, path) in [
        ("bash", "share/bash-completion/completions/piton"),
        ("zsh", "share/zsh/site-functions/_piton"),
        ("fish", "share/fish/vendor_completions.d/piton.fish"),
    ] {
        documents.push((path.to_owned(), run(&["completions", shell])?));
    }
    for name in ["LICENSE-MIT", "LICENSE-APACHE", "README.md", "CHANGELOG.md"] {
        documents.push((format!("doc/{name}"), fs::read(root.join(name))?));
    }
    documents.push(("doc/THIRD-PARTY-LICENSES".to_owned(), deps::licence_texts(root)?.into_bytes()));
    documents.sort();
    Ok(documents)
}

/// Returns the time of the last commit, or 0 in sources without a repository.
fn commit_secs(root: &Path) -> u64 {
    let output = Command::new("git").args(["log", "-1", "--format=%ct"]).current_dir(root).output();
    output.ok().and_then(|output| String::from_utf8(output.stdout).ok()?.trim().parse().ok()).unwrap_or(0)
}

/// Returns the checksums of all files in a directory, sorted by name.
fn sums(dir: &Path) -> Result<String> {
    let mut text = String::new();
    for name in names(dir)? {
        let sum = Sha256::digest(fs::read(dir.join(&name))?);
        let _ = writeln!(text, "{sum:x}  {name}");
    }
    Ok(text)
}

fn names(dir: &Path) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(dir)? {
        names
            .push(entry?.file_name().into_string().map_err(|name| anyhow::anyhow!("{} is not UTF-8", name.display()))?);
    }
    names.sort();
    Ok(names)
}

/// Builds the commit of `root` in a clone elsewhere, and fails if an artifact differs.
fn compare_with_clone(root: &Path, targets: &[Target], repository: Option<&str>, out: &Path) -> Result<()> {
    let scratch = root.join("target/dist/again");
    let _ = fs::remove_dir_all(&scratch);
    let clone = scratch.join("elsewhere");
    let status = Command::new("git").args(["clone", "-q", "--no-hardlinks"]).arg(root).arg(&clone).status()?;
    ensure!(status.success(), "cannot clone {}", root.display());
    let again = scratch.join("artifacts");
    make(&clone, targets, repository, &again)?;
    let differing: Vec<_> = names(out)?
        .into_iter()
        .filter(|name| fs::read(out.join(name)).ok() != fs::read(again.join(name)).ok())
        .collect();
    if !differing.is_empty() {
        bail!("a second build gives other bytes (uncommitted changes?): {}", differing.join(", "));
    }
    eprintln!("a second build, from a clone in another directory, gives the same bytes");
    fs::remove_dir_all(&scratch)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_in_the_format_of_sha256sum() {
        let temp = testkit::Sandbox::new();
        let dir = temp.project();
        fs::write(dir.join("b"), "two").expect("a file");
        fs::write(dir.join("a"), "one").expect("a file");
        let listed = sums(&dir).expect("sums");
        let file = temp.root().join("sums");
        fs::write(&file, &listed).expect("a file");
        let mut check = Command::new("sha256sum");
        check.args(["--check", "--strict"]).arg(&file).current_dir(&dir);
        assert!(check.output().expect("sha256sum runs").status.success(), "{listed}");
    }

    /// A tag can be moved, and the workflow publishes.
    #[test]
    fn workflows_name_actions_by_commit() {
        let dir = workspace_root().join(".github/workflows");
        for name in names(&dir).expect("workflows") {
            let text = fs::read_to_string(dir.join(&name)).expect("a workflow");
            let used: Vec<_> = text.lines().filter_map(|line| line.split_once("uses: ")).collect();
            assert!(!used.is_empty(), "{name}");
            for (_, action) in used {
                let commit = action.split_once('@').map_or("", |(_, at)| at.split(' ').next().unwrap_or_default());
                let is_commit = commit.len() == 40 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(is_commit, "{name}: {action}");
            }
        }
    }

    /// Runs the installer in `sh`. Returns true if it succeeds, and what it says.
    fn install(from: &Path, to: &Path) -> (bool, String) {
        let script = to.with_extension("sh");
        // Without --from, the address in the script is used.
        let text = installer(&workspace_root(), Some(&format!("file://{}", from.display()))).expect("the installer");
        fs::write(&script, text).expect("a file");
        let mut sh = Command::new("sh");
        sh.arg(script).arg("--to").arg(to);
        let output = sh.output().expect("sh runs");
        let said = [output.stdout, output.stderr].concat();
        (output.status.success(), String::from_utf8_lossy(&said).into_owned())
    }

    #[test]
    fn the_installer_installs_what_has_the_right_checksum_and_nothing_else() {
        let temp = testkit::Sandbox::new();
        let (from, to) = (temp.project(), temp.root().join("prefix"));
        let release = Release { version: "1.2.3", secs: 0 };
        let documents = vec![("share/man/man1/piton.1".to_owned(), b"page".to_vec())];
        let program = |name| Program { name, bytes: format!("#!/bin/sh\necho {name} 1.2.3\n").into_bytes() };
        let programs = [program("piton"), program("piton-other")];
        let target = Target::host().expect("a target");
        let archive = tar_gz(&release.archive(target, &programs, &documents), 0).expect("an archive");
        let path = from.join(format!("piton-1.2.3-{}.tar.gz", target.name()));
        fs::write(&path, &archive).expect("a file");
        assert!(install(&from, &to).1.contains("cannot read SHA256SUMS"));
        fs::write(from.join(SUMS), sums(&from).expect("sums")).expect("a file");
        fs::write(&path, [&archive[..], b"x"].concat()).expect("a file");
        let (is_done, said) = install(&from, &to);
        assert!(!is_done && said.contains("checksum mismatch") && !to.exists(), "{said}");
        fs::write(&path, &archive).expect("a file");
        let (is_done, said) = install(&from, &to);
        assert!(is_done && said.contains("Installed piton 1.2.3"), "{said}");
        assert_eq!(fs::read(to.join("share/man/man1/piton.1")).expect("the page"), b"page");
        assert_eq!(
            names(&to.join("bin")).expect("a directory"),
            ["piton", "piton-other"],
            "programs, and nothing else"
        );
        for program in &programs {
            let output = Command::new(to.join("bin").join(program.name)).output().expect("it runs");
            assert_eq!(output.stdout, format!("{} 1.2.3\n", program.name).into_bytes());
        }
    }
}
