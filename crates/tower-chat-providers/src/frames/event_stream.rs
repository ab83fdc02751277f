//! Decodes the messages of AWS event streams to frames: the names and the data of the events.
//! <https://docs.aws.amazon.com/AmazonS3/latest/API/RESTSelectObjectAppendix.html> describes the
//! format, and <https://smithy.io/2.0/aws/amazon-eventstream.html> the headers.

use aws_smithy_eventstream::frame::{DecodedFrame, MessageFrameDecoder};
use aws_smithy_types::event_stream::Message;
use bytes::{Buf, BytesMut};
use serde_json::{Value, json};
use tower_chat_wire::stream::{Frame, Limit, Limits};

use super::{Decoder, FrameError};

/// The length in bytes of the prelude of a message, which contains the length of the message and a
/// checksum.
const PRELUDE_BYTES: usize = 12;

/// Decodes messages to frames.
pub(super) struct MessageDecoder {
    decoder: MessageFrameDecoder,
    /// The received bytes that the decoder has not consumed.
    bytes: BytesMut,
    /// Whether the decoder has consumed the prelude of the current message.
    is_in_message: bool,
    limits: Limits,
}

impl MessageDecoder {
    /// Creates a decoder. `max_event_bytes` applies to each message, and `max_line_bytes` is not
    /// used.
    pub(super) fn new(limits: Limits) -> Self {
        let (decoder, bytes) = (MessageFrameDecoder::new(), BytesMut::new());
        Self { decoder, bytes, is_in_message: false, limits }
    }

    /// Returns the next message, or `None` if not all its bytes have been received.
    fn next(&mut self) -> Result<Option<Message>, FrameError> {
        if !self.is_in_message {
            if self.bytes.remaining() < PRELUDE_BYTES {
                return Ok(None);
            }
            let length = self.bytes.first_chunk().map(|bytes| u32::from_be_bytes(*bytes));
            let length = usize::try_from(length.unwrap_or_default()).unwrap_or(usize::MAX);
            self.limits.check(Limit::Event, length).map_err(FrameError::Limit)?;
            self.is_in_message = true;
        }
        let decoded = self.decoder.decode_frame(&mut self.bytes);
        match decoded.map_err(|error| FrameError::Damaged(error.into()))? {
            DecodedFrame::Incomplete => Ok(None),
            DecodedFrame::Complete(message) => {
                self.is_in_message = false;
                Ok(Some(message))
            }
        }
    }
}

impl Decoder for MessageDecoder {
    fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        self.bytes.extend_from_slice(bytes);
        while let Some(message) = self.next()? {
            frames.push(frame(&message)?);
        }
        Ok(())
    }

    /// Appends no frame: [`push`](Decoder::push) has already decoded every complete message.
    fn finish(&mut self, _frames: &mut Vec<Frame>) {}
}

/// Converts a message to a frame. A message with the header `:exception-type` or `:error-code`,
/// which reports an error, becomes a frame with the event name `error` and the data
/// `{"error": {"type": …, "message": …}}`. Fails if the payload of the message is not UTF-8.
fn frame(message: &Message) -> Result<Frame, FrameError> {
    let named = |name: &str| {
        let header = message.headers().iter().find(|header| header.name().as_str() == name)?;
        header.value().as_string().ok().map(|value| value.as_str().to_owned())
    };
    let data = std::str::from_utf8(message.payload());
    let data = data.map_err(|error| FrameError::Damaged(error.into()))?.to_owned();
    let Some(kind) = named(":exception-type").or_else(|| named(":error-code")) else {
        return Ok(Frame { event: named(":event-type"), data });
    };
    let text = named(":error-message").unwrap_or_else(|| exception_message(&data));
    let data = json!({"error": {"type": kind, "message": text}}).to_string();
    Ok(Frame { event: Some("error".to_owned()), data })
}

/// Returns the field `message` in the payload of an exception, or else the whole payload.
fn exception_message(payload: &str) -> String {
    let json: Value = serde_json::from_str(payload).unwrap_or_default();
    let text = json.get("message").and_then(Value::as_str);
    text.map_or_else(|| payload.to_owned(), str::to_owned)
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use aws_smithy_eventstream::frame::write_message_to;
    use aws_smithy_types::event_stream::{Header, HeaderValue};
    use tower_chat_wire::stream::LimitExceeded;

    use super::*;

    fn message(kind: &'static str, name: &'static str, payload: &'static str) -> Vec<u8> {
        let message = Message::new(payload.as_bytes())
            .add_header(Header::new(kind, HeaderValue::String(name.into())))
            .add_header(Header::new(":content-type", HeaderValue::String("x".into())));
        let mut bytes = Vec::new();
        write_message_to(&message, &mut bytes).unwrap();
        bytes
    }

    fn frame(event: &str, data: &str) -> Frame {
        Frame { event: Some(event.to_owned()), data: data.to_owned() }
    }

    #[test]
    fn messages_are_decoded_equally_wherever_the_bytes_are_split() {
        let mut bytes = message(":event-type", "messageStart", r#"{"role":"assistant"}"#);
        bytes.extend(message(":event-type", "contentBlockDelta", r#"{"delta":{"text":"ü"}}"#));
        bytes.extend(message(":exception-type", "throttlingException", r#"{"message":"wait"}"#));
        bytes.extend(message(":error-code", "500", "not JSON"));
        let expected = [
            frame("messageStart", r#"{"role":"assistant"}"#),
            frame("contentBlockDelta", r#"{"delta":{"text":"ü"}}"#),
            frame("error", r#"{"error":{"message":"wait","type":"throttlingException"}}"#),
            frame("error", r#"{"error":{"message":"not JSON","type":"500"}}"#),
        ];
        for cut in 0..bytes.len() {
            let mut decoder = MessageDecoder::new(Limits::default());
            let mut frames = Vec::new();
            decoder.push(&bytes[..cut], &mut frames).unwrap();
            decoder.push(&bytes[cut..], &mut frames).unwrap();
            assert_eq!(frames, expected, "{cut}");
        }
    }

    /// The messages before a damaged message must be decoded, because they may complete the answer,
    /// even if all messages arrive in the same piece of the body.
    #[test]
    fn messages_before_a_damaged_message_are_decoded() {
        let mut bytes = message(":event-type", "messageStop", r#"{"stopReason":"end_turn"}"#);
        bytes.extend(b"the following bytes are not a message");
        let mut frames = Vec::new();
        let pushed = MessageDecoder::new(Limits::default()).push(&bytes, &mut frames);
        assert!(pushed.is_err(), "{pushed:?}");
        assert_eq!(frames, [frame("messageStop", r#"{"stopReason":"end_turn"}"#)]);
    }

    #[test]
    fn the_checksums_detect_every_damaged_byte() {
        let bytes = message(":event-type", "metadata", r#"{"usage":{"inputTokens":7}}"#);
        let limits = Limits::default().with_max_event_bytes(1 << 20);
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            let found = MessageDecoder::new(limits).push(&damaged, &mut Vec::new());
            // If the damaged byte makes the length larger, the decoder waits for more bytes, or the
            // length exceeds the limit.
            let is_longer = position < 4 && damaged[position] > bytes[position];
            match found {
                Err(FrameError::Damaged(_)) => {}
                Err(FrameError::Limit(_)) | Ok(_) if is_longer => {}
                other => panic!("{position}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_message_over_the_limit_is_refused_before_its_payload_arrives() {
        let bytes = message(":event-type", "metadata", r#"{"metrics":{"latencyMs":3}}"#);
        let limits = Limits::default().with_max_event_bytes(bytes.len() - 1);
        let mut decoder = MessageDecoder::new(limits);
        let found = decoder.push(&bytes[..PRELUDE_BYTES], &mut Vec::new());
        let Err(FrameError::Limit(LimitExceeded { limit: Limit::Event, .. })) = found else {
            panic!("{found:?}")
        };
    }
}
