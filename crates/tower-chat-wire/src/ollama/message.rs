//! Messages to and from the wire.

use std::sync::Arc;

use serde_json::json;
use tower_chat_core::{Media, MediaSource, Message, Part, RawJson, Reasoning, Role, ToolCall};

use super::WIRE;
use crate::{
    AnswerError,
    object::{Object, raw, take, take_object, take_text},
    provider_calls::ids_of_assistants_provider_calls,
    text_parts::{OpenCalls, fields_of, is_system, native, object_of},
};

/// The assistant's message of an answer. Fields that are not known are a native part, and go back
/// with the message.
pub(super) fn parse(mut fields: Object) -> Result<Message, AnswerError> {
    let mut parts = Vec::new();
    fields.remove("role");
    if let Some(text) = take_text(&mut fields, "thinking").filter(|text| !text.is_empty()) {
        let mut reasoning = Reasoning::new(text);
        let item = Object::from([("field".to_owned(), raw("thinking"))]);
        reasoning.native = native(WIRE, item);
        parts.push(Part::Reasoning(reasoning));
    }
    if let Some(text) = take_text(&mut fields, "content").filter(|text| !text.is_empty()) {
        parts.push(Part::text(text));
    }
    if let Some(calls) = take(&mut fields, "tool_calls") {
        let calls: Vec<Object> = calls.parse().map_err(|_| {
            AnswerError::malformed("its tool calls are no list of objects", calls.get())
        })?;
        parts.extend(calls.into_iter().map(|call| Part::ToolCall(parse_call(call))));
    }
    fields.retain(|_, value| value.get() != "null");
    parts.splice(0..0, native(WIRE, fields).map(Part::Native));
    Ok(Message::new(Role::Assistant, parts))
}

fn parse_call(mut fields: Object) -> ToolCall {
    let mut function = take_object(&mut fields, "function").unwrap_or_default();
    let name = take_text(&mut function, "name").unwrap_or_default();
    let arguments = take(&mut function, "arguments");
    let arguments = arguments.map(|arguments| arguments.get().to_owned()).unwrap_or_default();
    let mut call = ToolCall::without_id(name, arguments);
    call.id = take_text(&mut fields, "id");
    if !function.is_empty() {
        fields.insert("function".to_owned(), raw(&function));
    }
    call.native = native(WIRE, fields);
    call
}

/// The messages of a request. Left out are reasoning and native items of other wires, what other
/// providers ran, approvals, errors, and media other than images in base64.
pub(super) fn render(messages: impl Iterator<Item = Arc<Message>>) -> Vec<RawJson> {
    let mut written = Vec::new();
    let mut open = OpenCalls::default();
    for message in messages {
        let mut fields = Object::new();
        let (mut text, mut images, mut calls) = (String::new(), Vec::new(), Vec::new());
        let mut results = Vec::new();
        let by_provider = ids_of_assistants_provider_calls(&message);
        for part in &message.parts {
            match part {
                Part::Text(more) => text.push_str(&more.text),
                Part::Reasoning(reasoning)
                    if fields_of(reasoning.native.as_ref(), WIRE).is_some() =>
                {
                    fields.insert("thinking".to_owned(), raw(&reasoning.text));
                }
                Part::ToolCall(call) if !call.provider_executed => {
                    open.push(call);
                    calls.push(render_call(call));
                }
                Part::ToolResult(result) if !by_provider.contains(&result.call_id.as_deref()) => {
                    let mut fields = Object::from([
                        ("role".to_owned(), raw("tool")),
                        ("content".to_owned(), raw(&result.text())),
                    ]);
                    if let Some(name) = open.answer(result) {
                        fields.insert("tool_name".to_owned(), raw(&name));
                    }
                    if let Some(id) = &result.call_id {
                        fields.insert("tool_call_id".to_owned(), raw(id));
                    }
                    results.push(raw(&fields));
                    images.extend(result.content.iter().filter_map(image));
                }
                Part::Media(_) => images.extend(image(part)),
                Part::Native(item) => {
                    fields.extend(fields_of(Some(item), WIRE).unwrap_or_default())
                }
                _ => {}
            }
        }
        written.extend(results);
        let says_nothing = text.is_empty() && images.is_empty() && calls.is_empty();
        if says_nothing && fields.is_empty() {
            continue;
        }
        let role = match message.role {
            _ if is_system(&message) => "system",
            Role::Assistant => "assistant",
            _ => "user",
        };
        fields.insert("role".to_owned(), raw(role));
        fields.insert("content".to_owned(), raw(&text));
        if !images.is_empty() {
            fields.insert("images".to_owned(), raw(&images));
        }
        if !calls.is_empty() {
            fields.insert("tool_calls".to_owned(), raw(&calls));
        }
        written.push(raw(&fields));
    }
    written
}

fn render_call(call: &ToolCall) -> RawJson {
    let mut fields = fields_of(call.native.as_ref(), WIRE).unwrap_or_default();
    let mut function = take_object(&mut fields, "function").unwrap_or_default();
    function.insert("name".to_owned(), raw(&call.name));
    function.insert("arguments".to_owned(), object_of(&call.arguments));
    fields.insert("function".to_owned(), raw(&function));
    if let Some(id) = &call.id {
        fields.insert("id".to_owned(), raw(id));
    }
    raw(&fields)
}

fn image(part: &Part) -> Option<RawJson> {
    match part {
        Part::Media(Media { media_type, source: MediaSource::Base64(data), .. })
            if media_type.starts_with("image/") =>
        {
            Some(raw(&json!(data)))
        }
        _ => None,
    }
}
