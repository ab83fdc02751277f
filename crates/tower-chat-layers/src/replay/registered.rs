//! Step 5 of the [replay](super): removes calls of tools that are no longer registered, and calls
//! with unreadable arguments.

use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use tower_chat_core::{Messages, ToolCall};

use super::without_calls::without_calls;

/// The policy for stored calls of tools that are no longer registered, and for stored calls with
/// unreadable arguments. By default, all calls are replayed.
///
/// An omitted call and its result are not sent, but remain in the stored history. If no call of an
/// answer remains, only the text of the answer is sent.
///
/// ```
/// use tower_chat::{Message, ToolCall, ToolResult, message::Messages, replay::OutdatedCalls};
/// let messages: Messages = [
///     Message::user("Weather?"),
///     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
///     Message::tool_results([ToolResult::new("c1", "sunny")]),
///     Message::assistant("It is sunny."),
/// ].into();
/// let policy = OutdatedCalls::keep().drop_unregistered();
/// assert_eq!(policy.apply(&messages, Some(&["weather"])).len(), 4);
/// assert_eq!(policy.apply(&messages, Some(&["news"])).len(), 2);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct OutdatedCalls {
    pub(super) unregistered: bool,
    pub(super) unreadable: bool,
}

impl OutdatedCalls {
    /// Creates a policy that keeps all calls.
    pub fn keep() -> Self {
        Self::default()
    }

    /// Drops calls of tools that are no longer registered.
    #[must_use]
    pub fn drop_unregistered(mut self) -> Self {
        self.unregistered = true;
        self
    }

    /// Drops calls whose arguments are not a JSON object. Empty arguments are read as `{}`.
    #[must_use]
    pub fn drop_unreadable_arguments(mut self) -> Self {
        self.unreadable = true;
        self
    }

    /// Returns whether every call is kept.
    pub fn is_off(&self) -> bool {
        !self.unregistered && !self.unreadable
    }

    /// Returns whether [`apply`](Self::apply) needs the names of the registered tools.
    pub fn needs_tools(&self) -> bool {
        self.unregistered
    }

    /// Returns the messages without outdated calls and their results. `tools` contains the names of
    /// the registered tools. If `tools` is `None`, no call is dropped because of its tool.
    pub fn apply<N: AsRef<str>>(&self, messages: &Messages, tools: Option<&[N]>) -> Messages {
        let is_outdated = self.test(tools);
        without_calls(messages, |message| message.asked_calls().map(&is_outdated).collect())
    }

    pub(super) fn test<'t, N: AsRef<str>>(
        &self,
        tools: Option<&'t [N]>,
    ) -> impl Fn(&ToolCall) -> bool + use<'t, N> {
        let unreadable = self.unreadable;
        let registered: Option<BTreeSet<&str>> = tools
            .filter(|_| self.unregistered)
            .map(|names| names.iter().map(AsRef::as_ref).collect());
        move |call| {
            registered.as_ref().is_some_and(|names| !names.contains(call.name.as_str()))
                || (unreadable && !has_readable_arguments(call))
        }
    }
}

fn has_readable_arguments(call: &ToolCall) -> bool {
    let text = call.arguments.as_str();
    if text.trim_start().is_empty() {
        return true;
    }
    text.trim_start().starts_with('{') && serde_json::from_str::<IgnoredAny>(text).is_ok()
}

#[cfg(test)]
mod tests;
