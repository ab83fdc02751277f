//! The state of a journaled run's staged messages, which are durable, but not yet part of the
//! history.

use std::{
    collections::{BTreeMap, HashSet},
    time::{Duration, SystemTime},
};

use tower_chat_core::store::{
    Lease, LeaseEnd, ServiceIdChange,
    author::{Close, OpenRunContent, RecordedResult, Staged, ToolRecord, Write},
};

use super::interrupted::InterruptedRun;
use crate::{run::partial_text::PartialText, tool::CallOfRun};

/// The state of a journaled run's staged messages.
#[derive(Debug)]
pub(in crate::run) struct Journal {
    pub(super) lease: Lease,
    /// How long the lease lasts after its last renewal. Zero if the lease does not expire.
    length: Duration,
    /// Whether the next write is the first write of this attempt.
    is_first: bool,
    /// Whether a task renews the lease.
    is_kept: bool,
    /// The number of messages of the conversation that are not staged.
    pub(in crate::run) visible: u64,
    stage: Stage,
    /// The number of messages at the beginning of an earlier attempt's staged messages that are the
    /// run's input.
    pub(in crate::run) input: usize,
    /// The number of the run's messages that were in the history before the run staged its first
    /// message.
    pub(in crate::run) visible_before: usize,
    /// The calls whose starts this attempt has staged.
    pub(in crate::run) started: HashSet<CallOfRun>,
    /// The rows of visible calls whose results are staged. Only the commit writes these rows,
    /// because readers cannot read the results before the commit.
    pub(in crate::run) deferred: Vec<ToolRecord>,
    pub(in crate::run) partial_text: PartialText,
    /// The rows of calls of this run whose results are not part of a message yet, by sequence
    /// number and index. A commit must add results for these calls.
    pub(in crate::run) unanswered: BTreeMap<(u64, u32), ToolRecord>,
    /// The state of an earlier attempt, until the tool loop takes it.
    interrupted: Option<InterruptedRun>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is staged yet.
    New,
    /// The run is open in the store, and this attempt works on the run.
    Open,
    Committed,
    /// The attempt has ended, and has left the run open for a later attempt.
    Left,
}

impl Journal {
    pub(in crate::run) fn new(
        holder: u64,
        length: Duration,
        now: SystemTime,
        visible: u64,
    ) -> Self {
        let lease = Lease { attempt: 1, holder, renewed_at: now, until: until(now, length) };
        Self {
            lease,
            length,
            is_first: true,
            is_kept: false,
            visible,
            stage: Stage::New,
            input: 0,
            visible_before: 0,
            started: HashSet::new(),
            deferred: Vec::new(),
            partial_text: PartialText::default(),
            unanswered: BTreeMap::new(),
            interrupted: None,
        }
    }

    /// Creates the journal of a new attempt. `input` is the number of staged messages that belong to
    /// the input of the run, and `visible` the number of the run's messages that an earlier attempt
    /// in another mode has already added to the history.
    pub(in crate::run) fn resuming(
        holder: u64,
        length: Duration,
        now: SystemTime,
        content: &OpenRunContent,
        input: usize,
        visible: usize,
    ) -> Self {
        let mut journal = Self::new(holder, length, now, content.open.visible);
        journal.lease.attempt = content.open.lease.attempt.saturating_add(1);
        journal.stage = Stage::Open;
        journal.partial_text = PartialText::stored(content.open.partial_text.as_ref());
        journal.input = input;
        journal.visible_before = visible;
        journal.read_again(content);
        journal
    }

    /// Replaces the state of the earlier attempt and the unanswered calls by those in `content`.
    pub(in crate::run) fn read_again(&mut self, content: &OpenRunContent) {
        self.interrupted = Some(InterruptedRun::of(content, self.input));
        self.unanswered.clear();
        self.note_rows(&content.tools);
    }

    fn note_rows(&mut self, rows: &[ToolRecord]) {
        for row in rows.iter().filter(|row| row.call.sequence > self.visible) {
            let position = (row.call.sequence, row.call.index);
            match row.result {
                RecordedResult::InMessage(_) => drop(self.unanswered.remove(&position)),
                RecordedResult::None | RecordedResult::Apart(_) => {
                    self.unanswered.insert(position, row.clone());
                }
            }
        }
    }

    pub(in crate::run) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    pub(in crate::run) fn is_in_store(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Left)
    }

    pub(super) fn renew(&mut self, now: SystemTime) {
        self.lease.renewed_at = now;
        self.lease.until = until(now, self.length);
    }

    pub(in crate::run) fn leave_until(&mut self, until: LeaseEnd) {
        self.lease.until = until;
        self.stage = Stage::Left;
    }

    /// Returns the interval at which the caller must renew the lease, and records that a task does
    /// so. Returns `None` if no task is needed.
    pub(super) fn begin_renewals(&mut self) -> Option<Duration> {
        if self.is_kept || !self.is_open() || self.length.is_zero() {
            return None;
        }
        self.is_kept = true;
        Some(self.length / 3)
    }

    /// Takes the state of the earlier attempt. The number of tool calls includes approved calls of
    /// earlier runs whose results are staged.
    pub(in crate::run) fn take_interrupted(&mut self) -> Option<InterruptedRun> {
        let mut interrupted = self.interrupted.take()?;
        let started = self.deferred.iter().filter(|row| row.started_at.is_some());
        interrupted.tool_calls += started.count();
        Some(interrupted)
    }

    /// Turns a write into a staged write that opens the run or leaves it open, or closes it as
    /// `close` requests.
    pub(in crate::run) fn stage(
        &mut self,
        write: Write,
        rows: Vec<ToolRecord>,
        close: Option<Close>,
        service_id: Option<ServiceIdChange>,
    ) -> Write {
        self.stage = match close {
            Some(Close::Commit | Close::Discard { .. }) => Stage::Committed,
            None => Stage::Open,
        };
        self.staged(write, rows, close, service_id)
    }

    /// Like [`stage`](Self::stage), but does not change the stage of the journal.
    pub(in crate::run) fn staged(
        &mut self,
        write: Write,
        mut rows: Vec<ToolRecord>,
        close: Option<Close>,
        service_id: Option<ServiceIdChange>,
    ) -> Write {
        match close {
            Some(Close::Commit) => rows.splice(..0, self.deferred.drain(..)).for_each(drop),
            Some(Close::Discard { .. }) | None => {
                let visible = self.visible;
                let is_deferred = |row: &ToolRecord| {
                    row.call.sequence <= visible
                        && matches!(row.result, RecordedResult::InMessage(position)
                            if position.sequence > visible)
                };
                self.deferred.extend(rows.extract_if(.., |row| is_deferred(row)));
            }
        }
        self.note_rows(&rows);
        let partial_text = self.partial_text.take_change();
        let staged = Staged { lease: self.lease, close, service_id, partial_text };
        let write = write.with_tools(rows).staged(staged);
        match std::mem::take(&mut self.is_first) {
            true => write.beginning_attempt(),
            false => write,
        }
    }
}

fn until(now: SystemTime, length: Duration) -> LeaseEnd {
    if length.is_zero() { LeaseEnd::NotHeld } else { LeaseEnd::At(now + length) }
}
