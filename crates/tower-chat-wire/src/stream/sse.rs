//! Server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).

use super::{
    frame::{Frame, Framing},
    limits::{Limit, LimitExceeded, Limits},
};

/// Reads server-sent events from bytes as they come. An event without its blank line has not come,
/// but for the end of the stream: see [`Framing::end`].
#[derive(Debug, Clone)]
pub struct Sse {
    limits: Limits,
    total: usize,
    line: Vec<u8>,
    /// The bytes of the lines of the event before this line.
    event_bytes: usize,
    /// The last byte was a carriage return, whose line feed may follow.
    is_after_return: bool,
    event: Option<String>,
    data: Option<String>,
}

impl Sse {
    /// A reader with these limits.
    pub fn new(limits: Limits) -> Self {
        Self {
            limits,
            total: 0,
            line: Vec::new(),
            event_bytes: 0,
            is_after_return: false,
            event: None,
            data: None,
        }
    }

    fn extend(&mut self, bytes: &[u8]) -> Result<(), LimitExceeded> {
        let length = self.line.len().saturating_add(bytes.len());
        self.limits.check(Limit::Line, length)?;
        self.limits.check(Limit::Event, self.event_bytes.saturating_add(length))?;
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn line(&mut self) -> Option<Frame> {
        let line = std::mem::take(&mut self.line);
        self.event_bytes = self.event_bytes.saturating_add(line.len());
        let line = String::from_utf8_lossy(&line);
        if line.is_empty() {
            self.event_bytes = 0;
            let event = self.event.take();
            return self.data.take().map(|data| Frame { event, data });
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
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

impl Framing for Sse {
    type Error = LimitExceeded;

    fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Frame>, LimitExceeded> {
        self.total = self.total.saturating_add(bytes.len());
        self.limits.check(Limit::Body, self.total)?;
        let mut frames = Vec::new();
        while let Some(first) = bytes.first() {
            if std::mem::take(&mut self.is_after_return) && *first == b'\n' {
                bytes = bytes.get(1..).unwrap_or_default();
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let Some((line, rest)) = end.and_then(|end| bytes.split_at_checked(end)) else {
                self.extend(bytes)?;
                break;
            };
            self.extend(line)?;
            self.is_after_return = rest.first() == Some(&b'\r');
            bytes = rest.get(1..).unwrap_or_default();
            frames.extend(self.line());
        }
        Ok(frames)
    }

    /// The last event of a stream that ends without the blank line after it. The specification
    /// discards such an event, but some services end their streams so: the caller decides whether it
    /// counts.
    fn end(&mut self) -> Option<Frame> {
        let _unnamed = self.line();
        let (event, data) = (self.event.take(), self.data.take());
        data.map(|data| Frame { event, data })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]
mod tests {
    use super::*;

    fn frame(event: Option<&str>, data: &str) -> Frame {
        Frame { event: event.map(str::to_owned), data: data.to_owned() }
    }

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let text = ": hi\r\nevent: a\r\ndata: {\"x\":\r\ndata: \"ü\"}\r\n\r\ndata:1\n\n\
                    event: none\n\rdata: 2\r\r"
            .as_bytes();
        let expected = [frame(Some("a"), "{\"x\":\n\"ü\"}"), frame(None, "1"), frame(None, "2")];
        for cut in 0..text.len() {
            let mut sse = Sse::new(Limits::default());
            let mut frames = sse.push(&text[..cut]).unwrap();
            frames.extend(sse.push(&text[cut..]).unwrap());
            assert_eq!(frames, expected, "{cut}");
        }
    }

    #[test]
    fn an_event_without_its_blank_line_has_not_come_before_the_end() {
        let mut sse = Sse::new(Limits::default());
        assert_eq!(sse.push(b"data: 1\ndata: 2").unwrap(), []);
        assert_eq!(sse.end(), Some(frame(None, "1\n2")));
        assert_eq!(sse.end(), None);
    }
}
