//! Shell patterns of gitignore lists: compiles a pattern, and matches it against a name or a path.
//!
//! A pattern is compiled to a sequence of tokens, split at its first and its last star. Each token denotes a set of
//! byte strings, so that matching is plain concatenation. It works on bytes without an encoding, and is case-sensitive.
//! Matching does not recurse and does not branch: it remembers one `*` and one `**` to resume from, which is enough
//! (see `run`), so that the time is polynomial for every pattern.
//!
//! Not done here: the syntax of a line (negation, anchoring, a trailing slash). See the crate's root.

/// Kind of text that a pattern is matched against.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Against {
    /// One component of a path: it has no slash, so `**` is equivalent to `*`.
    Name,
    /// Whole path: `*`, `?` and sets stop at slashes, `**` between slashes does not.
    Path,
}

/// Compiled pattern. The two shapes that make up most of a list can be looked up instead of matched.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Matches exactly this text.
    Literal(Box<[u8]>),
    /// Matches every name with this suffix (only for `Against::Name`).
    Ending(Box<[u8]>),
    Glob(Glob),
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Glob {
    /// Tokens before the first star and after the last one: each matches one byte, so they need no search.
    head: Box<[Token]>,
    middle: Box<[Token]>,
    tail: Box<[Token]>,
    /// Length of the shortest text that can match. This also avoids walking a pattern of a megabyte.
    least: usize,
    /// Bytes that must occur, as returned by `byte_bits`.
    needed: u64,
}

#[derive(Debug, PartialEq, Eq)]
enum Token {
    Byte(u8),
    /// `?`: one byte, not a slash.
    Any,
    /// `[..]`: one byte of the set, which never holds the slash.
    Set(Box<ByteSet>),
    /// `*`: any bytes, none of them a slash.
    Star,
    /// `**` at the end: any bytes at all.
    Deep,
    /// `**/`: nothing, or any bytes that end in a slash.
    DeepSlash,
}

/// Number of steps after which a match is given up. Only contrived patterns against paths of thousands of bytes come
/// near.
const STEPS: usize = 1 << 20;

/// Compiles a pattern without NUL bytes. Returns `None` if no text can match it: a set that is not closed or names an
/// unknown class, or a trailing backslash.
pub(crate) fn compile(pattern: &[u8], against: Against) -> Option<Shape> {
    // Most patterns of a list are a name, or a star and the end of one.
    if !pattern.iter().any(is_special) {
        return Some(Shape::Literal(pattern.into()));
    }
    if let (Against::Name, Some(ending)) = (against, pattern.strip_prefix(b"*"))
        && !ending.iter().any(is_special)
    {
        return Some(Shape::Ending(ending.into()));
    }
    let mut head = tokens(pattern, against)?;
    if let Some(literal) = literal(&head) {
        return Some(Shape::Literal(literal));
    }
    let needed = head.iter().filter_map(Token::byte).collect::<Vec<_>>();
    let needed = byte_bits(&needed);
    let least = head.iter().filter(|t| t.is_single()).count();
    let before = head.iter().take_while(|t| t.is_single()).count();
    let mut middle = head.split_off(before);
    let behind = middle.iter().rev().take_while(|t| t.is_single()).count();
    let tail = middle.split_off(middle.len() - behind);
    if against == Against::Name
        && head.is_empty()
        && matches!(middle[..], [Token::Star])
        && let Some(ending) = literal(&tail)
    {
        return Some(Shape::Ending(ending));
    }
    Some(Shape::Glob(Glob { head: head.into(), middle: middle.into(), tail: tail.into(), least, needed }))
}

fn is_special(byte: &u8) -> bool {
    matches!(byte, b'*' | b'?' | b'[' | b'\\')
}

fn literal(tokens: &[Token]) -> Option<Box<[u8]>> {
    tokens.iter().map(Token::byte).collect()
}

/// Returns the set of bytes in a text, for `Glob::may_match`. Some bytes share a bit: letters with their other case,
/// but not with digits or dots, because the bits would hardly tell two typical names apart.
pub(crate) fn byte_bits(text: &[u8]) -> u64 {
    text.iter().fold(0, |bits, byte| bits | bit_of(*byte))
}

fn bit_of(byte: u8) -> u64 {
    let letter = byte >> 6 & 1;
    1 << (byte & (63 >> letter))
}

fn tokens(pattern: &[u8], against: Against) -> Option<Vec<Token>> {
    let first_special = pattern.iter().position(is_special).unwrap_or(pattern.len());
    let mut tokens = Vec::new();
    let mut at = 0;
    while let Some(&byte) = pattern.get(at) {
        let begin = at;
        at += 1;
        match byte {
            b'\\' => {
                tokens.push(Token::Byte(*pattern.get(at)?));
                at += 1;
            }
            b'?' => tokens.push(Token::Any),
            b'[' => {
                let (set, next) = parse_set(pattern, at)?;
                tokens.push(Token::Set(Box::new(set)));
                at = next;
            }
            b'*' => {
                at += pattern[at..].iter().take_while(|b| **b == b'*').count();
                // By its documentation, `**` is special between slashes only. But git compares the literal prefix of a
                // pattern separately and never looks back into it, so `a**/b` is `a` followed by a real `**/`.
                let opened = begin == first_special || pattern[begin - 1] == b'/';
                let rest = &pattern[at..];
                if against == Against::Name || at - begin < 2 || !opened {
                    tokens.push(Token::Star);
                } else if rest.starts_with(b"/") {
                    tokens.push(Token::DeepSlash);
                    at += 1;
                } else if rest.is_empty() || rest.starts_with(b"\\/") {
                    // Before an escaped slash git requires that slash to be present: `**\/a` does not match `a`.
                    tokens.push(Token::Deep);
                } else {
                    tokens.push(Token::Star);
                }
            }
            _ => tokens.push(Token::Byte(byte)),
        }
    }
    Some(tokens)
}

/// Parses a set after its `[`. Returns it and the index after its `]`.
fn parse_set(pattern: &[u8], mut at: usize) -> Option<(ByteSet, usize)> {
    let negated = matches!(pattern.get(at), Some(b'!' | b'^'));
    at += usize::from(negated);
    let begin = at;
    let mut set = ByteSet::default();
    // Last byte read, if a `-` would make it the start of a range: it would not after a range or a class.
    let mut low = None;
    loop {
        let byte = *pattern.get(at)?;
        let next = pattern.get(at + 1).copied();
        at += 1;
        match (byte, low) {
            (b']', _) if at - 1 != begin => break,
            (b'-', Some(from)) if next.is_some_and(|b| b != b']') => {
                at += usize::from(next == Some(b'\\'));
                let to = *pattern.get(at)?;
                at += 1;
                (from..=to).for_each(|b| set.insert(b));
                low = None;
                continue;
            }
            (b'[', _) if next == Some(b':') => {
                let name = &pattern[at + 1..];
                let name = &name[..name.iter().position(|b| *b == b']')?];
                if let Some(class) = name.strip_suffix(b":") {
                    let member = class_member(class)?;
                    (0..=u8::MAX).filter(|b| member(*b)).for_each(|b| set.insert(b));
                    at += name.len() + 2;
                    low = None;
                    continue;
                }
                low = Some(byte);
            }
            (b'\\', _) => {
                low = Some(next?);
                at += 1;
            }
            _ => low = Some(byte),
        }
        if let Some(b) = low {
            set.insert(b);
        }
    }
    if negated {
        set.0.iter_mut().for_each(|word| *word = !*word);
    }
    set.remove(b'/');
    Some((set, at))
}

fn class_member(name: &[u8]) -> Option<fn(u8) -> bool> {
    Some(match name {
        b"alnum" => |b| b.is_ascii_alphanumeric(),
        b"alpha" => |b| b.is_ascii_alphabetic(),
        b"blank" => |b| matches!(b, b' ' | b'\t'),
        b"cntrl" => |b| b.is_ascii_control(),
        b"digit" => |b| b.is_ascii_digit(),
        b"graph" => |b| b.is_ascii_graphic(),
        b"lower" => |b| b.is_ascii_lowercase(),
        b"print" => |b| matches!(b, b' '..=b'~'),
        b"punct" => |b| b.is_ascii_punctuation(),
        // Unlike the C library, git's own table excludes vertical tab and form feed.
        b"space" => |b| matches!(b, b' ' | b'\t' | b'\n' | b'\r'),
        b"upper" => |b| b.is_ascii_uppercase(),
        b"xdigit" => |b| b.is_ascii_hexdigit(),
        _ => return None,
    })
}

impl Glob {
    /// Returns false if the bytes that occur in a text rule out a match.
    pub(crate) fn may_match(&self, bits: u64) -> bool {
        self.needed & !bits == 0
    }

    /// Returns true if the whole text matches, or `None` if that takes more than `STEPS` steps to find out.
    pub(crate) fn matches(&self, text: &[u8]) -> Option<bool> {
        // The length first: head and tail must not overlap in the text. Then byte by byte: nearly all globs fail at the
        // first one, and a call to compare memory would dominate.
        if text.len() < self.least {
            return Some(false);
        }
        let (text, end) = text.split_at(text.len() - self.tail.len());
        let (begin, text) = text.split_at(self.head.len());
        let fits = |(token, byte): (&Token, &u8)| token.takes(*byte);
        if !self.head.iter().zip(begin).all(fits) || !self.tail.iter().zip(end).rev().all(fits) {
            return Some(false);
        }
        match self.middle[..] {
            [] => Some(text.is_empty()),
            [Token::Star] => Some(!text.contains(&b'/')),
            [Token::Deep] => Some(true),
            _ => run(&self.middle, text),
        }
    }
}

/// Backtracks to the latest `*`, and if that has no room left to the latest `**`, never further back. An earlier one
/// could only move the tokens after it to the right, where less text is left, and everything that a later star can
/// reach from there it can also reach from further left. (For `*` this holds within one component; the end of the
/// component is fixed, so a star before a slash is finished at the slash.)
fn run(tokens: &[Token], text: &[u8]) -> Option<bool> {
    let (mut token, mut at) = (0, 0);
    let mut star = None;
    let mut deep = None;
    for _ in 0..STEPS {
        let fits = match tokens.get(token) {
            None if at == text.len() => return Some(true),
            None => false,
            Some(Token::Star) => {
                token += 1;
                star = Some((token, at));
                continue;
            }
            Some(Token::Deep | Token::DeepSlash) => {
                token += 1;
                deep = Some((token, at));
                star = None;
                continue;
            }
            Some(single) => text.get(at).is_some_and(|b| single.takes(*b)),
        };
        if fits {
            if text[at] == b'/' {
                star = None;
            }
            token += 1;
            at += 1;
        } else if let Some((after, from)) = star
            && text.get(from).is_some_and(|b| *b != b'/')
        {
            (token, at) = (after, from + 1);
            star = Some((token, at));
        } else if let Some((after, from)) = deep {
            let skip = match tokens[after - 1] {
                Token::DeepSlash => text[from..].iter().position(|b| *b == b'/'),
                _ => (from < text.len()).then_some(0),
            };
            let Some(skip) = skip else {
                return Some(false);
            };
            (token, at) = (after, from + skip + 1);
            deep = Some((token, at));
            star = None;
        } else {
            return Some(false);
        }
    }
    None
}

impl Token {
    fn byte(&self) -> Option<u8> {
        if let Token::Byte(b) = self { Some(*b) } else { None }
    }

    fn is_single(&self) -> bool {
        !matches!(self, Token::Star | Token::Deep | Token::DeepSlash)
    }

    fn takes(&self, byte: u8) -> bool {
        match self {
            Token::Byte(b) => *b == byte,
            Token::Any => byte != b'/',
            Token::Set(set) => set.contains(byte),
            Token::Star | Token::Deep | Token::DeepSlash => false,
        }
    }
}

#[derive(Debug, Default, PartialEq, Eq)]
struct ByteSet([u64; 4]);

impl ByteSet {
    fn insert(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn remove(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] &= !(1 << (byte & 63));
    }

    fn contains(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] >> (byte & 63) & 1 == 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str, against: Against) -> bool {
        match compile(pattern.as_bytes(), against) {
            None => false,
            Some(Shape::Literal(literal)) => *literal == *text.as_bytes(),
            Some(Shape::Ending(ending)) => text.as_bytes().ends_with(&ending),
            Some(Shape::Glob(glob)) => glob.matches(text.as_bytes()).expect("within the budget"),
        }
    }

    #[test]
    fn paths() {
        for (pattern, yes, no) in [
            ("a/*/c", &["a/b/c", "a/bb/c"][..], &["a/c", "a/b/b/c"][..]),
            ("a/**/c", &["a/c", "a/b/c", "a/b/b/c"], &["ac", "a/bc", "xa/c"]),
            ("a/**", &["a/b", "a/b/c"], &["a", "ab"]),
            ("**/a/b", &["a/b", "x/a/b", "x/y/a/b"], &["xa/b", "a/b/c"]),
            ("a/**b", &["a/b", "a/xb"], &["a/x/b"]),
            ("a**/b", &["ab", "a/b", "ax/b", "ax/y/b"], &["axb", "a/xb"]),
            ("[a]**/b", &["a/b", "ax/b"], &["ab", "ax/y/b"]),
            ("x/**\\/a", &["x/y/a"], &["x/a"]),
            ("**/b*c/**/d", &["bc/d", "x/bc/y/bxc/z/d"], &["b/c/d", "bc/xd"]),
            ("x/a?b", &["x/a.b"], &["x/a/b"]),
            ("x/a[^b]b", &["x/a.b"], &["x/a/b", "x/abb"]),
            ("x/*a*b/*c", &["x/aab/c", "x/ab.ab/cc"], &["x/a/b/c", "x/ab/x/c"]),
        ] {
            for text in yes {
                assert!(matches(pattern, text, Against::Path), "{pattern} must match {text}");
            }
            for text in no {
                assert!(!matches(pattern, text, Against::Path), "{pattern} must not match {text}");
            }
        }
    }

    #[test]
    fn sets() {
        for (pattern, yes, no) in [
            ("[]a]", "]a", "[b"),
            ("[!]a]", "b[", "]a"),
            ("[a-c-e]", "abc-e", "d"),
            ("[a-]", "a-", "b"),
            ("[\\]-a]", "]^_`a", "\\b["),
            ("[[:digit:]-z]", "0-z", "a"),
            ("[[:]", "[:", "]"),
            ("[c-a]", "c", "ab"),
            ("[[:nope:]a]", "", "a"),
            ("[[::]a]", "", "a:"),
            ("[a", "", "a["),
            ("a\\", "", "a\\"),
        ] {
            let hit = |c: char| matches(pattern, &c.to_string(), Against::Name);
            assert!(yes.chars().all(hit), "{pattern} must match each of {yes}");
            assert!(!no.chars().any(hit), "{pattern} must match none of {no}");
        }
    }

    #[test]
    fn hostile_patterns_end() {
        let text = "a".repeat(255);
        assert!(!matches(&("*a".repeat(120) + "*[b]"), &text, Against::Name));
        assert!(!matches(&"*a".repeat(100_000), &text, Against::Name));
        assert!(matches(&"*".repeat(100_000), &text, Against::Name));
        let text = "a/".repeat(2047) + "a";
        assert!(!matches(&("**/a/".repeat(1000) + "[b]"), &text, Against::Path));
        assert!(!matches(&("**/*a*/".repeat(1000) + "[b]"), &text, Against::Path));
    }

    #[test]
    fn bytes_needed() {
        let Some(Shape::Glob(glob)) = compile(b"*.so.[0-9]*", Against::Name) else {
            panic!("a glob");
        };
        assert!(glob.may_match(byte_bits(b"libso.so.6")));
        assert!(!glob.may_match(byte_bits(b"soso")));
        assert_eq!(glob.matches(b"a.so.b.so.1x"), Some(true));
        assert_eq!(glob.matches(b"a.so."), Some(false));
    }

    #[test]
    fn gives_up_rather_than_hang() {
        let pattern = "**/".to_owned() + &"a/".repeat(10_000) + "[b]*";
        let Some(Shape::Glob(glob)) = compile(pattern.as_bytes(), Against::Path) else {
            panic!("a glob");
        };
        assert_eq!(glob.matches("a/".repeat(30_000).as_bytes()), None);
    }
}
