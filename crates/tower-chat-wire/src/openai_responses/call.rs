//! Reads and writes items that call a tool.
//!
//! A provider-executed call is a call of a tool that the provider runs itself. A native item
//! contains a provider's own JSON fields of a message or part, which the common types do not have.
//! It belongs to one wire (a provider's JSON format), and is written only on this wire.

use tower_chat_core::{RawJson, ToolCall};

use super::{
    WIRE,
    kind::{CUSTOM, CallKind, FUNCTION},
};
use crate::{
    WireError,
    fields::{Fields, as_text, raw},
};

/// Reads the call of an item. A value in the field for arguments that is not a string, such as the
/// object `action`, is stored as its JSON text. If the field is missing, an empty text is stored.
/// In both cases, the field is `null` in the native item, so that [`render`] writes the same form.
pub(super) fn parse(mut fields: Fields, kind: &CallKind) -> Result<ToolCall, WireError> {
    let provider_executed = kind.runs_at_provider(&fields);
    let name = match kind.tool {
        Some(tool) => tool.to_owned(),
        None => fields.take_text("name").ok_or(WireError::Field {
            what: "a tool call",
            field: "name",
            expected: "a text",
        })?,
    };
    // A call with one of these states is incomplete, because the answer ended too early.
    let is_cut_off = !provider_executed
        && ["incomplete", "in_progress"].into_iter().any(|status| fields.is_text("status", status));
    let id = fields.take_text(kind.id);
    let value = fields.take(kind.arguments);
    let text = value.as_ref().and_then(as_text);
    if text.is_none() {
        fields.set(kind.arguments, raw(&()));
    }
    let text = text.or_else(|| value.map(|value| value.get().to_owned())).unwrap_or_default();
    let mut call = ToolCall::without_id(name, text);
    call.id = id;
    call.provider_executed = provider_executed;
    call.is_cut_off = is_cut_off;
    if fields.len() > 1 || kind != FUNCTION {
        call.native = Some(fields.into_native(WIRE));
    }
    Ok(call)
}

/// Writes the item of a call with this id. Returns `None` for a provider-executed call that was
/// read from another wire, or whose item would be read as a call of a client's tool.
pub(super) fn render(call: &ToolCall, id: Option<&str>) -> Option<RawJson> {
    let native = Fields::of_native(call.native.as_ref(), WIRE);
    let kind = kind_of(call);
    let is_native = native.is_some();
    let mut fields = native.unwrap_or_default();
    fields.set("type", raw(kind.item));
    if kind.tool.is_none() {
        fields.set("name", raw(&call.name));
    }
    fields.set_text(kind.id, id);
    let runs_there = kind.runs_at_provider(&fields) || kind.item == CUSTOM;
    if call.provider_executed && !(is_native && runs_there) {
        return None;
    }
    let was_text = !fields.is_null(kind.arguments);
    match call.arguments.parse::<RawJson>() {
        Ok(value) if !was_text => fields.set(kind.arguments, value),
        Err(_) if !was_text && call.arguments.is_empty() => drop(fields.take(kind.arguments)),
        Ok(_) | Err(_) => fields.set(kind.arguments, raw(&call.arguments)),
    }
    Some(raw(&fields))
}

/// Returns the type of the item of a call, which is `function_call` unless it has a native item.
pub(super) fn kind_of(call: &ToolCall) -> &'static CallKind {
    Fields::of_native(call.native.as_ref(), WIRE)
        .and_then(|native| native.text("type"))
        .and_then(|item| CallKind::of_item(&item))
        .unwrap_or(FUNCTION)
}
