//! Reads and writes output items, which answer calls.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A native part consists only of a native item.

use tower_chat_core::{Part, RawJson, ToolResult};

use super::{
    WIRE, content,
    kind::{CallKind, FUNCTION, OutputKind},
    media,
    native::NativeForm,
};
use crate::{
    WireError,
    fields::{Fields, raw},
};

/// Reads the result of an output item. `call` is the type of the call that the result answers, if
/// the call is in the list.
///
/// An output that is an object becomes one native part. The native item of the result contains the
/// output if it is empty, and the type of the item if it is not the usual type for the call.
pub(super) fn parse(
    mut fields: Fields,
    kind: &OutputKind,
    call: Option<&CallKind>,
) -> Result<ToolResult, WireError> {
    let mut result = ToolResult::new("", "");
    result.call_id = fields.take_text("call_id");
    result.content = match fields.get(kind.field) {
        Some(value) if value.get().starts_with(['"', '[']) => {
            content::parse(value, content::INPUT)?
        }
        Some(value) if value.get() != "null" => {
            let mut object = Fields::default();
            object.set(kind.field, value.clone());
            vec![Part::Native(object.into_native(WIRE))]
        }
        Some(_) | None => Vec::new(),
    };
    if !result.content.is_empty() {
        fields.take(kind.field);
    }
    let is_expected = call.is_none_or(|call| call.output.as_ref() == Some(kind));
    let is_plain = is_expected && Some(kind) == FUNCTION.output.as_ref() && fields.len() == 1;
    if !is_plain || result.content.is_empty() {
        result.native = Some(fields.into_native(WIRE));
    }
    Ok(result)
}

/// Writes the item of a result. `call` is the type of the call that the result answers, if known.
pub(super) fn render(result: &ToolResult, id: Option<&str>, call: Option<&CallKind>) -> RawJson {
    let native = Fields::of_native(result.native.as_ref(), WIRE);
    let was = native.as_ref().and_then(|native| OutputKind::of_item(&native.text("type")?));
    let answers = call.and_then(|call| call.output.as_ref());
    let answers = answers.filter(|kind| can_represent(kind, result));
    let Some(kind) = was.or(answers).or(FUNCTION.output.as_ref()) else { return raw(&()) };
    let is_new = native.is_none();
    let mut fields = native.unwrap_or_default();
    fields.set("type", raw(kind.item));
    fields.set_text("call_id", id);
    if let Some(output) = object_output(result, kind) {
        fields.set(kind.field, output);
    } else if let Some(output) = content::render(&result.content, content::INPUT) {
        fields.set(kind.field, output);
    } else if is_new || !result.content.is_empty() {
        fields.set(kind.field, raw(""));
    }
    if is_new {
        set_required_fields(&mut fields, kind, result);
    }
    raw(&fields)
}

/// Returns the object that was read as the output, unless the application has changed it.
fn object_output(result: &ToolResult, kind: &OutputKind) -> Option<RawJson> {
    let [Part::Native(native)] = result.content.as_slice() else { return None };
    match NativeForm::of_native(native) {
        Some(NativeForm::Message(_) | NativeForm::Content(_) | NativeForm::Item) => None,
        None => Fields::of_native(Some(native), WIRE)?.take(kind.field),
    }
}

/// Returns whether the result can be written as an output of this type. The output of a tool search
/// must be a list of tools.
fn can_represent(kind: &OutputKind, result: &ToolResult) -> bool {
    kind.item != TOOL_SEARCH || tool_list(result).is_some()
}

const TOOL_SEARCH: &str = "tool_search_output";

/// Returns the text of the result, if the text is a JSON list.
fn tool_list(result: &ToolResult) -> Option<RawJson> {
    let tools = result.text().parse::<RawJson>().ok();
    tools.filter(|tools| tools.get().starts_with('['))
}

/// Sets the fields that outputs of the provider's own tools require.
fn set_required_fields(fields: &mut Fields, kind: &OutputKind, result: &ToolResult) {
    match kind.item {
        "apply_patch_call_output" => {
            fields.set("status", raw(if result.is_error { "failed" } else { "completed" }));
        }
        TOOL_SEARCH => {
            if let Some(tools) = tool_list(result) {
                fields.set(kind.field, tools);
            }
            fields.set("execution", raw("client"));
        }
        "shell_call_output" => {
            let mut outcome = Fields::default();
            outcome.set("type", raw("exit"));
            outcome.set("exit_code", raw(&i32::from(result.is_error)));
            let mut output = Fields::default();
            output.set("stdout", raw(&result.text()));
            output.set("stderr", raw(""));
            output.set("outcome", raw(&outcome));
            fields.set(kind.field, raw(&[output]));
        }
        "computer_call_output" => {
            let shown = result.content.iter().find_map(|part| match part {
                Part::Media(media) => media::url_of(media),
                _ => None,
            });
            if let Some(url) = shown {
                let mut screenshot = Fields::default();
                screenshot.set("type", raw("computer_screenshot"));
                screenshot.set("image_url", raw(&url));
                fields.set(kind.field, raw(&screenshot));
            }
        }
        _ => {}
    }
}
