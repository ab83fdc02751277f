//! Removes calls and results from a replay.

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;
use tower_chat_core::{Message, Messages, Part, Role};

use super::{
    broken_links,
    output::{MessageRef, after_step, changed},
    round::has_content,
};

/// Whether the model receives the calls and results of earlier runs.
///
/// ```
/// use tower_chat::{Message, ToolCall, ToolResult, message::Messages, replay::ToolHistory};
/// let messages: Messages = [
///     Message::user("Weather?"),
///     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
///     Message::tool_results([ToolResult::new("c1", "sunny")]),
///     Message::assistant("It is sunny."),
/// ].into();
/// assert_eq!(ToolHistory::Omit.apply(&messages).len(), 2);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolHistory {
    /// The model receives calls and results.
    #[default]
    Replay,
    /// Calls, results and approvals are omitted, including the calls and results of tools that the
    /// provider executes. A message without other content is omitted.
    Omit,
}

impl ToolHistory {
    /// Returns the messages unchanged, or without calls and results.
    pub fn apply(self, messages: &Messages) -> Messages {
        match self {
            Self::Replay => messages.clone(),
            Self::Omit => after_step(messages, without_tool_parts),
        }
    }
}

/// Returns a message without its calls and results, or `None` if nothing remains.
fn without_tool_parts(message: &Arc<Message>) -> Option<MessageRef<'_>> {
    if message.role == Role::Tool {
        return None;
    }
    if !message.parts.iter().any(is_of_tools) {
        return Some(Cow::Borrowed(message));
    }
    let mut rest = Message::clone(message);
    broken_links::retain(&mut rest.parts, |part| !is_of_tools(part));
    has_content(&rest).then(|| changed(rest))
}

pub(super) fn is_of_tools(part: &Part) -> bool {
    matches!(
        part,
        Part::ToolCall(_)
            | Part::ToolResult(_)
            | Part::ApprovalRequest(_)
            | Part::ApprovalResponse(_)
    )
}

#[cfg(test)]
mod tests;
