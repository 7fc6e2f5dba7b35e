//! Programs that a command runs and whose text is in files: scripts, make targets and scripts of a package.
//!
//! Nothing is read here. The caller reads the text and analyses it in turn, if it wants to.

use super::findings::Findings;
use super::loss::Run;
use super::place::{Cwd, normalise};
use super::word::Word;

/// Limit of the programs that are reported.
const RUNS_MAX: usize = 16;

/// Interpreters of other languages.
const INTERPRETERS: &[&str] = &[
    "python",
    "python2",
    "python3",
    "node",
    "deno",
    "bun",
    "perl",
    "ruby",
    "php",
    "lua",
    "pypy",
    "Rscript",
    "julia",
    "pwsh",
    "powershell",
    "powershell.exe",
    "cmd",
    "cmd.exe",
];

/// Options of theirs, and verbs, before a text.
const CODE: &[&str] = &["-c", "-e", "--eval", "-p", "eval", "-r", "-Command", "-command", "/c", "/C"];

/// Returns the interpreter that a word starts, by the last part of its path and with or without its version:
/// `.venv/bin/python3.12` is `python`. Returns `None` if it starts none.
pub(super) fn interpreter(spelled: &str) -> Option<&'static str> {
    let name = spelled.rsplit('/').next()?;
    let unversioned = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    let is_it = |known: &&&str| **known == name || **known == unversioned;
    INTERPRETERS.iter().find(is_it).copied()
}

/// Records that an interpreter reads a text from its input. The text may be data, if it runs a file.
pub(super) fn of_input(found: &mut Findings<'_>, words: &[Word], text: &str, cwd: &Cwd) {
    let name = words.iter().find_map(|word| interpreter(&word.text));
    if let (Some(name), Some(dir)) = (name, cwd.known.first()) {
        found.add_run(Run::Foreign {
            program: name.to_owned(),
            path: None,
            text: Some(text.to_owned()),
            cwd: dir.clone(),
        });
    }
}

impl Findings<'_> {
    pub(super) fn add_run(&mut self, run: Run) {
        if self.runs.len() < RUNS_MAX && !self.runs.contains(&run) {
            self.runs.push(run);
        }
    }

    /// Records that a file is run. A word that is not known is recorded as unread.
    pub(super) fn run_script(&mut self, word: &Word, cwd: &Cwd) {
        match word.known() {
            Some(text) => {
                for dir in &cwd.known {
                    self.add_run(Run::Script { path: normalise(&dir.join(text)), cwd: dir.clone() });
                }
            }
            None => self.add_unread(&word.full),
        }
    }
}

/// Records the run of an interpreter, of `make` or of a package manager.
pub(super) fn of(found: &mut Findings<'_>, name: &str, args: &[Word], cwd: &Cwd) {
    let Some(dir) = cwd.known.first().filter(|_| !cwd.lost) else { return };
    let operands = || args.iter().filter(|word| !word.maybe_option());
    match name {
        _ if interpreter(name).is_some() => {
            let code = args.iter().position(|word| CODE.contains(&word.text.as_str()));
            let text = code.and_then(|at| args.get(at + 1)).map(|word| word.full.clone());
            let file = operands().find_map(Word::known).filter(|_| text.is_none());
            let path = file.map(|file| normalise(&dir.join(file)));
            if text.is_some() || path.is_some() {
                found.add_run(Run::Foreign { program: name.to_owned(), path, text, cwd: dir.clone() });
            }
        }
        "source" | "." => args.iter().take(1).for_each(|word| found.run_script(word, cwd)),
        "make" | "gmake" => {
            let (mut cwd, mut file, mut targets) = (dir.clone(), None, Vec::new());
            let mut words = args.iter();
            while let Some(word) = words.next() {
                match word.text.as_str() {
                    "-C" | "--directory" => {
                        cwd = words.next().map_or(cwd.clone(), |dir| normalise(&cwd.join(&dir.text)));
                    }
                    "-f" | "--file" => file = words.next().map(|file| normalise(&cwd.join(&file.text))),
                    text if text.starts_with('-') || text.contains('=') => {}
                    text => targets.push(text.to_owned()),
                }
            }
            found.add_run(Run::Make { cwd, file, targets });
        }
        "npm" | "pnpm" | "yarn" | "bun" => {
            let words: Vec<&str> = operands().filter_map(Word::known).collect();
            let script = match words.as_slice() {
                ["run" | "run-script", script, ..] => Some(*script),
                [short @ ("test" | "start" | "stop" | "restart"), ..] => Some(*short),
                [script, ..] if name == "yarn" => Some(*script),
                _ => None,
            };
            if let Some(script) = script {
                found.add_run(Run::Package { cwd: dir.clone(), script: script.to_owned() });
            }
        }
        _ => {}
    }
}

/// Returns the recipes of targets in a makefile, and of those that they depend on, as lines of a shell script. Returns
/// `None` if a target has no recipe there. Variables of the file are replaced, and put in front as assignments.
///
/// ```
/// let makefile = "OUT = build\nclean: tidy\n\t@rm -rf $(OUT)\ntidy:\n\t-rm -f x.o\n";
/// let script = piton_triggers::recipes(makefile, &["clean".to_owned()]).expect("a target");
/// assert!(script.ends_with("OUT='build'\nrm -f x.o\nrm -rf build\n"));
/// ```
#[must_use]
pub fn recipes(makefile: &str, targets: &[String]) -> Option<String> {
    let rules = rules(makefile);
    let first = rules.iter().find(|rule| !rule.target.starts_with('.')).map(|rule| rule.target.clone());
    let targets: Vec<String> = if targets.is_empty() { first.into_iter().collect() } else { targets.to_vec() };
    let values = values(makefile);
    let mut left = EXPANSIONS_MAX;
    let mut script = String::new();
    for (name, value) in &values {
        let value = as_shell(value, &values, 0, &mut left);
        script.push_str(&format!("{name}='{}'\n", value.trim().replace('\'', "'\\''")));
    }
    let mut done = Vec::new();
    for target in &targets {
        let add = &mut |line: &str| script.extend([&as_shell(line, &values, 0, &mut left), "\n"]);
        recipe_of(target, &rules, &mut done, add)?;
    }
    Some(script)
}

struct Rule {
    target: String,
    needs: Vec<String>,
    lines: Vec<String>,
}

fn rules(makefile: &str) -> Vec<Rule> {
    let mut rules: Vec<Rule> = Vec::new();
    let joined = makefile.replace("\\\n", " ");
    for line in joined.lines() {
        if let Some(recipe) = line.strip_prefix('\t') {
            if let Some(rule) = rules.last_mut() {
                let recipe = recipe.trim_start_matches(['@', '-', '+', ' ']);
                rule.lines.push(recipe.to_owned());
            }
        } else if let Some((targets, needs)) = line.split_once(':').filter(|(_, needs)| !needs.starts_with('=')) {
            for target in targets.split_whitespace() {
                let needs = needs.split_whitespace().map(str::to_owned).collect();
                rules.push(Rule { target: target.to_owned(), needs, lines: Vec::new() });
            }
        }
    }
    rules
}

/// Returns the variables that a makefile sets, unless the shell computes them; the last value of each.
fn values(makefile: &str) -> Vec<(String, String)> {
    let mut values: Vec<(String, String)> =
        vec![("RM".to_owned(), "rm -f".to_owned()), ("MAKE".to_owned(), "make".to_owned())];
    let joined = makefile.replace("\\\n", " ");
    for line in joined.lines().filter(|line| !line.starts_with('\t')) {
        let Some((name, value)) = line.split_once('=') else { continue };
        let appends = name.ends_with('+');
        let name = name.trim_end_matches([':', '?', '+', '!', ' ', '\t']).trim();
        let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if !is_name || value.contains("$(shell") || value.contains('`') {
            continue;
        }
        let value = value.split(" #").next().unwrap_or(value).trim();
        match values.iter_mut().find(|(known, _)| known == name) {
            Some((_, known)) if appends => *known = format!("{known} {value}"),
            Some((_, known)) => value.clone_into(known),
            None => values.push((name.to_owned(), value.to_owned())),
        }
    }
    values
}

/// Depth limit of variables in the values of variables.
const VALUES_DEPTH_MAX: usize = 8;
/// Length limit of a line with its variables replaced.
const LINE_BYTES_MAX: usize = 16 << 10;
/// Number of variables that are replaced in one makefile: nested ones multiply, also where their values are empty.
const EXPANSIONS_MAX: usize = 10_000;

/// Returns a line of a recipe as the shell would read it: `$(NAME)` is its value, or `${NAME}` if it has none or `left`, the
/// number of replacements that remain, is 0; `$$` is `$`.
fn as_shell(recipe: &str, values: &[(String, String)], depth: usize, left: &mut usize) -> String {
    let mut line = String::new();
    let mut rest = recipe;
    while let Some(at) = rest.find('$') {
        line.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let inside = rest.strip_prefix('(').and_then(|inside| inside.split_once(')'));
        let inside = inside.or_else(|| rest.strip_prefix('{').and_then(|inside| inside.split_once('}')));
        let is_name = |name: &str| name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if let Some((name, after)) = inside.filter(|(name, _)| is_name(name)) {
            let value = values.iter().find(|(known, _)| known == name).map(|(_, value)| value);
            match value.filter(|_| depth < VALUES_DEPTH_MAX && line.len() < LINE_BYTES_MAX && *left > 0) {
                Some(value) => {
                    *left -= 1;
                    line.push_str(&as_shell(value, values, depth + 1, left));
                }
                None => line.extend(["${", name, "}"]),
            }
            rest = after;
        } else {
            line.push('$');
            rest = rest.strip_prefix('$').unwrap_or(rest);
        }
    }
    line + rest
}

/// Calls `add` with the lines of the recipe of a target, after those of the targets that it needs. Returns `None` if there is
/// no such target.
fn recipe_of(target: &str, rules: &[Rule], done: &mut Vec<String>, add: &mut impl FnMut(&str)) -> Option<()> {
    if done.iter().any(|known| known == target) || done.len() > 64 {
        return Some(());
    }
    done.push(target.to_owned());
    let mut is_known = false;
    for rule in rules.iter().filter(|rule| rule.target == target) {
        is_known = true;
        for need in &rule.needs {
            // A file that is needed has no rule.
            let _ = recipe_of(need, rules, done, add);
        }
        rule.lines.iter().for_each(|line| add(line));
    }
    is_known.then_some(())
}
