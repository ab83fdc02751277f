//! The frames of a streamed answer, from the bytes of its body.
//!
//! Server-sent events are parsed by `sse-stream`, messages of AWS event streams by
//! `aws-smithy-eventstream`, which verifies their checksums. Neither has limits: they are held here,
//! before the parsers see the bytes.

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
use tower_chat_core::BoxError;
use tower_chat_wire::stream::{Frame, LimitExceeded, Limits, check_depth};

/// How the frames of a stream are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StreamFraming {
    /// Server-sent events.
    Sse,
    /// One JSON value a line.
    Lines,
    /// Messages of `application/vnd.amazon.eventstream`.
    #[cfg(feature = "bedrock")]
    EventStream,
}

/// Why there is no next frame.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// More than a limit allows.
    #[error(transparent)]
    Limit(LimitExceeded),
    /// The bytes are no such stream.
    #[error("its stream is damaged ({0})")]
    Damaged(#[source] BoxError),
    /// The connection broke, or a layer of the transport failed.
    #[error("its connection broke ({0})")]
    Broken(#[source] BoxError),
}

/// The frames of a body, up to its end or an error.
pub(crate) type Frames = Pin<Box<dyn Stream<Item = Result<Frame, FrameError>> + Send>>;

impl StreamFraming {
    /// Reads the frames of a body. What is not complete at its end is no frame.
    pub(crate) fn frames<B>(self, body: B, limits: Limits) -> Frames
    where
        B: Body<Data = Bytes> + Send + 'static,
        B::Error: Into<BoxError>,
    {
        let frames = match self {
            Self::Sse => sse::frames(body, limits),
            Self::Lines => decoded(body, lines::LineDecoder::new(limits)),
            #[cfg(feature = "bedrock")]
            Self::EventStream => decoded(body, event_stream::MessageDecoder::new(limits)),
        };
        let checked = frames.map(move |frame| {
            let frame = frame?;
            check_depth(&frame.data, &limits).map_err(FrameError::Limit)?;
            Ok(frame)
        });
        // Nothing is read after an error.
        let until_error = checked.scan(false, |has_failed, frame| {
            let has_failed_before = std::mem::replace(has_failed, frame.is_err());
            std::future::ready((!has_failed_before).then_some(frame))
        });
        Box::pin(until_error.fuse())
    }
}

/// Makes frames of bytes, piece by piece.
trait Decoder: Send + 'static {
    /// Appends the frames that some more bytes complete; before an error, those in front of it.
    fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError>;
}

fn decoded<B, D>(body: B, decoder: D) -> Frames
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<BoxError>,
    D: Decoder,
{
    let batches = stream::unfold((Box::pin(body), decoder), |(mut body, mut decoder)| async move {
        let frame = body.frame().await?;
        let mut frames = Vec::new();
        let outcome = match frame {
            Ok(frame) => frame.data_ref().map_or(Ok(()), |bytes| decoder.push(bytes, &mut frames)),
            Err(error) => Err(FrameError::Broken(error.into())),
        };
        let batch: Vec<_> = frames.into_iter().map(Ok).chain(outcome.err().map(Err)).collect();
        Some((batch, (body, decoder)))
    });
    Box::pin(batches.flat_map(stream::iter))
}
