//! The SQL statements of a write, inside a transaction that the caller has begun.
//!
//! A write adds messages to one conversation, and rows to the record of tool calls (one row for
//! each call). The messages of an open run are staged: stored, but not visible to readers until the
//! run is committed.

use std::ops::RangeInclusive;

use rusqlite::{Connection, OptionalExtension, params};
use tower_chat_core::{
    ConversationKey, MessageId, PersistenceMode, RunId, ToolStatus, format,
    store::{
        Head, OpenRun, Parent, Revision, SequencePosition, ServiceIdChange, StoreError,
        author::{
            CallState, Changes, Close, Decision, Lookup, ToolColumns, ToolRecord, Write, decide,
            milliseconds,
        },
    },
};

use crate::{
    checksum,
    conversation::{self, Conversation},
    directory::{self, Activity},
    head_cache::HeadCache,
    open_run,
    read::NotRead,
    removal, row_key, tool_row,
};

/// A write with its messages and rows in stored form.
#[derive(Debug)]
pub(crate) struct EncodedWrite {
    write: Write,
    /// The stored form of the messages, in order.
    bodies: Vec<String>,
    tools: Vec<ToolColumns>,
}

/// The reason why a write was not stored.
#[derive(Debug)]
pub(crate) enum NotStored {
    /// The write was refused, and the transaction can continue. No message of the write was stored.
    Refused(StoreError),
    /// SQLite failed, perhaps in the middle of the write. The transaction must be rolled back.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotStored {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// Damaged data cause a refusal: a write reads all data before it changes the conversation, so that
/// the transaction can continue.
impl From<NotRead> for NotStored {
    fn from(error: NotRead) -> Self {
        match error {
            NotRead::Damaged(error) => Self::Refused(error),
            NotRead::Failed(error) => Self::Failed(error),
        }
    }
}

impl EncodedWrite {
    pub(crate) fn new(write: Write) -> Self {
        let bodies = write.messages().iter().map(|message| format::encode(message)).collect();
        let tools = write.tools().iter().map(ToolRecord::columns).collect();
        Self { write, bodies, tools }
    }

    /// Returns the number of bytes of the write's messages and results in stored form.
    pub(crate) fn bytes(&self) -> usize {
        let results = self.tools.iter().filter_map(|row| row.result.as_ref());
        self.bodies.iter().chain(results).map(String::len).sum()
    }

    pub(crate) fn key(&self) -> &ConversationKey {
        self.write.key()
    }

    /// Stores the write and returns the new revision. If the write is already stored, returns its
    /// revision. Refuses the write in these cases:
    /// - The conversation does not have the revision that the write expects.
    /// - The open run of the conversation does not allow the write.
    /// - Another write has already [claimed](tower_chat_core::store::author::Claim) a call that
    ///   this write claims.
    pub(crate) fn store(
        &self,
        connection: &Connection,
        heads: &mut HeadCache,
    ) -> Result<Revision, NotStored> {
        heads.admit(connection, self.write.is_sealed())?;
        let found = heads.find(connection, self.key())?;
        let head = found.as_ref().map_or_else(|| Head::new(Revision::ABSENT), Conversation::head);
        let mut rows = Rows { connection, number: found.as_ref().map(|found| found.number) };
        let changes = match decide(&head, &self.write, row_key::LAST_SEQUENCE, &mut rows)? {
            Decision::Store(changes) => changes,
            Decision::IsStored => return Ok(self.write.result()),
            Decision::Refuse(error) => return Err(NotStored::Refused(error)),
        };
        self.check_discard(connection, found.as_ref())?;
        let result = self.write.result();
        let before = match &found {
            Some(found) => found.activity,
            None => Activity::before(&self.write),
        };
        let activity = before.after(&self.write, head.open_run.is_some());
        let number = match &found {
            Some(found) => {
                activity.store(connection, found.number, &before)?;
                found.number
            }
            None => {
                let incarnation = result.incarnation;
                insert_conversation(
                    connection,
                    self.key(),
                    incarnation,
                    before.last_active,
                    &activity,
                    self.write.parent(),
                )?
            }
        };
        directory::add_usage(connection, number, &self.write)?;
        if changes.discards_after.is_none() {
            self.insert_messages(connection, number)?;
        }
        if let Some(found) = &found
            && found.revision.incarnation != result.incarnation
        {
            conversation::set_incarnation(connection, number, result.incarnation)?;
        }
        self.put_tool_rows(connection, number, &changes.messages)?;
        change_service_id(connection, number, changes.service_id.as_ref())?;
        if let Some(from) = &changes.load_from {
            conversation::set_load_from(connection, number, from)?;
        }
        let mut after = head.clone();
        after.advance(&changes);
        let open = put_open_run(connection, number, head.open_run.as_ref(), changes)?;
        let Head { revision, pruned, service_id, summary, rewrites, load_from, .. } = after;
        let conversation = Conversation {
            number,
            revision,
            pruned,
            service_id,
            open,
            summary,
            rewrites,
            load_from,
            activity,
        };
        heads.keep(self.key(), conversation);
        Ok(revision)
    }

    /// Checks that a discard of the open run deletes only messages of that run.
    fn check_discard(
        &self,
        connection: &Connection,
        found: Option<&Conversation>,
    ) -> Result<(), NotStored> {
        let (Some(Close::Discard { visible }), Some(found)) = (self.write.close(), found) else {
            return Ok(());
        };
        let Some(open) = &found.open else { return Ok(()) };
        if open_run::owns_the_rest(connection, found.number, open)? {
            return Ok(());
        }
        let reason = format!(
            "conversation {}: messages of another run follow message {visible}, although the stored beginning of \
             open run {} is there: nothing was discarded; restore it from a backup",
            self.key(),
            open.run
        );
        Err(NotStored::Refused(StoreError::Corrupt { reason }))
    }

    /// Inserts the messages. The caller has checked that the sequence numbers of the messages are
    /// in range.
    fn insert_messages(&self, connection: &Connection, number: i64) -> rusqlite::Result<()> {
        let mut statement = connection.prepare_cached(
            "INSERT INTO messages (place, run, run_index, body, checksum)
             VALUES (?1, ?2, ?3, ?4, ?5)",
        )?;
        let run = self.write.run().to_bytes();
        let sequences = self.write.expected().sequence.saturating_add(1)..;
        let indexes = i64::from(self.write.id().index)..;
        for ((sequence, body), index) in sequences.zip(&self.bodies).zip(indexes) {
            let row_key = row_key::of_message(number, sequence);
            let checksum = checksum::of(sequence, &run, index, body.as_bytes());
            statement.execute(params![row_key, run, index, body, checksum])?;
        }
        Ok(())
    }

    /// Writes the rows of those calls that are in messages with these sequence numbers.
    fn put_tool_rows(
        &self,
        connection: &Connection,
        number: i64,
        messages: &RangeInclusive<u64>,
    ) -> rusqlite::Result<()> {
        let rows = self.tools.iter().filter(|row| messages.contains(&row.sequence));
        tool_row::put(connection, number, rows)
    }
}

/// Updates the row of the open run, or ends the run. Returns the run that is open afterwards.
fn put_open_run(
    connection: &Connection,
    number: i64,
    before: Option<&OpenRun>,
    changes: Changes,
) -> rusqlite::Result<Option<OpenRun>> {
    if let Some(open) = changes.open_run {
        return open_run::put(connection, number, before, open).map(Some);
    }
    match (changes.discards_after, before) {
        (Some(visible), _) => open_run::discard(connection, number, visible)?,
        (None, Some(_)) => open_run::close(connection, number)?,
        (None, None) => {}
    }
    Ok(None)
}

/// The rows of a conversation that determine whether a write is stored or refused.
struct Rows<'a> {
    connection: &'a Connection,
    /// The number of the conversation. `None` if the conversation does not exist.
    number: Option<i64>,
}

/// Returns the id of a message, visible or staged.
pub(crate) fn message_id(
    connection: &Connection,
    number: i64,
    sequence: u64,
) -> rusqlite::Result<Option<MessageId>> {
    let Some(row_key) = row_key::of_message(number, sequence) else { return Ok(None) };
    connection
        .prepare_cached("SELECT run, run_index FROM messages WHERE place = ?1")?
        .query_row([row_key], |row| {
            Ok(MessageId { run: RunId::from_bytes(row.get(0)?), index: row.get(1)? })
        })
        .optional()
}

impl Rows<'_> {
    fn row_key(&self, sequence: u64) -> Option<i64> {
        row_key::of_message(self.number?, sequence)
    }
}

impl Lookup for Rows<'_> {
    type Error = rusqlite::Error;

    fn message_id(&mut self, sequence: u64) -> rusqlite::Result<Option<MessageId>> {
        match self.number {
            Some(number) => message_id(self.connection, number, sequence),
            None => Ok(None),
        }
    }

    fn call(&mut self, call: SequencePosition) -> rusqlite::Result<Option<CallState>> {
        let Some(row_key) = self.row_key(call.sequence) else { return Ok(None) };
        let sql =
            "SELECT status, started FROM tool_invocations WHERE place = ?1 AND call_index = ?2";
        self.connection
            .prepare_cached(sql)?
            .query_row(params![row_key, call.index], |row| {
                let status: String = row.get(0)?;
                let started: Option<i64> = row.get(1)?;
                let started_at = started.map(|stored| {
                    let time = milliseconds::time(stored);
                    time.ok_or(rusqlite::Error::IntegralValueOutOfRange(1, stored))
                });
                Ok(CallState {
                    waits_for_approval: status == ToolStatus::PendingApproval.as_str(),
                    started_at: started_at.transpose()?,
                })
            })
            .optional()
    }
}

/// Stores the new service id (the id under which the model's service has the history), if the write
/// changes it.
fn change_service_id(
    connection: &Connection,
    number: i64,
    change: Option<&ServiceIdChange>,
) -> rusqlite::Result<()> {
    let id = match change {
        Some(ServiceIdChange::Set(id)) => Some(&**id),
        Some(ServiceIdChange::Clear) => None,
        None => return Ok(()),
    };
    // The condition avoids a write to the row when the id is unchanged.
    connection
        .prepare_cached(
            "UPDATE conversations SET service_id = ?2 WHERE id = ?1 AND service_id IS NOT ?2",
        )?
        .execute(params![number, id])?;
    Ok(())
}

/// Deletes a conversation, and returns whether it existed. If the conversation is too large for one
/// step, only makes it invisible; the writer then deletes its rows in further steps: see
/// [`removal`]. Triggers of the schema delete the open run, the usage and the summaries.
///
/// This function does not decode the row of the conversation, so that a conversation with a damaged
/// row can be deleted.
pub(crate) fn delete(connection: &Connection, key: &ConversationKey) -> Result<bool, NotStored> {
    let Some(number) = conversation::number(connection, key)? else { return Ok(false) };
    if !removal::is_one_step(connection, number)? {
        removal::begin(connection, number)?;
        return Ok(true);
    }
    while !removal::step(connection, number, removal::STEP)? {}
    Ok(true)
}

/// Inserts the row of a conversation, and returns its number. `created` is in milliseconds since
/// 1970.
pub(crate) fn insert_conversation(
    connection: &Connection,
    key: &ConversationKey,
    incarnation: u64,
    created: i64,
    activity: &Activity,
    parent: Option<&Parent>,
) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO conversations
                 (scope, conversation, incarnation, created, last_active, active_hour, runs,
                  last_run, mode, runs_without_open, last_run_without_open, parent_scope,
                  parent_conversation, parent_position)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)",
        )?
        .insert(params![
            key.scope(),
            key.id(),
            incarnation.cast_signed(),
            created,
            activity.last_active,
            activity.hour(),
            activity.runs.count.cast_signed(),
            activity.runs.last.map(RunId::to_bytes),
            activity.mode.map(PersistenceMode::as_str),
            activity.without_open_run.count.cast_signed(),
            activity.without_open_run.last.map(RunId::to_bytes),
            parent.map(|parent| parent.key.scope()),
            parent.map(|parent| parent.key.id()),
            parent.map(|parent| parent.position.cast_signed()),
        ])
}
