//! Reads and writes messages.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A mark is a native part at the beginning of a message, with the JSON from which the
//! message was read. The usual form of a message is the JSON that is written for a message without
//! a mark.

use tower_chat_core::{
    Media, MediaSource, Message, Part, RawJson, Reasoning, Role, ToolCall, ToolResult,
};

use super::WIRE;
use crate::{
    WireError, as_read,
    object::{Object, raw, take, take_object, take_text},
    provider_calls::assistant_provider_call_ids,
    text_parts::{OpenCalls, arguments_object, is_system, native, native_fields},
};

/// Reads the messages in a JSON list, the value of `messages` in a request body.
///
/// # Errors
///
/// [`WireError::InMessage`], with the index of the first message that cannot be read.
/// [`WireError::Json`], if the text is not a list.
pub fn parse_messages(json: &str) -> Result<Vec<Message>, WireError> {
    let mut open = OpenCalls::default();
    let mut messages = Vec::new();
    for (index, item) in as_read::list(json, "the messages")?.iter().enumerate() {
        let mut message =
            parse(item).map_err(|source| WireError::InMessage { index, source: source.into() })?;
        let written = render_usual(&message, &mut open);
        if !matches!(written.as_slice(), [one] if as_read::is_same_json(one, item)) {
            as_read::add_mark(&mut message, WIRE, item);
        }
        messages.push(message);
    }
    Ok(messages)
}

/// Reads the message of an answer as an assistant message. The role in the JSON is ignored.
pub(super) fn parse_answer(item: &RawJson) -> Result<Message, WireError> {
    let mut message = parse_assistant(fields(item)?)?;
    let written = render_usual(&message, &mut OpenCalls::default());
    if !matches!(written.as_slice(), [one] if as_read::is_same_json(one, item))
        && parse(item).is_ok()
    {
        as_read::add_mark(&mut message, WIRE, item);
    }
    Ok(message)
}

/// Reads one message, and does not add a mark.
fn parse(item: &RawJson) -> Result<Message, WireError> {
    let mut fields = fields(item)?;
    let role = take_text(&mut fields, "role").ok_or(WireError::Field {
        what: "a message",
        field: "role",
        expected: "a text",
    })?;
    match role.as_str() {
        "assistant" => parse_assistant(fields),
        "system" => Ok(Message::new(Role::System, parse_plain(fields))),
        "user" => Ok(Message::new(Role::User, parse_plain(fields))),
        "tool" => Ok(Message::new(Role::Tool, vec![parse_result(fields).into()])),
        _ => Err(WireError::UnknownRole { role }),
    }
}

fn fields(item: &RawJson) -> Result<Object, WireError> {
    item.parse().map_err(|source| WireError::Json {
        what: "a message",
        expected: "a JSON object",
        source,
    })
}

/// Reads an assistant message. Unknown fields become a native part before the other parts.
fn parse_assistant(mut fields: Object) -> Result<Message, WireError> {
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
    parts.extend(take_images(&mut fields));
    if let Some(calls) = take(&mut fields, "tool_calls") {
        let calls: Vec<Object> = calls.parse().map_err(|_| WireError::Field {
            what: "a message",
            field: "tool_calls",
            expected: "a list of objects",
        })?;
        parts.extend(calls.into_iter().map(|call| Part::ToolCall(parse_call(call))));
    }
    fields.retain(|_, value| value.get() != "null");
    parts.splice(0..0, native(WIRE, fields).map(Part::Native));
    Ok(Message::new(Role::Assistant, parts))
}

/// Reads the parts of a user or system message.
fn parse_plain(mut fields: Object) -> Vec<Part> {
    let mut parts = Vec::new();
    if let Some(text) = take_text(&mut fields, "content").filter(|text| !text.is_empty()) {
        parts.push(Part::text(text));
    }
    parts.extend(take_images(&mut fields));
    parts.splice(0..0, native(WIRE, fields).map(Part::Native));
    parts
}

fn parse_result(mut fields: Object) -> ToolResult {
    let mut result = ToolResult::new("", take_text(&mut fields, "content").unwrap_or_default());
    result.call_id = take_text(&mut fields, "tool_call_id");
    result.name = take_text(&mut fields, "tool_name");
    result.content.extend(take_images(&mut fields));
    result.native = native(WIRE, fields);
    result
}

/// Removes and reads the field `images` of a message, if it is a list of strings.
fn take_images(fields: &mut Object) -> Vec<Part> {
    let images = fields.get("images").and_then(|images| images.parse::<Vec<String>>().ok());
    if images.is_some() {
        fields.remove("images");
    }
    let media = |data: String| Media::new(media_type(&data), MediaSource::Base64(data));
    images.into_iter().flatten().map(|data| Part::Media(media(data))).collect()
}

/// Returns the media type of an image in base64 by its first bytes, because the JSON of the wire
/// does not contain the type. Returns `image/png` for unknown bytes.
fn media_type(data: &str) -> &'static str {
    let types = [("/9j/", "image/jpeg"), ("R0lGOD", "image/gif"), ("UklGR", "image/webp")];
    let known = types.into_iter().find(|(beginning, _)| data.starts_with(beginning));
    known.map_or("image/png", |(_, media_type)| media_type)
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

/// Writes the messages of a request according to the rules in the [module documentation](super).
pub fn render_messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Vec<RawJson> {
    let mut open = OpenCalls::default();
    let messages = messages.into_iter();
    messages.flat_map(|message| render_message(message, &mut open)).collect()
}

fn render_message(message: &Message, open: &mut OpenCalls) -> Vec<RawJson> {
    let usual = render_usual(message, open);
    as_read::unchanged(message, WIRE, parse).map_or(usual, |json| vec![json])
}

/// The parts of a message that is being written, without its results.
#[derive(Debug, Default)]
struct Written {
    fields: Object,
    text: String,
    images: Vec<RawJson>,
    calls: Vec<RawJson>,
}

/// Writes a message in the usual form: first its results, and then its other parts.
fn render_usual(message: &Message, open: &mut OpenCalls) -> Vec<RawJson> {
    let provider_call_ids = assistant_provider_call_ids(message);
    let mut written = Vec::new();
    let mut rest = Written::default();
    for part in &message.parts {
        match part {
            Part::ToolResult(result) if !provider_call_ids.contains(&result.call_id.as_deref()) => {
                written.push(render_result(result, open));
                rest.images.extend(result.content.iter().filter_map(image));
            }
            part => rest.push(part, open),
        }
    }
    let role = match message.role {
        _ if is_system(message) => "system",
        Role::Assistant => "assistant",
        _ => "user",
    };
    written.extend(rest.into_json(role));
    written
}

impl Written {
    fn push(&mut self, part: &Part, open: &mut OpenCalls) {
        match part {
            Part::Text(more) => self.text.push_str(&more.text),
            Part::Reasoning(reasoning)
                if native_fields(reasoning.native.as_ref(), WIRE).is_some() =>
            {
                self.fields.insert("thinking".to_owned(), raw(&reasoning.text));
            }
            Part::ToolCall(call) if !call.provider_executed => {
                open.push(call);
                self.calls.push(render_call(call));
            }
            Part::Media(_) => self.images.extend(image(part)),
            Part::Native(item) if !as_read::is_mark(item, WIRE) => {
                self.fields.extend(native_fields(Some(item), WIRE).unwrap_or_default());
            }
            _ => {}
        }
    }

    /// Returns the JSON of the message. Returns `None` if the message is empty.
    fn into_json(self, role: &str) -> Option<RawJson> {
        let Self { mut fields, text, images, calls } = self;
        if text.is_empty() && images.is_empty() && calls.is_empty() && fields.is_empty() {
            return None;
        }
        fields.insert("role".to_owned(), raw(role));
        fields.insert("content".to_owned(), raw(&text));
        if !images.is_empty() {
            fields.insert("images".to_owned(), raw(&images));
        }
        if !calls.is_empty() {
            fields.insert("tool_calls".to_owned(), raw(&calls));
        }
        Some(raw(&fields))
    }
}

fn render_result(result: &ToolResult, open: &mut OpenCalls) -> RawJson {
    let mut fields = native_fields(result.native.as_ref(), WIRE).unwrap_or_default();
    fields.insert("role".to_owned(), raw("tool"));
    fields.insert("content".to_owned(), raw(&result.text()));
    if let Some(name) = open.answer(result).or_else(|| result.name.clone()) {
        fields.insert("tool_name".to_owned(), raw(&name));
    }
    if let Some(id) = &result.call_id {
        fields.insert("tool_call_id".to_owned(), raw(id));
    }
    raw(&fields)
}

fn render_call(call: &ToolCall) -> RawJson {
    let mut fields = native_fields(call.native.as_ref(), WIRE).unwrap_or_default();
    let mut function = take_object(&mut fields, "function").unwrap_or_default();
    function.insert("name".to_owned(), raw(&call.name));
    function.insert("arguments".to_owned(), arguments_object(&call.arguments));
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
            Some(raw(data))
        }
        _ => None,
    }
}
