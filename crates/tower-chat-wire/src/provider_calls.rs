//! Finds the calls of a message that a provider ran itself.

use std::collections::HashSet;

use tower_chat_core::{Message, Part, Role};

/// Returns the ids of the calls in a message that a provider ran itself. `None` is the id of a call
/// without one.
pub(crate) fn ids_of_provider_calls(message: &Message) -> HashSet<Option<&str>> {
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    calls.filter(|call| call.provider_executed).map(|call| call.id.as_deref()).collect()
}

/// Like [`ids_of_provider_calls`], for wires on which only assistant messages have such calls.
pub(crate) fn ids_of_assistants_provider_calls(message: &Message) -> HashSet<Option<&str>> {
    match message.role {
        Role::Assistant => ids_of_provider_calls(message),
        _ => HashSet::new(),
    }
}
