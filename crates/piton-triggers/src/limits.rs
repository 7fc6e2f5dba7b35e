//! Limits on the input of the parser.
//!
//! The parser reads a substitution again for every level around it: 64 levels take 75 ms, 500 take 20 s. The limits are
//! checked on the bytes only and must never underestimate the depth, so a closing bracket counts only if nothing since
//! its opening one could have made it text. They may overestimate it: refused input counts as changing.

/// Length limit of a command that is analysed.
pub(super) const LENGTH_MAX: usize = 64 * 1024;
/// Depth limit of the walk: nested commands, and texts that are parsed again.
pub(super) const DEPTH_MAX: usize = 400;
/// Nesting limit of `(`, with every two backticks counted as one level.
const PAREN_DEPTH_MAX: usize = 32;
/// Nesting limit of `{`. It costs less than a substitution, but still takes quadratic time in the parser.
const BRACE_DEPTH_MAX: usize = 200;
/// Limit of the sum of the squared depths of all `(`: many deep substitutions side by side are as slow as one very deep
/// one.
const WORK_MAX: usize = 100_000;

/// Open brackets of one kind. The first `stuck` of them cannot be closed any more.
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

/// Returns true if `source` is within the limits.
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
        // A backtick does not tell opening from closing: each counts as half a level that stays open.
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
