//! Times in error messages.

use std::{fmt, time::SystemTime};

use tower_chat_core::store::{UtcDay, author::milliseconds};

/// Displays a time as RFC 3339 in UTC, with a precision of one second.
pub(crate) struct Utc(pub(crate) SystemTime);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = milliseconds::of(self.0).div_euclid(1000).rem_euclid(86_400);
        let (hour, minute, second) = (time / 3600, time / 60 % 60, time % 60);
        write!(f, "{}T{hour:02}:{minute:02}:{second:02}Z", UtcDay::of(self.0))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_time_is_formatted_as_rfc_3339() {
        let at = |seconds| Utc(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)).to_string();
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_798_761_599), "2026-12-31T23:59:59Z");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(Utc(before).to_string(), "1969-12-31T23:59:59Z");
    }
}
