//! Adds the `extra` options to the fields of a request body.

use serde_json::{Map, Value};
use tower_chat_core::ChatOptions;

use crate::body::merge;

/// Returns the fields of the named options together with the fields of the `extra` options. A field
/// in `extra` replaces the field of a named option, and a `null` in `extra` removes the field.
/// Removes `tool_choice` if the request has no tools.
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
