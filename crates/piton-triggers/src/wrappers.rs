//! Programs that run another program, and how to find that program behind their options.
//!
//! An option that is not in the table makes the command changing, because its argument could otherwise be taken for the
//! program.

use super::word::Word;

/// Syntax of a wrapper before the program that it runs.
pub(super) struct Wrapper {
    pub(super) name: &'static str,
    /// Short options without and with an argument.
    flags: &'static str,
    takes: &'static str,
    /// Long options without and with an argument.
    long_flags: &'static [&'static str],
    long_takes: &'static [&'static str],
    /// Number of operands before the program: the time of `timeout`, the root of `chroot`.
    operands: usize,
    /// True if `NAME=value` may precede the program.
    assigns: bool,
}

const NONE: &[&str] = &[];

const fn plain(name: &'static str, flags: &'static str, takes: &'static str) -> Wrapper {
    Wrapper { name, flags, takes, long_flags: NONE, long_takes: NONE, operands: 0, assigns: false }
}

/// Known wrappers. `nohup` and `script` also write a file of their own; `watch` and `parallel` join their words for a
/// shell.
pub(super) const WRAPPERS: &[Wrapper] = &[
    Wrapper {
        long_flags: &["non-interactive", "background", "preserve-env", "stdin", "set-home", "reset-timestamp"],
        long_takes: &["user", "group", "host", "prompt", "chdir", "close-from", "other-user", "command-timeout"],
        assigns: true,
        ..plain("sudo", "AbEHKknPSB", "CDghpTu")
    },
    plain("doas", "Ln", "Cu"),
    Wrapper {
        long_flags: &["ignore-environment", "null", "debug"],
        long_takes: &["unset", "chdir"],
        assigns: true,
        ..plain("env", "i0v", "uC")
    },
    Wrapper { long_takes: &["adjustment"], ..plain("nice", "0123456789", "n") },
    Wrapper { long_takes: &["class", "classdata"], ..plain("ionice", "t", "cn") },
    plain("nohup", "", ""),
    Wrapper { long_flags: &["portability", "verbose"], ..plain("time", "pv", "f") },
    Wrapper {
        long_flags: &["foreground", "preserve-status", "verbose"],
        long_takes: &["kill-after", "signal"],
        operands: 1,
        ..plain("timeout", "fpv", "ks")
    },
    Wrapper { long_takes: &["input", "output", "error"], ..plain("stdbuf", "", "ioe") },
    Wrapper { long_flags: &["ctty", "fork", "wait"], ..plain("setsid", "cfw", "") },
    plain("command", "p", ""),
    plain("builtin", "", ""),
    plain("exec", "cl", "a"),
    Wrapper {
        long_flags: &["null", "no-run-if-empty", "verbose", "exit", "open-tty"],
        long_takes: &["max-args", "max-procs", "delimiter", "arg-file", "max-chars"],
        ..plain("xargs", "0rtxo", "adEILnPsJRS")
    },
    Wrapper {
        long_flags: &["keep-order", "null", "will-cite", "no-notice", "bar"],
        long_takes: &["jobs", "max-args", "colsep", "delay", "timeout", "halt"],
        ..plain("parallel", "0kX", "jnNILC")
    },
    Wrapper {
        long_flags: &["beep", "color", "differences", "errexit", "chgexit", "no-title", "exec", "precise"],
        long_takes: &["interval"],
        ..plain("watch", "bcdegtxp", "n")
    },
    plain("unbuffer", "p", ""),
    plain("strace", "fFcCdikqrtTvwxyz", "abeEIOpPsSuX"),
    plain("script", "aefq", "cT"),
    Wrapper { long_takes: &["userspec", "groups"], operands: 1, ..plain("chroot", "", "") },
    plain("busybox", "", ""),
];

/// Parsed command line of a wrapper.
#[derive(Default)]
pub(super) struct Parts {
    /// Options with their arguments; short ones as one letter.
    pub(super) options: Vec<(String, Option<Word>)>,
    pub(super) assigns: Vec<Word>,
    pub(super) operands: Vec<Word>,
    /// Program and its arguments.
    pub(super) command: Vec<Word>,
    /// True if there was an unknown option, or a word that may be one.
    pub(super) unsure: bool,
}

impl Parts {
    pub(super) fn option(&self, names: &[&str]) -> Option<&Word> {
        let found = self.options.iter().rev().find(|(name, _)| names.contains(&name.as_str()))?;
        found.1.as_ref()
    }
}

pub(super) fn find(name: &str) -> Option<&'static Wrapper> {
    WRAPPERS.iter().find(|wrapper| wrapper.name == name)
}

impl Wrapper {
    /// Parses the words after the wrapper's name.
    pub(super) fn take(&self, words: &[Word]) -> Parts {
        let mut parts = Parts::default();
        let mut at = 0;
        let mut plain = false;
        while let Some(word) = words.get(at) {
            let text = word.text.as_str();
            if word.open && word.maybe_option() {
                parts.unsure = true;
                break;
            }
            if !plain && text == "--" {
                plain = true;
            } else if !plain && text == "-" && self.assigns {
                parts.options.push(("i".into(), None));
            } else if !plain && let Some(long) = text.strip_prefix("--") {
                at += self.long(long, word, words.get(at + 1), &mut parts);
            } else if !plain && text.len() > 1 && text.starts_with('-') {
                at += self.short(text, words.get(at + 1), &mut parts);
            } else if self.assigns && is_assignment(text) {
                parts.assigns.push(word.clone());
            } else if parts.operands.len() < self.operands {
                parts.operands.push(word.clone());
            } else {
                break;
            }
            at += 1;
        }
        parts.command = words.get(at..).unwrap_or_default().to_vec();
        parts
    }

    /// Records a long option. Returns the number of words that its argument takes.
    fn long(&self, long: &str, word: &Word, next: Option<&Word>, parts: &mut Parts) -> usize {
        let (name, value) = match long.split_once('=') {
            Some((name, value)) => (name, Some(Word { text: value.into(), full: value.into(), ..word.clone() })),
            None => (long, None),
        };
        let takes = self.long_takes.contains(&name);
        if !takes && !self.long_flags.contains(&name) {
            parts.unsure = true;
        }
        let separate = takes && value.is_none();
        let value = if separate { next.cloned() } else { value };
        parts.options.push((name.into(), value));
        usize::from(separate)
    }

    /// Records a cluster of short options. Returns the number of words that the argument of the last one takes.
    fn short(&self, text: &str, next: Option<&Word>, parts: &mut Parts) -> usize {
        for (index, letter) in text.char_indices().skip(1) {
            if self.takes.contains(letter) {
                let rest = &text[index + letter.len_utf8()..];
                let value = if rest.is_empty() { next.cloned() } else { Some(Word::exact(rest)) };
                parts.options.push((letter.into(), value));
                return usize::from(rest.is_empty());
            }
            parts.unsure |= !self.flags.contains(letter);
            parts.options.push((letter.into(), None));
        }
        0
    }
}

pub(super) fn is_assignment(text: &str) -> bool {
    let Some((name, _)) = text.split_once('=') else { return false };
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
}
