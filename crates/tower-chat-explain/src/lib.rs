//! What the model is sent of each stored message, and why it is not sent as it is stored.
//!
//! [`explain`] is for messages, [`explain_stored`] for a conversation in a store. The real replay runs over
//! messages that carry marks, step by step, and each step is compared with the one before it. So an explanation
//! cannot differ from what a run does.

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

/// What the model would be sent of each message of a stored history, if the next request added words
/// alone: one entry for each message, in their order.
///
/// Ids that replay fills in, and names that results get by their calls, are no change. Calls without a
/// result count as interrupted where the policy asks the record for one; [`explain_stored`] asks the
/// record.
///
/// ```
/// use std::time::SystemTime;
/// use tower_chat::{
///     Message, Messages, ToolCall,
///     explain::{Explained, ReasonKind, explain},
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
