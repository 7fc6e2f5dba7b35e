//! Fitting text to a terminal, by the columns that it takes there, not by bytes or characters.

use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// Returns the number of columns that the text takes. It must not contain colour codes.
pub(crate) fn columns(text: &str) -> usize {
    text.width()
}

/// Returns the beginning of the text, with `…` in place of the rest.
pub(crate) fn cut(text: &str, columns_max: usize) -> String {
    if columns(text) <= columns_max {
        return text.to_owned();
    }
    let start: String = what_fits(text.chars(), columns_max).collect();
    if columns_max == 0 { String::new() } else { format!("{}…", start.trim_end()) }
}

/// Returns the end of the text, with `…` in place of the beginning. The end of a path tells it from others.
pub(crate) fn cut_start(text: &str, columns_max: usize) -> String {
    if columns(text) <= columns_max {
        return text.to_owned();
    }
    let end: Vec<char> = what_fits(text.chars().rev(), columns_max).collect();
    if columns_max == 0 { String::new() } else { "…".chars().chain(end.into_iter().rev()).collect() }
}

/// Returns as many of the characters as fit while leaving a column for the `…`.
pub(crate) fn what_fits(characters: impl Iterator<Item = char>, columns_max: usize) -> impl Iterator<Item = char> {
    let mut taken = 0;
    characters.take_while(move |character| {
        taken += character.width().unwrap_or(0);
        taken < columns_max
    })
}

/// Returns the text, padded with spaces.
pub(crate) fn padded(text: &str, columns_min: usize) -> String {
    format!("{text}{}", " ".repeat(columns_min.saturating_sub(columns(text))))
}

/// Wraps the text at words into lines that begin with `indent`. A word that is too long gets a line of its own. Without
/// a limit, the result is one line.
pub(crate) fn wrapped(text: &str, indent: &str, columns_max: Option<usize>) -> String {
    let Some(columns_max) = columns_max else { return format!("{indent}{text}") };
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split(' ') {
        if !line.is_empty() && columns(indent) + columns(&line) + 1 + columns(word) > columns_max {
            lines.push(format!("{indent}{line}"));
            line = String::new();
        } else if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(format!("{indent}{line}"));
    lines.join("\n")
}

/// Formats a count and a noun: `1 file`, `2 files`. The plural is formed with `s`.
pub(crate) fn counted(count: impl TryInto<u64>, noun: &str) -> String {
    let count = count.try_into().unwrap_or(u64::MAX);
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", piton::grouped(count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_by_the_columns_that_it_takes() {
        assert_eq!(cut("before patch", 12), "before patch");
        assert_eq!(cut("before patch", 9), "before p…");
        assert_eq!(cut("before patch", 8), "before…", "no space before what is missing");
        assert_eq!(cut("変更前のファイル", 8), "変更前…", "each of them takes two columns");
        assert_eq!(cut("e\u{301}tude", 3), "e\u{301}t…", "an accent takes none");
        assert_eq!((cut("abc", 1), cut("abc", 0)), ("…".to_owned(), String::new()));
        assert_eq!(cut_start("/home/you/code", 6), "…/code");
        assert_eq!(cut_start("/home/変更前", 6), "…更前", "a half character is none");
        for text in ["before patch", "変更前のファイル", "e\u{301}tude", "a変b更c前d"] {
            for columns_max in 0..20 {
                assert!(columns(&cut(text, columns_max)) <= columns_max, "{text} {columns_max}");
                assert!(columns(&cut_start(text, columns_max)) <= columns_max, "{text} {columns_max}");
            }
        }
    }

    #[test]
    fn columns_line_up_whatever_the_characters() {
        assert_eq!(padded("変更", 6), "変更  ");
        assert_eq!(padded("abcdef", 3), "abcdef");
    }

    #[test]
    fn lines_are_broken_between_words() {
        assert_eq!(wrapped("one two three", "  ", Some(9)), "  one two\n  three");
        assert_eq!(wrapped("averyverylongword x", "", Some(5)), "averyverylongword\nx");
        assert_eq!(wrapped("one two three", "  ", None), "  one two three");
    }
}
