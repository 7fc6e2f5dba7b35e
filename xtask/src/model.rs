//! `model`: the random work of the test of the same name, for longer, on several file systems, as this user and as
//! another.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::measure;
use crate::powercut::disk::{self, FileSystem, Mounted};

const STEPS: u64 = 10_000;
/// Average number of steps in one case of all tests, rounded down.
const STEPS_OF_A_CASE: u64 = 80;
/// Text that the tests print before the number of steps they made.
const MARK: &str = "steps made: ";
/// Id of a user who owns nothing else.
const OTHER_USER: u32 = 65_534;
const TESTS: [&str; 3] = [
    "model::random_steps_and_kills_match_the_model",
    "model::a_long_session_is_restored_exactly",
    "model::files_moved_aside_come_back_although_rules_change",
];

#[derive(clap::Args)]
pub(crate) struct ModelArgs {
    /// Least number of steps on each file system, for each user
    #[arg(long, value_name = "N", default_value_t = STEPS)]
    steps: u64,
    /// File systems: ext4, xfs, btrfs, tmpfs, overlay, or here, which is the directory of --work itself
    #[arg(
        long = "fs",
        value_name = "LIST",
        value_delimiter = ',',
        default_value = "ext4,xfs,btrfs,tmpfs,overlay",
        value_parser = Place::parse
    )]
    places: Vec<Place>,
    /// Run as a user without rights, too; needs setpriv
    #[arg(long = "user")]
    with_user: bool,
    /// Classes of edits besides the usual ones: links, mmap [default: both, on tmpfs links alone]
    #[arg(long, value_name = "LIST")]
    classes: Option<String>,
    /// Directory for disks and mounts
    #[arg(long, value_name = "DIR", default_value = "target/model")]
    work: PathBuf,
}

/// File system to run on.
#[derive(Clone, Copy)]
enum Place {
    Disk(FileSystem),
    Tmpfs,
    Overlay,
    Here,
}

impl Place {
    fn parse(name: &str) -> Result<Self> {
        match name {
            "tmpfs" => Ok(Self::Tmpfs),
            "overlay" => Ok(Self::Overlay),
            "here" => Ok(Self::Here),
            _ => {
                let disk = FileSystem::ALL.into_iter().find(|known| known.name() == name);
                disk.map(Self::Disk).context("no such file system")
            }
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Disk(file_system) => file_system.name(),
            Self::Tmpfs => "tmpfs",
            Self::Overlay => "overlay",
            Self::Here => "here",
        }
    }

    /// Returns the classes of edits to try by default. On tmpfs a second store through a mapping never changes a
    /// timestamp, so no take can detect it.
    fn classes(self) -> &'static str {
        if matches!(self, Self::Tmpfs) { "links" } else { "links,mmap" }
    }
}

pub(crate) fn run(args: ModelArgs) -> Result<ExitCode> {
    let options = ModelArgs { work: std::path::absolute(&args.work)?, ..args };
    let program = build()?;
    fs::create_dir_all(&options.work)?;
    let (mut failed, mut skipped) = (0, 0);
    for place in &options.places {
        let dir = options.work.join(place.name());
        fs::create_dir_all(&dir)?;
        let mounted = match mount(*place, &dir) {
            Ok(mounted) => mounted,
            Err(error) => {
                println!("{:<8} skipped: it cannot be mounted here: {error:#}", place.name());
                skipped += 1;
                continue;
            }
        };
        let users: &[bool] = if options.with_user { &[false, true] } else { &[false] };
        for is_other in users {
            failed += usize::from(!try_place(&options, *place, &program, mounted.at(&dir), *is_other)?);
        }
        mounted.unmount()?;
    }
    println!("{failed} runs with differences, {skipped} file systems skipped");
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds the tests of the library and returns the path of the test program.
fn build() -> Result<PathBuf> {
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "-p", "piton", "--test", "it", "--no-run", "--message-format=json"]);
    let output = cargo.stderr(std::process::Stdio::inherit()).output().context("cannot run cargo")?;
    if !output.status.success() {
        bail!("the tests do not build");
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let executable = |line: &str| {
        let message: serde_json::Value = serde_json::from_str(line).ok()?;
        let is_it = message["target"]["name"] == "it" && message["profile"]["test"] == true;
        message["executable"].as_str().filter(|_| is_it).map(PathBuf::from)
    };
    text.lines().find_map(executable).context("cargo names no program")
}

/// Mounted file systems, innermost last, unmounted on drop.
struct Mounts {
    all: Vec<Mounted>,
    /// Directory to work in, if it is not the mount point itself.
    inner: Option<PathBuf>,
}

impl Mounts {
    fn at<'a>(&'a self, dir: &'a Path) -> &'a Path {
        self.inner.as_deref().unwrap_or(dir)
    }

    fn unmount(mut self) -> Result<()> {
        while let Some(mounted) = self.all.pop() {
            mounted.unmount()?;
        }
        Ok(())
    }
}

fn mount(place: Place, dir: &Path) -> Result<Mounts> {
    let all = match place {
        Place::Here => Vec::new(),
        Place::Tmpfs => vec![Mounted::mount_with("tmpfs", "size=512m", Path::new("tmpfs"), dir)?],
        Place::Disk(file_system) => {
            let image = dir.with_extension("img");
            disk::make(file_system, &image)?;
            vec![Mounted::mount(file_system, &image, dir)?]
        }
        Place::Overlay => {
            // The upper directory must not itself be on an overlay, as a container's root is.
            let mut all = mount(Place::Disk(FileSystem::Ext4), dir)?.all;
            let [lower, upper, work, merged] = ["lower", "upper", "work", "merged"].map(|name| dir.join(name));
            for dir in [&lower, &upper, &work, &merged] {
                fs::create_dir_all(dir)?;
            }
            let options =
                format!("lowerdir={},upperdir={},workdir={}", lower.display(), upper.display(), work.display());
            all.push(Mounted::mount_with("overlay", &options, Path::new("overlay"), &merged)?);
            return Ok(Mounts { all, inner: Some(merged) });
        }
    };
    Ok(Mounts { all, inner: None })
}

/// Runs the tests. Returns true if nothing differed from the model.
fn try_place(options: &ModelArgs, place: Place, program: &Path, dir: &Path, is_other: bool) -> Result<bool> {
    let dir = dir.join(if is_other { "other-user" } else { "this-user" });
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    let copy = dir.join("it");
    fs::copy(program, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755))?;
    let mut command = if is_other {
        chown(&dir, Some(OTHER_USER), Some(OTHER_USER)).context("cannot give the directory to another user")?;
        let mut command = Command::new("setpriv");
        let id = OTHER_USER.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "--"]).arg(&copy);
        command
    } else {
        Command::new(&copy)
    };
    let cases = options.steps.div_ceil(STEPS_OF_A_CASE);
    command.args(TESTS).args(["--exact", "--nocapture", "--test-threads", "2"]).current_dir(&dir);
    command.env("PITON_MODEL_DIR", &dir).env("TMPDIR", &dir).env("HOME", &dir);
    let classes = options.classes.as_deref().unwrap_or(place.classes());
    // A different seed for each file system and user.
    let seed = place.name().bytes().fold(u64::from(is_other), |seed, byte| seed * 31 + u64::from(byte));
    command.env("PITON_MODEL_SEED", seed.to_string());
    command.env("PITON_MODEL_CASES", cases.to_string()).env("PITON_MODEL_CLASSES", classes);
    let who = if is_other { "another user" } else { "this user" };
    let begun = Instant::now();
    let output = measure::output(&mut command)?;
    let is_right = output.status.success();
    let verdict = if is_right { "0 differences" } else { "DIFFERENCES" };
    let seconds = begun.elapsed().as_secs();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let made = stdout.lines().filter_map(|line| line.split_once(MARK)?.1.parse::<u64>().ok()).sum::<u64>();
    println!("{:<8} {who:<13} {made} steps, {cases} cases, {seconds} s: {verdict}", place.name());
    if !is_right {
        println!("{stdout}{}", String::from_utf8_lossy(&output.stderr));
    } else if made < options.steps {
        bail!("{made} steps were made, which are fewer than {}", options.steps);
    }
    let _ = fs::remove_dir_all(&dir);
    Ok(is_right)
}
