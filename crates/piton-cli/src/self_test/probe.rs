//! What the file system can do: bytes, modes, links, names, renames, locks, sync, times.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File, TryLockError};
use std::io::ErrorKind;
use std::path::Path;
use std::time::{Duration, Instant, UNIX_EPOCH};

use super::check::Verdict::{Failed, Limited, Ok as Works};
use super::check::{Checks, VerdictInWords, new_dir};
use crate::platform;

/// Longest time for which times of files are observed.
const OBSERVED: Duration = Duration::from_millis(300);
/// A step of times above which edits may look alike.
const STEP_MAX: Duration = Duration::from_millis(100);

/// Names that the file system may refuse or change, and what they are examples of.
const NAMES: [(&[u8], &str); 10] = [
    (b"with space", "spaces"),
    (b"with\nnewline", "line ends"),
    (b"-dash", "leading dashes"),
    (b"back\\slash", "backslashes"),
    (b"co:lon", "colons"),
    (b"dot.", "a dot at the end"),
    (b"trailing ", "a space at the end"),
    (b"CON", "names of devices of other systems"),
    ("\u{5909}\u{66f4}.txt".as_bytes(), "other scripts"),
    (b"not-utf8-\xff\xfe", "bytes that are not UTF-8"),
];
/// Longest name that file systems of Linux and macOS have.
const NAME_BYTES_MAX: usize = 255;

fn said(error: &std::io::Error) -> String {
    error.to_string()
}

/// Runs all probes. Returns the names that the file system keeps exactly.
pub(super) fn all(root: &Path, checks: &mut Checks<'_>) -> Vec<OsString> {
    let mut kept = Vec::new();
    checks.add("bytes", || bytes(root));
    checks.add("modes", || modes(root));
    checks.add("links", || links(root));
    checks.add("names", || names(root, &mut kept));
    checks.add("case", || pair(root, "case", b"Name", b"nAME", "differ only in case"));
    checks.add("normalisation", || {
        pair(
            root,
            "normalisation",
            "caf\u{e9}".as_bytes(),
            "cafe\u{301}".as_bytes(),
            "differ only in their Unicode form",
        )
    });
    checks.add("rename", || rename(root));
    checks.add("exchange", || exchange(root));
    checks.add("locks", || locks(root));
    checks.add("sync", || sync(root));
    checks.add("times", || times(root));
    kept
}

fn bytes(root: &Path) -> Result<VerdictInWords, String> {
    let dir = new_dir(root, "bytes")?;
    let all: Vec<u8> = (0..=255).collect::<Vec<u8>>().repeat(1024);
    for (name, contents) in [("all", &all[..]), ("empty", b""), ("lines", b"a\r\nb\nc\r\x1a")] {
        let path = dir.join(name);
        fs::write(&path, contents).map_err(|error| said(&error))?;
        if fs::read(&path).map_err(|error| said(&error))? != contents {
            return Ok((Failed, format!("the file system changes contents ({name})")));
        }
    }
    Ok((Works, "contents come back byte for byte".to_owned()))
}

fn modes(root: &Path) -> Result<VerdictInWords, String> {
    let path = new_dir(root, "modes")?.join("file");
    let file = File::create(&path).map_err(|error| said(&error))?;
    for mode in [0o755, 0o644, 0o600, 0o444, 0o711] {
        if let Err(error) = platform::set_mode(&file, mode) {
            let limit = "they are not restored, and a store here would be open to others";
            return Ok((Failed, format!("permissions cannot be set ({error}): {limit}")));
        }
        let found = platform::mode(&path.symlink_metadata().map_err(|error| said(&error))?);
        if found != mode {
            return Ok((Limited, format!("mode {mode:o} becomes {found:o}: permissions are restored only in part")));
        }
    }
    Ok((Works, "permission bits are kept".to_owned()))
}

fn links(root: &Path) -> Result<VerdictInWords, String> {
    let path = new_dir(root, "links")?.join("link");
    let target = Path::new("no/such \u{e9}/target");
    if let Err(error) = platform::make_link(target, &path) {
        return Ok((Limited, format!("there are no symbolic links ({error}): none can be restored here")));
    }
    match fs::read_link(&path).map_err(|error| said(&error))? {
        found if found == target => Ok((Works, "symbolic links keep their target".to_owned())),
        found => Ok((Failed, format!("the target of a link becomes {}", found.display()))),
    }
}

/// Creates a file of each name, and looks for it in the listing.
fn names(root: &Path, kept: &mut Vec<OsString>) -> Result<VerdictInWords, String> {
    let dir = new_dir(root, "names")?;
    let long = vec![b'n'; NAME_BYTES_MAX];
    let (mut refused, mut changed) = (Vec::new(), Vec::new());
    for (name, example) in NAMES.iter().copied().chain([(&long[..], "255 bytes")]) {
        let name = platform::name_of_bytes(name);
        if is_refused(fs::write(dir.join(name), example))? {
            refused.push(example);
        } else if listed(&dir)?.contains(name) && fs::read(dir.join(name)).is_ok_and(|read| read == example.as_bytes())
        {
            kept.push(name.to_owned());
        } else {
            changed.push(example);
        }
    }
    Ok(match (changed.as_slice(), refused.as_slice()) {
        ([], []) => (Works, "every name is kept as it is".to_owned()),
        ([], refused) => (
            Limited,
            format!(
                "no names with {}: such files of a checkpoint from elsewhere cannot be restored here",
                refused.join(", ")
            ),
        ),
        (changed, _) => (Failed, format!("names are changed: {}. Such files cannot be told apart", changed.join(", "))),
    })
}

/// Returns true if a file could not be created because of its name. Fails if there is another reason, from which nothing
/// follows about names: a disk that is full or read-only.
fn is_refused(made: std::io::Result<()>) -> Result<bool, String> {
    match made.map_err(|error| (error.kind(), error)) {
        Ok(()) => Ok(false),
        Err((ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::ReadOnlyFilesystem, error)) => {
            Err(format!("cannot make a file: {error}"))
        }
        Err(_) => Ok(true),
    }
}

fn listed(dir: &Path) -> Result<BTreeSet<OsString>, String> {
    let entries = fs::read_dir(dir).map_err(|error| said(&error))?;
    entries.map(|entry| entry.map(|entry| entry.file_name()).map_err(|error| said(&error))).collect()
}

/// Creates two files whose names some file systems take for one.
fn pair(root: &Path, name: &str, first: &[u8], second: &[u8], how: &str) -> Result<VerdictInWords, String> {
    let dir = new_dir(root, name)?;
    let (first, second): (&OsStr, &OsStr) = (platform::name_of_bytes(first), platform::name_of_bytes(second));
    fs::write(dir.join(first), "first").map_err(|error| said(&error))?;
    if !listed(&dir)?.contains(first) {
        let limit = "files come back under the names that are listed; a checkpoint from elsewhere keeps differing";
        return Ok((Limited, format!("a name is listed in another form than it was given: {limit}")));
    }
    let is_made = !is_refused(fs::write(dir.join(second), "second"))?;
    let is_apart = is_made && fs::read(dir.join(first)).is_ok_and(|read| read == b"first");
    Ok(match (is_apart, listed(&dir)?.len()) {
        (true, 2) => (Works, format!("names that {how} are two files")),
        _ => (
            Limited,
            format!("names that {how} are one file: of two such files in a checkpoint, one can be restored here"),
        ),
    })
}

fn rename(root: &Path) -> Result<VerdictInWords, String> {
    let dir = new_dir(root, "rename")?;
    let (old, new) = (dir.join("old"), dir.join("new"));
    fs::write(&old, "old").and_then(|()| fs::write(&new, "new")).map_err(|error| said(&error))?;
    if let Err(error) = fs::rename(&new, &old) {
        return Ok((Failed, format!("a file cannot be replaced by another ({error}): nothing can be written safely")));
    }
    if fs::read(&old).ok().as_deref() != Some(b"new") || new.exists() {
        return Ok((Failed, "a replaced file keeps its old contents".to_owned()));
    }
    Ok((Works, "a file is replaced in one step".to_owned()))
}

fn exchange(root: &Path) -> Result<VerdictInWords, String> {
    let dir = new_dir(root, "exchange")?;
    let (one, two) = (dir.join("one"), dir.join("two"));
    fs::write(&one, "1").and_then(|()| fs::write(&two, "2")).map_err(|error| said(&error))?;
    if let Err(error) = platform::exchange(&one, &two) {
        let limit = "during a restore, a file that is replaced has no name for a moment";
        return Ok((Limited, format!("two names cannot be exchanged ({error}): {limit}")));
    }
    let swapped = fs::read(&one).ok().as_deref() == Some(b"2") && fs::read(&two).ok().as_deref() == Some(b"1");
    let words = if swapped { "two names are exchanged in one step" } else { "an exchange of two names is not one" };
    Ok((if swapped { Works } else { Failed }, words.to_owned()))
}

fn locks(root: &Path) -> Result<VerdictInWords, String> {
    let path = new_dir(root, "locks")?.join("lock");
    let open = || platform::open_lock(&path).map_err(|error| said(&error));
    let (first, second) = (open()?, open()?);
    let missing = |why: &dyn std::fmt::Display| {
        (Failed, format!("locks do not work ({why}): two processes could write one store at the same time"))
    };
    if let Err(error) = first.try_lock() {
        return Ok(missing(&error));
    }
    match second.try_lock() {
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(error)) => return Ok(missing(&error)),
        Ok(()) => return Ok(missing(&"a second process gets it, too")),
    }
    drop(first);
    if let Err(error) = second.try_lock_shared() {
        return Ok(missing(&error));
    }
    Ok((Works, "a lock keeps others out, and is free when its holder is gone".to_owned()))
}

fn sync(root: &Path) -> Result<VerdictInWords, String> {
    let dir = new_dir(root, "sync")?;
    let failed = |what: &str, error: &std::io::Error| {
        (Failed, format!("{what} cannot be synced ({error}): a checkpoint may be lost in a power cut"))
    };
    let file = File::create(dir.join("file")).map_err(|error| said(&error))?;
    if let Err(error) = piton::sync_file(&file) {
        return Ok(failed("a file", &error));
    }
    if let Err(error) = File::open(&dir).and_then(|dir| piton::sync_file(&dir)) {
        return Ok(failed("a directory", &error));
    }
    Ok((Works, "files and directories are synced without an error".to_owned()))
}

/// Writes a file again and again until its time has changed, and reports the step.
fn times(root: &Path) -> Result<VerdictInWords, String> {
    let path = new_dir(root, "times")?.join("file");
    let time = || -> Result<Duration, String> {
        fs::write(&path, "x").map_err(|error| said(&error))?;
        let found = path.metadata().and_then(|found| found.modified()).map_err(|error| said(&error))?;
        Ok(found.duration_since(UNIX_EPOCH).unwrap_or_default())
    };
    let (began, first) = (Instant::now(), time()?);
    // The first change may have been due already: the step is between the first and the second.
    let mut changes = vec![first];
    while changes.len() < 3 && began.elapsed() < OBSERVED {
        let now = time()?;
        if changes.last() != Some(&now) {
            changes.push(now);
        }
    }
    Ok(match changes.as_slice() {
        [_, one, two] => {
            let step = two.saturating_sub(*one);
            let verdict = if step > STEP_MAX { Limited } else { Works };
            (verdict, format!("times of files have steps of {:.1} ms or less", step.as_secs_f64() * 1000.0))
        }
        _ => (
            Limited,
            format!("times of files did not change within {} ms: files are read again instead", OBSERVED.as_millis()),
        ),
    })
}
