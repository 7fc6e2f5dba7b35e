//! Words of a command: the known part of the value, and the code inside.
//!
//! The parser's own parts of a word are not used: they stop at the second level, drop the text of arithmetic and do not
//! undo the quoting inside backticks. The word is read again from its source, and the parser only determines the end of
//! a substitution.

use super::parse::Parser;

/// Known part of a word before the shell expands it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Word {
    /// Value without quotes, up to the first unknown part.
    pub(super) text: String,
    /// Value with all unknown parts as they were written.
    pub(super) full: String,
    /// True if some part is unknown: an expansion, a pattern, a substitution.
    pub(super) open: bool,
    /// True if it may become an option or several words, because it starts with an expansion that is split.
    pub(super) splits: bool,
    /// True if it starts with an unquoted `~`.
    pub(super) tilde: bool,
    /// True if it is one process substitution and nothing else.
    pub(super) pipe: bool,
}

impl Word {
    /// Returns a word that is completely known.
    pub(super) fn exact(text: &str) -> Self {
        Self { text: text.into(), full: text.into(), ..Self::default() }
    }

    /// Returns a word that starts with `text` and continues in an unknown way.
    pub(super) fn starting(text: &str) -> Self {
        Self { text: text.into(), full: text.into(), open: true, ..Self::default() }
    }

    /// Returns the value if it is completely known.
    pub(super) fn known(&self) -> Option<&str> {
        (!self.open).then_some(self.text.as_str())
    }

    /// Returns true if its text has a subscript with code, which some builtins expand again.
    pub(super) fn hides_code(&self) -> bool {
        self.text.contains('[') && (self.text.contains("$(") || self.text.contains('`'))
    }

    /// Returns true if it is, or could turn out to be, an option.
    pub(super) fn maybe_option(&self) -> bool {
        self.text.starts_with('-') || self.splits
    }
}

/// Word with the code found in it.
#[derive(Default)]
pub(super) struct Read {
    pub(super) word: Word,
    /// Sources of the substitutions, each run in a subshell.
    pub(super) code: Vec<String>,
    /// True if shells may read it in more than one way, or if it has code that cannot be extracted.
    pub(super) odd: bool,
}

/// Reads a word as delimited by the parser.
pub(super) fn read_word(raw: &str, home: Option<&str>, parser: &mut Parser) -> Read {
    let mut reader = WordReader::new(raw, home, parser);
    reader.unquoted();
    reader.out.word.pipe = reader.pipe && reader.pieces == 1;
    reader.out
}

/// Reads a text in which only expansions are special: the body of a here-document, or arithmetic.
pub(super) fn read_expansions(raw: &str, parser: &mut Parser) -> Read {
    let mut reader = WordReader::new(raw, None, parser);
    while let Some(c) = reader.peek() {
        match c {
            '\\' => reader.at += 2,
            '$' => reader.dollar(true),
            '`' => reader.backtick(true),
            _ => reader.at += 1,
        }
    }
    reader.out
}

struct WordReader<'a> {
    chars: Vec<char>,
    at: usize,
    home: Option<&'a str>,
    parser: &'a mut Parser,
    out: Read,
    /// Nesting of `${...}` and arithmetic, whose text is not part of the value.
    mute: usize,
    /// Depth of `(` that belong to the word: arrays and extended patterns.
    parens: usize,
    /// Number of literal characters and expansions at the top level, and true if a process substitution is among them.
    pieces: usize,
    pipe: bool,
}

impl<'a> WordReader<'a> {
    fn new(raw: &str, home: Option<&'a str>, parser: &'a mut Parser) -> Self {
        let chars = raw.chars().collect();
        Self { chars, at: 0, home, parser, out: Read::default(), mute: 0, parens: 0, pieces: 0, pipe: false }
    }

    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn ahead(&self, by: usize) -> Option<char> {
        self.chars.get(self.at + by).copied()
    }

    fn slice(&self, from: usize, to: usize) -> String {
        self.chars.get(from..to.min(self.chars.len())).map(|c| c.iter().collect()).unwrap_or_default()
    }

    fn literal(&mut self, c: char) {
        if self.mute > 0 {
            return;
        }
        self.pieces += 1;
        self.out.word.full.push(c);
        if !self.out.word.open {
            self.out.word.text.push(c);
        }
    }

    /// Records that the source text since `from` has an unknown value.
    fn unknown(&mut self, from: usize, splits: bool) {
        if self.mute > 0 {
            return;
        }
        self.pieces += 1;
        let raw = self.slice(from, self.at);
        let word = &mut self.out.word;
        word.splits |= splits && word.text.is_empty();
        word.open = true;
        word.full.push_str(&raw);
    }

    fn give_up(&mut self) {
        self.out.odd = true;
        self.at = self.chars.len();
    }

    fn unquoted(&mut self) {
        self.out.word.tilde = self.peek() == Some('~');
        while let Some(c) = self.peek() {
            let from = self.at;
            match c {
                '\'' => self.single_quoted(),
                '"' => self.double_quoted(),
                '\\' => {
                    if let Some(next) = self.ahead(1) {
                        self.literal(next);
                    }
                    self.at += 2;
                }
                '$' => self.dollar(false),
                '`' => self.backtick(false),
                '~' if self.is_tilde_of_value() => {
                    self.at += 1;
                    self.home.into_iter().flat_map(str::chars).for_each(|c| self.literal(c));
                }
                '<' | '>' if self.ahead(1) == Some('(') => {
                    self.pipe = true;
                    self.substitution(true);
                }
                // `[` alone is a program.
                '[' if !self.chars[from..].contains(&']') => {
                    self.literal(c);
                    self.at += 1;
                }
                '*' | '?' | '[' => {
                    self.at += 1;
                    self.unknown(from, false);
                }
                '{' if self.is_brace_expansion() => {
                    self.at += 1;
                    self.unknown(from, true);
                }
                // The parser accepts these in a word only inside `a=(...)`, `@(...)` or a subscript.
                ' ' | '\t' | '\n' | ';' | '&' | '|' if self.parens == 0 => self.give_up(),
                _ => {
                    match c {
                        '(' => self.parens += 1,
                        ')' => self.parens = self.parens.saturating_sub(1),
                        _ => {}
                    }
                    self.literal(c);
                    self.at += 1;
                }
            }
        }
    }

    /// Returns true at the `~` of `NAME=~/x` or `NAME=(~/x)`.
    fn is_tilde_of_value(&self) -> bool {
        let is_known =
            !self.out.word.open && self.home.is_some() && matches!(self.ahead(1), None | Some('/' | ' ' | ')'));
        let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at));
        let is_value = match before {
            Some('=') => self.out.word.text.ends_with('='),
            Some('(' | ' ') => self.parens > 0,
            _ => false,
        };
        is_known && is_value
    }

    fn is_brace_expansion(&self) -> bool {
        let rest = &self.chars[self.at + 1..];
        let inner: String = rest.iter().take_while(|c| **c != '}').take(1000).collect();
        inner.contains(',') || inner.contains("..")
    }

    fn single_quoted(&mut self) {
        self.at += 1;
        while let Some(c) = self.peek() {
            self.at += 1;
            if c == '\'' {
                return;
            }
            self.literal(c);
        }
    }

    fn double_quoted(&mut self) {
        self.at += 1;
        // An empty string is a piece, too.
        self.pieces += usize::from(self.mute == 0);
        while let Some(c) = self.peek() {
            match c {
                '"' => {
                    self.at += 1;
                    return;
                }
                '\\' => {
                    let next = self.ahead(1);
                    if !next.is_some_and(|n| "$`\"\\\n".contains(n)) {
                        self.literal('\\');
                    }
                    if let Some(next) = next {
                        self.literal(next);
                    }
                    self.at += 2;
                }
                '$' => self.dollar(true),
                '`' => self.backtick(true),
                _ => {
                    self.literal(c);
                    self.at += 1;
                }
            }
        }
    }

    fn dollar(&mut self, quoted: bool) {
        let from = self.at;
        match self.ahead(1) {
            Some('(') if self.ahead(2) == Some('(') => self.arithmetic(),
            Some('(') => self.substitution(quoted),
            Some('{') => self.parameter(quoted),
            // The obsolete `$[...]`: shells do not document its syntax.
            Some('[') => self.give_up(),
            Some('\'') if !quoted => self.ansi_quoted(),
            Some('"') if !quoted => {
                self.at += 1;
                self.double_quoted();
            }
            Some(c) if c.is_ascii_alphabetic() || c == '_' => {
                self.at += 1;
                while self.peek().is_some_and(|c| c.is_ascii_alphanumeric() || c == '_') {
                    self.at += 1;
                }
                let name = self.slice(from + 1, self.at);
                self.variable(&name, from, !quoted);
            }
            Some(c) if c.is_ascii_digit() || "@*#?-$!".contains(c) => {
                self.at += 2;
                self.unknown(from, !quoted || c == '@');
            }
            _ => {
                self.literal('$');
                self.at += 1;
            }
        }
    }

    /// Handles a variable. Only the home directory has a known value, and `$PWD/` is the directory that the command
    /// runs in.
    fn variable(&mut self, name: &str, from: usize, splits: bool) {
        let is_known = !self.out.word.open && self.mute == 0;
        let at_start = is_known && self.out.word.text.is_empty();
        match (name, self.home) {
            ("HOME", Some(home)) if at_start || is_known && self.out.word.text.ends_with('=') => {
                home.chars().for_each(|c| self.literal(c));
            }
            ("PWD", _) if at_start && matches!(self.peek(), None | Some('/' | '"')) => self.literal('.'),
            _ => self.unknown(from, splits),
        }
    }

    fn ansi_quoted(&mut self) {
        let from = self.at;
        self.at += 2;
        let mut plain = String::new();
        let mut escaped = false;
        loop {
            match self.peek() {
                None => return self.give_up(),
                Some('\'') => break,
                Some('\\') => {
                    escaped = true;
                    self.at += 2;
                }
                Some(c) => {
                    plain.push(c);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        if escaped {
            // `\x72` may spell anything; the value counts as unknown.
            self.unknown(from, true);
        } else {
            plain.chars().for_each(|c| self.literal(c));
        }
    }

    /// Reads `${...}`, starting at the `$`.
    fn parameter(&mut self, quoted: bool) {
        let from = self.at;
        self.at += 2;
        // `${ command; }` of newer shells.
        if self.peek().is_none_or(|c| c.is_whitespace() || c == '|') {
            return self.give_up();
        }
        let inner = self.at;
        self.mute += 1;
        loop {
            match self.peek() {
                None => return self.give_up(),
                Some('}') => break,
                // In double quotes some shells take the quote as text and the parser does not.
                Some('\'') if quoted => return self.give_up(),
                Some('\'') => self.single_quoted(),
                Some('"') => self.double_quoted(),
                Some('\\') => self.at += 2,
                Some('$') => self.dollar(quoted),
                Some('`') => self.backtick(quoted),
                Some('<' | '>') if self.ahead(1) == Some('(') => return self.give_up(),
                Some(_) => self.at += 1,
            }
        }
        self.mute -= 1;
        let content = self.slice(inner, self.at);
        self.at += 1;
        // `${x@P}` expands the value as a prompt, including substitutions.
        if content.ends_with("@P") {
            return self.give_up();
        }
        let many = content.contains("[@]") || content.starts_with('@');
        self.variable(&content, from, !quoted || many);
    }

    /// Reads `$((...))`, starting at the `$`.
    fn arithmetic(&mut self) {
        let from = self.at;
        self.at += 3;
        self.mute += 1;
        let mut depth = 2;
        while depth > 0 {
            match self.peek() {
                None | Some('\'' | '"' | '\\') => return self.give_up(),
                Some('(') => depth += 1,
                Some(')') => {
                    depth -= 1;
                    // `$((a); b)` is a subshell in a substitution.
                    if depth == 1 && self.ahead(1) != Some(')') {
                        return self.give_up();
                    }
                }
                Some('$') => {
                    self.dollar(true);
                    continue;
                }
                Some('`') => {
                    self.backtick(true);
                    continue;
                }
                Some(_) => {}
            }
            self.at += 1;
        }
        self.mute -= 1;
        self.unknown(from, false);
    }

    fn backtick(&mut self, quoted: bool) {
        let from = self.at;
        self.at += 1;
        let mut body = String::new();
        loop {
            match self.peek() {
                None => return self.give_up(),
                Some('`') => break,
                Some('\\') => {
                    let next = self.ahead(1);
                    let undone = next.is_some_and(|n| "`\\$".contains(n) || (quoted && n == '"'));
                    if !undone {
                        body.push('\\');
                    }
                    body.extend(next);
                    self.at += 2;
                }
                Some(c) => {
                    body.push(c);
                    self.at += 1;
                }
            }
        }
        self.at += 1;
        // If a quote is left open, the shell and the parser disagree on the end.
        if ['\'', '"'].iter().any(|quote| body.matches(*quote).count() % 2 == 1) {
            return self.give_up();
        }
        self.output_of(body, from, !quoted);
    }

    /// Handles the output of a command. That of `pwd` is the same as `$PWD`.
    fn output_of(&mut self, body: String, from: usize, splits: bool) {
        match body.trim() {
            "pwd" => self.variable("PWD", from, splits),
            _ => {
                self.out.code.push(body);
                self.unknown(from, splits);
            }
        }
    }

    /// Reads `$(...)`, `<(...)` or `>(...)`, starting at its first character.
    fn substitution(&mut self, quoted: bool) {
        let from = self.at;
        let Some(end) = self.substitution_end() else { return self.give_up() };
        let body = self.slice(from + 2, end);
        self.at = end + 1;
        self.output_of(body, from, !quoted);
    }

    /// Returns the position of the closing `)` as the parser sees it. Brackets are counted first, which is right except
    /// for comments, here-documents and `case`; then each `)` is tried.
    fn substitution_end(&mut self) -> Option<usize> {
        let counted = self.counted_end();
        let closing = (self.at..self.chars.len()).filter(|at| self.chars[*at] == ')').take(200).collect::<Vec<_>>();
        counted.into_iter().chain(closing).find(|end| {
            let source = self.slice(self.at, end + 1);
            self.parser.is_one_substitution(&source)
        })
    }

    fn counted_end(&self) -> Option<usize> {
        let mut depth = 0usize;
        let mut quote = None;
        let mut at = self.at;
        while let Some(c) = self.chars.get(at) {
            match (c, quote) {
                ('\\', None | Some('"')) => at += 1,
                (c, Some(q)) if *c == q => quote = None,
                ('\'' | '"', None) => quote = Some(*c),
                ('(', None) => depth += 1,
                (')', None) => {
                    depth = depth.saturating_sub(1);
                    if depth == 0 {
                        return Some(at);
                    }
                }
                _ => {}
            }
            at += 1;
        }
        None
    }
}
