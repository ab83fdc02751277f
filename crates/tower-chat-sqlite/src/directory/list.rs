//! Queries of the directory: the summary of one conversation, pages of conversations, and the
//! messages of a conversation in descending pages. The directory contains the description, times,
//! counts and usage of each conversation.

use std::{sync::Arc, time::SystemTime};

use rusqlite::{Connection, Row, types::Value};
use tower_chat_core::{
    ConversationKey, PersistenceMode,
    store::{
        ConversationPage, ConversationQuery, ConversationState, ConversationSummary, Description,
        DirectoryCursor, Head, MessagePage, Parent, Revision, StoreError, UnreadableConversation,
        author::milliseconds,
    },
};

use super::{HOUR, LAST_ACTIVE, usage::total};
use crate::{
    conversation,
    read::{self, NotRead},
    removal::NOT_DELETED,
    row_key,
};

/// The columns that [`Entry::read`] reads. The table `conversations` has the alias `c`.
const COLUMNS: &str =
    "c.id, c.scope, c.conversation, ifnull(c.created, 0), c.runs, c.mode, c.title,
    c.metadata, c.description_version, c.parent_scope, c.parent_conversation, c.parent_position";

/// Returns the directory's summary of a conversation, from one snapshot; `None` if the conversation
/// does not exist.
pub(crate) fn summary(
    connection: &Connection,
    key: &ConversationKey,
) -> Result<Option<ConversationSummary>, NotRead> {
    let snapshot = connection.unchecked_transaction()?;
    let sql = format!(
        "SELECT {COLUMNS}, {LAST_ACTIVE} FROM conversations c
         WHERE scope = ?1 AND conversation = ?2"
    );
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut rows = statement.query([key.scope(), key.id()])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let entry = Entry::read(row)?.map_err(|unreadable| {
        NotRead::Damaged(StoreError::Corrupt { reason: unreadable.to_string() })
    })?;
    entry.completed(&snapshot).map(Some)
}

/// Returns a page of the conversations that match a query, from one snapshot.
pub(crate) fn conversations(
    connection: &Connection,
    query: &ConversationQuery,
) -> Result<ConversationPage, NotRead> {
    let snapshot = connection.unchecked_transaction()?;
    let (sql, values) = statement(query);
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    // The state of a conversation is compared last, because reading it needs queries of other
    // tables.
    let mut of_any_state = query.clone();
    of_any_state.state = None;
    let mut page = ConversationPage::default();
    let mut last = query.after.clone();
    while let Some(row) = rows.next()? {
        let entry = match Entry::read(row)? {
            Ok(entry) => entry,
            Err(unreadable) => {
                page.unreadable.push(unreadable);
                continue;
            }
        };
        if !of_any_state.fits(&entry.summary) {
            continue;
        }
        let summary = entry.completed(&snapshot)?;
        if query.state.is_some_and(|state| state != summary.state) {
            continue;
        }
        if page.conversations.len() >= query.limit {
            page.next = last;
            break;
        }
        last = Some(DirectoryCursor::after(&summary));
        page.conversations.push(summary);
    }
    Ok(page)
}

/// Returns an SQL statement and its parameters. The statement selects all conversations that may
/// match the query, in the order of the pages. Conditions on the hour of the last activity let
/// SQLite use the index.
fn statement(query: &ConversationQuery) -> (String, Vec<Value>) {
    // Without `INDEXED BY`, SQLite would use the index by activity, because that index supplies the
    // order of the pages, and would read all conversations of the scope.
    let index = if query.parent.is_some() { "INDEXED BY branches" } else { "" };
    let mut sql = format!(
        "SELECT {COLUMNS}, {LAST_ACTIVE} AS active FROM conversations c {index} WHERE {NOT_DELETED}"
    );
    let mut values: Vec<Value> = Vec::new();
    let mut bound = |condition: &str, value: Value| {
        sql.push_str(condition);
        values.push(value);
    };
    if let Some(scope) = &query.scope {
        bound(" AND c.scope = ?", scope.to_string().into());
    }
    let hour = |milliseconds: i64| Value::from(milliseconds.div_euclid(HOUR));
    if let Some(since) = query.active_since {
        bound(" AND c.active_hour >= ?", hour(milliseconds::of(since)));
    }
    if let Some(before) = query.active_before {
        bound(" AND c.active_hour <= ?", hour(milliseconds::bound(before)));
    }
    if let Some(after) = &query.after {
        bound(" AND c.active_hour <= ?", hour(after.last_active_milliseconds()));
    }
    if let Some(parent) = &query.parent {
        bound(" AND c.parent_scope = ?", parent.scope().to_owned().into());
        bound(" AND c.parent_conversation = ?", parent.id().to_owned().into());
    }
    sql.push_str(" ORDER BY c.active_hour DESC, active DESC, c.scope, c.conversation");
    (sql, values)
}

/// A row of the table `conversations`.
struct Entry {
    /// The value of the column `id`, by which other tables refer to the conversation.
    number: i64,
    /// The summary, without the fields that are read from other tables.
    summary: ConversationSummary,
}

impl Entry {
    /// Reads a row. The inner error describes a row that cannot be decoded.
    fn read(row: &Row<'_>) -> rusqlite::Result<Result<Self, UnreadableConversation>> {
        let key = ConversationKey::new(row.get::<_, Arc<str>>(1)?, row.get::<_, Arc<str>>(2)?);
        let unreadable = |reason: String| Ok(Err(UnreadableConversation::new(key.clone(), reason)));
        let metadata: Option<String> = match row.get(7) {
            Ok(metadata) => metadata,
            Err(error) => return unreadable(format!("its metadata: {error}")),
        };
        let metadata = match metadata.as_deref().map(serde_json::from_str).transpose() {
            Ok(metadata) => metadata.unwrap_or_default(),
            Err(error) => return unreadable(format!("its metadata: {error}")),
        };
        let title: Option<Arc<str>> = match row.get(6) {
            Ok(title) => title,
            Err(error) => return unreadable(format!("its title: {error}")),
        };
        let (Some(created), Some(active)) = (time(row.get(3)?), time(row.get(12)?)) else {
            return unreadable("its times are out of range".to_owned());
        };
        let head = Head::new(Revision::ABSENT);
        let mut summary = ConversationSummary::new(key.clone(), &head, created);
        summary.last_active_at = active;
        summary.description = Description::from_stored(title, metadata);
        summary.description_version = row.get::<_, i64>(8)?.cast_unsigned();
        summary.runs = row.get::<_, i64>(4)?.cast_unsigned();
        let mode: Option<String> = row.get(5)?;
        // A mode that only a newer release knows becomes `None`.
        summary.last_mode = mode.and_then(|mode| mode.parse::<PersistenceMode>().ok());
        let parent: (Option<Arc<str>>, Option<Arc<str>>) = (row.get(9)?, row.get(10)?);
        if let (Some(scope), Some(id)) = parent {
            let position = row.get::<_, Option<i64>>(11)?.unwrap_or_default().cast_unsigned();
            summary.parent = Some(Parent::new(ConversationKey::new(scope, id), position));
        }
        Ok(Ok(Self { number: row.get(0)?, summary }))
    }

    /// Adds the usage, the number of messages and the state, which are read from other tables.
    fn completed(self, connection: &Connection) -> Result<ConversationSummary, NotRead> {
        let Self { number, mut summary } = self;
        summary.usage = total(connection, number)?;
        let found = match conversation::find(connection, &summary.key) {
            Ok(Some(found)) => found,
            // A number in the row is out of range, or an index is damaged.
            Ok(None) | Err(NotRead::Damaged(_)) => {
                summary.state = ConversationState::Damaged;
                return Ok(summary);
            }
            Err(NotRead::Failed(rusqlite::Error::IntegralValueOutOfRange(..))) => {
                summary.state = ConversationState::Damaged;
                return Ok(summary);
            }
            Err(error) => return Err(error),
        };
        summary.messages = found.visible().saturating_sub(found.pruned);
        summary.state = match &found.open {
            Some(_) => ConversationState::RunOpen,
            None if waits(connection, number, found.visible())? => {
                ConversationState::WaitingForApproval
            }
            None => ConversationState::Idle,
        };
        Ok(summary)
    }
}

/// Returns whether a call in a visible message waits for approval.
fn waits(connection: &Connection, number: i64, visible: u64) -> rusqlite::Result<bool> {
    let (first, last) = row_key::range_to(number, visible);
    connection
        .prepare_cached(
            "SELECT EXISTS (
                 SELECT 1 FROM tool_invocations INDEXED BY pending_approvals
                 WHERE status = 'pending_approval' AND place BETWEEN ?1 AND ?2
             )",
        )?
        .query_row([first, last], |row| row.get(0))
}

pub(super) fn time(stored: i64) -> Option<SystemTime> {
    milliseconds::time(stored)
}

/// Returns the last `limit` visible messages before a sequence number, or before the end, from one
/// snapshot.
pub(crate) fn messages_before(
    connection: &Connection,
    key: &ConversationKey,
    before: Option<u64>,
    limit: usize,
) -> Result<MessagePage, NotRead> {
    let snapshot = connection.unchecked_transaction()?;
    let Some(found) = conversation::find(&snapshot, key)? else {
        return Ok(MessagePage::default());
    };
    let (first, end) = MessagePage::range(found.pruned, found.visible(), before, limit);
    let earlier = (first > found.pruned.saturating_add(1)).then_some(first);
    if first >= end {
        return Ok(MessagePage::new(Vec::new(), earlier));
    }
    let before_first = first.saturating_sub(1);
    let (from, _) = row_key::range_after(found.number, before_first);
    let (_, to) = row_key::range_to(found.number, end.saturating_sub(1));
    let mut statement = snapshot.prepare_cached(read::MESSAGES)?;
    let mut bytes = 0;
    let messages = read::messages(&mut statement, key, (from, to), before_first, &mut bytes)?;
    let numbered = (first..).zip(messages).map(|(sequence, message)| Ok((sequence, message?)));
    let messages = numbered.collect::<Result<Vec<_>, NotRead>>()?;
    let last = before_first.saturating_add(messages.len() as u64);
    if last.saturating_add(1) != end {
        return Err(read::missing(key, last.saturating_add(1)));
    }
    Ok(MessagePage::new(messages, earlier))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schema;

    #[test]
    fn branches_are_found_by_an_index() {
        let mut connection = Connection::open_in_memory().unwrap();
        schema::migrate(&mut connection).unwrap();
        let parent = || ConversationKey::new("alice", "support");
        let in_scope = ConversationQuery::in_scope("alice").branches_of(parent());
        let later = in_scope.clone().active_since(SystemTime::UNIX_EPOCH);
        let in_all_scopes = ConversationQuery::in_all_scopes().branches_of(parent());
        for query in [in_scope, later, in_all_scopes] {
            let (sql, values) = statement(&query);
            let mut statement = connection.prepare(&format!("EXPLAIN QUERY PLAN {sql}")).unwrap();
            let plan: Vec<String> = statement
                .query_map(rusqlite::params_from_iter(values), |row| row.get("detail"))
                .unwrap()
                .collect::<Result<_, _>>()
                .unwrap();
            let search = "SEARCH c USING INDEX branches (parent_scope=? AND parent_conversation=?)";
            assert_eq!(plan[0], search, "{plan:?}");
        }
    }
}
