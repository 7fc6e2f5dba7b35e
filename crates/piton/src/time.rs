//! Points in time, as plain data. The library has no clock: the caller passes the time in.

use std::fmt;

/// Point in time, with the time zone of the observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Seconds since the Unix epoch, in UTC.
    pub secs: i64,
    /// Nanoseconds after that.
    pub nanos: u32,
    /// Offset of local time from UTC in seconds, positive if ahead.
    pub offset_secs: i32,
}

impl Moment {
    /// Returns fractional seconds, the form used in project records.
    pub fn as_secs_f64(self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "microseconds are exact for the next 200 years")]
        let secs = self.secs as f64;
        secs + f64::from(self.nanos) / 1e9
    }

    /// Returns nanoseconds since the Unix epoch, for comparison with the times of files.
    pub(crate) fn as_nanos(self) -> i128 {
        i128::from(self.secs) * 1_000_000_000 + i128::from(self.nanos)
    }

    /// Returns the zone as git writes it: `+0130`.
    pub(crate) fn git_offset(self) -> String {
        let minutes = self.offset_secs.abs() / 60;
        let sign = if self.offset_secs < 0 { '-' } else { '+' };
        format!("{sign}{:02}{:02}", minutes / 60, minutes % 60)
    }

    /// Parses the result of [`Self::git_offset`]. Everything else, including an impossible zone, is UTC: it must not
    /// hide a checkpoint, and the time must remain displayable.
    pub(crate) fn parse_git_offset(text: &[u8]) -> i32 {
        let digits: Option<Vec<i32>> = text
            .get(1..)
            .unwrap_or_default()
            .iter()
            .map(|digit| digit.is_ascii_digit().then(|| i32::from(digit - b'0')))
            .collect();
        match (text.first(), digits.as_deref()) {
            (Some(sign @ (b'+' | b'-')), Some([h1, h2, m1, m2])) if h1 * 10 + h2 < 24 && *m1 < 6 => {
                let secs = (h1 * 10 + h2) * 3600 + (m1 * 10 + m2) * 60;
                if *sign == b'-' { -secs } else { secs }
            }
            _ => 0,
        }
    }

    /// Parses the output of [`fmt::Display`].
    pub fn parse(text: &str) -> Option<Self> {
        let stamp: jiff::Timestamp = text.parse().ok()?;
        let zone = text.get(text.len().checked_sub(6)?..)?.replace(':', "");
        Some(Self { secs: stamp.as_second(), nanos: 0, offset_secs: Self::parse_git_offset(zone.as_bytes()) })
    }

    fn civil(self) -> jiff::civil::DateTime {
        // Clamp times that are out of range; no clock shows them.
        let offset = jiff::tz::Offset::from_seconds(self.offset_secs).unwrap_or(jiff::tz::Offset::UTC);
        let limits = (jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
        let stamp = jiff::Timestamp::from_second(self.secs.clamp(limits.0, limits.1)).unwrap_or_default();
        offset.to_datetime(stamp)
    }

    /// Returns `YYYYmmdd-HHMMSS`, for names of archives.
    pub fn stamp(self) -> String {
        self.civil().strftime("%Y%m%d-%H%M%S").to_string()
    }

    /// Parses the output of [`Self::stamp`] at the start of a text. Returns seconds in the zone in which it was
    /// written.
    pub(crate) fn parse_stamp(text: &str) -> Option<i64> {
        let at = jiff::civil::DateTime::strptime("%Y%m%d-%H%M%S", text.get(..15)?).ok()?;
        jiff::tz::Offset::UTC.to_timestamp(at).ok().map(jiff::Timestamp::as_second)
    }

    /// Returns seconds since the Unix epoch in local time, for comparison with [`Self::parse_stamp`].
    pub(crate) fn local_secs(self) -> i64 {
        self.secs.saturating_add(i64::from(self.offset_secs))
    }

    /// Returns `YYYY-mm-ddTHH:MM:SS.ffffff` without a zone, the form used in session records. Their other readers
    /// cannot compare a time with a zone to one without.
    pub fn iso(self) -> String {
        format!("{}.{:06}", self.civil().strftime("%Y-%m-%dT%H:%M:%S"), self.nanos / 1000)
    }

    /// Returns `YYYY-mm-dd HH:MM`, for display.
    pub fn date_and_time(self) -> String {
        self.civil().strftime("%Y-%m-%d %H:%M").to_string()
    }
}

/// Formats as RFC 3339, to the second.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.git_offset();
        let (hours, minutes) = offset.split_at(3);
        write!(f, "{}{hours}:{minutes}", self.civil().strftime("%Y-%m-%dT%H:%M:%S"))
    }
}

/// A [`Moment`] in records: three keys.
pub(crate) mod parts {
    use serde::de::{Deserialize, Deserializer, Error as _};
    use serde::ser::{Serialize, Serializer};

    use super::Moment;

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Parts {
        secs: i64,
        nanos: u32,
        offset_secs: i32,
    }

    pub(crate) fn serialize<S: Serializer>(moment: &Moment, to: S) -> Result<S::Ok, S::Error> {
        let Moment { secs, nanos, offset_secs } = *moment;
        Parts { secs, nanos, offset_secs }.serialize(to)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Moment, D::Error> {
        let Parts { secs, nanos, offset_secs } = Parts::deserialize(from)?;
        if nanos >= 1_000_000_000 {
            return Err(D::Error::custom("a second or more"));
        }
        Ok(Moment { secs, nanos, offset_secs })
    }
}

crate::json::serialized_as_text! {
    Moment = "time, as in RFC 3339";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_in_its_own_zone() {
        let moment = Moment { secs: 1_773_635_760, nanos: 0, offset_secs: -(3 * 3600 + 1800) };
        assert_eq!(moment.to_string(), "2026-03-16T01:06:00-03:30");
        assert_eq!(Moment::parse(&moment.to_string()), Some(moment));
        assert_eq!(moment.date_and_time(), "2026-03-16 01:06");
        assert_eq!(moment.stamp(), "20260316-010600");
        assert_eq!(Moment::parse_git_offset(moment.git_offset().as_bytes()), moment.offset_secs);
    }

    #[test]
    fn a_strange_zone_or_time_is_shown_and_does_not_panic() {
        for text in [&b""[..], b"+", b"abcde", b"+1", b"\xff\xff", b"+99999", b"+9999", b"+2400", b"-0060"] {
            assert_eq!(Moment::parse_git_offset(text), 0);
        }
        for secs in [i64::MIN, i64::MAX] {
            let moment = Moment { secs, nanos: 0, offset_secs: i32::MAX };
            assert!(!moment.to_string().is_empty());
        }
    }
}
