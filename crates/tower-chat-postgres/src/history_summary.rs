//! The summaries of a conversation ([`HistorySummary`]). The model receives the last summary, which
//! is the summary in force, instead of the messages that it covers.

use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey,
    store::{AddedSummary, HistorySummary, StoreError},
};

use crate::{
    connections::{Connections, Query},
    conversation::{column, corrupt, unsigned},
    parameter::Parameter,
    stored_key::StoredKey,
    tool_row::number,
};

const ADD: &str = "add a summary";
const REMOVE: &str = "remove a summary";

/// Returns the summaries of a conversation, in the order of the messages that they cover.
pub(crate) async fn list(
    connections: &Connections,
    key: &ConversationKey,
) -> Result<Vec<HistorySummary>, StoreError> {
    let stored = StoredKey::new(key);
    let values: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let query = Query { sql: &connections.statements.summaries, values: &values };
    let action = "read the summaries of a conversation";
    let [rows] = connections.read(action, &stored.scope, [query]).await?;
    rows.iter().map(|row| summary(key, row)).collect()
}

/// Returns the summary with an id.
pub(crate) async fn find(
    connections: &Connections,
    key: &ConversationKey,
    id: u64,
) -> Result<Option<HistorySummary>, StoreError> {
    let (stored, id) = (StoredKey::new(key), id.cast_signed());
    let values: [&dyn Parameter; 3] = [&stored.scope, &stored.conversation, &id];
    let query = Query { sql: &connections.statements.summary, values: &values };
    let action = "read a summary of a conversation";
    let [rows] = connections.read(action, &stored.scope, [query]).await?;
    rows.first().map(|row| summary(key, row)).transpose()
}

/// Decodes a row, which has the columns `covers_to`, `id` and `body`.
fn summary(key: &ConversationKey, row: &Row) -> Result<HistorySummary, StoreError> {
    let read = || {
        let body: &str = column(row, 2)?;
        let summary: HistorySummary =
            serde_json::from_str(body).map_err(|error| error.to_string())?;
        let id = column::<i64>(row, 1)?.cast_unsigned();
        match (summary.covers_to, summary.id) == (unsigned(row, 0)?, id) {
            true => Ok(summary),
            false => Err("its body belongs to another row".to_owned()),
        }
    };
    read().map_err(|reason| corrupt(&format!("a summary of conversation {key}: {reason}")))
}

/// Adds a summary. A second execution has no effect.
pub(crate) async fn add(
    connections: &Connections,
    key: &ConversationKey,
    summary: &HistorySummary,
    rewrites: u64,
) -> Result<AddedSummary, StoreError> {
    let stored = StoredKey::new(key);
    let failed = |error: tower_chat_core::BoxError| StoreError::backend(ADD, false, error);
    let body = serde_json::to_string(summary).map_err(|error| failed(error.into()))?;
    let (covers_to, id) = (number(summary.covers_to), summary.id.cast_signed());
    let (run, index) = (summary.last.run.to_bytes().to_vec(), i64::from(summary.last.index));
    let rewrites = number(rewrites);
    let values: [&dyn Parameter; 8] =
        [&stored.scope, &stored.conversation, &covers_to, &id, &run, &index, &body, &rewrites];
    let query = Query { sql: &connections.statements.add_summary, values: &values };
    let row = connections.change(ADD, true, query).await?;
    match row.try_get::<_, &str>(0).map_err(|error| failed(error.into()))? {
        "stored" => Ok(AddedSummary::Stored),
        "no such message" => Ok(AddedSummary::NoSuchMessage),
        "rewritten" => Ok(AddedSummary::Rewritten),
        "superseded" => Ok(AddedSummary::Superseded),
        other => Err(failed(format!("the function returned the outcome `{other}`").into())),
    }
}

/// Removes the summary in force if it has this id. A request that may have been executed is not
/// sent again: the second execution would report that no summary was removed.
pub(crate) async fn remove(
    connections: &Connections,
    key: &ConversationKey,
    id: u64,
) -> Result<bool, StoreError> {
    let (stored, id) = (StoredKey::new(key), id.cast_signed());
    let values: [&dyn Parameter; 3] = [&stored.scope, &stored.conversation, &id];
    let query = Query { sql: &connections.statements.remove_summary, values: &values };
    let row = connections.change(REMOVE, false, query).await?;
    row.try_get(0).map_err(|error| StoreError::backend(REMOVE, false, error))
}
