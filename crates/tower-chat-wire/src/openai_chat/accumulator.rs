//! Accumulates the chunks of a streamed answer.

use std::slice;

use tower_chat_core::{Answer, ChatUpdate};

use super::{answer, call::has_free_text, finish, message_accumulator::MessageAccumulator};
use crate::{
    AnswerError,
    finish_fields::note_free_texts,
    object::{self, Object, take},
    stream::{Accumulator, DONE, Frame, ResponseAccumulator},
};

/// Accumulates the chunks of one answer. Each chunk contains a delta, a piece of the message. The
/// answer is complete when a delta was received, and either a finish reason or `[DONE]`: some
/// services do not send `[DONE]`, and others send no finish reason.
#[derive(Debug, Default)]
pub(crate) struct ChatAccumulator {
    message: MessageAccumulator,
    /// The fields of the chunks besides the choice.
    fields: Object,
    /// The fields of the choice besides its deltas.
    choice: Accumulator,
    /// Whether `[DONE]` was received.
    is_done: bool,
    /// Whether a finish reason was received.
    has_reason: bool,
}

impl ResponseAccumulator for ChatAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        if frame.data.trim() == DONE {
            self.is_done = true;
            return Ok(Vec::new());
        }
        let mut fields = object::of_frame(frame)?;
        if let Some(error) = answer::error_in(&fields) {
            return Err(error);
        }
        let mut updates = Vec::new();
        if let Some(choices) = take(&mut fields, "choices")
            && let Some(mut choice) = answer::only_choice(&choices)?
        {
            // A service that does not support streams sends the whole message in one chunk.
            let delta = take(&mut choice, "delta").or_else(|| take(&mut choice, "message"));
            if let Some(delta) = delta {
                let delta = delta
                    .parse()
                    .map_err(|_| AnswerError::malformed("a delta is not an object", delta.get()))?;
                updates = self.message.push(delta)?;
            }
            let reason = object::text(&choice, "finish_reason");
            self.has_reason |= reason.is_some_and(|reason| !reason.is_empty());
            self.choice.push(choice);
        }
        // Chunks repeat these fields, and values such as token counts increase.
        let set = fields.into_iter().filter(|(_, value)| value.get() != "null");
        for (name, value) in set {
            if name != "model" || value.get() != r#""""# {
                self.fields.insert(name, value);
            }
        }
        Ok(updates)
    }

    fn is_complete(&self) -> bool {
        (self.is_done || self.has_reason) && self.message.has_begun()
    }

    fn is_last(&self) -> bool {
        self.is_done
    }

    fn text(&self) -> String {
        self.message.text().to_owned()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let Self { message, fields, choice, .. } = *self;
        let choice = choice.into_object();
        let mut message = message.into_message(finish::ended_for_length(&choice))?;
        let finish = finish::parse(fields, choice, message.calls().next().is_some());
        note_free_texts(slice::from_mut(&mut message), &finish, has_free_text);
        Ok(Answer::new(vec![message.into()], finish))
    }
}
