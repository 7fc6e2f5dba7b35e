//! Simple commands: finds the program behind wrappers, and decides what it may change.

use super::super::place::Cwd;
use super::super::word::Word;
use super::super::wrappers::{self, Parts, Wrapper};
use super::super::{git, harmless, runs, targets, tools, vars};
use super::{Flow, Walker, find};

/// Limit of wrappers around one program.
const WRAPPED_MAX: usize = 32;

/// Shells whose `-c` argument is parsed again.
const SHELLS: &[&str] = &["bash", "sh", "zsh", "dash", "ksh", "ash", "mksh"];

/// Returns the name of the shell that a word starts. Returns `None` if it starts none.
pub(super) fn shell_name(spelled: &str) -> Option<&'static str> {
    let name = program(spelled)?;
    SHELLS.iter().find(|shell| **shell == name).copied()
}

/// Analyses a command without its assignments and redirections.
pub(super) fn run(walker: &mut Walker<'_>, words: &[Word], cwd: &Cwd) -> Flow {
    run_at(walker, words, cwd, 0)
}

fn run_at(walker: &mut Walker<'_>, words: &[Word], cwd: &Cwd, depth: usize) -> Flow {
    let Some(first) = words.first() else { return Flow::stay(cwd) };
    let (Some(spelled), true) = (first.known(), depth < WRAPPED_MAX) else {
        walker.found.mark(cwd);
        walker.found.destroys = true;
        named_by_variable(walker, words, cwd, depth);
        return Flow { ok: cwd.clone().lost(), fail: cwd.clone() };
    };
    if !spelled.contains('/')
        && let Some(flow) = walker.call(spelled, cwd)
    {
        return flow;
    }
    let Some(name) = program(spelled) else {
        walker.found.mark(cwd);
        match runs::interpreter(spelled) {
            Some(name) => runs::of(&mut walker.found, name, &words[1..], cwd),
            None => walker.found.run_script(first, cwd),
        }
        return Flow::stay(cwd);
    };
    let args = &words[1..];
    if let Some(flow) = moves(walker, name, args, cwd) {
        return flow;
    }
    if SHELLS.contains(&name) {
        shell(walker, args, cwd);
        return Flow::stay(cwd);
    }
    if let Some(wrapper) = wrappers::find(name) {
        return wrapped(walker, wrapper, args, cwd, depth);
    }
    match name {
        "eval" => return eval(walker, args, cwd),
        "trap" => {
            if let Some(word) = args.iter().find(|word| !word.text.starts_with('-')) {
                reparse(walker, word, cwd);
            }
        }
        "alias" => aliases(walker, args, cwd),
        _ if harmless::expands_code(name, args) => walker.found.mark(cwd),
        "export" | "declare" | "typeset" | "local" | "readonly" => args.iter().for_each(|word| {
            if !word.text.starts_with('-') || word.open {
                vars::assign(&mut walker.found, word, cwd);
            }
        }),
        "unset" => walker.forget_functions(),
        "find" => find::find(walker, args, cwd, |walker, words, cwd| {
            run_at(walker, words, cwd, depth + 1);
        }),
        "git" => git::run(&mut walker.found, args, cwd),
        _ if harmless::is_harmless(name, args) || tools::only_reads(name, args) => {}
        _ => targets::mark(&mut walker.found, name, args, cwd),
    }
    Flow::stay(cwd)
}

/// Analyses a command whose first word is a variable, once for each value that the command gives to it.
fn named_by_variable(walker: &mut Walker<'_>, words: &[Word], cwd: &Cwd, depth: usize) {
    let Some(first) = words.first().filter(|first| first.open && depth < WRAPPED_MAX) else { return };
    for value in walker.found.values_of(&first.full).unwrap_or_default() {
        let program: Vec<Word> = value.split_whitespace().map(Word::exact).collect();
        if !program.is_empty() {
            run_at(walker, &[&program, &words[1..]].concat(), cwd, depth + 1);
        }
    }
}

/// Returns the name of a program. A path is accepted only in the system's own directories, because `./ls` may be
/// anything.
fn program(spelled: &str) -> Option<&str> {
    const SYSTEM: &[&str] =
        &["/bin", "/usr/bin", "/usr/local/bin", "/sbin", "/usr/sbin", "/opt/homebrew/bin", "/usr/local/sbin"];
    match spelled.rsplit_once('/') {
        None => Some(spelled),
        Some((dir, name)) => SYSTEM.contains(&dir).then_some(name),
    }
}

/// Handles commands that change the shell's directory, or end the shell.
fn moves(walker: &mut Walker<'_>, name: &str, args: &[Word], cwd: &Cwd) -> Option<Flow> {
    let operands: Vec<&Word> = args.iter().filter(|word| word.open || !is_cd_option(&word.text)).collect();
    let ok = match (name, operands.as_slice()) {
        ("cd", []) => cwd.moved(&Word { tilde: true, ..Word::exact("~") }, walker.found.home),
        ("cd" | "pushd", [to]) if to.text != "-" && !to.text.starts_with('+') => {
            if name == "pushd" {
                walker.stack.push(cwd.clone());
            }
            cwd.moved(to, walker.found.home)
        }
        ("cd", _) => cwd.clone().lost(),
        ("pushd", _) => {
            // Two entries swap: either may become the current directory.
            walker.stack.iter().fold(cwd.clone(), |all, one| all.join(one)).lost()
        }
        ("popd", []) => walker.stack.pop().unwrap_or_else(|| cwd.clone().lost()),
        ("popd", _) => cwd.clone().lost(),
        ("exit", _) => return Some(Flow { ok: Cwd::nowhere(), fail: Cwd::nowhere() }),
        _ => return None,
    };
    Some(Flow { ok, fail: cwd.clone() })
}

fn is_cd_option(text: &str) -> bool {
    text == "--" || (text.len() > 1 && text.starts_with('-') && text[1..].bytes().all(|b| b"LPe@nqs".contains(&b)))
}

fn wrapped(walker: &mut Walker<'_>, wrapper: &Wrapper, args: &[Word], cwd: &Cwd, depth: usize) -> Flow {
    let name = wrapper.name;
    if name == "command" && args.first().is_some_and(|word| matches!(word.known(), Some("-v" | "-V"))) {
        return Flow::stay(cwd);
    }
    if args.len() == 1 && matches!(args[0].known(), Some("--version" | "--help")) {
        return Flow::stay(cwd);
    }
    let mut parts = wrapper.take(args);
    // `nohup` and `script` write a file of their own; the effect of an unknown option is unknown.
    if parts.unsure || matches!(name, "nohup" | "script") {
        walker.found.mark(cwd);
    }
    for word in std::mem::take(&mut parts.assigns) {
        vars::assign(&mut walker.found, &word, cwd);
    }
    let mut inside = cwd.clone();
    if matches!(name, "env" | "sudo")
        && let Some(dir) = parts.option(&["C", "D", "chdir"])
    {
        inside = cwd.moved(dir, walker.found.home);
    }
    if name == "chroot" {
        inside = inside.lost();
    }
    match name {
        "script" => {
            if let Some(command) = parts.option(&["c"]).cloned() {
                reparse(walker, &command, &inside);
            }
        }
        "watch" | "parallel" => joined(walker, &parts, &inside),
        "xargs" => {
            let command = xargs(&parts);
            run_at(walker, &command, &inside, depth + 1);
        }
        "sudo" if parts.command.is_empty() => walker.found.mark(cwd),
        "exec" => {
            run_at(walker, &parts.command, &inside, depth + 1);
            if !parts.command.is_empty() {
                return Flow { ok: Cwd::nowhere(), fail: cwd.clone() };
            }
        }
        _ => {
            let flow = run_at(walker, &parts.command, &inside, depth + 1);
            if matches!(name, "command" | "builtin" | "time") {
                return flow;
            }
        }
    }
    Flow::stay(cwd)
}

/// Returns the command that `xargs` runs. Its last words, and those that contain the placeholder, are unknown.
fn xargs(parts: &Parts) -> Vec<Word> {
    let holder = parts.option(&["I", "J"]).map(|word| word.text.clone()).filter(|text| !text.is_empty());
    let mut command = parts.command.clone();
    match holder {
        Some(holder) => {
            for word in &mut command {
                if let Some(at) = word.text.find(&holder) {
                    word.text.truncate(at);
                    word.open = true;
                }
            }
        }
        None if !command.is_empty() => command.push(Word::starting("")),
        None => {}
    }
    command
}

/// Analyses words that are joined and passed to a shell. Without any, `parallel` reads commands from its input.
fn joined(walker: &mut Walker<'_>, parts: &Parts, cwd: &Cwd) {
    let words: Vec<&Word> = parts.command.iter().take_while(|word| !word.text.starts_with(":::")).collect();
    let inputs = parts.command.iter().skip(words.len());
    if words.is_empty() {
        walker.found.mark(cwd);
    }
    let marks = walker.found.marks;
    let mut line: Vec<&str> = words.iter().map(|word| word.full.as_str()).collect();
    line.push("{}");
    if words.iter().any(|word| word.open) {
        walker.found.mark(cwd);
    }
    walker.subshell(&line.join(" "), cwd);
    if walker.found.marks > marks {
        for word in inputs.cloned().collect::<Vec<_>>() {
            walker.found.hint(word, cwd);
        }
        walker.found.guessing = true;
    }
}

/// Analyses `sh -c TEXT`. Without `-c`, a script or the standard input is run.
fn shell(walker: &mut Walker<'_>, args: &[Word], cwd: &Cwd) {
    let mut takes_text = false;
    let mut at = 0;
    while let Some(word) = args.get(at) {
        let Some(text) = word.known() else { return walker.found.mark(cwd) };
        if matches!(text, "--version" | "--help") && args.len() == 1 {
            return;
        }
        // A login or interactive shell also runs the user's own startup files: those are assumed to be harmless.
        let known = matches!(text, "--login" | "--noprofile" | "--norc" | "--posix" | "--");
        let cluster = text.len() > 1 && text.starts_with(['-', '+']) && !text.starts_with("--");
        if cluster {
            takes_text |= text.starts_with('-') && text.contains('c');
            at += usize::from(text.ends_with('o') || text.ends_with('O'));
        } else if !known {
            break;
        }
        at += 1;
    }
    match args.get(at) {
        Some(word) if takes_text => reparse(walker, word, cwd),
        Some(word) => {
            walker.found.mark(cwd);
            walker.found.run_script(word, cwd);
        }
        None => walker.found.mark(cwd),
    }
}

/// Returns the shell that a command starts without a text or a script, so that it reads commands.
pub(super) fn reads_commands(words: &[Word]) -> Option<&'static str> {
    let (at, name) = words.iter().enumerate().find_map(|(at, word)| Some((at, shell_name(&word.text)?)))?;
    let is_alone = words[at + 1..].iter().all(|word| word.text.starts_with('-') && word.text.len() <= 2);
    let reads = words.get(at + 1).and_then(Word::known).is_some_and(|text| matches!(text, "-s" | "-"));
    let starts = at == 0 || wrappers::find(&words[0].text).is_some();
    let shows = words.get(at + 1).is_some_and(|word| matches!(word.text.as_str(), "-c" | "-i" | "-l"));
    (starts && !shows && (is_alone || reads)).then_some(name)
}

fn eval(walker: &mut Walker<'_>, args: &[Word], cwd: &Cwd) -> Flow {
    let known: Option<Vec<&str>> = args.iter().map(Word::known).collect();
    let all: Vec<&str> = args.iter().map(|word| word.full.as_str()).collect();
    if known.is_none() {
        walker.found.mark(cwd);
    }
    let flow = walker.source(&all.join(" "), cwd);
    if known.is_some() { flow } else { Flow { ok: flow.ok.lost(), fail: flow.fail.lost() } }
}

/// Analyses a text that is run as a command. If a part of it is unknown, it may do anything.
fn reparse(walker: &mut Walker<'_>, word: &Word, cwd: &Cwd) {
    if word.open {
        walker.found.mark(cwd);
    }
    walker.subshell(&word.full, cwd);
}

fn aliases(walker: &mut Walker<'_>, args: &[Word], cwd: &Cwd) {
    for word in args {
        if let Some((_, value)) = word.full.split_once('=') {
            reparse(walker, &Word { full: value.into(), ..word.clone() }, cwd);
        }
    }
}
