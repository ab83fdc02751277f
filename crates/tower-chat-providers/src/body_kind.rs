//! Determines the format of a response body from its first bytes, because some services send a
//! wrong content type.
//!
//! A streamed body consists of frames: server-sent events, lines of JSON, or messages of an AWS
//! event stream.

use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tower_chat_core::BoxError;
use tower_chat_wire::body::BodyWire;

use crate::frames::StreamFraming;

/// The format of a body, determined from its first bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// A JSON object or array, or several of them, one per line.
    Json,
    /// Server-sent events.
    Events,
    /// A body that is empty or blank, or that begins with a byte that is not a visible ASCII
    /// character, such as binary data.
    Other,
    /// Text in no known format, such as an error page of a proxy.
    Text,
}

/// A body from which [`peek`] has read the first pieces. The body yields these pieces again.
pub(crate) type PeekedBody = StreamBody<Pieces>;

type Pieces = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>;

/// The possible beginnings of a line in server-sent events, and `error:`, the beginning of
/// llama.cpp's lines with errors.
const EVENT_LINE_PREFIXES: [&str; 6] = ["data:", "event:", "id:", "retry:", ":", "error:"];

/// The length of the longest text in [`EVENT_LINE_PREFIXES`], in bytes.
const MAX_PREFIX_BYTES: usize = 6;

/// Reads pieces of a body until they determine its kind. Returns their bytes, and a body that
/// yields the same pieces again.
pub(crate) async fn peek<B>(body: B) -> (Vec<u8>, PeekedBody)
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut rest = Box::pin(body.into_data_stream().map_err(Into::into));
    let mut beginning = Vec::new();
    let mut read = Vec::new();
    while !determines_kind(&beginning) {
        let Some(piece) = rest.next().await else { break };
        let is_error = piece.is_err();
        beginning.extend_from_slice(piece.as_ref().map_or(&[][..], |bytes| bytes));
        read.push(piece);
        if is_error {
            break;
        }
    }
    let pieces = stream::iter(read).chain(rest).map_ok(Frame::data);
    (beginning, StreamBody::new(Box::pin(pieces)))
}

/// Removes a byte order mark and white space from the beginning of the bytes.
fn trimmed(beginning: &[u8]) -> &[u8] {
    const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();
    beginning.strip_prefix(BYTE_ORDER_MARK).unwrap_or(beginning).trim_ascii_start()
}

/// Returns whether the bytes begin with the text, or are the beginning of the text.
fn begin_alike(bytes: &[u8], text: &str) -> bool {
    bytes.starts_with(text.as_bytes()) || text.as_bytes().starts_with(bytes)
}

/// Returns whether the bytes are enough to determine the kind of the body.
fn determines_kind(beginning: &[u8]) -> bool {
    let bytes = trimmed(beginning);
    match bytes.first() {
        None => beginning.len() > MAX_BLANK_BYTES,
        Some(first) if first.is_ascii_lowercase() => {
            bytes.len() >= MAX_PREFIX_BYTES || bytes.contains(&b'\n') || bytes.contains(&b':')
        }
        Some(_) => true,
    }
}

/// The maximum number of bytes of white space that [`peek`] reads at the beginning of a body. Some
/// services send white space while they wait for the model.
const MAX_BLANK_BYTES: usize = 64 * 1024;

impl BodyKind {
    pub(crate) fn of_prefix(beginning: &[u8]) -> Self {
        let bytes = trimmed(beginning);
        match bytes.first() {
            Some(b'{' | b'[') => Self::Json,
            Some(_) if EVENT_LINE_PREFIXES.iter().any(|line| begin_alike(bytes, line)) => {
                Self::Events
            }
            Some(byte) if byte.is_ascii_graphic() => Self::Text,
            Some(_) | None => Self::Other,
        }
    }

    /// Returns the format that divides the body into frames, or `None` for a whole body. `expected`
    /// is the format that the client has requested, or `None` if it has requested a whole answer.
    pub(crate) fn framing(self, expected: Option<StreamFraming>) -> Option<StreamFraming> {
        match (self, expected) {
            (_, None) | (Self::Text, Some(_)) => None,
            (Self::Json, Some(StreamFraming::Lines)) => expected,
            (Self::Json, Some(_)) => None,
            (Self::Events, Some(_)) => Some(StreamFraming::Sse),
            (Self::Other, Some(_)) => expected,
        }
    }
}

/// Returns the format that divides the text of a whole body into frames, or `None` if the text is
/// not a stream:
///
/// - server-sent events, if the text does not begin like JSON, and a line begins like an event;
/// - newline-delimited JSON, if the first two lines of an answer of Ollama are JSON objects.
pub(crate) fn framing_of_text(text: &str, wire: BodyWire) -> Option<StreamFraming> {
    let kind = BodyKind::of_prefix(text.as_bytes());
    let is_event = |line: &str| line.starts_with("data:");
    let mut lines = text.lines().filter(|line| !line.trim().is_empty());
    match kind {
        BodyKind::Events => Some(StreamFraming::Sse),
        BodyKind::Text | BodyKind::Other => lines.any(is_event).then_some(StreamFraming::Sse),
        BodyKind::Json if wire == BodyWire::Ollama => {
            let is_object = |line: &str| line.starts_with('{') && line.trim_end().ends_with('}');
            let is_several = lines.by_ref().take(2).filter(|line| is_object(line)).count() == 2;
            is_several.then_some(StreamFraming::Lines)
        }
        BodyKind::Json => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_body_is_detected_from_its_first_bytes() {
        for (beginning, kind) in [
            (" \n{\"a\":1}", BodyKind::Json),
            ("[1]", BodyKind::Json),
            ("\u{feff}{", BodyKind::Json),
            (": ping\n\n", BodyKind::Events),
            ("data: {}", BodyKind::Events),
            ("event: a", BodyKind::Events),
            ("e", BodyKind::Events),
            ("dat", BodyKind::Events),
            ("<!DOCTYPE html>", BodyKind::Text),
            ("upstream connect error", BodyKind::Text),
            ("", BodyKind::Other),
            ("\0\0\0\u{1}", BodyKind::Other),
        ] {
            assert_eq!(BodyKind::of_prefix(beginning.as_bytes()), kind, "{beginning:?}");
        }
    }
}
