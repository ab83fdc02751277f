//! Finds the [provider-executed](tower_chat_core::ToolCall::provider_executed) calls of a message.

use std::collections::HashSet;

use tower_chat_core::{Message, Part, Role};

/// Returns the ids of the provider-executed calls of a message: `None` for a call without an id.
pub(crate) fn provider_call_ids(message: &Message) -> HashSet<Option<&str>> {
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    calls.filter(|call| call.provider_executed).map(|call| call.id.as_deref()).collect()
}

/// Returns the ids of the provider-executed calls of an assistant message, and none for others.
pub(crate) fn assistant_provider_call_ids(message: &Message) -> HashSet<Option<&str>> {
    match message.role {
        Role::Assistant => provider_call_ids(message),
        _ => HashSet::new(),
    }
}
