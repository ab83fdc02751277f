//! The tool calls of a conversation that wait for approval.

use rusqlite::Connection;
use tower_chat_core::{
    ApprovalRequest, ConversationKey, Message, pairing::PendingBatches, store::StoreError,
};

use crate::{
    conversation::Conversation,
    read::{self, NotRead},
    row_key,
};

/// Selects the calls that wait for approval in a range of row keys, with their messages.
pub(crate) const SQL: &str = "
    SELECT m.place, m.run, m.run_index, m.body, m.checksum, t.call_index
    FROM tool_invocations t INDEXED BY pending_approvals
    CROSS JOIN messages m ON m.place = t.place
    WHERE t.status = 'pending_approval' AND t.place BETWEEN ?1 AND ?2
    ORDER BY t.place, t.call_index";

/// Returns the approval requests of the visible messages of a conversation, grouped by the answer
/// that contains the calls.
/// Reads only the rows of calls that wait for approval, and their messages.
pub(crate) fn pending_approvals(
    connection: &Connection,
    key: &ConversationKey,
    conversation: &Conversation,
) -> Result<Vec<Vec<ApprovalRequest>>, NotRead> {
    let (first, last) = row_key::range_to(conversation.number, conversation.visible());
    let mut statement = connection.prepare_cached(SQL)?;
    let mut rows = statement.query([first, last])?;
    let mut batches = PendingBatches::default();
    let mut asking: Option<(u64, Message)> = None;
    while let Some(row) = rows.next()? {
        let sequence = row_key::sequence(row.get(0)?);
        let message = match asking.take() {
            Some((last, message)) if last == sequence => message,
            Some(_) | None => read::message(row)?.map_err(|source| {
                NotRead::Damaged(StoreError::Undecodable { key: key.clone(), sequence, source })
            })?,
        };
        if let Some(request) = message.approval_request(row.get(5)?) {
            batches.push(&message, request.clone());
        }
        asking = Some((sequence, message));
    }
    Ok(batches.finish())
}
