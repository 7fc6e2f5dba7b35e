//! Paths whose contents a command destroys, and how.
//!
//! A name that is unlinked, or that a rename gives to another file, leaves the old file whole to other names of it: a hard
//! link protects it. A file that is written in place does not. [`LossKind`] tells the two apart.
//!
//! Operands are text: a pattern is resolved by the caller, who may look at the file system. A variable is replaced by
//! every value that the command itself gives it; any other makes the operand unknown.

use std::path::PathBuf;

use super::findings::Findings;
use super::loss::{Found, Loss, LossExtent, LossKind};
use super::place::{Cwd, normalise};
use super::word::Word;

/// Limit of losses of one command; further ones are reported as unread.
const LOSSES_MAX: usize = 256;
/// Limit of the words that one word with braces or variables becomes.
const WORDS_MAX: usize = 64;
/// Length limit of a word that is reported as unread, in characters.
const UNREAD_CHARS_MAX: usize = 60;

/// Operand as a path. `is_pattern` as in [`Loss`].
struct Operand {
    path: PathBuf,
    is_pattern: bool,
}

impl Findings<'_> {
    /// Records that the operands of the current command are destroyed.
    pub(super) fn lose<'w>(
        &mut self,
        words: impl IntoIterator<Item = &'w Word>,
        kind: LossKind,
        extent: &LossExtent,
        cwd: &Cwd,
    ) {
        for word in words {
            for operand in self.operands(word, Some(kind), cwd) {
                self.add_loss(Loss {
                    path: operand.path,
                    is_pattern: operand.is_pattern,
                    kind,
                    extent: extent.clone(),
                });
            }
        }
    }

    fn add_loss(&mut self, loss: Loss) {
        if self.losses.contains(&loss) {
            return;
        }
        if self.losses.len() >= LOSSES_MAX {
            self.add_unread("more operands than are followed");
        } else {
            self.losses.push(loss);
        }
    }

    /// Records that an operand is unknown.
    pub(super) fn add_unread(&mut self, what: &str) {
        let what: String = what.chars().take(UNREAD_CHARS_MAX).collect();
        if !self.unread.contains(&what) && self.unread.len() < 8 {
            self.unread.push(what);
        }
    }

    /// Returns the paths that a word may name. A word that is not known is recorded as unread, or as the placeholder of
    /// `find` and `xargs`, unless `kind` is `None`.
    fn operands(&mut self, word: &Word, kind: Option<LossKind>, cwd: &Cwd) -> Vec<Operand> {
        if word.open && (word.full.is_empty() || word.full.contains("{}") || word.full == word.text) {
            self.placeholder = kind.or(self.placeholder);
            return Vec::new();
        }
        let texts = if word.open { self.values_of(&word.full) } else { Some(vec![word.text.clone()]) };
        let is_lost = cwd.lost && !word.text.starts_with(['/', '~']);
        let Some(texts) = texts.filter(|_| !is_lost) else {
            if kind.is_some() {
                self.add_unread(if word.full.is_empty() { &word.text } else { &word.full });
            }
            return Vec::new();
        };
        let mut operands = Vec::new();
        for text in texts.iter().flat_map(|text| braces(text, word.open)) {
            let is_pattern = word.open && text.contains(['*', '?', '[']);
            let below_home = text.strip_prefix('~').filter(|_| word.tilde);
            for dir in &cwd.known {
                let path = match (below_home, self.home) {
                    (Some(rest), Some(home)) if rest.is_empty() || rest.starts_with('/') => {
                        home.join(rest.trim_start_matches('/'))
                    }
                    (Some(_), _) => continue,
                    (None, _) => dir.join(&text),
                };
                operands.push(Operand { path: normalise(&path), is_pattern });
            }
        }
        operands
    }

    /// Records a value of a variable.
    pub(super) fn set_value(&mut self, name: &str, value: &Word) {
        let text = if value.open { self.values_of(&value.full) } else { Some(vec![value.text.clone()]) };
        let values = self.values.entry(name.to_owned()).or_default();
        match text {
            Some(texts) => {
                let room = WORDS_MAX.saturating_sub(values.len());
                values.extend(texts.into_iter().map(Some).take(room));
            }
            None => values.push(None),
        }
    }

    /// Returns the text with its variables replaced, once for each combination of values. Returns `None` if one is not
    /// known, or if there is another expansion.
    fn values_of(&self, text: &str) -> Option<Vec<String>> {
        let Some(at) = text.find(['$', '`']) else { return Some(vec![text.to_owned()]) };
        let (before, rest) = text.split_at(at);
        let rest = rest.strip_prefix('$')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = match rest.strip_prefix('{') {
            Some(braced) => braced.split_once('}')?,
            None => rest.split_at(rest.find(|c: char| !is_name(c)).unwrap_or(rest.len())),
        };
        let values = self.values.get(name).filter(|_| !name.is_empty() && name.chars().all(is_name))?;
        let after = self.values_of(rest)?;
        let mut all = Vec::new();
        for value in values {
            let value = value.as_ref()?;
            all.extend(after.iter().map(|after| format!("{before}{value}{after}")));
        }
        all.truncate(WORDS_MAX);
        Some(all)
    }

    /// Records what `find` passes to a command that destroys it.
    pub(super) fn lose_found(&mut self, found: &Found, kind: LossKind) {
        let extent = LossExtent::Below { names: found.names.clone() };
        self.lose(&found.starts, kind, &extent, &found.cwd);
    }

    /// Reports a placeholder that no `find` explains.
    pub(super) fn finish_losses(&mut self) {
        if self.placeholder.take().is_some() {
            self.add_unread("names from the output of another command");
        }
    }
}

/// Returns the words that a word with braces becomes: `{a,b}.o` is `a.o` and `b.o`. Without `is_open` the braces are text.
fn braces(text: &str, is_open: bool) -> Vec<String> {
    let group = || {
        let open = text.find('{')?;
        let close = open + text[open..].find('}')?;
        let inner = &text[open + 1..close];
        (inner.contains(',') && !inner.contains('{')).then_some((open, inner, close))
    };
    let Some((open, inner, close)) = group().filter(|_| is_open) else { return vec![text.to_owned()] };
    let mut all = Vec::new();
    for one in inner.split(',') {
        all.extend(braces(&format!("{}{one}{}", &text[..open], &text[close + 1..]), true));
        all.truncate(WORDS_MAX);
    }
    all
}

/// Records what a program destroys.
pub(super) fn of(found: &mut Findings<'_>, name: &str, args: &[Word], operands: Operands<'_>, cwd: &Cwd) {
    let all = operands.all;
    let has = |short: char, long: &str| args.iter().any(|word| is_option(word, short, long));
    match name {
        "rm" | "rimraf" | "srm" => {
            let is_deep = name == "rimraf" || has('r', "--recursive") || has('R', "--recursive");
            let extent = if is_deep { LossExtent::Tree } else { LossExtent::File };
            found.lose(all, LossKind::Unlinked, &extent, cwd);
        }
        "unlink" => found.lose(all, LossKind::Unlinked, &LossExtent::File, cwd),
        "tee" if has('a', "--append") => {}
        "shred" | "truncate" | "tee" | "sponge" => found.lose(all, LossKind::Rewritten, &LossExtent::File, cwd),
        "mv" | "cp" | "install" | "ln" | "rsync" => copies(found, name, args, operands, cwd),
        "perl" => found.lose(all, LossKind::Unlinked, &LossExtent::File, cwd),
        "curl" | "wget" | "sort" => {
            let file = value_of(args, if name == "wget" { 'O' } else { 'o' }, "--output");
            found.lose(file.as_ref(), LossKind::Rewritten, &LossExtent::File, cwd);
        }
        "sqlite3" => {
            let is_query = all.get(1).is_some_and(|sql| sql.text.trim_start().to_lowercase().starts_with("select"));
            let file = all.first().filter(|_| !is_query);
            found.lose(file, LossKind::Rewritten, &LossExtent::File, cwd);
        }
        _ => {}
    }
}

/// Operands of a command, without options and their arguments.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) all: &'a [Word],
    /// Directory given with `-t`.
    pub(super) target: Option<&'a Word>,
}

/// Programs that put files at their last operand, or into the directory of `-t`.
fn copies(found: &mut Findings<'_>, name: &str, args: &[Word], operands: Operands<'_>, cwd: &Cwd) {
    let has = |short: char, long: &str| args.iter().any(|word| is_option(word, short, long));
    let (to, from) = match (operands.target, operands.all) {
        (Some(dir), all) => (dir, all),
        (None, [from @ .., to]) if !from.is_empty() => (to, from),
        _ => return,
    };
    if name == "mv" && to.known() == Some("/dev/null") {
        return found.lose(from, LossKind::Unlinked, &LossExtent::Tree, cwd);
    }
    let is_remote = to.text.split('/').next().is_some_and(|start| start.contains(':'));
    if is_remote || matches!(name, "mv" | "cp") && has('n', "--no-clobber") {
        return;
    }
    let deletes = args.iter().any(|word| word.text.starts_with("--del"));
    let kind = match name {
        "cp" if has('\0', "--remove-destination") => LossKind::Unlinked,
        "cp" => LossKind::Rewritten,
        "rsync" if has('\0', "--inplace") => LossKind::Rewritten,
        "ln" if !has('f', "--force") => return,
        _ => LossKind::Unlinked,
    };
    if name == "rsync" && deletes {
        return found.lose([to], kind, &LossExtent::Below { names: None }, cwd);
    }
    let mut sources = Vec::new();
    for word in from {
        sources.extend(found.operands(word, None, cwd).into_iter().map(|operand| operand.path));
    }
    found.lose([to], kind, &LossExtent::Onto { sources }, cwd);
}

/// Returns true if a word is the option, alone or among other letters.
fn is_option(word: &Word, short: char, long: &str) -> bool {
    let text = word.text.as_str();
    match text.strip_prefix("--") {
        Some(_) => text == long || text.strip_prefix(long).is_some_and(|rest| rest.starts_with('=')),
        None => text.len() > 1 && text.starts_with('-') && text[1..].contains(short),
    }
}

/// Returns the argument of an option.
fn value_of(args: &[Word], short: char, long: &str) -> Option<Word> {
    let at = args.iter().position(|word| {
        let text = word.text.as_str();
        text.starts_with(long) || text.starts_with('-') && !text.starts_with("--") && text.contains(short)
    })?;
    let text = args[at].text.as_str();
    match text.split_once('=') {
        Some((_, value)) if text.starts_with("--") => Some(Word { text: value.into(), ..args[at].clone() }),
        _ if text.starts_with("--") || text.ends_with(short) => args.get(at + 1).cloned(),
        _ => text.split_once(short).map(|(_, value)| Word::exact(value)),
    }
}

/// Records what `git` destroys in the working tree: files that no commit holds.
pub(super) fn of_git(found: &mut Findings<'_>, verb: &str, args: &[Word], here: &Cwd) {
    let operands: Vec<Word> = args.iter().filter(|word| !word.maybe_option()).cloned().collect();
    let has = |short: char, long: &str| args.iter().any(|word| is_option(word, short, long));
    let dot = [Word::exact(".")];
    match verb {
        "clean" if has('n', "--dry-run") => {}
        "clean" => {
            let paths = if operands.is_empty() { &dot[..] } else { &operands };
            found.lose(paths, LossKind::Unlinked, &LossExtent::Untracked, here);
        }
        "stash" if has('a', "--all") || has('u', "--include-untracked") => {
            found.lose(&dot, LossKind::Unlinked, &LossExtent::Untracked, here);
        }
        "rm" if !has('\0', "--cached") => found.lose(&operands, LossKind::Unlinked, &LossExtent::Tree, here),
        "worktree" if operands.first().and_then(Word::known) == Some("remove") => {
            found.lose(&operands[1..], LossKind::Unlinked, &LossExtent::Tree, here);
        }
        "submodule" if operands.first().and_then(Word::known) == Some("deinit") => {
            found.lose(&operands[1..], LossKind::Unlinked, &LossExtent::Below { names: None }, here);
        }
        // A tracked file that is too large for a checkpoint is in no commit if it was changed.
        _ if matches!(verb, "reset" | "restore") || verb == concat!("check", "out") => {
            let is_path = |word: &&Word| word.text.contains(['.', '/']) || word.open;
            let paths: Vec<Word> = operands.iter().filter(is_path).cloned().collect();
            found.lose(&paths, LossKind::Unlinked, &LossExtent::File, here);
        }
        _ => {}
    }
}

/// Records the file of a redirection that truncates it.
pub(super) fn of_redirect(found: &mut Findings<'_>, op: &str, word: &Word, cwd: &Cwd) {
    if !op.contains(">>") && !op.contains("<>") {
        found.lose([word], LossKind::Rewritten, &LossExtent::File, cwd);
    }
}
