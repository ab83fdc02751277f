//! Divides the body of a streamed answer into frames. A frame is one event: its name, if any, and
//! its data.
//!
//! `sse-stream` parses server-sent events. `aws-smithy-eventstream` parses messages of AWS event
//! streams and verifies their checksums. Neither parser has limits, so this module applies limits
//! to the bytes before the parsers read them. All frames before an error are returned, regardless
//! of how the body is divided into pieces.

#[cfg(feature = "bedrock")]
mod event_stream;
mod lines;
mod sse;

use std::pin::Pin;

use bytes::Bytes;
use futures_core::Stream;
use futures_util::{StreamExt, stream};
use http_body::Body;
use http_body_util::BodyExt;
use tower_chat_core::{BoxError, RawJson};
use tower_chat_wire::stream::{Frame, Limit, LimitExceeded, Limits, check_depth};

/// The format that divides a streamed body into frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFraming {
    /// Server-sent events.
    Sse,
    /// Newline-delimited JSON.
    Lines,
    /// Messages of `application/vnd.amazon.eventstream`.
    #[cfg(feature = "bedrock")]
    EventStream,
}

/// The reason why the next frame cannot be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// The body, a line or an event exceeds a limit, or the JSON of a frame is nested too deeply.
    #[error(transparent)]
    Limit(LimitExceeded),
    /// The bytes are not a stream in the expected format.
    #[error("its stream is damaged ({0})")]
    Damaged(#[source] BoxError),
    /// The connection failed, or a layer around the transport failed.
    #[error("its connection broke ({0})")]
    Broken(#[source] BoxError),
}

/// The frames of a body, up to its end or its first error.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Result<Frame, FrameError>> + Send>>;

impl StreamFraming {
    /// Returns the frames of a body. The stream ends after the first error. An incomplete frame at
    /// the end of the body is not returned.
    pub(crate) fn frames<B>(self, body: B, limits: Limits) -> Frames
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let frames = match self {
            Self::Sse => sse::frames(body, limits),
            Self::Lines => decode(body, lines::LineDecoder::new(limits), limits),
            #[cfg(feature = "bedrock")]
            Self::EventStream => decode(body, event_stream::MessageDecoder::new(limits), limits),
        };
        let checked = frames.map(move |frame| {
            let frame = frame?;
            check_depth(&frame.data, &limits).map_err(FrameError::Limit)?;
            Ok(frame)
        });
        // Ends the stream after the first error.
        let until_error = checked.scan(false, |has_failed, frame| {
            let has_failed_before = std::mem::replace(has_failed, frame.is_err());
            std::future::ready((!has_failed_before).then_some(frame))
        });
        Box::pin(until_error.fuse())
    }
}

/// A decoder that receives a body in pieces, and decodes it to frames.
trait Decoder: Send + 'static {
    /// Decodes more bytes, and appends the frames that they complete. If decoding fails, the frames
    /// before the error have already been appended.
    fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError>;

    /// Called at the end of the body. Appends the last frame if only its terminator is missing.
    fn finish(&mut self, frames: &mut Vec<Frame>);
}

/// Returns whether the data of a frame without a terminator are complete: a valid JSON object.
fn is_complete_json(data: &str) -> bool {
    data.trim_start().starts_with('{') && data.parse::<RawJson>().is_ok()
}

fn decode<B, D>(body: B, mut decoder: D, limits: Limits) -> Frames
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    D: Decoder,
{
    let ended = pieces(body, limits).map(Some).chain(stream::iter([None]));
    let batches = ended.flat_map(move |piece| {
        let mut frames = Vec::new();
        let outcome = match piece {
            Some(Ok(bytes)) => decoder.push(&bytes, &mut frames),
            Some(Err(error)) => {
                if let FrameError::Broken(_) = error {
                    decoder.finish(&mut frames);
                }
                Err(error)
            }
            None => {
                decoder.finish(&mut frames);
                Ok(())
            }
        };
        stream::iter(frames.into_iter().map(Ok).chain(outcome.err().map(Err)))
    });
    Box::pin(batches)
}

/// Returns the pieces of a body, up to the limit on the body. [`StreamFraming::frames`] ends the
/// stream after an error.
fn pieces<B>(body: B, limits: Limits) -> impl Stream<Item = Result<Bytes, FrameError>> + Send
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
{
    let mut total: usize = 0;
    body.into_data_stream().flat_map(move |bytes| match bytes {
        Ok(mut bytes) => {
            let allowed = limits.max(Limit::Body).saturating_sub(total);
            total = total.saturating_add(bytes.len());
            bytes.truncate(allowed);
            bytes_then_error(bytes, limits.check(Limit::Body, total).map_err(FrameError::Limit))
        }
        Err(error) => bytes_then_error(Bytes::new(), Err(FrameError::Broken(error.into()))),
    })
}

/// Returns a stream that yields the bytes, and then the error if `outcome` is an error.
fn bytes_then_error(
    bytes: Bytes,
    outcome: Result<(), FrameError>,
) -> impl Stream<Item = Result<Bytes, FrameError>> + Unpin + Send {
    stream::iter(std::iter::once(Ok(bytes)).chain(outcome.err().map(Err)))
}

#[cfg(all(test, feature = "bedrock"))]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use std::convert::Infallible;

    use futures_util::FutureExt;
    use http_body_util::StreamBody;

    use super::*;

    fn event(framing: StreamFraming, data: &str) -> Vec<u8> {
        match framing {
            StreamFraming::Sse => format!("data: {data}\n\n").into_bytes(),
            StreamFraming::Lines => format!("{data}\n").into_bytes(),
            StreamFraming::EventStream => {
                let message = aws_smithy_types::event_stream::Message::new(data.to_owned());
                let mut bytes = Vec::new();
                aws_smithy_eventstream::frame::write_message_to(&message, &mut bytes).unwrap();
                bytes
            }
        }
    }

    #[test]
    fn frames_before_the_limit_of_a_body_are_decoded_however_the_body_is_split() {
        for framing in [StreamFraming::Sse, StreamFraming::Lines, StreamFraming::EventStream] {
            let events = ["[1]", "[2]", "[3]"].map(|data| event(framing, data));
            let (bytes, allowed) = (events.concat(), events.concat().len() - 2);
            let limits = Limits::default().with_max_body_bytes(allowed);
            for size in 1..=bytes.len() {
                let pieces = bytes.chunks(size).map(Bytes::copy_from_slice);
                let pieces = pieces.map(|piece| Ok::<_, Infallible>(http_body::Frame::data(piece)));
                let body = StreamBody::new(stream::iter(pieces.collect::<Vec<_>>()));
                let frames = framing.frames(body, limits).collect::<Vec<_>>();
                let mut frames = frames.now_or_never().unwrap();
                let Some(Err(FrameError::Limit(exceeded))) = frames.pop() else {
                    panic!("{framing:?}, {size}: {frames:?}")
                };
                assert_eq!((exceeded.limit, exceeded.max), (Limit::Body, allowed), "{framing:?}");
                let read: Vec<_> = frames.into_iter().map(|frame| frame.unwrap().data).collect();
                assert_eq!(read, ["[1]", "[2]"], "{framing:?}, {size}");
            }
        }
    }
}
