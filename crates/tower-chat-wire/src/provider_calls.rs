//! Calls that a provider ran itself.

use std::collections::HashSet;

use tower_chat_core::{Message, Part, Role};

/// The ids of the calls of a message that a provider ran itself; `None` is that of a call without
/// one.
pub(crate) fn ids_of_provider_calls(message: &Message) -> HashSet<Option<&str>> {
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    calls.filter(|call| call.provider_executed).map(|call| call.id.as_deref()).collect()
}

/// The same where only an assistant's message holds such calls.
pub(crate) fn ids_of_assistants_provider_calls(message: &Message) -> HashSet<Option<&str>> {
    match message.role {
        Role::Assistant => ids_of_provider_calls(message),
        _ => HashSet::new(),
    }
}
