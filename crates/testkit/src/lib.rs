//! Helpers shared by both test suites: an isolated sandbox per test, trees written as text, and stock git as the
//! oracle.
//!
//! Nothing here uses the library under test.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::io::{self, Seek, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

#[cfg(target_os = "linux")]
pub mod fuse;
mod kept;
pub mod modules;
pub mod prose;
pub mod s3;
pub mod soak;
pub mod source;
pub mod space;
pub mod state;

pub use kept::{each_kept_input, generated_seeds, unescape_command};

/// A home, a base and a project in a temporary directory.
pub struct Sandbox {
    temp: TempDir,
}

/// Content of a checkpoint at one path.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Held {
    /// A file: true if it is executable, and its bytes.
    File(bool, Vec<u8>),
    /// A symlink: its target.
    Link(Vec<u8>),
}

impl Held {
    /// Returns the number of bytes of the file or of the link target.
    pub fn len(&self) -> u64 {
        match self {
            Self::File(_, bytes) | Self::Link(bytes) => bytes.len() as u64,
        }
    }

    /// Returns true if there are 0 bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pseudo-random numbers, the same in every run with the same seed.
#[derive(Debug, Clone)]
pub struct Dice(u64);

impl Dice {
    /// Creates a generator; another seed gives another sequence.
    pub fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// Returns a number below `sides`.
    pub fn roll(&mut self, sides: usize) -> usize {
        usize::try_from(self.next() >> 33).expect("31 bits") % sides
    }

    /// Returns a number from `first` to `last`, both included.
    pub fn between(&mut self, first: usize, last: usize) -> usize {
        first + self.roll(last - first + 1)
    }

    /// Returns a random element of `from`.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.roll(from.len())]
    }

    /// Returns `bytes` bytes that do not compress.
    pub fn noise(&mut self, bytes: usize) -> Vec<u8> {
        let mut noise: Vec<u8> = (0..bytes.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).collect();
        noise.truncate(bytes);
        noise
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

impl Sandbox {
    /// Creates a sandbox with an empty home and an empty project.
    pub fn new() -> Self {
        Self::new_in(&std::env::temp_dir())
    }

    /// Like [`Self::new`], but below `dir`.
    pub fn new_in(dir: &Path) -> Self {
        let temp = tempfile::Builder::new().prefix("piton-test-").tempdir_in(dir).expect("a temporary directory");
        // The temporary directory may be reached through a symlink, but projects are identified by their real path: see
        // `root`.
        let sandbox = Self { temp };
        fs::create_dir(sandbox.home()).expect("a home");
        fs::create_dir(sandbox.project()).expect("a project");
        sandbox
    }

    /// Real path of the directory that contains everything else.
    pub fn root(&self) -> PathBuf {
        self.temp.path().canonicalize().expect("a temporary directory that exists")
    }

    /// The home directory.
    pub fn home(&self) -> PathBuf {
        self.root().join("home")
    }

    /// The base, which does not exist until something creates it.
    pub fn base(&self) -> PathBuf {
        self.home().join(".hermes/checkpoints")
    }

    /// The store.
    pub fn store(&self) -> PathBuf {
        self.base().join("store")
    }

    /// The project directory.
    pub fn project(&self) -> PathBuf {
        self.root().join("project")
    }

    /// Returns another project directory beside the first, created if it is missing.
    pub fn other_project(&self, name: &str) -> PathBuf {
        let dir = self.root().join(name);
        fs::create_dir_all(&dir).expect("a project");
        dir
    }

    /// Returns the path in the project, given as bytes.
    pub fn path(&self, path: impl AsRef<[u8]>) -> PathBuf {
        self.project().join(OsStr::from_bytes(path.as_ref()))
    }

    /// Writes a file in the project and creates its parent directories.
    pub fn write(&self, path: impl AsRef<[u8]>, contents: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a directory around it")).expect("directories");
        fs::write(path, contents).expect("a file");
    }

    /// Creates a symlink in the project, and its parent directories.
    pub fn link(&self, path: impl AsRef<[u8]>, target: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().expect("a directory around it")).expect("directories");
        symlink(OsStr::from_bytes(target.as_ref()), path).expect("a link");
    }

    /// Sets the permission bits of a path in the project.
    pub fn chmod(&self, path: impl AsRef<[u8]>, mode: u32) {
        fs::set_permissions(self.path(path), Permissions::from_mode(mode)).expect("permissions");
    }

    /// Copies a program to `dir` in the sandbox as `piton` and returns its path. A separate process writes the copy: if
    /// this process did, a child started by another thread could inherit the open descriptor, and executing a file that
    /// is open for writing fails with `ETXTBSY`.
    pub fn copy_of_program(&self, program: impl AsRef<Path>, dir: &str) -> PathBuf {
        let dir = self.root().join(dir);
        fs::create_dir_all(&dir).expect("a directory");
        let copy = dir.join("piton");
        assert!(clean_command("cp").arg(program.as_ref()).arg(&copy).status().expect("cp runs").success());
        copy
    }

    /// Writes a script that can be executed at once. A separate process writes it, for the same reason as in
    /// [`Self::copy_of_program`].
    pub fn write_program(&self, path: &Path, script: &str) {
        let mut shell = clean_command("sh");
        shell.args(["-c", "cat > \"$1\" && chmod 755 \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
        let mut shell = shell.spawn().expect("sh runs");
        shell.stdin.take().expect("a pipe").write_all(script.as_bytes()).expect("it reads");
        assert!(shell.wait().expect("it ends").success());
    }

    /// Creates a tree from text, one entry per line: `dir/`, `link -> target`, `file = contents`, `file` (its own name
    /// as contents), with a leading `*` for an executable file. Indentation is ignored.
    pub fn tree(&self, text: &str) {
        for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
            let (is_executable, line) = line.strip_prefix('*').map_or((false, line), |line| (true, line));
            if let Some((path, target)) = line.split_once(" -> ") {
                self.link(path, target);
            } else if let Some(path) = line.strip_suffix('/') {
                fs::create_dir_all(self.path(path)).expect("a directory");
            } else {
                let (path, contents) = line.split_once(" = ").unwrap_or((line, line));
                self.write(path, contents.replace("\\n", "\n").replace("\\r", "\r"));
                if is_executable {
                    self.chmod(path, 0o755);
                }
            }
        }
    }

    /// Runs stock git on the store and returns its output. Panics if git fails.
    pub fn store_git(&self, args: &[&str]) -> Vec<u8> {
        wait_for_maintenance(&self.root());
        let git_dir = format!("--git-dir={}", self.store().display());
        let output = git().arg(git_dir).args(args).output().expect("git runs");
        succeed(&output, args);
        output.stdout
    }

    /// Asserts that `git fsck` finds nothing wrong with the store.
    pub fn assert_store_is_whole(&self) {
        wait_for_maintenance(&self.root());
        let git_dir = format!("--git-dir={}", self.store().display());
        let output =
            git().arg(git_dir).args(["fsck", "--full", "--strict", "--no-dangling"]).output().expect("git runs");
        let words = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let complaints: Vec<_> = words.lines().filter(|line| !line.starts_with("notice: ")).collect();
        assert!(output.status.success() && complaints.is_empty(), "git fsck: {words}");
    }

    /// Returns the content of a checkpoint, as read by stock git.
    pub fn held_by(&self, checkpoint: &str) -> BTreeMap<Vec<u8>, Held> {
        let listing = self.store_git(&["ls-tree", "-r", "-z", checkpoint]);
        let entries = listing.split(|byte| *byte == 0).filter(|line| !line.is_empty()).map(|line| {
            let tab = line.iter().position(|byte| *byte == b'\t').expect("a path after a tab");
            let fields = String::from_utf8_lossy(&line[..tab]).into_owned();
            let [mode, kind, id] = fields.split(' ').collect::<Vec<_>>()[..] else { panic!("{fields}") };
            assert_eq!(kind, "blob", "{fields}");
            (line[tab + 1..].to_vec(), mode.to_owned(), id.to_owned())
        });
        let entries: Vec<_> = entries.collect();
        let blobs = self.blobs(entries.iter().map(|(_, _, id)| id.as_str()));
        let held = entries.into_iter().zip(blobs).map(|((path, mode, _), bytes)| match mode.as_str() {
            "120000" => (path, Held::Link(bytes)),
            "100755" => (path, Held::File(true, bytes)),
            "100644" => (path, Held::File(false, bytes)),
            other => panic!("a mode that git does not have: {other}"),
        });
        held.collect()
    }

    /// Returns the bytes of these blobs, read by one stock git process.
    fn blobs<'a>(&self, ids: impl Iterator<Item = &'a str>) -> Vec<Vec<u8>> {
        let mut wanted = tempfile::tempfile().expect("a temporary file");
        for id in ids {
            writeln!(wanted, "{id}").expect("a line");
        }
        wanted.rewind().expect("a file");
        let git_dir = format!("--git-dir={}", self.store().display());
        let args = ["cat-file", "--batch"];
        let output = git().arg(git_dir).args(args).stdin(wanted).output().expect("git runs");
        succeed(&output, &args);
        let mut blobs = Vec::new();
        let mut rest = &output.stdout[..];
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let header = String::from_utf8_lossy(&rest[..end]).into_owned();
            let size = header.rsplit(' ').next().and_then(|size| size.parse::<usize>().ok());
            let size = size.unwrap_or_else(|| panic!("git cat-file: {header}"));
            blobs.push(rest[end + 1..][..size].to_vec());
            rest = &rest[end + 1 + size + 1..];
        }
        blobs
    }

    /// Returns the number of objects of a kind in the store, packed and loose.
    pub fn count_objects(&self, kind: &str) -> usize {
        let all = self.store_git(&["cat-file", "--batch-all-objects", "--batch-check=%(objecttype)"]);
        String::from_utf8_lossy(&all).lines().filter(|line| *line == kind).count()
    }

    /// Returns the temporary files in the store that a killed or failed process left behind.
    pub fn temporary_files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        walk(&self.store(), &mut |path| {
            let name = path.file_name().unwrap_or_default().as_bytes();
            if name.starts_with(b"tmp_") || name.ends_with(b".lock") {
                found.push(path.to_owned());
            }
        });
        found
    }

    /// Runs git in the project, as its user would, and returns its output. Panics if git fails.
    pub fn project_git(&self, args: &[&str]) -> Vec<u8> {
        let output = git().current_dir(self.project()).args(args).output().expect("git runs");
        succeed(&output, args);
        output.stdout
    }

    /// Runs stock git with the store, the project and the project's index, as Hermes does.
    pub fn seed_git(&self, project: &str, args: &[&str]) -> Output {
        git()
            .env("GIT_DIR", self.store())
            .env("GIT_WORK_TREE", self.project())
            .env("GIT_INDEX_FILE", self.store().join("indexes").join(project))
            .current_dir(self.project())
            .args(args)
            .output()
            .expect("git runs")
    }
}

impl Default for Sandbox {
    fn default() -> Self {
        Self::new()
    }
}

fn succeed(output: &Output, args: &[&str]) {
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Blocks until no background maintenance runs on a base below this directory. Stock git does not honour our locks: it
/// reports a pack that disappears while it reads as corruption.
pub fn wait_for_maintenance(dir: &Path) {
    let dir = dir.as_os_str().as_bytes();
    let is_at_work = |process: &fs::DirEntry| {
        let command = fs::read(process.path().join("cmdline")).unwrap_or_default();
        let mut words = command.split(|byte| *byte == 0);
        words.any(|word| word.starts_with(dir))
            && command.split(|byte| *byte == 0).any(|word| matches!(word, b"maintain" | b"finish"))
    };
    let any_is = || fs::read_dir("/proc").is_ok_and(|mut all| all.any(|one| one.is_ok_and(|one| is_at_work(&one))));
    while any_is() {
        // Maintenance runs at the lowest priority: a busy loop here would starve it.
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
}

/// Calls `each` for every entry below a directory, recursively.
pub fn walk(dir: &Path, each: &mut dyn FnMut(&Path)) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        each(&path);
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            walk(&path, each);
        }
    }
}

thread_local! {
    /// Directory for temporary files of the commands of one test. A command that outlives its sandbox would otherwise
    /// write its journal to the shared directory, where the commands of other tests read it.
    static TEMPORARY: TempDir =
        tempfile::Builder::new().prefix("piton-test-tmp-").tempdir().expect("a temporary directory");
}

/// Returns a command that inherits nothing from this process's environment but the search path, and puts temporary files
/// into a directory of the test.
pub fn clean_command(program: impl AsRef<OsStr>) -> Command {
    // A program that is looked up in a search path set on the command itself is started by forking this whole process;
    // a program given by its full path is not.
    let program = program.as_ref();
    let mut command = Command::new(find_program(program).unwrap_or_else(|| program.into()));
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .stdin(Stdio::null());
    TEMPORARY.with(|dir| command.env("TMPDIR", dir.path()));
    // For coverage, every process writes a profile.
    command.envs(std::env::var_os("LLVM_PROFILE_FILE").map(|file| ("LLVM_PROFILE_FILE", file)));
    command
}

/// Starts a command and writes `input` to its stdin, which is closed then.
pub fn start_with_input(command: &mut Command, input: &[u8]) -> io::Result<Child> {
    let mut child = command.stdin(Stdio::piped()).spawn()?;
    // A command may exit without reading all of its stdin.
    let _ = child.stdin.take().map(|mut pipe| pipe.write_all(input));
    Ok(child)
}

/// Returns a stock git command that reads no user or system configuration.
pub fn git() -> Command {
    let mut command = clean_command("git");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", "/nonexistent");
    for who in ["AUTHOR", "COMMITTER"] {
        command.env(format!("GIT_{who}_NAME"), "A U Thor").env(format!("GIT_{who}_EMAIL"), "author@example.com");
    }
    command
}

/// Returns the files in a directory as a checkpoint would hold them, without `.git`; for comparison with a model.
pub fn files_in(dir: &Path) -> BTreeMap<Vec<u8>, Held> {
    let mut held = BTreeMap::new();
    walk(dir, &mut |path| {
        let relative = path.strip_prefix(dir).expect("below it").as_os_str().as_bytes().to_vec();
        let stat = path.symlink_metadata().expect("what was just listed");
        if relative.split(|byte| *byte == b'/').any(|name| name == b".git") || stat.is_dir() {
            return;
        }
        let what = if stat.is_symlink() {
            Held::Link(fs::read_link(path).expect("a link").into_os_string().into_vec())
        } else {
            Held::File(stat.permissions().mode() & 0o100 != 0, fs::read(path).expect("a file"))
        };
        held.insert(relative, what);
    });
    held
}

/// Returns true if a program is installed. If it is not, prints that the test is skipped, or panics if `PITON_TEST_ALL`
/// is set, as in CI.
pub fn has_program(program: &str) -> bool {
    let found = find_program(program.as_ref()).is_some();
    assert!(found || std::env::var_os("PITON_TEST_ALL").is_none(), "{program} is missing, and PITON_TEST_ALL is set");
    if !found {
        note_skipped(&format!("{program} is missing"));
    }
    found
}

/// Prints that a test is skipped, and the reason.
pub fn note_skipped(why: &str) {
    let _ = writeln!(io::stderr(), "skipped: {why}");
}

fn find_program(name: &OsStr) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|found| found.is_file())
}

/// Returns an [`OsString`] of these bytes.
pub fn os(bytes: &[u8]) -> OsString {
    OsString::from_vec(bytes.to_vec())
}
