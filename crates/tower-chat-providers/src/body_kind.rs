//! What a body is, by its beginning: labels are not reliable.

use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, TryStreamExt, stream};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use tower_chat_core::BoxError;
use tower_chat_wire::body::BodyWire;

use crate::frames::StreamFraming;

/// What the beginning of a body looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// A JSON object or list, or several, each on a line.
    Json,
    /// Server-sent events.
    Events,
    /// Bytes of another form, or none.
    Other,
    /// Text of no form, such as the page of a proxy.
    Text,
}

/// A body whose beginning was read.
pub(crate) type PeekedBody = StreamBody<Pieces>;

type Pieces = Pin<Box<dyn Stream<Item = Result<Frame<Bytes>, BoxError>> + Send>>;

/// How a line of server-sent events begins, and what llama.cpp sends in their place.
const LINES: [&str; 6] = ["data:", "event:", "id:", "retry:", ":", "error:"];

/// The length of the longest of them.
const LONGEST: usize = 6;

/// Reads the beginning of a body, and returns it with the whole body.
pub(crate) async fn peek<B>(body: B) -> (Vec<u8>, PeekedBody)
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut rest = Box::pin(body.into_data_stream().map_err(Into::into));
    let mut beginning = Vec::new();
    let mut read = Vec::new();
    while !is_enough(&beginning) {
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

/// The bytes without a byte order mark and white space in front.
fn trimmed(beginning: &[u8]) -> &[u8] {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    beginning.strip_prefix(MARK).unwrap_or(beginning).trim_ascii_start()
}

/// Whether the bytes begin with the text, or are cut off in it.
fn begin_alike(bytes: &[u8], text: &str) -> bool {
    bytes.starts_with(text.as_bytes()) || text.as_bytes().starts_with(bytes)
}

/// Whether the bytes say what the body is.
fn is_enough(beginning: &[u8]) -> bool {
    let bytes = trimmed(beginning);
    match bytes.first() {
        None => beginning.len() > MOST_BLANK,
        Some(first) if first.is_ascii_lowercase() => {
            bytes.len() >= LONGEST || bytes.contains(&b'\n') || bytes.contains(&b':')
        }
        Some(_) => true,
    }
}

/// How much white space may be in front of a body before it is read as it was expected to be. Some
/// services send it while they wait for the model.
const MOST_BLANK: usize = 64 * 1024;

impl BodyKind {
    pub(crate) fn of(beginning: &[u8]) -> Self {
        let bytes = trimmed(beginning);
        match bytes.first() {
            Some(b'{' | b'[') => Self::Json,
            Some(_) if LINES.iter().any(|line| begin_alike(bytes, line)) => Self::Events,
            Some(byte) if byte.is_ascii_graphic() => Self::Text,
            Some(_) | None => Self::Other,
        }
    }

    /// How the frames of the body are told apart; `None` if it is read whole.
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

/// How a body that was read whole is divided into frames; `None` if it is one JSON value, or has no
/// frames.
pub(crate) fn framing_of_text(text: &str, wire: BodyWire) -> Option<StreamFraming> {
    let kind = BodyKind::of(text.as_bytes());
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
    fn the_beginning_says_what_a_body_is() {
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
            assert_eq!(BodyKind::of(beginning.as_bytes()), kind, "{beginning:?}");
        }
    }
}
