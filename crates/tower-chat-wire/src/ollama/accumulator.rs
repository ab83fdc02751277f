//! Accumulates the lines of a streamed answer.

use tower_chat_core::{Answer, ChatUpdate, RawJson, ToolCallDelta};

use super::answer;
use crate::{
    AnswerError,
    object::{self, Object, overlay, raw, take, take_object, take_text, text},
    refusal::{self, CodeFields},
    stream::{Frame, ResponseAccumulator},
};

/// Accumulates the lines of one answer. Each line has the form of a whole answer, and contains the
/// next text or whole calls.
#[derive(Debug, Default)]
pub(crate) struct OllamaAccumulator {
    fields: Object,
    message: Object,
    text: String,
    thinking: String,
    calls: Vec<RawJson>,
}

impl ResponseAccumulator for OllamaAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        let mut fields = object::of_frame(frame)?;
        if refusal::is_error(&fields, "message") {
            return Err(refusal::parse(None, &frame.data, CodeFields::Others));
        }
        let mut updates = Vec::new();
        let mut message = take_object(&mut fields, "message").unwrap_or_default();
        if let Some(more) = take_text(&mut message, "thinking").filter(|more| !more.is_empty()) {
            self.thinking.push_str(&more);
            updates.push(ChatUpdate::ReasoningDelta(more));
        }
        if let Some(more) = take_text(&mut message, "content").filter(|more| !more.is_empty()) {
            self.text.push_str(&more);
            updates.push(ChatUpdate::TextDelta(more));
        }
        let calls = take(&mut message, "tool_calls");
        let calls: Option<Vec<RawJson>> = calls.and_then(|calls| calls.parse().ok());
        for call in calls.unwrap_or_default() {
            updates.push(delta(self.calls.len(), &call));
            self.calls.push(call);
        }
        overlay(&mut self.message, message);
        overlay(&mut self.fields, fields);
        Ok(updates)
    }

    fn is_complete(&self) -> bool {
        // The field `done` decides, because Ollama sends no finish reason for some models.
        self.fields.get("done").is_some_and(|done| done.get() == "true")
    }

    fn text(&self) -> String {
        self.text.clone()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let Self { mut fields, mut message, text, thinking, calls } = *self;
        message.insert("content".to_owned(), raw(&text));
        if !thinking.is_empty() {
            message.insert("thinking".to_owned(), raw(&thinking));
        }
        if !calls.is_empty() {
            message.insert("tool_calls".to_owned(), raw(&calls));
        }
        fields.insert("message".to_owned(), raw(&message));
        answer::parse(raw(&fields).get())
    }
}

fn delta(index: usize, call: &RawJson) -> ChatUpdate {
    let mut call: Object = call.parse().unwrap_or_default();
    let mut function = take_object(&mut call, "function").unwrap_or_default();
    let arguments = take(&mut function, "arguments");
    let arguments = arguments.map(|arguments| arguments.get().to_owned()).unwrap_or_default();
    let mut delta = ToolCallDelta::new(index, arguments);
    delta.id = text(&call, "id");
    delta.name = text(&function, "name");
    ChatUpdate::ToolCallDelta(delta)
}
