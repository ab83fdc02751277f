//! Detects whether the messages of a file have another format than the caller has named. Such a
//! file is refused, because most of its content would otherwise be imported as unknown parts.

use crate::{Format, document::Document, node::Object};

/// Fails if a message has a field of another format only, or has no known format.
pub(crate) fn check(format: Format, documents: &[Document]) -> Result<(), String> {
    for document in documents {
        let Ok(items) = document.items() else { continue };
        for (index, item) in items.iter().enumerate() {
            let Ok(object) = item.object() else { continue };
            match mark(&object) {
                Some((found, shown_by)) if found != format => {
                    let position = document.position(index);
                    return Err(format!(
                        "{position} has the format of {found}, because it has {shown_by}"
                    ));
                }
                None if !may_be_of(format, &object) => {
                    let position = document.position(index);
                    return Err(format!("{position} has no known format"));
                }
                Some(_) | None => {}
            }
        }
    }
    Ok(())
}

/// Finds a field or a type that only one format has. Returns the format, and a description.
fn mark(message: &Object) -> Option<(Format, String)> {
    let text = |name: &str| message.text(name).ok().flatten();
    if message.has("contents") {
        return Some((Format::AgentFramework, "`contents`".to_owned()));
    }
    if message.has("parts") {
        return Some(match text("kind") {
            Some(_) => (Format::PydanticAi, "`kind`".to_owned()),
            None if parts_have_types(message) => {
                (Format::VercelUi, "`parts` with types".to_owned())
            }
            None => (Format::Gemini, "`parts`".to_owned()),
        });
    }
    if message.has("tool_calls") || message.has("tool_call_id") {
        return Some((Format::OpenAiChat, "a tool call".to_owned()));
    }
    let item = text("type").filter(|kind| kind != "message" && is_type_of_item(kind));
    if let Some(kind) = item {
        return Some((Format::OpenAiResponses, format!("the type {kind:?}")));
    }
    let content = message.get("content").filter(|content| content.is_list())?;
    content.list().ok()?.iter().find_map(|part| {
        let kind = part.object().ok()?.text("type").ok()??;
        let format = match kind.as_str() {
            "tool_use" | "tool_result" | "thinking" | "redacted_thinking" => Format::Anthropic,
            "input_text" | "output_text" | "input_image" | "input_file" => Format::OpenAiResponses,
            "image_url" => Format::OpenAiChat,
            _ => return None,
        };
        Some((format, format!("a content of type {kind:?}")))
    })
}

/// Returns whether an object may be a message of the format. The parsers of OpenAI Responses and
/// Gemini accept objects of unknown types, and would therefore accept every object.
fn may_be_of(format: Format, object: &Object) -> bool {
    let text = |name: &str| object.text(name).ok().flatten();
    let has_role = text("role").is_some();
    match format {
        Format::OpenAiResponses => {
            has_role || text("type").is_some_and(|kind| is_type_of_item(&kind))
        }
        Format::Gemini => has_role || object.has("parts"),
        _ => true,
    }
}

/// Returns whether an item may have this type, including items of future tools.
fn is_type_of_item(kind: &str) -> bool {
    const OTHERS: [&str; 9] = [
        "message",
        "reasoning",
        "item_reference",
        "compaction",
        "compaction_summary",
        "mcp_list_tools",
        "mcp_approval_request",
        "mcp_approval_response",
        "program",
    ];
    OTHERS.contains(&kind) || ["_call", "_output"].iter().any(|ending| kind.ends_with(ending))
}

fn parts_have_types(message: &Object) -> bool {
    let parts = message.list("parts").unwrap_or_default();
    parts.iter().filter_map(|part| part.object().ok()).any(|part| part.has("type"))
}
