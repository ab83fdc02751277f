//! Queries of the directory, which contains the descriptions, times, counts and usage of
//! conversations.

use std::time::SystemTime;

use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, PersistenceMode, Usage,
    store::{
        ConversationPage, ConversationQuery, ConversationState, ConversationSummary, Description,
        DirectoryCursor, Head, MessagePage, Parent, Revision, StoreError, UnreadableConversation,
        UsageSum, author::milliseconds,
    },
};

use crate::{
    connections::{Connections, Query},
    conversation::{self, column, corrupt, unsigned},
    directory_migration::HOUR,
    parameter::Parameter,
    read, stored_key,
    stored_key::StoredKey,
};

/// The minimum number of conversations of one statement, if the store has to filter them.
const BATCH: usize = 256;

/// Returns the directory's summary of a conversation.
pub(crate) async fn summary(
    connections: &Connections,
    key: &ConversationKey,
) -> Result<Option<ConversationSummary>, StoreError> {
    let stored = StoredKey::new(key);
    let values: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let query = Query { sql: &connections.statements.directory.summary, values: &values };
    let action = "read the summary of a conversation";
    let [rows] = connections.read(action, &stored.scope, [query]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    let summary = entry(row)?.map_err(|unreadable| corrupt(&unreadable.to_string()))?;
    Ok(Some(summary))
}

/// Returns a page of the conversations that match a query. The server does not evaluate conditions
/// on metadata and state. If the query has these conditions, this function reads conversations in
/// batches, each with its own snapshot, and filters them.
pub(crate) async fn conversations(
    connections: &Connections,
    query: &ConversationQuery,
) -> Result<ConversationPage, StoreError> {
    let is_exact = query.metadata.is_empty() && query.state.is_none();
    let wanted = query.limit.saturating_add(1);
    let batch = if is_exact { wanted } else { wanted.max(BATCH) };
    let mut page = ConversationPage::default();
    let mut after = query.after.clone();
    let mut last = after.clone();
    loop {
        let rows = batch_after(connections, query, after.as_ref(), batch).await?;
        for row in &rows {
            let summary = match entry(row)? {
                Ok(summary) => summary,
                Err(unreadable) => {
                    page.unreadable.push(unreadable);
                    continue;
                }
            };
            if !query.fits(&summary) {
                continue;
            }
            if page.conversations.len() >= query.limit {
                page.next = last;
                return Ok(page);
            }
            last = Some(DirectoryCursor::after(&summary));
            page.conversations.push(summary);
        }
        match rows.last() {
            Some(row) if rows.len() >= batch => after = Some(position(row)?),
            Some(_) | None => return Ok(page),
        }
    }
}

/// Returns up to `limit` conversations after a position that may match the query, in the order of
/// the pages.
async fn batch_after(
    connections: &Connections,
    query: &ConversationQuery,
    after: Option<&DirectoryCursor>,
    limit: usize,
) -> Result<Vec<Row>, StoreError> {
    let first = |time: Option<SystemTime>| time.map_or(i64::MIN, milliseconds::bound);
    let (since, created_since) = (first(query.active_since), first(query.created_since));
    let before = query.active_before.map(milliseconds::bound);
    let created_before = query.created_before.map(milliseconds::bound);
    let active = after.map(DirectoryCursor::last_active_milliseconds);
    let (scope, id) = (after.map(|it| it.key().scope()), after.map(|it| it.key().id()));
    let (scope, id) = (scope.map(str::as_bytes), id.map(str::as_bytes));
    let first_hour = since / HOUR;
    let last_hour = active.into_iter().chain(before).min().unwrap_or(i64::MAX) / HOUR;
    let asked = query.scope.as_deref().map(stored_key::key_part);
    let parent = query.parent.as_ref();
    let parent = parent.map(|parent| (parent.scope().as_bytes(), parent.id().as_bytes()));
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut values: Vec<&dyn Parameter> = vec![
        &asked,
        &None::<Vec<u8>>,
        &limit,
        &first_hour,
        &last_hour,
        &since,
        &before,
        &created_since,
        &created_before,
        &active,
        &scope,
        &id,
    ];
    let action = "list the directory";
    let statements = &connections.statements.directory;
    let (list, list_all) = match &parent {
        Some((parent_scope, parent_id)) => {
            values.extend([parent_scope as &dyn Parameter, parent_id]);
            (&statements.branches, &statements.branches_of_all)
        }
        None => (&statements.list, &statements.list_all),
    };
    let [rows] = match &asked {
        Some(scope) => {
            let query = Query { sql: list, values: &values };
            connections.read(action, scope, [query]).await?
        }
        None => {
            let query = Query { sql: list_all, values: &values };
            connections.read_all_scopes(action, [query]).await?
        }
    };
    Ok(rows)
}

/// The indices of the columns that follow the columns of the head: the full scope and id, and the
/// data of the directory.
const SCOPE: usize = 14;
const ID: usize = SCOPE + 1;
const CREATED: usize = ID + 1;
const LAST_ACTIVE: usize = CREATED + 1;
const RUNS: usize = LAST_ACTIVE + 1;
const MODE: usize = RUNS + 1;
const TITLE: usize = MODE + 1;
const METADATA: usize = TITLE + 1;
const VERSION: usize = METADATA + 1;
const PARENT: usize = VERSION + 1;
const WAITS: usize = PARENT + 3;
const COUNTS: usize = WAITS + 1;

/// Returns the position of a row in the order of the list. The other columns may be damaged.
fn position(row: &Row) -> Result<DirectoryCursor, StoreError> {
    let damaged = |reason: String| corrupt(&reason);
    Ok(DirectoryCursor::new(column(row, LAST_ACTIVE).map_err(damaged)?, key(row)?))
}

fn key(row: &Row) -> Result<ConversationKey, StoreError> {
    let key_part = |index| text(row, index, "half of a conversation's key");
    let key_parts = || Ok(ConversationKey::new(key_part(SCOPE)?, key_part(ID)?));
    key_parts().map_err(|reason: String| corrupt(&reason))
}

/// Reads text that is stored in a column of type `bytea`.
pub(crate) fn text(row: &Row, index: usize, name: &str) -> Result<String, String> {
    let bytes: &[u8] = column(row, index)?;
    let text = std::str::from_utf8(bytes).map_err(|error| format!("{name}: {error}"))?;
    Ok(text.to_owned())
}

/// Reads a row. The inner error describes a row that cannot be read, and the caller continues with
/// the next row.
fn entry(row: &Row) -> Result<Result<ConversationSummary, UnreadableConversation>, StoreError> {
    let key = key(row)?;
    Ok(read_entry(row, &key).map_err(|reason| UnreadableConversation::new(key, reason)))
}

fn read_entry(row: &Row, key: &ConversationKey) -> Result<ConversationSummary, String> {
    // If a number of the head is out of range, the conversation has the state `Damaged`.
    let head = conversation::read_head(row).ok();
    let is_damaged = head.is_none();
    let head = head.unwrap_or_else(|| Head::new(Revision::ABSENT));
    let mut summary = ConversationSummary::new(key.clone(), &head, time(row, CREATED)?);
    summary.last_active_at = time(row, LAST_ACTIVE)?;
    summary.runs = column::<i64>(row, RUNS)?.cast_unsigned();
    summary.last_mode = mode(row, MODE)?;
    summary.description = description(row, TITLE)?;
    summary.description_version = unsigned(row, VERSION)?;
    summary.parent = parent(row)?;
    summary.usage = counts(row, COUNTS)?;
    if is_damaged {
        summary.state = ConversationState::Damaged;
    } else if summary.state == ConversationState::Idle && column(row, WAITS)? {
        summary.state = ConversationState::WaitingForApproval;
    }
    Ok(summary)
}

/// Reads the parent of a branch; `None` if the conversation is not a branch.
fn parent(row: &Row) -> Result<Option<Parent>, String> {
    let scope = conversation::text(row, PARENT).map_err(|error| format!("its parent: {error}"))?;
    let id = conversation::text(row, PARENT + 1).map_err(|error| format!("its parent: {error}"))?;
    let Some((scope, id)) = scope.zip(id) else { return Ok(None) };
    let position = column::<Option<i64>>(row, PARENT + 2)?.unwrap_or_default().cast_unsigned();
    Ok(Some(Parent::new(ConversationKey::new(scope, id), position)))
}

/// Reads a description, from the columns of its title and its metadata.
fn description(row: &Row, title: usize) -> Result<Description, String> {
    let metadata = column::<Option<&str>>(row, title + 1)?.map(serde_json::from_str).transpose();
    let metadata = metadata.map_err(|error| format!("its metadata: {error}"))?;
    let title = conversation::text(row, title).map_err(|error| format!("its title: {error}"))?;
    Ok(Description::from_stored(title, metadata.unwrap_or_default()))
}

pub(crate) fn time(row: &Row, index: usize) -> Result<SystemTime, String> {
    conversation::time(column(row, index)?)
}

/// Reads a mode. A mode that only a newer release knows is read as `None`.
pub(crate) fn mode(row: &Row, index: usize) -> Result<Option<PersistenceMode>, String> {
    Ok(column::<Option<&str>>(row, index)?.and_then(|mode| mode.parse().ok()))
}

/// Reads the counts of usage, from the column `first` on. A negative count, which only damage can
/// cause, is read as 0.
pub(crate) fn counts(row: &Row, first: usize) -> Result<UsageSum, String> {
    let count = |index: usize| {
        column::<i64>(row, first + index).map(|count| u64::try_from(count).unwrap_or_default())
    };
    let mut tokens = Usage::new(count(2)?, count(4)?);
    tokens.cached_input_tokens = count(3)?;
    tokens.reasoning_tokens = count(5)?;
    let cost: Option<i64> = column(row, first + 6)?;
    let cost = cost.map(|cost| u64::try_from(cost).unwrap_or_default());
    Ok(UsageSum::of_calls(count(0)?, count(1)?).with_tokens(tokens).with_cost_nanos(cost))
}

/// Returns the last `limit` visible messages before a sequence number, or the newest ones.
pub(crate) async fn messages_before(
    connections: &Connections,
    key: &ConversationKey,
    before: Option<u64>,
    limit: usize,
) -> Result<MessagePage, StoreError> {
    let stored = StoredKey::new(key);
    let statements = &connections.statements;
    let end = before.map(|before| i64::try_from(before).unwrap_or(i64::MAX));
    let max_rows = i64::try_from(limit).unwrap_or(i64::MAX);
    let values: [&dyn Parameter; 4] = [&stored.scope, &stored.conversation, &end, &max_rows];
    let (of_conversation, _) = values.split_at(2);
    let queries = [
        Query { sql: &statements.conversation, values: of_conversation },
        Query { sql: &statements.directory.last_messages, values: &values },
    ];
    let action = "read a page of a conversation";
    let [found, mut rows] = connections.read(action, &stored.scope, queries).await?;
    let head = conversation::head(key, &found)?;
    let visible = head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible);
    let (first, end) = MessagePage::range(head.pruned, visible, before, limit);
    rows.reverse();
    let messages =
        read::messages(key, &rows, first.saturating_sub(1)).collect::<Result<Vec<_>, _>>()?;
    read::check_whole(key, first.saturating_sub(1), messages.len(), end.saturating_sub(1))?;
    let earlier = (first > head.pruned.saturating_add(1)).then_some(first);
    Ok(MessagePage::new((first..end).zip(messages).collect(), earlier))
}

/// Sets the description of a conversation, if the stored description has the expected version, and
/// returns the new version. The request is not sent again if it may have been executed, because a
/// second execution would find the new version and report a conflict.
pub(crate) async fn set_description(
    connections: &Connections,
    key: &ConversationKey,
    description: &Description,
    expected: u64,
) -> Result<u64, StoreError> {
    let action = "describe a conversation";
    let failed = |error: tower_chat_core::BoxError| StoreError::backend(action, false, error);
    let stored = StoredKey::new(key);
    let metadata = match description.metadata() {
        metadata if metadata.is_empty() => None,
        metadata => Some(serde_json::to_string(metadata).map_err(|error| failed(error.into()))?),
    };
    let title = description.title().map(str::as_bytes);
    let version = crate::tool_row::number(expected);
    let values: [&dyn Parameter; 5] =
        [&stored.scope, &stored.conversation, &title, &metadata, &version];
    let query = Query { sql: &connections.statements.directory.describe, values: &values };
    let row = connections.change(action, false, query).await?;
    let found: Option<i64> = row.try_get(0).map_err(|error| failed(error.into()))?;
    match found.map(i64::cast_unsigned) {
        None => Err(StoreError::NoConversation { key: key.clone() }),
        Some(found) if found != expected => {
            Err(StoreError::DescriptionChanged { key: key.clone(), expected, found })
        }
        Some(found) => Ok(found.saturating_add(1)),
    }
}
