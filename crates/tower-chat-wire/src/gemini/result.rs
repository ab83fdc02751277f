//! Reads and writes function responses.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use tower_chat_core::{Part, RawJson, ToolCall, ToolResult};

use super::{
    WIRE,
    call::{nonempty_id, split_native, take_id},
    media,
    part::{self, RESULT, Speaker},
};
use crate::fields::{Fields, as_text, raw};

const OUTPUT: &str = "output";
const ERROR: &str = "error";

/// The names of the fields in which clients send the text of a result. Gemini's reference defines
/// the first two names: <https://ai.google.dev/api/caching#FunctionResponse>.
const KEYS: [&str; 5] = [OUTPUT, ERROR, "result", "return_value", "content"];

/// Reads the result in the field `key` of a part, if the field contains an object.
pub(super) fn parse(mut fields: Fields, key: &str) -> Option<ToolResult> {
    let mut inner: Fields = fields.take(key)?.parse().ok()?;
    let mut result = ToolResult::new("", "");
    result.name = inner.text("name");
    if result.name.as_deref().is_some_and(|name| !name.is_empty()) {
        inner.take("name");
    }
    result.call_id = take_id(&mut inner);
    result.content = Vec::new();
    let response = inner.take("response");
    let is_plain = result.name.is_some() && response.as_ref().and_then(plain_key).is_some();
    if let Some(response) = response {
        result.is_error = is_only_error(&response);
        result.content.push(Part::text(parse_response(response, &mut inner)));
    }
    parse_parts(&mut inner, &mut result.content);
    if !(fields.is_empty() && inner.is_empty() && key == RESULT[0] && is_plain) {
        fields.set(key, raw(&inner));
        result.native = Some(fields.into_native(WIRE));
    }
    Some(result)
}

/// The part of a result, and the parts with its media. The media must be written after all results.
#[derive(Debug)]
pub(super) struct Rendered {
    pub(super) response: RawJson,
    pub(super) media: Vec<RawJson>,
}

/// Writes a result with the id and the name of the call that it answers. `call` is this call, or
/// `None` if the history does not contain it. If the result has a name, this name is written. A
/// result that was read from Gemini's JSON without a name gets no name.
pub(super) fn render(result: &ToolResult, call: Option<&ToolCall>) -> Rendered {
    let (mut fields, key, mut inner) = split_native(result.native.as_ref(), RESULT);
    if result.native.as_ref().is_none_or(|native| &*native.wire != WIRE) {
        inner.set_text("name", call.map(|call| call.name.as_str()));
    }
    inner.set_text("name", result.name.as_deref().filter(|name| !name.is_empty()));
    let id = call.map_or(result.call_id.as_deref(), |call| call.id.as_deref());
    inner.set_text("id", nonempty_id(id));
    if let Some(response) = render_response(result, &inner) {
        inner.set("response", response);
    }
    let mut media: Vec<RawJson> = result.content.iter().filter_map(render_part).collect();
    if inner.is_null("parts") {
        inner.take("parts");
        if !media.is_empty() {
            inner.set("parts", raw(&std::mem::take(&mut media)));
        }
    }
    fields.set(key, raw(&inner));
    Rendered { response: raw(&fields), media }
}

/// Returns the text of a response: the text in its only field, or the JSON of the whole response.
///
/// Stores the form of the response in the field `response` of `inner`, so that it is written in the
/// same form: an object with the name of the only field, or `null` for the whole JSON. The usual
/// fields `output` and `error` are not stored.
fn parse_response(response: RawJson, inner: &mut Fields) -> String {
    if let Some((key, text)) = only_text(&response) {
        if plain_key(&response).is_none() {
            inner.set("response", raw(&object(key, raw(&()))));
        }
        return text;
    }
    inner.set("response", raw(&()));
    response.get().to_owned()
}

/// Returns the response with the text of a result, in the form that the field `response` of `inner`
/// contains. Returns `None` if the result was read without a response and still has no text.
fn render_response(result: &ToolResult, inner: &Fields) -> Option<RawJson> {
    let text = result.text();
    let form = inner.get("response");
    if form.is_none()
        && result.native.is_some()
        && result.content.iter().all(|part| part.as_text().is_none())
    {
        return None;
    }
    if form.is_some_and(|form| form.get() == "null")
        && let Ok(whole) = text.parse::<RawJson>()
        && is_only_error(&whole) == result.is_error
    {
        return Some(whole);
    }
    let form: Option<Fields> = form.and_then(|form| form.parse().ok());
    let key = KEYS.into_iter().find(|key| form.as_ref().is_some_and(|form| form.contains(key)));
    let default = if result.is_error { ERROR } else { OUTPUT };
    let key = key.filter(|key| (*key == ERROR) == result.is_error).unwrap_or(default);
    Some(raw(&object(key, raw(&text))))
}

/// Moves the items of the field `parts` of a function response (its media) to the content of the
/// result, and sets the field to `null`. Does nothing if one of the items is a text.
fn parse_parts(inner: &mut Fields, content: &mut Vec<Part>) {
    let Some(list) = inner.get("parts") else { return };
    let Ok(items) = list.parse::<Vec<RawJson>>() else { return };
    let parts: Vec<Part> = items.iter().filter_map(parse_part).collect();
    if !parts.is_empty() && parts.len() == items.len() {
        inner.set("parts", raw(&()));
        content.extend(parts);
    }
}

/// Reads an item as media or as a native part. Returns `None` for a text, which could not be
/// distinguished from the text of the response.
fn parse_part(item: &RawJson) -> Option<Part> {
    match part::parse(item, Speaker::System).ok()? {
        part @ (Part::Media(_) | Part::Native(_)) => Some(part),
        _ => None,
    }
}

fn render_part(part: &Part) -> Option<RawJson> {
    match part {
        Part::Media(media) => Some(raw(&media::render(media)?)),
        Part::Native(_) => part::render(part),
        _ => None,
    }
}

/// Returns `output` or `error` if the response has only this field and its value is a text.
fn plain_key(response: &RawJson) -> Option<&'static str> {
    only_text(response).map(|(key, _)| key).filter(|key| matches!(*key, OUTPUT | ERROR))
}

/// Returns the name and the text of the only field of a response, if the name is one of [`KEYS`].
fn only_text(response: &RawJson) -> Option<(&'static str, String)> {
    let fields: Fields = response.parse().ok()?;
    let key = KEYS.into_iter().find(|key| fields.len() == 1 && fields.contains(key))?;
    Some((key, as_text(fields.get(key)?)?))
}

fn is_only_error(response: &RawJson) -> bool {
    response.parse::<Fields>().is_ok_and(|fields| fields.len() == 1 && fields.contains(ERROR))
}

fn object(key: &str, value: RawJson) -> Fields {
    let mut fields = Fields::default();
    fields.set(key, value);
    fields
}
