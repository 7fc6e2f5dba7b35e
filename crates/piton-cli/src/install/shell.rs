//! Quoting and splitting of command lines in configuration files.

use std::path::Path;

use crate::agents::Agent;

/// Quotes a word so that every shell, and Python's `shlex`, reads it back unchanged.
pub(crate) fn quote(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+,:@%=".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Splits a command line into words as `shlex` does. Returns `None` if a quote or an escape is not terminated.
pub(crate) fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut rest = line.chars();
    while let Some(character) = rest.next() {
        match character {
            ' ' | '\t' | '\n' | '\r' => words.extend(word.take()),
            '\\' => word.get_or_insert_default().push(rest.next()?),
            '\'' => loop {
                match rest.next()? {
                    '\'' => break word.get_or_insert_default().push_str(""),
                    other => word.get_or_insert_default().push(other),
                }
            },
            '"' => loop {
                match rest.next()? {
                    '"' => break word.get_or_insert_default().push_str(""),
                    '\\' => match rest.next()? {
                        escaped @ ('"' | '\\' | '$' | '`') => word.get_or_insert_default().push(escaped),
                        other => word.get_or_insert_default().extend(['\\', other]),
                    },
                    other => word.get_or_insert_default().push(other),
                }
            },
            other => word.get_or_insert_default().push(other),
        }
    }
    words.extend(word);
    Some(words)
}

/// Suffix of command lines for agents that treat a failing hook as a refusal.
pub(crate) const FAILS_OPEN: &str = " 2>/dev/null || true";

/// Returns true if a command line is one that an installer of ours wrote: a call of piton and nothing else. It contains
/// nothing that a shell would interpret, except for [`FAILS_OPEN`], so that it is safe to run it as a test.
pub(crate) fn is_ours(line: &str, agent: Agent) -> bool {
    let line = line.strip_suffix(FAILS_OPEN).unwrap_or(line);
    let Some(words) = words(line) else { return false };
    if words.iter().map(|word| quote(word)).collect::<Vec<_>>().join(" ") != line {
        return false;
    }
    match &words[..] {
        [program, verb, name, ..] if verb == "hook" && name == agent.name() => is_piton(program),
        [program, verb, ..] if verb == "rollback" && agent == Agent::Hermes => is_piton(program),
        _ => false,
    }
}

/// Returns the program that a command line starts.
pub(crate) fn program(line: &str) -> Option<String> {
    words(line)?.into_iter().next()
}

/// Returns the command line with another value for an option; unchanged if it does not have that option.
pub(crate) fn with_option(line: &str, option: &str, value: &str) -> String {
    let words = words(line).unwrap_or_default();
    let old = words.iter().position(|word| word == option).and_then(|at| words.get(at + 1));
    let written = |value: &str| format!("{option} {}", quote(value));
    old.map_or_else(|| line.to_owned(), |old| line.replacen(&written(old), &written(value), 1))
}

fn is_piton(program: &str) -> bool {
    let path = Path::new(program);
    path.is_absolute() && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("piton"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_quoted_comes_back() {
        for word in
            ["/usr/bin/piton", "/a b/piton", "/it's/piton", "/\"x\"/$HOME/`y`", "", "/tab\there", "/ü/piton", "a\\b"]
        {
            assert_eq!(words(&quote(word)).as_deref(), Some(&[word.to_owned()][..]), "{word:?}");
        }
        assert_eq!(quote("/usr/bin/piton"), "/usr/bin/piton");
        assert_eq!(words("a 'b"), None);
        assert_eq!(words("a\\"), None);
        assert_eq!(words(r#"x "a \"b\" \n" '' y"#).expect("whole").join("|"), r#"x|a "b" \n||y"#);
    }

    #[test]
    fn only_a_plain_call_of_piton_is_ours() {
        for line in
            ["/a/piton hook claude", "'/a b/piton' hook claude 2>/dev/null || true", "/a/piton-0.2 hook claude x"]
        {
            assert!(is_ours(line, Agent::Claude), "{line}");
        }
        for line in [
            "piton hook claude",
            "nice /a/piton hook claude",
            "/a/piton hook codex",
            "/a/piton take",
            "/a/x hook claude",
            "/a/piton hook claude ; x",
            "/a/piton hook claude && x",
            "/a/piton hook claude $(x)",
            "/a/piton hook claude \"`x`\"",
            "/a/piton hook claude\nx",
            "/a/piton hook claude > /etc/passwd",
            "/a/piton hook claude 2>/dev/null || true; x",
        ] {
            assert!(!is_ours(line, Agent::Claude), "{line}");
        }
    }
}
