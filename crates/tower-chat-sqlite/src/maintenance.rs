//! Looking at a file row by row, and rewriting rows in place: for checks and repairs, never for
//! runs.

use std::sync::Arc;

use rusqlite::{Connection, TransactionBehavior, params};
use tower_chat_core::{
    ConversationKey, Message, RunId,
    format::{self, FormatError},
    store::{Conflict, OpenRun, Revision, SequencePosition, StoreError, author::ToolRecord},
};

use crate::{
    conversation::{self, Conversation},
    read::{self, NotRead},
    row_key, tool_row,
};

/// A conversation as its rows stand, those that cannot be read too.
#[derive(Debug)]
#[non_exhaustive]
pub struct ConversationRows {
    /// What a [`Rewrite`] must expect.
    pub revision: Revision,
    /// The run that is open. What it has staged is not among the rows: it is checked when it is
    /// read, and goes if the run is discarded.
    pub open_run: Option<OpenRun>,
    /// How many messages were pruned; the others are numbered from the next number on.
    pub pruned: u64,
    /// The messages in order, with their numbers; a number that is left out is a message that is
    /// missing.
    pub messages: Vec<(u64, Result<Arc<Message>, FormatError>)>,
    /// The record of tool calls, in the order of the calls; an error says what is wrong with the
    /// row.
    pub tools: Vec<(SequencePosition, Result<ToolRecord, String>)>,
}

/// A change of rows of one conversation. No row is added, and none changes its position or its id.
///
/// A word that must not stay in a stored message:
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("chat.db");
/// # tokio::runtime::Runtime::new().unwrap().block_on(async {
/// # use tower_chat_core::{MessageId, RunId, store::{Revision, author::Write}};
/// use tower_chat_core::{ConversationKey, Message, store::HistoryStore};
/// use tower_chat_sqlite::{Rewrite, SqliteStore};
///
/// # let store = SqliteStore::open(path).await?;
/// # let key = ConversationKey::new("alice", "support");
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("a secret").into()]);
/// # store.append(store.reserve().await?, vec![write]).await?;
/// let rows = store.rows(&key).await?.ok_or("there is no such conversation")?;
/// let mut rewrite = Rewrite::new(key.clone(), rows.revision);
/// for (number, message) in &rows.messages {
///     let Ok(message) = message else { continue }; // damaged: left as it is
///     if message.text().contains("secret") {
///         let mut other = Message::clone(message);
///         other.parts = vec![tower_chat_core::Part::text("[removed]")];
///         rewrite.messages.push((*number, other));
///     }
/// }
/// store.rewrite(rewrite).await?;
/// assert_eq!(store.load(&key).await?.messages.get(0).map(|it| it.text()), Some("[removed]".into()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Rewrite {
    /// The conversation.
    pub key: ConversationKey,
    /// The revision it must have.
    pub expected: Revision,
    /// Other contents of messages, by their numbers.
    pub messages: Vec<(u64, Message)>,
    /// Rows of the record of tool calls, each replacing the row of its call.
    pub tools: Vec<ToolRecord>,
    /// Rows of the record of tool calls that go.
    pub removed_tools: Vec<SequencePosition>,
}

impl Rewrite {
    /// A rewrite that changes nothing yet.
    pub fn new(key: ConversationKey, expected: Revision) -> Self {
        let (messages, tools, removed_tools) = (Vec::new(), Vec::new(), Vec::new());
        Self { key, expected, messages, tools, removed_tools }
    }

    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.tools.is_empty() && self.removed_tools.is_empty()
    }
}

/// Rows that belong to no conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct StrayRows {
    /// Messages.
    pub messages: u64,
    /// Rows of the record of tool calls.
    pub tools: u64,
}

pub(crate) const REWRITE: &str = "rewrite a conversation";

/// What SQLite finds wrong with the file; nothing, if it is sound.
pub(crate) fn integrity(connection: &Connection) -> Result<Vec<String>, NotRead> {
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    let reported =
        statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    Ok(if reported == ["ok"] { Vec::new() } else { reported })
}

/// Writes all trees anew, with nothing but their rows.
pub(crate) fn vacuum(connection: &Connection) -> Result<(), NotRead> {
    Ok(connection.execute_batch("VACUUM")?)
}

pub(crate) fn rows(
    connection: &Connection,
    key: &ConversationKey,
) -> Result<Option<ConversationRows>, NotRead> {
    // All statements see the same moment.
    let snapshot = connection.unchecked_transaction()?;
    let Some(found) = conversation::find(&snapshot, key)? else { return Ok(None) };
    let (first, last) = row_key::range_to(found.number, found.visible());
    let mut statement = snapshot.prepare(
        "SELECT place, run, run_index, body FROM messages
         WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
    )?;
    let messages = statement.query_map([first, last], |row| {
        Ok((row_key::sequence(row.get(0)?), read::message(row)?.map(Arc::new)))
    })?;
    let messages = messages.collect::<Result<_, _>>()?;
    let mut statement = snapshot.prepare(&format!(
        "SELECT place, {} FROM tool_invocations
         WHERE place BETWEEN ?1 AND ?2 ORDER BY place, call_index",
        tool_row::COLUMNS
    ))?;
    let tools = statement.query_map([first, last], |row| {
        let sequence = row_key::sequence(row.get(0)?);
        // A number that no call can have is reported with the rest of the row.
        let call = SequencePosition { sequence, index: row.get(1).unwrap_or(u32::MAX) };
        Ok((call, tool_row::read(row, 1, sequence)))
    })?;
    let tools = tools.collect::<Result<_, _>>()?;
    let Conversation { revision, pruned, open: open_run, .. } = found;
    Ok(Some(ConversationRows { revision, open_run, pruned, messages, tools }))
}

pub(crate) fn stray(connection: &Connection) -> Result<StrayRows, NotRead> {
    let count = |table: &str| {
        let sql = format!(
            "SELECT count(*) FROM {table}
             WHERE place >> 32 NOT IN (SELECT id FROM conversations)"
        );
        connection.query_row(&sql, [], |row| row.get::<_, i64>(0)).map(i64::cast_unsigned)
    };
    Ok(StrayRows { messages: count("messages")?, tools: count("tool_invocations")? })
}

/// Removes the tool rows that belong to no conversation; says how many there were.
pub(crate) fn remove_stray_tools(connection: &Connection) -> Result<u64, NotRead> {
    let removed = connection.execute(
        "DELETE FROM tool_invocations WHERE place >> 32 NOT IN (SELECT id FROM conversations)",
        [],
    )?;
    Ok(removed as u64)
}

/// Does a rewrite, in one transaction.
pub(crate) fn rewrite(connection: &mut Connection, rewrite: &Rewrite) -> Result<Revision, NotRead> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let Rewrite { key, expected, .. } = rewrite;
    let found = conversation::find(&transaction, key)?;
    let revision = found.as_ref().map_or(Revision::ABSENT, |found| found.revision);
    let open = found.as_ref().and_then(|found| found.open.as_ref()).map(|open| open.run);
    let number = match found {
        Some(found) if revision == *expected && found.open.is_none() => found.number,
        Some(_) | None => {
            let conflict = Conflict::new(key.clone(), *expected, revision);
            return Err(NotRead::Damaged(Box::new(conflict.with_open_run(open)).into()));
        }
    };
    for (sequence, message) in &rewrite.messages {
        let changed = transaction.execute(
            "UPDATE messages SET body = ?2 WHERE place = ?1",
            params![row_key::of_message(number, *sequence), format::encode(message)],
        )?;
        if changed != 1 {
            let reason = format!("message {sequence} of conversation {key} is missing");
            return Err(NotRead::Damaged(StoreError::Corrupt { reason }));
        }
    }
    let apart: Vec<_> = rewrite.tools.iter().map(tool_row::result_apart).collect();
    let rows = rewrite.tools.iter().zip(apart.iter().map(Option::as_deref));
    tool_row::put(&transaction, number, rows)?;
    for call in &rewrite.removed_tools {
        transaction.execute(
            "DELETE FROM tool_invocations WHERE place = ?1 AND call_index = ?2",
            params![row_key::of_message(number, call.sequence), call.index],
        )?;
    }
    let revision = Revision { incarnation: other_than(expected.incarnation), ..*expected };
    transaction.execute(
        "UPDATE conversations SET incarnation = ?2 WHERE id = ?1",
        params![number, revision.incarnation.cast_signed()],
    )?;
    transaction.commit()?;
    Ok(revision)
}

/// Another random incarnation.
fn other_than(incarnation: u64) -> u64 {
    let random = RunId::new().random_half().max(1);
    if random == incarnation { random ^ 2 } else { random }
}
