//! The cached state of one conversation.

use std::{sync::Arc, time::Instant};

use tower_chat_core::{
    Message, Messages, ToolStatus,
    store::{
        Head, History, HistorySummary,
        author::{Changes, LoadFrom, Write},
    },
};

use crate::weight;

/// The state of a conversation as it was read from the inner store. All writes that were
/// acknowledged since then are applied to this state.
#[derive(Debug, Clone)]
pub(crate) struct Cached {
    head: Head,
    /// Whether the head contains the pending approvals.
    knows_approvals: bool,
    /// Whether the head contains the summary in force; false after a summary was added or removed.
    knows_summary: bool,
    /// The summary in force, if it was read.
    summary: Option<Arc<HistorySummary>>,
    /// The visible history, or a loaded part of it, if it is known. The head inside the history may
    /// be outdated.
    history: Option<History>,
    /// The staged messages of the open run, if all of them are known.
    staged: Option<StagedMessages>,
    /// The estimated size in bytes.
    bytes: u64,
    /// The time of the last read of the inner store.
    pub(crate) read: ReadAt,
}

/// The time of a read of the inner store, measured before the read begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ReadAt {
    /// The number of reads and lookups in the whole cache before this one.
    pub(crate) tick: u64,
    pub(crate) time: Instant,
}

#[derive(Debug, Clone, Default)]
struct StagedMessages {
    messages: Vec<Arc<Message>>,
    /// Whether a call in these messages waits, or has waited, for approval.
    has_approvals: bool,
}

impl Cached {
    /// Creates the cached state from a head. If no message is visible, the history is known to be
    /// empty.
    pub(crate) fn of_head(head: &Head, read: ReadAt) -> Self {
        let history = (visible(head) == 0).then(|| History::new(head.clone(), Messages::new()));
        Self {
            head: head.clone(),
            knows_approvals: true,
            knows_summary: true,
            summary: None,
            history,
            staged: None,
            bytes: weight::CONVERSATION,
            read,
        }
    }

    /// Creates the cached state from a loaded history, whose head need not contain the pending
    /// approvals.
    pub(crate) fn of_history(history: &History, read: ReadAt) -> Self {
        Self {
            head: history.head.clone(),
            knows_approvals: false,
            knows_summary: true,
            summary: None,
            history: Some(history.clone()),
            staged: None,
            bytes: weight::CONVERSATION
                + weight::of_messages(history.leading.iter())
                + weight::of_messages(history.messages.iter()),
            read,
        }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the head, if its pending approvals and its summary are known.
    pub(crate) fn head(&self) -> Option<Head> {
        (self.knows_approvals && self.knows_summary).then(|| self.head.clone())
    }

    pub(crate) fn covers(&self, from: Option<&LoadFrom>) -> bool {
        self.history.as_ref().is_some_and(|history| covers(history, &self.head, from))
    }

    /// Returns the history or its part, if its messages and the summary in force are known.
    pub(crate) fn history(&self) -> Option<History> {
        let history = self.history.as_ref().filter(|_| self.knows_summary);
        history.map(|history| with_head(history, &self.head))
    }

    pub(crate) fn summary(&self, id: u64) -> Option<&HistorySummary> {
        let summary = self.summary.as_deref().filter(|_| self.knows_summary);
        summary.filter(|summary| summary.id == id)
    }

    /// Returns the history or its part with a head that was just read, if the visible messages have
    /// not changed.
    pub(crate) fn history_at(&self, head: &Head) -> Option<History> {
        if !is_same_history(&self.head, head) {
            return None;
        }
        self.history.as_ref().map(|history| with_head(history, head))
    }

    /// Returns the cached state after a head was read.
    pub(crate) fn with_head(&self, head: &Head, read: ReadAt) -> Self {
        let is_same = is_same_history(&self.head, head);
        if !is_same || self.history.is_none() {
            return Self::of_head(head, read);
        }
        let stays_open = self.head.revision == head.revision && self.head.open_run == head.open_run;
        let read_again = Self {
            head: head.clone(),
            knows_approvals: true,
            knows_summary: true,
            summary: None,
            history: self.history.clone(),
            staged: self.staged.clone().filter(|_| stays_open),
            bytes: self.bytes_without_summary(),
            read,
        };
        read_again.with_summary(self.summary.as_ref())
    }

    /// Returns the cached state after a summary was read. If `summary` is not the summary in force,
    /// the state does not change.
    pub(crate) fn with_summary(mut self, summary: Option<&Arc<HistorySummary>>) -> Self {
        let in_force = self.head.summary.filter(|_| self.knows_summary);
        if let Some(summary) = summary.filter(|it| Some(it.in_force()) == in_force) {
            self.bytes = self.bytes_without_summary() + weight::of_summary(summary);
            self.summary = Some(summary.clone());
        }
        self
    }

    /// Returns the cached state without the summary in force, because another summary may be in
    /// force now. The next lookup reads the head.
    pub(crate) fn without_summary(mut self) -> Self {
        self.bytes = self.bytes_without_summary();
        self.summary = None;
        self.knows_summary = false;
        self
    }

    fn bytes_without_summary(&self) -> u64 {
        let summary = self.summary.as_deref().map_or(0, weight::of_summary);
        self.bytes.saturating_sub(summary)
    }

    /// Returns the cached state after a history was loaded. Keeps the known pending approvals if
    /// the head has not changed.
    pub(crate) fn with_history(&self, history: &History, read: ReadAt) -> Self {
        let mut loaded = Self::of_history(history, read);
        let own = self.head.clone().with_pending_approvals(Vec::new());
        if own == history.head.clone().with_pending_approvals(Vec::new()) {
            loaded.knows_approvals = self.knows_approvals;
            loaded.head.pending_approvals.clone_from(&self.head.pending_approvals);
        }
        loaded.with_summary(self.summary.as_ref())
    }

    /// Applies writes. Returns false if the state after the writes cannot be computed. The caller
    /// must then drop this value.
    pub(crate) fn apply<'a>(&mut self, writes: impl IntoIterator<Item = &'a Write>) -> bool {
        writes.into_iter().all(|write| self.apply_one(write).is_some())
    }

    fn apply_one(&mut self, write: &Write) -> Option<()> {
        let head = &mut self.head;
        if head.revision != write.expected() {
            return None;
        }
        if head.has_committed(write) {
            return Some(());
        }
        if !head.admits(write) {
            return None;
        }
        let opens = head.open_run.is_none();
        let changes = Changes::of(head, write);
        head.advance(&changes);
        self.bytes += weight::of_messages(write.messages());
        self.notice_rows(write);
        match (write.as_staged(), &mut self.history) {
            (Some(_), _) => self.stage(write, &changes, opens),
            (None, Some(history)) => history.extend(write.messages().iter().cloned()),
            (None, None) => {}
        }
        Some(())
    }

    /// Marks the pending approvals as unknown if the rows of a write may change them.
    fn notice_rows(&mut self, write: &Write) {
        if write.tools().is_empty() {
            return;
        }
        if !self.head.pending_approvals.is_empty() || has_approvals(write) {
            self.forget_approvals();
        }
    }

    /// Updates the staged and the visible messages after a staged write. `opens` is true for the
    /// first write of an open run.
    fn stage(&mut self, write: &Write, changes: &Changes, opens: bool) {
        if opens {
            self.staged = Some(StagedMessages::default());
        }
        if let Some(known) = &mut self.staged {
            known.messages.extend(write.messages().iter().cloned());
            known.has_approvals |= has_approvals(write);
        }
        if changes.discards_after.is_some() {
            let discarded = self.staged.take().unwrap_or_default();
            let bytes = weight::of_messages(&discarded.messages);
            self.bytes = self.bytes.saturating_sub(bytes);
        } else if changes.open_run.is_none() {
            self.commit();
        }
    }

    fn commit(&mut self) {
        match (self.staged.take(), &mut self.history) {
            (Some(staged), history) => {
                if let Some(history) = history {
                    history.extend(staged.messages);
                }
                if staged.has_approvals {
                    self.forget_approvals();
                }
            }
            (None, _) => {
                self.history = None;
                self.forget_approvals();
            }
        }
    }

    fn forget_approvals(&mut self) {
        self.knows_approvals = false;
        self.head.pending_approvals.clear();
    }
}

fn visible(head: &Head) -> u64 {
    head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible)
}

/// Returns whether the same messages are visible with both heads of a conversation: the heads must
/// have the same incarnation and the same number of visible messages. Within one incarnation,
/// visible messages are only added.
pub(crate) fn is_same_history(one: &Head, other: &Head) -> bool {
    one.revision.incarnation == other.revision.incarnation && visible(one) == visible(other)
}

/// Returns whether a history, or a part of it, contains all messages that a load returns from a
/// conversation with this head. Without `from`, a load returns the whole history.
pub(crate) fn covers(history: &History, head: &Head, from: Option<&LoadFrom>) -> bool {
    let has_part = |from: &LoadFrom| {
        let leading = from.leading.saturating_sub(head.pruned);
        head.load_from.as_deref() == Some(from)
            && history.skipped() <= from.after
            && history.leading.len() as u64 == leading
    };
    history.is_whole() || from.is_some_and(has_part)
}

pub(crate) fn with_head(history: &History, head: &Head) -> History {
    let mut history = history.clone();
    history.head = head.clone();
    history
}

fn has_approvals(write: &Write) -> bool {
    write.tools().iter().any(|row| row.status == ToolStatus::PendingApproval)
}
