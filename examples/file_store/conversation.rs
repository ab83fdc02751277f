//! One conversation: the effect of a write, and the messages that readers see.

use std::{collections::BTreeMap, convert::Infallible, sync::Arc, time::SystemTime};

use tower_chat::{
    ApprovalRequest, ConversationKey, Message, MessageId, RunId, ToolStatus,
    store::{
        ConversationRows, ConversationSummary, Head, History, Keep, OpenRun, Pruned, Revision,
        Rewrite, RunSummary, SequencePosition, StoreError,
        author::{
            CallState, Decision, DirectoryEntry, LAST_SEQUENCE, Lookup, OpenRunContent,
            PendingBatches, Pruning, ToolRecord, Write, decide,
        },
    },
};

/// An existing conversation.
#[derive(Debug, Clone)]
pub(crate) struct Conversation {
    pub(crate) key: ConversationKey,
    pub(crate) incarnation: u64,
    /// The number of pruned messages before the first of `messages`.
    pub(crate) pruned: u64,
    pub(crate) service_id: Option<Arc<str>>,
    /// The messages, including staged ones.
    pub(crate) messages: Vec<Arc<Message>>,
    pub(crate) tools: BTreeMap<SequencePosition, ToolRecord>,
    pub(crate) open: Option<OpenRun>,
    /// The directory entry. `None` before the first write.
    pub(crate) directory: Option<DirectoryEntry>,
}

/// The change that makes a conversation durable.
#[derive(Debug)]
pub(crate) enum Change {
    /// No change: the write is stored already.
    None,
    /// Messages after this one, and rows of the record, were added.
    Grown { after: u64, tools: Vec<ToolRecord> },
    /// Messages or rows were removed or replaced.
    Cut,
}

impl Conversation {
    /// Creates a conversation that was never written.
    pub(crate) fn absent(key: ConversationKey) -> Self {
        Self {
            key,
            incarnation: 0,
            pruned: 0,
            service_id: None,
            messages: Vec::new(),
            tools: BTreeMap::new(),
            open: None,
            directory: None,
        }
    }

    pub(crate) fn revision(&self) -> Revision {
        let sequence = self.pruned + self.messages.len() as u64;
        Revision { incarnation: self.incarnation, sequence }
    }

    /// Returns the number of the last visible message.
    fn last_seen(&self) -> u64 {
        self.open.as_ref().map_or(self.revision().sequence, |open| open.visible)
    }

    pub(crate) fn is_seen(&self) -> bool {
        self.last_seen() > 0 || self.service_id.is_some()
    }

    pub(crate) fn message(&self, sequence: u64) -> Option<&Arc<Message>> {
        let position = sequence.checked_sub(self.pruned + 1)?;
        self.messages.get(usize::try_from(position).ok()?)
    }

    /// Returns the messages after the given number, with their numbers.
    pub(crate) fn messages_after(&self, last: u64) -> impl Iterator<Item = (u64, &Arc<Message>)> {
        (self.pruned + 1..).zip(&self.messages).skip_while(move |(sequence, _)| *sequence <= last)
    }

    /// Returns the visible rows of the record.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &ToolRecord> {
        let last = self.last_seen();
        self.tools.values().filter(move |row| row.call.sequence <= last)
    }

    pub(crate) fn head(&self) -> Head {
        Head::new(self.revision())
            .with_pruned(self.pruned)
            .with_service_id(self.service_id.clone())
            .with_open_run(self.open.clone())
    }

    /// Returns the approval requests of the pending calls, in one batch for each answer.
    pub(crate) fn pending_approvals(&self) -> Vec<Vec<ApprovalRequest>> {
        let mut batches = PendingBatches::default();
        for row in self.rows().filter(|row| row.status == ToolStatus::PendingApproval) {
            let SequencePosition { sequence, index } = row.call;
            let Some(message) = self.message(sequence) else { continue };
            if let Some(request) = message.approval_request(index) {
                batches.push(message, request.clone());
            }
        }
        batches.finish()
    }

    /// Returns the summary of the conversation for the directory.
    pub(crate) fn summary(&self) -> Option<ConversationSummary> {
        let head = self.head().with_pending_approvals(self.pending_approvals());
        self.directory.as_ref().map(|entry| entry.summary(self.key.clone(), &head))
    }

    /// Returns the runs of the conversation for the directory.
    pub(crate) fn runs(&self, after: Option<RunId>, limit: usize) -> Vec<RunSummary> {
        let open = self.open.as_ref().map(|open| open.run);
        self.directory.as_ref().map(|entry| entry.runs(after, limit, open)).unwrap_or_default()
    }

    pub(crate) fn history(&self) -> History {
        let last = self.last_seen();
        let seen = (self.pruned + 1..).zip(&self.messages);
        let seen = seen.take_while(|(sequence, _)| *sequence <= last);
        let mut history = History::empty();
        history.extend(seen.map(|(_, message)| message.clone()));
        history.head = self.head();
        history
    }

    pub(crate) fn open_run(&self) -> Option<OpenRunContent> {
        let open = self.open.clone()?;
        let messages = self.messages_after(open.visible).map(|(_, message)| message.clone());
        let rows = self.tools.values().filter(|row| row.call.sequence > open.visible);
        let (messages, rows) = (messages.collect(), rows.cloned().collect());
        Some(OpenRunContent::new(self.head(), open, messages, rows))
    }

    /// Applies a write if the conversation admits it, and returns the change.
    pub(crate) fn write(&mut self, write: &Write) -> Result<Change, StoreError> {
        let mut head = self.head();
        let Ok(decision) = decide(&head, write, LAST_SEQUENCE, &mut &*self);
        let changes = match decision {
            Decision::Store(changes) => changes,
            Decision::IsStored => return Ok(Change::None),
            Decision::Refuse(error) => return Err(error),
        };
        let after = head.revision.sequence;
        let rows = write.tools().iter();
        let rows = rows.filter(|row| changes.messages.contains(&row.call.sequence));
        let rows: Vec<ToolRecord> = rows.cloned().collect();
        self.tools.extend(rows.iter().map(|row| (row.call, row.clone())));
        match changes.discards_after {
            None => self.messages.extend(write.messages().iter().cloned()),
            Some(visible) => self.forget_after(visible),
        }
        head.advance(&changes);
        self.incarnation = head.revision.incarnation;
        self.service_id = head.service_id;
        self.open = head.open_run;
        self.directory.get_or_insert_with(|| DirectoryEntry::before(write)).apply(write);
        // The replaced rows are in earlier lines of the file, which would otherwise remain.
        Ok(match changes.discards_after {
            Some(_) => Change::Cut,
            None => Change::Grown { after, tools: rows },
        })
    }

    /// Removes the messages after the given number, with their rows.
    pub(crate) fn forget_after(&mut self, last: u64) {
        let left = last.saturating_sub(self.pruned);
        self.messages.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        self.tools.retain(|call, _| call.sequence <= last);
    }

    /// Returns a copy of the visible messages and rows, with another key and a new incarnation.
    pub(crate) fn fork(&self, key: ConversationKey) -> Self {
        let directory = self.directory.as_ref().map(|entry| entry.fork(SystemTime::now()));
        let tools = self.tools.iter().map(|(call, row)| (*call, row.clone().in_copy())).collect();
        let mut fork = Self { key, service_id: None, open: None, tools, directory, ..self.clone() };
        fork.incarnation = RunId::new().random_half().max(1);
        fork.forget_after(self.last_seen());
        fork
    }

    /// Returns all visible rows. A file that cannot be read is already detected when the store is
    /// opened.
    pub(crate) fn every_row(&self) -> ConversationRows {
        let history = self.history();
        let messages = history.numbered().map(|(number, it)| (number, Ok(it.clone()))).collect();
        let tools = self.rows().map(|row| (row.call, Ok(row.clone()))).collect();
        ConversationRows::new(history.head, messages, tools)
    }

    /// Replaces rows. If the rewrite fails, the caller drops this copy of the conversation.
    pub(crate) fn rewrite(&mut self, rewrite: &Rewrite) -> Result<Revision, StoreError> {
        let head = self.head();
        let revision = rewrite.check(&head)?;
        for (sequence, other) in &rewrite.messages {
            let index = sequence.checked_sub(self.pruned + 1).map(usize::try_from);
            let message = index.and_then(|index| self.messages.get_mut(index.ok()?));
            let message = message.ok_or_else(|| rewrite.missing(*sequence))?;
            let mut other = other.clone();
            other.id = message.id;
            *message = Arc::new(other);
        }
        self.tools.extend(rewrite.tools_of(&head).map(|row| (row.call, row.clone())));
        self.tools.retain(|call, _| !rewrite.removed_tools.contains(call));
        if let (Some(counts), Some(directory)) = (&rewrite.counts, &mut self.directory) {
            directory.recount(counts);
        }
        self.incarnation = revision.incarnation;
        Ok(revision)
    }

    /// Removes the oldest runs.
    pub(crate) fn prune(&mut self, keep: Keep) -> Result<Pruned, StoreError> {
        if let Some(open) = &self.open {
            return Err(StoreError::UnderWay { key: self.key.clone(), run: open.run });
        }
        let mut pruning = Pruning::new(&self.key, &self.head(), keep);
        for (sequence, message) in self.messages_after(0) {
            if let Some(id) = message.id {
                pruning.see_message(sequence, id.run);
            }
        }
        self.tools.values().for_each(|row| pruning.see_record(row));
        let cut = pruning.cut()?;
        if cut.last_sequence > 0 {
            self.incarnation = self.revision().pruned().incarnation;
            let left = self.messages_after(cut.last_sequence);
            self.messages = left.map(|(_, message)| message.clone()).collect();
            self.tools.retain(|call, _| call.sequence > cut.last_sequence);
            self.pruned = cut.last_sequence;
        }
        Ok(cut.pruned)
    }
}

impl Lookup for &Conversation {
    type Error = Infallible;

    fn message_id(&mut self, sequence: u64) -> Result<Option<MessageId>, Infallible> {
        Ok(self.message(sequence).and_then(|message| message.id))
    }

    fn call(&mut self, call: SequencePosition) -> Result<Option<CallState>, Infallible> {
        Ok(self.tools.get(&call).map(|row| CallState {
            waits_for_approval: row.status == ToolStatus::PendingApproval,
            started_at: row.started_at,
        }))
    }
}
