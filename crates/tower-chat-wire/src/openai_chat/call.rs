//! Reads and writes tool calls: the field `tool_calls`, and the field `function_call` of the API of
//! 2023.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use tower_chat_core::{RawJson, ToolCall};

use super::{Audience, WIRE};
use crate::{
    WireError,
    fields::{Fields, as_text, raw},
};

const LEGACY: &str = "function_call";

/// A type of tool call on this wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    /// The value of `type`. The field with the same name contains an object, which describes the
    /// call.
    pub(super) name: &'static str,
    /// The field in this object that contains the arguments.
    pub(super) arguments: &'static str,
}

/// A call whose arguments are JSON.
pub(super) const FUNCTION: Kind = Kind { name: "function", arguments: "arguments" };
/// A call whose arguments are free text.
pub(super) const CUSTOM: Kind = Kind { name: "custom", arguments: "input" };

pub(super) const KINDS: [Kind; 2] = [FUNCTION, CUSTOM];

/// Returns whether the arguments of a call are free text instead of JSON.
pub(super) fn has_free_text(call: &ToolCall) -> bool {
    let fields = Fields::of_native(call.native.as_ref(), WIRE);
    fields.is_some_and(|fields| fields.contains(CUSTOM.name))
}

/// Removes and reads the calls in the fields of a message. Removes neither an empty list nor a
/// `function_call` with an empty name and empty arguments, which Snowflake sends in every answer.
pub(super) fn parse_all(fields: &mut Fields) -> Result<Vec<ToolCall>, WireError> {
    let mut calls = Vec::new();
    if !fields.is_null("tool_calls")
        && let Some(list) = fields.get("tool_calls")
    {
        let items: Vec<RawJson> = list.parse().map_err(|source| WireError::Json {
            what: "the field tool_calls",
            expected: "a JSON list",
            source,
        })?;
        for item in &items {
            calls.push(parse(item)?);
        }
        if !items.is_empty() {
            fields.take("tool_calls");
        }
    }
    if !fields.is_null(LEGACY)
        && !fields.get(LEGACY).is_some_and(is_blank)
        && let Some(item) = fields.take(LEGACY)
    {
        calls.push(parse_legacy(&item)?);
    }
    Ok(calls)
}

/// Writes the calls into the fields of a message. The first call that was read from a
/// `function_call` is written as the field `function_call`. All other calls are written to
/// `tool_calls`. For [`Audience::Model`], a call with an id is always written to `tool_calls`,
/// because its result refers to the id.
pub(super) fn render_all(calls: &[&ToolCall], fields: &mut Fields, audience: Audience) {
    let may_be_legacy = |call: &ToolCall| audience == Audience::Transcript || call.id.is_none();
    let mut list = Vec::new();
    let mut legacy = None;
    for call in calls {
        let native = Fields::of_native(call.native.as_ref(), WIRE);
        match native.as_ref().and_then(legacy_fields) {
            Some(rest) if legacy.is_none() && may_be_legacy(call) => {
                legacy = Some(with_call(rest, "arguments", call));
            }
            Some(rest) => list.push(render(Some(as_function_item(rest)), call)),
            None => list.push(render(native, call)),
        }
    }
    if !list.is_empty() {
        fields.set("tool_calls", raw(&list));
    }
    if let Some(legacy) = legacy {
        fields.set(LEGACY, raw(&legacy));
    }
}

fn parse(item: &RawJson) -> Result<ToolCall, WireError> {
    let mut fields = Fields::parse(item.get(), "a tool call")?;
    let id = fields.take_text("id");
    let (kind, inner) =
        KINDS.into_iter().find_map(|kind| Some((kind, fields.take(kind.name)?))).ok_or(
            WireError::Field { what: "a tool call", field: "function", expected: "a JSON object" },
        )?;
    let mut inner = Fields::parse(inner.get(), "the function of a tool call")?;
    let mut call = take_call(&mut inner, kind.arguments)?;
    call.id = id;
    let is_plain = kind == FUNCTION
        && inner.is_empty()
        && fields.len() == 1
        && fields.is_text("type", "function");
    if !is_plain {
        fields.set(kind.name, raw(&inner));
        call.native = Some(fields.into_native(WIRE));
    }
    Ok(call)
}

fn is_blank(item: &RawJson) -> bool {
    Fields::parse(item.get(), LEGACY)
        .is_ok_and(|inner| inner.is_text("name", "") && inner.is_text("arguments", ""))
}

fn parse_legacy(item: &RawJson) -> Result<ToolCall, WireError> {
    let mut inner = Fields::parse(item.get(), "the field function_call")?;
    let mut call = take_call(&mut inner, "arguments")?;
    let mut fields = Fields::default();
    fields.set(LEGACY, raw(&inner));
    call.native = Some(fields.into_native(WIRE));
    Ok(call)
}

/// Removes and reads the name and the arguments of a call. Arguments that are not a string are
/// stored as their JSON text, and missing arguments as an empty text. In both cases, the field is
/// set to `null` in `inner`, so that [`with_call`] writes the same form.
fn take_call(inner: &mut Fields, arguments: &str) -> Result<ToolCall, WireError> {
    let name = inner.take_text("name").ok_or(WireError::Field {
        what: "a tool call",
        field: "name",
        expected: "a text",
    })?;
    let value = inner.take(arguments);
    let text = value.as_ref().and_then(as_text);
    if text.is_none() {
        inner.set(arguments, raw(&()));
    }
    let text = text.or_else(|| value.map(|value| value.get().to_owned())).unwrap_or_default();
    Ok(ToolCall::without_id(name, text))
}

fn render(native: Option<Fields>, call: &ToolCall) -> Fields {
    let mut fields = native.unwrap_or_else(|| {
        let mut fields = Fields::default();
        fields.set("type", raw("function"));
        fields
    });
    let kind = KINDS.into_iter().find(|kind| fields.contains(kind.name)).unwrap_or(FUNCTION);
    let inner = fields.get(kind.name).and_then(|inner| inner.parse().ok()).unwrap_or_default();
    fields.set(kind.name, raw(&with_call(inner, kind.arguments, call)));
    fields.set_text("id", call.id.as_deref());
    fields
}

/// Adds the name and the arguments of a call to `inner`. If [`take_call`] has set the field of the
/// arguments to `null`, they are written as a JSON value, or omitted if they are empty.
fn with_call(mut inner: Fields, arguments: &str, call: &ToolCall) -> Fields {
    inner.set("name", raw(&call.name));
    let was_text = !inner.is_null(arguments);
    match call.arguments.parse::<RawJson>() {
        Ok(value) if !was_text => inner.set(arguments, value),
        Err(_) if !was_text && call.arguments.is_empty() => drop(inner.take(arguments)),
        Ok(_) | Err(_) => inner.set(arguments, raw(&call.arguments)),
    }
    inner
}

/// Returns the fields of an element of `tool_calls` for a call with these fields of a
/// `function_call`.
fn as_function_item(rest: Fields) -> Fields {
    let mut fields = Fields::default();
    fields.set("type", raw("function"));
    fields.set("function", raw(&rest));
    fields
}

/// Returns the fields of a `function_call` in a native item.
fn legacy_fields(native: &Fields) -> Option<Fields> {
    if KINDS.iter().any(|kind| native.contains(kind.name)) {
        return None;
    }
    native.get(LEGACY)?.parse().ok()
}
