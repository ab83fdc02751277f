//! Reads of one conversation.

use std::sync::Arc;

use tokio_postgres::Row;
use tower_chat_core::{
    ApprovalRequest, ConversationKey, Message, Messages,
    pairing::PendingBatches,
    store::{
        Head, History, StoreError,
        author::{LAST_SEQUENCE, LoadFrom, OpenRunContent, ToolRecord},
    },
};

use crate::{
    connections::{Connections, Query},
    conversation::{self, corrupt},
    message,
    parameter::Parameter,
    stored_key::StoredKey,
    telemetry::TELEMETRY,
    tool_row::{self, number},
};

const LOAD: &str = "load a conversation";

/// Reads the head of a conversation.
pub(crate) async fn head(
    connections: &Connections,
    key: &ConversationKey,
) -> Result<Head, StoreError> {
    let stored = StoredKey::new(key);
    let values: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let statements = &connections.statements;
    let queries = [&statements.conversation, &statements.pending_approvals]
        .map(|sql| Query { sql, values: &values });
    let action = "read the head of a conversation";
    let [found, waiting] = connections.read(action, &stored.scope, queries).await?;
    Ok(conversation::head(key, &found)?.with_pending_approvals(pending_approvals(key, &waiting)?))
}

/// Reads the messages that `from` selects, from one snapshot, or all visible messages if the
/// conversation does not have this value.
pub(crate) async fn history_from(
    connections: &Connections,
    key: &ConversationKey,
    from: &LoadFrom,
) -> Result<History, StoreError> {
    let LoadFrom { leading, after, .. } = *from;
    if leading > after || after > LAST_SEQUENCE {
        return history(connections, key).await;
    }
    let stored = StoredKey::new(key);
    let json = from.to_json();
    let conversation: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let (first, last) = (number(leading), number(after));
    let values: [&dyn Parameter; 5] = [&stored.scope, &stored.conversation, &json, &first, &last];
    let statements = &connections.statements;
    let queries = [
        Query { sql: &statements.conversation, values: &conversation },
        Query { sql: &statements.messages_from, values: &values },
    ];
    let [found, rows] = connections.read(LOAD, &stored.scope, queries).await?;
    let head = conversation::head(key, &found)?;
    let (pruned, visible) = (head.pruned, visible(&head));
    let is_part =
        conversation::has_load_from(&found, &json)? && (pruned..=visible).contains(&after);
    if !is_part {
        return whole(key, head, &rows);
    }
    let split = rows.iter().take_while(|row| row.try_get(0).is_ok_and(|at: i64| at <= first));
    let (leading_rows, rest) = rows.split_at(split.count());
    let leading_messages: Messages =
        messages(key, leading_rows, pruned).collect::<Result<_, _>>()?;
    check_whole(key, pruned, leading_messages.len(), leading.max(pruned))?;
    let history = History::collect(head, messages(key, rest, after))?;
    check_whole(key, after, history.messages.len(), visible)?;
    loaded(key, &rows);
    Ok(history.with_skipped(after, leading_messages))
}

/// Reads a conversation with all its visible messages, from one snapshot.
pub(crate) async fn history(
    connections: &Connections,
    key: &ConversationKey,
) -> Result<History, StoreError> {
    let stored = StoredKey::new(key);
    let values: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let statements = &connections.statements;
    let queries =
        [&statements.conversation, &statements.messages].map(|sql| Query { sql, values: &values });
    let [found, rows] = connections.read(LOAD, &stored.scope, queries).await?;
    whole(key, conversation::head(key, &found)?, &rows)
}

/// Converts the rows of all visible messages to the history of a conversation.
fn whole(key: &ConversationKey, head: Head, rows: &[Row]) -> Result<History, StoreError> {
    let (before, visible) = (head.pruned, visible(&head));
    let history = History::collect(head, messages(key, rows, before))?;
    check_whole(key, before, history.messages.len(), visible)?;
    loaded(key, rows);
    Ok(history)
}

/// Returns the sequence number of the last visible message.
fn visible(head: &Head) -> u64 {
    head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible)
}

/// Records a load of these messages in the telemetry.
fn loaded(key: &ConversationKey, rows: &[Row]) {
    if TELEMETRY.is_listening() {
        let bodies = rows.iter().filter_map(|row| row.try_get::<_, &str>(3).ok());
        TELEMETRY.loaded(key, rows.len(), bodies.map(str::len).sum());
    }
}

/// Fails if `messages` is not the number of visible messages after the first `before` ones.
pub(crate) fn check_whole(
    key: &ConversationKey,
    before: u64,
    messages: usize,
    visible: u64,
) -> Result<(), StoreError> {
    let last = before.saturating_add(messages as u64);
    if last != visible {
        return Err(missing(key, last.saturating_add(1)));
    }
    Ok(())
}

/// Returns an open run (one that is not committed yet) with its staged messages and rows, from one
/// snapshot; `None` if no run is open.
pub(crate) async fn open_run(
    connections: &Connections,
    key: &ConversationKey,
) -> Result<Option<OpenRunContent>, StoreError> {
    let stored = StoredKey::new(key);
    let values: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let statements = &connections.statements;
    let queries = [&statements.conversation, &statements.staged_messages, &statements.staged_tools]
        .map(|sql| Query { sql, values: &values });
    let answers = connections.read("load an open run", &stored.scope, queries).await?;
    let [found, rows, tools] = answers;
    let head = conversation::head(key, &found)?;
    let Some(open) = head.open_run.clone() else { return Ok(None) };
    let messages = messages(key, &rows, open.visible).collect::<Result<_, _>>()?;
    let tools = tools.iter().map(|row| tool(key, row)).collect::<Result<_, _>>()?;
    Ok(Some(OpenRunContent::new(head, open, messages, tools)))
}

/// Returns an iterator that decodes messages, and returns an error if their sequence numbers do not
/// begin with `before + 1`, or have a gap.
pub(crate) fn messages(
    key: &ConversationKey,
    rows: &[Row],
    before: u64,
) -> impl Iterator<Item = Result<Arc<Message>, StoreError>> {
    rows.iter().zip(before.saturating_add(1)..).map(move |(row, expected)| {
        if sequence(row, 0)? != expected {
            return Err(missing(key, expected));
        }
        let message = message::read(row, 1);
        message.map(Arc::new).map_err(|source| message::undecodable(key, expected, source))
    })
}

fn missing(key: &ConversationKey, sequence: u64) -> StoreError {
    corrupt(&format!("message {sequence} of conversation {key} is missing"))
}

/// Decodes a row of the record of tool calls. Returns an error if the row is damaged.
pub(crate) fn tool(key: &ConversationKey, row: &Row) -> Result<ToolRecord, StoreError> {
    let sequence = sequence(row, 0)?;
    tool_row::read(row, 1, sequence).map_err(|reason| {
        corrupt(&format!(
            "the record of a call of message {sequence} in conversation {key}: {reason}"
        ))
    })
}

pub(crate) fn sequence(row: &Row, index: usize) -> Result<u64, StoreError> {
    conversation::unsigned(row, index).map_err(|reason| corrupt(&reason))
}

/// Returns the pending approval requests, grouped by the answer that contains the calls.
fn pending_approvals(
    key: &ConversationKey,
    rows: &[Row],
) -> Result<Vec<Vec<ApprovalRequest>>, StoreError> {
    let mut batches = PendingBatches::default();
    let mut asking: Option<(u64, Message)> = None;
    for row in rows {
        let number = sequence(row, 0)?;
        let message = match asking.take() {
            Some((last, message)) if last == number => message,
            Some(_) | None => {
                message::read(row, 1).map_err(|source| message::undecodable(key, number, source))?
            }
        };
        let index = u32::try_from(sequence(row, 4)?).unwrap_or(u32::MAX);
        if let Some(request) = message.approval_request(index) {
            batches.push(&message, request.clone());
        }
        asking = Some((number, message));
    }
    Ok(batches.finish())
}
