//! Decides which rows of a list stay, by their times.
//!
//! The result does not depend on how often the rule is applied: a row that is dropped would not be kept later either,
//! because the newer row of the same hour is also a row of the same day.

use std::collections::HashSet;

use crate::settings::MaxSnapshots;
use crate::time::Moment;

/// Number of rows that stay whatever their age, if the limit is `auto`.
pub(crate) const ROWS_AUTO: u64 = 20;

const HOUR_SECS: i64 = 3600;
const DAY_SECS: i64 = 24 * HOUR_SECS;
/// Age up to which one row an hour stays.
const HOURLY_SECS_MAX: i64 = DAY_SECS;
/// Age up to which one row a day stays.
const DAILY_SECS_MAX: i64 = 30 * DAY_SECS;

/// Returns the number of rows that stay whatever their age.
pub(crate) fn newest_rows(limit: MaxSnapshots) -> usize {
    let rows = match limit {
        MaxSnapshots::Auto => ROWS_AUTO,
        MaxSnapshots::Rows(rows) => rows.max(1),
    };
    usize::try_from(rows).unwrap_or(usize::MAX)
}

/// Returns true for each row of a list, newest first, that stays. With `auto`, these are the newest ones, the first
/// listed row of each hour of a day, and that of each day of a month, by the local time of the row.
pub(crate) fn rows_kept(times: &[Moment], limit: MaxSnapshots, now: Moment) -> Vec<bool> {
    let newest = newest_rows(limit);
    let (mut hours, mut days) = (HashSet::new(), HashSet::new());
    let is_kept = |(at, time): (usize, &Moment)| {
        let is_first_of_hour = hours.insert(time.local_secs().div_euclid(HOUR_SECS));
        let is_first_of_day = days.insert(time.local_secs().div_euclid(DAY_SECS));
        let age_secs = now.secs.saturating_sub(time.secs);
        let is_hourly = is_first_of_hour && age_secs <= HOURLY_SECS_MAX;
        let is_daily = is_first_of_day && age_secs <= DAILY_SECS_MAX;
        at < newest || limit == MaxSnapshots::Auto && (is_hourly || is_daily)
    };
    times.iter().enumerate().map(is_kept).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(secs: i64) -> Moment {
        Moment { secs, nanos: 0, offset_secs: 0 }
    }

    /// Returns the ages in minutes of the rows that stay beyond the newest 20.
    fn thinned(now_secs: i64, ages_mins: impl Iterator<Item = i64>) -> Vec<i64> {
        let newest = (0..20).map(|_| at(now_secs));
        let times: Vec<_> = newest.chain(ages_mins.map(|mins| at(now_secs - mins * 60))).collect();
        let kept = rows_kept(&times, MaxSnapshots::Auto, at(now_secs));
        assert!(kept[..20].iter().all(|kept| *kept));
        (20..times.len()).filter(|at| kept[*at]).map(|at| (now_secs - times[at].secs) / 60).collect()
    }

    #[test]
    fn one_row_an_hour_stays_for_a_day_and_one_a_day_for_thirty_days() {
        let noon = 20_000 * DAY_SECS + DAY_SECS / 2;
        // The newest row of this hour is among the newest 20.
        assert_eq!(thinned(noon, [0, 1, 10, 61, 62, 119, 121].into_iter()), [1, 61, 121]);
        let every_hour: Vec<_> = thinned(noon + 60, (0..24 * 40).map(|hour| hour * 60 + 2));
        // 24 hours, then the last hour of each day up to the age of 30 days.
        assert_eq!(every_hour.len(), 24 + 29);
        assert_eq!(every_hour[23], 23 * 60 + 2);
        assert_eq!(every_hour[24] % (24 * 60), 12 * 60 + 2, "{every_hour:?}");
        assert!(every_hour.last().is_some_and(|mins| *mins <= 30 * 24 * 60));
    }

    #[test]
    fn hours_and_days_are_those_of_the_place_where_a_row_was_taken() {
        let midnight = 20_000 * DAY_SECS;
        let east = |secs| Moment { offset_secs: 2 * 3600, ..at(secs) };
        let now = at(midnight + 3 * DAY_SECS);
        let newest = [now; 20];
        let kept = |rows: [Moment; 2]| {
            let times: Vec<_> = newest.iter().chain(&rows).copied().collect();
            rows_kept(&times, MaxSnapshots::Auto, now)[20..].to_vec()
        };
        // Two in the morning in the east is another day than eleven in the evening.
        assert_eq!(kept([at(midnight), at(midnight - 3600)]), [true, true]);
        assert_eq!(kept([east(midnight), east(midnight - 3600)]), [true, false]);
    }

    #[test]
    fn a_number_is_a_ceiling_and_nothing_is_thinned() {
        let times: Vec<_> = (0..50).map(|hour| at(1_700_000_000 - hour * HOUR_SECS)).collect();
        for rows in [0_u64, 1, 3, 49, 50, 51] {
            let kept = rows_kept(&times, rows.into(), times[0]).into_iter().filter(|kept| *kept).count();
            assert_eq!(kept, usize::try_from(rows.clamp(1, 50)).expect("few"), "{rows}");
        }
    }
}
