//! Names of tools, as a provider takes them.

use std::sync::Arc;

use tower_chat_core::{Message, Part, ToolCall, ToolResult};

/// The messages with names of tools in which every other character is a `_`.
///
/// Only another provider's tools have such names: the tools of the request are the caller's.
pub(crate) fn with_acceptable_names(
    messages: Vec<Arc<Message>>,
    is_acceptable: fn(char) -> bool,
) -> Vec<Arc<Message>> {
    messages.into_iter().map(|message| renamed(message, is_acceptable)).collect()
}

fn renamed(message: Arc<Message>, is_acceptable: fn(char) -> bool) -> Arc<Message> {
    let is_odd = |name: &str| !name.chars().all(is_acceptable);
    let has_odd_name = message.parts.iter().any(|part| match part {
        Part::ToolCall(ToolCall { name, .. }) => is_odd(name),
        Part::ToolResult(ToolResult { name: Some(name), .. }) => is_odd(name),
        _ => false,
    });
    if !has_odd_name {
        return message;
    }
    let acceptable = |name: &str| {
        name.chars().map(|it| if is_acceptable(it) { it } else { '_' }).collect::<String>()
    };
    let mut parts = message.parts.clone();
    for part in &mut parts {
        match part {
            Part::ToolCall(call) => call.name = acceptable(&call.name),
            Part::ToolResult(result) => result.name = result.name.as_deref().map(acceptable),
            _ => {}
        }
    }
    Arc::new(message.with_parts(parts))
}
