//! Step 1: one kind of thing per message.
//!
//! A row of an older system may hold a whole turn: text, calls, their results and the final text.
//! It is split into assistant messages with calls, tool messages with results, and what follows.
//!
//! Calls and approval requests of messages that are not the assistant's are left out: only the
//! model calls tools, no provider takes a call of anybody else, and to show it as the model's own
//! would let a user put words into the model's mouth. Their results answer no call then.

use std::{ops::Range, sync::Arc};

use tower_chat_core::{Message, Part, Role};

/// The message as one or more messages of which each holds either results or anything else.
///
/// A message that is in order already comes back as it is, at no cost. A piece that is empty held
/// nothing but calls that are left out.
pub(super) fn in_order(message: &Arc<Message>) -> Ordered {
    let stays = |part: &&Part| !is_misplaced_call(message.role, part);
    if !has_foreign_results(message) {
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

/// A stretch of a message's parts that is a message by itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) role: Role,
    pub(super) parts: Range<usize>,
}

/// The message's pieces, in the order in which they stand in a conversation; one, if it is in
/// order already.
pub(super) fn pieces(message: &Message) -> Vec<Piece> {
    let role = message.role;
    if !has_foreign_results(message) {
        return vec![Piece { role, parts: 0..message.parts.len() }];
    }
    let mut leaves: Vec<bool> =
        message.parts.iter().map(|part| is_foreign_result(message, part)).collect();
    let mut pieces = pieces_by(role, &leaves);
    // A result that a piece parts from the provider's own call is no better than a foreign one.
    while let Some(index) = parted_result(message, &pieces) {
        if let Some(leaves) = leaves.get_mut(index) {
            *leaves = true;
        }
        pieces = pieces_by(role, &leaves);
    }
    if role == Role::User {
        // Results answer what stands before the message, so they come before its own words.
        pieces.sort_by_key(|piece| piece.role != Role::Tool);
    }
    pieces
}

fn pieces_by(role: Role, is_result: &[bool]) -> Vec<Piece> {
    let mut pieces: Vec<Piece> = Vec::new();
    for (index, &is_result) in is_result.iter().enumerate() {
        let role = if is_result { Role::Tool } else { role };
        match pieces.last_mut() {
            Some(piece) if piece.role == role => piece.parts.end = index + 1,
            _ => pieces.push(Piece { role, parts: index..index + 1 }),
        }
    }
    pieces
}

/// The first result outside of a tool message whose call is not in the same piece.
fn parted_result(message: &Message, pieces: &[Piece]) -> Option<usize> {
    pieces.iter().filter(|piece| piece.role != Role::Tool).find_map(|piece| {
        let parts = message.parts.get(piece.parts.clone())?;
        let parted = parts.iter().position(|part| is_foreign_among(parts, part))?;
        Some(piece.parts.start + parted)
    })
}

pub(super) enum Ordered {
    Unchanged,
    Split(Vec<Arc<Message>>),
}

fn has_foreign_results(message: &Message) -> bool {
    message.role != Role::Tool && message.parts.iter().any(|part| is_foreign_result(message, part))
}

/// A result that belongs in a tool message: any, but for those of tools the provider ran itself,
/// which stand inside the assistant's own message.
pub(super) fn is_foreign_result(message: &Message, part: &Part) -> bool {
    match message.role {
        Role::Assistant => is_foreign_among(&message.parts, part),
        _ => matches!(part, Part::ToolResult(_)),
    }
}

/// A call, or a request to approve one, in a message that is not the assistant's.
pub(super) fn is_misplaced_call(role: Role, part: &Part) -> bool {
    role != Role::Assistant && matches!(part, Part::ToolCall(_) | Part::ApprovalRequest(_))
}

fn is_foreign_among(parts: &[Part], part: &Part) -> bool {
    let Part::ToolResult(result) = part else { return false };
    let calls = parts.iter().filter_map(Part::as_tool_call);
    !calls.filter(|call| call.provider_executed).any(|call| call.id == result.call_id)
}

#[cfg(test)]
mod tests {
    use tower_chat_core::{ToolCall, ToolResult};

    use super::*;

    fn split(message: Message) -> Vec<Message> {
        match in_order(&Arc::new(message.clone())) {
            Ordered::Unchanged => vec![message],
            Ordered::Split(pieces) => pieces.iter().map(|piece| (**piece).clone()).collect(),
        }
    }

    #[test]
    fn an_aggregate_row_becomes_call_result_and_text() {
        let row = Message::new(
            Role::Assistant,
            vec![
                Part::text("Let me look."),
                ToolCall::new("c1", "look", "{}").into(),
                ToolResult::new("c1", "found").into(),
                Part::text("There it is."),
            ],
        );
        let roles: Vec<Role> = split(row).iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Assistant]);
    }

    #[test]
    fn results_in_a_user_message_come_before_its_words() {
        let row = Message::new(
            Role::User,
            vec![Part::text("and now?"), ToolResult::new("c1", "found").into()],
        );
        let roles: Vec<Role> = split(row).iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::Tool, Role::User]);
    }

    #[test]
    fn a_result_of_the_providers_own_tool_stays_where_it_is() {
        let mut call = ToolCall::new("ws_1", "web_search", "{}");
        call.provider_executed = true;
        let message = Message::new(
            Role::Assistant,
            vec![call.into(), ToolResult::new("ws_1", "pages").into(), Part::text("Found.")],
        );
        assert_eq!(split(message.clone()), [message]);
    }

    #[test]
    fn a_result_parted_from_the_providers_own_call_is_a_result_like_others() {
        let mut call = ToolCall::new("ws_1", "web_search", "{}");
        call.provider_executed = true;
        let row = Message::new(
            Role::Assistant,
            vec![
                call.into(),
                ToolCall::new("c1", "look", "{}").into(),
                ToolResult::new("c1", "found").into(),
                ToolResult::new("ws_1", "pages").into(),
                Part::text("There it is."),
            ],
        );
        let pieces = split(row);
        let roles: Vec<Role> = pieces.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::Assistant, Role::Tool, Role::Assistant]);
        assert_eq!(pieces[1].results().count(), 2);
    }
}
