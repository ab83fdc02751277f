//! Appends messages and rows to one conversation of the target, in writes of bounded size.
//!
//! Terms of this module, which `tower_chat_core::store` defines:
//!
//! - *Directory*: the data of a store about its conversations and their runs: times, usage, modes.
//! - *Activity*: the part of a write that changes the directory: the time of the write, and the
//!   start, mode and usage of its run. A write without an activity does not change the directory.
//! - *Stage*: to store messages durably for an open run. Readers do not see these messages until
//!   the run is committed. If the run is discarded, the store deletes the messages, but the
//!   directory still contains the usage of the run.
//! - *Visible*: all messages except the staged ones; readers see only visible messages.
//! - *Record*: the rows of a store about tool calls, one row for each call.
//! - *Revision*: the state of a conversation that a write expects. The store refuses a write that
//!   expects another state.
//! - *Service id*: the id under which the provider's service stores the history.
//! - *Attempt*: one execution of a run. Resuming an open run begins a new attempt with a higher
//!   number. From then on the store refuses writes of the previous attempt.

use std::{collections::HashSet, mem, sync::Arc, time::SystemTime};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        HistoryStore, Lease, LeaseEnd, OpenRun, Parent, Revision, RunActivity, ServiceIdChange,
        StoreError,
        author::{Close, Staged, ToolRecord, Write},
    },
};

use crate::{TransferError, TransferRefusal, runs::Runs};

/// The maximum number of messages in one write.
const WRITE_MESSAGES: usize = 100;
/// The maximum size of a write, in bytes of stored messages. A larger message is written alone.
const WRITE_BYTES: usize = 256 * 1024;

/// The number of added writes at which the appender submits them to the store.
const SUBMISSION_WRITES: usize = 64;
/// The size of the added writes, in bytes of stored messages, at which they are submitted.
const SUBMISSION_BYTES: usize = 1024 * 1024;

/// Appends to one conversation.
///
/// Each write contains messages of one run, because the ids of its messages are counted from the id
/// of the write. Readers of the target see the messages of completed writes while the conversation
/// is still being written. These writes cannot be staged, because all staged messages must belong
/// to one run.
pub(crate) struct Appender<'a> {
    store: &'a dyn HistoryStore,
    key: ConversationKey,
    /// The revision of the target after all added writes.
    revision: Revision,
    /// The time at which the conversation was created in the source.
    created_at: SystemTime,
    /// The parent of the conversation in the source, if it is a branch (a copy of a beginning).
    parent: Option<Parent>,
    pub(crate) runs: Runs,
    /// The runs that have messages at the target, or in added writes.
    with_messages: HashSet<RunId>,
    /// The run of the last message that was appended, or [found](Self::found) at the target.
    last_run: Option<RunId>,
    /// The messages of the next write.
    segment: Option<Segment>,
    /// The rows of the record for the next write.
    rows: Vec<ToolRecord>,
    /// The added writes that are not submitted yet.
    writes: Vec<Write>,
    /// The size of the messages in `writes`, in bytes of their stored form.
    bytes: usize,
    /// The properties with which all following writes are staged; `None` if they are not staged.
    staged: Option<Staged>,
    /// Whether the next staged write is the first write of an attempt.
    begins_attempt: bool,
    /// The open run of the target, which makes [`submit`](Self::submit) refuse all writes.
    open_run: Option<RunId>,
    /// The reason of a refusal, after which no write is submitted.
    pub(crate) refusal: Option<TransferRefusal>,
    /// The number of appended messages, including staged ones.
    pub(crate) added: u64,
    /// Whether the target has stored any write.
    pub(crate) is_changed: bool,
}

/// Consecutive messages of one run for one write. `first` is the id of the first message.
struct Segment {
    first: MessageId,
    messages: Vec<Arc<Message>>,
    bytes: usize,
}

impl<'a> Appender<'a> {
    pub(crate) fn new(
        store: &'a dyn HistoryStore,
        key: &ConversationKey,
        revision: Revision,
        created_at: SystemTime,
        parent: Option<Parent>,
    ) -> Self {
        Self {
            store,
            key: key.clone(),
            revision,
            created_at,
            parent,
            runs: Runs::default(),
            with_messages: HashSet::new(),
            last_run: None,
            segment: None,
            rows: Vec::new(),
            writes: Vec::new(),
            bytes: 0,
            staged: None,
            begins_attempt: false,
            open_run: None,
            refusal: None,
            added: 0,
            is_changed: false,
        }
    }

    /// Sets the open run of the target. Until it is [discarded](Self::discard) or
    /// [continued](Self::stage), [`submit`](Self::submit) refuses all writes.
    pub(crate) fn set_open_run(&mut self, open_run: Option<RunId>) {
        self.open_run = open_run;
    }

    /// Returns the open run of the target, unless this appender has discarded or continued it.
    pub(crate) fn open_run(&self) -> Option<RunId> {
        self.open_run
    }

    /// Adds a write that discards the open run of the target, as a new attempt at the run.
    pub(crate) async fn discard(&mut self, open: &OpenRun) -> Result<(), TransferError> {
        let lease = Lease {
            attempt: open.lease.attempt.saturating_add(1),
            holder: self.store.handle().holder(),
            ..open.lease
        };
        let close = Some(Close::Discard { visible: open.visible });
        let staged = Staged { lease, close, service_id: None, partial_text: None };
        let write =
            self.empty_write(open.run).without_activity().staged(staged).beginning_attempt();
        self.open_run = None;
        self.revision = write.result();
        self.push(write, 0);
        self.submit_if_full().await
    }

    /// Records the run of a message that the target already has.
    pub(crate) fn found(&mut self, message: &Message) {
        self.last_run = message.id.map(|id| id.run).or(self.last_run);
        self.with_messages.extend(self.last_run);
    }

    /// Appends a message, whose stored form has `bytes` bytes. Ignores a message without an id.
    ///
    /// If the previous message belongs to another run, first ends that run. Before the first
    /// message of a new conversation, writes the data of the run that has created the conversation
    /// in the source, because a store takes the creation time of a conversation from its first
    /// write.
    pub(crate) async fn message(
        &mut self,
        message: Arc<Message>,
        bytes: usize,
    ) -> Result<(), TransferError> {
        let Some(id) = message.id else { return Ok(()) };
        if self.last_run != Some(id.run) {
            self.end_run().await?;
        }
        if self.revision == Revision::ABSENT
            && let Some(creator) = self.runs.creator(self.created_at, Some(id.run))
            && self.staged.is_none()
        {
            self.write_missing_activity(creator).await?;
        }
        if !self.segment.as_ref().is_some_and(|segment| segment.accepts(id, bytes)) {
            self.end_segment().await?;
        }
        self.last_run = Some(id.run);
        self.with_messages.insert(id.run);
        self.added += 1;
        let segment = self.segment.get_or_insert(Segment { first: id, messages: vec![], bytes: 0 });
        segment.messages.push(message);
        segment.bytes += bytes;
        Ok(())
    }

    /// Adds a row to the next write with messages, or to a write of
    /// [`end_visible`](Self::end_visible).
    pub(crate) fn row(&mut self, row: ToolRecord) {
        self.rows.push(row);
    }

    /// Adds the write of the current segment. If the run was last written later in the source than
    /// at the target, also adds a write without messages, which sets this time.
    async fn end_run(&mut self) -> Result<(), TransferError> {
        self.end_segment().await?;
        let Some(run) = self.last_run else { return Ok(()) };
        if let Some(activity) = self.runs.last_activity(run) {
            let write = self.empty_write(run).with_activity(activity);
            self.add(write, 0).await?;
        }
        Ok(())
    }

    async fn end_segment(&mut self) -> Result<(), TransferError> {
        let Some(Segment { first, messages, bytes }) = self.segment.take() else { return Ok(()) };
        let activity = self.runs.next_activity(first.run, self.created_at);
        let write = Write::new(self.key.clone(), first, self.revision, messages)
            .with_activity(activity)
            .with_tools(mem::take(&mut self.rows));
        self.add(write, bytes).await
    }

    fn empty_write(&self, run: RunId) -> Write {
        Write::new(self.key.clone(), MessageId { run, index: 0 }, self.revision, [])
    }

    /// Adds the writes that follow the visible messages: the writes for runs whose directory data
    /// are [missing](Runs::missing), and one write with the remaining rows and the change of the
    /// service id.
    pub(crate) async fn end_visible(
        &mut self,
        service_id: Option<ServiceIdChange>,
    ) -> Result<(), TransferError> {
        self.end_run().await?;
        for run in self.runs.missing() {
            self.write_missing_activity(run).await?;
        }
        if self.rows.is_empty() && service_id.is_none() {
            return Ok(());
        }
        let run = self.last_run.or_else(|| self.runs.in_order().last().map(|run| run.run));
        let mut write = self.empty_write(run.unwrap_or_else(|| RunId::at(self.created_at)));
        write = write.without_activity().with_tools(mem::take(&mut self.rows));
        if let Some(change) = service_id {
            write = write.with_service_id(change);
        }
        self.add(write, 0).await
    }

    /// Writes the directory data of a run that are missing at the target, without adding a visible
    /// message.
    ///
    /// A store adds usage only in a write with messages. Therefore this function stages a message
    /// and discards it. The directory then contains the usage, and does not count the discarded
    /// run.
    async fn write_missing_activity(&mut self, run: RunId) -> Result<(), TransferError> {
        let lease = Lease {
            attempt: 1,
            holder: self.store.handle().holder(),
            renewed_at: self.created_at,
            until: LeaseEnd::NotHeld,
        };
        let staged = |close| Staged { lease, close, service_id: None, partial_text: None };
        let visible = self.revision.sequence;
        let last = self.runs.source(run).map_or(self.created_at, |run| run.last_written_at);
        let mode = self.runs.source(run).and_then(|run| run.mode);
        let id = MessageId { run, index: MessageId::LAST_INDEX };
        let activity = self.runs.next_activity(run, self.created_at);
        let opens = Write::new(self.key.clone(), id, self.revision, [Message::user("").into()])
            .with_activity(activity)
            .staged(staged(None))
            .beginning_attempt();
        let discards = Write::new(self.key.clone(), id, opens.result(), [])
            .with_activity(RunActivity::new(last).with_mode(mode))
            .staged(staged(Some(Close::Discard { visible })));
        // The discarding write sets the time of the run's last write. This call records the time,
        // so that no further write is added for it.
        let _ = self.runs.last_activity(run);
        self.revision = discards.result();
        self.push(opens, 0);
        self.push(discards, 0);
        self.submit_if_full().await
    }

    /// Increases the number of runs in the directory by at most `missing`, with writes without
    /// messages. Each write belongs to a run of the source without messages at the target.
    pub(crate) async fn count_runs(&mut self, missing: u64) -> Result<(), TransferError> {
        let without_messages = self.runs.in_order().into_iter();
        let without_messages = without_messages.map(|run| (run.run, run.last_written_at));
        let uncounted: Vec<_> =
            without_messages.filter(|(run, _)| !self.with_messages.contains(run)).collect();
        // A store counts a run again if the previous write belonged to another run. Therefore
        // consecutive writes belong to different runs. A single run is counted once.
        let counted = if uncounted.len() > 1 { missing } else { missing.min(1) };
        let counted = usize::try_from(counted).unwrap_or(usize::MAX);
        for (run, at) in uncounted.into_iter().cycle().take(counted) {
            let write = self.empty_write(run).with_activity(RunActivity::new(at));
            self.add(write, 0).await?;
        }
        Ok(())
    }

    /// Makes all following writes staged writes. The first staged write begins an attempt.
    pub(crate) fn stage(&mut self, staged: Staged) {
        self.staged = Some(staged);
        self.begins_attempt = true;
        self.open_run = None;
    }

    /// Ends the staged part. If it has no messages, adds an empty write that begins the attempt.
    pub(crate) async fn end_staged(&mut self, run: RunId) -> Result<(), TransferError> {
        self.end_run().await?;
        if self.begins_attempt {
            let activity = self.runs.next_activity(run, self.created_at);
            let write = self.empty_write(run).with_activity(activity);
            self.add(write, 0).await?;
        }
        Ok(())
    }

    async fn add(&mut self, write: Write, bytes: usize) -> Result<(), TransferError> {
        let write = match &self.staged {
            None => write,
            Some(staged) if mem::take(&mut self.begins_attempt) => {
                write.staged(staged.clone()).beginning_attempt()
            }
            Some(staged) => write.staged(staged.clone()),
        };
        self.revision = write.result();
        self.push(write, bytes);
        self.submit_if_full().await
    }

    fn push(&mut self, write: Write, bytes: usize) {
        let is_first = write.expected() == Revision::ABSENT;
        self.writes.push(if is_first { write.with_parent(self.parent.clone()) } else { write });
        self.bytes += bytes;
    }

    async fn submit_if_full(&mut self) -> Result<(), TransferError> {
        let is_full = self.writes.len() >= SUBMISSION_WRITES || self.bytes >= SUBMISSION_BYTES;
        if is_full { self.submit().await } else { Ok(()) }
    }

    /// Submits all added writes, and waits until they are durable.
    ///
    /// If the target has an open run, if another process has written to the conversation, or if the
    /// target reports an error that concerns only this conversation, refuses the conversation and
    /// drops the added writes. The transfer then continues with the other conversations.
    pub(crate) async fn submit(&mut self) -> Result<(), TransferError> {
        let writes = mem::take(&mut self.writes);
        self.bytes = 0;
        if let (Some(run), false) = (self.open_run, writes.is_empty()) {
            self.refusal.get_or_insert(TransferRefusal::OpenRun { run });
        }
        if writes.is_empty() || self.refusal.is_some() {
            return Ok(());
        }
        let slot = self.store.reserve().await?;
        match self.store.append(slot, writes).await {
            Ok(_) => {
                self.is_changed = true;
                Ok(())
            }
            Err(error) => match error.source {
                StoreError::Conflict(_) => {
                    self.refusal = Some(TransferRefusal::Conflict);
                    Ok(())
                }
                // These errors concern only this conversation.
                error @ (StoreError::Backend { retryable: false, .. }
                | StoreError::Corrupt { .. }
                | StoreError::Undecodable { .. }) => {
                    self.refusal =
                        Some(TransferRefusal::RejectedByTarget { reason: chain(&error) });
                    Ok(())
                }
                other => Err(other.into()),
            },
        }
    }
}

/// Returns the messages of an error and of all its sources, separated by colons.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

impl Segment {
    fn accepts(&self, id: MessageId, bytes: usize) -> bool {
        let next = u32::try_from(self.messages.len())
            .ok()
            .and_then(|count| self.first.index.checked_add(count));
        id.run == self.first.run
            && Some(id.index) == next
            && self.messages.len() < WRITE_MESSAGES
            && self.bytes.saturating_add(bytes) <= WRITE_BYTES
    }
}
