//! Meaning of plain YAML scalars to the agents that read session records: YAML 1.1 as implemented by PyYAML, where
//! `yes` is true, `12:30:45` a number, `1e3` text and `2026-11-15` a date. Scalars are stored as they were written;
//! their meaning is computed only if it decides how to write or show them.

use jiff::civil;

/// Meaning of a plain scalar.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Meaning {
    Null,
    Bool(bool),
    /// Value; `None` if it has more than 127 bits.
    Int(Option<i128>),
    Float(f64),
    Time(Stamp),
    /// `<<`: merges the keys of another mapping.
    Merge,
    Text,
    /// PyYAML takes it for a typed value and then fails to convert it (`=`, the 45th of December): it could not read
    /// the whole file.
    Nonsense,
}

/// Date and time as written, with the zone if one is given.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Stamp {
    pub(super) at: civil::DateTime,
    pub(super) offset_secs: Option<i32>,
}

impl Stamp {
    /// Returns seconds since the Unix epoch, in the given zone or else the local one.
    pub(super) fn secs(self, local_offset_secs: i32) -> i64 {
        let as_utc = jiff::tz::Offset::UTC.to_timestamp(self.at).map_or(0, jiff::Timestamp::as_second);
        as_utc - i64::from(self.offset_secs.unwrap_or(local_offset_secs))
    }

    /// Parses a YAML timestamp or another form of ISO 8601.
    pub(super) fn parse(text: &str) -> Option<Self> {
        match meaning(text.trim()) {
            Meaning::Time(stamp) => Some(stamp),
            Meaning::Text => {
                let text = text.trim();
                if let Ok(instant) = text.parse::<jiff::Timestamp>() {
                    return Some(Self { at: jiff::tz::Offset::UTC.to_datetime(instant), offset_secs: Some(0) });
                }
                text.parse().ok().map(|at| Self { at, offset_secs: None })
            }
            _ => None,
        }
    }
}

/// Python refuses to parse longer numbers.
const DIGITS_MAX: usize = 4300;

/// Returns the meaning of text that is written as a plain scalar.
pub(super) fn meaning(text: &str) -> Meaning {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Meaning::Null,
        "yes" | "Yes" | "YES" | "true" | "True" | "TRUE" | "on" | "On" | "ON" => return Meaning::Bool(true),
        "no" | "No" | "NO" | "false" | "False" | "FALSE" | "off" | "Off" | "OFF" => return Meaning::Bool(false),
        "<<" => return Meaning::Merge,
        "=" => return Meaning::Nonsense,
        _ => {}
    }
    let looks_like_a_number = text.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    if !looks_like_a_number || !text.is_ascii() {
        return Meaning::Text;
    }
    int(text).or_else(|| float(text)).or_else(|| time(text)).unwrap_or(Meaning::Text)
}

/// Cursor over the text.
struct ScalarCursor<'a>(&'a str);

impl<'a> ScalarCursor<'a> {
    /// Consumes the longest run of matching characters, at most `max`.
    fn run(&mut self, max: usize, fits: impl Fn(char) -> bool) -> &'a str {
        let end = self.0.char_indices().take(max).find(|(_, c)| !fits(*c)).map(|(at, _)| at);
        let (piece, rest) = self.0.split_at(end.unwrap_or(self.0.len().min(max)));
        self.0 = rest;
        piece
    }

    fn digits(&mut self, count: std::ops::RangeInclusive<usize>) -> Option<&'a str> {
        Some(self.run(*count.end(), |c| c.is_ascii_digit())).filter(|digits| count.contains(&digits.len()))
    }

    fn eat(&mut self, piece: &str) -> bool {
        self.0.strip_prefix(piece).map(|rest| self.0 = rest).is_some()
    }

    /// Consumes `:5`, `:59`, ... at least once. Returns their sexagesimal value with `first` as leading digit.
    fn sixtieths(&mut self, first: f64) -> Option<f64> {
        let mut value = None;
        while self.0.starts_with(':') {
            self.eat(":");
            let digits = self.digits(1..=2)?;
            let part: u8 = digits.parse().ok().filter(|part| *part < 60)?;
            value = Some(value.unwrap_or(first) * 60.0 + f64::from(part));
        }
        value
    }
}

fn is_digit_or_line(c: char) -> bool {
    c.is_ascii_digit() || c == '_'
}

fn int(text: &str) -> Option<Meaning> {
    let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
    let sign = if text.starts_with('-') { -1 } else { 1 };
    let of_radix = |digits: &str, radix: u32| {
        let fits = !digits.is_empty() && digits.chars().all(|c| c == '_' || c.is_digit(radix));
        fits.then(|| match digits.replace('_', "") {
            bare if bare.is_empty() => Meaning::Nonsense,
            bare if radix == 10 && bare.len() > DIGITS_MAX => Meaning::Nonsense,
            bare => Meaning::Int(i128::from_str_radix(&bare, radix).ok().map(|value| sign * value)),
        })
    };
    match digits.as_bytes() {
        [b'0'] => Some(Meaning::Int(Some(0))),
        [b'0', b'b', ..] => of_radix(&digits[2..], 2),
        [b'0', b'x', ..] => of_radix(&digits[2..], 16),
        // The leading zero counts as a digit: `0_` is 0.
        [b'0', ..] => of_radix(digits, 8),
        [b'1'..=b'9', ..] => of_radix(digits, 10).or_else(|| sexagesimal(digits, sign)),
        _ => None,
    }
}

/// Parses `12:30:45`, which is 45045.
fn sexagesimal(digits: &str, sign: i128) -> Option<Meaning> {
    let mut parts = digits.split(':');
    let mut value = parts.next()?.replace('_', "").parse::<i128>().ok();
    let is_first_fit = digits.split(':').next()?.chars().all(is_digit_or_line);
    let mut count = 0;
    for part in parts {
        let part: i128 = part.parse().ok().filter(|value| part.len() <= 2 && (0..60).contains(value))?;
        value = value.and_then(|value| value.checked_mul(60)?.checked_add(part));
        count += 1;
    }
    (is_first_fit && count > 0).then_some(Meaning::Int(value.map(|value| sign * value)))
}

fn float(text: &str) -> Option<Meaning> {
    let (sign, bare) = match text.strip_prefix(['-', '+']) {
        Some(bare) => (if text.starts_with('-') { -1.0 } else { 1.0 }, bare),
        None => (1.0, text),
    };
    match bare {
        ".inf" | ".Inf" | ".INF" => return Some(Meaning::Float(sign * f64::INFINITY)),
        ".nan" | ".NaN" | ".NAN" if bare == text => return Some(Meaning::Float(f64::NAN)),
        _ => {}
    }
    let mut rest = ScalarCursor(bare);
    let whole = rest.run(usize::MAX, is_digit_or_line);
    let sixtieths = rest.sixtieths(whole.replace('_', "").parse().unwrap_or(0.0));
    if !rest.eat(".") || whole.starts_with('_') {
        return None;
    }
    let fraction = rest.run(usize::MAX, is_digit_or_line);
    // Without leading digits there must be no sign, and there must be digits after the point.
    if whole.is_empty() && (bare != text || !fraction.starts_with(|first: char| first.is_ascii_digit())) {
        return None;
    }
    if let Some(value) = sixtieths {
        let fraction: f64 = format!("0.{}0", fraction.replace('_', "")).parse().ok()?;
        return rest.0.is_empty().then_some(Meaning::Float(sign * (value + fraction)));
    }
    let exponent = rest.0;
    if !exponent.is_empty() {
        let digits = exponent.strip_prefix(['e', 'E'])?.strip_prefix(['-', '+'])?;
        if digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_digit()) {
            return None;
        }
    }
    let plain = format!("0{whole}.{fraction}0{exponent}").replace('_', "");
    plain.parse::<f64>().ok().map(|value| Meaning::Float(sign * value))
}

fn time(text: &str) -> Option<Meaning> {
    let mut rest = ScalarCursor(text);
    let year = rest.digits(4..=4)?;
    let month = rest.eat("-").then(|| rest.digits(1..=2))??;
    let day = rest.eat("-").then(|| rest.digits(1..=2))??;
    let date = (year.parse().ok()?, month.parse().ok()?, day.parse().ok()?);
    if rest.0.is_empty() {
        let is_padded = month.len() == 2 && day.len() == 2;
        return is_padded.then(|| stamp(date, (0, 0, 0, 0), None));
    }
    if !(rest.eat("T") || rest.eat("t")) && rest.run(usize::MAX, is_blank).is_empty() {
        return None;
    }
    let hour = rest.digits(1..=2)?;
    let minute = rest.eat(":").then(|| rest.digits(2..=2))??;
    let second = rest.eat(":").then(|| rest.digits(2..=2))??;
    let fraction = if rest.eat(".") { rest.run(usize::MAX, |c| c.is_ascii_digit()) } else { "" };
    let micros = format!("{fraction:0<6}").get(..6)?.parse::<i32>().ok()?;
    rest.run(usize::MAX, is_blank);
    let offset = if rest.0.is_empty() { None } else { Some(zone(&mut rest)?) };
    let clock = (hour.parse().ok()?, minute.parse().ok()?, second.parse().ok()?, micros * 1000);
    rest.0.is_empty().then(|| stamp(date, clock, offset))
}

fn is_blank(c: char) -> bool {
    c == ' ' || c == '\t'
}

fn zone(rest: &mut ScalarCursor<'_>) -> Option<i32> {
    if rest.eat("Z") {
        return Some(0);
    }
    let sign = if rest.eat("-") { -1 } else { rest.eat("+").then_some(1)? };
    let hours: i32 = rest.digits(1..=2)?.parse().ok()?;
    let minutes: i32 = if rest.eat(":") { rest.digits(2..=2)?.parse().ok()? } else { 0 };
    Some(sign * (hours * 3600 + minutes * 60))
}

fn stamp((year, month, day): (i16, i8, i8), (h, m, s, nanos): (i8, i8, i8, i32), offset: Option<i32>) -> Meaning {
    let is_zone = offset.is_none_or(|secs| secs.abs() < 24 * 3600);
    // Python's calendar begins with year 1.
    match civil::DateTime::new(year, month, day, h, m, s, nanos) {
        Ok(at) if is_zone && year > 0 => Meaning::Time(Stamp { at, offset_secs: offset }),
        _ => Meaning::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_scalar_means_what_pyyaml_takes_it_for() {
        let big = "1".repeat(50);
        let int = |value| Meaning::Int(Some(value));
        let table = [
            ("", Meaning::Null),
            ("~", Meaning::Null),
            ("nULL", Meaning::Text),
            ("Yes", Meaning::Bool(true)),
            ("oFF", Meaning::Text),
            ("y", Meaning::Text),
            ("0", int(0)),
            ("-0", int(0)),
            ("+1_000", int(1000)),
            ("017", int(15)),
            ("019", Meaning::Text),
            ("0_", int(0)),
            ("0x1F", int(31)),
            ("-0b101", int(-5)),
            ("0b_", Meaning::Nonsense),
            ("0o7", Meaning::Text),
            ("12:30:45", int(45045)),
            ("1:60", Meaning::Text),
            ("-1:1", int(-61)),
            (&big, Meaning::Int(None)),
            ("1.", Meaning::Float(1.0)),
            ("1_0.5_0", Meaning::Float(10.5)),
            (".5", Meaning::Float(0.5)),
            ("-.5", Meaning::Text),
            ("1e3", Meaning::Text),
            ("1.0e3", Meaning::Text),
            ("1.0e+3", Meaning::Float(1000.0)),
            ("1:30.5", Meaning::Float(90.5)),
            ("-.INF", Meaning::Float(f64::NEG_INFINITY)),
            ("+.nan", Meaning::Text),
            ("<<", Meaning::Merge),
            ("=", Meaning::Nonsense),
            ("2026-02-30", Meaning::Nonsense),
            ("2026-2-3", Meaning::Text),
            ("2026-02-03T10:00:00+24:00", Meaning::Nonsense),
            ("-", Meaning::Text),
            (".", Meaning::Text),
            ("+", Meaning::Text),
            ("1:", Meaning::Text),
            ("1é", Meaning::Text),
        ];
        for (text, expected) in table {
            assert_eq!(meaning(text), expected, "{text}");
        }
        assert!(matches!(meaning(".NaN"), Meaning::Float(value) if value.is_nan()));
        assert_eq!(meaning(&"1".repeat(DIGITS_MAX + 1)), Meaning::Nonsense);
    }

    #[test]
    fn a_time_is_read_in_every_form_that_others_write() {
        let secs = |text: &str| Stamp::parse(text).map(|stamp| stamp.secs(7200));
        let noon_utc = Some(1_763_208_000);
        for text in [
            "2025-11-15T14:00:00",
            "2025-11-15 14:00:00.123456",
            "2025-11-15T12:00:00Z",
            "2025-11-15t12:00:00 +0",
            "2025-11-15 13:30:00 +01:30",
            "2025-11-15T09:00:00-03",
            "20251115T140000",
            " 2025-11-15T14:00 ",
            "20251115T120000Z",
        ] {
            assert_eq!(secs(text), noon_utc, "{text}");
        }
        assert_eq!(secs("2025-11-15"), Some(1_763_157_600));
        for text in ["", "12", "noon", "2025-11-31", "2025-11-15T25:00:00"] {
            assert_eq!(secs(text), None, "{text}");
        }
    }
}
