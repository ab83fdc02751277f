//! Finds the [provider-executed](tower_chat_core::ToolCall::provider_executed) calls of a message.

use std::collections::HashSet;

use tower_chat_core::{Message, Part, Role};

/// Returns the ids of the provider-executed calls of a message: `None` for a call without an id.
pub(crate) fn ids_of_provider_calls(message: &Message) -> HashSet<Option<&str>> {
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    calls.filter(|call| call.provider_executed).map(|call| call.id.as_deref()).collect()
}

/// Returns the ids of the provider-executed calls of an assistant message, and none for others.
pub(crate) fn ids_of_assistants_provider_calls(message: &Message) -> HashSet<Option<&str>> {
    match message.role {
        Role::Assistant => ids_of_provider_calls(message),
        _ => HashSet::new(),
    }
}
