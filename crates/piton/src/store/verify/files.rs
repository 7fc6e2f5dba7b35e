//! Checks of the small files of a store, each by itself.

use std::path::PathBuf;

use serde_json::Value;

use super::super::Store;
use super::super::create::CONFIG;
use super::super::decode::ends_in_checksum;
use super::super::indexes::INDEX_BYTES_MAX;
use super::super::projects::ProjectRecord;
use super::super::refs::{is_ref_name, wrong_packed_line};
use super::{Check, FindingKind, Severity};
use crate::error::{Error, ErrorKind, Result};
use crate::fsx;
use crate::id::{ObjectId, ProjectId};

/// Largest file that is read: enough for the packed refs of a hundred thousand projects.
const FILE_BYTES_MAX: u64 = 256 << 20;

impl Check<'_> {
    pub(super) fn files(&mut self) -> Result<()> {
        self.head()?;
        self.config()?;
        self.packed_refs()?;
        self.shallow()?;
        self.records()?;
        self.indexes()?;
        self.intents()?;
        self.derived()
    }

    fn head(&mut self) -> Result<()> {
        let path = self.store.layout.head();
        let Some(text) = fsx::read_small(&path, FILE_BYTES_MAX)? else {
            self.note(FindingKind::Head, Some(path), "it is not there");
            return Ok(());
        };
        let text = String::from_utf8_lossy(&text).into_owned();
        let is_right = match text.trim_end_matches('\n').strip_prefix("ref:") {
            Some(name) => {
                let name = name.trim_start_matches([' ', '\t']);
                is_ref_name(name) && name.starts_with("refs/heads/")
            }
            None => ObjectId::from_hex(text.trim_end().as_bytes()).is_some(),
        };
        if !is_right {
            self.note(FindingKind::Head, Some(path), "it names no branch");
        }
        Ok(())
    }

    fn config(&mut self) -> Result<()> {
        let path = self.store.layout.config();
        let text = fsx::read_small(&path, FILE_BYTES_MAX)?;
        let verdict = match text.as_deref().map(std::str::from_utf8) {
            None => Err("it is not there".to_owned()),
            Some(Err(_)) => Err("it is not text".to_owned()),
            Some(Ok(text)) => check_config(text),
        };
        match verdict {
            Ok(None) => {}
            Ok(Some(odd)) => self.note(FindingKind::Config, Some(path), odd).severity = Severity::Warning,
            Err(why) => drop(self.note(FindingKind::Config, Some(path), why)),
        }
        Ok(())
    }

    fn packed_refs(&mut self) -> Result<()> {
        let path = self.store.layout.packed_refs();
        let text = fsx::read_small(&path, FILE_BYTES_MAX)?.unwrap_or_default();
        if text.last().is_some_and(|last| *last != b'\n') {
            self.note(FindingKind::PackedRefs, Some(path.clone()), "its last line has no end");
        }
        if let Some(number) = wrong_packed_line(&text) {
            self.note(FindingKind::PackedRefs, Some(path), format!("line {number} is not a ref"));
        }
        Ok(())
    }

    fn shallow(&mut self) -> Result<()> {
        let path = self.store.layout.shallow();
        let Some(text) = fsx::read_small(&path, FILE_BYTES_MAX)? else { return Ok(()) };
        if text.is_empty() {
            self.note(FindingKind::Shallow, Some(path), "it is empty");
            return Ok(());
        }
        let mut lines = text.strip_suffix(b"\n").unwrap_or(&text).split(|byte| *byte == b'\n');
        if let Some(at) = lines.position(|line| ObjectId::from_hex(line).is_none()) {
            self.note(FindingKind::Shallow, Some(path), format!("line {} is not an id", at + 1));
        }
        Ok(())
    }

    fn records(&mut self) -> Result<()> {
        for project in self.store.records.projects()? {
            let path = self.store.layout.record(&project);
            // The project was removed a moment ago.
            let Some(bytes) = fsx::read_small(&path, FILE_BYTES_MAX)? else { continue };
            let why = match serde_json::from_slice(&bytes) {
                Ok(Value::Object(keys)) => {
                    let is_named = keys.contains_key("workdir") || keys.contains_key("workdir_bytes");
                    let dir = ProjectRecord::from(keys).dir();
                    let is_other = dir.is_none_or(|dir| ProjectId::of(&dir) != project);
                    (is_named && is_other).then_some("its directory is not the one that it is named after")
                }
                _ => Some("it is not JSON"),
            };
            if let Some(why) = why {
                self.note(FindingKind::Record, Some(path), why).project = Some(project);
            }
        }
        Ok(())
    }

    fn indexes(&mut self) -> Result<()> {
        let dir = self.store.layout.indexes();
        for name in fsx::names_in(&dir)? {
            let Some(project) = name.to_str().and_then(ProjectId::parse) else { continue };
            let path = dir.join(name);
            let is_whole = match fsx::read_small(&path, INDEX_BYTES_MAX) {
                // Stock git writes zeros instead of a checksum if `index.skipHash` is set.
                Ok(Some(bytes)) => ends_in_checksum(&bytes) || bytes.ends_with(&[0; 20]),
                Ok(None) => true,
                Err(error) if error.kind() == ErrorKind::Damaged => false,
                Err(error) => return Err(error),
            };
            if !is_whole {
                self.note(FindingKind::Index, Some(path), "its checksum is wrong").project = Some(project);
            }
        }
        Ok(())
    }

    fn intents(&mut self) -> Result<()> {
        for project in self.store.intents.projects()? {
            match self.store.intents.get(&project) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::Damaged => {
                    let path = self.store.layout.intent(&project);
                    let why = "it does not say what was to be restored";
                    self.note(FindingKind::Intent, Some(path), why).project = Some(project);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Checks the files that stock git derives from packs: all of them end in a checksum.
    fn derived(&mut self) -> Result<()> {
        for path in self.store.objects.derived_files()? {
            let mut sum = crate::id::Checksum::new();
            match ends_in_valid_checksum(&path, &mut sum) {
                Ok(true) => {}
                Ok(false) => drop(self.note(FindingKind::Derived, Some(path), "its checksum is wrong")),
                // Stock git may have removed it in the meantime.
                Err(error) if crate::sys::is_gone(&error) => {}
                Err(error) => return Err(Error::io("read", path, error)),
            }
        }
        Ok(())
    }
}

/// Returns true if a file of any size ends in the checksum of all other bytes.
fn ends_in_valid_checksum(path: &std::path::Path, sum: &mut crate::id::Checksum) -> std::io::Result<bool> {
    use std::io::Read as _;
    let mut file = std::fs::File::open(path)?;
    let Some(body) = file.metadata()?.len().checked_sub(crate::id::ID_BYTES as u64) else { return Ok(false) };
    let mut buffer = vec![0; 64 << 10];
    let mut body = (&mut file).take(body);
    loop {
        let got = body.read(&mut buffer)?;
        if got == 0 {
            break;
        }
        sum.update(&buffer[..got]);
    }
    let mut end = Vec::new();
    file.read_to_end(&mut end)?;
    Ok(std::mem::take(sum).finish()[..] == end)
}

/// Returns the other names of objects: files of stock git, and interrupted restores.
pub(in super::super) fn other_names(store: &Store) -> Result<Vec<(PathBuf, FindingKind, ObjectId)>> {
    let mut names = Vec::new();
    for (path, id) in store.refs.named_by_heads()? {
        let kind = if path == store.layout.head() { FindingKind::Head } else { FindingKind::Ref };
        names.push((path, kind, id));
    }
    for project in store.intents.projects()? {
        if let Ok(Some(intent)) = store.intents.get(&project) {
            let path = store.layout.intent(&project);
            names.extend([intent.target, intent.safety].map(|id| (path.clone(), FindingKind::Intent, id)));
        }
    }
    Ok(names)
}

/// Checks a configuration as stock git would, as far as a store depends on it. Fails with the reason if it is invalid,
/// and returns `Some` if it is unusual but works.
fn check_config(text: &str) -> std::result::Result<Option<String>, String> {
    let mut section = String::new();
    let (mut version, mut is_bare) = (None, None);
    let (mut goes_on, mut stranger) = (false, None);
    for (at, line) in text.lines().enumerate() {
        let bad = || format!("line {} is invalid", at + 1);
        if line.bytes().any(|byte| byte == 0 || byte == 0x7f || (byte < b' ' && byte != b'\t')) {
            return Err(bad());
        }
        let was_going_on = std::mem::replace(&mut goes_on, line.ends_with('\\'));
        let line = line.trim();
        if was_going_on || line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let line = match line.strip_prefix('[') {
            Some(rest) => {
                let (name, rest) = rest.split_once(']').ok_or_else(bad)?;
                let name = name.split_once(' ').map_or(name, |(name, _)| name);
                if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte)) {
                    return Err(bad());
                }
                section = name.to_ascii_lowercase();
                rest.trim()
            }
            None => line,
        };
        if line.is_empty() || line.starts_with(['#', ';']) {
            continue;
        }
        let (key, value) = line.split_once('=').map_or((line, "true"), |(key, value)| (key.trim(), value.trim()));
        let is_key = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if section.is_empty() || !is_key || !key.starts_with(|first: char| first.is_ascii_alphabetic()) {
            return Err(bad());
        }
        let key = format!("{section}.{}", key.to_ascii_lowercase());
        check_value(&key, value).map_err(|()| bad())?;
        match key.as_str() {
            "core.repositoryformatversion" => version = Some(value.to_owned()),
            "core.bare" => is_bare = as_bool(value),
            // Stock git's fsck refuses to run if it does not know one of these.
            _ if section == "fsck" && !is_fsck_key_of_ours(&key) => stranger = Some(key),
            _ => {}
        }
    }
    match version.as_deref() {
        None | Some("0") => {}
        Some("1") => return Ok(Some("its format is 1, not 0".to_owned())),
        Some(other) => return Err(format!("its format is {other}, which is unknown")),
    }
    let is_odd = || "it does not say that the repository is bare".to_owned();
    let strange = stranger.map(|key| format!("{key} is not among the keys that a store has"));
    Ok(strange.or_else(|| (is_bare != Some(true)).then(is_odd)))
}

fn is_fsck_key_of_ours(key: &str) -> bool {
    let ours = CONFIG.lines().filter_map(|line| line.trim().split_once(" = "));
    key == "fsck.skiplist" || ours.into_iter().any(|(ours, _)| key == format!("fsck.{}", ours.to_ascii_lowercase()))
}

/// Fails if the value of a key that a store has is invalid.
fn check_value(key: &str, value: &str) -> std::result::Result<(), ()> {
    let fits = match key {
        "core.bare" | "core.filemode" | "commit.gpgsign" | "tag.gpgsign" | "maintenance.auto" => {
            as_bool(value).is_some()
        }
        "core.logallrefupdates" => value == "always" || as_bool(value).is_some(),
        "gc.auto" => value.parse::<i64>().is_ok(),
        "fsck.skiplist" => true,
        _ if key.starts_with("fsck.") => ["ignore", "warn", "error"].contains(&value),
        _ => value.matches('"').count().is_multiple_of(2),
    };
    if fits { Ok(()) } else { Err(()) }
}

fn as_bool(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" => Some(true),
        "false" | "no" | "off" | "" => Some(false),
        number => number.parse::<i64>().ok().map(|number| number != 0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_is_read_as_git_reads_it() {
        let core = "# x\n[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
        for rest in [
            "[remote \"a b\"] url = x\n",
            "[remote \"a\"]\nurl = a\\\n[ b = c\npush-option = d\n",
            "; a note\n\n[x] # another\ny\n",
            "[core]\nlogAllRefUpdates = always\n[gc]\nauto = 0\n[commit]\ngpgsign = 0\n",
            "[core]\nbare = 2\n",
            "[fsck]\ngitmodulesUrl = ignore\nskipList = /some/where\n",
        ] {
            assert_eq!(check_config(&format!("{core}{rest}")), Ok(None), "{rest:?}");
        }
        for (odd, is_error) in [
            ("[core]\nbare = 0\n", false),
            ("[core]\nbare = true\n[fsck]\nzeroPaddedFilemode = ignore\n", false),
            ("[core]\nbare = true\n[fsck]\ngitmodulesUrl = perhaps\n", true),
            ("[core]\nbare = true\nlogAllRefUpdates = perhaps\n", true),
            ("[core]\nbare = true\n[gc]\nauto = perhaps\n", true),
            ("[core]\nbare = true\n[x]\ny = \"\n", true),
            ("[core]\nbare = true\n[]\n", true),
            ("[core]\nbare = true\n[a_b]\n", true),
            ("[core]\nbare = true\na_b = 1\n", true),
            ("[core]\nbare = true\n\u{7f}\n", true),
            ("[core]\nbare = true\n[x]\ny = a\u{7f}b\n", true),
            ("[core]\nbare = true\n[x]\ny = a\u{1}b\n", true),
            ("[core]\nbare = false\n", false),
            ("[core]\nbare\nrepositoryformatversion = 1\n", false),
            ("[core]\nbare = trve\n", true),
            ("[core]\nrepositoryformatversion = 7\n", true),
            ("[core\nbare = true\n", true),
            ("bare = true\n", true),
            ("[core]\n\0\0\0\n", true),
            ("[core]\n\u{1}bare = true\n", true),
            ("[core]\n1bare = true\n", true),
        ] {
            let verdict = check_config(odd);
            assert_eq!(verdict.is_err(), is_error, "{odd:?}: {verdict:?}");
            assert_ne!(verdict, Ok(None), "{odd:?}");
        }
    }
}
