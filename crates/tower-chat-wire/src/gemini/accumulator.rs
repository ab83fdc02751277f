//! Accumulates the events of a streamed answer.

use std::sync::Arc;

use tower_chat_core::{self as core, Answer, ChatUpdate, RawJson, ToolCallDelta};

use super::{answer, streamed_call::StreamedCall};
use crate::{
    AnswerError,
    object::{self, Object, overlay, raw, take, take_object, text},
    stream::{DONE, Frame, ResponseAccumulator},
};

/// Accumulates the events of one answer. Each event has the form of a whole answer, and contains
/// the next parts.
#[derive(Debug, Default)]
pub(crate) struct GeminiAccumulator {
    fields: Object,
    candidate: Object,
    /// The fields of the content besides its parts.
    content: Object,
    parts: Vec<Part>,
    /// The number of received calls.
    calls: usize,
}

#[derive(Debug)]
enum Part {
    /// A part with a text and no other fields. The text of a following part of the same kind is
    /// appended.
    Plain { text: String, is_thought: bool },
    /// A call whose arguments arrive in pieces. `index` is the index of the call among all calls of
    /// the answer.
    Call { call: StreamedCall, index: usize },
    /// Any other part, unchanged. Texts with a thought signature are not joined with other texts,
    /// because the service expects the signature in the same part again
    /// (<https://ai.google.dev/gemini-api/docs/thought-signatures>).
    Whole(RawJson),
}

impl ResponseAccumulator for GeminiAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        if frame.data.trim() == DONE {
            return Ok(Vec::new());
        }
        let mut fields = object::of_frame(frame)?;
        if let Some(error) = answer::error_in(&fields, &frame.data) {
            return Err(error);
        }
        let mut updates = Vec::new();
        if let Some(candidates) = take(&mut fields, "candidates") {
            let mut list: Vec<Object> = candidates.parse().map_err(|_| {
                AnswerError::malformed("its candidates are not a list of objects", candidates.get())
            })?;
            let first =
                |candidate: &Object| candidate.get("index").is_none_or(|index| index.get() == "0");
            if list.len() > 1 || !list.iter().all(first) {
                let what = "it has several candidates, and a conversation continues with one";
                return Err(AnswerError::malformed(what, candidates.get()));
            }
            if let Some(mut candidate) = list.pop() {
                let mut content = take_object(&mut candidate, "content").unwrap_or_default();
                let parts = take(&mut content, "parts").and_then(|parts| parts.parse().ok());
                let parts: Vec<RawJson> = parts.unwrap_or_default();
                updates.extend(parts.into_iter().filter_map(|part| self.push_part(part)));
                overlay(&mut self.content, content);
                overlay(&mut self.candidate, candidate);
            }
        }
        overlay(&mut self.fields, fields);
        Ok(updates)
    }

    fn is_complete(&self) -> bool {
        text(&self.candidate, "finishReason").is_some()
    }

    fn text(&self) -> String {
        let texts = self.parts.iter().map(|part| match part {
            Part::Plain { text, is_thought: false } => text.clone(),
            Part::Plain { is_thought: true, .. } | Part::Call { .. } => String::new(),
            Part::Whole(part) => {
                visible_text(&part.parse().unwrap_or_default()).unwrap_or_default()
            }
        });
        texts.collect()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let Self { mut fields, mut candidate, mut content, parts, calls: _ } = *self;
        let cut_off = parts.iter().find_map(|part| match part {
            Part::Call { call, index } if call.is_open() => Some((*index, call.arguments())),
            _ => None,
        });
        let parts: Vec<RawJson> = parts.into_iter().map(Part::into_json).collect();
        if !parts.is_empty() || !content.is_empty() {
            content.insert("parts".to_owned(), raw(&parts));
            candidate.insert("content".to_owned(), raw(&content));
        }
        fields.insert("candidates".to_owned(), raw(&[candidate]));
        let mut answer = answer::parse(raw(&fields).get())?;
        if let Some((index, arguments)) = cut_off
            && let Some(message) = answer.messages.first_mut().map(Arc::make_mut)
        {
            let mut calls = message.parts.iter_mut().filter_map(|part| match part {
                core::Part::ToolCall(call) => Some(call),
                _ => None,
            });
            if let Some(call) = calls.nth(index) {
                call.arguments = arguments;
            }
        }
        Ok(answer)
    }
}

impl GeminiAccumulator {
    fn push_part(&mut self, part: RawJson) -> Option<ChatUpdate> {
        let fields: Object = part.parse().unwrap_or_default();
        let is_thought = is_thought(&fields);
        let plain = fields.keys().all(|name| matches!(name.as_str(), "text" | "thought"));
        let text = text(&fields, "text");
        match (plain, text) {
            (true, Some(more)) => {
                match self.parts.last_mut() {
                    Some(Part::Plain { text, is_thought: before }) if *before == is_thought => {
                        text.push_str(&more);
                    }
                    _ => self.parts.push(Part::Plain { text: more.clone(), is_thought }),
                }
                nonempty_delta(more, is_thought)
            }
            (_, Some(text)) => {
                self.parts.push(Part::Whole(part));
                nonempty_delta(text, is_thought)
            }
            (_, None) => self.push_call(part, fields),
        }
    }

    /// Adds a part that is not a text.
    fn push_call(&mut self, part: RawJson, mut fields: Object) -> Option<ChatUpdate> {
        let call = fields.get("functionCall").and_then(|call| call.parse::<Object>().ok());
        let Some(piece) = call else {
            self.parts.push(Part::Whole(part));
            return None;
        };
        if let Some(Part::Call { call, index }) = self.parts.last_mut()
            && call.is_continued_by(&piece)
        {
            fields.remove("functionCall");
            call.push(fields, piece);
            let arguments = || ToolCallDelta::new(*index, call.arguments());
            return (!call.is_open()).then(|| ChatUpdate::ToolCallDelta(arguments()));
        }
        if !StreamedCall::begins_with(&piece) {
            self.parts.push(Part::Whole(part));
            return self.whole_call(fields);
        }
        fields.remove("functionCall");
        let mut call = StreamedCall::default();
        let (id, name) = (text(&piece, "id"), text(&piece, "name"));
        call.push(fields, piece);
        let index = self.calls;
        self.calls += 1;
        let arguments = if call.is_open() { String::new() } else { call.arguments() };
        let mut delta = ToolCallDelta::new(index, arguments);
        (delta.id, delta.name) = (id, name);
        self.parts.push(Part::Call { call, index });
        Some(ChatUpdate::ToolCallDelta(delta))
    }

    fn whole_call(&mut self, mut fields: Object) -> Option<ChatUpdate> {
        let mut call = take_object(&mut fields, "functionCall")?;
        let arguments = take(&mut call, "args").map(|arguments| arguments.get().to_owned());
        let mut delta = ToolCallDelta::new(self.calls, arguments.unwrap_or_default());
        delta.id = text(&call, "id");
        delta.name = text(&call, "name");
        self.calls += 1;
        Some(ChatUpdate::ToolCallDelta(delta))
    }
}

impl Part {
    fn into_json(self) -> RawJson {
        match self {
            Self::Whole(part) => part,
            Self::Call { call, .. } => call.into_json(),
            Self::Plain { text, is_thought } => {
                let mut fields = Object::from([("text".to_owned(), raw(&text))]);
                if is_thought {
                    fields.insert("thought".to_owned(), raw(&true));
                }
                raw(&fields)
            }
        }
    }
}

fn is_thought(fields: &Object) -> bool {
    fields.get("thought").is_some_and(|thought| thought.get() == "true")
}

/// Returns the text of a part. Returns `None` for a thought.
fn visible_text(fields: &Object) -> Option<String> {
    text(fields, "text").filter(|_| !is_thought(fields))
}

fn nonempty_delta(text: String, is_thought: bool) -> Option<ChatUpdate> {
    match (text.is_empty(), is_thought) {
        (true, _) => None,
        (false, true) => Some(ChatUpdate::ReasoningDelta(text)),
        (false, false) => Some(ChatUpdate::TextDelta(text)),
    }
}
