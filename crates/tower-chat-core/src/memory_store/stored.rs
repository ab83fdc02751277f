//! One conversation in memory, and the search of its record.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::RangeInclusive,
    sync::Arc,
    time::SystemTime,
};

use crate::{
    ApprovalRequest, ConversationKey, Message, RunId, ToolStatus,
    pairing::PendingBatches,
    store::{
        Conflict, ConversationRows, ConversationSummary, Head, History, InvocationQuery, Keep,
        OpenRun, Pruned, Revision, Rewrite, SequencePosition, ServiceIdChange, StoreError,
        author::{
            Claim, Close, DirectoryEntry, LAST_SEQUENCE, OpenRunContent, Pruning, Staged,
            ToolRecord, Write,
        },
    },
};

/// The messages of a conversation, and the record of its tool calls.
#[derive(Debug)]
pub(super) struct Stored {
    /// The visible messages. The revision of the head includes the staged messages.
    pub(super) history: History,
    tools: BTreeMap<SequencePosition, ToolRecord>,
    /// The calls among `tools` that wait for approval.
    pending_approvals: BTreeSet<SequencePosition>,
    open: Option<Open>,
    pub(super) directory: DirectoryEntry,
}

/// The staged part of an open run.
#[derive(Debug)]
struct Open {
    run: OpenRun,
    messages: Vec<Arc<Message>>,
    tools: BTreeMap<SequencePosition, ToolRecord>,
}

impl Stored {
    pub(super) fn new(directory: DirectoryEntry) -> Self {
        Self {
            history: History::empty(),
            tools: BTreeMap::new(),
            pending_approvals: BTreeSet::new(),
            open: None,
            directory,
        }
    }

    /// Returns the head, with the calls that wait for approval.
    pub(super) fn head(&self) -> Head {
        self.history.head.clone().with_pending_approvals(self.pending_approvals())
    }

    pub(super) fn summary(&self, key: &ConversationKey) -> ConversationSummary {
        self.directory.summary(key.clone(), &self.head())
    }

    /// Returns a copy of the visible part of this conversation, with its own incarnation.
    pub(super) fn fork(&self) -> Self {
        let mut fork = Self::new(self.directory.fork(SystemTime::now()));
        fork.history.extend(self.history.messages.iter().cloned());
        fork.history.head.pruned = self.history.head.pruned;
        fork.history.head.revision = Revision {
            incarnation: RunId::new().random_half().max(1),
            sequence: self.last_visible(),
        };
        let rows = self.tools.iter().map(|(call, row)| (*call, row.clone().in_copy()));
        fork.tools = rows.collect();
        fork
    }

    /// Deletes the oldest runs.
    pub(super) fn prune(
        &mut self,
        key: &ConversationKey,
        keep: Keep,
    ) -> Result<Pruned, StoreError> {
        if let Some(open) = &self.open {
            return Err(StoreError::UnderWay { key: key.clone(), run: open.run.run });
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
        // The well-formed prefix counts deleted messages and is computed again.
        let mut left = History::empty();
        left.extend(self.history.messages.iter_from(gone).cloned());
        left.head = self.history.head.clone().with_pruned(cut.last_sequence);
        left.head.revision = left.head.revision.pruned();
        self.history = left;
        let first = SequencePosition { sequence: cut.last_sequence.saturating_add(1), index: 0 };
        self.tools = self.tools.split_off(&first);
        self.pending_approvals = self.pending_approvals.split_off(&first);
        Ok(cut.pruned)
    }

    /// Returns the visible part, row by row.
    pub(super) fn rows(&self) -> ConversationRows {
        let messages = self.history.numbered().map(|(number, it)| (number, Ok(it.clone())));
        let tools = self.tools.values().map(|row| (row.call, Ok(row.clone())));
        ConversationRows::new(self.history.head.clone(), messages.collect(), tools.collect())
    }

    /// Changes rows in place, all of them or none.
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
        // The well-formed prefix counts changed messages and is computed again.
        let mut rewritten = History::empty();
        rewritten.extend(messages);
        rewritten.head = Head { revision, ..self.history.head.clone() };
        self.history = rewritten;
        self.put_tools(rewrite.tools.iter().cloned());
        for call in &rewrite.removed_tools {
            self.tools.remove(call);
            self.pending_approvals.remove(call);
        }
        if let Some(counts) = &rewrite.counts {
            self.directory.recount(counts);
        }
        Ok(revision)
    }

    /// Returns the sequence number of the last visible message.
    fn last_visible(&self) -> u64 {
        self.history.head.pruned.saturating_add(self.history.messages.len() as u64)
    }

    /// Returns the sequence numbers of the remaining messages up to `last`.
    fn numbers_to(&self, last: u64) -> RangeInclusive<u64> {
        self.history.head.pruned.saturating_add(1)..=last
    }

    /// Stores a write, or acknowledges one that is stored already.
    pub(super) fn store(&mut self, write: &Write) -> Result<Revision, StoreError> {
        let revision = self.history.head.revision;
        if revision != write.expected() {
            let is_stored = self.holds(write);
            return if is_stored { Ok(write.result()) } else { Err(self.conflict(write)) };
        }
        let is_repeated_commit = self.open.is_none()
            && write.close() == Some(Close::Commit)
            && write.result() == revision;
        if is_repeated_commit {
            return Ok(revision);
        }
        if !self.lets_write(write) {
            return Err(self.conflict(write));
        }
        write.check_range(LAST_SEQUENCE)?;
        if let Some(claim) = write.claims().iter().find(|claim| !self.admits(claim)) {
            return Err(StoreError::Claimed { key: write.key().clone(), call: claim.call });
        }
        match write.as_staged() {
            Some(staged) => self.stage(write, staged),
            None => {
                self.history.apply(write);
                self.put_tools(write.tools().iter().cloned());
            }
        }
        self.directory.apply(write);
        Ok(write.result())
    }

    fn conflict(&self, write: &Write) -> StoreError {
        let found = self.history.head.revision;
        let open = self.open.as_ref().map(|open| open.run.run);
        Box::new(Conflict::new(write.key().clone(), write.expected(), found).with_open_run(open))
            .into()
    }

    /// Returns whether the messages of a write are already stored at the position that the write
    /// expects. A write without messages counts as stored until the next write.
    fn holds(&self, write: &Write) -> bool {
        let revision = self.history.head.revision;
        if write.messages().is_empty() {
            return revision == write.result();
        }
        revision.incarnation == write.result().incarnation
            && self
                .message(write.expected().sequence.saturating_add(1))
                .is_some_and(|message| message.id == Some(write.id()))
    }

    /// Returns whether the open run, if there is one, admits the write.
    fn lets_write(&self, write: &Write) -> bool {
        match (&self.open, write.as_staged()) {
            (None, None) => true,
            (None, Some(staged)) => !matches!(staged.close, Some(Close::Discard { .. })),
            (Some(_), None) => false,
            (Some(open), Some(staged)) => open.run.admits(write.run(), staged),
        }
    }

    fn admits(&self, claim: &Claim) -> bool {
        match self.tools.get(&claim.call) {
            Some(row) => {
                row.status == ToolStatus::PendingApproval && row.started_at == claim.started_at
            }
            None => claim.started_at.is_none(),
        }
    }

    fn stage(&mut self, write: &Write, staged: &Staged) {
        let visible = self.last_visible();
        let held = self.numbers_to(write.result().sequence);
        let open = self.open.get_or_insert_with(|| Open {
            run: OpenRun::new(write.run(), staged.lease, visible),
            messages: Vec::new(),
            tools: BTreeMap::new(),
        });
        open.run.apply(staged);
        open.messages.extend(write.messages().iter().cloned());
        let mut seen = Vec::new();
        for row in write.tools().iter().filter(|row| held.contains(&row.call.sequence)) {
            if row.call.sequence <= visible {
                seen.push(row.clone());
            } else {
                open.tools.insert(row.call, row.clone());
            }
        }
        self.put_tools(seen);
        self.history.head.revision = write.result();
        match staged.close {
            Some(Close::Commit) => self.commit(),
            Some(Close::Discard { .. }) => self.open = None,
            None => {}
        }
        self.history.head.open_run = self.open.as_ref().map(|open| open.run.clone());
    }

    fn commit(&mut self) {
        let Some(Open { run, messages, tools }) = self.open.take() else { return };
        self.history.extend(messages);
        self.put_tools(tools.into_values());
        match run.service_id {
            Some(ServiceIdChange::Set(id)) => self.history.head.service_id = Some(id),
            Some(ServiceIdChange::Clear) => self.history.head.service_id = None,
            None => {}
        }
    }

    fn put_tools(&mut self, rows: impl IntoIterator<Item = ToolRecord>) {
        let held = self.numbers_to(self.last_visible());
        for row in rows.into_iter().filter(|row| held.contains(&row.call.sequence)) {
            if row.status == ToolStatus::PendingApproval {
                self.pending_approvals.insert(row.call);
            } else {
                self.pending_approvals.remove(&row.call);
            }
            self.tools.insert(row.call, row);
        }
    }

    /// Returns whether the conversation is visible to readers.
    pub(super) fn is_visible(&self) -> bool {
        !self.history.messages.is_empty() || self.history.head.service_id.is_some()
    }

    pub(super) fn open_run(&self) -> Option<&OpenRun> {
        self.open.as_ref().map(|open| &open.run)
    }

    pub(super) fn open_run_content(&self) -> Option<OpenRunContent> {
        let open = self.open.as_ref()?;
        Some(OpenRunContent::new(
            self.history.head.clone(),
            open.run.clone(),
            open.messages.clone(),
            open.tools.values().cloned().collect(),
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
            Some(staged) => {
                self.open.as_ref()?.messages.get(usize::try_from(staged).ok()?).cloned()
            }
        }
    }
}

/// Iterates over the rows that match a query, in order, with their conversations.
pub(super) fn asked_for<'a>(
    conversations: &'a BTreeMap<ConversationKey, Stored>,
    query: &'a InvocationQuery,
) -> impl Iterator<Item = (&'a ConversationKey, &'a Stored, &'a ToolRecord)> {
    let first = ConversationKey::new(&*query.scope, query.conversation.as_deref().unwrap_or(""));
    let is_asked_for = |key: &ConversationKey| {
        query.conversation.as_ref().is_none_or(|conversation| conversation == key.id())
    };
    conversations
        .range(first..)
        .take_while(move |(key, _)| key.scope() == query.scope && is_asked_for(key))
        .flat_map(|(key, stored)| stored.tools.values().map(move |record| (key, stored, record)))
        .filter(|(_, _, record)| query.fits(record))
}
