//! Reads and writes function calls.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use tower_chat_core::{RawJson, ToolCall};

use super::{
    WIRE,
    part::{CALL, spelling},
};
use crate::fields::{Fields, raw};

/// Reads the call in the field `key` of a part, if the field contains an object with a name.
pub(super) fn parse(mut fields: Fields, key: &str) -> Option<ToolCall> {
    let mut inner: Fields = fields.take(key)?.parse().ok()?;
    let mut call = ToolCall::without_id(inner.take_text("name")?, "");
    call.id = take_id(&mut inner);
    if let Some(arguments) = inner.take("args") {
        arguments.get().clone_into(&mut call.arguments);
        if !is_object(&arguments) {
            inner.set("args", raw(&()));
        }
    }
    if !(fields.is_empty() && inner.is_empty() && key == CALL[0]) {
        fields.set(key, raw(&inner));
        call.native = Some(fields.into_native(WIRE));
    }
    Some(call)
}

/// Writes the part of a call.
pub(super) fn render(call: &ToolCall) -> Fields {
    let (mut fields, key, mut inner) = split_native(call.native.as_ref(), CALL);
    inner.set("name", raw(&call.name));
    inner.set_text("id", nonempty_id(call.id.as_deref()));
    match call.arguments.parse::<RawJson>() {
        Ok(value) if is_object(&value) || inner.is_null("args") => inner.set("args", value),
        _ if call.arguments.trim().is_empty() => drop(inner.take("args")),
        Ok(value) if value.get() == "null" => inner.set("args", raw(&Fields::default())),
        Ok(_) | Err(_) => {
            let mut arguments = Fields::default();
            arguments.set("arguments", raw(&call.arguments));
            inner.set("args", raw(&arguments));
        }
    }
    fields.set(key, raw(&inner));
    fields
}

/// Removes and returns the id. An empty id is not removed, so that it is written again.
pub(super) fn take_id(inner: &mut Fields) -> Option<String> {
    let id = inner.text("id")?;
    if !id.is_empty() {
        inner.take("id");
    }
    Some(id)
}

/// Returns the id, or `None` if it is empty.
pub(super) fn nonempty_id(id: Option<&str>) -> Option<&str> {
    id.filter(|id| !id.is_empty())
}

pub(super) fn is_object(value: &RawJson) -> bool {
    value.get().starts_with('{')
}

/// Returns the fields of a part's native item, the spelling of the field `name` in this item, and
/// the fields of the object in this field. If the item does not contain the field, returns the
/// first spelling and an empty object.
pub(super) fn split_native(
    native: Option<&tower_chat_core::Native>,
    name: super::part::Name,
) -> (Fields, &'static str, Fields) {
    let fields = Fields::of_native(native, WIRE).unwrap_or_default();
    let key = spelling(&fields, name).unwrap_or(name[0]);
    let inner = fields.get(key).and_then(|inner| inner.parse().ok()).unwrap_or_default();
    (fields, key, inner)
}
