//! Assignments: most are harmless, some make a later command run something else.

use super::findings::Findings;
use super::place::Cwd;
use super::word::Word;

/// Variables that programs and shells execute, or that determine what is executed.
const RUN: &[&str] = &[
    // Search paths for programs and libraries.
    "PATH",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "DYLD_INSERT_LIBRARIES",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "RUBYOPT",
    "NODE_OPTIONS",
    "BASH_ENV",
    "ENV",
    "ZDOTDIR",
    "IFS",
    "CDPATH",
    "SHELLOPTS",
    "BASHOPTS",
    // Commands that the shell itself runs.
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    // Commands that programs run.
    "EDITOR",
    "VISUAL",
    "BROWSER",
    "LESSOPEN",
    "LESSCLOSE",
    "MANPAGER",
    "PAGER",
    "GIT_PAGER",
    "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF",
    "GIT_SSH",
    "GIT_SSH_COMMAND",
    "GIT_ASKPASS",
    "SSH_ASKPASS",
    "GIT_PROXY_COMMAND",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_CONFIG_COUNT",
    "GIT_CONFIG_PARAMETERS",
    "GIT_EXEC_PATH",
    "GIT_TRACE",
    "RIPGREP_CONFIG_PATH",
    "CURL_HOME",
    "WGETRC",
    "HOME",
    "TMPDIR",
    "POSIXLY_CORRECT",
];

/// Prefixes and suffixes of the names of similar variables, whose effect on programs is unknown.
const RUN_PREFIXES: &[&str] = &["LD_", "DYLD_", "GIT_", "XDG_", "BASH_FUNC_"];
const RUN_SUFFIXES: &[&str] = &["PATH", "OPT", "OPTS", "OPTIONS"];
/// Exceptions among them that affect only the output or the waiting time.
const SHOWN: &[&str] = &["GIT_OPTIONAL_LOCKS", "GIT_TERMINAL_PROMPT"];

/// Values of a pager or editor that write nothing.
const PAGERS: &[&str] = &["", "cat", "less", "more", "true", ":", "/bin/cat", "/usr/bin/less"];

/// Analyses a word `NAME=value`, before a command or after `export`.
pub(super) fn assign(found: &mut Findings<'_>, word: &Word, cwd: &Cwd) {
    let Some((name, value)) = word.text.split_once('=') else {
        // `a[$i]=x` and the like: the name is not completely known.
        if word.open {
            found.mark(cwd);
        }
        return;
    };
    let name = name.trim_end_matches('+');
    let name = name.split('[').next().unwrap_or(name);
    let pager = !word.open && PAGERS.contains(&value);
    let is_like_them = || {
        let begins = RUN_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        begins || RUN_SUFFIXES.iter().any(|suffix| name.ends_with(suffix))
    };
    let runs = RUN.contains(&name) || is_like_them() && !SHOWN.contains(&name);
    // Text that looks like code may be run later: by `eval`, or by arithmetic on the variable.
    let code = value.contains("$(") || value.contains('`');
    if (runs && !pager) || code {
        found.mark(cwd);
    }
    if let Some((_, value)) = word.full.split_once('=') {
        let text = value.to_owned();
        found.set_value(name, &Word { text: text.clone(), full: text, ..word.clone() });
    }
    let mut value = Word { text: value.into(), full: value.into(), ..word.clone() };
    value.tilde = value.text.starts_with('~');
    found.hint(value, cwd);
}
