//! Reads the messages of Pydantic AI, which are requests and responses with parts of several kinds.

use std::time::SystemTime;

use tower_chat_core::{Media, MediaSource, Message, Part, Role, ToolCall, ToolResult};

use crate::{
    ImportedConversation,
    content::{self, Signature},
    document::Document,
    error::{ContentError, WrongValue},
    node::{Node, Object},
};

pub(crate) fn read(document: &Document, stem: &str) -> Result<ImportedConversation, ContentError> {
    let mut reading = Reading { conversation: document.conversation(stem)?, time: None };
    let items = document.items()?;
    if let (None, Some(id)) = (&document.object, items.first().and_then(conversation_id)) {
        reading.conversation.id = id;
    }
    for (index, item) in items.iter().enumerate() {
        let position = document.position(index);
        let read = reading.message(item, &position);
        read.map_err(|error| ContentError::at(&position, error))?;
    }
    let mut conversation = reading.conversation;
    conversation.created_at = conversation.messages.first().and_then(|message| message.added_at);
    Ok(conversation)
}

fn conversation_id(item: &Node) -> Option<String> {
    item.object().ok()?.text("conversation_id").ok()?
}

struct Reading {
    conversation: ImportedConversation,
    /// The time of the message that is being read.
    time: Option<SystemTime>,
}

impl Reading {
    fn message(&mut self, node: &Node, position: &str) -> Result<(), WrongValue> {
        let object = node.object()?;
        self.time = time_of(&object)?;
        let kind = object.need("kind", "request or response")?;
        let parts = object.need_list("parts")?;
        match kind.text()?.as_str() {
            "request" => {
                for part in &parts {
                    self.request_part(&part.object()?, position)?;
                }
            }
            "response" => self.response(&parts, position)?,
            _ => return Err(kind.wrong("request or response")),
        }
        Ok(())
    }

    fn push(&mut self, role: Role, parts: Vec<Part>, time: Option<SystemTime>) {
        let mut message = Message::new(role, parts);
        message.added_at = time.or(self.time);
        self.conversation.messages.push(message);
    }

    fn request_part(&mut self, part: &Object, position: &str) -> Result<(), WrongValue> {
        let kind = part.need_text("part_kind")?;
        let time = time_of(part)?;
        match kind.as_str() {
            "system-prompt" => {
                self.push(Role::System, vec![Part::text(part.need_text("content")?)], time);
            }
            "user-prompt" => {
                let parts =
                    self.user_content(&part.need("content", "a text or a list")?, position)?;
                self.push(Role::User, parts, time);
            }
            "tool-return" => {
                let outcome = part.text("outcome")?;
                let is_error = outcome.is_some_and(|outcome| outcome != "success");
                self.result(part, is_error, time)?;
            }
            "retry-prompt" if part.get("tool_name").is_some() => self.result(part, true, time)?,
            "retry-prompt" => {
                let text = part.need("content", "a text or a list")?.as_shown()?;
                self.push(Role::User, vec![Part::text(text)], time);
            }
            _ => self.lose_part(&kind, position),
        }
        Ok(())
    }

    /// Adds a result to the last message if its role is `Tool`, and as a new message otherwise, so
    /// that one message contains all results of a request.
    fn result(
        &mut self,
        part: &Object,
        is_error: bool,
        time: Option<SystemTime>,
    ) -> Result<(), WrongValue> {
        let result = result(part, is_error)?;
        match self.conversation.messages.last_mut().filter(|last| last.role == Role::Tool) {
            Some(last) => last.parts.push(result.into()),
            None => self.push(Role::Tool, vec![result.into()], time),
        }
        Ok(())
    }

    fn user_content(&mut self, content: &Node, position: &str) -> Result<Vec<Part>, WrongValue> {
        if !content.is_list() {
            return Ok(vec![Part::text(content.text()?)]);
        }
        let mut parts = Vec::new();
        for item in content.list()? {
            if item.is_text() {
                parts.push(Part::text(item.text()?));
                continue;
            }
            let object = item.object()?;
            match media(&object)? {
                Some(media) => parts.push(media.into()),
                None => match object.need_text("kind")?.as_str() {
                    "text-content" => parts.push(Part::text(object.need_text("content")?)),
                    // This part is a marker for the provider's prompt cache and has no content.
                    "cache-point" => {}
                    kind => self.lose_part(kind, position),
                },
            }
        }
        Ok(parts)
    }

    fn response(&mut self, nodes: &[Node], position: &str) -> Result<(), WrongValue> {
        let mut parts = Vec::new();
        for node in nodes {
            let part = node.object()?;
            let kind = part.need_text("part_kind")?;
            parts.push(match kind.as_str() {
                "text" => Part::text(part.need_text("content")?),
                "thinking" => {
                    let signature = self.signature(&part, position)?;
                    let text = part.text("content")?.unwrap_or_default();
                    content::reasoning(text, signature)
                }
                "tool-call" => call(&part)?.into(),
                "builtin-tool-call" => {
                    let mut call = call(&part)?;
                    call.provider_executed = true;
                    call.into()
                }
                "builtin-tool-return" => result(&part, false)?.into(),
                "file" => match media(&part.need("content", "an object")?.object()?)? {
                    Some(media) => media.into(),
                    None => {
                        self.lose_part(&kind, position);
                        continue;
                    }
                },
                _ => {
                    self.lose_part(&kind, position);
                    continue;
                }
            });
        }
        self.push(Role::Assistant, content::join_reasoning(parts), None);
        Ok(())
    }

    /// Returns the signature of a reasoning part. Adds a loss for an unknown provider.
    fn signature(&mut self, part: &Object, position: &str) -> Result<Signature, WrongValue> {
        let (id, signature) = (part.text("id")?, part.text("signature")?);
        let provider = part.text("provider_name")?.unwrap_or_default();
        Ok(match (provider.as_str(), signature, id) {
            ("anthropic", Some(data), Some(id)) if id == "redacted_thinking" => {
                Signature::AnthropicRedacted(data)
            }
            ("anthropic", Some(signature), _) => Signature::Anthropic(signature),
            ("openai", encrypted, Some(id)) => Signature::OpenAi { id, encrypted },
            (provider, Some(signature), _) if provider.starts_with("google") => {
                Signature::Gemini(signature)
            }
            (_, None, _) => Signature::None,
            (provider, Some(_), _) => {
                let what = format!("the signature of reasoning of the provider {provider:?}");
                self.conversation.lose(
                    position,
                    what,
                    "messages have no form for signatures of this provider",
                );
                Signature::None
            }
        })
    }

    fn lose_part(&mut self, kind: &str, position: &str) {
        let what = format!("a part of kind {kind:?}");
        self.conversation.lose(position, what, "messages have no part for it");
    }
}

fn time_of(object: &Object) -> Result<Option<SystemTime>, WrongValue> {
    object.get("timestamp").map(|time| content::time(&time)).transpose()
}

fn call(part: &Object) -> Result<ToolCall, WrongValue> {
    let arguments = part.get("args").map(|arguments| arguments.as_shown()).transpose()?;
    let name = part.need_text("tool_name")?;
    let mut call = ToolCall::without_id(name, arguments.unwrap_or_default());
    call.id = part.text("tool_call_id")?;
    let details = part.get("provider_details").map(|details| details.object()).transpose()?;
    let signature = details.map(|details| details.text("thought_signature")).transpose()?.flatten();
    Ok(match signature {
        Some(signature) => content::signed_call(call, &signature),
        None => call,
    })
}

fn result(part: &Object, is_error: bool) -> Result<ToolResult, WrongValue> {
    let mut content = Vec::new();
    if let Some(node) = part.get("content") {
        let items = if node.is_list() { node.list()? } else { vec![node.clone()] };
        let mut found = Vec::new();
        for item in &items {
            found.push(match item.is_object() {
                true => media(&item.object()?)?,
                false => None,
            });
        }
        // A value without media becomes a single text.
        match found.iter().any(Option::is_some) {
            false => content.push(Part::text(node.as_shown()?)),
            true => {
                for (item, media) in items.iter().zip(found) {
                    content.push(match media {
                        Some(media) => media.into(),
                        None => Part::text(item.as_shown()?),
                    });
                }
            }
        }
    }
    if content.is_empty() {
        content.push(Part::text(String::new()));
    }
    let mut result = ToolResult::of_parts("", content);
    result.call_id = part.text("tool_call_id")?;
    result.name = part.text("tool_name")?;
    result.is_error = is_error;
    Ok(result)
}

/// Returns the media that a content object describes, or `None` for any other object.
fn media(object: &Object) -> Result<Option<Media>, WrongValue> {
    let kind = object.get("kind").filter(Node::is_text).map(|kind| kind.text()).transpose()?;
    let source = match kind.as_deref() {
        Some("image-url" | "audio-url" | "video-url" | "document-url") => {
            return Ok(Some(content::media(object.need_text("url")?, object.text("media_type")?)));
        }
        Some("binary") => MediaSource::Base64(standard(object.need_text("data")?)),
        Some("uploaded-file") => MediaSource::File(object.need_text("file_id")?),
        Some(_) | None => return Ok(None),
    };
    let media_type = object.text("media_type")?;
    let media_type = media_type.unwrap_or_else(|| content::UNKNOWN_MEDIA.to_owned());
    Ok(Some(Media::new(media_type, source)))
}

/// Converts base64 in the URL-safe alphabet, which Pydantic writes, to the standard alphabet.
fn standard(data: String) -> String {
    if data.contains(['-', '_']) { data.replace('-', "+").replace('_', "/") } else { data }
}
