//! Formats times and durations.

use std::time::{Duration, SystemTime};

use jiff::Timestamp;

/// Formats a time in UTC, such as `2026-11-23 15:04:05`.
pub(crate) fn moment(time: SystemTime) -> String {
    match Timestamp::try_from(time) {
        Ok(time) => time.strftime("%Y-%m-%d %H:%M:%S").to_string(),
        Err(_) => "out of range".to_owned(),
    }
}

/// Formats a duration in one or two units, such as `120 ms`, `1.4 s`, `3 min 20 s` or `2 h 5 min`.
pub(crate) fn duration(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0 => format!("{} ms", duration.as_millis()),
        1..60 => format!("{:.1} s", duration.as_secs_f64()),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_durations_are_written_in_a_short_form() {
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(951_782_400);
        assert_eq!(moment(time), "2000-02-29 00:00:00");
        for (milliseconds, text) in [
            (0, "0 ms"),
            (999, "999 ms"),
            (1400, "1.4 s"),
            (200_000, "3 min 20 s"),
            (7_260_000, "2 h 1 min"),
        ] {
            assert_eq!(duration(Duration::from_millis(milliseconds)), text);
        }
    }
}
