//! The SQL statements of a write. They run inside a transaction that the caller has begun.

use rusqlite::{Connection, OptionalExtension, params};
use tower_chat_core::{
    ConversationKey, PersistenceMode, RunId, ToolStatus, format,
    store::{
        Conflict, OpenRun, Revision, ServiceIdChange, StoreError,
        author::{Claim, Close, RecordedResult, Staged, Write, milliseconds},
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

/// A write with its messages in stored form, and with those results in stored form that are in no
/// message.
#[derive(Debug)]
pub(crate) struct EncodedWrite {
    write: Write,
    /// The stored form of the messages, in order.
    bodies: Vec<String>,
    /// The stored form of the results that are in no message, in the order of their rows.
    results: Vec<String>,
}

/// The reason why a write was not stored.
#[derive(Debug)]
pub(crate) enum NotStored {
    /// The write was refused. Nothing of it was written except the mark of sealed data
    /// ([`crate::seal_mark`]), and the transaction can continue.
    Refused(StoreError),
    /// SQLite failed, perhaps in the middle of the write. The transaction must be rolled back.
    Failed(rusqlite::Error),
}

impl From<rusqlite::Error> for NotStored {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error)
    }
}

/// Converts damage into a refusal of the write, because all reads precede the statements that
/// change the conversation.
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
        let results = write.tools().iter().filter_map(tool_row::result_apart).collect();
        Self { write, bodies, results }
    }

    /// Returns the number of bytes of its messages and results in stored form. The other parts of a
    /// write are small and not counted.
    pub(crate) fn bytes(&self) -> usize {
        self.bodies.iter().chain(&self.results).map(String::len).sum()
    }

    pub(crate) fn key(&self) -> &ConversationKey {
        self.write.key()
    }

    /// Stores the write and returns the new revision, if the conversation is at the expected
    /// revision, its open run, if any, admits the write, and all claims are valid. A write that is
    /// stored already is acknowledged again.
    pub(crate) fn store(
        &self,
        connection: &Connection,
        heads: &mut HeadCache,
    ) -> Result<Revision, NotStored> {
        heads.admit(connection, self.write.is_sealed())?;
        let found = heads.find(connection, self.key())?;
        let revision = found.as_ref().map_or(Revision::ABSENT, |found| found.revision);
        if revision != self.write.expected() {
            return match &found {
                Some(found) if self.is_stored(connection, found)? => Ok(self.write.result()),
                _ => Err(self.conflict(found.as_ref())),
            };
        }
        let open = found.as_ref().and_then(|found| found.open.as_ref());
        let is_repeated_commit = open.is_none()
            && self.write.close() == Some(Close::Commit)
            && self.write.result() == revision;
        if is_repeated_commit {
            return Ok(revision);
        }
        if !self.may_follow(open) {
            return Err(self.conflict(found.as_ref()));
        }
        self.check_claims(connection, found.as_ref())?;
        self.write.check_range(row_key::LAST_SEQUENCE).map_err(NotStored::Refused)?;
        self.check_discard(connection, found.as_ref())?;
        let result = self.write.result();
        let before = match &found {
            Some(found) => found.activity,
            None => Activity::before(&self.write),
        };
        let activity = before.after(&self.write, open.is_some());
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
                )?
            }
        };
        directory::add_usage(connection, number, &self.write)?;
        if !matches!(self.write.close(), Some(Close::Discard { .. })) {
            self.insert_messages(connection, number)?;
        }
        if let Some(found) = &found
            && found.revision.incarnation != result.incarnation
        {
            conversation::set_incarnation(connection, number, result.incarnation)?;
        }
        let pruned = found.as_ref().map_or(0, |found| found.pruned);
        self.put_tool_rows(connection, number, pruned)?;
        let (open, service_id) = match self.write.as_staged() {
            Some(staged) => self.stage(connection, number, open, staged)?,
            None => (None, self.write.service_id().cloned()),
        };
        change_service_id(connection, number, service_id.as_ref())?;
        let before = found.and_then(|found| found.service_id);
        let service_id = match service_id {
            Some(ServiceIdChange::Set(id)) => Some(id),
            Some(ServiceIdChange::Clear) => None,
            None => before,
        };
        heads.keep(
            self.key(),
            Conversation { number, revision: result, pruned, service_id, open, activity },
        );
        Ok(result)
    }

    /// Returns whether the open run, if any, admits the write.
    fn may_follow(&self, open: Option<&OpenRun>) -> bool {
        match (open, self.write.as_staged()) {
            (None, None) => true,
            (None, Some(staged)) => !matches!(staged.close, Some(Close::Discard { .. })),
            (Some(_), None) => false,
            (Some(open), Some(staged)) => open.admits(self.write.run(), staged),
        }
    }

    /// Refuses the write if one of its claims is not valid.
    fn check_claims(
        &self,
        connection: &Connection,
        found: Option<&Conversation>,
    ) -> Result<(), NotStored> {
        for claim in self.write.claims() {
            if !holds(connection, found, claim)? {
                let (key, call) = (self.key().clone(), claim.call);
                return Err(NotStored::Refused(StoreError::Claimed { key, call }));
            }
        }
        Ok(())
    }

    /// If the write discards the open run, checks that this deletes only messages of the run.
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

    /// Updates the row of the open run, or ends the run. Returns the run that is open afterwards,
    /// and the change of the service id.
    fn stage(
        &self,
        connection: &Connection,
        number: i64,
        before: Option<&OpenRun>,
        staged: &Staged,
    ) -> rusqlite::Result<(Option<OpenRun>, Option<ServiceIdChange>)> {
        let expected = self.write.expected();
        let mut open = match before {
            Some(open) => open.clone(),
            None => OpenRun::new(self.write.run(), staged.lease, expected.sequence),
        };
        open.apply(staged);
        match staged.close {
            None => {
                let stored = open_run::put(connection, number, before, open)?;
                Ok((Some(stored), None))
            }
            Some(Close::Commit) => {
                open_run::close(connection, number)?;
                Ok((None, open.service_id))
            }
            Some(Close::Discard { .. }) => {
                open_run::discard(connection, number, open.visible)?;
                Ok((None, None))
            }
        }
    }

    /// Returns whether the write's first message is stored at the position that the write expects.
    /// A write without messages counts as stored as long as the conversation is at the revision
    /// after the write.
    fn is_stored(&self, connection: &Connection, found: &Conversation) -> rusqlite::Result<bool> {
        if self.bodies.is_empty() {
            return Ok(found.revision == self.write.result());
        }
        let expected = self.write.expected();
        let row_key = expected
            .sequence
            .checked_add(1)
            .and_then(|sequence| row_key::of_message(found.number, sequence));
        let Some(row_key) = row_key else { return Ok(false) };
        if self.write.result().incarnation != found.revision.incarnation {
            return Ok(false);
        }
        let mut statement =
            connection.prepare_cached("SELECT run, run_index FROM messages WHERE place = ?1")?;
        let stored: Option<(Vec<u8>, i64)> =
            statement.query_row([row_key], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
        let id = self.write.id();
        Ok(stored
            .is_some_and(|(run, index)| run == id.run.to_bytes() && index == i64::from(id.index)))
    }

    /// Creates the refusal of a write to a conversation in another state.
    fn conflict(&self, found: Option<&Conversation>) -> NotStored {
        let revision = found.map_or(Revision::ABSENT, |found| found.revision);
        let open = found.and_then(|found| found.open.as_ref()).map(|open| open.run);
        let conflict = Conflict::new(self.key().clone(), self.write.expected(), revision);
        NotStored::Refused(Box::new(conflict.with_open_run(open)).into())
    }

    /// Inserts the messages. The caller has checked that their sequence numbers are in range.
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

    /// Writes the rows of the record for calls in messages that exist after the write.
    fn put_tool_rows(
        &self,
        connection: &Connection,
        number: i64,
        pruned: u64,
    ) -> rusqlite::Result<()> {
        let held = pruned.saturating_add(1)..=self.write.result().sequence;
        let mut results = self.results.iter();
        let rows = self.write.tools().iter().map(|record| {
            let is_apart = matches!(record.result, RecordedResult::Apart(_));
            (record, if is_apart { results.next().map(String::as_str) } else { None })
        });
        let rows = rows.filter(|(record, _)| held.contains(&record.call.sequence));
        tool_row::put(connection, number, rows)
    }
}

/// Returns whether a claim is valid: the row of its call has the status `pending_approval` and the
/// start time in the claim. If there is no row, or the message of the call is not visible, a claim
/// without a start time is valid.
fn holds(
    connection: &Connection,
    found: Option<&Conversation>,
    claim: &Claim,
) -> rusqlite::Result<bool> {
    let row_key = found
        .filter(|found| claim.call.sequence <= found.visible())
        .and_then(|found| row_key::of_message(found.number, claim.call.sequence));
    let row: Option<(String, Option<i64>)> = connection
        .prepare_cached(
            "SELECT status, started FROM tool_invocations WHERE place = ?1 AND call_index = ?2",
        )?
        .query_row(params![row_key, claim.call.index], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let claimed = claim.started_at.map(milliseconds::of);
    Ok(match row {
        Some((status, started)) => {
            status == ToolStatus::PendingApproval.as_str() && started == claimed
        }
        None => claimed.is_none(),
    })
}

/// Applies a change of the service id, if there is one.
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
    // The condition avoids writing the row when the id is unchanged.
    connection
        .prepare_cached(
            "UPDATE conversations SET service_id = ?2 WHERE id = ?1 AND service_id IS NOT ?2",
        )?
        .execute(params![number, id])?;
    Ok(())
}

/// Deletes a conversation with all its messages and tool rows; triggers of the schema delete its
/// open run and its usage. Returns whether the conversation existed. If the conversation is too
/// large for one step, this function only makes it invisible: see [`removal`].
///
/// It does not read the head, so that a conversation with a damaged head can be deleted.
pub(crate) fn delete(connection: &Connection, key: &ConversationKey) -> Result<bool, NotStored> {
    let Some(number) = conversation::number(connection, key)? else { return Ok(false) };
    if !removal::is_one_step(connection, number)? {
        removal::begin(connection, number)?;
        return Ok(true);
    }
    while !removal::step(connection, number, removal::STEP)? {}
    Ok(true)
}

/// Inserts the row of a conversation that was created at `created`, in milliseconds since 1970, and
/// returns the number of the conversation.
pub(crate) fn insert_conversation(
    connection: &Connection,
    key: &ConversationKey,
    incarnation: u64,
    created: i64,
    activity: &Activity,
) -> rusqlite::Result<i64> {
    connection
        .prepare_cached(
            "INSERT INTO conversations
                 (scope, conversation, incarnation, created, last_active, active_hour, runs,
                  last_run, mode, runs_without_open, last_run_without_open)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
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
        ])
}
