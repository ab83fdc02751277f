//! Accumulates the events of a streamed answer.

use tower_chat_core::{Answer, ChatUpdate, RawJson, ToolCallDelta};

use super::{PLAN, answer};
use crate::{
    AnswerError,
    object::{self, Object, overlay, raw, take, take_object, take_text, text},
    refusal::{self, CodeFields},
    stream::{DONE, Frame, Indexed, ResponseAccumulator},
};

/// Accumulates the events of one answer into the JSON object of a whole answer.
#[derive(Debug, Default)]
pub(crate) struct CohereAccumulator {
    fields: Object,
    message: Object,
    /// The accumulated `tool_plan`.
    plan: String,
    blocks: Indexed<Block>,
    calls: Indexed<Call>,
    citations: Vec<RawJson>,
    /// Whether the event `message-end` was received.
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Block {
    fields: Object,
    /// The name of the field that arrives in deltas: `text` or `thinking`. Empty before the first
    /// delta.
    name: &'static str,
    /// The accumulated text of this field.
    text: String,
}

#[derive(Debug, Default)]
struct Call {
    fields: Object,
    function: Object,
    arguments: String,
}

impl ResponseAccumulator for CohereAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        if frame.data.trim() == DONE {
            return Ok(Vec::new());
        }
        let mut fields = object::of_frame(frame)?;
        if refusal::is_error(&fields, "delta") {
            return Err(refusal::parse(None, &frame.data, CodeFields::Others));
        }
        let kind = take_text(&mut fields, "type").or_else(|| frame.event.clone());
        let index = take(&mut fields, "index");
        let mut delta = take_object(&mut fields, "delta").unwrap_or_default();
        let mut message = take_object(&mut delta, "message").unwrap_or_default();
        let update = match kind.as_deref().unwrap_or_default() {
            "message-start" => {
                message.retain(|_, value| !matches!(value.get(), "[]" | "\"\""));
                overlay(&mut self.message, message);
                None
            }
            "content-start" => {
                self.blocks.begin(index.as_ref(), Block::default());
                self.push_to_block(index.as_ref(), take_object(&mut message, "content"))
            }
            "content-delta" => {
                self.push_to_block(index.as_ref(), take_object(&mut message, "content"))
            }
            "tool-plan-delta" => {
                let more = take_text(&mut message, PLAN).unwrap_or_default();
                self.plan.push_str(&more);
                nonempty_delta(more, ChatUpdate::ReasoningDelta)
            }
            "tool-call-start" => {
                self.calls.begin(index.as_ref(), Call::default());
                self.push_to_call(index.as_ref(), take_object(&mut message, "tool_calls"))
            }
            "tool-call-delta" => {
                self.push_to_call(index.as_ref(), take_object(&mut message, "tool_calls"))
            }
            "citation-start" => {
                self.citations.extend(take(&mut message, "citations"));
                None
            }
            "message-end" => {
                self.has_ended = true;
                overlay(&mut self.fields, delta);
                None
            }
            _ => None,
        };
        overlay(&mut self.fields, fields);
        Ok(update.into_iter().collect())
    }

    fn is_complete(&self) -> bool {
        self.has_ended
    }

    fn text(&self) -> String {
        let texts = self.blocks.as_slice().iter().filter(|block| block.name == "text");
        texts.map(|block| block.text.as_str()).collect()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let Self { mut fields, mut message, plan, blocks, calls, citations, has_ended: _ } = *self;
        let mut set = |name: &str, list: Vec<RawJson>| {
            if !list.is_empty() {
                message.insert(name.to_owned(), raw(&list));
            }
        };
        set("content", blocks.into_items().into_iter().map(Block::into_json).collect());
        set("tool_calls", calls.into_items().into_iter().map(Call::into_json).collect());
        set("citations", citations);
        if !plan.is_empty() {
            message.insert(PLAN.to_owned(), raw(&plan));
        }
        fields.insert("message".to_owned(), raw(&message));
        answer::parse(raw(&fields).get())
    }
}

impl CohereAccumulator {
    fn push_to_block(
        &mut self,
        index: Option<&RawJson>,
        content: Option<Object>,
    ) -> Option<ChatUpdate> {
        let mut content = content?;
        let block = self.blocks.newest(index)?;
        let mut update = None;
        if let Some(more) = take_text(&mut content, "text") {
            block.name = "text";
            block.text.push_str(&more);
            update = nonempty_delta(more, ChatUpdate::TextDelta);
        } else if let Some(more) = take_text(&mut content, "thinking") {
            block.name = "thinking";
            block.text.push_str(&more);
            update = nonempty_delta(more, ChatUpdate::ReasoningDelta);
        }
        overlay(&mut block.fields, content);
        update
    }

    fn push_to_call(
        &mut self,
        index: Option<&RawJson>,
        piece: Option<Object>,
    ) -> Option<ChatUpdate> {
        let mut piece = piece?;
        let position = self.calls.position(index)?;
        let call = self.calls.get_mut(position)?;
        let mut function = take_object(&mut piece, "function").unwrap_or_default();
        let more = take_text(&mut function, "arguments").unwrap_or_default();
        call.arguments.push_str(&more);
        let mut delta = ToolCallDelta::new(position, more);
        delta.id = text(&piece, "id");
        delta.name = text(&function, "name");
        overlay(&mut call.fields, piece);
        overlay(&mut call.function, function);
        Some(ChatUpdate::ToolCallDelta(delta))
    }
}

impl Block {
    fn into_json(mut self) -> RawJson {
        if !self.name.is_empty() {
            self.fields.insert(self.name.to_owned(), raw(&self.text));
        }
        raw(&self.fields)
    }
}

impl Call {
    fn into_json(mut self) -> RawJson {
        self.function.insert("arguments".to_owned(), raw(&self.arguments));
        self.fields.insert("function".to_owned(), raw(&self.function));
        raw(&self.fields)
    }
}

fn nonempty_delta(more: String, update: fn(String) -> ChatUpdate) -> Option<ChatUpdate> {
    (!more.is_empty()).then(|| update(more))
}
