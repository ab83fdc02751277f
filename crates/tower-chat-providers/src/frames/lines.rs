//! One JSON value a line, as Ollama streams.

use tower_chat_wire::stream::{Frame, Framing, Limits, Lines};

use super::{Decoder, FrameError};

pub(super) struct LineDecoder(Lines);

impl LineDecoder {
    pub(super) fn new(limits: Limits) -> Self {
        Self(Lines::new(limits))
    }
}

impl Decoder for LineDecoder {
    fn push(&mut self, bytes: &[u8]) -> Result<Vec<Frame>, FrameError> {
        self.0.push(bytes).map_err(FrameError::Limit)
    }
}
