//! Step 1: splits messages, so that each contains either results or other parts.
//!
//! A row of an older system may contain a whole turn: text, calls, their results and the final text. Such
//! a row is split into assistant messages with calls, tool messages with results, and the parts after
//! them.
//!
//! Calls and approval requests in messages with another role than assistant are omitted. Only the
//! model calls tools, and no provider accepts a call of another role. If such a call were converted to
//! the model's own, a user could forge statements of the model. The results of these calls are then
//! orphans.

use std::sync::Arc;

use tower_chat_core::{
    Message, Part, Role,
    pairing::{Piece, foreign_results, pieces},
};

/// Returns the message as one or more messages that contain either results or other parts.
///
/// A message that is already in order is returned unchanged, without a copy. If a piece contained only
/// calls that are omitted, it has no parts.
pub(super) fn in_order(message: &Arc<Message>) -> Ordered {
    let stays = |part: &&Part| !is_misplaced_call(message.role, part);
    if message.role == Role::Tool || foreign_results(message).is_empty() {
        if message.parts.iter().all(|part| stays(&part)) {
            return Ordered::Unchanged;
        }
        let mut rest = (**message).clone();
        rest.parts.retain(|part| stays(&part));
        return Ordered::Split(vec![Arc::new(rest)]);
    }
    let piece = |Piece { role, parts }: Piece| {
        // Only one message may have the id.
        let id = message.id.filter(|_| parts.start == 0);
        let parts = message.parts.get(parts).unwrap_or_default();
        let mut piece = Message::new(role, parts.iter().filter(stays).cloned().collect());
        piece.author.clone_from(&message.author);
        piece.id = id;
        Arc::new(piece)
    };
    Ordered::Split(pieces(message).into_iter().map(piece).collect())
}

pub(super) enum Ordered {
    Unchanged,
    Split(Vec<Arc<Message>>),
}

/// Returns whether a part is a call or an approval request in a message that is not the assistant's.
fn is_misplaced_call(role: Role, part: &Part) -> bool {
    role != Role::Assistant && matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_))
}

#[cfg(test)]
mod tests;
