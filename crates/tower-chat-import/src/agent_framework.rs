//! Reads the JSON Lines that Microsoft Agent Framework's `FileHistoryProvider` writes. Each line is
//! a message, which contains a list of contents of several types.

use tower_chat_core::{
    ErrorPart, Media, MediaSource, Message, Part, Reasoning, Role, ToolCall, ToolResult,
};

use crate::{
    ImportedConversation,
    content::{self, Signature, UNKNOWN_MEDIA},
    document::Document,
    error::{ContentError, WrongValue},
    node::{Node, Object},
};

/// The prefix of a file name that contains the id in base32, because the id is no valid name.
const ENCODED_ID: &str = "~session-";

pub(crate) fn read(document: &Document, stem: &str) -> Result<ImportedConversation, ContentError> {
    let id = stem.strip_prefix(ENCODED_ID).and_then(from_base32);
    let mut conversation = document.conversation(id.as_deref().unwrap_or(stem))?;
    for (index, item) in document.items()?.iter().enumerate() {
        let position = document.position(index);
        let message = message(item, &position, &mut conversation);
        let message = message.map_err(|error| ContentError::at(&position, error))?;
        conversation.messages.extend(message);
    }
    Ok(conversation)
}

fn message(
    node: &Node,
    position: &str,
    conversation: &mut ImportedConversation,
) -> Result<Option<Message>, WrongValue> {
    let object = node.object()?;
    let role = object.need("role", "a role")?;
    let role = match role.text()?.as_str() {
        "system" => Role::System,
        "developer" => Role::Developer,
        "user" => Role::User,
        "assistant" => Role::Assistant,
        "tool" => Role::Tool,
        _ => return Err(role.wrong("system, developer, user, assistant or tool")),
    };
    let contents = object.need_list("contents")?;
    let mut parts = Vec::new();
    for content in &contents {
        let content = content.object()?;
        match part(&content)? {
            Read::Part(part) => parts.push(part),
            Read::Unsigned(part) => {
                let what = "the provider's signature of its reasoning";
                conversation.lose(
                    position,
                    what,
                    "the history does not name the provider of the signature",
                );
                parts.push(part);
            }
            Read::Reasoning(text, signature) => {
                parts.push(content::reasoning(text, signature));
            }
            Read::Ignored => {}
            Read::Lost(kind) => {
                conversation.lose(position, format!("a content of type {kind:?}"), NO_PART);
            }
        }
    }
    // The contents were all ignored or lost, such as only usage.
    if parts.is_empty() && !contents.is_empty() {
        return Ok(None);
    }
    let mut message = Message::new(role, content::join_reasoning(parts));
    message.author = object.text("author_name")?;
    Ok(Some(message))
}

const NO_PART: &str = "messages have no part for it";

enum Read {
    Part(Part),
    Reasoning(String, Signature),
    /// Reasoning whose signature is lost, because the file does not name its provider.
    Unsigned(Part),
    /// A content that is not part of the conversation, such as usage.
    Ignored,
    Lost(String),
}

fn part(content: &Object) -> Result<Read, WrongValue> {
    let kind = content.need_text("type")?;
    let part = match kind.as_str() {
        "text" => Part::text(content.text("text")?.unwrap_or_default()),
        "text_reasoning" => {
            let text = content.text("text")?.unwrap_or_default();
            return Ok(match (signature(content)?, content.has("protected_data")) {
                (Signature::None, true) => Read::Unsigned(Reasoning::new(text).into()),
                (signature, _) => Read::Reasoning(text, signature),
            });
        }
        "data" | "uri" => media(content)?.into(),
        "hosted_file" => {
            let media_type = content.text("media_type")?;
            let source = MediaSource::File(content.need_text("file_id")?);
            Media::new(media_type.unwrap_or_else(|| UNKNOWN_MEDIA.to_owned()), source).into()
        }
        "function_call" => call(content)?.into(),
        "function_result" => result(content)?.into(),
        "error" => {
            let mut error = ErrorPart::new(content.text("message")?.unwrap_or_default());
            error.code = content.text("error_code")?;
            error.into()
        }
        "usage" => return Ok(Read::Ignored),
        _ => return Ok(Read::Lost(kind)),
    };
    Ok(Read::Part(part))
}

/// Returns the signature of reasoning by OpenAI, whose id begins with `rs_`.
fn signature(content: &Object) -> Result<Signature, WrongValue> {
    let id = content.text("id")?.filter(|id| id.starts_with("rs_"));
    let encrypted = content.text("protected_data")?;
    Ok(id.map_or(Signature::None, |id| Signature::OpenAi { id, encrypted }))
}

fn media(content: &Object) -> Result<Media, WrongValue> {
    Ok(content::media(content.need_text("uri")?, content.text("media_type")?))
}

fn call(content: &Object) -> Result<ToolCall, WrongValue> {
    let arguments = content.get("arguments").map(|arguments| arguments.as_shown()).transpose()?;
    let name = content.need_text("name")?;
    let mut call = ToolCall::without_id(name, arguments.unwrap_or_default());
    call.id = content.text("call_id")?;
    call.provider_executed = content.flag("hosted")? || content.flag("informational_only")?;
    Ok(call)
}

fn result(content: &Object) -> Result<ToolResult, WrongValue> {
    let mut parts = Vec::new();
    let mut has_unknown = false;
    for item in content.list("items")? {
        let item = item.object()?;
        match item.need_text("type")?.as_str() {
            "text" => parts.push(Part::text(item.text("text")?.unwrap_or_default())),
            "data" | "uri" => parts.push(media(&item)?.into()),
            _ => has_unknown = true,
        }
    }
    // The field `result` contains the text of all items, including items of an unknown type.
    let text = content.get("result").map(|result| result.as_shown()).transpose()?;
    match text {
        Some(text) if has_unknown => {
            parts.retain(|part| !matches!(part, Part::Text(_)));
            parts.insert(0, Part::text(text));
        }
        text if parts.is_empty() => parts.push(Part::text(text.unwrap_or_default())),
        _ => {}
    }
    let mut result = ToolResult::of_parts("", parts);
    result.call_id = content.text("call_id")?;
    result.is_error = content.get("exception").is_some();
    Ok(result)
}

/// Decodes lower-case base32 (RFC 4648) without padding.
fn from_base32(text: &str) -> Option<String> {
    let (mut bits, mut held, mut bytes) = (0_u32, 0_u32, Vec::new());
    for letter in text.bytes() {
        let value = match letter {
            b'a'..=b'z' => letter - b'a',
            b'2'..=b'7' => letter - b'2' + 26,
            _ => return None,
        };
        bits = (bits << 5 | u32::from(value)) & 0xfff;
        held += 5;
        if held >= 8 {
            held -= 8;
            bytes.push(u8::try_from(bits >> held & 0xff).ok()?);
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::from_base32;

    #[test]
    fn a_conversation_id_is_decoded_from_base32_file_names() {
        assert_eq!(from_base32("fyxc633emq5gsza").as_deref(), Some("../odd:id"));
        assert_eq!(from_base32("1"), None);
    }
}
