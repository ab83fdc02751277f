//! The fields of the body of a request, except for the conversation.

use serde_json::{Map, Value};
use tower_chat_core::ChatOptions;

use crate::body::merge;

/// The fields that options ask for. `extra` options count more than named ones, and a `null` among
/// them takes the field out.
pub(crate) fn with_extra(
    mut named: Map<String, Value>,
    options: &ChatOptions,
) -> Map<String, Value> {
    merge(&mut named, &options.extra);
    if !named.contains_key("tools") {
        // Services refuse a choice among no tools.
        named.remove("tool_choice");
    }
    named
}
