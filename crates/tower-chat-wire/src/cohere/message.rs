//! Messages to and from the wire.

use std::sync::Arc;

use serde_json::json;
use tower_chat_core::{
    Media, MediaSource, Message, Native, Part, RawJson, Reasoning, Role, Text, ToolCall,
};

use super::{PLAN, WIRE};
use crate::{
    AnswerError,
    object::{Object, raw, take, take_object, take_text, text},
    provider_calls::ids_of_assistants_provider_calls,
    text_parts::{fields_of, is_system, native},
};

/// The assistant's message of an answer. Its plan for the tools is reasoning; what is not known is
/// kept as native parts: a block, which has a type, or fields of the message, such as citations.
pub(super) fn parse(mut fields: Object) -> Result<Message, AnswerError> {
    let mut parts = Vec::new();
    fields.remove("role");
    if let Some(plan) = take_text(&mut fields, PLAN).filter(|plan| !plan.is_empty()) {
        let mut reasoning = Reasoning::new(plan);
        reasoning.native = native(WIRE, Object::from([("field".to_owned(), raw(PLAN))]));
        parts.push(Part::Reasoning(reasoning));
    }
    match take_text(&mut fields, "content") {
        Some(text) if text.is_empty() => {}
        Some(text) => parts.push(Part::text(text)),
        None => {
            let blocks = list(&mut fields, "content")?;
            parts.extend(blocks.into_iter().map(parse_block));
        }
    }
    let calls = list(&mut fields, "tool_calls")?;
    parts.extend(calls.into_iter().map(|call| Part::ToolCall(parse_call(call))));
    fields.retain(|_, value| !matches!(value.get(), "null" | "[]"));
    parts.splice(0..0, native(WIRE, fields).map(Part::Native));
    Ok(Message::new(Role::Assistant, parts))
}

fn list(fields: &mut Object, name: &str) -> Result<Vec<Object>, AnswerError> {
    let Some(list) = take(fields, name) else { return Ok(Vec::new()) };
    list.parse().map_err(|_| AnswerError::malformed(format!("its {name} is no list"), list.get()))
}

fn parse_block(mut block: Object) -> Part {
    match text(&block, "type").as_deref() {
        Some("text") if text(&block, "text").is_some() => {
            let mut text = Text::new(take_text(&mut block, "text").unwrap_or_default());
            block.remove("type");
            text.native = native(WIRE, block);
            Part::Text(text)
        }
        Some("thinking") if text(&block, "thinking").is_some() => {
            let thinking = take_text(&mut block, "thinking").unwrap_or_default();
            let mut reasoning = Reasoning::new(thinking);
            reasoning.native = native(WIRE, block);
            Part::Reasoning(reasoning)
        }
        _ => Part::Native(Native::new(WIRE, raw(&block))),
    }
}

fn parse_call(mut fields: Object) -> ToolCall {
    let mut function = take_object(&mut fields, "function").unwrap_or_default();
    let name = take_text(&mut function, "name").unwrap_or_default();
    let arguments = take_text(&mut function, "arguments").unwrap_or_default();
    let mut call = ToolCall::without_id(name, arguments);
    call.id = take_text(&mut fields, "id");
    if text(&fields, "type").is_some_and(|kind| kind == "function") {
        fields.remove("type");
    }
    if !function.is_empty() {
        fields.insert("function".to_owned(), raw(&function));
    }
    call.native = native(WIRE, fields);
    call
}

/// The messages of a request. Left out are reasoning and native items of other wires, what other
/// providers ran, approvals, errors, and media other than a user's images.
pub(super) fn render(messages: impl Iterator<Item = Arc<Message>>) -> Vec<RawJson> {
    let mut written = Vec::new();
    for message in messages {
        let is_assistant = message.role == Role::Assistant;
        let mut fields = Object::new();
        let (mut blocks, mut calls, mut results) = (Vec::new(), Vec::new(), Vec::new());
        let by_provider = ids_of_assistants_provider_calls(&message);
        for part in &message.parts {
            match part {
                Part::Text(text) => blocks.push(render_text(text)),
                Part::Reasoning(reasoning) if is_assistant => {
                    match fields_of(reasoning.native.as_ref(), WIRE) {
                        Some(item) if item.contains_key("field") => {
                            fields.insert(PLAN.to_owned(), raw(&reasoning.text));
                        }
                        Some(mut block) => {
                            block.insert("thinking".to_owned(), raw(&reasoning.text));
                            blocks.push(raw(&block));
                        }
                        None => {}
                    }
                }
                Part::ToolCall(call) if !call.provider_executed => calls.push(render_call(call)),
                Part::ToolResult(result) if !by_provider.contains(&result.call_id.as_deref()) => {
                    results.push(raw(&json!({
                        "role": "tool",
                        "tool_call_id": result.call_id.clone().unwrap_or_default(),
                        "content": result.text(),
                    })));
                }
                Part::Media(media) if !is_assistant => blocks.extend(render_image(media)),
                Part::Native(item) => match fields_of(Some(item), WIRE) {
                    Some(block) if block.contains_key("type") => blocks.push(item.item.clone()),
                    Some(more) => fields.extend(more),
                    None => {}
                },
                _ => {}
            }
        }
        written.extend(results);
        if blocks.is_empty() && calls.is_empty() && fields.is_empty() {
            continue;
        }
        let role = match message.role {
            _ if is_system(&message) => "system",
            Role::Assistant => "assistant",
            _ => "user",
        };
        fields.insert("role".to_owned(), raw(role));
        if !blocks.is_empty() {
            fields.insert("content".to_owned(), raw(&blocks));
        }
        if !calls.is_empty() {
            fields.insert("tool_calls".to_owned(), raw(&calls));
        }
        written.push(raw(&fields));
    }
    written
}

fn render_text(text: &Text) -> RawJson {
    let mut fields = fields_of(text.native.as_ref(), WIRE).unwrap_or_default();
    fields.insert("type".to_owned(), raw("text"));
    fields.insert("text".to_owned(), raw(&text.text));
    raw(&fields)
}

fn render_call(call: &ToolCall) -> RawJson {
    let mut fields = fields_of(call.native.as_ref(), WIRE).unwrap_or_default();
    let mut function = take_object(&mut fields, "function").unwrap_or_default();
    function.insert("name".to_owned(), raw(&call.name));
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    function.insert("arguments".to_owned(), raw(arguments));
    fields.insert("id".to_owned(), raw(call.id.as_deref().unwrap_or_default()));
    fields.entry("type".to_owned()).or_insert_with(|| raw("function"));
    fields.insert("function".to_owned(), raw(&function));
    raw(&fields)
}

fn render_image(media: &Media) -> Option<RawJson> {
    let Media { media_type, source, .. } = media;
    if !media_type.starts_with("image/") {
        return None;
    }
    let url = match source {
        MediaSource::Url(url) => url.clone(),
        MediaSource::Base64(data) => format!("data:{media_type};base64,{data}"),
        _ => return None,
    };
    Some(raw(&json!({"type": "image_url", "image_url": {"url": url}})))
}
