//! Step 1: one kind of thing per message.
//!
//! A row of an older system may hold a whole turn: text, calls, their results and the final text.
//! It is split into assistant messages with calls, tool messages with results, and what follows.
//!
//! Calls and approval requests of messages that are not the assistant's are left out: only the
//! model calls tools, no provider takes a call of anybody else, and to show it as the model's own
//! would let a user put words into the model's mouth. Their results answer no call then.

use std::sync::Arc;

use tower_chat_core::{
    Message, Part, Role,
    pairing::{Piece, foreign_results, pieces},
};

/// The message as one or more messages of which each holds either results or anything else.
///
/// A message that is in order already comes back as it is, at no cost. A piece that is empty held
/// nothing but calls that are left out.
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

/// A call, or a request to approve one, in a message that is not the assistant's.
fn is_misplaced_call(role: Role, part: &Part) -> bool {
    role != Role::Assistant && matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_))
}

#[cfg(test)]
mod tests;
