//! The tool calls of a conversation that wait for approval.

use rusqlite::Connection;
use tower_chat_core::{ApprovalRequest, ConversationKey, Message, store::StoreError};

use crate::{
    conversation::Conversation,
    read::{self, NotRead},
    row_key,
};

pub(crate) const SQL: &str = "
    SELECT m.place, m.run, m.run_index, m.body, m.checksum, t.call_index
    FROM tool_invocations t INDEXED BY pending_approvals
    CROSS JOIN messages m ON m.place = t.place
    WHERE t.status = 'pending_approval' AND t.place BETWEEN ?1 AND ?2
    ORDER BY t.place, t.call_index";

/// The requests of the calls that wait in messages that readers see, those of one message together.
///
/// However long the record is, it reads the rows that wait and their messages alone.
pub(crate) fn pending_approvals(
    connection: &Connection,
    key: &ConversationKey,
    conversation: &Conversation,
) -> Result<Vec<Vec<ApprovalRequest>>, NotRead> {
    let (first, last) = row_key::range_to(conversation.number, conversation.visible());
    let mut statement = connection.prepare_cached(SQL)?;
    let mut rows = statement.query([first, last])?;
    let mut batches: Vec<Batch> = Vec::new();
    while let Some(row) = rows.next()? {
        let sequence = row_key::sequence(row.get(0)?);
        if batches.last().is_none_or(|batch| batch.sequence != sequence) {
            let message = read::message(row)?.map_err(|source| {
                NotRead::Damaged(StoreError::Undecodable { key: key.clone(), sequence, source })
            })?;
            batches.push(Batch { sequence, message, requests: Vec::new() });
        }
        let index: u32 = row.get(5)?;
        if let Some(batch) = batches.last_mut() {
            batch.requests.extend(batch.message.approval_request(index).cloned());
        }
    }
    let requests = batches.into_iter().map(|batch| batch.requests);
    Ok(requests.filter(|requests| !requests.is_empty()).collect())
}

struct Batch {
    sequence: u64,
    message: Message,
    requests: Vec<ApprovalRequest>,
}
