//! Paths that a changing command writes to: operands of known programs, otherwise the directory that it runs in.

use super::findings::Findings;
use super::loss::{LossExtent, LossKind};
use super::losses::{self, Operands};
use super::options::{OptionTable, Options};
use super::place::Cwd;
use super::runs;
use super::word::Word;

/// Operands that a program changes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Which {
    All,
    /// All but the first, which is a mode or an owner.
    Rest,
    /// The last, or the directory given with `-t`.
    Last,
}

/// Programs, with their options that take an argument and the operands that they change.
const KNOWN: &[(&str, &str, Which)] = &[
    // Remove.
    ("rm", "", Which::All),
    ("rmdir", "", Which::All),
    ("unlink", "", Which::All),
    ("shred", "ns", Which::All),
    ("trash", "", Which::All),
    ("trash-put", "", Which::All),
    ("Remove-Item", "", Which::All),
    ("rimraf", "", Which::All),
    // Create.
    ("touch", "dtr", Which::All),
    ("mkdir", "m", Which::All),
    ("mkfifo", "m", Which::All),
    ("tee", "", Which::All),
    ("sponge", "", Which::All),
    ("truncate", "sor", Which::All),
    ("fallocate", "lo", Which::All),
    // Move and copy. The source of a move changes, too.
    ("mv", "tS", Which::All),
    ("cp", "tS", Which::Last),
    ("install", "gmotS", Which::Last),
    ("ln", "tS", Which::Last),
    ("rsync", "efBMT", Which::Last),
    ("scp", "FiloPSc", Which::Last),
    // Change in place.
    ("chmod", "", Which::Rest),
    ("chown", "", Which::Rest),
    ("chgrp", "", Which::Rest),
    ("gzip", "S", Which::All),
    ("gunzip", "S", Which::All),
    ("bzip2", "", Which::All),
    ("xz", "S", Which::All),
    ("dos2unix", "", Which::All),
];

/// Programs whose purpose is to remove or replace files.
const DESTROY: &[&str] =
    &["rm", "rimraf", "unlink", "shred", "trash", "trash-put", "gio", "Remove-Item", "truncate", "mv", "dd"];

/// Options that name the directory of a build. `true` if it replaces the current one.
const BUILD_DIRS: &[(&str, &[&str], bool)] = &[
    ("make", &["-C", "--directory"], true),
    ("gmake", &["-C", "--directory"], true),
    ("ninja", &["-C"], true),
    ("npm", &["--prefix", "-C"], false),
    ("pnpm", &["-C", "--dir"], false),
    ("yarn", &["--cwd"], false),
    ("cargo", &["--manifest-path", "--target-dir", "-C"], false),
    ("go", &["-C"], false),
    ("uv", &["--directory", "--project"], false),
    ("composer", &["-d", "--working-dir"], false),
    ("gradle", &["-p", "--project-dir"], false),
    ("mvn", &["-f", "--file"], false),
    ("cmake", &["--build", "-B", "-S", "--install"], false),
    ("pip", &["-t", "--target"], false),
    ("curl", &["-o", "--output", "--output-dir", "-D", "-c"], false),
    ("wget", &["-O", "-P", "--directory-prefix", "--output-document"], false),
];

/// Marks a command that is not known to be harmless.
pub(super) fn mark(found: &mut Findings<'_>, name: &str, args: &[Word], cwd: &Cwd) {
    // `npx` runs a program of a package.
    let (name, args) = match (name, args) {
        ("npx" | "pnpx" | "bunx", [package, rest @ ..]) if package.known() == Some("rimraf") => ("rimraf", rest),
        _ => (name, args),
    };
    let deletes = |word: &Word| word.text.starts_with("--del");
    found.destroys |= DESTROY.contains(&name) || name == "rsync" && args.iter().any(deletes);
    if let Some((_, takes, which)) = KNOWN.iter().find(|(program, ..)| *program == name) {
        return known(found, name, takes, *which, args, cwd);
    }
    match name {
        "dd" => dd(found, args, cwd),
        "tar" | "bsdtar" => {
            losses::of_tar(found, args, cwd);
            archive(found, args, "-C", &["--directory"], tar_replaces(args), cwd);
        }
        "unzip" => archive(found, args, "-d", &[], unzip_replaces(args), cwd),
        "patch" => archive(found, args, "-d", &["--directory"], false, cwd),
        "sed" | "gsed" => sed(found, args, cwd),
        _ => {
            runs::of(found, name, args, cwd);
            let is_in_place = |word: &Word| word.text.starts_with('-') && word.text.contains('i');
            containers(found, name, args);
            if matches!(name, "curl" | "wget" | "sort" | "sqlite3" | "gio" | "zip" | "ffmpeg")
                || name == "perl" && args.iter().any(is_in_place)
            {
                let (operands, _) = split(args, if name == "perl" { "eE" } else { "o" });
                losses::of(found, name, args, Operands { all: &operands, target: None }, cwd);
            }
            build(found, name, args, cwd);
        }
    }
}

fn known(found: &mut Findings<'_>, name: &str, takes: &str, which: Which, args: &[Word], cwd: &Cwd) {
    let (operands, target) = split(args, takes);
    let moves_away = args.iter().any(|word| word.text.starts_with("--remove-source"));
    let makes_dirs = name == "install" && args.iter().any(|word| matches!(word.known(), Some("-d" | "--directory")));
    let reference = args.iter().any(|word| word.text.starts_with("--reference"));
    let chosen: Vec<Word> = match which {
        Which::Last if !moves_away && !makes_dirs => match (&target, operands.as_slice()) {
            (Some(_), _) => Vec::new(),
            // `ln -s /x/y` creates `y` in the current directory.
            (None, [_]) if name == "ln" => Vec::new(),
            (None, all) => all.last().into_iter().filter(|word| !is_remote(word)).cloned().collect(),
        },
        Which::Rest if !reference => operands.into_iter().skip(1).collect(),
        _ => operands,
    };
    let (operands, _) = split(args, takes);
    losses::of(found, name, args, Operands { all: &operands, target: target.as_ref() }, cwd);
    if chosen.is_empty() && target.is_none() {
        return found.mark(cwd);
    }
    for word in chosen.iter() {
        found.mark_target(word, cwd);
    }
    if let Some(dir) = target {
        mark_dir(found, &dir, cwd);
    }
}

/// Returns true for `host:path`, with the colon before any slash.
fn is_remote(word: &Word) -> bool {
    word.text.split('/').next().is_some_and(|start| start.contains(':'))
}

/// Returns the operands, and the directory given with `-t`.
fn split(args: &[Word], takes: &str) -> (Vec<Word>, Option<Word>) {
    let mut operands = Vec::new();
    let mut target = None;
    let mut plain = false;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if plain || text.len() < 2 || !text.starts_with('-') {
            operands.push(word.clone());
        } else if text == "--" {
            plain = true;
        } else if let Some(value) = text.strip_prefix("--target-directory") {
            target = match value.strip_prefix('=') {
                Some(value) => Some(Word { text: value.into(), ..word.clone() }),
                None => words.next().cloned(),
            };
        } else if !text.starts_with("--")
            && let Some(at) = text.find(|letter| takes.contains(letter))
        {
            let rest = &text[at + 1..];
            let value = if rest.is_empty() { words.next().cloned() } else { Some(Word::exact(rest)) };
            if text[at..].starts_with('t') && takes.contains('S') {
                target = value;
            }
        }
    }
    (operands, target)
}

/// Marks a word that names a directory.
fn mark_dir(found: &mut Findings<'_>, word: &Word, cwd: &Cwd) {
    let mut dir = word.clone();
    if !dir.open && !dir.text.ends_with('/') {
        dir.text.push('/');
    }
    found.mark_target(&dir, cwd);
}

fn dd(found: &mut Findings<'_>, args: &[Word], cwd: &Cwd) {
    let mut has_output = false;
    for word in args {
        if let Some(file) = word.text.strip_prefix("of=") {
            has_output = true;
            let full = word.full.strip_prefix("of=").unwrap_or(file).to_owned();
            let file = Word { text: file.into(), full, tilde: false, ..word.clone() };
            found.mark_target(&file, cwd);
            found.lose([&file], LossKind::Rewritten, &LossExtent::File, cwd);
        }
    }
    if !has_output {
        found.mark(cwd);
    }
}

/// Marks programs that unpack or patch in a directory. Other operands may be files that they write.
fn archive(found: &mut Findings<'_>, args: &[Word], short: &str, long: &[&str], replaces: bool, cwd: &Cwd) {
    let mut inside = None;
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        let joined = long.iter().find_map(|name| text.strip_prefix(name)?.strip_prefix('='));
        if text == short || long.contains(&text) {
            inside = words.next().cloned();
        } else if let Some(value) = joined {
            inside = Some(Word { text: value.into(), ..word.clone() });
        } else if let Some(value) = text.strip_prefix(short).filter(|value| !value.is_empty()) {
            inside = Some(Word { text: value.into(), ..word.clone() });
        } else if text.contains('/') && !text.starts_with('-') {
            // The archive itself if it is written, or the file that is patched.
            found.mark_target(word, cwd);
        }
    }
    if replaces {
        losses::of_archive(found, inside.as_ref().unwrap_or(&Word::exact(".")), cwd);
    }
    match inside {
        Some(dir) => mark_dir(found, &dir, cwd),
        None => found.mark(cwd),
    }
}

/// Reports what a program of containers destroys: in a directory that it mounts, or in volumes, which are no files here.
fn containers(found: &mut Findings<'_>, name: &str, args: &[Word]) {
    if !matches!(name, "docker" | "podman" | "nerdctl" | "docker-compose") {
        return;
    }
    let words: Vec<&str> = args.iter().map(|word| word.text.as_str()).collect();
    let has = |wanted: &[&str]| words.iter().any(|word| wanted.contains(word));
    let runs = words.iter().position(|word| matches!(*word, "run" | "exec"));
    let inside = runs.map_or(&[][..], |at| &words[at + 1..]);
    let first_line = |word: &&str| word.split_whitespace().next().unwrap_or_default().to_owned();
    if let Some(program) = inside.iter().map(first_line).find(|first| DESTROY.contains(&first.as_str())) {
        found.add_unread(&format!("{name} ({program} in a container)"));
    }
    let drops = has(&["volume"]) && has(&["rm", "remove", "prune"]) || has(&["prune"]) && has(&["--volumes"]);
    let takes_down = runs.is_none() && has(&["down", "rm"]) && has(&["-v", "--volumes"]);
    if drops || takes_down {
        found.add_unread(&format!("volumes of {name}"));
    }
}

/// Returns true if `tar` with these arguments unpacks over existing files.
fn tar_replaces(args: &[Word]) -> bool {
    let table = OptionTable { short: "fCbgTX", long: &["file", "directory", "exclude"] };
    let options = Options::read(args, table);
    // The first word may be letters without a dash.
    let bundled = args.first().map(|word| word.text.as_str()).filter(|text| !text.starts_with('-')).unwrap_or("");
    let extracts = bundled.contains('x') || options.has('x', "extract") || options.has('\0', "get");
    let spares = bundled.contains(['k', 'O']) || options.has('k', "keep-old-files") || options.has('O', "to-stdout");
    extracts && !spares && !options.has('\0', "skip-old-files")
}

/// Returns true if `unzip` with these arguments replaces existing files without asking.
fn unzip_replaces(args: &[Word]) -> bool {
    let options = Options::read(args, OptionTable { short: "dPx", long: &[] });
    options.has('o', "\0") && !"lptvzZn".chars().any(|letter| options.has(letter, "\0"))
}

/// Marks the files of `sed -i`. For other scripts that write, marks the directory that it runs in.
fn sed(found: &mut Findings<'_>, args: &[Word], cwd: &Cwd) {
    let in_place = args.iter().any(|word| {
        let text = word.text.as_str();
        text.starts_with("--in-place") || (text.starts_with('-') && !text.starts_with("--") && text.contains('i'))
    });
    let has_script = args.iter().any(|word| {
        let text = word.text.as_str();
        matches!(text, "-e" | "-f" | "--expression" | "--file") || text.starts_with("--expression=")
    });
    let (operands, _) = split(args, "ef");
    let files: Vec<Word> = operands.into_iter().skip(usize::from(!has_script)).collect();
    if !in_place || files.is_empty() {
        found.mark(cwd);
    }
    if in_place {
        found.lose(&files, LossKind::Unlinked, &LossExtent::File, cwd);
    }
    files.iter().for_each(|file| found.mark_target(file, cwd));
}

fn build(found: &mut Findings<'_>, name: &str, args: &[Word], cwd: &Cwd) {
    let Some((_, options, replaces)) = BUILD_DIRS.iter().find(|(program, ..)| *program == name) else {
        return found.mark(cwd);
    };
    let mut dirs = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        let joined = options.iter().find_map(|option| {
            let value = text.strip_prefix(option)?;
            let value = if option.starts_with("--") { value.strip_prefix('=')? } else { value };
            (!value.is_empty()).then_some(value)
        });
        if options.contains(&text) {
            dirs.extend(words.next().cloned());
        } else if let Some(value) = joined {
            dirs.push(Word { text: value.into(), ..word.clone() });
        }
    }
    let files = matches!(name, "curl" | "wget" | "cargo" | "mvn");
    for dir in &dirs {
        if files { found.mark_target(dir, cwd) } else { mark_dir(found, dir, cwd) }
    }
    if dirs.is_empty() || !replaces {
        found.mark(cwd);
    }
}
