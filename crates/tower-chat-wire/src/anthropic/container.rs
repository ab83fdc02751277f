//! Continues the containers in which Anthropic runs the code of its code execution tool.
//!
//! If an answer used this tool, the answer contains the id and the expiry time of a container. The
//! code of a later request with this id runs in the same container, and can read the files that
//! earlier code wrote
//! (<https://docs.claude.com/en/docs/agents-and-tools/tool-use/code-execution-tool>). A paused
//! answer can be continued only in the container of that answer.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;
use tower_chat_core::{Message, Role};

/// The name of the metadata field in which a message stores the container of its answer.
const CONTAINER: &str = "anthropic_container";

/// Stores the container of an answer in the metadata of its message, if the container has an id.
pub(super) fn store(message: &mut Message, container: Option<&Value>) {
    let named = container.filter(|container| container.get("id").is_some_and(Value::is_string));
    message.metadata.extend(named.map(|named| (CONTAINER.to_owned(), named.clone())));
}

/// Returns the id of the newest container in the messages, unless it has expired at the time `now`.
/// Older containers are never used.
pub(super) fn newest_id<'m>(
    messages: impl DoubleEndedIterator<Item = &'m Message>,
    now: SystemTime,
) -> Option<&'m str> {
    let of_assistant = messages.rev().filter(|message| message.role == Role::Assistant);
    let newest = of_assistant.filter_map(|message| message.metadata.get(CONTAINER)).next()?;
    let expires_at = newest.get("expires_at").and_then(Value::as_str).and_then(parse_time)?;
    newest.get("id")?.as_str().filter(|_| now < expires_at)
}

/// Parses an RFC 3339 time, such as `2026-02-25T20:10:30.123Z` or `2026-02-25T20:10:30+00:00`.
fn parse_time(text: &str) -> Option<SystemTime> {
    let number = |range: std::ops::Range<usize>| text.get(range)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let (hour, minute, second) = (number(11..13)?, number(14..16)?, number(17..19)?);
    if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    let rest = text.get(19..)?.trim_start_matches(|it: char| it == '.' || it.is_ascii_digit());
    let offset = match rest.split_at_checked(1)? {
        ("Z" | "z", "") => 0,
        (sign @ ("+" | "-"), offset) => {
            let (hours, minutes) = offset.split_once(':')?;
            let (hours, minutes) = (hours.parse::<i64>().ok()?, minutes.parse::<i64>().ok()?);
            let seconds = (hours.min(24) * 60 + minutes.min(60)) * 60;
            if sign == "-" { -seconds } else { seconds }
        }
        _ => return None,
    };
    let seconds = ((days(year, month, day) * 24 + hour) * 60 + minute) * 60 + second;
    let seconds = i64::try_from(seconds).ok()?.checked_sub(offset)?;
    UNIX_EPOCH.checked_add(Duration::from_secs(u64::try_from(seconds).ok()?))
}

/// Returns the number of days from 1 January 1970 to a date of the Gregorian calendar.
fn days(year: u64, month: u64, day: u64) -> u64 {
    // The calculation uses years that begin in March, so that a leap day is at the end of its year.
    let (year, month) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let of_years = year * 365 + year / 4 - year / 100 + year / 400;
    of_years + (month * 153 + 2) / 5 + day - 1 - 719_468
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn unix_time(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn an_expiry_time_is_parsed_with_its_utc_offset() {
        for (text, seconds) in [
            ("1970-01-01T00:00:00Z", Some(0)),
            ("2000-02-29T12:00:00.5Z", Some(951_825_600)),
            ("2026-02-25T20:10:30+01:30", Some(1_772_044_830)),
            ("2026-02-25T20:10:30-00:30", Some(1_772_052_030)),
            ("2026-02-25", None),
            ("2026-13-25T20:10:30Z", None),
            ("yesterday, I think ..", None),
        ] {
            assert_eq!(parse_time(text), seconds.map(unix_time), "{text}");
        }
    }

    #[test]
    fn only_the_newest_container_is_used_until_it_expires() {
        let with = |id: &str, expires_at: &str| {
            let mut message = Message::assistant("ran");
            store(&mut message, Some(&json!({"id": id, "expires_at": expires_at})));
            message
        };
        let messages = [
            with("c1", "2000-01-01T00:00:00Z"),
            with("c2", "1970-01-01T00:01:40Z"),
            Message::user("go on"),
            Message::assistant("no code"),
        ];
        assert_eq!(newest_id(messages.iter(), unix_time(99)), Some("c2"));
        assert_eq!(
            newest_id(messages.iter(), unix_time(100)),
            None,
            "only the newest container is used"
        );
        assert_eq!(newest_id(messages[..1].iter(), unix_time(100)), Some("c1"));
    }
}
