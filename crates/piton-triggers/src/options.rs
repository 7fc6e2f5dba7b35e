//! Options of a command: letters, long names, and values by a table of the options that take one.

use super::word::Word;

/// Options of a program that take a value, attached or as the next word.
#[derive(Clone, Copy)]
pub(super) struct OptionTable {
    /// Letters.
    pub(super) short: &'static str,
    /// Names without dashes.
    pub(super) long: &'static [&'static str],
}

/// The words of a command, sorted.
#[derive(Default)]
pub(super) struct Options {
    letters: String,
    names: Vec<String>,
    /// Values, each with the letter or the name of its option.
    values: Vec<(String, Word)>,
    pub(super) operands: Vec<Word>,
    /// Number of operands before `--`.
    pub(super) before_dashes: Option<usize>,
}

impl Options {
    /// Sorts the arguments of a program. A word that may become an option is neither option nor operand before `--`.
    pub(super) fn read(args: &[Word], table: OptionTable) -> Self {
        let mut options = Self::default();
        let mut words = args.iter();
        while let Some(word) = words.next() {
            let text = word.full.as_str();
            if options.before_dashes.is_some() || !word.maybe_option() || text == "-" {
                options.operands.push(word.clone());
            } else if text == "--" {
                options.before_dashes = Some(options.operands.len());
            } else if let Some(long) = text.strip_prefix("--") {
                let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
                if let Some(option) = table.long.iter().find(|option| is_short_for(name, option)) {
                    let value = value.map(|value| rest_of(word, text.len() - value.len()));
                    let value = value.or_else(|| words.next().cloned());
                    options.values.extend(value.map(|value| ((*option).to_owned(), value)));
                }
                options.names.push(name.to_owned());
            } else {
                for (at, letter) in text.char_indices().skip(1) {
                    options.letters.push(letter);
                    if table.short.contains(letter) {
                        let rest = at + letter.len_utf8();
                        let attached = (rest < text.len()).then(|| rest_of(word, rest));
                        let value = attached.or_else(|| words.next().cloned());
                        options.values.extend(value.map(|value| (letter.to_string(), value)));
                        break;
                    }
                }
            }
        }
        options
    }

    /// Returns true if the option is given, as a letter or by its name or the beginning of it.
    pub(super) fn has(&self, short: char, long: &str) -> bool {
        self.letters.contains(short) || self.names.iter().any(|name| is_short_for(name, long))
    }

    /// Returns the values of an option, by its letter or name.
    pub(super) fn values<'a>(&'a self, short: &'a str, long: &'a str) -> impl Iterator<Item = &'a Word> {
        self.values.iter().filter(move |(option, _)| option == short || option == long).map(|(_, value)| value)
    }
}

/// Returns true if a name is the option, or an abbreviation of it.
fn is_short_for(name: &str, option: &str) -> bool {
    name == option || name.len() > 2 && option.starts_with(name)
}

/// Returns the part of a word after its first bytes.
fn rest_of(word: &Word, from: usize) -> Word {
    let part = |text: &str| text.get(from..).unwrap_or_default().to_owned();
    Word { text: part(&word.text), full: part(&word.full), tilde: false, splits: false, ..word.clone() }
}
