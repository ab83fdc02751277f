//! The fields of the body of a request, without the conversation.

use serde_json::{Map, Value};
use tower_chat_core::ChatOptions;

use crate::body::merge;

/// Returns the fields of options. Fields in the `extra` options replace those of named options, and a
/// `null` in `extra` removes the field.
pub(crate) fn with_extra(
    mut named: Map<String, Value>,
    options: &ChatOptions,
) -> Map<String, Value> {
    merge(&mut named, &options.extra);
    if !named.contains_key("tools") {
        // Services refuse a tool choice without tools.
        named.remove("tool_choice");
    }
    named
}
