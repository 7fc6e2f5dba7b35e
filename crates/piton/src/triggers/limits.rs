//! What is refused before the parser sees it.
//!
//! The parser reads a substitution again for every level around it: 64 levels take 75 ms, 500 take 20 s. These limits
//! look at the bytes only and must never be lower than the truth, so a closing bracket counts only when nothing since
//! its opening one could have made it text. They may be higher: what is refused counts as changing.

/// Longest command that is looked at.
pub(super) const LENGTH_MAX: usize = 64 * 1024;
/// Deepest nesting of `(`, and most backticks.
const PAREN_DEPTH_MAX: usize = 32;
/// Deepest nesting of `{`. It costs less than a substitution, but quadratic time in the parser all the same.
const BRACE_DEPTH_MAX: usize = 200;
/// Sum of the squared depths of all `(`: many deep substitutions side by side are as slow as a very deep one.
const WORK_MAX: usize = 100_000;

/// Open brackets of one kind, of which the first `stuck` can no longer be closed.
#[derive(Default)]
struct Open {
    depth: usize,
    stuck: usize,
}

impl Open {
    fn close(&mut self) {
        if self.depth > self.stuck {
            self.depth -= 1;
        }
    }
}

/// Returns whether the parser may read `source`.
pub(super) fn within(source: &str) -> bool {
    if source.len() > LENGTH_MAX || source.contains('\0') {
        return false;
    }
    let bytes = source.as_bytes();
    let (mut parens, mut braces) = (Open::default(), Open::default());
    let mut work = 0usize;
    let mut backticks = 0usize;
    for (at, byte) in bytes.iter().enumerate() {
        match byte {
            b'(' => {
                parens.depth += 1;
                work += parens.depth * parens.depth;
            }
            b')' => parens.close(),
            b'{' => braces.depth += 1,
            b'}' => braces.close(),
            b'`' => backticks += 1,
            // After these a bracket may be text: quotes, comments, here-documents, patterns of `case`.
            b'\'' | b'"' | b'\\' | b'#' => stick(&mut parens, &mut braces),
            b'<' if bytes.get(at + 1) == Some(&b'<') => stick(&mut parens, &mut braces),
            b'e' if bytes[..at].ends_with(b"cas") => stick(&mut parens, &mut braces),
            _ => {}
        }
        // A backtick has no side: count each as a level that stays open.
        let deep = parens.depth + backticks.div_ceil(2);
        if deep > PAREN_DEPTH_MAX || braces.depth > BRACE_DEPTH_MAX || work > WORK_MAX {
            return false;
        }
    }
    true
}

fn stick(parens: &mut Open, braces: &mut Open) {
    parens.stuck = parens.depth;
    braces.stuck = braces.depth;
}
