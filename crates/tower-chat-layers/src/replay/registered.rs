//! Step 4: calls that no tool of today could have answered.

use std::collections::BTreeSet;

use serde::de::IgnoredAny;
use tower_chat_core::{Messages, ToolCall};

use super::without_calls::without_calls;

/// Which calls leave the replay because the tools have changed since. Off unless asked for.
///
/// The record keeps them. A call goes together with its result; a round that loses all its calls
/// disappears, and its text stays.
///
/// ```
/// use tower_chat::{Message, Messages, ToolCall, ToolResult, replay::OutdatedCalls};
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
    unregistered: bool,
    unreadable: bool,
}

impl OutdatedCalls {
    /// All calls stay.
    pub fn keep() -> Self {
        Self::default()
    }

    /// Drops calls of tools that are not registered any more.
    #[must_use]
    pub fn drop_unregistered(mut self) -> Self {
        self.unregistered = true;
        self
    }

    /// Drops calls whose arguments are no JSON object. Empty arguments count as `{}`.
    #[must_use]
    pub fn drop_unreadable_arguments(mut self) -> Self {
        self.unreadable = true;
        self
    }

    /// Whether every call stays.
    pub fn is_off(&self) -> bool {
        !self.unregistered && !self.unreadable
    }

    /// Whether the names of the registered tools are needed.
    pub fn needs_tools(&self) -> bool {
        self.unregistered
    }

    /// The messages without outdated calls. Where it is not known which tools are registered,
    /// none counts as unregistered.
    pub fn apply<N: AsRef<str>>(&self, messages: &Messages, tools: Option<&[N]>) -> Messages {
        let is_outdated = self.test(tools);
        without_calls(messages, |_, _, call| is_outdated(call))
    }

    /// Whether a call is outdated.
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
