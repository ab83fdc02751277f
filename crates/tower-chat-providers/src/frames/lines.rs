//! Decodes newline-delimited JSON, the format of Ollama's streams. Each line becomes a frame, which
//! is one event of a streamed answer.

use tower_chat_wire::stream::{Frame, Limit, LimitExceeded, Limits};

use super::{Decoder, FrameError};

/// A decoder that converts each line that is not blank to a frame.
pub(super) struct LineDecoder {
    /// The received bytes of the current line.
    line: Vec<u8>,
    limits: Limits,
}

impl LineDecoder {
    /// Creates a decoder. Both limits `max_line_bytes` and `max_event_bytes` apply to each line.
    pub(super) fn new(limits: Limits) -> Self {
        Self { line: Vec::new(), limits }
    }

    /// Returns the current line without leading and trailing white space, and begins the next line.
    fn take_line(&mut self) -> String {
        let line = std::mem::take(&mut self.line);
        String::from_utf8_lossy(&line).trim().to_owned()
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), LimitExceeded> {
        let length = self.line.len().saturating_add(bytes.len());
        self.limits.check(Limit::Line, length)?;
        self.limits.check(Limit::Event, length)?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }
}

impl Decoder for LineDecoder {
    fn push(&mut self, bytes: &[u8], frames: &mut Vec<Frame>) -> Result<(), FrameError> {
        let mut lines = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(piece) = lines.next() {
            self.extend(piece).map_err(FrameError::Limit)?;
            if lines.peek().is_none() {
                break;
            }
            let data = self.take_line();
            if !data.is_empty() {
                frames.push(Frame { event: None, data });
            }
        }
        Ok(())
    }

    fn finish(&mut self, frames: &mut Vec<Frame>) {
        let data = self.take_line();
        if super::is_complete_json(&data) {
            frames.push(Frame { event: None, data });
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn frame(data: &str) -> Frame {
        Frame { event: None, data: data.to_owned() }
    }

    #[test]
    fn lines_before_a_line_that_is_too_long_are_decoded() {
        let text = b"{\"at\":1}\n\n{\"at\":2}\r\n{\"at\":\"too long\"}\n{\"at\":3}\n";
        for cut in 0..text.len() {
            let mut decoder = LineDecoder::new(Limits::default().with_max_line_bytes(12));
            let mut frames = Vec::new();
            let (first, second) = text.split_at(cut);
            let pushed = decoder.push(first, &mut frames);
            let pushed = pushed.and_then(|()| decoder.push(second, &mut frames));
            let FrameError::Limit(exceeded) = pushed.unwrap_err() else { panic!("at {cut}") };
            assert_eq!((exceeded.limit, exceeded.max), (Limit::Line, 12), "at {cut}");
            assert_eq!(frames, [frame("{\"at\":1}"), frame("{\"at\":2}")], "at {cut}");
        }
    }
}
