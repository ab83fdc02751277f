//! Explains in which form the model receives each stored message, and why this form differs from
//! the stored one.
//!
//! [`explain`] explains a list of messages, and [`explain_stored`] a conversation in a store. A run
//! executes a replay, which converts the stored messages to those of a request. Both functions
//! execute the same replay, with a mark on each message, and compare the messages before and after
//! each step. Therefore an explanation agrees with the messages that a run sends.

#![warn(clippy::too_many_lines)]

mod folded;
mod reason;
mod steps;
mod stored;
mod tags;

use tower_chat_core::Messages;
use tower_chat_layers::replay::{ReplayContext, ReplayPolicy};

use self::{folded::Folded, reason::Reasons};
pub use self::{
    reason::{Explained, Reason, ReasonKind},
    stored::explain_stored,
};

/// Returns the explanation of each message of a stored history, in the order of the messages. The
/// explanation describes how the model would receive the message if the next request added only
/// text.
///
/// If a replay adds an id to a call, or a name to a result, the message still counts as unchanged.
/// A store also has a record of tool calls, with a row for each call. If the policy adds results
/// from this record, this function reports the calls of these results as interrupted, because the
/// function cannot read the record. [`explain_stored`] reads the record.
///
/// ```
/// use std::time::SystemTime;
/// use tower_chat::{
///     Message, ToolCall,
///     explain::{Explained, ReasonKind, explain},
///     message::Messages,
///     replay::{ReplayContext, ReplayPolicy},
/// };
/// let stored: Messages = [
///     Message::user("Weather?"),
///     Message::tool_calls([ToolCall::new("c1", "weather", "{}")]),
/// ].into();
/// let context = ReplayContext::at(SystemTime::now());
/// let explained = explain(&stored, &ReplayPolicy::default(), &context);
/// assert_eq!(explained[0], Explained::Unchanged);
/// assert_eq!(explained[1].reasons()[0].kind, ReasonKind::Interrupted);
/// ```
pub fn explain(
    messages: &Messages,
    policy: &ReplayPolicy,
    context: &ReplayContext<'_>,
) -> Vec<Explained> {
    let folded = Folded::of(messages, policy.dangling_calls);
    explain_folded(messages, folded, policy, context)
}

fn explain_folded(
    stored: &Messages,
    mut folded: Folded,
    policy: &ReplayPolicy,
    context: &ReplayContext<'_>,
) -> Vec<Explained> {
    let mut reasons = Reasons::of(stored.len());
    folded.explain(stored, &mut reasons);
    let sent = steps::explain(stored, &mut folded.replay, policy, context, &mut reasons);
    reasons.into_explained(|number| sent.has_message(number))
}

#[cfg(test)]
mod tests;
