//! Differences between a recorded state of a repository and the present one.

use std::collections::BTreeSet;

use super::operation::changed_operation;
use super::snapshot::GitSnapshot;
use super::{GitDifference, GitItemKind};
use crate::id::content_id;

/// Returns the items of the recorded state that the repository lacks, or has with another value.
pub(super) fn differences(then: &GitSnapshot, now: Option<&GitSnapshot>) -> Vec<GitDifference> {
    let Some(now) = now else {
        let name = then.place.common.display().to_string();
        return vec![GitDifference { kind: GitItemKind::Repository, name, then: Some(label(then)), now: None }];
    };
    let mut found = Vec::new();
    let mut note = |kind, name: String, then: Option<String>, now: Option<String>| {
        found.push(GitDifference { kind, name, then, now });
    };
    if !then.place.is_linked() {
        let name = then.place.root.join(".git").display().to_string();
        note(GitItemKind::Repository, name, Some(then.place.own.display().to_string()), None);
    }
    if then.head() != now.head() {
        note(GitItemKind::Head, "HEAD".to_owned(), then.head(), now.head());
    }
    let (then_refs, now_refs) = (then.refs(), now.refs());
    for name in then_refs.keys().chain(now_refs.keys()).collect::<BTreeSet<_>>() {
        let (then, now) = (then_refs.get(name), now_refs.get(name));
        if then != now && !name.starts_with("refs/recovered/") {
            note(kind_of_ref(name), short_name(name), then.cloned(), now.cloned());
        }
    }
    let (entries, present) = (then.stash(), now.stash());
    for (nth, entry) in entries.iter().rev().enumerate() {
        if !present.iter().any(|other| other.id == entry.id) {
            note(GitItemKind::Stash, format!("stash@{{{nth}}}"), Some(entry.id.clone()), None);
        }
    }
    if then.has_reftable() || now.has_reftable() {
        let list = |side: &GitSnapshot| side.bytes(b"reftable/tables.list").map(|bytes| content_id(bytes).to_string());
        let (then, now) = (list(then), list(now));
        if then != now {
            note(GitItemKind::Refs, "reftable".to_owned(), then, now);
        }
    }
    let staged = |side: &GitSnapshot| side.staged().map(|id| id.to_string());
    if staged(then) != staged(now) {
        note(GitItemKind::Index, "index".to_owned(), staged(then), staged(now));
    }
    let (worktrees, present) = (then.worktrees(), now.worktrees());
    for name in worktrees.difference(&present) {
        let at = then.worktree_link(name).map(|link| link.display().to_string());
        note(GitItemKind::Worktree, name.clone(), at.or_else(|| Some(name.clone())), None);
    }
    for path in lost_logs(then, now) {
        let value = then.bytes(&path).map(|bytes| content_id(bytes).to_string());
        note(GitItemKind::File, String::from_utf8_lossy(&path).into_owned(), value, None);
    }
    for (path, file) in then.files.iter().filter(|(path, _)| is_plain_file(path, then)) {
        if now.bytes(path) != Some(&file.bytes) {
            let id = |bytes: &[u8]| content_id(bytes).to_string();
            let name = String::from_utf8_lossy(path).into_owned();
            note(GitItemKind::File, name, Some(id(&file.bytes)), now.bytes(path).map(id));
        }
    }
    // Of the other files, none changes what git does next. Refs are among those above.
    let is_new = |path: &Vec<u8>| then.bytes(path).is_none() && !path.starts_with(b"refs/");
    for path in changed_operation(then, now).into_iter().map(|file| file.path).filter(is_new) {
        let name = String::from_utf8_lossy(&path).into_owned();
        note(GitItemKind::File, name, None, now.bytes(&path).map(|bytes| content_id(bytes).to_string()));
    }
    found
}

/// Returns true for a small file that is neither part of refs, `HEAD` and the index, nor only of passing interest.
pub(super) fn is_plain_file(path: &[u8], then: &GitSnapshot) -> bool {
    // Beside a reftable, `refs` has files that only tell older versions of git to keep out.
    if then.has_reftable() && path.starts_with(b"refs/") {
        return true;
    }
    const PASSING: [&[u8]; 5] = [b"COMMIT_EDITMSG", b"FETCH_HEAD", b"ORIG_HEAD", b"packed-refs", b"logs"];
    let name = path.split(|byte| *byte == b'/').next().unwrap_or_default();
    let own = then.place.own_path("");
    let own = own.strip_suffix(b"/").unwrap_or(&own);
    let in_own = path.strip_prefix(own).and_then(|rest| rest.strip_prefix(b"/")).filter(|_| !own.is_empty());
    let in_own = in_own.unwrap_or(path);
    let first = in_own.split(|byte| *byte == b'/').next().unwrap_or_default();
    let is_special = |name: &[u8]| {
        PASSING.contains(&name)
            || matches!(name, b"HEAD" | b"index" | b"refs" | b"reftable")
            || name.starts_with(b"sharedindex.")
    };
    !is_special(name) && !is_special(first) && (name != b"worktrees" || in_own != path)
}

/// Returns the paths of reflogs that are missing or empty now, of `HEAD` and of refs that exist. The stash is its reflog.
pub(super) fn lost_logs(then: &GitSnapshot, now: &GitSnapshot) -> Vec<Vec<u8>> {
    let refs = now.refs();
    let head = then.place.own_path("logs/HEAD");
    let is_log = |path: &[u8]| {
        let name = path.strip_prefix(b"logs/").and_then(|name| std::str::from_utf8(name).ok());
        path == head || name.is_some_and(|name| refs.contains_key(name))
    };
    let is_empty = |side: &GitSnapshot, path: &[u8]| side.bytes(path).is_none_or(<[u8]>::is_empty);
    let logs = then.files.keys().filter(|path| is_log(path) && !is_empty(then, path) && is_empty(now, path));
    logs.cloned().collect()
}

/// Returns the kind of a ref by its name.
pub(super) fn kind_of_ref(name: &str) -> GitItemKind {
    match name.strip_prefix("refs/").and_then(|rest| rest.split_once('/')).map(|(first, _)| first) {
        Some("heads") => GitItemKind::Branch,
        Some("tags") => GitItemKind::Tag,
        Some("remotes") => GitItemKind::Remote,
        _ => GitItemKind::Ref,
    }
}

/// Returns the name of a ref as people use it.
pub(super) fn short_name(name: &str) -> String {
    let short = ["refs/heads/", "refs/tags/", "refs/remotes/"].iter().find_map(|prefix| name.strip_prefix(prefix));
    short.unwrap_or(name).to_owned()
}

/// Returns the number of branches and tags in words, to describe a repository that is gone.
fn label(then: &GitSnapshot) -> String {
    let count = |kind| then.refs().keys().filter(|name| kind_of_ref(name) == kind).count();
    format!(
        "branches: {}, tags: {}, stash entries: {}",
        count(GitItemKind::Branch),
        count(GitItemKind::Tag),
        then.stash().len()
    )
}
