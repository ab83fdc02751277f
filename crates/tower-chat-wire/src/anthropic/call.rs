//! Reads and writes tool calls: `tool_use` blocks, and the blocks of provider-executed calls.
//!
//! A provider-executed call is a call of a tool that the provider runs itself. A wire is a
//! provider's JSON format.

use serde_json::{Map, Value};
use tower_chat_core::{RawJson, ToolCall};

use super::WIRE;
use crate::{
    WireError,
    fields::{Fields, raw},
};

pub(super) const CALL: &str = "tool_use";

/// Returns whether a block of this type is a [provider-executed](ToolCall::provider_executed) call.
pub(super) fn is_provider_executed(kind: &str) -> bool {
    kind.ends_with("_tool_use")
}

/// Reads a `tool_use` block.
pub(super) fn parse(mut fields: Fields) -> Result<ToolCall, WireError> {
    let mut call = take_call(&mut fields).ok_or(WireError::Field {
        what: "a tool_use block",
        field: "name",
        expected: "a text",
    })?;
    if fields.len() > 1 {
        call.native = Some(fields.into_native(WIRE));
    }
    Ok(call)
}

/// Reads a provider-executed call from its block. Returns `None` if the block has no name.
pub(super) fn parse_provider_executed(block: &Fields) -> Option<ToolCall> {
    let mut fields = block.clone();
    let mut call = take_call(&mut fields)?;
    call.provider_executed = true;
    call.native = Some(fields.into_native(WIRE));
    Some(call)
}

/// Writes the block of a call with this id.
pub(super) fn render(call: &ToolCall, id: &str) -> RawJson {
    let native = Fields::of_native(call.native.as_ref(), WIRE);
    let mut fields = native.filter(|fields| fields.is_text("type", CALL)).unwrap_or_default();
    fields.set("type", raw(CALL));
    fields.set("id", raw(id));
    raw(&with_call(fields, call))
}

/// Writes the block of a provider-executed call, if it was read from this wire.
pub(super) fn render_provider_executed(call: &ToolCall) -> Option<RawJson> {
    let mut fields = Fields::of_native(call.native.as_ref(), WIRE)?;
    if !is_provider_executed(&fields.text("type")?) {
        return None;
    }
    fields.set_text("id", call.id.as_deref());
    Some(raw(&with_call(fields, call)))
}

fn take_call(fields: &mut Fields) -> Option<ToolCall> {
    let name = fields.take_text("name")?;
    let id = fields.take_text("id");
    let input = fields.take("input").map(|input| input.get().to_owned());
    let mut call = ToolCall::without_id(name, input.unwrap_or_default());
    call.id = id;
    Some(call)
}

fn with_call(mut fields: Fields, call: &ToolCall) -> Fields {
    fields.set("name", raw(&call.name));
    fields.set("input", input(&call.arguments));
    fields
}

/// Returns the arguments as the JSON object that the wire requires.
fn input(arguments: &str) -> RawJson {
    // Parsing as a `Value` also detects invalid strings, such as an unpaired surrogate.
    match serde_json::from_str::<Value>(arguments) {
        Ok(Value::Object(object)) => arguments.parse().unwrap_or_else(|_| raw(&object)),
        Ok(Value::Null) => raw(&Map::new()),
        _ if arguments.trim().is_empty() => raw(&Map::new()),
        _ => {
            let mut object = Fields::default();
            object.set("arguments", raw(arguments));
            raw(&object)
        }
    }
}
