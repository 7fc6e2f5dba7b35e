//! The plan of a restore: what will be written, as data. Pure.

use std::collections::BTreeSet;

use super::compare::{is_plain_file, kind_of_ref, lost_logs, short_name};
use super::objects::UNKNOWN;
use super::operation::{changed_operation, is_of_operation};
use super::options::GitRestoreOptions;
use super::snapshot::{GitSnapshot, SmallFile, StashEntry, is_id, stash_log};
use super::{GitItem, GitItemKind, GitLeft};
use crate::id::{ObjectId, content_id};
use crate::store::LINK_MODE;
use crate::worktree::staged_objects;

/// One change of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum GitAction {
    /// Sets a ref, or deletes it if there is no new value.
    Ref { name: String, from: Option<String>, to: Option<String> },
    /// Replaces the entries of the stash.
    Stash { log: Vec<u8>, top: Option<String> },
    /// Writes a small file, or removes it.
    File { path: Vec<u8>, file: Option<SmallFile> },
    /// Creates the `.git` file of a worktree. That of a linked one only in a directory that is new or empty.
    Pointer { link: std::path::PathBuf, text: Vec<u8>, is_own: bool },
    /// Creates the repository.
    Rebuild,
}

/// A change, as it is reported.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PlannedItem {
    pub(super) item: GitItem,
    pub(super) actions: Vec<GitAction>,
}

#[derive(Debug, Default)]
pub(super) struct GitPlan {
    pub(super) items: Vec<PlannedItem>,
    pub(super) left: Vec<GitLeft>,
}

/// Plans a restore of a recorded state. What names an object for which `is_known` returns false is left.
pub(super) fn plan(
    then: &GitSnapshot,
    now: &GitSnapshot,
    id: ObjectId,
    options: &GitRestoreOptions<'_>,
    is_known: &dyn Fn(&str) -> bool,
) -> GitPlan {
    let (plan, found, config) = (GitPlan::default(), BTreeSet::new(), None);
    let mut planner = GitPlanner { then, now, id, options, is_known, plan, found, config, has_operation: false };
    planner.has_operation = planner.is_head_meant() && !planner.is_lost(then.head().as_deref())
        || planner.is_index_meant() && planner.index_obstacle().is_none();
    planner.pointer();
    planner.head();
    planner.refs();
    planner.upstreams();
    planner.stash();
    planner.index();
    planner.worktrees();
    planner.files();
    planner.reftable();
    planner.operation();
    // They are no part of a state, and are planned by the caller.
    planner.is_named(&[OBJECTS]);
    let found = planner.found;
    let (kind, why) = match then.has_reftable() {
        true => (GitItemKind::Refs, IN_REFTABLE),
        false => (GitItemKind::Ref, "the recorded state has nothing of this name"),
    };
    for name in options.names.iter().filter(|name| !found.contains(*name)) {
        planner.plan.left.push(GitLeft { kind, name: name.clone(), why: why.to_owned() });
    }
    planner.plan
}

const CONFIG: &[u8] = b"config";
/// List of the tables of a reftable.
const TABLES: &[u8] = b"reftable/tables.list";
/// Name of the object files.
pub(super) const OBJECTS: &str = "objects";
/// Reason why a single ref cannot be restored.
const IN_REFTABLE: &str = "the refs are in a reftable, which comes back only as a whole: by force, with everything";

struct GitPlanner<'a> {
    then: &'a GitSnapshot,
    now: &'a GitSnapshot,
    id: ObjectId,
    options: &'a GitRestoreOptions<'a>,
    is_known: &'a dyn Fn(&str) -> bool,
    plan: GitPlan,
    /// Names from the options that were found.
    found: BTreeSet<String>,
    /// The configuration with the upstreams of branches that come back, if it changes.
    config: Option<SmallFile>,
    /// True if the operation in progress is restored, too.
    has_operation: bool,
}

fn file_id(file: Option<&SmallFile>) -> Option<String> {
    file.map(|file| content_id(&file.bytes).to_string())
}

impl GitPlanner<'_> {
    fn add(
        &mut self,
        kind: GitItemKind,
        name: String,
        values: (Option<String>, Option<String>),
        actions: Vec<GitAction>,
    ) {
        let item = GitItem { kind, name, from: values.0, to: values.1 };
        self.plan.items.push(PlannedItem { item, actions });
    }

    fn leave(&mut self, kind: GitItemKind, name: &str, why: &str) {
        self.plan.left.push(GitLeft { kind, name: name.to_owned(), why: why.to_owned() });
    }

    /// Returns true if the options name this item, by one of its names.
    fn is_named(&mut self, names: &[&str]) -> bool {
        let named: Vec<_> = self.options.names.iter().filter(|name| names.contains(&name.as_str())).cloned().collect();
        let is_named = !named.is_empty();
        self.found.extend(named);
        is_named
    }

    /// Returns true if the options select everything that is missing.
    fn wants_all(&self) -> bool {
        self.options.is_all || self.now.is_ruined() && self.options.names.is_empty()
    }

    fn write(&self, path: &[u8]) -> GitAction {
        GitAction::File { path: path.to_vec(), file: self.then.files.get(path).cloned() }
    }

    /// Returns true for the id of an object that is unknown.
    fn is_lost(&self, value: Option<&str>) -> bool {
        value.is_some_and(|id| is_id(id) && !(self.is_known)(id))
    }

    /// Restores the `.git` file of a linked worktree or a submodule.
    fn pointer(&mut self) {
        let place = &self.then.place;
        if !place.is_linked() {
            let (link, name) = (place.root.join(".git"), place.root.join(".git").display().to_string());
            let text = [b"gitdir: ", crate::sys::path_bytes(&place.own), b"\n"].concat();
            let to = Some(place.own.display().to_string());
            self.add(GitItemKind::Repository, name, (None, to), vec![GitAction::Pointer { link, text, is_own: true }]);
        }
    }

    fn is_head_meant(&mut self) -> bool {
        let (then, now) = (self.then.head(), self.now.head());
        let is_meant = self.is_named(&["HEAD"]) || self.options.is_head || self.options.is_all || now.is_none();
        is_meant && then.is_some() && then != now
    }

    fn head(&mut self) {
        let path = self.then.place.own_path("HEAD");
        let (then, now) = (self.then.head(), self.now.head());
        if self.is_head_meant() {
            if self.is_lost(then.as_deref()) {
                self.leave(GitItemKind::Head, "HEAD", UNKNOWN);
            } else {
                self.add(GitItemKind::Head, "HEAD".to_owned(), (now, then), vec![self.write(&path)]);
            }
        }
    }

    fn refs(&mut self) {
        let present = self.now.refs();
        for (name, value) in self.then.refs() {
            let (kind, short) = (kind_of_ref(&name), short_name(&name));
            let is_named = self.is_named(&[&name, &short]);
            let is_usual = matches!(kind, GitItemKind::Branch | GitItemKind::Tag) && self.options.names.is_empty();
            let current = present.get(&name);
            if current == Some(&value) || self.has_operation && is_of_operation(name.as_bytes(), &self.then.place) {
                continue;
            }
            let is_symbolic = value.starts_with("ref:");
            let is_meant = is_named || is_usual || self.wants_all();
            match current {
                None if is_meant => {
                    let blocker = present.keys().find(|other| is_in_the_way(other, &name));
                    let target = blocker.map_or_else(|| name.clone(), |_| self.elsewhere(&name));
                    self.set_ref(kind, target, &short, None, value, is_symbolic);
                }
                Some(_) if is_meant && self.options.is_forced => {
                    self.set_ref(kind, name, &short, current.cloned(), value, is_symbolic);
                }
                Some(_) if is_meant && !is_symbolic => {
                    let target = self.elsewhere(&name);
                    if present.get(&target) != Some(&value) {
                        self.set_ref(kind, target, &short, None, value, false);
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds the sections of the branches that come back to the configuration, from which `git branch -D` removed them.
    fn upstreams(&mut self) {
        let (then, now) = (self.then.bytes(CONFIG).unwrap_or_default(), self.now.files.get(CONFIG));
        let Some(now) = now.filter(|now| !now.bytes.is_empty() && now.mode & LINK_MODE != LINK_MODE) else { return };
        if self.options.is_all && self.options.is_forced {
            return;
        }
        let mut new = now.clone();
        for one in self.plan.items.iter().filter(|one| one.item.kind == GitItemKind::Branch && one.item.from.is_none())
        {
            let section = branch_section(then, &one.item.name);
            if !section.is_empty() && branch_section(&now.bytes, &one.item.name).is_empty() {
                if !new.bytes.ends_with(b"\n") {
                    new.bytes.push(b'\n');
                }
                new.bytes.extend_from_slice(&section);
            }
        }
        if new.bytes != now.bytes {
            let values = (file_id(Some(now)), file_id(Some(&new)));
            let action = GitAction::File { path: CONFIG.to_vec(), file: Some(new.clone()) };
            self.add(GitItemKind::File, "config".to_owned(), values, vec![action]);
            self.config = Some(new);
        }
    }

    /// Returns the name for a ref whose own name is taken.
    fn elsewhere(&self, name: &str) -> String {
        format!("refs/recovered/{}/{}", self.id.short(), name.strip_prefix("refs/").unwrap_or(name))
    }

    fn set_ref(
        &mut self,
        kind: GitItemKind,
        name: String,
        short: &str,
        from: Option<String>,
        to: String,
        is_symbolic: bool,
    ) {
        let shown = if name.starts_with("refs/recovered/") { &name } else { short }.to_owned();
        if self.is_lost(Some(&to)) {
            self.leave(kind, &shown, UNKNOWN);
            return;
        }
        let log = format!("logs/{name}").into_bytes();
        let has_log = self.then.files.contains_key(&log) && !self.now.files.contains_key(&log);
        let mut actions = Vec::new();
        if has_log {
            actions.push(self.write(&log));
        }
        actions.push(match is_symbolic {
            true => self.write(name.as_bytes()),
            false => GitAction::Ref { name, from: from.clone(), to: Some(to.clone()) },
        });
        self.add(kind, shown, (from, Some(to)), actions);
    }

    fn stash(&mut self) {
        let (entries, present) = (self.then.stash(), self.now.stash());
        let is_present = |entry: &StashEntry| present.iter().any(|other| other.id == entry.id);
        let mut wanted = BTreeSet::new();
        for (nth, entry) in entries.iter().rev().enumerate() {
            let name = format!("stash@{{{nth}}}");
            let is_named = self.is_named(&["stash", "refs/stash", &name]);
            if !(is_named || self.options.names.is_empty()) || is_present(entry) {
                continue;
            }
            if self.is_lost(Some(&entry.id)) {
                self.leave(GitItemKind::Stash, &name, UNKNOWN);
            } else {
                wanted.insert(entry.id.clone());
            }
        }
        if wanted.is_empty() {
            return;
        }
        let old = entries.iter().filter(|entry| is_present(entry) || wanted.contains(&entry.id));
        let new = present.iter().filter(|entry| !entries.iter().any(|old| old.id == entry.id));
        let all: Vec<StashEntry> = old.chain(new).cloned().collect();
        let (log, top) = stash_log(&all);
        let from = self.now.stash_value();
        let to = Some(content_id(&log).to_string());
        let mut actions = vec![GitAction::Stash { log, top }];
        for (nth, entry) in all.iter().rev().enumerate().filter(|(_, entry)| wanted.contains(&entry.id)) {
            let name = format!("stash@{{{nth}}}: {}", entry.message);
            // The first of them carries the change.
            let values = if actions.is_empty() { (None, Some(entry.id.clone())) } else { (from.clone(), to.clone()) };
            self.add(GitItemKind::Stash, name, values, std::mem::take(&mut actions));
        }
    }

    /// Returns true if what is staged is restored, or is selected and unchanged.
    fn is_index_meant(&mut self) -> bool {
        let is_meant = self.is_named(&["index"]) || self.options.is_index || self.options.is_all;
        (is_meant || self.now.staged().is_none() && self.wants_all()) && self.then.staged().is_some()
    }

    /// Returns the reason why what is staged cannot be restored, if there is one.
    fn index_obstacle(&self) -> Option<&'static str> {
        let path = self.then.place.own_path("index");
        if self.then.is_link(&path) || self.now.is_link(&path) {
            return Some("it is a symbolic link");
        }
        let staged = self.then.bytes(&path).map(staged_objects).unwrap_or_default();
        staged.iter().any(|id| self.is_lost(Some(id))).then_some(UNKNOWN)
    }

    fn index(&mut self) {
        let path = self.then.place.own_path("index");
        let (then, now) = (self.then.staged(), self.now.staged());
        if self.is_index_meant() && then != now {
            if let Some(why) = self.index_obstacle() {
                self.leave(GitItemKind::Index, "index", why);
                return;
            }
            let shared = self.then.place.own_path("sharedindex.");
            let shared = self.then.files.keys().filter(|path| path.starts_with(&shared));
            let shared = shared.filter(|path| !self.now.files.contains_key(*path));
            let mut actions: Vec<_> = shared.map(|path| self.write(path)).collect();
            actions.push(self.write(&path));
            let values = (now.map(|id| id.to_string()), then.map(|id| id.to_string()));
            self.add(GitItemKind::Index, "index".to_owned(), values, actions);
        }
    }

    fn worktrees(&mut self) {
        let present = self.now.worktrees();
        for name in self.then.worktrees() {
            let is_named = self.is_named(&[&name]);
            if present.contains(&name) || !(is_named || self.options.names.is_empty()) {
                continue;
            }
            let head = self.then.bytes(format!("worktrees/{name}/HEAD").as_bytes()).map(String::from_utf8_lossy);
            if self.is_lost(head.as_deref().map(str::trim)) {
                self.leave(GitItemKind::Worktree, &name, UNKNOWN);
                continue;
            }
            let prefix = format!("worktrees/{name}/").into_bytes();
            let below = self.then.files.keys().filter(|path| path.starts_with(&prefix));
            let files: Vec<_> = below.map(|path| self.write(path)).collect();
            let mut actions = Vec::new();
            let link = self.then.worktree_link(&name);
            let at = link.as_ref().map(|link| link.display().to_string());
            if let Some(link) = link {
                // The repository names the file: it must not be any other one.
                if link.file_name().is_none_or(|name| name != ".git") {
                    self.leave(GitItemKind::Worktree, &name, "its `gitdir` does not name a `.git`");
                    continue;
                }
                let own = self.then.place.common.join("worktrees").join(&name);
                let text = [b"gitdir: ", crate::sys::path_bytes(&own), b"\n"].concat();
                actions.push(GitAction::Pointer { link, text, is_own: false });
            }
            actions.extend(files);
            self.add(GitItemKind::Worktree, name, (None, at), actions);
        }
    }

    fn files(&mut self) {
        for path in lost_logs(self.then, self.now) {
            let name = String::from_utf8_lossy(&path).into_owned();
            if self.is_named(&[&name]) || self.wants_all() {
                let values = (file_id(self.now.files.get(&path)), file_id(self.then.files.get(&path)));
                self.add(GitItemKind::File, name, values, vec![self.write(&path)]);
            }
        }
        for (path, file) in self.then.files.iter().filter(|(path, _)| is_plain_file(path, self.then)) {
            let name = String::from_utf8_lossy(path).into_owned();
            let is_meant = self.is_named(&[&name]) || self.wants_all();
            if self.has_operation && is_of_operation(path, &self.then.place) {
                continue;
            }
            let current = self.now.files.get(path);
            let is_config = path == CONFIG;
            let new = self.config.as_ref().filter(|_| is_config).or(current);
            if !is_meant || new.is_some_and(|new| new.bytes == file.bytes) {
                continue;
            }
            // An empty file, as a power cut leaves it, is none.
            if current.is_some_and(|current| !current.bytes.is_empty()) && !self.options.is_forced {
                self.leave(GitItemKind::File, &name, "it exists and differs; it is replaced by force only");
                continue;
            }
            self.add(GitItemKind::File, name, (file_id(current), file_id(Some(file))), vec![self.write(path)]);
        }
    }

    /// The tables are immutable and stay: replacing the list of tables changes all refs at once.
    fn reftable(&mut self) {
        let (then, now) = (self.then.files.get(TABLES), self.now.files.get(TABLES));
        if then.is_none() || then == now {
            return;
        }
        let is_named = self.is_named(&["refs", "reftable"]);
        if now.is_some() && !(self.options.is_forced && (is_named || self.options.is_all)) {
            if self.options.names.is_empty() || is_named {
                self.leave(GitItemKind::Refs, "reftable", IN_REFTABLE);
            }
            return;
        }
        let tables = self.then.files.keys().filter(|path| path.starts_with(b"reftable/") && *path != TABLES);
        let tables = tables.filter(|path| !self.now.files.contains_key(*path));
        let mut actions: Vec<_> = tables.map(|path| self.write(path)).collect();
        actions.push(self.write(TABLES));
        self.add(GitItemKind::Refs, "reftable".to_owned(), (file_id(now), file_id(then)), actions);
    }

    /// Restores the operation in progress with the index or `HEAD`: one that began since is removed, and one that ended
    /// since comes back. One that moves `HEAD` is left unless `HEAD` is as recorded afterwards.
    fn operation(&mut self) {
        let files = if self.has_operation { changed_operation(self.then, self.now) } else { Vec::new() };
        let has = |kind| self.plan.items.iter().any(|one| one.item.kind == kind);
        let is_head_back = (self.then.head() == self.now.head() || has(GitItemKind::Head))
            && (self.then.bytes(TABLES) == self.now.bytes(TABLES) || has(GitItemKind::Refs));
        if !is_head_back && files.iter().any(|file| file.moves_head) {
            for operation in files.into_iter().map(|file| file.operation).collect::<BTreeSet<_>>() {
                let why = "it belongs to an operation that moves HEAD, and HEAD is not restored";
                self.leave(GitItemKind::File, &String::from_utf8_lossy(&operation), why);
            }
            return;
        }
        for path in files.into_iter().map(|file| file.path) {
            let values = (file_id(self.now.files.get(&path)), file_id(self.then.files.get(&path)));
            let name = String::from_utf8_lossy(&path).into_owned();
            self.add(GitItemKind::File, name, values, vec![self.write(&path)]);
        }
    }
}

/// Returns the lines of the section of a branch in a configuration.
fn branch_section(config: &[u8], branch: &str) -> Vec<u8> {
    let header = format!("[branch \"{}\"]", branch.replace('\\', "\\\\").replace('"', "\\\""));
    let (mut section, mut is_inside) = (Vec::new(), false);
    for line in config.split_inclusive(|byte| *byte == b'\n') {
        let text = line.trim_ascii();
        if text.starts_with(b"[") {
            is_inside = text == header.as_bytes();
        }
        if is_inside {
            section.extend_from_slice(text.strip_prefix(b"[").map_or(line, |_| line.trim_ascii_start()));
            if !section.ends_with(b"\n") {
                section.push(b'\n');
            }
        }
    }
    section
}

/// Returns true if one of two refs is a directory of the other.
fn is_in_the_way(other: &str, name: &str) -> bool {
    let is_below = |path: &str, dir: &str| path.strip_prefix(dir).is_some_and(|rest| rest.starts_with('/'));
    is_below(other, name) || is_below(name, other)
}
