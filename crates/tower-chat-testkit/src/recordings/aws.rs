//! Parses `application/vnd.amazon.eventstream`
//! (<https://smithy.io/2.0/aws/amazon-eventstream.html>). A stream consists of binary messages. Each
//! message has headers, a payload and two checksums.

use base64::{Engine, engine::general_purpose::STANDARD as BASE64};
use flate2::Crc;
use serde_json::Value;

use super::events::StreamEvent;

/// The size, in bytes, of the two lengths at the beginning of a message.
const PRELUDE: usize = 8;
/// The number of bytes of a checksum.
const CHECKSUM: usize = 4;

/// Returns whether a valid checksum follows the two lengths at the beginning of the bytes.
pub(super) fn is_event_stream(bytes: &[u8]) -> bool {
    bytes.get(..PRELUDE).is_some_and(|prelude| word(bytes, PRELUDE) == Some(checksum(prelude)))
}

/// Returns the events of a stream. The data of an event `chunk` of InvokeModel are decoded from
/// base64.
pub(super) fn events(bytes: &[u8]) -> Result<Vec<StreamEvent>, String> {
    let (mut events, mut rest) = (Vec::new(), bytes);
    while !rest.is_empty() {
        let length = word(rest, 0).and_then(|length| usize::try_from(length).ok());
        let split = length.and_then(|length| rest.split_at_checked(length));
        let (message, after) = split
            .ok_or_else(|| format!("its event stream ends within message {}", events.len()))?;
        events.push(event(message).ok_or_else(|| {
            format!("message {} of its event stream has a wrong checksum or format", events.len())
        })?);
        rest = after;
    }
    Ok(events)
}

/// Parses a message. Returns `None` if the message is damaged.
fn event(message: &[u8]) -> Option<StreamEvent> {
    let (checked, sum) = message.split_last_chunk::<CHECKSUM>()?;
    if !is_event_stream(message) || checksum(checked) != u32::from_be_bytes(*sum) {
        return None;
    }
    let headers = usize::try_from(word(message, 4)?).ok()?;
    let body = checked.get(PRELUDE + CHECKSUM..)?;
    let (mut headers, payload) = body.split_at_checked(headers)?;
    let (mut name, mut error_message) = (None, None);
    while !headers.is_empty() {
        let (header, value) = header(&mut headers)?;
        match (header.as_str(), value) {
            (":event-type" | ":exception-type" | ":error-code", value) => name = value,
            (":error-message", value) => error_message = value,
            _ => {}
        }
    }
    let data = match error_message {
        Some(message) if payload.is_empty() => {
            serde_json::json!({ "message": message }).to_string()
        }
        _ => String::from_utf8(payload.to_vec()).ok()?,
    };
    Some(StreamEvent { data: unwrapped(data)?, event: name })
}

/// Decodes the base64 text in the field `bytes` of an event `chunk`. Returns data without this
/// field unchanged.
fn unwrapped(data: String) -> Option<String> {
    match serde_json::from_str::<Value>(&data).ok()?.get("bytes").and_then(Value::as_str) {
        Some(bytes) => String::from_utf8(BASE64.decode(bytes).ok()?).ok(),
        None => Some(data),
    }
}

/// Removes the first header from `bytes`. Returns its name, and its value if it is a string.
fn header(bytes: &mut &[u8]) -> Option<(String, Option<String>)> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (kind, rest) = rest.split_first()?;
    let sized = |rest: &[u8]| {
        rest.first_chunk::<2>().map(|length| 2 + usize::from(u16::from_be_bytes(*length)))
    };
    let length = match kind {
        0 | 1 => 0,
        2 => 1,
        3 => 2,
        4 => 4,
        5 | 8 => 8,
        9 => 16,
        6 | 7 => sized(rest)?,
        _ => return None,
    };
    let (value, rest) = rest.split_at_checked(length)?;
    *bytes = rest;
    let text = (*kind == 7).then(|| value.get(2..).map(<[u8]>::to_vec)).flatten();
    let text = text.map(String::from_utf8).transpose().ok()?;
    Some((String::from_utf8(name.to_vec()).ok()?, text))
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut sum = Crc::new();
    sum.update(bytes);
    sum.sum()
}
