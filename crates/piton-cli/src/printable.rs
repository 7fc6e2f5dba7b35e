//! Text that is safe to print on a terminal.

/// Returns true if a character affects a terminal other than by being shown: control characters can move the cursor and
/// more, and bidirectional formatting can make a name look like another one.
pub(crate) fn misleads(character: char) -> bool {
    let turns_around =
        matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    turns_around || character.is_control() || matches!(character, '\u{2028}' | '\u{2029}')
}

/// Makes text from a store or a file name safe for a terminal: replaces line ends by spaces and misleading characters
/// by U+FFFD.
pub(crate) fn plain(text: &str) -> String {
    let shown = |character: char| match character {
        '\n' => ' ',
        other if misleads(other) => '\u{fffd}',
        other => other,
    };
    text.chars().map(shown).collect()
}
