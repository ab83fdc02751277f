//! Accumulates the events of a streamed answer.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatUpdate, Part, RawJson, ToolCallDelta};

use super::answer;
use crate::{
    AnswerError,
    object::{self, Object, as_text, overlay, raw, take, take_object, take_text, text},
    refusal::{self, CodeFields},
    stream::{DONE, Frame, Indexed, ResponseAccumulator},
};

/// Accumulates the events of one answer into the JSON object of a whole answer.
#[derive(Debug, Default)]
pub(crate) struct AnthropicAccumulator {
    /// The fields of the message besides `content` and `usage`.
    fields: Object,
    usage: Object,
    blocks: Indexed<Block>,
    /// The number of received calls that the client has to answer.
    calls: usize,
    /// Whether the event `message_stop` was received.
    has_stopped: bool,
}

#[derive(Debug, Default)]
struct Block {
    fields: Object,
    /// The text fields that arrive in deltas: the name of each field, and its accumulated text.
    texts: Vec<(&'static str, String)>,
    /// The accumulated `partial_json` of a call's input.
    input: String,
    citations: Vec<RawJson>,
    /// If the block is a call that the client has to answer: its index among these calls.
    call: Option<usize>,
}

impl ResponseAccumulator for AnthropicAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        if frame.data.trim() == DONE {
            return Ok(Vec::new());
        }
        let mut fields = object::of_frame(frame)?;
        if refusal::is_error(&fields, "delta") {
            return Err(refusal::parse(None, &frame.data, CodeFields::Others));
        }
        let kind = take_text(&mut fields, "type").or_else(|| frame.event.clone());
        let updates = match kind.as_deref().unwrap_or_default() {
            "error" => return Err(refusal::parse(None, &frame.data, CodeFields::Others)),
            "message_start" => {
                self.start(take_object(&mut fields, "message").unwrap_or_default());
                None
            }
            "content_block_start" => self.start_block(fields),
            "content_block_delta" => self.push_delta(fields)?,
            "message_delta" => {
                overlay(&mut self.fields, take_object(&mut fields, "delta").unwrap_or_default());
                overlay(&mut self.usage, take_object(&mut fields, "usage").unwrap_or_default());
                overlay(&mut self.fields, fields);
                None
            }
            "message_stop" => {
                self.has_stopped = true;
                None
            }
            // The events `ping` and `content_block_stop` have no content. Unknown events have none
            // either: by the service's versioning policy, content is only in the known events.
            _ => None,
        };
        Ok(updates.into_iter().collect())
    }

    fn is_complete(&self) -> bool {
        // Some compatible services omit the stop reason, and others omit the event `message_stop`.
        self.has_stopped || text(&self.fields, "stop_reason").is_some()
    }

    fn text(&self) -> String {
        let texts = self.blocks.as_slice().iter().flat_map(|block| &block.texts);
        texts.filter(|(name, _)| *name == "text").map(|(_, text)| text.as_str()).collect()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let mut fields = self.fields;
        let blocks = self.blocks.into_items();
        let inputs: Vec<Option<String>> = blocks.iter().map(Block::cut_off_input).collect();
        let blocks: Vec<Object> = blocks.into_iter().map(Block::into_fields).collect();
        fields.insert("content".to_owned(), raw(&blocks));
        if !self.usage.is_empty() {
            fields.insert("usage".to_owned(), raw(&self.usage));
        }
        let mut answer = answer::parse(raw(&fields).get())?;
        let message = answer.messages.first_mut().map(Arc::make_mut);
        // The message has one part for each block, in the same order.
        for (part, input) in message.into_iter().flat_map(|it| &mut it.parts).zip(inputs) {
            if let (Part::ToolCall(call), Some(input)) = (part, input) {
                call.arguments = input;
            }
        }
        Ok(answer)
    }
}

impl AnthropicAccumulator {
    fn start(&mut self, mut message: Object) {
        message.remove("content");
        overlay(&mut self.usage, take_object(&mut message, "usage").unwrap_or_default());
        overlay(&mut self.fields, message);
    }

    fn start_block(&mut self, mut fields: Object) -> Option<ChatUpdate> {
        let index = take(&mut fields, "index");
        let begun = take_object(&mut fields, "content_block").unwrap_or_default();
        let mut block = Block { fields: begun, ..Block::default() };
        if text(&block.fields, "type").is_some_and(|kind| kind == "tool_use") {
            block.call = Some(self.calls);
            self.calls += 1;
        }
        for name in ["text", "thinking", "signature"] {
            if let Some(text) = take_text(&mut block.fields, name) {
                block.texts.push((name, text));
            }
        }
        let begun = block.texts.iter().find(|(_, text)| !text.is_empty());
        let update = match begun {
            Some(("text", text)) => Some(ChatUpdate::TextDelta(text.clone())),
            Some(("thinking", text)) => Some(ChatUpdate::ReasoningDelta(text.clone())),
            _ => block.call.map(|call| block.delta(call, String::new())),
        };
        self.blocks.begin(index.as_ref(), block);
        update
    }

    fn push_delta(&mut self, mut fields: Object) -> Result<Option<ChatUpdate>, AnswerError> {
        let index = take(&mut fields, "index");
        let malformed =
            |what: &str| AnswerError::malformed(what, index.as_ref().map_or("", RawJson::get));
        let mut delta = take_object(&mut fields, "delta")
            .ok_or_else(|| malformed("a delta of a block is not an object"))?;
        let block = self.blocks.newest(index.as_ref());
        let block = block.ok_or_else(|| malformed("a delta belongs to no block"))?;
        delta.remove("type");
        Ok(block.push(delta))
    }
}

impl Block {
    /// Adds the fields of a delta to the block.
    fn push(&mut self, delta: Object) -> Option<ChatUpdate> {
        let mut update = None;
        for (name, value) in delta {
            let text = as_text(&value);
            match (name.as_str(), text) {
                ("text", Some(text)) => {
                    self.push_text("text", &text);
                    update = Some(ChatUpdate::TextDelta(text));
                }
                ("thinking", Some(text)) => {
                    self.push_text("thinking", &text);
                    update = Some(ChatUpdate::ReasoningDelta(text));
                }
                ("signature", Some(text)) => self.replace("signature", text),
                ("partial_json", Some(text)) => {
                    self.input.push_str(&text);
                    update = self.call.map(|call| self.delta(call, text));
                }
                ("citation", _) => self.citations.push(value),
                _ => drop(self.fields.insert(name, value)),
            }
        }
        update
    }

    fn push_text(&mut self, name: &'static str, more: &str) {
        match self.texts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, text)) => text.push_str(more),
            None => self.texts.push((name, more.to_owned())),
        }
    }

    /// Sets a text field that arrives as a whole. An empty text does not replace an earlier text.
    fn replace(&mut self, name: &'static str, text: String) {
        match self.texts.iter_mut().find(|(known, _)| *known == name) {
            Some((_, before)) if !text.is_empty() => *before = text,
            Some(_) => {}
            None => self.texts.push((name, text)),
        }
    }

    fn delta(&self, index: usize, arguments: String) -> ChatUpdate {
        let mut delta = ToolCallDelta::new(index, arguments);
        delta.id = text(&self.fields, "id");
        delta.name = text(&self.fields, "name");
        ChatUpdate::ToolCallDelta(delta)
    }

    /// Returns the accumulated input if the answer ended before the input was valid JSON.
    fn cut_off_input(&self) -> Option<String> {
        let is_json = self.input.is_empty() || self.input.parse::<RawJson>().is_ok();
        (!is_json).then(|| self.input.clone())
    }

    fn into_fields(self) -> Object {
        let mut fields = self.fields;
        for (name, text) in self.texts {
            fields.insert(name.to_owned(), raw(&text));
        }
        if !self.citations.is_empty() {
            let begun = fields.get("citations").and_then(|list| list.parse().ok());
            let mut list: Vec<RawJson> = begun.unwrap_or_default();
            list.extend(self.citations);
            fields.insert("citations".to_owned(), raw(&list));
        }
        if let Ok(input) = self.input.parse() {
            fields.insert("input".to_owned(), input);
        }
        fields
    }
}
