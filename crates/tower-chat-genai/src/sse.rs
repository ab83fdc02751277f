//! Server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use crate::{GenAiError, direct::Framing, frame::Frame};

/// Reads events from bytes as they come.
#[derive(Debug, Default)]
pub(crate) struct Sse {
    line: Vec<u8>,
    /// The last byte was a carriage return, whose line feed may follow.
    is_after_return: bool,
    event: Option<String>,
    data: Option<String>,
}

impl Framing for Sse {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, GenAiError> {
        let mut frames = Vec::new();
        for byte in bytes {
            let is_pair = *byte == b'\n' && self.is_after_return;
            self.is_after_return = *byte == b'\r';
            if is_pair {
                continue;
            }
            if matches!(byte, b'\n' | b'\r') {
                let line = std::mem::take(&mut self.line);
                frames.extend(self.line(&String::from_utf8_lossy(&line)));
            } else {
                self.line.push(*byte);
            }
        }
        Ok(frames)
    }
}

impl Sse {
    fn line(&mut self, line: &str) -> Option<Frame> {
        if line.is_empty() {
            let event = self.event.take();
            return self.data.take().map(|data| Frame { event, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => self.event = Some(value.to_owned()),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
        None
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let text = ": hi\r\nevent: a\r\ndata: {\"x\":\r\ndata: \"ü\"}\r\n\r\ndata:1\n\n\
                    event: none\n\rdata: 2\r\r"
            .as_bytes();
        let frame = |event: Option<&str>, data: &str| Frame {
            event: event.map(str::to_owned),
            data: data.to_owned(),
        };
        let expected = [frame(Some("a"), "{\"x\":\n\"ü\"}"), frame(None, "1"), frame(None, "2")];
        for cut in 0..text.len() {
            let mut sse = Sse::default();
            let mut frames = sse.push(&text[..cut]).unwrap();
            frames.extend(sse.push(&text[cut..]).unwrap());
            assert_eq!(frames, expected, "{cut}");
        }
    }

    #[test]
    fn an_event_without_its_blank_line_has_not_come() {
        assert_eq!(Sse::default().push(b"data: 1\n").unwrap(), []);
    }
}
