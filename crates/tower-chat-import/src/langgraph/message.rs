//! Converts LangChain's messages.

use std::collections::{HashMap, HashSet};

use serde_json::Value;
use tower_chat_core::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};

use super::OVERWRITE;
use crate::{
    ImportedConversation,
    content::{self, Signature, UNKNOWN_MEDIA},
    error::WrongValue,
    node::{Node, Object},
};

/// The metadata key for data that a tool returned to the program but not to the model.
const ARTIFACT: &str = "langgraph.artifact";

/// The messages of a channel (a named value in the state of a graph), merged as by LangGraph's
/// `add_messages`: if two messages have the same id, the later message replaces the earlier one at
/// its position.
pub(super) struct Messages {
    pub(super) conversation: ImportedConversation,
    /// The messages in their order, with `None` at the position of a removed message.
    entries: Vec<Option<Message>>,
    /// The index in `entries` of each message, by the id of the message.
    by_id: HashMap<String, usize>,
}

impl Messages {
    pub(super) fn new(conversation: ImportedConversation) -> Self {
        Self { conversation, entries: Vec::new(), by_id: HashMap::new() }
    }

    /// Merges a value of the channel, which is a message or a list of messages.
    pub(super) fn apply(&mut self, value: &Node, position: &str) -> Result<(), WrongValue> {
        if value.is_object()
            && let Some(replacement) = value.object()?.get(OVERWRITE)
        {
            self.clear();
            return self.apply(&replacement, position);
        }
        let items = if value.is_list() { value.list()? } else { vec![value.clone()] };
        for (number, item) in (1..).zip(&items) {
            let position = format!("{position}, message {number}");
            self.add(item, &position)?;
        }
        Ok(())
    }

    pub(super) fn into_conversation(self) -> ImportedConversation {
        let mut conversation = self.conversation;
        conversation.messages = self.entries.into_iter().flatten().collect();
        conversation
    }

    fn add(&mut self, node: &Node, position: &str) -> Result<(), WrongValue> {
        let object = unwrapped(node.object()?)?;
        let kind = kind(&object)?;
        let id = object.text("id")?;
        if kind == "remove" {
            match id.as_deref() {
                Some("__remove_all__") => self.clear(),
                Some(id) => {
                    let removed = self.by_id.remove(id);
                    let removed = removed.and_then(|index| self.entries.get_mut(index));
                    removed.map(Option::take);
                }
                None => {}
            }
            return Ok(());
        }
        let message = self.message(&kind, &object, position)?;
        let index = id.as_ref().and_then(|id| self.by_id.get(id).copied());
        if let Some(entry) = index.and_then(|index| self.entries.get_mut(index)) {
            *entry = Some(message);
        } else {
            self.by_id.extend(id.map(|id| (id, self.entries.len())));
            self.entries.push(Some(message));
        }
        Ok(())
    }

    fn clear(&mut self) {
        self.entries.clear();
        self.by_id.clear();
    }

    fn message(
        &mut self,
        kind: &str,
        object: &Object,
        position: &str,
    ) -> Result<Message, WrongValue> {
        let extra = object.get("additional_kwargs").map(|extra| extra.object()).transpose()?;
        let role = match kind {
            "human" | "HumanMessageChunk" | "user" => Role::User,
            "system" | "SystemMessageChunk" => match &extra {
                Some(extra) if extra.text("__openai_role__")?.as_deref() == Some("developer") => {
                    Role::Developer
                }
                Some(_) | None => Role::System,
            },
            "ai" | "AIMessageChunk" | "assistant" => {
                return self.answer(object, extra.as_ref(), position);
            }
            "tool" | "ToolMessageChunk" => return self.result(object, position),
            _ => {
                let expected = "a human, system, ai or tool message";
                return Err(object.need("type", expected)?.wrong(expected));
            }
        };
        let mut message = Message::new(role, self.content(object, &[], position)?);
        message.author = object.text("name")?;
        Ok(message)
    }

    fn answer(
        &mut self,
        object: &Object,
        extra: Option<&Object>,
        position: &str,
    ) -> Result<Message, WrongValue> {
        let mut calls = Vec::new();
        for call in object.list("tool_calls")? {
            let call = call.object()?;
            calls.push(tool_call(&call, call.get("args"), extra)?);
        }
        // The arguments of these calls are text of the model that is not valid JSON.
        for call in object.list("invalid_tool_calls")? {
            let call = call.object()?;
            calls.push(tool_call(&call, call.get("args"), extra)?);
        }
        let mut parts = Vec::new();
        let reasoning = extra.map(|extra| extra.get("reasoning_content")).unwrap_or_default();
        if let Some(reasoning) = reasoning.filter(Node::is_text) {
            parts.push(content::reasoning(reasoning.text()?, Signature::None));
        }
        parts.extend(self.content(object, &calls, position)?);
        parts.extend(calls.into_iter().map(Part::ToolCall));
        let mut message = Message::new(Role::Assistant, content::join_reasoning(parts));
        message.author = object.text("name")?;
        Ok(message)
    }

    fn result(&mut self, object: &Object, position: &str) -> Result<Message, WrongValue> {
        let mut content = self.content(object, &[], position)?;
        if content.is_empty() {
            content.push(Part::text(String::new()));
        }
        let mut result = ToolResult::of_parts("", content);
        result.call_id = object.text("tool_call_id")?.filter(|id| !id.is_empty());
        result.name = object.text("name")?;
        result.is_error = object.text("status")?.as_deref() == Some("error");
        let mut message = Message::tool_results([result]);
        if let Some(artifact) = object.get("artifact") {
            let artifact: Value = artifact
                .json
                .parse()
                .map_err(|_| artifact.wrong("a value with fewer levels of nesting"))?;
            message.metadata.insert(ARTIFACT.to_owned(), artifact);
        }
        Ok(message)
    }

    /// Returns the parts of a content without the calls in `calls`. Unknown blocks are losses.
    fn content(
        &mut self,
        object: &Object,
        calls: &[ToolCall],
        position: &str,
    ) -> Result<Vec<Part>, WrongValue> {
        let content = object.need("content", "a text or a list")?;
        if !content.is_list() {
            let text = content.text()?;
            let is_absent = text.is_empty() && !calls.is_empty();
            return Ok(if is_absent { Vec::new() } else { vec![Part::text(text)] });
        }
        let ids: HashSet<&str> = calls.iter().filter_map(|call| call.id.as_deref()).collect();
        let mut parts = Vec::new();
        for block in content.list()? {
            if block.is_text() {
                parts.push(Part::text(block.text()?));
                continue;
            }
            let block = block.object()?;
            let kind = block.need_text("type")?;
            if is_call(&kind) && has_call(&block, &ids)? {
                continue;
            }
            if !push_block(&mut parts, &kind, &block)? {
                let what = format!("a content block of type {kind:?}");
                self.conversation.lose(position, what, "messages have no part for it");
            }
        }
        Ok(parts)
    }
}

/// Returns the fields of a message, which older releases store as arguments of a constructor.
fn unwrapped(object: Object) -> Result<Object, WrongValue> {
    if !object.has("lc") {
        return Ok(object);
    }
    object.need("kwargs", "the fields of a message")?.object()
}

fn kind(object: &Object) -> Result<String, WrongValue> {
    match object.text("type")? {
        Some(kind) => Ok(kind),
        // A program has added this message to the state as a dictionary.
        None => object.need_text("role"),
    }
}

fn tool_call(
    call: &Object,
    arguments: Option<Node>,
    extra: Option<&Object>,
) -> Result<ToolCall, WrongValue> {
    const SIGNATURES: &str = "__gemini_function_call_thought_signatures__";
    let arguments = arguments.map(|arguments| arguments.as_shown()).transpose()?;
    let name = call.text("name")?.unwrap_or_default();
    let mut read = ToolCall::without_id(name, arguments.unwrap_or_default());
    read.id = call.text("id")?;
    let signatures = extra.and_then(|extra| extra.get(SIGNATURES));
    let signatures = signatures.map(|signatures| signatures.object()).transpose()?;
    let signature = match (&signatures, &read.id) {
        (Some(signatures), Some(id)) => signatures.text(id)?,
        _ => None,
    };
    Ok(match signature {
        Some(signature) => content::signed_call(read, &signature),
        None => read,
    })
}

fn is_call(kind: &str) -> bool {
    matches!(kind, "tool_use" | "tool_call" | "function_call" | "invalid_tool_call")
}

/// Returns whether the call in a content block is also in the list of the message's calls.
fn has_call(block: &Object, calls: &HashSet<&str>) -> Result<bool, WrongValue> {
    let ids = [block.text("call_id")?, block.text("id")?];
    Ok(ids.iter().flatten().any(|id| calls.contains(id.as_str())))
}

/// Adds the parts of a content block. Returns `false` if the type of the block is unknown.
fn push_block(parts: &mut Vec<Part>, kind: &str, block: &Object) -> Result<bool, WrongValue> {
    match kind {
        "text" | "text-plain" => parts.push(Part::text(block.text("text")?.unwrap_or_default())),
        "thinking" => {
            let text = block.text("thinking")?.unwrap_or_default();
            let signature = block.text("signature")?;
            let signature = signature.map_or(Signature::None, Signature::Anthropic);
            parts.push(content::reasoning(text, signature));
        }
        "redacted_thinking" => {
            let data = block.need_text("data")?;
            parts.push(content::reasoning(String::new(), Signature::AnthropicRedacted(data)));
        }
        "reasoning" => reasoning(parts, block)?,
        "image_url" => {
            let url = block.need("image_url", "an address")?;
            let url = if url.is_text() { url.text()? } else { url.object()?.need_text("url")? };
            parts.push(content::media(url, Some("image/*".to_owned())).into());
        }
        "image" | "audio" | "video" | "file" => match media(block)? {
            Some(media) => parts.push(media.into()),
            None => return Ok(false),
        },
        _ => return Ok(false),
    }
    Ok(true)
}

/// Adds a block of reasoning: summaries by OpenAI, or a text by another provider.
fn reasoning(parts: &mut Vec<Part>, block: &Object) -> Result<(), WrongValue> {
    let id = block.text("id")?.filter(|id| id.starts_with("rs_"));
    let encrypted = block.text("encrypted_content")?;
    let Some(id) = id else {
        let text = block.text("reasoning")?.unwrap_or_default();
        parts.push(content::reasoning(text, Signature::None));
        return Ok(());
    };
    let mut texts = vec![block.text("reasoning")?.unwrap_or_default()];
    for summary in block.list("summary")? {
        texts.push(summary.object()?.text("text")?.unwrap_or_default());
    }
    // `join_reasoning` joins the parts by their id.
    for text in texts {
        let signature = Signature::OpenAi { id: id.clone(), encrypted: encrypted.clone() };
        parts.push(content::reasoning(text, signature));
    }
    Ok(())
}

/// Returns the media of a block of LangChain, in any version, or of Anthropic.
fn media(block: &Object) -> Result<Option<Media>, WrongValue> {
    let source = block.get("source").filter(Node::is_object);
    let source = source.map(|source| source.object()).transpose()?;
    let block = source.as_ref().unwrap_or(block);
    let media_type = match block.text("mime_type")? {
        Some(media_type) => Some(media_type),
        None => block.text("media_type")?,
    };
    if let Some(url) = block.text("url")? {
        return Ok(Some(content::media(url, media_type)));
    }
    let file = match block.text("file_id")? {
        Some(file) => Some(file),
        None => block.text("id")?.filter(|_| !block.has("base64") && !block.has("data")),
    };
    let data = match block.text("base64")? {
        Some(data) => Some(data),
        None => block.text("data")?,
    };
    let source = match (data, file) {
        (Some(data), _) => MediaSource::Base64(data),
        (None, Some(file)) => MediaSource::File(file),
        (None, None) => return Ok(None),
    };
    Ok(Some(Media::new(media_type.unwrap_or_else(|| UNKNOWN_MEDIA.to_owned()), source)))
}
