//! Paths whose contents a command destroys, and how.
//!
//! A name that is unlinked, or that a rename gives to another file, leaves the old file whole to other names of it: a hard
//! link protects it. A file that is written in place does not. [`LossKind`] tells the two apart.
//!
//! Operands are text: a pattern is resolved by the caller, who may look at the file system. A variable is replaced by
//! every value that the command itself gives it; any other makes the operand unknown.

use std::path::{Path, PathBuf};

use super::findings::Findings;
use super::loss::{Found, Loss, LossExtent, LossKind, Placeholder};
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
        let is_deep = matches!(extent, LossExtent::Tree | LossExtent::Below { is_deep: true, .. });
        for word in words {
            for Operand { path, is_pattern } in self.operands(word, Some(Placeholder { kind, is_deep }), cwd) {
                let moved = self.moved_to(&path, extent);
                self.add_loss(Loss { path, is_pattern, kind, extent: extent.clone() });
                for path in moved {
                    self.add_loss(Loss { path, is_pattern: false, kind, extent: LossExtent::Tree });
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
    /// `find` and `xargs`, unless `placeholder` is `None`.
    fn operands(&mut self, word: &Word, placeholder: Option<Placeholder>, cwd: &Cwd) -> Vec<Operand> {
        if word.open && (word.full.is_empty() || word.full.contains("{}") || word.full == word.text) {
            self.placeholder = placeholder.or(self.placeholder);
            return Vec::new();
        }
        let texts = if word.open { self.values_of(&word.full) } else { Some(vec![word.text.clone()]) };
        let is_lost = cwd.lost && !word.text.starts_with(['/', '~']);
        let Some(texts) = texts.filter(|_| !is_lost) else {
            if placeholder.is_some() {
                self.add_unread(if word.full.is_empty() { &word.text } else { &word.full });
            }
            return Vec::new();
        };
        let mut operands = Vec::new();
        let texts = texts.iter().flat_map(|text| split_values(text, word.open));
        let texts: Vec<String> = texts.flat_map(|text| braces(&text, word.open)).collect();
        if texts.len() >= WORDS_MAX {
            self.add_unread("more operands than are followed");
        }
        for text in texts {
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
        let text = text.map(|texts| texts.iter().flat_map(|text| members(text)).collect::<Vec<_>>());
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
    pub(super) fn values_of(&self, text: &str) -> Option<Vec<String>> {
        let Some(at) = text.find(['$', '`']) else { return Some(vec![text.to_owned()]) };
        let (before, rest) = text.split_at(at);
        let rest = rest.strip_prefix('$')?;
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let (name, rest) = match rest.strip_prefix('{') {
            Some(braced) => braced.split_once('}')?,
            None => rest.split_at(rest.find(|c: char| !is_name(c)).unwrap_or(rest.len())),
        };
        let name = name.strip_suffix("[@]").or_else(|| name.strip_suffix("[*]")).unwrap_or(name);
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

    /// Returns true if an open word may be an option: if one of its values is, or if they are not known.
    fn may_be_option(&self, word: &Word) -> bool {
        self.values_of(&word.full).is_none_or(|values| values.iter().any(|value| value.starts_with('-')))
    }

    /// Records what `find` passes to a command that destroys it.
    pub(super) fn lose_found(&mut self, found: &Found, lost: Placeholder) {
        let extent = LossExtent::Below { names: found.names.clone(), is_deep: lost.is_deep };
        self.lose(&found.starts, lost.kind, &extent, &found.cwd);
    }

    /// Reports a placeholder that no `find` explains.
    pub(super) fn finish_losses(&mut self) {
        if self.placeholder.take().is_some() {
            self.add_unread("names from the output of another command");
        }
    }
}

/// Returns the members of an array, `(a b)`, or the value itself.
fn members(value: &str) -> Vec<String> {
    match value.strip_prefix('(').and_then(|inside| inside.strip_suffix(')')) {
        Some(inside) => inside.split_whitespace().take(WORDS_MAX).map(str::to_owned).collect(),
        None => vec![value.to_owned()],
    }
}

/// Returns a text with the values of variables, and the words that it becomes if the variables were not quoted. Nothing
/// is lost by a word that names no file.
fn split_values(text: &str, is_open: bool) -> Vec<String> {
    let words = text.split_whitespace().take(WORDS_MAX).map(str::to_owned);
    let is_split = is_open && text.contains(char::is_whitespace);
    let split: Vec<String> = if is_split { words.collect() } else { Vec::new() };
    std::iter::once(text.to_owned()).chain(split).collect()
}

/// Returns the words that a word with braces becomes: `{a,b}.o` is `a.o` and `b.o`, `x{1..3}` is `x1`, `x2` and `x3`. At
/// most `WORDS_MAX`. Without `is_open` the braces are text.
fn braces(text: &str, is_open: bool) -> Vec<String> {
    let Some((before, parts, after)) = first_braces(text).filter(|_| is_open) else { return vec![text.to_owned()] };
    let mut all = Vec::new();
    for part in parts {
        all.extend(braces(&format!("{before}{part}{after}"), true));
        if all.len() >= WORDS_MAX {
            all.truncate(WORDS_MAX);
            break;
        }
    }
    all
}

/// Returns the first expression in braces: the text before it, what it stands for, and the text after it.
fn first_braces(text: &str) -> Option<(&str, Vec<String>, &str)> {
    for (open, _) in text.match_indices('{').take(WORDS_MAX) {
        let (mut depth, mut commas, mut close) = (0_usize, Vec::new(), None);
        for (at, c) in text[open..].char_indices() {
            match c {
                '{' => depth += 1,
                '}' => depth -= 1,
                ',' if depth == 1 => commas.push(open + at),
                _ => {}
            }
            if depth == 0 {
                close = Some(open + at);
                break;
            }
        }
        let Some(close) = close else { continue };
        let parts = if commas.is_empty() {
            let Some(parts) = range(&text[open + 1..close]) else { continue };
            parts
        } else {
            let starts = std::iter::once(open).chain(commas.iter().copied());
            let ends = commas.iter().copied().chain([close]);
            starts.zip(ends).map(|(start, end)| text[start + 1..end].to_owned()).collect()
        };
        return Some((&text[..open], parts, &text[close + 1..]));
    }
    None
}

/// Returns what `FIRST..LAST` stands for: numbers, with the zeros in front, or letters.
fn range(inner: &str) -> Option<Vec<String>> {
    let (first, last) = inner.split_once("..")?;
    if let (Ok(from), Ok(to)) = (first.parse::<i64>(), last.parse::<i64>()) {
        let has_zeros = |text: &str| text.trim_start_matches('-').starts_with('0') && text.len() > 1;
        let width = if has_zeros(first) || has_zeros(last) { first.len().max(last.len()) } else { 0 };
        let numbers = (from.min(to)..=from.max(to)).take(WORDS_MAX);
        return Some(numbers.map(|number| format!("{number:0width$}")).collect());
    }
    let (from, to) = (first.parse::<char>().ok()?, last.parse::<char>().ok()?);
    let is_letter = |c: char| c.is_ascii_alphabetic();
    (is_letter(from) && is_letter(to)).then(|| (from.min(to)..=from.max(to)).map(String::from).collect())
}

/// Records what a program destroys.
pub(super) fn of(found: &mut Findings<'_>, name: &str, args: &[Word], operands: Operands<'_>, cwd: &Cwd) {
    let all = operands.all;
    let has = |short: char, long: &str| args.iter().any(|word| is_option(word, short, long));
    match name {
        "rm" | "rimraf" | "srm" => {
            let may_be_deep = |word: &Word| word.maybe_option() && word.open && found.may_be_option(word);
            let is_deep =
                name == "rimraf" || has('r', "--recursive") || has('R', "--recursive") || args.iter().any(may_be_deep);
            let extent = if is_deep { LossExtent::Tree } else { LossExtent::File };
            found.lose(all, LossKind::Unlinked, &extent, cwd);
        }
        "unlink" => found.lose(all, LossKind::Unlinked, &LossExtent::File, cwd),
        "trash" | "trash-put" | "Remove-Item" => found.lose(all, LossKind::Unlinked, &LossExtent::Tree, cwd),
        "gio" if all.first().and_then(Word::known) == Some("trash") => {
            found.lose(&all[1..], LossKind::Unlinked, &LossExtent::Tree, cwd);
        }
        "zip" if has('m', "--move") => found.lose(all.iter().skip(1), LossKind::Unlinked, &LossExtent::Tree, cwd),
        "fallocate" if has('p', "--punch-hole") || has('c', "--collapse-range") || has('z', "--zero-range") => {
            found.lose(all, LossKind::Rewritten, &LossExtent::File, cwd);
        }
        "ffmpeg" if args.iter().any(|word| word.text == "-y") => {
            found.lose(all.last(), LossKind::Rewritten, &LossExtent::File, cwd);
        }
        "tee" if has('a', "--append") => {}
        "shred" | "truncate" | "tee" | "sponge" => found.lose(all, LossKind::Rewritten, &LossExtent::File, cwd),
        "mv" | "cp" | "install" | "ln" | "rsync" | "scp" => copies(found, name, args, operands, cwd),
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
    // What is in a source that ends with a slash goes into the target itself.
    let takes_slash = name == "rsync";
    let is_target = name != "rsync" && name != "scp" && has('T', "--no-target-directory");
    let kind = match name {
        "scp" => LossKind::Rewritten,
        "cp" if has('\0', "--remove-destination") => LossKind::Unlinked,
        "cp" => LossKind::Rewritten,
        "rsync" if has('\0', "--inplace") => LossKind::Rewritten,
        "ln" if !has('f', "--force") => return,
        _ => LossKind::Unlinked,
    };
    if name == "rsync" && deletes {
        return found.lose([to], kind, &LossExtent::Below { names: None, is_deep: false }, cwd);
    }
    let mut sources = Vec::new();
    for word in from {
        let last = word.text.rsplit('/').next().unwrap_or_default();
        let means_contents = matches!(last, "." | "..") && name != "mv" || last.is_empty() && takes_slash;
        let local = Word { text: after_host(&word.text), full: after_host(&word.full), ..word.clone() };
        for Operand { path, .. } in found.operands(&local, None, cwd) {
            match means_contents || is_target && name == "cp" {
                true => sources.extend([path.join("*"), path.join(".*")]),
                false => sources.push(path),
            }
        }
    }
    let merges = matches!(name, "cp" | "install" | "rsync" | "scp");
    found.lose([to], kind, &LossExtent::Onto { sources: sources.clone(), merges }, cwd);
    if name == "mv" {
        found.note_move(&sources, to, cwd);
    }
}

/// Returns the path of `host:path`, or the text itself.
fn after_host(text: &str) -> String {
    let start = text.split('/').next().unwrap_or_default();
    start.find(':').map_or(text, |colon| &text[colon + 1..]).to_owned()
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

/// Records what `tar` destroys besides the files that it unpacks over: the archive that it writes, and with
/// `--remove-files` what it packs.
pub(super) fn of_tar(found: &mut Findings<'_>, args: &[Word], cwd: &Cwd) {
    let table = OptionTable { short: "fCbgTX", long: &["file", "directory", "exclude", "files-from", "exclude-from"] };
    let options = Options::read(args, table);
    // The first word may be letters without a dash; the value of `f` is the next operand then.
    let bundled = args.first().map(|word| word.text.as_str()).filter(|text| !text.starts_with('-')).unwrap_or("");
    let mut packed = options.operands.iter().skip(usize::from(!bundled.is_empty()));
    let archive = if bundled.contains('f') { packed.next() } else { options.values("f", "file").next() };
    if bundled.contains('c') || options.has('c', "create") {
        let file = archive.filter(|word| word.text != "-");
        found.lose(file, LossKind::Rewritten, &LossExtent::File, cwd);
    }
    if options.has('\0', "remove-files") {
        let here =
            options.values("C", "directory").last().map_or_else(|| cwd.clone(), |dir| cwd.moved(dir, found.home));
        found.lose(packed, LossKind::Unlinked, &LossExtent::Tree, &here);
    }
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
