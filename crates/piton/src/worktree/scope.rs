//! Scope of a checkpoint: decides if a name is in scope, and otherwise why not.
//!
//! Precedence, highest first: the user's `include`, the user's `exclude`, the project's `.gitignore` files (the deepest
//! first), the exclude list of the store. A file that the project's own git tracks is in scope even if a `.gitignore`
//! or the exclude list leaves it out, except for secrets.

use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use piton_ignore::{MatchVerdict, Patterns};

use super::tracked::Tracked;
use crate::id::{Checksum, ObjectId};
use crate::relpath;
use crate::skipped::SkipReason;
use crate::sys::{Dir, Kind};

/// Number of bytes of a `.gitignore` that are read. Longer ones hold no rules that a person wrote.
const GITIGNORE_BYTES_MAX: u64 = 16 << 20;
/// Part of the checksum of the rules: raise it when the meaning of the same rules changes.
const RULES_VERSION: u8 = 1;

/// Lists that apply everywhere in the project, in gitignore syntax.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lists<'a> {
    /// Exclude list of the store.
    pub(crate) store: &'a [u8],
    /// Exclude list of the user.
    pub(crate) exclude: &'a [String],
    /// Patterns that are in scope regardless of all other rules.
    pub(crate) include: &'a [String],
}

/// Rules of one project.
pub(crate) struct Scope {
    store: Patterns,
    exclude: Patterns,
    include: Patterns,
    /// Directories that an include pattern leads into.
    include_dirs: Vec<Vec<u8>>,
    tracked: Tracked,
    /// Path of the base, if it is inside the project.
    base: Option<Vec<u8>>,
    /// Tokens in the names of temporary files of interrupted restores.
    tokens: Vec<String>,
    /// Files and directories that are in scope although a rule leaves them out, because an earlier restore created
    /// them.
    outside: BTreeSet<Vec<u8>>,
    sum: ObjectId,
}

/// `.gitignore` files as they will be after a restore.
pub(crate) struct RulesAfter<'a> {
    /// Their text, by directory.
    pub(crate) texts: HashMap<Vec<u8>, Vec<u8>>,
    /// Returns true if an existing `.gitignore` that is not among these stays.
    pub(crate) stays: &'a (dyn Fn(&[u8]) -> bool + Sync),
}

/// Decision about a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decision {
    In,
    Out(SkipReason),
    /// The directory is left out, but something in it is not.
    OnlyExceptions(SkipReason),
}

impl Scope {
    /// Returns the rules for the project in this directory. `base` is the path of the base relative to it, if it is
    /// inside. `tokens` are those of an interrupted restore.
    pub(crate) fn new(project: &Path, lists: Lists<'_>, base: Option<Vec<u8>>, tokens: Vec<String>) -> Self {
        let tracked = Tracked::of(project);
        let exclude = lists.exclude.join("\n");
        let include = lists.include.join("\n");
        let mut sum = Checksum::new();
        sum.update(&[RULES_VERSION]);
        for part in [lists.store, exclude.as_bytes(), include.as_bytes(), base.as_deref().unwrap_or_default()] {
            sum.update(&(part.len() as u64).to_be_bytes());
            sum.update(part);
        }
        tracked.sum(&mut sum);
        Self {
            store: Patterns::parse(lists.store),
            exclude: Patterns::parse(exclude.as_bytes()),
            include: Patterns::parse(include.as_bytes()),
            include_dirs: lists.include.iter().map(|pattern| fixed_part(pattern.as_bytes())).collect(),
            tracked,
            base,
            tokens,
            outside: BTreeSet::new(),
            sum: ObjectId::from_bytes(sum.finish()),
        }
    }

    /// Adds files and directories that are in scope regardless of the rules. A directory does not include its contents.
    /// The checksum of the rules changes, so that no later scan relies on the result of this one.
    pub(crate) fn with_outside(mut self, outside: BTreeSet<Vec<u8>>) -> Self {
        if !outside.is_empty() {
            self.outside = outside;
            self.sum = self.sum_with(b"outside");
        }
        self
    }

    /// Changes the checksum of the rules, for a scan that follows additional rules.
    pub(crate) fn with_other_sum(mut self) -> Self {
        self.sum = self.sum_with(b"after");
        self
    }

    fn sum_with(&self, word: &[u8]) -> ObjectId {
        let mut sum = Checksum::new();
        sum.update(self.sum.to_string().as_bytes());
        sum.update(word);
        ObjectId::from_bytes(sum.finish())
    }

    /// Returns true if this file or directory itself is in scope although a rule leaves it out.
    pub(super) fn is_named_outside(&self, path: &[u8]) -> bool {
        self.outside.contains(path)
    }

    fn any_named_in(&self, dir: &[u8]) -> bool {
        let inside = [dir, b"/"].concat();
        let is_inside = |path: &Vec<u8>| path.starts_with(&inside);
        self.outside.contains(dir) || self.outside.range(inside.clone()..).next().is_some_and(is_inside)
    }

    /// Returns the checksum of the rules. Equal checksums mean equal rules, except for `.gitignore` files.
    pub(crate) fn sum(&self) -> ObjectId {
        self.sum
    }

    /// Returns the index of the project's own git, if it was needed and could not be read.
    pub(crate) fn unread_index(&self) -> Option<&Path> {
        self.tracked.unread()
    }

    /// Decides about one name. `within` is the reason why its directory is left out, if it is.
    pub(super) fn decide(
        &self,
        path: &[u8],
        is_dir: bool,
        rules: Option<&Rules>,
        root: &Dir,
        within: Option<SkipReason>,
    ) -> Decision {
        let name = relpath::split(path).1;
        if !relpath::is_allowed(name) {
            return Decision::Out(if name == b".git" { SkipReason::GitDir } else { SkipReason::BadName });
        }
        if !is_dir && relpath::temporary_kind(name, &self.tokens).is_some() {
            return Decision::Out(SkipReason::Temporary);
        }
        if self.base.as_deref() == Some(path) {
            return Decision::Out(SkipReason::Store);
        }
        match self.by_lists_and_rules(path, is_dir, rules, root, within) {
            decision if self.outside.is_empty() => decision,
            Decision::Out(_) if !is_dir && self.outside.contains(path) => Decision::In,
            Decision::Out(why) if is_dir && self.any_named_in(path) => Decision::OnlyExceptions(why),
            decision => decision,
        }
    }

    fn by_lists_and_rules(
        &self,
        path: &[u8],
        is_dir: bool,
        rules: Option<&Rules>,
        root: &Dir,
        within: Option<SkipReason>,
    ) -> Decision {
        let name = relpath::split(path).1;
        if self.is_included(path, is_dir) {
            return Decision::In;
        }
        // A directory that is left out is entered for exceptions only: then its ancestors count, too.
        let is_excluded = if within.is_some() {
            matches_or_around(&self.exclude, path, is_dir)
        } else {
            self.exclude.verdict(path, is_dir) == Some(MatchVerdict::Ignored)
        };
        if is_excluded {
            return if is_dir && self.is_included_below(path) {
                Decision::OnlyExceptions(SkipReason::Excluded)
            } else {
                Decision::Out(SkipReason::Excluded)
            };
        }
        let Some(why) = within.or_else(|| self.by_rules(path, is_dir, rules, root)) else {
            return Decision::In;
        };
        match is_dir {
            true if self.tracked.any_in(path) || self.is_included_below(path) => Decision::OnlyExceptions(why),
            false if !is_secret(name) && self.tracked.contains(path) => Decision::In,
            _ => Decision::Out(why),
        }
    }

    /// Returns true if an include pattern matches the path or one of its ancestors.
    fn is_included(&self, path: &[u8], is_dir: bool) -> bool {
        !self.include_dirs.is_empty() && matches_or_around(&self.include, path, is_dir)
    }

    fn by_rules(&self, path: &[u8], is_dir: bool, rules: Option<&Rules>, root: &Dir) -> Option<SkipReason> {
        let mut next = rules;
        while let Some(rules) = next {
            match rules.patterns(root).verdict(&path[rules.prefix_bytes..], is_dir) {
                Some(MatchVerdict::Ignored) => return Some(SkipReason::Ignored),
                Some(MatchVerdict::Included) => return None,
                None => next = rules.around.as_deref(),
            }
        }
        let is_excluded = self.store.verdict(path, is_dir) == Some(MatchVerdict::Ignored);
        let secret = !is_dir && is_secret(relpath::split(path).1);
        is_excluded.then_some(if secret { SkipReason::Secret } else { SkipReason::Excluded })
    }

    /// Returns true if an include pattern names the directory, or something in it by path. A pattern without a path,
    /// such as `*.log`, does not open directories that are left out: all of them would have to be searched.
    fn is_included_below(&self, dir: &[u8]) -> bool {
        self.include_dirs.iter().any(|fixed| !fixed.is_empty() && relpath::is_within(fixed, dir))
    }

    /// Returns true if the user's own list leaves out the path or a directory around it.
    pub(crate) fn is_excluded_by_user(&self, path: &[u8], is_dir: bool) -> bool {
        matches_or_around(&self.exclude, path, is_dir)
    }

    /// Returns true if the user's own list of exceptions names the path or a directory around it.
    pub(super) fn is_included_by_user(&self, path: &[u8], is_dir: bool) -> bool {
        self.is_included(path, is_dir)
    }

    /// Returns true if an earlier restore created the path out of scope, so that a scan covers it.
    pub(super) fn covers_outside(&self, path: &[u8]) -> bool {
        self.outside.contains(path)
    }

    /// Returns true if the path is the base of the store.
    pub(super) fn is_base(&self, path: &[u8]) -> bool {
        self.base.as_deref() == Some(path)
    }

    /// Returns true if a file of this name belongs to an interrupted restore.
    pub(super) fn is_temporary(&self, name: &[u8]) -> bool {
        relpath::temporary_kind(name, &self.tokens).is_some()
    }

    /// Returns true if the rules would leave out any new file and any new directory at the top of the project.
    pub(super) fn leaves_out_everything(&self, rules: Option<&Rules>, root: &Dir) -> bool {
        let unlikely = b"piton-asks-about-a-name-that-does-not-exist";
        [false, true].iter().all(|is_dir| self.decide(unlikely, *is_dir, rules, root, None) != Decision::In)
    }
}

/// Returns true if the patterns match the path or one of its ancestors.
pub(super) fn matches_or_around(patterns: &Patterns, path: &[u8], is_dir: bool) -> bool {
    let matches = |path: &[u8], is_dir| patterns.verdict(path, is_dir) == Some(MatchVerdict::Ignored);
    let mut dirs = std::iter::successors(Some(relpath::split(path).0), |dir| Some(relpath::split(dir).0));
    matches(path, is_dir) || dirs.by_ref().take_while(|dir| !dir.is_empty()).any(|dir| matches(dir, true))
}

pub(super) fn is_secret(name: &[u8]) -> bool {
    name == b".env" || name.starts_with(b".env.")
}

/// Returns the leading components of an anchored pattern that have no wildcards: `dist/keep` for `dist/keep/*.js`.
fn fixed_part(pattern: &[u8]) -> Vec<u8> {
    let anchored = pattern.strip_prefix(b"/").unwrap_or(pattern);
    let is_path = pattern.starts_with(b"/") || anchored.iter().rev().skip(1).any(|byte| *byte == b'/');
    if !is_path {
        return Vec::new();
    }
    let plain = |name: &&[u8]| !name.is_empty() && !name.iter().any(|byte| matches!(byte, b'*' | b'?' | b'[' | b'\\'));
    anchored.split(|byte| *byte == b'/').take_while(plain).fold(Vec::new(), |path, name| relpath::join(&path, name))
}

/// Rules for the names in one directory.
#[derive(Clone, Default)]
pub(super) struct DirectoryRules {
    pub(super) rules: Option<Arc<Rules>>,
    /// Reason why the directory is left out, if it is.
    pub(super) within: Option<SkipReason>,
}

impl DirectoryRules {
    /// Returns the rules for a subdirectory, including its `.gitignore`.
    pub(super) fn enter(&self, dir: &[u8], has_gitignore: bool) -> Self {
        let around = self.rules.clone();
        let rules = if has_gitignore { Some(Rules::within(around, dir)) } else { around };
        Self { rules, within: self.within }
    }

    /// Like [`Self::enter`], but with the `.gitignore` that the directory will have after the restore.
    pub(super) fn enter_after(&self, dir: &[u8], has_gitignore: bool, after: &RulesAfter<'_>) -> Self {
        let around = self.rules.clone();
        let rules = match after.texts.get(dir) {
            Some(text) => Some(Rules::with_text(around, dir, text)),
            None if has_gitignore && (after.stays)(&relpath::join(dir, b".gitignore")) => {
                Some(Rules::within(around, dir))
            }
            None => around,
        };
        Self { rules, within: self.within }
    }

    pub(super) fn decide(&self, scope: &Scope, path: &[u8], is_dir: bool, root: &Dir) -> Decision {
        scope.decide(path, is_dir, self.rules.as_deref(), root, self.within)
    }

    /// Returns the rules for the contents of a directory, given the decision about it.
    pub(super) fn after(mut self, decision: Decision) -> Self {
        self.within = match decision {
            Decision::In => None,
            Decision::Out(why) | Decision::OnlyExceptions(why) => Some(why),
        };
        self
    }
}

/// Two sets of rules: a name is in scope if it is by either.
#[derive(Clone, Default)]
pub(super) struct RuleSets {
    pub(super) now: DirectoryRules,
    /// Rules after a restore, if it changes them.
    pub(super) after: Option<DirectoryRules>,
}

impl RuleSets {
    pub(super) fn enter(&self, dir: &[u8], has_gitignore: bool, after: Option<&RulesAfter<'_>>) -> Self {
        let then = self.after.as_ref().zip(after);
        let after = then.map(|(judge, after)| judge.enter_after(dir, has_gitignore, after));
        Self { now: self.now.enter(dir, has_gitignore), after }
    }

    /// Decides about a name. Also returns the rules for its contents, if it is a directory.
    pub(super) fn decide(&self, scope: &Scope, path: &[u8], is_dir: bool, root: &Dir) -> (Decision, Self) {
        let now = self.now.decide(scope, path, is_dir, root);
        let after = self.after.as_ref().filter(|_| is_dir || matches!(now, Decision::Out(_)));
        let after = after.map(|judge| judge.decide(scope, path, is_dir, root));
        let both = match (now, after) {
            (_, Some(Decision::In)) => Decision::In,
            (Decision::Out(_), Some(exceptions @ Decision::OnlyExceptions(_))) => exceptions,
            (now, _) => now,
        };
        if !is_dir {
            return (both, Self::default());
        }
        let after = self.after.clone().zip(after).map(|(judge, decision)| judge.after(decision));
        (both, Self { now: self.now.clone().after(now), after })
    }

    /// Returns the reason why the directory is left out by all rules, if it is.
    pub(super) fn within(&self) -> Option<SkipReason> {
        match &self.after {
            Some(after) => after.within.and(self.now.within),
            None => self.now.within,
        }
    }
}

/// Evaluates the rules for paths at which nothing exists, so that the scan has not seen them.
pub(crate) struct ScopePreview<'a> {
    scope: &'a Scope,
    root: &'a Dir,
    after: Option<&'a RulesAfter<'a>>,
    /// Rules of the directories evaluated so far, and true if the directory itself is in scope.
    dirs: HashMap<Vec<u8>, (RuleSets, bool)>,
}

impl<'a> ScopePreview<'a> {
    pub(crate) fn new(scope: &'a Scope, root: &'a Dir, after: Option<&'a RulesAfter<'a>>) -> Self {
        let first = RuleSets { now: DirectoryRules::default(), after: after.map(|_| DirectoryRules::default()) };
        let first = first.enter(b"", has_gitignore(root, b""), after);
        Self { scope, root, after, dirs: HashMap::from([(Vec::new(), (first, true))]) }
    }

    /// Returns true if a file at this path would be in scope by the current rules or by those after the restore.
    pub(crate) fn covers_file(&mut self, path: &[u8]) -> bool {
        let (scope, root) = (self.scope, self.root);
        let (judges, _) = self.dir(relpath::split(path).0);
        judges.decide(scope, path, false, root).0 == Decision::In
    }

    /// Returns the reason why the current rules leave a file, or a directory with everything in it, out.
    pub(crate) fn left_out(&mut self, path: &[u8], is_dir: bool) -> Option<SkipReason> {
        let (scope, root) = (self.scope, self.root);
        let (judges, _) = self.dir(relpath::split(path).0);
        match judges.decide(scope, path, is_dir, root).0 {
            Decision::Out(why) => Some(why),
            Decision::In | Decision::OnlyExceptions(_) => None,
        }
    }

    /// Like [`Self::covers_file`], for a directory.
    pub(crate) fn covers_dir(&mut self, path: &[u8]) -> bool {
        self.dir(path).1
    }

    fn dir(&mut self, dir: &[u8]) -> &(RuleSets, bool) {
        // Starts at the outermost unknown directory, without recursion, because a path may be long.
        let unknown = std::iter::successors(Some(dir), |dir| Some(relpath::split(dir).0));
        let unknown: Vec<_> = unknown.take_while(|dir| !self.dirs.contains_key(*dir)).collect();
        for dir in unknown.into_iter().rev() {
            let (around, _) = &self.dirs[relpath::split(dir).0];
            let (decision, judges) = around.decide(self.scope, dir, true, self.root);
            let judges = judges.enter(dir, has_gitignore(self.root, dir), self.after);
            self.dirs.insert(dir.to_vec(), (judges, decision == Decision::In));
        }
        &self.dirs[dir]
    }
}

fn has_gitignore(root: &Dir, dir: &[u8]) -> bool {
    let stat = root.open_dir(dir).and_then(|dir| dir.stat_at(c".gitignore"));
    stat.is_ok_and(|stat| stat.kind == Kind::File)
}

/// `.gitignore` of one directory, and those of its ancestors. Read on first use.
pub(super) struct Rules {
    around: Option<Arc<Rules>>,
    path: Vec<u8>,
    prefix_bytes: usize,
    patterns: OnceLock<Patterns>,
}

impl Rules {
    /// Returns the rules of a directory that has a `.gitignore`.
    pub(super) fn within(around: Option<Arc<Self>>, dir: &[u8]) -> Arc<Self> {
        Arc::new(Self {
            around,
            path: relpath::join(dir, b".gitignore"),
            prefix_bytes: if dir.is_empty() { 0 } else { dir.len() + 1 },
            patterns: OnceLock::new(),
        })
    }

    /// Returns the rules of a directory whose `.gitignore` will have this text.
    fn with_text(around: Option<Arc<Self>>, dir: &[u8], text: &[u8]) -> Arc<Self> {
        let rules = Self::within(around, dir);
        let _ = rules.patterns.set(Patterns::parse(text));
        rules
    }

    /// Returns the patterns. A `.gitignore` that cannot be read has none. As any other file, it is reported as
    /// unreadable.
    fn patterns(&self, root: &Dir) -> &Patterns {
        self.patterns.get_or_init(|| {
            let mut text = Vec::new();
            let read =
                root.open_file(&self.path).and_then(|file| file.take(GITIGNORE_BYTES_MAX).read_to_end(&mut text));
            if read.is_ok() { Patterns::parse(&text) } else { Patterns::parse(b"") }
        })
    }
}
