//! The setting `checkpoints.enabled` in piton's own configuration: turned on with the first installation, and put back
//! with the last uninstallation. Later changes by the user are kept.

use std::path::Path;

use piton::{Error, ErrorKind, Result};
use serde_json::{Value, json};

use super::record::{Before, Changed, Records, Switched};
use super::{Change, Planner, before_of};
use crate::edit::{Config, Format, files};

impl Planner<'_> {
    /// Plans turning automatic checkpoints on. Returns the change and the record of it, or `None` if they are on.
    pub(crate) fn enable(&mut self, path: &Path) -> Result<Option<(Change, Switched)>> {
        let before = self.read(path)?;
        let text = before.as_deref().unwrap_or_default();
        let failed = |why: String| {
            let hint = format!("write `enabled: true` under `checkpoints:` in {}, then try again", path.display());
            Error::new(ErrorKind::Invalid, "turn checkpoints on in").with_path(path).because(why).with_hint(hint)
        };
        let mut config = Config::parse(text, Format::Yaml).map_err(failed)?;
        let section = config.value()["checkpoints"].clone();
        let (keys, was): (&[&str], _) = match &section {
            Value::Bool(_) => (&["checkpoints"], Some(section.clone())),
            _ => (&["checkpoints", "enabled"], section.get("enabled").cloned()),
        };
        if was != Some(json!(true)) {
            config.set(keys, &json!(true)).map_err(failed)?;
        }
        let after = config.text().to_owned();
        if before.as_deref() == Some(&after) || after.is_empty() {
            return Ok(None);
        }
        let keys: Vec<_> = keys.iter().map(|key| (*key).to_owned()).collect();
        let is_made = |depth: &usize| *depth == keys.len() && was.is_none() || *depth < keys.len() && section.is_null();
        let made = (1..=keys.len()).filter(is_made).map(|depth| keys[..depth].to_vec()).collect();
        let file = Changed {
            path: path.to_owned(),
            after: files::sum(after.as_bytes()),
            before: Some(before_of(path, before.as_deref())),
            made: Some(made),
            dirs: Vec::new(),
        };
        let switched = Switched { file, was, keys };
        Ok(Some((self.change(path, before, Some(after), None), switched)))
    }

    /// Plans setting the value back to the one from before the installation. Returns `None` if installing did not
    /// change it, if the user has changed it since, or if the file cannot be edited.
    pub(crate) fn disable(&mut self) -> Result<Option<(Change, Switched)>> {
        let Some(switched) = self.records.switch()? else { return Ok(None) };
        let file = &switched.file;
        let Some(text) = self.read(&file.path)? else { return Ok(None) };
        let is_as_it_was_left = file.after == files::sum(text.as_bytes());
        let copy = match &file.before {
            Some(Before::Absent) if is_as_it_was_left => Some(None),
            Some(Before::Copy(name)) if is_as_it_was_left => self.records.copy(name, &file.path)?.map(Some),
            _ => None,
        };
        let after = match copy {
            Some(after) => after,
            None => {
                // A file that cannot be edited must not keep the hooks from being removed: the setting stays on, and
                // the report says so.
                let Ok(mut config) = Config::parse(&text, Format::Yaml) else { return Ok(None) };
                if put_back(&mut config, &switched).is_err() {
                    return Ok(None);
                }
                let is_bare =
                    config.value().is_null() || config.value().as_object().is_some_and(serde_json::Map::is_empty);
                let had_none = file.before == Some(Before::Absent);
                let has_words = config.text().lines().any(|line| !line.trim().is_empty());
                (!(had_none && is_bare && !has_words)).then(|| config.text().to_owned())
            }
        };
        if after.as_ref() == Some(&text) {
            return Ok(None);
        }
        let path = file.path.clone();
        Ok(Some((self.change(&path, Some(text), after, None), switched)))
    }
}

/// Sets the value back, or removes it along with the section created for it, if the value is still `true`.
fn put_back(config: &mut Config, switched: &Switched) -> std::result::Result<(), String> {
    let keys: Vec<_> = switched.keys.iter().map(String::as_str).collect();
    let now = keys.iter().try_fold(config.value(), |value, key| value.get(key).cloned());
    match (now, &switched.was) {
        (Some(Value::Bool(true)), Some(was)) => config.set(&keys, was),
        (Some(Value::Bool(true)), None) => {
            config.unset(&keys)?;
            let made = switched.file.made.as_deref().unwrap_or_default();
            let section = config.value()[keys[0]].clone();
            let is_empty = section.is_null() || section.as_object().is_some_and(serde_json::Map::is_empty);
            if is_empty && made.iter().any(|made| *made == keys[..1]) { config.unset(&keys[..1]) } else { Ok(()) }
        }
        _ => Ok(()),
    }
}

/// Carries out the change, and writes or removes the record of it.
pub(crate) fn carry_out(change: &mut Change, switched: &Switched, records: &Records, is_install: bool) -> Result<()> {
    if let Some(before) = change.before.as_ref().filter(|_| is_install) {
        change.copy = Some(records.copy_path(&records.keep(&change.path, before)?));
    }
    if is_install {
        let dirs = files::missing_dirs(&change.path)?;
        let file = Changed { dirs, ..switched.file.clone() };
        records.put_switch(Some(&Switched { file, ..switched.clone() }))?;
        return super::apply(change, records, 0o600);
    }
    super::apply(change, records, 0o600)?;
    files::remove_empty(switched.file.dirs.clone());
    records.put_switch(None)?;
    if let Some(Before::Copy(name)) = &switched.file.before {
        records.drop_copy(name);
    }
    Ok(())
}
