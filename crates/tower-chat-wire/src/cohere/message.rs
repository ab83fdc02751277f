//! Reads and writes messages.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A mark is a native part at the beginning of a message, with the JSON from which the
//! message was read. The usual form of a message is the JSON that is written for a message without
//! a mark. A round is the calls of consecutive assistant messages and their results.

use tower_chat_core::{Message, Native, Part, RawJson, Reasoning, Role, ToolCall, ToolResult};

use super::{
    PLAN, WIRE,
    block::{self, plain_text},
};
use crate::{
    WireError, as_read,
    call_ids::Round,
    object::{Object, raw, take, take_object, take_text, text},
    provider_calls::assistant_provider_call_ids,
    text_parts::{is_system, native, native_fields},
};

/// Reads the messages in a JSON list, the value of `messages` in a request body.
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first message that cannot be read.
/// [`WireError::Json`], if the text is not a list.
pub fn parse_messages(json: &str) -> Result<Vec<Message>, WireError> {
    let mut messages = Vec::new();
    for (index, item) in as_read::list(json, "the messages")?.iter().enumerate() {
        let message =
            parse(item).map_err(|source| WireError::InMessage { index, source: source.into() })?;
        messages.push(marked(message, item));
    }
    Ok(messages)
}

/// Reads the message of an answer as an assistant message. The role in the JSON is ignored.
pub(super) fn parse_answer(item: &RawJson) -> Result<Message, WireError> {
    let message = parse_assistant(fields(item)?)?;
    Ok(if parse(item).is_ok() { marked(message, item) } else { message })
}

/// Adds a mark with the JSON `item`, from which the message was read, unless `item` is the usual
/// form of the message.
fn marked(mut message: Message, item: &RawJson) -> Message {
    let written = render_usual(&message, &mut Round::of_any_ids());
    if !matches!(written.as_slice(), [one] if as_read::is_same_json(one, item)) {
        as_read::add_mark(&mut message, WIRE, item);
    }
    message
}

/// Reads one message, and does not add a mark.
fn parse(item: &RawJson) -> Result<Message, WireError> {
    let mut fields = fields(item)?;
    let role = take_text(&mut fields, "role").ok_or(WireError::Field {
        what: "a message",
        field: "role",
        expected: "a text",
    })?;
    let parts = match role.as_str() {
        "assistant" => return parse_assistant(fields),
        "tool" => return Ok(Message::new(Role::Tool, vec![parse_result(fields)?.into()])),
        "system" | "user" => {
            let parts = take_content(&mut fields)?;
            native(WIRE, fields).map(Part::Native).into_iter().chain(parts).collect()
        }
        _ => return Err(WireError::UnknownRole { role }),
    };
    Ok(Message::new(if role == "system" { Role::System } else { Role::User }, parts))
}

fn fields(item: &RawJson) -> Result<Object, WireError> {
    item.parse().map_err(|source| WireError::Json {
        what: "a message",
        expected: "a JSON object",
        source,
    })
}

/// Reads an assistant message. The field `tool_plan` becomes reasoning. Unknown fields, such as
/// citations, become a native part before the other parts.
fn parse_assistant(mut fields: Object) -> Result<Message, WireError> {
    let mut parts = Vec::new();
    fields.remove("role");
    if let Some(plan) = take_text(&mut fields, PLAN).filter(|plan| !plan.is_empty()) {
        let mut reasoning = Reasoning::new(plan);
        reasoning.native = native(WIRE, Object::from([("field".to_owned(), raw(PLAN))]));
        parts.push(Part::Reasoning(reasoning));
    }
    parts.extend(take_content(&mut fields)?);
    let calls = list(&mut fields, "tool_calls")?;
    parts.extend(calls.into_iter().map(|call| Part::ToolCall(parse_call(call))));
    fields.retain(|_, value| !matches!(value.get(), "null" | "[]"));
    parts.splice(0..0, native(WIRE, fields).map(Part::Native));
    Ok(Message::new(Role::Assistant, parts))
}

/// Removes the field `content`, a string or a list of blocks, and returns its parts.
fn take_content(fields: &mut Object) -> Result<Vec<Part>, WireError> {
    if let Some(text) = take_text(fields, "content") {
        return Ok(Some(text)
            .filter(|text| !text.is_empty())
            .map(Part::text)
            .into_iter()
            .collect());
    }
    list(fields, "content")?.into_iter().map(block::parse).collect()
}

fn list(fields: &mut Object, name: &'static str) -> Result<Vec<Object>, WireError> {
    let Some(list) = take(fields, name) else { return Ok(Vec::new()) };
    let expected = "a list of objects";
    list.parse().map_err(|_| WireError::Field { what: "a message", field: name, expected })
}

fn parse_result(mut fields: Object) -> Result<ToolResult, WireError> {
    let mut result = ToolResult::new("", "");
    result.call_id = take_text(&mut fields, "tool_call_id");
    result.content = take_content(&mut fields)?;
    result.native = native(WIRE, fields);
    Ok(result)
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

/// Writes the messages of a request according to the rules in the [module documentation](super).
pub fn render_messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<RawJson> {
    let mut round = Round::of_any_ids();
    messages.into_iter().flat_map(|message| render_message(message, &mut round)).collect()
}

fn render_message(message: &Message, round: &mut Round) -> Vec<RawJson> {
    let usual = render_usual(message, round);
    let Some(json) = as_read::unchanged(message, WIRE, parse) else { return usual };
    if round.has_renamed() {
        // This JSON contains the original ids of the calls instead of the ids that `round` has
        // assigned. With a new `Round`, their results are also written with the original ids.
        *round = Round::of_any_ids();
    }
    vec![json]
}

/// Writes a message in the usual form: first its results, and then its other parts.
fn render_usual(message: &Message, round: &mut Round) -> Vec<RawJson> {
    round.begin_message(message.role, message.calls().next().is_some());
    let is_assistant = message.role == Role::Assistant;
    let provider_call_ids = assistant_provider_call_ids(message);
    let typed_envelope = typed_envelope(message);
    let mut written = Vec::new();
    let mut fields = Object::new();
    let (mut blocks, mut calls) = (Vec::new(), Vec::new());
    for part in &message.parts {
        match part {
            Part::Reasoning(reasoning) => {
                let item = native_fields(reasoning.native.as_ref(), WIRE).filter(|_| is_assistant);
                if item.as_ref().is_some_and(|item| item.contains_key("field")) {
                    fields.insert(PLAN.to_owned(), raw(&reasoning.text));
                } else if let Some(mut block) = item {
                    block.insert("thinking".to_owned(), raw(&reasoning.text));
                    blocks.push(raw(&block));
                }
            }
            Part::ToolCall(call) if !call.provider_executed => {
                let id = round.call(call.id.as_deref());
                calls.push(render_call(call, &id));
            }
            Part::ToolResult(result) if !provider_call_ids.contains(&result.call_id.as_deref()) => {
                let id = round.result(result.call_id.as_deref());
                written.push(render_result(result, &id));
            }
            Part::Native(item)
                if is_envelope(item)
                    || typed_envelope.is_some_and(|envelope| std::ptr::eq(envelope, item)) =>
            {
                fields.extend(native_fields(Some(item), WIRE).unwrap_or_default());
            }
            Part::Media(_) if is_assistant => {}
            part => blocks.extend(block::render(part)),
        }
    }
    if blocks.is_empty() && calls.is_empty() && fields.is_empty() {
        return written;
    }
    let role = match message.role {
        _ if is_system(message) => "system",
        Role::Assistant => "assistant",
        _ => "user",
    };
    fields.insert("role".to_owned(), raw(role));
    if let Some(content) = content(blocks, !is_assistant) {
        fields.insert("content".to_owned(), content);
    }
    if !calls.is_empty() {
        fields.insert("tool_calls".to_owned(), raw(&calls));
    }
    written.push(raw(&fields));
    written
}

/// Returns the value of `content`, or `None` if `blocks` is empty. If `is_text_usual` is `true`, a
/// single text block without other fields is written as a string.
fn content(blocks: Vec<RawJson>, is_text_usual: bool) -> Option<RawJson> {
    match blocks.as_slice() {
        [] => None,
        [block] if is_text_usual => Some(plain_text(block).unwrap_or_else(|| raw(&blocks))),
        _ => Some(raw(&blocks)),
    }
}

/// Returns whether a native item contains the fields of a message. Unlike a block, such an item has
/// no field `type`.
fn is_envelope(item: &Native) -> bool {
    let has_type = |fields: Object| fields.contains_key("type");
    native_fields(Some(item), WIRE).is_some_and(|fields| !has_type(fields))
        && !as_read::is_mark(item, WIRE)
}

/// Returns the native item with the fields of a message, if these fields include `type`. Because of
/// this field, [`is_envelope`] returns `false` for the item. The item is found in another way: all
/// of its fields are fields of the JSON in the message's mark.
fn typed_envelope(message: &Message) -> Option<&Native> {
    let original: Object = as_read::original(message, WIRE)?.parse().ok()?;
    let is_in_original = |(name, value): (&String, &RawJson)| {
        original.get(name).is_some_and(|original| as_read::is_same_json(original, value))
    };
    let mut natives = message.parts.iter().filter_map(|part| match part {
        Part::Native(item) => Some(item),
        _ => None,
    });
    // A later block may be equal to the native item with the fields of the message. The first match
    // is this item, because it precedes the blocks.
    natives.find(|item| {
        let fields = native_fields(Some(item), WIRE).filter(|fields| fields.contains_key("type"));
        fields.is_some_and(|fields| fields.iter().all(is_in_original))
    })
}

fn render_result(result: &ToolResult, id: &str) -> RawJson {
    let mut fields = native_fields(result.native.as_ref(), WIRE).unwrap_or_default();
    fields.insert("role".to_owned(), raw("tool"));
    fields.insert("tool_call_id".to_owned(), raw(id));
    // Texts without native items are written as a string.
    let is_text = |part: &Part| {
        !matches!(part, Part::Native(_) | Part::Text(_))
            || matches!(part, Part::Text(text) if text.native.is_none())
    };
    let content = if result.content.iter().all(is_text) {
        raw(&result.text())
    } else {
        let blocks: Vec<RawJson> = result.content.iter().filter_map(block::render).collect();
        raw(&blocks)
    };
    fields.insert("content".to_owned(), content);
    raw(&fields)
}

fn render_call(call: &ToolCall, id: &str) -> RawJson {
    let mut fields = native_fields(call.native.as_ref(), WIRE).unwrap_or_default();
    let mut function = take_object(&mut fields, "function").unwrap_or_default();
    function.insert("name".to_owned(), raw(&call.name));
    let arguments = if call.arguments.trim().is_empty() { "{}" } else { &call.arguments };
    function.insert("arguments".to_owned(), raw(arguments));
    fields.insert("id".to_owned(), raw(id));
    fields.entry("type".to_owned()).or_insert_with(|| raw("function"));
    fields.insert("function".to_owned(), raw(&function));
    raw(&fields)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_block_without_a_type_is_refused_and_a_block_of_unknown_type_is_written_again() {
        let untyped = r#"{"content":[1.5e+300],"tool_calls":7}"#;
        let unknown = r#"{"type":"new","content":[1.5e+300],"tool_calls":7}"#;
        for role in ["system", "user", "assistant", "tool"] {
            let messages = |block: &str| {
                let text = r#"{"type":"text","text":"hi"}"#;
                format!(r#"[{{"role":"{role}","tool_call_id":"c1","content":[{block},{text}]}}]"#)
            };
            let error = parse_messages(&messages(untyped)).unwrap_err();
            let WireError::InMessage { index: 0, source } = error else { panic!("{role}") };
            assert!(matches!(*source, WireError::Field { field: "type", .. }), "{role}");
            let mut message = parse_messages(&messages(unknown)).unwrap().remove(0);
            // Without the mark, the message is written in the usual form.
            message.parts.retain(
                |part| !matches!(part, Part::Native(native) if as_read::is_mark(native, WIRE)),
            );
            let written: Value = render_messages([&message])[0].parse().unwrap();
            assert_eq!(written["role"], role);
            let block: Value = unknown.parse().unwrap();
            assert_eq!(written["content"][0], block, "{role}");
            assert_eq!(written["content"][1]["text"], "hi", "{role}");
        }
    }

    #[test]
    fn a_message_field_named_type_is_written_as_a_field_after_a_change() {
        let fields = [
            r#""type":"message""#,
            r#""type":7,"new":[2.50]"#,
            r#""type":{},"text":"x""#,
            r#""type":"new","of":"the content""#,
        ];
        for role in ["system", "user", "assistant"] {
            for fields in fields {
                let block = r#"{"type":"new","of":"the content"}"#;
                let json = format!(r#"[{{"role":"{role}",{fields},"content":[{block}]}}]"#);
                let mut message = parse_messages(&json).unwrap().remove(0);
                let mut expected: Value = json.parse().unwrap();
                let written: Value = render_messages([&message])[0].parse().unwrap();
                assert_eq!(written, expected[0], "the message was not changed");
                let added = format!("added to {fields} of {role}");
                message.parts.push(Part::text(&added));
                expected[0]["content"] =
                    json!([block.parse::<Value>().unwrap(), {"type": "text", "text": added}]);
                let written: Value = render_messages([&message])[0].parse().unwrap();
                assert_eq!(written, expected[0]);
            }
        }
    }

    #[test]
    fn an_answer_with_a_block_without_a_type_is_refused() {
        let answer = r#"{"role":"nobody","content":[{"content":[1.5e+300],"role":"nobody"}]}"#;
        let refused = parse_answer(&answer.parse().unwrap()).unwrap_err();
        assert!(matches!(refused, WireError::Field { field: "type", .. }), "{refused:?}");
    }

    #[test]
    fn calls_in_several_messages_of_an_answer_get_distinct_ids_and_results_the_same_ids() {
        for id in [Some("c"), Some(""), None] {
            let asking = |name: &str| {
                let mut call = ToolCall::without_id(name, "{}");
                call.id = id.map(str::to_owned);
                Message::tool_calls([call])
            };
            let results = ["blue", "a bird"].map(|text| {
                let mut result = ToolResult::new("", text);
                result.call_id = id.map(str::to_owned);
                result
            });
            let answer = [asking("look"), asking("listen"), Message::tool_results(results)];
            // The ids of a round do not depend on earlier rounds, so both rounds are written in the
            // same way.
            let messages = answer.iter().chain(&answer);
            let written: Vec<Value> =
                render_messages(messages).iter().map(|json| json.parse().unwrap()).collect();
            let call_id = |at: usize| written[at]["tool_calls"][0]["id"].as_str().unwrap();
            let of_result = |at: usize| written[at]["tool_call_id"].as_str().unwrap();
            assert_ne!(call_id(0), call_id(1), "{id:?}");
            assert_eq!([of_result(2), of_result(3)], [call_id(0), call_id(1)], "{id:?}");
            assert_eq!(written[..4], written[4..], "{id:?}");
        }
    }
}
