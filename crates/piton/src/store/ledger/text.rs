//! The part of a prompt that is stored in the ledger, and commands without the secrets in them.

use crate::settings::PromptText;

/// Longest `short` text, in characters.
const SHORT_CHARS_MAX: usize = 120;
/// Longest `full` text, in characters: a line of the ledger is written at once.
const FULL_CHARS_MAX: usize = 16_000;
/// Length from which a run of letters and digits counts as a key, if it has a digit.
const KEY_CHARS_MIN: usize = 24;
/// Length from which a word that starts with a key prefix counts as a key.
const PREFIXED_KEY_CHARS_MIN: usize = 12;
/// Length from which a value after a name such as `password` is masked.
const NAMED_VALUE_CHARS_MIN: usize = 4;
/// Replaces a value that is not stored.
const MASK: &str = "***";
/// Prefixes of the keys that services issue.
const KEY_PREFIXES: [&str; 18] = [
    "sk-",
    "sk_",
    "pk_",
    "rk_",
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "glpat-",
    "xoxb-",
    "xoxp-",
    "xoxa-",
    "AKIA",
    "ASIA",
    "AIza",
    "eyJ",
];
/// Names of secret values.
const SECRET_NAMES: [&str; 13] = [
    "password",
    "passwd",
    "passphrase",
    "secret",
    "token",
    "apikey",
    "api_key",
    "api-key",
    "bearer",
    "secret_key",
    "access_key",
    "private_key",
    "_pwd",
];

/// Returns the text of a prompt to store; `None` if there is none.
pub(crate) fn stored_prompt(prompt: &str, amount: PromptText) -> Option<String> {
    let prompt = prompt.trim();
    let text = match amount {
        PromptText::None => return None,
        PromptText::Full => cut(prompt, FULL_CHARS_MAX),
        // Masked before it is cut: the beginning of a key is part of it.
        PromptText::Short => cut(&masked(prompt.lines().next().unwrap_or_default().trim_end()), SHORT_CHARS_MAX),
    };
    (!text.is_empty()).then_some(text)
}

/// Returns a command with `***` in place of every value that looks like a key. A bare word that looks like a hash may be
/// the name of a file, and stays.
#[must_use]
pub fn without_secrets(command: &str) -> String {
    masked_if(command, |word| !is_hash(word))
}

/// Returns true if every part of a word that is as long as a key is a hexadecimal number.
fn is_hash(word: &str) -> bool {
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    let may_be_key = word.contains(['=', ':']) || KEY_PREFIXES.iter().any(|prefix| bare.starts_with(prefix));
    let mut long = bare.split(['/', '.', '-', '_']).filter(|part| part.len() >= KEY_CHARS_MIN);
    !may_be_key && bare.len() >= KEY_CHARS_MIN && long.all(|part| part.chars().all(|c| c.is_ascii_hexdigit()))
}

fn cut(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        None => text.to_owned(),
        Some(_) => text.chars().take(chars_max - 1).chain(['…']).collect(),
    }
}

/// Returns the text with `***` in place of every value that looks like a key.
fn masked(text: &str) -> String {
    masked_if(text, |_| true)
}

/// Like [`masked`], but leaves words for which `may_mask` returns false unless a name announces a secret.
fn masked_if(text: &str, may_mask: impl Fn(&str) -> bool) -> String {
    let mut out = String::new();
    let mut is_announced = false;
    for piece in text.split_inclusive(char::is_whitespace) {
        let word = piece.trim_end();
        let space = &piece[word.len()..];
        let is_left = !is_announced && !may_mask(word);
        let shown = if is_left { word.to_owned() } else { masked_word(word, is_announced) };
        // `password: x`, `Bearer x`, `the password is x`: the value is the next word.
        is_announced = match word.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase().as_str() {
            "is" | "=" | "" => is_announced,
            name => {
                shown == word && (announces(name) && (word.ends_with([':', '=']) || name == "bearer" || is_bare(word)))
            }
        };
        out.push_str(&shown);
        out.push_str(space);
    }
    out
}

/// Returns true if a word consists of letters, digits, `_` and `-` only, so that `is x` may follow the name of a
/// secret.
fn is_bare(word: &str) -> bool {
    word.chars().all(|c| c.is_alphanumeric() || "_-".contains(c))
}

fn announces(name: &str) -> bool {
    SECRET_NAMES.iter().any(|secret| name.ends_with(secret))
}

fn masked_word(word: &str, is_announced: bool) -> String {
    // `name=value`, `name:value`, and `user:password@host` in a URL.
    if let Some((scheme, rest)) = word.split_once("://")
        && let Some((user, host)) = rest.split_once('@')
        && let Some((name, _)) = user.split_once(':')
    {
        return format!("{scheme}://{name}:{MASK}@{host}");
    }
    if let Some(at) = word.find(['=', ':']) {
        let (name, value) = (&word[..at], &word[at + 1..]);
        let bare = value.trim_matches(['"', '\'', ',', ';', ')', '`']);
        let has_name = announces(&name.trim_matches(|c: char| !c.is_alphanumeric()).to_ascii_lowercase());
        if (has_name && bare.chars().count() >= NAMED_VALUE_CHARS_MIN) || is_key(bare) {
            return format!("{}{}", &word[..=at], value.replace(bare, MASK));
        }
    }
    let bare = word.trim_matches(|c: char| !c.is_alphanumeric());
    let is_value =
        is_announced && bare.chars().count() >= NAMED_VALUE_CHARS_MIN && bare.contains(|c: char| !c.is_alphabetic());
    if !bare.is_empty() && (is_value || is_key(bare)) { word.replace(bare, MASK) } else { word.to_owned() }
}

fn is_key(word: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "_-+/=.".contains(c);
    let has_digit = word.contains(|c: char| c.is_ascii_digit());
    let has_capital = word.contains(|c: char| c.is_ascii_uppercase());
    if KEY_PREFIXES.iter().any(|prefix| word.starts_with(prefix))
        && word.len() >= PREFIXED_KEY_CHARS_MIN
        && (has_digit || has_capital)
    {
        return true;
    }
    // Paths and names in prompts are long, too: they have dots and slashes, or no digits.
    let longest = word.split(['/', '.', '-', '_']).map(str::len).max().unwrap_or(0);
    word.chars().all(is_part)
        && has_digit
        && longest >= KEY_CHARS_MIN
        && word.contains(|c: char| c.is_ascii_alphabetic())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_text_is_the_first_line_with_keys_masked() {
        let short = |prompt: &str| stored_prompt(prompt, PromptText::Short).unwrap_or_default();
        for plain in [
            "add tests for the parser",
            "rename crates/piton-cli/src/hook/decode_tests.rs to tests2.rs",
            "what is a token? is the password field checked?",
            "why does the password check fail here",
            "look at https://example.org/a/b?x=1 and fix #123",
            "set timeout=300 and retries: 5",
        ] {
            assert_eq!(short(plain), plain);
        }
        for (prompt, stored) in [
            ("  first line \nsecond", "first line"),
            ("use sk-ant-REDACTED now", "use *** now"),
            ("key AKIAIOSFODNN7EXAMPLE!", "key ***!"),
            ("export OPENAI_API_KEY=abcd1234", "export OPENAI_API_KEY=***"),
            ("the password is hunter2, remember", "the password is ***, remember"),
            ("password: hunter2", "password: ***"),
            ("curl -H 'Authorization: Bearer abc.def.123'", "curl -H 'Authorization: Bearer ***'"),
            ("clone https://me:s3cret@host/x", "clone https://me:***@host/x"),
            ("hash 0123456789abcdef0123456789abcdef", "hash ***"),
        ] {
            assert_eq!(short(prompt), stored, "{prompt}");
        }
    }

    #[test]
    fn a_command_shows_no_secrets() {
        for plain in
            ["rm -rf build/0123456789abcdef0123456789abcdef", "git reset --hard HEAD~1", "rm \"$TOKEN/x\" token"]
        {
            assert_eq!(without_secrets(plain), plain);
        }
        for (command, shown) in [
            ("rm -rf \"$X\" --token s3cr3t-tok", "rm -rf \"$X\" --token ***"),
            ("AWS_SECRET_ACCESS_KEY=abcd1234 ./x", "AWS_SECRET_ACCESS_KEY=*** ./x"),
            ("echo SECRET_KEY=hunter2 > .env", "echo SECRET_KEY=*** > .env"),
            ("git clone https://me:s3cret@host/x", "git clone https://me:***@host/x"),
            ("curl -H \"Authorization: Bearer abc.def.123\" -o x", "curl -H \"Authorization: Bearer ***\" -o x"),
        ] {
            assert_eq!(without_secrets(command), shown);
        }
    }

    #[test]
    fn a_long_line_is_cut_and_a_key_at_the_end_of_it_is_masked_first() {
        let long = stored_prompt(&"ä".repeat(200), PromptText::Short).expect("text");
        assert_eq!((long.chars().count(), long.chars().last()), (120, Some('…')));
        let key = format!("{} sk-ant-api03-AbCdEf0123456789AbCdEf0123456789", "x ".repeat(54));
        let stored = stored_prompt(&key, PromptText::Short).expect("text");
        assert!(stored.ends_with("***"), "{stored}");
    }

    #[test]
    fn full_is_as_typed_and_none_is_nothing() {
        let prompt = "first\nsecond password=hunter2";
        assert_eq!(stored_prompt(prompt, PromptText::Full).as_deref(), Some(prompt));
        assert_eq!(stored_prompt(prompt, PromptText::None), None);
        assert_eq!(stored_prompt(" \n ", PromptText::Full), None);
        assert_eq!(
            stored_prompt(&"x".repeat(100_000), PromptText::Full).map(|text| text.chars().count()),
            Some(16_000)
        );
    }
}
