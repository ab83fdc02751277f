//! Step 1 of the [replay](super): splits messages, so that each message contains either results or
//! other parts.
//!
//! A message that was imported from another system may contain a whole turn: text, calls, results
//! and the final text. Such a message is split into assistant messages with calls, tool messages
//! with results, and an assistant message with the parts after them.
//!
//! Calls and approval requests in messages whose role is not assistant are omitted, because no
//! provider accepts them. If the step converted these calls to calls of the model, a user could
//! forge calls of the model. The results of the omitted calls become orphan results, which are
//! results without a call.

use std::sync::Arc;

use tower_chat_core::{
    Message, Part, Role,
    pairing::{Piece, foreign_results, pieces},
};

/// Returns the message as one or more messages that contain either results or other parts. A piece
/// that contained only omitted calls has no parts. Returns `None` if the message does not change.
pub(super) fn in_order(message: &Arc<Message>) -> Option<Vec<Arc<Message>>> {
    let stays = |part: &&Part| !is_misplaced_call(message.role, part);
    if message.role == Role::Tool || foreign_results(message).is_empty() {
        if message.parts.iter().all(|part| stays(&part)) {
            return None;
        }
        let mut rest = (**message).clone();
        rest.parts.retain(|part| stays(&part));
        return Some(vec![Arc::new(rest)]);
    }
    let piece = |Piece { role, parts }: Piece| {
        // Only one message may have the id, so the first piece has it.
        let id = message.id.filter(|_| parts.start == 0);
        let parts = message.parts.get(parts).unwrap_or_default();
        let mut piece = Message::new(role, parts.iter().filter(stays).cloned().collect());
        piece.author.clone_from(&message.author);
        piece.id = id;
        Arc::new(piece)
    };
    Some(pieces(message).into_iter().map(piece).collect())
}

fn is_misplaced_call(role: Role, part: &Part) -> bool {
    role != Role::Assistant && matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_))
}

#[cfg(test)]
mod tests;
