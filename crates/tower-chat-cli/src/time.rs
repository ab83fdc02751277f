//! Parses the times in options, and formats times.

use std::{
    str::FromStr,
    time::{Duration, SystemTime},
};

use jiff::{Timestamp, civil::DateTime, tz::TimeZone};

use crate::age::Age;

/// A point in time on the command line: an age (`12h` is the time twelve hours ago), a day, or a
/// time. A time without a time zone is interpreted as UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PointInTime(pub(crate) SystemTime);

/// The error of parsing a text that is not a point in time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "it is neither an age, such as 30d, 12h, 15m or 45s, nor a time, such as 2026-11-30 or 2026-11-30T08:15:00Z"
)]
pub(crate) struct NoTime;

impl FromStr for PointInTime {
    type Err = NoTime;

    fn from_str(text: &str) -> Result<Self, NoTime> {
        if let Ok(Age(age)) = text.parse() {
            // If the age would result in a time before 1970, the beginning of 1970 is used instead.
            let (first, since) = (SystemTime::UNIX_EPOCH, SystemTime::now().checked_sub(age));
            return Ok(Self(since.map_or(first, |since| since.max(first))));
        }
        let time = text.parse().ok().or_else(|| {
            let local: DateTime = text.parse().ok()?;
            local.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
        });
        time.map(|time: Timestamp| Self(time.into())).ok_or(NoTime)
    }
}

/// Formats a time for people, in UTC with a resolution of a second: `2026-11-30 08:15:00`.
pub(crate) fn readable(time: SystemTime) -> String {
    written(time, "%Y-%m-%d %H:%M:%S")
}

/// Formats a time for programs, with a resolution of a millisecond: `2026-11-30T08:15:00.000Z`.
pub(crate) fn exact(time: SystemTime) -> String {
    written(time, "%Y-%m-%dT%H:%M:%S%.3fZ")
}

/// Formats a time. Returns `-` if the calendar cannot represent the time.
fn written(time: SystemTime, format: &str) -> String {
    let time = Timestamp::try_from(time);
    time.map_or_else(|_| "-".to_owned(), |time| time.strftime(format).to_string())
}

/// Formats a duration for people, with a resolution of a millisecond: `2.104 s`.
pub(crate) fn seconds(duration: Duration) -> String {
    format!("{:.3} s", duration.as_secs_f64())
}

/// Returns the duration between two known times, or zero if the clock was set back.
pub(crate) fn between(from: Option<SystemTime>, to: Option<SystemTime>) -> Option<Duration> {
    Some(to?.duration_since(from?).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_in_time_is_parsed_from_an_age_a_day_or_a_time() {
        let at = |text: &str| text.parse().map(|PointInTime(time)| exact(time));
        assert_eq!(at("2026-11-30"), Ok("2026-11-30T00:00:00.000Z".to_owned()));
        assert_eq!(at("2026-11-30T08:15:01"), Ok("2026-11-30T08:15:01.000Z".to_owned()));
        assert_eq!(at("2026-11-30T08:15:02Z"), Ok("2026-11-30T08:15:02.000Z".to_owned()));
        assert_eq!(at("2026-11-30T08:15:03+02:00"), Ok("2026-11-30T06:15:03.000Z".to_owned()));
        assert_eq!(at("2026-11-30 08:15:04.567Z"), Ok("2026-11-30T08:15:04.567Z".to_owned()));
        let Ok(PointInTime(hour_ago)) = "1h".parse() else { panic!("an age") };
        let age = SystemTime::now().duration_since(hour_ago).unwrap_or_default();
        assert!((3600..3660).contains(&age.as_secs()), "{age:?}");
        assert_eq!(at("99999999999d"), Ok("1970-01-01T00:00:00.000Z".to_owned()));
        for text in ["", "yesterday", "5", "2026-11-31", "2026-11-30T25:00", "1w", "08:15"] {
            assert_eq!(at(text), Err(NoTime), "{text}");
        }
    }

    #[test]
    fn times_are_written_in_utc() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_399_250);
        assert_eq!(readable(time), "2000-02-28 23:59:59");
        assert_eq!(exact(time), "2000-02-28T23:59:59.250Z");
        assert_eq!(seconds(Duration::from_millis(1_500)), "1.500 s");
        assert_eq!(between(Some(time), Some(time - Duration::from_secs(1))), Some(Duration::ZERO));
        assert_eq!(between(None, Some(time)), None);
    }
}
