//! A day in UTC.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use crate::store::author::milliseconds;

const MILLISECONDS: i64 = 86_400_000;

/// A day in UTC, in the notation of RFC 3339.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::store::UtcDay;
/// let time = SystemTime::UNIX_EPOCH + Duration::from_secs(951_782_400);
/// let day = UtcDay::of(time);
/// assert_eq!(day.to_string(), "2000-02-29");
/// assert_eq!(day.start(), Some(time));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct UtcDay(i64);

impl UtcDay {
    /// Returns the day that contains a time.
    pub fn of(time: SystemTime) -> Self {
        Self(milliseconds::of(time).div_euclid(MILLISECONDS))
    }

    /// Creates the day with this number, where 1970-01-01 is 0.
    pub fn from_days(days_since_1970: i64) -> Self {
        Self(days_since_1970)
    }

    /// Returns the number of the day, where 1970-01-01 is 0.
    pub fn days_since_1970(self) -> i64 {
        self.0
    }

    /// Returns the beginning of the day; `None` if [`SystemTime`] cannot represent it.
    pub fn start(self) -> Option<SystemTime> {
        let seconds = self.0.unsigned_abs().checked_mul(86_400)?;
        let distance = Duration::from_secs(seconds);
        match self.0 < 0 {
            true => UNIX_EPOCH.checked_sub(distance),
            false => UNIX_EPOCH.checked_add(distance),
        }
    }
}

impl fmt::Display for UtcDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = civil(self.0);
        write!(f, "{year:04}-{month:02}-{day:02}")
    }
}

/// Returns year, month and day of the day with this number, where 1970-01-01 is 0, by Howard
/// Hinnant's `civil_from_days` (<https://howardhinnant.github.io/date_algorithms.html>).
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days.saturating_add(719_468);
    let era = days.div_euclid(146_097);
    let of_era = days.rem_euclid(146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_has_the_name_that_rfc_3339_gives_it_and_begins_at_midnight() {
        for (days, name) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_015, "2000-02-28"),
            (11_016, "2000-02-29"),
            (20_818, "2026-12-31"),
        ] {
            let day = UtcDay::from_days(days);
            let start = day.start().unwrap();
            assert_eq!(day.to_string(), name);
            assert_eq!(UtcDay::of(start), day);
            assert_eq!(UtcDay::of(start - Duration::from_nanos(1)).days_since_1970(), days - 1);
            assert_eq!(UtcDay::of(start + Duration::from_millis(86_399_999)), day);
        }
        assert_eq!(UtcDay::from_days(i64::MAX).start(), None);
    }
}
