//! Paths whose contents a command destroys, and how.
//!
//! A name that is unlinked, or that a rename gives to another file, leaves the old file whole to other names of it: a hard
//! link protects it. A file that is written in place does not. [`LossKind`] tells the two apart.
//!
//! Operands are text: a pattern is resolved by the caller, who may look at the file system. A variable is replaced by
//! every value that the command itself gives it; any other makes the operand unknown.

use std::path::{Path, PathBuf};

use super::findings::Findings;
use super::loss::{Found, Loss, LossExtent, LossKind};
use super::options::{OptionTable, Options};
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
            for Operand { path, is_pattern } in self.operands(word, Some(kind), cwd) {
                let moved = self.moved_to(&path, extent);
                self.add_loss(Loss { path, is_pattern, kind, extent: extent.clone() });
                for path in moved {
                    self.add_loss(Loss { path, is_pattern: false, kind: LossKind::Unlinked, extent: LossExtent::Tree });
                }
            }
        }
    }

    /// Records that files are moved: what a later command destroys there was here when the command began.
    fn note_move(&mut self, sources: &[PathBuf], to: &Word, cwd: &Cwd) {
        for to in self.operands(to, None, cwd) {
            let room = LOSSES_MAX.saturating_sub(self.moves.len());
            self.moves.extend(sources.iter().take(room).map(|from| (from.clone(), to.path.clone())));
        }
    }

    /// Returns the paths whose files an earlier part of the command moves to a path that is destroyed.
    fn moved_to(&self, path: &Path, extent: &LossExtent) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for (from, to) in &self.moves {
            if to.starts_with(path) && matches!(extent, LossExtent::Tree | LossExtent::Below { .. }) {
                found.push(from.clone());
            } else if let (Ok(below), Some(name)) = (path.strip_prefix(to), from.file_name()) {
                // The target may be a directory, in which the file keeps its name.
                let below = below.strip_prefix(name).unwrap_or(below);
                found.push(if below.as_os_str().is_empty() { from.clone() } else { from.join(below) });
            }
        }
        found
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
        "curl" | "wget" | "sort" => outputs(found, name, args, cwd),
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
        let means_contents = matches!(word.text.rsplit('/').next(), Some("." | "..")) && name != "mv";
        for Operand { path, .. } in found.operands(word, None, cwd) {
            match means_contents {
                true => sources.extend([path.join("*"), path.join(".*")]),
                false => sources.push(path),
            }
        }
    }
    found.lose([to], kind, &LossExtent::Onto { sources: sources.clone() }, cwd);
    if name == "mv" {
        found.note_move(&sources, to, cwd);
    }
}

/// Returns true if a word is the option, alone or among other letters.
fn is_option(word: &Word, short: char, long: &str) -> bool {
    let text = word.text.as_str();
    match text.strip_prefix("--") {
        Some(_) => text == long || text.strip_prefix(long).is_some_and(|rest| rest.starts_with('=')),
        None => text.len() > 1 && text.starts_with('-') && text[1..].contains(short),
    }
}

/// Programs with an option for the file that they write, with their options that take a value.
const OUTPUTS: &[(&str, OptionTable)] = &[
    ("curl", OptionTable { short: "AbcCdDeEFhHKmoPQrtTuUwxXyYz", long: &["output", "output-dir", "url", "header"] }),
    ("wget", OptionTable { short: "aABDeiIloOPQRtTUwX", long: &["output-document", "directory-prefix"] }),
    ("sort", OptionTable { short: "kStTo", long: &["output"] }),
];

/// Programs that write a file which an option names, or the last part of an address.
fn outputs(found: &mut Findings<'_>, name: &str, args: &[Word], cwd: &Cwd) {
    let Some((_, table)) = OUTPUTS.iter().find(|(program, _)| *program == name) else { return };
    let options = Options::read(args, *table);
    let (short, long) = if name == "wget" { ("O", "output-document") } else { ("o", "output") };
    let mut files: Vec<Word> = options.values(short, long).cloned().collect();
    let takes_name = name == "curl" && (options.has('O', "remote-name") || options.has('\0', "remote-name-all"));
    if takes_name {
        let addresses = options.operands.iter().chain(options.values("url", "url"));
        files.extend(addresses.filter_map(file_of_address));
    }
    let dir = options.values("output-dir", "output-dir").last().filter(|_| name == "curl");
    for file in files.iter().filter(|file| file.text != "-") {
        let at = dir.map_or_else(|| cwd.clone(), |dir| cwd.moved(dir, found.home));
        found.lose([file], LossKind::Rewritten, &LossExtent::File, &at);
    }
}

/// Returns the last part of the path of an address. A pattern of `curl` is not resolved.
fn file_of_address(address: &Word) -> Option<Word> {
    let text = address.full.split(['?', '#']).next()?;
    let path = text.split_once("://").map_or(text, |(_, rest)| rest);
    let (_, name) = path.rsplit_once('/')?;
    (!name.is_empty()).then(|| match name.contains('$') {
        true => Word { text: String::new(), full: name.to_owned(), ..address.clone() },
        false => Word::exact(name),
    })
}

/// Records that an archive is unpacked in the directories of a word, over files that only the archive names.
pub(super) fn of_archive(found: &mut Findings<'_>, dir: &Word, cwd: &Cwd) {
    for Operand { path, .. } in found.operands(dir, None, cwd) {
        if !found.unpacks.contains(&path) {
            found.unpacks.push(path);
        }
    }
}

/// Records the file of a redirection that truncates it.
pub(super) fn of_redirect(found: &mut Findings<'_>, op: &str, word: &Word, cwd: &Cwd) {
    if !op.contains(">>") && !op.contains("<>") {
        found.lose([word], LossKind::Rewritten, &LossExtent::File, cwd);
    }
}
