//! One conversation in memory, and the queries of the record of its tool calls, which has one row
//! for each call. Staged messages and rows belong to the open run (the run that is not committed
//! yet), and readers do not see them. The head is everything about a conversation except its
//! messages.

use std::{
    collections::{BTreeMap, BTreeSet},
    convert::Infallible,
    mem,
    sync::Arc,
    time::SystemTime,
};

use crate::{
    ApprovalRequest, ConversationKey, Message, MessageId, RunId, ToolStatus,
    pairing::PendingBatches,
    store::{
        AddedSummary, ConversationRows, ConversationSummary, Head, History, HistorySummary,
        InvocationQuery, Keep, OpenRun, Pruned, Revision, Rewrite, SequencePosition, StoreError,
        author::{
            CallState, Changes, Decision, DirectoryEntry, Forking, LAST_SEQUENCE, Lookup,
            OpenRunContent, Pruning, ToolRecord, Write, decide,
        },
    },
};

/// The messages of a conversation, and the record of its tool calls.
#[derive(Debug)]
pub(super) struct Stored {
    /// The visible messages. The revision in the head also counts the staged messages.
    pub(super) history: History,
    tools: BTreeMap<SequencePosition, ToolRecord>,
    /// The positions of the rows in `tools` whose calls wait for approval.
    pending_approvals: BTreeSet<SequencePosition>,
    /// The staged messages of the open run, and the rows of their calls.
    staged: Rows,
    pub(super) directory: DirectoryEntry,
    /// The summaries, in the order of the messages that they cover.
    summaries: Vec<HistorySummary>,
}

#[derive(Debug, Default)]
struct Rows {
    messages: Vec<Arc<Message>>,
    tools: BTreeMap<SequencePosition, ToolRecord>,
}

impl Stored {
    pub(super) fn new(directory: DirectoryEntry) -> Self {
        Self {
            history: History::empty(),
            tools: BTreeMap::new(),
            pending_approvals: BTreeSet::new(),
            staged: Rows::default(),
            directory,
            summaries: Vec::new(),
        }
    }

    /// Returns the head, with the calls that wait for approval.
    pub(super) fn head(&self) -> Head {
        self.history.head.clone().with_pending_approvals(self.pending_approvals())
    }

    pub(super) fn summary(&self, key: &ConversationKey) -> ConversationSummary {
        self.directory.summary(key.clone(), &self.head())
    }

    /// Returns a copy of the turns that end before the message `before`, or of all visible turns,
    /// and the position at which the copy ends. A turn consists of the messages of a run and of the
    /// later runs that answer calls of this run.
    pub(super) fn fork(&self, key: &ConversationKey, before: Option<u64>) -> (Self, u64) {
        let mut forking = Forking::new(&self.history.head, before);
        for (sequence, message) in self.history.numbered() {
            if let Some(id) = message.id {
                forking.see_message(sequence, id.run);
            }
        }
        self.tools.values().for_each(|row| forking.see_record(row));
        let end = forking.end();
        let pruned = self.history.head.pruned;
        let count = usize::try_from(end.position.saturating_sub(pruned)).unwrap_or(usize::MAX);
        let mut fork = Self::new(self.directory.fork(key, &end, SystemTime::now()));
        fork.history.extend(self.history.messages.iter().take(count).cloned());
        // The sequence numbers of a copy without messages begin with 1.
        if count > 0 {
            fork.history.head.pruned = pruned;
        }
        fork.history.head.revision = Revision {
            incarnation: RunId::new().random_half().max(1),
            sequence: fork.last_visible(),
        };
        let rows = self.tools.iter().filter(|(call, _)| call.sequence <= end.position);
        fork.tools = rows.map(|(call, row)| (*call, row.clone().in_copy())).collect();
        (fork, end.position)
    }

    pub(super) fn prune(
        &mut self,
        key: &ConversationKey,
        keep: Keep,
    ) -> Result<Pruned, StoreError> {
        if let Some(open) = self.open_run() {
            return Err(StoreError::UnderWay { key: key.clone(), run: open.run });
        }
        let mut pruning = Pruning::new(key, &self.history.head, keep);
        for (sequence, message) in self.history.numbered() {
            if let Some(id) = message.id {
                pruning.see_message(sequence, id.run);
            }
        }
        self.tools.values().for_each(|row| pruning.see_record(row));
        let cut = pruning.cut()?;
        if cut.last_sequence == 0 {
            return Ok(cut.pruned);
        }
        let gone = usize::try_from(cut.pruned.messages).unwrap_or(usize::MAX);
        // The messages are added to an empty history, which counts again how many of its first
        // messages every provider accepts.
        let mut left = History::empty();
        left.extend(self.history.messages.iter_from(gone).cloned());
        left.head = self.history.head.clone().with_pruned(cut.last_sequence);
        left.head.revision = left.head.revision.pruned();
        self.history = left;
        let first = SequencePosition { sequence: cut.last_sequence.saturating_add(1), index: 0 };
        self.tools = self.tools.split_off(&first);
        self.pending_approvals = self.pending_approvals.split_off(&first);
        let in_force = self.history.head.summary;
        self.summaries.retain(|summary| {
            summary.covers_to > cut.last_sequence || Some(summary.in_force()) == in_force
        });
        Ok(cut.pruned)
    }

    pub(super) fn rows(&self) -> ConversationRows {
        let messages = self.history.numbered().map(|(number, it)| (number, Ok(it.clone())));
        let tools = self.tools.values().map(|row| (row.call, Ok(row.clone())));
        ConversationRows::new(self.history.head.clone(), messages.collect(), tools.collect())
    }

    /// Makes all changes of a rewrite. If the rewrite is refused, makes no change.
    pub(super) fn rewrite(&mut self, rewrite: &Rewrite) -> Result<Revision, StoreError> {
        let revision = rewrite.check(&self.history.head)?;
        let mut messages: Vec<Arc<Message>> = self.history.messages.iter().cloned().collect();
        let before = self.history.head.pruned;
        for (sequence, other) in &rewrite.messages {
            let index = sequence.checked_sub(before.saturating_add(1));
            let message = index.and_then(|index| messages.get_mut(usize::try_from(index).ok()?));
            let message = message.ok_or_else(|| rewrite.missing(*sequence))?;
            let mut other = other.clone();
            other.id = message.id;
            *message = Arc::new(other);
        }
        // The messages are added to an empty history, which counts again how many of its first
        // messages every provider accepts.
        let mut rewritten = History::empty();
        rewritten.extend(messages);
        rewritten.head = Head { revision, ..self.history.head.clone() };
        self.history = rewritten;
        if let Some(first) = rewrite.first_message() {
            let head = &mut self.history.head;
            head.rewrites = head.rewrites.saturating_add(1);
            self.summaries.retain(|summary| summary.covers_to < first);
            self.put_summary_in_force();
        }
        let rows: Vec<_> = rewrite.tools_of(&self.history.head).cloned().collect();
        self.store_rows(rows);
        for call in &rewrite.removed_tools {
            self.tools.remove(call);
            self.pending_approvals.remove(call);
        }
        if let Some(counts) = &rewrite.counts {
            self.directory.recount(counts);
        }
        Ok(revision)
    }

    pub(super) fn summaries(&self) -> impl Iterator<Item = &HistorySummary> {
        self.summaries.iter()
    }

    pub(super) fn add_summary(&mut self, summary: &HistorySummary, rewrites: u64) -> AddedSummary {
        if self.summaries.iter().any(|stored| stored.id == summary.id) {
            return AddedSummary::Stored;
        }
        let message = self.history.message(summary.covers_to).and_then(|message| message.id);
        let added = summary.decide(&self.history.head, rewrites, message);
        if added == AddedSummary::Stored {
            self.summaries.push(HistorySummary { is_sealed: false, ..summary.clone() });
            self.put_summary_in_force();
        }
        added
    }

    pub(super) fn remove_summary(&mut self, id: u64) -> bool {
        let is_in_force = self.summaries.last().is_some_and(|last| last.id == id);
        if is_in_force {
            self.summaries.pop();
            self.put_summary_in_force();
        }
        is_in_force
    }

    fn put_summary_in_force(&mut self) {
        self.history.head.summary = self.summaries.last().map(HistorySummary::in_force);
    }

    fn last_visible(&self) -> u64 {
        self.history.head.pruned.saturating_add(self.history.messages.len() as u64)
    }

    /// Stores a write. If the write is already stored, returns the revision that it resulted in.
    pub(super) fn store(&mut self, write: &Write) -> Result<Revision, StoreError> {
        let Ok(decision) = decide(&self.history.head, write, LAST_SEQUENCE, &mut &*self);
        match decision {
            Decision::Store(changes) => self.apply(write, &changes),
            Decision::IsStored => {}
            Decision::Refuse(error) => return Err(error),
        }
        Ok(write.result())
    }

    fn apply(&mut self, write: &Write, changes: &Changes) {
        let visible = self.last_visible();
        let rows = write.tools().iter();
        let rows = rows.filter(|row| changes.messages.contains(&row.call.sequence)).cloned();
        let added = write.messages().iter().cloned();
        if write.as_staged().is_none() {
            self.history.extend(added);
            self.store_rows(rows);
        } else {
            self.staged.messages.extend(added);
            let (seen, staged): (Vec<_>, Vec<_>) =
                rows.partition(|row| row.call.sequence <= visible);
            self.store_rows(seen);
            self.staged.tools.extend(staged.into_iter().map(|row| (row.call, row)));
        }
        if changes.open_run.is_none() {
            let Rows { messages, tools } = mem::take(&mut self.staged);
            if changes.discards_after.is_none() {
                self.history.extend(messages);
                self.store_rows(tools.into_values());
            }
        }
        self.history.head.advance(changes);
        self.directory.apply(write);
    }

    fn store_rows(&mut self, rows: impl IntoIterator<Item = ToolRecord>) {
        for row in rows {
            if row.status == ToolStatus::PendingApproval {
                self.pending_approvals.insert(row.call);
            } else {
                self.pending_approvals.remove(&row.call);
            }
            self.tools.insert(row.call, row);
        }
    }

    pub(super) fn is_visible(&self) -> bool {
        !self.history.messages.is_empty() || self.history.head.service_id.is_some()
    }

    pub(super) fn open_run(&self) -> Option<&OpenRun> {
        self.history.head.open_run.as_ref()
    }

    pub(super) fn open_run_content(&self) -> Option<OpenRunContent> {
        Some(OpenRunContent::new(
            self.history.head.clone(),
            self.open_run()?.clone(),
            self.staged.messages.clone(),
            self.staged.tools.values().cloned().collect(),
        ))
    }

    /// Returns the requests of the calls that wait for approval, grouped by answer.
    fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        let mut batches = PendingBatches::default();
        for position in &self.pending_approvals {
            let Some(message) = self.message(position.sequence) else { continue };
            if let Some(request) = message.approval_request(position.index) {
                batches.push(&message, request.clone());
            }
        }
        batches.finish()
    }

    /// Returns a message by its sequence number, including staged messages.
    pub(super) fn message(&self, sequence: u64) -> Option<Arc<Message>> {
        match sequence.checked_sub(self.last_visible().saturating_add(1)) {
            None => self.history.message(sequence).cloned(),
            Some(staged) => self.staged.messages.get(usize::try_from(staged).ok()?).cloned(),
        }
    }
}

impl Lookup for &Stored {
    type Error = Infallible;

    fn message_id(&mut self, sequence: u64) -> Result<Option<MessageId>, Infallible> {
        Ok(self.message(sequence).and_then(|message| message.id))
    }

    fn call(&mut self, call: SequencePosition) -> Result<Option<CallState>, Infallible> {
        Ok(self.tools.get(&call).map(CallState::of))
    }
}

/// Iterates over the rows that match a query, in order, with their conversations.
pub(super) fn matching_rows<'a>(
    conversations: &'a BTreeMap<ConversationKey, Stored>,
    query: &'a InvocationQuery,
) -> impl Iterator<Item = (&'a ConversationKey, &'a Stored, &'a ToolRecord)> {
    let first = ConversationKey::new(&*query.scope, query.conversation.as_deref().unwrap_or(""));
    let is_queried = |key: &ConversationKey| {
        query.conversation.as_ref().is_none_or(|conversation| conversation == key.id())
    };
    conversations
        .range(first..)
        .take_while(move |(key, _)| key.scope() == query.scope && is_queried(key))
        .flat_map(|(key, stored)| stored.tools.values().map(move |record| (key, stored, record)))
        .filter(|(_, _, record)| query.fits(record))
}
