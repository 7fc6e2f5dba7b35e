//! The platform: file modes and owners, processes and signals, and names as bytes. `std::os`, `rustix` and `/proc` are
//! named here only.

use std::ffi::{OsStr, OsString};
use std::fs::{self, DirBuilder, File, Metadata, Permissions};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Returns the name with these bytes.
pub(crate) fn name_of_bytes(bytes: &[u8]) -> &OsStr {
    OsStr::from_bytes(bytes)
}

/// Returns the owned name with these bytes.
pub(crate) fn name_from_bytes(bytes: Vec<u8>) -> OsString {
    OsString::from_vec(bytes)
}

/// Opens a file for reading. Does not block on a FIFO.
pub(crate) fn open_without_blocking(path: &Path) -> io::Result<File> {
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    File::options().read(true).custom_flags(nonblocking).open(path)
}

/// Opens the file that carries a lock. Creates it if it is missing, for the owner alone.
pub(crate) fn open_lock(path: &Path) -> io::Result<File> {
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// Creates a file that does not exist, for the owner alone.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    File::options().create_new(true).write(true).mode(0o600).open(path)
}

/// Creates a directory with this mode.
pub(crate) fn create_dir(dir: &Path, mode: u32) -> io::Result<()> {
    DirBuilder::new().mode(mode).create(dir)
}

/// Sets the permission bits of a file.
pub(crate) fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    file.set_permissions(Permissions::from_mode(mode))
}

/// Returns the permission bits of a file.
pub(crate) fn mode(found: &Metadata) -> u32 {
    found.mode() & 0o7777
}

/// Gives `file`, which is at `path`, the owner and the group of another file. Does nothing if it has them.
pub(crate) fn set_owner_like(file: &File, path: &Path, like: &Metadata) -> io::Result<()> {
    let own = file.metadata()?;
    if (own.uid(), own.gid()) == (like.uid(), like.gid()) {
        return Ok(());
    }
    std::os::unix::fs::chown(path, Some(like.uid()), Some(like.gid()))
}

/// Returns the number of bytes that an unprivileged user can still write to the file system of `dir`.
pub(crate) fn free_bytes(dir: &Path) -> Option<u64> {
    rustix::fs::statvfs(dir).ok().map(|stat| stat.f_bavail * stat.f_frsize)
}

/// Detaches the process from the terminal and session of its parent, and lowers its priority. The I/O priority follows
/// from the niceness.
pub(crate) fn detach() {
    let _ = rustix::process::setsid();
    let _ = rustix::process::nice(19);
}

/// Makes the process that `command` will start the leader of its own group, so that signals for the group of its parent
/// do not reach it.
pub(crate) fn start_in_own_group(command: &mut Command) -> &mut Command {
    command.process_group(0)
}

/// Kills every process of a group, which its leader gives its id.
pub(crate) fn kill_group(leader: u32) {
    let group = i32::try_from(leader).ok().and_then(rustix::process::Pid::from_raw);
    if let Some(group) = group {
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
}

/// Asks a process to end.
pub(crate) fn terminate(pid: u32) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw) {
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    }
}

/// Replaces this process by another program. Returns only if that fails.
pub(crate) fn become_program(command: &mut Command) -> io::Error {
    command.exec()
}

/// Returns the id of the parent of this process.
pub(crate) fn parent_id() -> u32 {
    std::os::unix::process::parent_id()
}

/// What the system tells about a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) parent: u32,
    /// Absolute path of its program, if it is known.
    pub(crate) program: Option<PathBuf>,
    /// Its arguments. `ps` prints them without quotes: one with a space counts as several.
    pub(crate) arguments: Vec<String>,
}

/// Returns what is known of a process: from `/proc`, or from `ps` where there is none, which may take long.
pub(crate) fn process(pid: u32) -> Option<Process> {
    if Path::new("/proc/self/stat").exists() { process_in_proc(pid) } else { process_of_ps(pid) }
}

fn process_in_proc(pid: u32) -> Option<Process> {
    let dir = Path::new("/proc").join(pid.to_string());
    let parent = parent_in_stat(&fs::read_to_string(dir.join("stat")).ok()?)?;
    let arguments = fs::read(dir.join("cmdline")).unwrap_or_default();
    let arguments = arguments.split(|byte| *byte == 0).skip(1).filter_map(|word| std::str::from_utf8(word).ok());
    let arguments = arguments.map(str::to_owned).collect();
    Some(Process { parent, program: fs::read_link(dir.join("exe")).ok(), arguments })
}

/// Returns the id of the parent in `/proc/<pid>/stat`. The name of the program before it may hold anything.
fn parent_in_stat(stat: &str) -> Option<u32> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}

fn process_of_ps(pid: u32) -> Option<Process> {
    // One `-o` for each column: some take the rest of the word for a heading. `-ww` prints lines of any length.
    let output =
        Command::new("/bin/ps").args(["-ww", "-o", "ppid=", "-o", "command=", "-p", &pid.to_string()]).output();
    let line = String::from_utf8_lossy(&output.ok()?.stdout).into_owned();
    let mut words = line.split_whitespace().map(str::to_owned);
    let parent = words.next()?.parse().ok()?;
    let program = words.next().map(PathBuf::from).filter(|program| program.is_absolute());
    Some(Process { parent, program, arguments: words.collect() })
}

/// Creates a symbolic link.
pub(crate) fn make_link(target: &Path, path: &Path) -> io::Result<()> {
    std::os::unix::fs::symlink(target, path)
}

/// Exchanges two names in one step. Fails if the file system cannot.
pub(crate) fn exchange(one: &Path, two: &Path) -> io::Result<()> {
    let here = rustix::fs::CWD;
    Ok(rustix::fs::renameat_with(here, one, here, two, rustix::fs::RenameFlags::EXCHANGE)?)
}

/// Returns the type of the file system that holds a directory, and its mount options: `ext4 (rw,relatime)`.
pub(crate) fn file_system_of(dir: &Path) -> Option<String> {
    let device = rustix::fs::stat(dir).ok()?.st_dev;
    let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
    file_system_in(&fs::read_to_string("/proc/self/mountinfo").ok()?, &device, dir)
}

/// Finds a file system in `/proc/self/mountinfo`: by its device if there is one of it, else by the nearest mount point.
fn file_system_in(mounts: &str, device: &str, dir: &Path) -> Option<String> {
    let mut best: Option<((bool, usize), String)> = None;
    for line in mounts.lines() {
        let Some((own, after)) = line.split_once(" - ") else { continue };
        let own: Vec<&str> = own.split(' ').collect();
        let (Some(number), Some(point), Some(options)) = (own.get(2), own.get(4), own.get(5)) else { continue };
        let point = point.replace("\\040", " ");
        let rank = (*number == device, point.len());
        if dir.starts_with(&point) && best.as_ref().is_none_or(|(other, _)| rank >= *other) {
            let kind = after.split(' ').next().unwrap_or_default();
            best = Some((rank, format!("{kind} ({options})")));
        }
    }
    best.map(|(_, name)| name)
}

/// Returns true if stdout is a pipe or a socket that is not read any more.
pub(crate) fn is_stdout_closed() -> bool {
    has_no_reader(&io::stdout())
}

fn has_no_reader(to: &impl AsFd) -> bool {
    let now = rustix::event::Timespec::default();
    // Without a wanted event, macOS reports nothing. It reports NVAL for each terminal and device.
    let mut polled = [rustix::event::PollFd::new(to, rustix::event::PollFlags::OUT)];
    let closed = rustix::event::PollFlags::ERR | rustix::event::PollFlags::HUP;
    rustix::event::poll(&mut polled, Some(&now)).is_ok() && polled[0].revents().intersects(closed)
}

/// Returns true if the parent process set this signal to be ignored, as shells do for background jobs.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    ignored & 1 << (signal - 1) != 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_directory_is_that_of_the_nearest_mount() {
        let mounts = "1 0 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n2 1 0:5 / /mnt/a\\040b rw - tmpfs none rw\n\
                      3 1 0:5 / /mnt/other ro - tmpfs none rw\n";
        let of = |device: &str, dir: &str| file_system_in(mounts, device, Path::new(dir));
        assert_eq!(of("0:5", "/mnt/a b/c").as_deref(), Some("tmpfs (rw)"));
        assert_eq!(of("8:1", "/home").as_deref(), Some("ext4 (rw,relatime)"));
        assert_eq!(of("0:5", "/mnt/other/x").as_deref(), Some("tmpfs (ro)"));
    }

    #[test]
    fn only_a_pipe_or_socket_without_a_reader_is_closed() {
        let (reader, writer) = io::pipe().expect("a pipe");
        assert!(!has_no_reader(&writer));
        rustix::io::ioctl_fionbio(&writer, true).expect("it does not block");
        while rustix::io::write(&writer, &[0; 4096]).is_ok() {}
        assert!(!has_no_reader(&writer), "a full pipe has a reader");
        drop(reader);
        assert!(has_no_reader(&writer));
        let (one, other) = std::os::unix::net::UnixStream::pair().expect("sockets");
        assert!(!has_no_reader(&one));
        other.shutdown(std::net::Shutdown::Write).expect("it is open");
        assert!(!has_no_reader(&one), "a client that has sent everything still reads");
        drop(other);
        assert!(has_no_reader(&one));
        assert!(!has_no_reader(&tempfile::tempfile().expect("a file")));
        for name in ["/dev/null", "/dev/ptmx"] {
            let device = File::options().read(true).write(true).open(name).expect(name);
            assert!(!has_no_reader(&device), "{name}");
        }
    }

    #[test]
    fn the_parent_of_a_process_is_found_whatever_its_program_is_called() {
        assert_eq!(parent_in_stat("7 (a) b (c)) S 42 7 7 0"), Some(42));
        assert_eq!(parent_in_stat("7 (a"), None);
        assert_eq!(process(std::process::id()).map(|own| own.parent), Some(parent_id()));
    }

    #[test]
    fn ps_tells_what_proc_tells() {
        if !["/bin/ps", "/proc/self/stat"].iter().all(|path| Path::new(path).exists()) {
            return testkit::note_skipped("there is no ps, or no /proc");
        }
        let temp = tempfile::tempdir().expect("a directory");
        let script = temp.path().join("agent.sh");
        fs::write(&script, format!("echo {}; read -r line", "x".repeat(200))).expect("a file");
        let mut command = Command::new("/bin/sh");
        command.arg(&script).args(["--flag", &"long".repeat(100)]);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().expect("a shell");
        // It has become the shell once it writes.
        io::Read::read_exact(child.stdout.as_mut().expect("a pipe"), &mut [0]).expect("it writes");
        let (told, known) = (process_of_ps(child.id()), process_in_proc(child.id()));
        drop(child.stdin.take());
        child.wait().expect("it ends");
        let told = told.expect("a process");
        assert_eq!((told.parent, told.program.as_deref()), (std::process::id(), Some(Path::new("/bin/sh"))));
        assert_eq!(told.arguments, known.expect("a process").arguments[..3], "its arguments");
        assert_eq!(process_of_ps(child.id()), None, "it has ended");
    }
}
