//! The house rules, as tests over the text of the library.

use std::fs;
use std::path::Path;

/// One source file: its path below `src`, and its text without its unit tests.
struct Source {
    path: String,
    text: String,
    lines: usize,
}

impl Source {
    fn is_in(&self, module: &str) -> bool {
        self.path == format!("{module}.rs") || self.path.starts_with(&format!("{module}/"))
    }

    /// Returns the lines of code, without comments, with their numbers.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().enumerate().map(|(at, line)| (at + 1, line));
        lines.filter(|(_, line)| !line.trim_start().starts_with("//"))
    }
}

/// Returns true for a file that contains only tests.
fn is_of_tests(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "tests.rs" || name.to_string_lossy().ends_with("_tests.rs"))
}

/// Crates that the library consists of besides its own.
const PARTS: [&str; 2] = ["piton-ignore", "piton-triggers"];
/// All crates of the product.
const CRATES: [&str; 5] = ["piton", "piton-ignore", "piton-triggers", "piton-remote", "piton-cli"];

/// Returns the sources of all crates of the library. Those of its parts have the name of their crate in front.
fn library() -> Vec<Source> {
    sources().into_iter().chain(PARTS.into_iter().flat_map(sources_of)).collect()
}

/// Returns the sources of a crate, with its name in front.
fn sources_of(package: &str) -> Vec<Source> {
    let mut sources = sources_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(package).join("src"));
    sources.iter_mut().for_each(|source| source.path = format!("{package}/{}", source.path));
    sources
}

fn sources() -> Vec<Source> {
    let all = sources_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"));
    assert!(all.len() > 20, "the sources are not where they were");
    all
}

fn sources_in(root: &Path) -> Vec<Source> {
    let mut all = Vec::new();
    testkit::walk(root, &mut |path| {
        if path.extension().is_some_and(|end| end == "rs") {
            let whole = fs::read_to_string(path).expect("text");
            let end = if is_of_tests(path) { "\n\n" } else { "#[cfg(test)]\nmod tests" };
            let text = whole.split(end).next().unwrap_or_default().to_owned();
            let path = path.strip_prefix(root).expect("below it").to_str().expect("UTF-8").to_owned();
            all.push(Source { path, text, lines: whole.lines().count() });
        }
    });
    assert!(!all.is_empty(), "the sources are not where they were");
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

/// Returns true if `word` occurs in `line` on its own, not as a part of a longer name.
fn names(line: &str, word: &str) -> bool {
    let is_part = |character: char| character.is_alphanumeric() || character == '_';
    line.match_indices(word).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + word.len()..]);
        !(word.starts_with(is_part) && before.ends_with(is_part)
            || word.ends_with(is_part) && after.starts_with(is_part))
    })
}

/// Asserts that only the files in `homes` use one of the words in their code.
fn assert_only_in(homes: &[&str], words: &[&str]) {
    let mut found = Vec::new();
    for source in library().iter().filter(|source| !homes.iter().any(|home| source.is_in(home))) {
        for (number, line) in source.code() {
            found.extend(
                words
                    .iter()
                    .filter(|word| names(line, word))
                    .map(|word| format!("{}:{number} names {word}: {}", source.path, line.trim())),
            );
        }
    }
    assert!(found.is_empty(), "only {homes:?} may:\n{}", found.join("\n"));
}

#[test]
fn the_two_sides_do_not_see_each_other() {
    for (side, other) in [("worktree", "store"), ("store", "worktree")] {
        for source in sources().iter().filter(|source| source.is_in(side)) {
            for (number, line) in source.code() {
                let in_a_list = line.trim_start().starts_with("use crate::{") && names(line, other);
                let sees = in_a_list || names(line, &format!("crate::{other}"));
                assert!(!sees, "{}:{number}: {line}", source.path);
            }
        }
    }
}

#[test]
fn what_is_below_does_not_see_what_is_above() {
    const ROWS: [&[&str]; 4] = [
        &[
            "error",
            "fsx",
            "hint",
            "id",
            "json",
            "local_report",
            "progress",
            "relpath",
            "settings",
            "skipped",
            "sys",
            "threads",
            "time",
        ],
        &["store", "worktree"],
        &[
            "blame",
            "diff",
            "exchange",
            "export",
            "git_state",
            "history",
            "keep",
            "kept",
            "late",
            "limit",
            "local_files",
            "lookup",
            "mark",
            "merge",
            "project",
            "prune",
            "purge",
            "recover",
            "repair",
            "restore",
            "revert",
            "session",
            "status",
            "survey",
            "take",
            "timeline",
            "turns",
        ],
        &["ensured", "journal", "manager", "notice", "unprotected"],
    ];
    for source in sources() {
        let row = ROWS.iter().position(|row| row.iter().any(|module| source.is_in(module)));
        let is_apart = ["lib.rs", "fuzz.rs"].contains(&source.path.as_str());
        assert!(row.is_some() || is_apart, "{} is in no row of docs/ARCHITECTURE.md", source.path);
        for (number, line) in source.code() {
            let mut above = ROWS.iter().skip(row.unwrap_or(ROWS.len()) + 1).copied().flatten();
            let above = above.find(|module| names(line, &format!("crate::{module}")));
            assert_eq!(above, None, "{}:{number}: {line}", source.path);
        }
    }
}

const PACKAGES: [&str; 5] = ["piton", "piton-ignore", "piton-triggers", "piton-remote", "piton-cli"];

fn parsed_crates() -> Vec<testkit::source::Source> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    testkit::source::read_crates(&root, &PACKAGES).expect("sources")
}

#[test]
fn modules_form_no_cycles() {
    let sources = parsed_crates();
    for package in PACKAGES {
        let cycles = testkit::modules::cycles(&sources, package);
        assert!(cycles.is_empty(), "{package}: {cycles:?}");
    }
}

#[test]
fn a_type_name_occurs_once_in_a_crate() {
    let repeated = testkit::source::repeated_names(&parsed_crates());
    assert!(repeated.is_empty(), "{}", repeated.join("\n"));
}

/// Methods of the store belong to the part that owns what they touch.
#[test]
fn the_store_has_methods_in_its_own_file_only() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let sources = testkit::source::read_crates(&root, &["piton"]).expect("sources");
    let counts = testkit::source::methods(&sources, "Store");
    let [("store/mod", count)] = counts.as_slice() else { panic!("in {counts:?}") };
    assert!((1..=15).contains(count), "{count} methods");
}

#[test]
fn the_git_library_is_named_by_the_store_only() {
    assert_only_in(&["store"], &["gix", "gix_odb", "gix_object", "gix_hash", "gix_pack", "gix_ref", "gix_index"]);
}

/// Collections, verify and repair agree about an entry because they parse it with the same code.
#[test]
fn an_idx_and_the_head_of_an_entry_are_each_parsed_in_one_file() {
    assert_only_in(&["store/pack_index"], &["index::File"]);
    assert_only_in(&["store/pack_entry"], &["data::Entry"]);
}

#[test]
fn the_diff_library_is_named_in_one_place() {
    let users: Vec<_> = sources().into_iter().filter(|source| source.text.contains("gix_imara_diff::")).collect();
    assert!(users.len() <= 1, "{:?}", users.iter().map(|source| &source.path).collect::<Vec<_>>());
}

/// Modules outside `worktree` that may touch files, and whose files they are.
const MAY_TOUCH_FILES: [(&str, &str); 7] = [
    ("sys", "called by the others"),
    ("fsx", "called by the others"),
    ("worktree", "the user's"),
    ("store", "its own"),
    ("session", "records in the base"),
    ("journal", "logs in the base"),
    ("export", "a new directory or archive, where the user wants it"),
];

#[test]
fn files_of_the_user_are_touched_by_worktree_only() {
    let homes = MAY_TOUCH_FILES.map(|(home, _)| home);
    let by_path = [
        "fs::read",
        "fs::read_dir",
        "fs::metadata",
        "fs::symlink_metadata",
        "fs::write",
        "fs::rename",
        "fs::remove_file",
        "fs::create_dir",
        "fs::create_dir_all",
        "File::open",
        "File::create",
        "OpenOptions",
        "path.is_file()",
        "dir.is_file()",
        ".is_dir()",
        ".exists()",
        ".try_exists()",
        ".metadata()",
        ".symlink_metadata()",
        ".read_dir()",
        ".read_link()",
        "sys::stat_path",
    ];
    assert_only_in(&homes, &by_path);
    let in_a_dir = [
        ".open_file(",
        ".open_dir(parent",
        ".stat_at(",
        ".read_link(&CString",
        ".rename_new(",
        ".rename_to_unused(",
        ".set_mode_of(",
        ".create_link(",
        ".swap(&",
    ];
    assert_only_in(&homes, &in_a_dir);
}

#[test]
fn the_platform_is_named_in_sys_only() {
    assert_only_in(&["sys"], &["rustix", "libc", "std::os", "target_os", "cfg(unix)", "cfg(windows)"]);
    // They fail on some file systems of macOS: see `sys::sync_file`.
    assert_only_in(&["sys"], &[".sync_all()", ".sync_data()"]);
}

#[test]
fn the_platform_is_named_in_one_file_of_the_command() {
    let command = sources_in(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-cli/src"));
    let words = ["rustix", "libc", "std::os", "/proc", "target_os", "cfg(unix)", "cfg(windows)"];
    let mut found = Vec::new();
    for source in command.iter().filter(|source| !source.is_in("platform")) {
        let lines = source.code().filter(|(_, line)| words.iter().any(|word| names(line, word)));
        found.extend(lines.map(|(number, line)| format!("{}:{number}: {}", source.path, line.trim())));
    }
    assert_eq!(found, [""; 0], "only platform.rs may");
}

#[test]
fn the_library_has_no_environment_clock_process_or_terminal() {
    let words = [
        "std::env",
        "env::var",
        "env::var_os",
        "SystemTime::now",
        "Instant::now",
        "current_dir()",
        "home_dir",
        "std::process",
        "Command::new",
        "println!",
        "eprintln!",
        "print!",
        "eprint!",
        "dbg!",
        "stdin()",
        "stdout()",
        "stderr()",
        "std::net",
        "Timestamp::now",
        "Zoned::now",
        "static mut",
    ];
    assert_only_in(&[], &words);
    // Files are compared with the clock that their times come from.
    assert_only_in(&["sys"], &["clock_gettime"]);
}

#[test]
fn the_library_names_no_command_option_or_variable() {
    // `HERMES_WORKDIR` is a file of the older layout. The lists of git and patches have options in their first line.
    const DATA: [&str; 3] = ["LEGACY_WORKDIR: &str = ", "b\"# git ls-files --others ", "b\"diff --git \""];
    let subcommands = subcommands();
    let is_option = |(at, _): (usize, &str), line: &str| line[at + 3..].starts_with(|c: char| c.is_ascii_lowercase());
    let mut found = Vec::new();
    for source in sources() {
        for (number, line) in source.code().filter(|(_, line)| !DATA.iter().any(|data| line.contains(data))) {
            let after_piton = line.match_indices("piton ").map(|(at, _)| &line[at + 6..]);
            let is_command = after_piton.into_iter().any(|rest| {
                let word = rest.split(|c: char| !c.is_ascii_lowercase()).next().unwrap_or_default();
                subcommands.iter().any(|name| name == word)
            });
            let has_option =
                [" --", "`--"].iter().any(|start| line.match_indices(start).any(|hit| is_option(hit, line)));
            let variables = ["\"PITON_", " PITON_", "`PITON_", "\"HERMES_", " HERMES_", "`HERMES_"];
            let is_text = !line.trim_start().starts_with("const ");
            let other = line.contains("`git ") || is_text && variables.iter().any(|start| line.contains(start));
            if is_command || has_option || other {
                found.push(format!("{}:{number}: {}", source.path, line.trim()));
            }
        }
    }
    assert_eq!(found, [""; 0], "give a `Hint`, which the command puts into words");
}

/// Returns the names of the subcommands of the command.
fn subcommands() -> Vec<String> {
    let commands = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-cli/src/cmd");
    let mut names = Vec::new();
    testkit::walk(&commands, &mut |path| {
        names.extend(path.file_stem().map(|name| name.to_string_lossy().into_owned()));
    });
    assert!(names.iter().any(|name| name == "rollback"), "the commands are not where they were");
    names
}

/// The command has a wording for every hint, although the enum may grow.
#[test]
fn every_hint_is_worded_by_the_command() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| fs::read_to_string(root.join(path)).expect("text");
    let (hints, words) = (read("src/hint.rs"), read("../piton-cli/src/hints.rs"));
    let variants = hints.split_once("pub enum Hint {").expect("the enum").1.split_once("\n}").expect("its end").0;
    let is_name = |line: &&str| line.starts_with("    ") && line[4..].starts_with(|c: char| c.is_ascii_uppercase());
    let variants: Vec<_> = variants.lines().filter(is_name).map(|line| line.trim().trim_end_matches(',')).collect();
    assert!(variants.len() > 20, "the hints are not where they were");
    let mut variants = variants.iter().filter_map(|line| line.split(['(', ' ']).next());
    assert_eq!(variants.find(|variant| !names(&words, &format!("Hint::{variant}"))), None, "has no wording");
}

#[test]
fn nothing_from_outside_ends_the_process() {
    // Unfinished code is found by clippy (`todo`, `unimplemented`).
    assert_only_in(&[], &["unwrap()", "panic!", "unreachable!"]);
}

#[test]
fn every_file_begins_with_what_it_is_for() {
    for source in library().into_iter().chain(sources_of("piton-remote")) {
        assert!(source.text.starts_with("//! "), "{}", source.path);
        assert!(source.lines <= 600, "{} has {} lines", source.path, source.lines);
    }
}

#[test]
fn every_function_fits_on_a_screen_or_two() {
    let mut longest = 0;
    for source in library().into_iter().chain(sources_of("piton-remote")) {
        let lines: Vec<&str> = source.text.lines().collect();
        for (start, line) in lines.iter().enumerate() {
            let trimmed = line.trim_start();
            let indent = &line[..line.len() - trimmed.len()];
            let is_function = names(trimmed, "fn") && !trimmed.starts_with("//") && trimmed.contains('(');
            if !is_function || trimmed.ends_with([';', '}']) {
                continue;
            }
            let end = lines[start..].iter().position(|line| *line == format!("{indent}}}")).unwrap_or(0);
            longest = longest.max(end + 1);
            assert!(end < 70, "{}:{} has {} lines: {trimmed}", source.path, start + 1, end + 1);
        }
    }
    assert!(longest > 30, "functions are not found any more");
}

#[test]
fn comments_open_with_what_is_returned_and_use_standard_terms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut comments, mut questions, mut dialect) = (0, Vec::new(), Vec::new());
    for package in CRATES {
        testkit::walk(&root.join(package).join("src"), &mut |path| {
            if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(path).expect("text");
                let openings = testkit::prose::doc_comments(&text);
                comments += openings.len();
                let asked = openings.iter().filter(|opening| opening.is_interrogative());
                questions.extend(asked.map(|opening| format!("{}:{}: {}", path.display(), opening.line, opening.text)));
                let lines = text.lines().enumerate().filter(|(_, line)| line.trim_start().starts_with("//"));
                dialect.extend(
                    lines
                        .filter(|(_, line)| testkit::prose::dialect(line).next().is_some())
                        .map(|(at, line)| format!("{}:{}: {}", path.display(), at + 1, line.trim())),
                );
            }
        });
    }
    assert!(comments > 1000, "the sources are not where they were");
    assert!(questions.len() * 20 <= comments, "more than one doc comment in twenty asks:\n{}", questions.join("\n"));
    assert_eq!(dialect, [""; 0], "use the standard term");
}

#[test]
fn names_of_tests_use_standard_terms() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut found = Vec::new();
    for package in CRATES {
        testkit::walk(&root.join(package), &mut |path| {
            if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(path).expect("text");
                let names = text.lines().filter_map(|line| line.trim_start().strip_prefix("fn ")?.split('(').next());
                let odd = names.filter(|name| testkit::prose::dialect(&name.replace('_', " ")).next().is_some());
                found.extend(odd.map(|name| format!("{}: {name}", path.display())));
            }
        });
    }
    assert_eq!(found, [""; 0], "use the standard term");
}

/// Files of the command that may name an agent although they are not in `agents/`, and the reason.
const MAY_NAME_AGENTS: [(&str, &str); 7] = [
    ("cli.rs", "an example in the help"),
    ("options.rs", "the default directory, which piton shares with Hermes"),
    ("cmd/install.rs", "examples in the help"),
    ("cmd/reference.rs", "the configuration file, which piton shares with Hermes"),
    ("context/mod.rs", "the store and the configuration, which piton shares with Hermes"),
    ("context/settings.rs", "the timeout, which piton shares with Hermes"),
    ("fuzz.rs", "the first byte of an input selects an agent"),
];

/// Everything about an agent is in its own file, so that adding one is a new file and its row in the table.
#[test]
fn an_agent_is_named_in_its_own_directory_only() {
    const VOCABULARY: [&str; 7] = ["mod", "event", "guide", "plain", "setup", "shared", "spec"];
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../piton-cli/src");
    let mut agents = Vec::new();
    testkit::walk(&root.join("agents"), &mut |path| {
        let name = path.file_stem().and_then(|name| name.to_str()).unwrap_or_default();
        let is_agent = path.parent() == Some(&root.join("agents")) && !VOCABULARY.contains(&name);
        if path.extension().is_some_and(|end| end == "rs") && is_agent {
            agents.push(name.to_owned());
        }
    });
    assert!(agents.len() >= 9, "the agents are not where they were: {agents:?}");
    // This one is also a word for the place where text is typed.
    let names_agent = |line: &str| {
        agents.iter().any(|agent| match agent.as_str() {
            "cursor" => line.contains("Cursor") || line.contains("\"cursor") || line.contains("cursor_version"),
            agent => line.to_lowercase().contains(agent),
        })
    };
    let mut found = Vec::new();
    testkit::walk(&root, &mut |path| {
        let name = path.strip_prefix(&root).expect("below it").to_str().expect("UTF-8");
        let may = name.starts_with("agents/") || MAY_NAME_AGENTS.iter().any(|(file, _)| *file == name);
        if may || is_of_tests(path) || path.extension().is_none_or(|end| end != "rs") {
            return;
        }
        let text = fs::read_to_string(path).expect("text");
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
        let lines = code.lines().enumerate().filter(|(_, line)| names_agent(line));
        found.extend(lines.map(|(at, line)| format!("{name}:{}: {}", at + 1, line.trim())));
    });
    assert!(found.is_empty(), "only agents/ may name an agent:\n{}", found.join("\n"));
}

/// A document that names a missing test proves nothing.
#[test]
fn every_point_of_the_security_document_has_a_test_that_exists() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let text = fs::read_to_string(root.join("docs/SECURITY.md")).expect("the document");
    let exists = |suite: &str, test: &str| {
        CRATES.iter().any(|package| {
            ["tests/it", "src"].iter().any(|dir| {
                let code = fs::read_to_string(root.join(format!("crates/{package}/{dir}/{suite}.rs")));
                let lines: Vec<String> = code.unwrap_or_default().lines().map(|line| line.trim().to_owned()).collect();
                lines.windows(2).any(|two| two[0] == "#[test]" && two[1] == format!("fn {test}() {{"))
            })
        })
    };
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ") && !line.starts_with("| point")).collect();
    assert!(rows.len() > 20, "the table is not where it was");
    for row in rows {
        let named: Vec<_> = row.split('`').filter_map(|word| word.split_once("::")).collect();
        assert!(!named.is_empty(), "no test is named: {row}");
        for (suite, test) in named {
            assert!(exists(suite, test), "there is no test {suite}::{test}");
        }
    }
}

/// Returns the names of the invariants that the header of a file numbers.
fn invariants(text: &str) -> impl Iterator<Item = &str> {
    let numbered = text.lines().filter_map(|line| line.strip_prefix("//! - ")?.split_once(". "));
    numbered.map(|(name, _)| name).filter(|name| {
        let (letter, number) = name.split_at_checked(1).unwrap_or_default();
        letter.bytes().all(|byte| byte.is_ascii_uppercase())
            && !number.is_empty()
            && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

/// Returns the part of a file that contains tests.
fn tests_in(path: &Path, text: &str) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_all = path.components().any(|part| part.as_os_str() == "tests") || name == "fuzz.rs" || is_of_tests(path);
    if is_all { text.to_owned() } else { text.split_once("#[cfg(test)]\nmod tests").unwrap_or_default().1.to_owned() }
}

#[test]
fn every_invariant_has_one_name_and_a_test_that_names_it() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let (mut kept, mut tests) = (Vec::new(), String::new());
    for package in CRATES {
        testkit::walk(&crates.join(package), &mut |path| {
            if path.extension().is_some_and(|end| end == "rs") {
                let text = fs::read_to_string(path).expect("text");
                kept.extend(invariants(&text).map(|name| (name.to_owned(), path.to_owned())));
                tests += &tests_in(path, &text);
            }
        });
    }
    kept.sort();
    assert!(kept.len() > 50, "the invariants are not where they were");
    for two in kept.windows(2) {
        assert_ne!(two[0].0, two[1].0, "in {} and {}", two[0].1.display(), two[1].1.display());
    }
    let unnamed: Vec<_> = kept.iter().filter(|(name, _)| !names(&tests, name)).collect();
    assert!(unnamed.is_empty(), "no test names {unnamed:?}");
}

#[test]
fn a_word_is_found_by_itself_only() {
    assert!(names("use gix::x;", "gix") && names("gix", "gix") && names("(x.unwrap())", "unwrap()"));
    assert!(!names("gix_odb", "gix") && !names("prefix", "fix") && !names("eprintln!", "println!"));
}
