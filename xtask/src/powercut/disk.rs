//! Disk images: the file systems on them, mounting them, and the recorder of writes.
//!
//! The recorder is `qemu-storage-daemon`. It exports the disk as one file through FUSE, the kernel mounts that file,
//! and every write and every flush that the file system requests goes into a log, in order. The device mapper has its
//! own recorder, but is not available everywhere.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::measure;

/// Smallest size that XFS accepts.
const DISK_BYTES: u64 = 320 << 20;
/// Timeout for short waits.
const WAIT_MAX: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
    Btrfs,
}

impl FileSystem {
    pub(crate) const ALL: [Self; 3] = [Self::Ext4, Self::Xfs, Self::Btrfs];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
            Self::Btrfs => "btrfs",
        }
    }

    pub(super) fn maker(self) -> &'static str {
        match self {
            Self::Ext4 => "mkfs.ext4",
            Self::Xfs => "mkfs.xfs",
            Self::Btrfs => "mkfs.btrfs",
        }
    }

    fn make(self, disk: &Path) -> Result<()> {
        let mut command = Command::new(self.maker());
        match self {
            // No initialisation is deferred until after the mount: it would be noise in the log.
            Self::Ext4 => command.args(["-q", "-F", "-b", "4096", "-E", "lazy_itable_init=0,lazy_journal_init=0"]),
            Self::Xfs => command.args(["-q", "-f"]),
            Self::Btrfs => command.args(["-q", "-f"]),
        };
        measure::run(command.arg(disk)).map(drop)
    }

    fn mount_options(self) -> &'static str {
        match self {
            Self::Ext4 | Self::Xfs => "loop",
            Self::Btrfs => "loop,nodiscard",
        }
    }

    /// Returns the command that repairs a disk that does not mount.
    fn repair_command(self) -> &'static [&'static str] {
        match self {
            Self::Ext4 => &["fsck.ext4", "-f", "-y"],
            Self::Xfs => &["xfs_repair", "-L"],
            Self::Btrfs => &["btrfs", "rescue", "zero-log"],
        }
    }

    /// Tries to repair a disk that does not mount.
    pub(super) fn repair(self, disk: &Path) {
        let [program, args @ ..] = self.repair_command() else { return };
        let _ = measure::output(Command::new(program).args(args).arg(disk));
    }
}

/// Creates a disk image with an empty file system.
pub(crate) fn make(file_system: FileSystem, path: &Path) -> Result<()> {
    make_sized(file_system, path, DISK_BYTES)
}

/// Creates a disk image of this size, which takes no space before it is filled, with an empty file system.
pub(crate) fn make_sized(file_system: FileSystem, path: &Path, bytes: u64) -> Result<()> {
    File::create(path)?.set_len(bytes)?;
    file_system.make(path)
}

/// A mounted disk, unmounted on drop.
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    pub(crate) fn mount(file_system: FileSystem, disk: &Path, at: &Path) -> Result<Self> {
        if file_system == FileSystem::Btrfs {
            // The kernel remembers the disk of the previous state under the same name.
            let _ = measure::output(Command::new("btrfs").args(["device", "scan", "--forget"]));
        }
        Self::mount_with(file_system.name(), file_system.mount_options(), disk, at)
    }

    /// Mounts a file system of any type.
    pub(crate) fn mount_with(kind: &str, options: &str, source: &Path, at: &Path) -> Result<Self> {
        measure::run(Command::new("mount").args(["-t", kind, "-o", options]).args([source, at]))?;
        Ok(Self(at.to_owned()))
    }

    /// Blocks until everything written so far is on the disk.
    pub(super) fn sync(&self) -> Result<()> {
        Ok(rustix::fs::syncfs(File::open(&self.0)?)?)
    }

    pub(crate) fn unmount(self) -> Result<()> {
        testkit::wait_for_maintenance(&self.0);
        let begun = Instant::now();
        // An exiting process loses its command line first and closes its files later, so unmounting is retried.
        while let Err(error) = measure::run(Command::new("umount").arg(&self.0)) {
            if begun.elapsed() > WAIT_MAX {
                return Err(error);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        std::mem::forget(self);
        Ok(())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = measure::output(Command::new("umount").arg("-l").arg(&self.0));
    }
}

/// The kernel's id of the current boot.
const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Simulates a reboot after a cut, by replacing the boot id: of all that a reboot changes, this is visible to programs.
pub(super) struct NextBoot;

impl NextBoot {
    pub(super) fn begin(dir: &Path) -> Result<Self> {
        let name = dir.join("boot_id");
        fs::write(&name, "00000000-0000-4000-8000-000000000000\n")?;
        measure::run(Command::new("mount").arg("--bind").arg(name).arg(BOOT_ID))?;
        Ok(Self)
    }
}

impl Drop for NextBoot {
    fn drop(&mut self) {
        let _ = measure::output(Command::new("umount").arg(BOOT_ID));
    }
}

/// Exports a disk as a file and logs the writes to it.
pub(super) struct Recorder {
    daemon: Child,
    pub(super) shown: PathBuf,
    pub(super) log: PathBuf,
}

impl Recorder {
    pub(super) fn start(disk: &Path, dir: &Path) -> Result<Self> {
        let (shown, log, said) = (dir.join("shown"), dir.join("log"), dir.join("recorder.said"));
        File::create(&shown)?;
        File::create(&log)?;
        let mut command = Command::new("qemu-storage-daemon");
        for (name, path) in [("disk", disk), ("log", &log)] {
            command.arg("--blockdev").arg(format!("driver=file,node-name={name},filename={}", path.display()));
        }
        command.args(["--blockdev", "driver=blklogwrites,node-name=logged,file=disk,log=log,log-sector-size=512"]);
        let export = "type=fuse,id=shown,node-name=logged,writable=on,growable=off,mountpoint=";
        command.arg("--export").arg(format!("{export}{}", shown.display()));
        command.stdin(Stdio::null()).stdout(File::create(&said)?).stderr(File::options().append(true).open(&said)?);
        let daemon = command.spawn().context("cannot start qemu-storage-daemon")?;
        let mut recorder = Self { daemon, shown, log };
        let begun = Instant::now();
        // The export is ready once the file has the size of the disk.
        while fs::metadata(&recorder.shown).map_or(0, |found| found.len()) != DISK_BYTES {
            if recorder.daemon.try_wait()?.is_some() || begun.elapsed() > WAIT_MAX {
                let said = fs::read_to_string(&said).unwrap_or_default();
                bail!("qemu-storage-daemon shows no disk: {}", said.trim().lines().next().unwrap_or("it says nothing"));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(recorder)
    }

    /// Returns the current length of the log.
    pub(super) fn log_bytes(&self) -> Result<u64> {
        Ok(fs::metadata(&self.log)?.len())
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // No write is pending: the disk is unmounted, or the run has failed.
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
        let _ = measure::output(Command::new("umount").arg("-l").arg(&self.shown));
    }
}
