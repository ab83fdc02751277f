//! One JSON value a line, as Ollama streams.

use crate::{GenAiError, direct::Framing, frame::Frame};

/// Reads lines from bytes as they come. A line that is not ended has not come.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    line: Vec<u8>,
}

impl Framing for Lines {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, GenAiError> {
        let mut frames = Vec::new();
        for byte in bytes {
            if *byte != b'\n' {
                self.line.push(*byte);
                continue;
            }
            let line = std::mem::take(&mut self.line);
            let data = String::from_utf8_lossy(&line).trim().to_owned();
            if !data.is_empty() {
                frames.push(Frame { event: None, data });
            }
        }
        Ok(frames)
    }
}
