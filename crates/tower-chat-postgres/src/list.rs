//! Lists of conversations and scopes.

use tokio_postgres::Row;
use tower_chat_core::{ConversationKey, store::StoreError};

use crate::{
    connections::{Connections, Query},
    conversation::{column, corrupt},
    parameter::Parameter,
    stored_key,
};

/// Lists conversations of a scope in the byte order of their ids.
pub(crate) async fn conversations(
    connections: &Connections,
    scope: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ConversationKey>, StoreError> {
    let statements = &connections.statements;
    let sql = if after.is_some() { &statements.list_after } else { &statements.list };
    let start = after.unwrap_or_default();
    if start.len() <= stored_key::MAX_UNCHANGED_BYTES {
        let rows = page(connections, sql, scope, start, limit).await?;
        // The order by shortened ids may differ from the order by full ids, if two ids have the
        // same beginning.
        let is_long = |row: &Row| column::<Option<&[u8]>>(row, 1) != Ok(None);
        if !rows.iter().any(is_long) {
            return keys(scope, &rows);
        }
    }
    // This statement sorts all conversations of the scope by their full ids.
    let sql = if after.is_some() { &statements.list_long_after } else { &statements.list_long };
    keys(scope, &page(connections, sql, scope, start, limit).await?)
}

async fn page(
    connections: &Connections,
    sql: &str,
    scope: &str,
    start: &str,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let (stored, start) = (stored_key::key_part(scope), start.as_bytes());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values: [&dyn Parameter; 3] = [&stored, &start, &limit];
    let query = Query { sql, values: &values };
    let [rows] = connections.read("list conversations", &stored, [query]).await?;
    Ok(rows)
}

fn keys(scope: &str, rows: &[Row]) -> Result<Vec<ConversationKey>, StoreError> {
    let scope: std::sync::Arc<str> = scope.into();
    let key = |row: &Row| {
        let id = id(row, 0, 1).map_err(|reason| corrupt(&reason))?;
        Ok(ConversationKey::new(scope.clone(), id))
    };
    rows.iter().map(key).collect()
}

/// Reads the full id of a conversation. `key` is the column with the id in the primary key, and
/// `whole` the column with the full id, which is null unless the id is shortened.
pub(crate) fn id(row: &Row, key: usize, whole: usize) -> Result<String, String> {
    key_part(row, key, whole, "a conversation's id")
}

fn key_part(row: &Row, key: usize, whole: usize, name: &str) -> Result<String, String> {
    let stored = match column::<Option<&[u8]>>(row, whole)? {
        Some(whole) => whole,
        None => column(row, key)?,
    };
    let key_part = std::str::from_utf8(stored).map_err(|error| format!("{name}: {error}"))?;
    Ok(key_part.to_owned())
}

/// Lists scopes that contain conversations, in byte order.
pub(crate) async fn scopes(
    connections: &Connections,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<String>, StoreError> {
    let action = "list the scopes";
    let statements = &connections.statements;
    let after = after.map(str::as_bytes);
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    if after.is_none_or(|after| after.len() <= stored_key::MAX_UNCHANGED_BYTES) {
        // The scope with a zero byte appended is the next possible text in byte order.
        let start = after.map_or_else(Vec::new, |after| [after, b"\0"].concat());
        let values: [&dyn Parameter; 2] = [&start, &limit];
        let query = Query { sql: &statements.maintenance.scopes, values: &values };
        let [rows] = connections.read_all_scopes(action, [query]).await?;
        // See `conversations`: the order of shortened scopes may differ.
        let is_long = |row: &Row| column::<Option<&[u8]>>(row, 1) != Ok(None);
        if !rows.iter().any(is_long) {
            return rows.iter().map(scope).collect();
        }
    }
    let start = after
        .map_or(&[][..], |after| after.get(..stored_key::MAX_UNCHANGED_BYTES).unwrap_or(after));
    let values: [&dyn Parameter; 3] = [&start, &limit, &after];
    let query = Query { sql: &statements.maintenance.scopes_long, values: &values };
    let [rows] = connections.read_all_scopes(action, [query]).await?;
    rows.iter().map(scope).collect()
}

fn scope(row: &Row) -> Result<String, StoreError> {
    key_part(row, 0, 1, "a scope").map_err(|reason| corrupt(&reason))
}

/// Lists the conversations of a scope that have an open run (one that is not committed yet), in the
/// byte order of their ids.
pub(crate) async fn open_runs(
    connections: &Connections,
    scope: &str,
    after: Option<&str>,
    limit: usize,
) -> Result<Vec<ConversationKey>, StoreError> {
    let (stored, after) = (stored_key::key_part(scope), after.map(str::as_bytes));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values: [&dyn Parameter; 3] = [&stored, &after, &limit];
    let query = Query { sql: &connections.statements.open_runs, values: &values };
    let [rows] = connections.read("list open runs", &stored, [query]).await?;
    let key = |row| Ok(ConversationKey::new(scope, id(row, 0, 0)?));
    rows.iter().map(|row| key(row).map_err(|reason: String| corrupt(&reason))).collect()
}
