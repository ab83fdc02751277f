//! `application/vnd.amazon.eventstream`
//! (<https://docs.aws.amazon.com/transcribe/latest/dg/streaming-setting-up.html>): binary messages
//! of headers and a payload. Their checksums are not looked at: TLS has its own.

use serde_json::json;

use super::{
    frame::{Frame, Framing},
    limits::{Limit, LimitExceeded, Limits},
};

/// The lengths of the message and of its headers, and their checksum.
const PRELUDE: usize = 12;
const CHECKSUM: usize = 4;
/// The kind of a header's value that is a text.
const TEXT: u8 = 7;

/// Reads messages from bytes as they come.
#[derive(Debug, Clone)]
pub struct EventStream {
    bytes: Vec<u8>,
    total: usize,
    limits: Limits,
}

/// Bytes that are no event stream, or more than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamagedStream {
    /// A length in it cannot be.
    #[error("its event stream is damaged")]
    Damaged,
    /// It exceeds a limit.
    #[error(transparent)]
    Limit(LimitExceeded),
}

impl EventStream {
    /// A reader with these limits. A message is an event; there are no lines.
    pub fn new(limits: Limits) -> Self {
        Self { bytes: Vec::new(), total: 0, limits }
    }
}

impl Framing for EventStream {
    type Error = DamagedStream;

    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, DamagedStream> {
        self.total = self.total.saturating_add(bytes.len());
        self.limits.check(Limit::Body, self.total)?;
        self.bytes.extend_from_slice(bytes);
        let (mut frames, mut read) = (Vec::new(), 0);
        while let Some(length) = word(&self.bytes, read) {
            if length < PRELUDE + CHECKSUM {
                return Err(DamagedStream::Damaged);
            }
            self.limits.check(Limit::Event, length)?;
            let end = read.saturating_add(length);
            let Some(message) = self.bytes.get(read..end) else { break };
            frames.push(frame(message).ok_or(DamagedStream::Damaged)?);
            read = end;
        }
        self.bytes.drain(..read);
        Ok(frames)
    }
}
fn frame(message: &[u8]) -> Option<Frame> {
    let headers = word(message, 4)?;
    let payload = PRELUDE.checked_add(headers)?;
    let end = message.len().checked_sub(CHECKSUM)?;
    let names = names(message.get(PRELUDE..payload)?);
    let data = String::from_utf8_lossy(message.get(payload..end)?).into_owned();
    let named = |name: &str| names.iter().find(|(known, _)| known == name).map(|(_, value)| value);
    if let Some(kind) = named(":exception-type").or_else(|| named(":error-code")) {
        let words = named(":error-message").cloned().unwrap_or(data);
        let error = json!({"type": kind, "message": words_of(&words)});
        let data = json!({"error": error}).to_string();
        return Some(Frame { event: Some("error".to_owned()), data });
    }
    Some(Frame { event: named(":event-type").cloned(), data })
}

/// What an exception's payload says.
fn words_of(payload: &str) -> String {
    let json: serde_json::Value = serde_json::from_str(payload).unwrap_or_default();
    let words = json.get("message").and_then(serde_json::Value::as_str);
    words.map_or_else(|| payload.to_owned(), str::to_owned)
}

/// The headers that are texts, up to the first of another kind; the service sends no other.
fn names(mut bytes: &[u8]) -> Vec<(String, String)> {
    let mut names = Vec::new();
    while let Some((name, value, rest)) = name(bytes) {
        names.push((name, value));
        bytes = rest;
    }
    names
}

fn name(bytes: &[u8]) -> Option<(String, String, &[u8])> {
    let (length, rest) = bytes.split_first()?;
    let (name, rest) = rest.split_at_checked(usize::from(*length))?;
    let (kind, rest) = rest.split_first()?;
    let (length, rest) = rest.split_first_chunk()?;
    if *kind != TEXT {
        return None;
    }
    let (value, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    Some((text(name), text(value), rest))
}

fn word(bytes: &[u8], at: usize) -> Option<usize> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    usize::try_from(u32::from_be_bytes(*bytes)).ok()
}
