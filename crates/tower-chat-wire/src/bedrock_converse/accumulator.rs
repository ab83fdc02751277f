//! Accumulates the events of a streamed answer.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatUpdate, Part, RawJson, ToolCallDelta};

use super::answer;
use crate::{
    AnswerError,
    object::{self, Object, overlay, raw, take, take_object, take_text, text},
    refusal::{self, CodeFields},
    stream::{Frame, Indexed, ResponseAccumulator},
};

/// Accumulates the events of one answer into the JSON object of a whole answer.
#[derive(Debug, Default)]
pub(crate) struct BedrockAccumulator {
    fields: Object,
    blocks: Indexed<Block>,
    /// The number of received calls of the client's tools.
    calls: usize,
    /// Whether the final event `metadata`, which contains the usage, was received.
    has_ended: bool,
}

#[derive(Debug, Default)]
struct Block {
    text: Option<String>,
    /// If the block is a call: its index among the calls of the client's tools, and its fields
    /// besides the input. The index is `None` if the service runs the tool.
    call: Option<(Option<usize>, Object)>,
    /// The accumulated JSON text of the call's input.
    input: String,
    /// The fields of the result of a provider's own tool, without the content of the result.
    result: Option<Object>,
    result_content: Vec<RawJson>,
    reasoning: Option<String>,
    signature: Option<String>,
    redacted: Option<String>,
    /// The other fields of the block.
    other_fields: Object,
}

impl ResponseAccumulator for BedrockAccumulator {
    fn push(&mut self, frame: &Frame) -> Result<Vec<ChatUpdate>, AnswerError> {
        let mut fields = object::of_frame(frame)?;
        // The field `p` contains only padding.
        fields.remove("p");
        let update = match frame.event.as_deref().unwrap_or_default() {
            "error" => return Err(refusal::parse(None, &frame.data, CodeFields::Others)),
            "contentBlockStart" => {
                let start = take_object(&mut fields, "start").unwrap_or_default();
                self.blocks.begin(fields.get("contentBlockIndex"), Block::default());
                self.push_to_block(&mut fields, start)
            }
            "contentBlockDelta" => {
                let delta = take_object(&mut fields, "delta").unwrap_or_default();
                self.push_to_block(&mut fields, delta)
            }
            "contentBlockStop" | "messageStart" => None,
            "metadata" => {
                self.has_ended = true;
                overlay(&mut self.fields, fields);
                None
            }
            _ => {
                overlay(&mut self.fields, fields);
                None
            }
        };
        Ok(update.into_iter().collect())
    }

    fn is_complete(&self) -> bool {
        self.has_ended && text(&self.fields, "stopReason").is_some()
    }

    fn text(&self) -> String {
        self.blocks.as_slice().iter().filter_map(|block| block.text.as_deref()).collect()
    }

    fn finish(self: Box<Self>) -> Result<Answer, AnswerError> {
        let mut fields = self.fields;
        let blocks = self.blocks.into_items();
        let inputs: Vec<Option<String>> = blocks.iter().map(Block::cut_off_input).collect();
        let blocks: Vec<Object> = blocks.into_iter().map(Block::into_fields).collect();
        let message = Object::from([("content".to_owned(), raw(&blocks))]);
        let output = Object::from([("message".to_owned(), raw(&message))]);
        fields.insert("output".to_owned(), raw(&output));
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

impl BedrockAccumulator {
    /// Adds a piece to the block whose index is in `fields`. If no block has this index, begins a
    /// block. Returns an update for text, for reasoning and for calls of the client's tools.
    fn push_to_block(&mut self, fields: &mut Object, piece: Object) -> Option<ChatUpdate> {
        let index = take(fields, "contentBlockIndex");
        let index = index.as_ref();
        let known = self.blocks.position(index);
        let position = known.unwrap_or_else(|| self.blocks.begin(index, Block::default()));
        self.blocks.get_mut(position)?.push(piece, &mut self.calls)
    }
}

impl Block {
    fn push(&mut self, mut piece: Object, calls: &mut usize) -> Option<ChatUpdate> {
        let mut update = None;
        if let Some(more) = take_text(&mut piece, "text") {
            append(&mut self.text, &more);
            update = nonempty_delta(more, ChatUpdate::TextDelta);
        }
        if let Some(mut call) = take_object(&mut piece, "toolUse") {
            let more = take_text(&mut call, "input").unwrap_or_default();
            self.input.push_str(&more);
            let (position, fields) = self.call.get_or_insert_with(|| {
                let is_clients = text(&call, "type").is_none_or(|kind| kind == "tool_use");
                let position = is_clients.then_some(*calls);
                *calls += usize::from(is_clients);
                (position, Object::new())
            });
            if let Some(position) = *position {
                let mut delta = ToolCallDelta::new(position, more);
                delta.id = text(&call, "toolUseId");
                delta.name = text(&call, "name");
                update = Some(ChatUpdate::ToolCallDelta(delta));
            }
            overlay(fields, call);
        }
        if let Some(result) = take(&mut piece, "toolResult") {
            self.push_result(&result);
        }
        if let Some(mut content) = take_object(&mut piece, "reasoningContent") {
            if let Some(more) = take_text(&mut content, "text") {
                append(&mut self.reasoning, &more);
                update = nonempty_delta(more, ChatUpdate::ReasoningDelta);
            }
            if let Some(more) = take_text(&mut content, "signature") {
                append(&mut self.signature, &more);
            }
            if let Some(more) = take_text(&mut content, "redactedContent") {
                append(&mut self.redacted, &more);
            }
        }
        overlay(&mut self.other_fields, piece);
        update
    }

    /// Adds a piece of a result: an object with fields of the result, or a list of pieces of its
    /// content.
    fn push_result(&mut self, result: &RawJson) {
        let Ok(pieces) = result.parse::<Vec<RawJson>>() else {
            if let Ok(fields) = result.parse::<Object>() {
                overlay(self.result.get_or_insert_default(), fields);
            }
            return;
        };
        self.result.get_or_insert_default();
        for piece in pieces {
            let joined = self.result_content.last().and_then(|last| joined(last, &piece));
            if joined.is_some() {
                self.result_content.pop();
            }
            self.result_content.push(joined.unwrap_or(piece));
        }
    }

    /// Returns the accumulated input if the answer ended before the input was valid JSON.
    fn cut_off_input(&self) -> Option<String> {
        let is_json = self.input.is_empty() || self.input.parse::<RawJson>().is_ok();
        (!is_json).then(|| self.input.clone())
    }

    fn into_fields(self) -> Object {
        let mut fields = self.other_fields;
        let mut set = |name: &str, value: RawJson| drop(fields.insert(name.to_owned(), value));
        if let Some(text) = self.text {
            set("text", raw(&text));
        }
        if let Some((_, mut call)) = self.call {
            let input = self.input.parse().unwrap_or_else(|_| raw(&Object::new()));
            call.insert("input".to_owned(), input);
            set("toolUse", raw(&call));
        }
        if let Some(mut result) = self.result {
            if !self.result_content.is_empty() {
                result.insert("content".to_owned(), raw(&self.result_content));
            }
            set("toolResult", raw(&result));
        }
        if let Some(redacted) = self.redacted {
            let content = Object::from([("redactedContent".to_owned(), raw(&redacted))]);
            set("reasoningContent", raw(&content));
        } else if self.reasoning.is_some() || self.signature.is_some() {
            let text = self.reasoning.unwrap_or_default();
            let mut inner = Object::from([("text".to_owned(), raw(&text))]);
            if let Some(signature) = self.signature {
                inner.insert("signature".to_owned(), raw(&signature));
            }
            let content = Object::from([("reasoningText".to_owned(), raw(&inner))]);
            set("reasoningContent", raw(&content));
        }
        fields
    }
}

/// Joins two pieces of content, if each has the field `text` and no other field.
fn joined(first: &RawJson, second: &RawJson) -> Option<RawJson> {
    let only_text = |piece: &RawJson| {
        let fields: Object = piece.parse().ok()?;
        text(&fields, "text").filter(|_| fields.len() == 1)
    };
    let text = only_text(first)? + &only_text(second)?;
    Some(raw(&Object::from([("text".to_owned(), raw(&text))])))
}

fn append(text: &mut Option<String>, more: &str) {
    text.get_or_insert_default().push_str(more);
}

fn nonempty_delta(more: String, update: fn(String) -> ChatUpdate) -> Option<ChatUpdate> {
    (!more.is_empty()).then(|| update(more))
}
