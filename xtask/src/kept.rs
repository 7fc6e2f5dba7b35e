//! `kept`: keeps gigabytes before an agent's `rm -rf`, on file systems of their own in sparse images, and brings them
//! back. Compares every byte, the time with `cp --reflink=always`, and the space.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};
use testkit::{Dice, start_with_input};

use crate::measure::{isolated, run as run_command, text};
use crate::powercut::disk::{self, FileSystem, Mounted};
use crate::workspace::{piton, workspace_root};

/// Keeping may take this many times as long as `cp --reflink=always`.
const TIMES_MAX: f64 = 3.0;
/// Space that keeping may take.
const EXTRA_BYTES_MAX: u64 = 10_000_000;

#[derive(clap::Args)]
pub(crate) struct KeptArgs {
    /// Size of files without data
    #[arg(long, value_name = "GB", default_value_t = 50)]
    allocated: u64,
    /// Size of files with data
    #[arg(long, value_name = "MB", default_value_t = 1024)]
    data: u64,
    /// Only this file system
    #[arg(long, value_enum)]
    only: Option<FileSystem>,
    /// Program to run [default: built from this workspace]
    #[arg(long, value_name = "PATH")]
    piton: Option<PathBuf>,
}

pub(crate) fn run(args: &KeptArgs) -> Result<ExitCode> {
    let program = piton(args.piton.as_deref())?;
    let mut failed = 0;
    for file_system in FileSystem::ALL.into_iter().filter(|one| args.only.is_none_or(|only| only == *one)) {
        let disk = Disk::mount(file_system, (args.allocated + 16) << 30)?;
        match on(&disk, args, &program) {
            Ok(lines) => println!("{}: {}", file_system.name(), lines.join("; ")),
            Err(error) => {
                println!("{}: FAILED: {error:#}", file_system.name());
                failed += 1;
            }
        }
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// A file system in a sparse image, mounted while this exists.
struct Disk {
    file_system: FileSystem,
    root: PathBuf,
    /// Unmounted before the image is removed.
    mounted: Option<Mounted>,
    image: PathBuf,
}

impl Disk {
    fn mount(file_system: FileSystem, bytes: u64) -> Result<Self> {
        let work = workspace_root().join("target").join("kept");
        let (root, image) = (work.join(file_system.name()), work.join(format!("{}.img", file_system.name())));
        fs::create_dir_all(&root)?;
        disk::make_sized(file_system, &image, bytes)?;
        let mounted = Mounted::mount(file_system, &image, &root).context("mounting needs root")?;
        Ok(Self { file_system, root, mounted: Some(mounted), image })
    }

    /// Writes everything, so that the first sync of the next command does not write what earlier ones left.
    fn settle(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.root)?)?)
    }

    /// Returns the space in use and the space that is free, after everything was written.
    fn space(&self) -> Result<(u64, u64)> {
        self.settle()?;
        let said = text(Command::new("df").args(["--output=used,avail", "-B1"]).arg(&self.root))?;
        let mut numbers = said.lines().last().unwrap_or_default().split_whitespace().map(str::parse);
        let mut next = || numbers.next().context("df says nothing");
        Ok((next()??, next()??))
    }

    /// Blocks until the space in use is `bytes` less than `held`, and returns by how much it is less. Gives up after some
    /// seconds: xfs frees the blocks of deleted files in the background.
    fn freed_since(&self, held: u64, bytes: u64) -> Result<u64> {
        for _ in 0..50 {
            let freed = held.saturating_sub(self.space()?.0);
            if freed >= bytes {
                return Ok(freed);
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        Ok(held.saturating_sub(self.space()?.0))
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let Some(Err(error)) = self.mounted.take().map(Mounted::unmount) {
            eprintln!("{error:#}");
        }
        let _ = fs::remove_file(&self.image);
    }
}

/// An agent's project on such a disk, with its home and the base beside it.
struct Work<'a> {
    disk: &'a Disk,
    program: &'a Path,
}

impl Work<'_> {
    fn project(&self) -> PathBuf {
        self.disk.root.join("project")
    }

    fn output(&self) -> PathBuf {
        self.project().join("output")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = isolated(self.program, &self.disk.root.join("home"));
        command.args(args).current_dir(self.project()).env("PITON_ENABLED", "1").env("PITON_KEEP_MIN_FREE_MB", "0");
        command
    }

    fn hook(&self, name: &str, more: &Value) -> Result<Duration> {
        let mut event = json!({"session_id": "s", "prompt_id": "p", "transcript_path": "/t", "cwd": self.project(),
            "hook_event_name": name});
        let more = more.as_object().context("an object")?.clone();
        event.as_object_mut().context("an object")?.extend(more);
        let start = Instant::now();
        let done = start_with_input(&mut self.command(&["hook", "claude"]), event.to_string().as_bytes())?;
        let done = done.wait_with_output()?;
        ensure!(done.status.success() && done.stderr.is_empty(), "the hook said {done:?}");
        Ok(start.elapsed())
    }

    fn announce(&self, line: &str) -> Result<Duration> {
        self.hook("PreToolUse", &json!({"tool_name": "Bash", "tool_input": {"command": line}}))
    }

    fn json(&self, args: &[&str]) -> Result<Value> {
        Ok(serde_json::from_slice(&run_command(&mut self.command(args))?)?)
    }
}

/// Fills the output directory: large files without data, and files of noise with various modes.
fn fill(work: &Work<'_>, args: &KeptArgs) -> Result<()> {
    fs::create_dir_all(work.disk.root.join("home"))?;
    fs::create_dir_all(work.output().join("deep"))?;
    fs::write(work.project().join("main.rs"), "fn main() {}\n")?;
    fs::write(work.project().join("Cargo.toml"), "[package]\n")?;
    fs::write(work.project().join(".gitignore"), "output/\n")?;
    for number in 0..10 {
        let bytes = (args.allocated << 30) / 10;
        let path = work.output().join(format!("allocated-{number}"));
        run_command(Command::new("fallocate").args(["-l", &bytes.to_string()]).arg(&path))?;
    }
    let mut dice = Dice::new(7);
    for number in 0..16_u32 {
        let path = work.output().join(if number % 2 == 0 { "deep" } else { "." }).join(format!("data-{number}"));
        let bytes = usize::try_from((args.data << 20) / 16)?;
        fs::write(&path, dice.noise(bytes))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(if number % 3 == 0 { 0o600 } else { 0o644 }))?;
    }
    // A file in the middle of nothing.
    File::options().write(true).open(work.output().join("allocated-3"))?.write_all_at(b"here", 3 << 28)?;
    Ok(())
}

/// Attributes of a file that keeping must not change, and recovering must restore.
#[derive(Debug, PartialEq, Eq)]
struct Attributes {
    path: PathBuf,
    inode: u64,
    mode: u32,
    owner: (u32, u32),
    mtime: (i64, i64),
    size: u64,
}

fn attributes(dir: &Path) -> Result<Vec<Attributes>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let found = entry.metadata()?;
        if found.is_dir() {
            all.extend(attributes(&entry.path())?);
            continue;
        }
        all.push(Attributes {
            path: entry.path(),
            inode: found.ino(),
            mode: found.mode(),
            owner: (found.uid(), found.gid()),
            mtime: (found.mtime(), found.mtime_nsec()),
            size: found.len(),
        });
    }
    all.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(all)
}

fn without_inodes(mut all: Vec<Attributes>) -> Vec<Attributes> {
    all.iter_mut().for_each(|one| one.inode = 0);
    all
}

/// Returns a checksum over every byte of each file.
fn checksums(files: &[Attributes]) -> Result<Vec<u64>> {
    let mut buffer = vec![0; 1 << 20];
    let mut checksum = |file: &Attributes| {
        let opened = File::open(&file.path)?;
        let (mut sum, mut at) = (0xcbf2_9ce4_8422_2325_u64, 0);
        loop {
            let read = opened.read_at(&mut buffer, at)?;
            if read == 0 {
                // Pages of allocated space that were read count as data.
                rustix::fs::fadvise(&opened, 0, None, rustix::fs::Advice::DontNeed)?;
                return Ok(sum ^ at);
            }
            // The last word of a file may be shorter.
            for word in buffer[..read].chunks(8) {
                let mut bytes = [0; 8];
                bytes[..word.len()].copy_from_slice(word);
                sum = (sum ^ u64::from_le_bytes(bytes)).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(29);
            }
            at += read as u64;
        }
    };
    files.iter().map(&mut checksum).collect()
}

fn on(disk: &Disk, args: &KeptArgs, program: &Path) -> Result<Vec<String>> {
    let work = Work { disk, program };
    fill(&work, args)?;
    let mut said = vec![format!("{} GB allocated, {} MB of data", args.allocated, args.data)];
    let before = attributes(&work.output())?;
    let sums = checksums(&before)?;
    work.hook("UserPromptSubmit", &json!({"prompt": "clean up"}))?;
    // A hook that has nothing to keep, to be subtracted.
    let idle = shortest(|| {
        disk.settle()?;
        work.announce("rm -f nothing")
    })?;
    let reflink = reflink_time(&work)?;
    let used = disk.space()?.0;
    let kept = shortest(|| {
        run_command(&mut work.command(&["prune", "--kept"]))?;
        disk.settle()?;
        work.announce("rm -rf output")
    })?;
    let extra = disk.space()?.0.saturating_sub(used);
    ensure!(attributes(&work.output())? == before, "keeping changed the files");
    let status = work.json(&["status", "--json"])?;
    ensure!(status["unsaved"] == json!([]), "not all is kept: {}", status["unsaved"]);
    ensure!(status["kept"]["files"] == json!(before.len()), "not all is kept: {}", status["kept"]);
    said.push(format!("kept in {kept:.2?} (a hook that keeps nothing: {idle:.2?}), {} KB extra", extra >> 10));
    ensure!(extra < EXTRA_BYTES_MAX, "{extra} bytes extra");
    if let Some(reflink) = reflink {
        let times = kept.saturating_sub(idle).as_secs_f64() / reflink.as_secs_f64();
        said.push(format!("cp --reflink=always {reflink:.2?}: {times:.1} times"));
        ensure!(times <= TIMES_MAX, "{times:.1} times as long as cp --reflink=always");
    }
    fs::remove_dir_all(work.output())?;
    let start = Instant::now();
    run_command(&mut work.command(&["recover", "output", "--json"]))?;
    said.push(format!("recovered in {:.2?}", start.elapsed()));
    ensure!(checksums(&before)? == sums, "other bytes came back");
    ensure!(without_inodes(attributes(&work.output())?) == without_inodes(before), "other attributes came back");
    said.push("every byte, mode, owner and time is back".to_owned());
    said.push(freed(&work)?);
    said.push(freed_when_full(&work)?);
    Ok(said)
}

/// Returns the time of `cp --reflink=always`; `None` where the file system cannot clone.
fn reflink_time(work: &Work<'_>) -> Result<Option<Duration>> {
    if work.disk.file_system == FileSystem::Ext4 {
        return Ok(None);
    }
    let copy = work.disk.root.join("copy");
    let time = shortest(|| {
        work.disk.settle()?;
        let start = Instant::now();
        run_command(Command::new("cp").args(["-a", "--reflink=always"]).arg(work.output()).arg(&copy))?;
        let time = start.elapsed();
        fs::remove_dir_all(&copy)?;
        Ok(time)
    })?;
    Ok(Some(time))
}

/// Returns the shortest time of several runs: the others waited for the rest of the machine.
fn shortest(mut run: impl FnMut() -> Result<Duration>) -> Result<Duration> {
    let mut shortest = Duration::MAX;
    for _ in 0..5 {
        shortest = shortest.min(run()?);
    }
    Ok(shortest)
}

/// Deletes the files once more, and checks that `prune --kept` gives the space back.
fn freed(work: &Work<'_>) -> Result<String> {
    work.announce("rm -rf output")?;
    fs::remove_dir_all(work.output())?;
    let held = work.disk.space()?.0;
    run_command(&mut work.command(&["prune", "--kept"]))?;
    let freed = work.disk.freed_since(held, 512 << 20)?;
    ensure!(freed >= 512 << 20, "prune --kept freed {} MB", freed >> 20);
    Ok(format!("prune --kept freed {} MB", freed >> 20))
}

/// Deletes a large file on a disk that is nearly full, and checks that it is not held.
fn freed_when_full(work: &Work<'_>) -> Result<String> {
    let large = work.project().join("large.bin");
    fs::write(&large, Dice::new(3).noise(256 << 20))?;
    work.announce("rm large.bin")?;
    let kept = work.json(&["status", "--json"])?["kept"]["files"].clone();
    ensure!(kept == json!(1), "kept while there is room: {kept}");
    fs::remove_file(&large)?;
    let (held, free) = work.disk.space()?;
    let filling = work.disk.root.join("filling");
    let left = free / 50;
    run_command(Command::new("fallocate").args(["-l", &(free - left).to_string()]).arg(&filling))?;
    // The next event of any kind notices.
    work.hook("UserPromptSubmit", &json!({"prompt": "go on", "prompt_id": "q"}))?;
    work.announce("rm -f nothing")?;
    fs::remove_file(&filling)?;
    let freed = work.disk.freed_since(held, 128 << 20)?;
    let kept = work.json(&["status", "--json"])?["kept"]["files"].clone();
    if kept != json!(0) || freed < 128 << 20 {
        bail!("with a full disk {kept} files were kept, and {} MB freed", freed >> 20);
    }
    Ok(format!("a full disk freed {} MB", freed >> 20))
}
