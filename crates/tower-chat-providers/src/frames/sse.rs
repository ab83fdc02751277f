//! Decodes server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
//!
//! The specification requires a blank line after each event. Some services do not send the blank
//! line after the last event. The last event is therefore accepted without a blank line if its data
//! are a JSON object or `[DONE]`. Each event becomes a frame: its name and its data.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http_body::Body;
use sse_stream::SseByteStream;
use tower_chat_core::BoxError;
use tower_chat_wire::stream::{Frame, Limit, LimitExceeded, Limits};

use super::{FrameError, Frames};

/// The data of the event that ends a stream of OpenAI's APIs.
const DONE: &str = "[DONE]";

/// Two line feeds, which end an event regardless of the state of the parser.
const EVENT_END: Bytes = Bytes::from_static(b"\n\n");

pub(super) fn frames<B>(body: B, limits: Limits) -> Frames
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let has_ended = Arc::new(AtomicBool::new(false));
    let mut meter = LineMeter::new(limits);
    let pieces = super::pieces(body, limits).flat_map(move |piece| match piece {
        Ok(mut bytes) => {
            let outcome = meter.cut_at_limit(&mut bytes).map_err(FrameError::Limit);
            super::bytes_then_error(bytes, outcome)
        }
        Err(error) => super::bytes_then_error(Bytes::new(), Err(error)),
    });
    // Two line feeds are appended at the end of the body, and before the error of a broken
    // connection: the parser then also returns a last event without a blank line.
    let ended = has_ended.clone();
    let before_break = has_ended.clone();
    let pieces = pieces.flat_map(move |piece| {
        let is_broken = matches!(piece, Err(FrameError::Broken(_)));
        before_break.fetch_or(is_broken, Ordering::Relaxed);
        stream::iter(is_broken.then(|| Ok(EVENT_END)).into_iter().chain([piece]))
    });
    let end = stream::once(async move {
        ended.store(true, Ordering::Relaxed);
        Ok(EVENT_END)
    });
    let events = SseByteStream::new(pieces.chain(end)).filter_map(move |event| {
        let has_ended = has_ended.load(Ordering::Relaxed);
        std::future::ready(frame(event, has_ended))
    });
    Box::pin(events)
}

/// Converts an event to a frame. Returns `None` if the event has no data, or if its data are cut
/// off, which is possible only if the body `has_ended` without a blank line after the event.
fn frame(
    event: Result<sse_stream::Sse, sse_stream::Error>,
    has_ended: bool,
) -> Option<Result<Frame, FrameError>> {
    match event {
        Ok(event) => {
            let data = event.data?;
            let is_complete = !has_ended || data.trim() == DONE || super::is_complete_json(&data);
            is_complete.then_some(Ok(Frame { event: event.event, data }))
        }
        Err(sse_stream::Error::Utf8Parse(_)) if has_ended => None,
        Err(error) => Some(Err(frame_error(error))),
    }
}

fn frame_error(error: sse_stream::Error) -> FrameError {
    match error {
        sse_stream::Error::Body(error) => match error.downcast() {
            Ok(error) => *error,
            Err(error) => FrameError::Broken(error),
        },
        error => FrameError::Damaged(error.into()),
    }
}

/// Applies the limits on lines and events to the bytes of a body.
struct LineMeter {
    limits: Limits,
    /// The number of received bytes of the current line.
    line: usize,
    /// The number of bytes of the previous lines of the current event.
    event: usize,
    /// Whether the previous byte was a carriage return. A line feed then does not end another line.
    is_after_return: bool,
}

impl LineMeter {
    fn new(limits: Limits) -> Self {
        Self { limits, line: 0, event: 0, is_after_return: false }
    }

    /// Counts the bytes of a piece. Cuts the piece off before the first line that exceeds a limit.
    fn cut_at_limit(&mut self, piece: &mut Bytes) -> Result<(), LimitExceeded> {
        let mut rest = piece.as_ref();
        let outcome = self.count(&mut rest);
        let allowed = piece.len().saturating_sub(rest.len());
        piece.truncate(allowed);
        outcome
    }

    /// Counts and removes lines at the front of `bytes`, up to the first that exceeds a limit.
    fn count(&mut self, bytes: &mut &[u8]) -> Result<(), LimitExceeded> {
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.is_after_return) && *first == b'\n' {
                *bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let Some((line, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else {
                self.extend(bytes.len())?;
                *bytes = &[];
                break;
            };
            self.extend(line.len())?;
            self.is_after_return = rest.first() == Some(&b'\r');
            *bytes = rest.get(1..).unwrap_or_default();
            self.event = if self.line == 0 { 0 } else { self.event.saturating_add(self.line) };
            self.line = 0;
        }
        Ok(())
    }

    /// Adds a number of bytes to the current line, and checks the limits.
    fn extend(&mut self, bytes: usize) -> Result<(), LimitExceeded> {
        self.line = self.line.saturating_add(bytes);
        self.limits.check(Limit::Line, self.line)?;
        self.limits.check(Limit::Event, self.event.saturating_add(self.line))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use futures_util::FutureExt;
    use http_body_util::StreamBody;

    use super::*;

    fn read(
        pieces: impl IntoIterator<Item = Vec<u8>>,
        limits: Limits,
    ) -> Vec<Result<Frame, String>> {
        let pieces: Vec<_> = pieces.into_iter().collect();
        let pieces = pieces.into_iter().map(|piece| {
            Ok::<_, std::convert::Infallible>(http_body::Frame::data(Bytes::from(piece)))
        });
        let body = StreamBody::new(futures_util::stream::iter(pieces));
        let frames = super::super::StreamFraming::Sse.frames(body, limits);
        let frames = frames.map(|frame| frame.map_err(|error| error.to_string()));
        frames.collect::<Vec<_>>().now_or_never().unwrap()
    }

    fn frame(event: Option<&str>, data: &str) -> Result<Frame, String> {
        Ok(Frame { event: event.map(str::to_owned), data: data.to_owned() })
    }

    #[test]
    fn events_are_decoded_equally_wherever_the_bytes_are_split() {
        let text = ": hi\r\nevent: a\r\ndata: {\"x\":\r\ndata: \"ü\"}\r\n\r\ndata:1\n\n\
                    event: none\n\rdata: 2\r\r"
            .as_bytes();
        let expected = [frame(Some("a"), "{\"x\":\n\"ü\"}"), frame(None, "1"), frame(None, "2")];
        for cut in 0..text.len() {
            let pieces = [text[..cut].to_vec(), text[cut..].to_vec()];
            assert_eq!(read(pieces, Limits::default()), expected, "{cut}");
        }
    }

    #[test]
    fn a_last_event_without_a_blank_line_is_decoded_only_if_its_data_is_complete() {
        let limits = Limits::default();
        assert_eq!(read([b"data: 1\n\ndata: 2\n".to_vec()], limits), [frame(None, "1")]);
        let cut_off = [b"data: 1\n\ndata: {\"a\":".to_vec()];
        assert_eq!(read(cut_off, limits), [frame(None, "1")]);
        let whole = [frame(None, "1"), frame(Some("b"), "{\"a\":1}")];
        for text in
            ["data: 1\n\nevent: b\ndata: {\"a\":1}", "data: 1\n\nevent: b\ndata: {\"a\":1}\n"]
        {
            assert_eq!(read([text.as_bytes().to_vec()], limits), whole, "{text}");
        }
        let done = [frame(None, "3"), frame(None, "[DONE]")];
        assert_eq!(read([b"data: 3\n\ndata: [DONE]".to_vec()], limits), done);
        let in_a_character = [b"data: 4\n\ndata: \xc3".to_vec()];
        assert_eq!(read(in_a_character, limits), [frame(None, "4")]);
    }

    #[test]
    fn lines_events_bodies_and_nesting_have_limits_however_the_bytes_are_split() {
        let limits = Limits::default();
        let text = b"data: [[1]]\ndata: 2\n\ndata: 3\n\n";
        let limited = [
            (limits.with_max_line_bytes(10), "max_line_bytes"),
            (limits.with_max_event_bytes(17), "max_event_bytes"),
            (limits.with_max_body_bytes(text.len() - 1), "max_body_bytes"),
            (limits.with_max_depth(1), "max_depth"),
        ];
        for (limits, setting) in limited {
            for size in [1, 2, 5, text.len()] {
                let found = read(text.chunks(size).map(<[u8]>::to_vec), limits);
                let Some(Err(error)) = found.last() else { panic!("{setting} {found:?}") };
                assert!(error.contains(setting), "{error}");
            }
        }
        let limits = limits.with_max_line_bytes(11).with_max_event_bytes(18);
        let limits = limits.with_max_body_bytes(text.len()).with_max_depth(2);
        let found = read([text.to_vec()], limits);
        assert_eq!(found, [frame(None, "[[1]]\n2"), frame(None, "3")]);
    }

    /// The events before an event that exceeds a limit must be decoded, because they may complete
    /// the answer, even if all events arrive in the same piece of the body.
    #[test]
    fn events_before_an_exceeded_limit_are_decoded_however_the_bytes_are_split() {
        let limits = Limits::default();
        let text = b"data: 4\n\nevent: b\r\ndata: 5\r\rdata: [[6]]\ndata: 7\n\ndata: 8\n\n";
        let expected = [frame(None, "4"), frame(Some("b"), "5")];
        let limited = [
            (limits.with_max_line_bytes(10), "max_line_bytes"),
            (limits.with_max_event_bytes(17), "max_event_bytes"),
            (limits.with_max_body_bytes(40), "max_body_bytes"),
            (limits.with_max_depth(1), "max_depth"),
        ];
        for (limits, setting) in limited {
            for size in 1..=text.len() {
                let mut found = read(text.chunks(size).map(<[u8]>::to_vec), limits);
                let Some(Err(error)) = found.pop() else { panic!("{setting}, {size}: {found:?}") };
                assert!(error.contains(setting), "{size}: {error}");
                assert_eq!(found, expected, "{setting}, {size}");
            }
        }
    }
}
