//! Programs whose arguments are a small language: `sed` and `awk`.

use super::word::Word;

/// Returns true if `sed` only prints: no `-i`, no script file, and no command that writes or runs something.
pub(super) fn sed_only_prints(args: &[Word]) -> bool {
    let mut scripts = Vec::new();
    let mut operands = Vec::new();
    let mut words = args.iter();
    while let Some(word) = words.next() {
        let text = word.text.as_str();
        if word.open && word.maybe_option() {
            return false;
        }
        match text {
            "-e" | "--expression" | "-ne" | "-En" | "-nEe" | "-rne" | "-nre" | "-Ee" | "-re"
                if text.ends_with('e') || text == "--expression" =>
            {
                scripts.extend(words.next());
            }
            "--quiet" | "--silent" | "--regexp-extended" | "--null-data" | "--posix" | "--unbuffered" | "--"
            | "--version" | "--help" => {}
            _ if text.len() > 1 && text.starts_with('-') => {
                if text.starts_with("--") || !text[1..].bytes().all(|b| b"nErszu".contains(&b)) {
                    return false;
                }
            }
            _ => operands.push(word),
        }
    }
    if scripts.is_empty() {
        scripts.extend(operands.first());
    }
    scripts.iter().all(|script| script.known().is_some_and(sed_is_plain))
}

/// Returns true if the script consists of the most common commands of `sed`; anything else may write.
fn sed_is_plain(script: &str) -> bool {
    let chars: Vec<char> = script.chars().collect();
    let mut at = 0;
    while at < chars.len() {
        let c = chars[at];
        at += 1;
        match c {
            ' ' | '\t' | '\n' | ';' | '{' | '}' | '!' | ',' | '$' | '+' | '~' => {}
            c if c.is_ascii_digit() => {}
            'p' | 'P' | 'd' | 'D' | 'q' | 'Q' | '=' | 'n' | 'N' | 'g' | 'G' | 'h' | 'H' | 'x' | 'l' => {}
            '/' => match past(&chars, at, '/') {
                Some(end) => at = end,
                None => return false,
            },
            's' | 'y' => {
                let Some(&delimiter) = chars.get(at) else { return false };
                let end = past(&chars, at + 1, delimiter).and_then(|end| past(&chars, end, delimiter));
                let Some(end) = end else { return false };
                let flags = chars[end..].iter().take_while(|c| c.is_ascii_alphanumeric()).count();
                if c == 's' && !chars[end..end + flags].iter().all(|c| "gpIiMm0123456789".contains(*c)) {
                    return false;
                }
                at = if c == 's' { end + flags } else { end };
            }
            _ => return false,
        }
    }
    true
}

/// Returns the position after the next unescaped `end`.
fn past(chars: &[char], mut at: usize, end: char) -> Option<usize> {
    loop {
        match chars.get(at)? {
            '\\' => at += 2,
            // Implementations disagree on a delimiter inside `[...]`.
            '[' if end != '[' && in_brackets(chars, at, end) => return None,
            c if *c == end => return Some(at + 1),
            _ => at += 1,
        }
    }
}

fn in_brackets(chars: &[char], at: usize, end: char) -> bool {
    let inner = chars[at + 1..].iter().take_while(|c| **c != ']');
    inner.clone().any(|c| *c == end)
}

/// Returns true if an `awk` program only prints: it does not redirect, pipe, run or load anything.
pub(super) fn awk_only_prints(args: &[Word]) -> bool {
    let mut words = args.iter();
    let program = loop {
        let Some(word) = words.next() else { return false };
        let text = word.text.as_str();
        match text {
            "-F" | "-v" => {
                words.next();
            }
            "--" => {}
            _ if text.starts_with("-F") || text.starts_with("-v") => {}
            _ if word.maybe_option() => return matches!(word.known(), Some("--version" | "-V")) && args.len() == 1,
            _ => break word,
        }
    };
    let Some(text) = program.known() else { return false };
    let text = text.replace("||", "");
    // Some implementations accept options after the program.
    !words.any(Word::maybe_option) && !text.contains(['>', '|', '@']) && !text.contains("system")
}
