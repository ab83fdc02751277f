//! What a journaled run knows of what it has staged.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    Message,
    store::{
        Lease, ServiceIdChange,
        author::{Close, OpenRunContent, RecordedResult, Staged, ToolRecord, Write},
    },
};

use super::interrupted::{InterruptedRun, input_of};
use crate::{run::partial_text::PartialText, tool::CallOfRun};

/// What a journaled run knows of what it has staged.
#[derive(Debug)]
pub(in crate::run) struct Journal {
    lease: Lease,
    length: Duration,
    /// Nothing was written under this lease yet.
    is_first: bool,
    /// Somebody renews the lease.
    is_kept: bool,
    /// How many messages of the conversation readers see.
    pub(in crate::run) visible: u64,
    stage: Stage,
    /// How many messages at the beginning of what an earlier attempt has staged are its input.
    input: usize,
    /// How many messages of the run readers saw before it was staged.
    visible_before: usize,
    /// Calls whose start is staged.
    started: HashSet<CallOfRun>,
    /// Rows of calls in messages that readers see, whose result is staged: the commit writes
    /// them, since no reader could resolve them before.
    deferred: Vec<ToolRecord>,
    partial_text: PartialText,
    /// The calls of this run whose results are in no message yet, by their positions, as their
    /// rows say: what a commit in the middle of a round has to answer.
    unanswered: BTreeMap<(u64, u32), ToolRecord>,
    /// What an earlier attempt at the run has left, until the tool loop takes it.
    interrupted: Option<InterruptedRun>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Nothing is staged yet.
    New,
    Open,
    Committed,
    /// Left open, for a later attempt.
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

    /// The journal of a run that is taken up again, under the next attempt. `visible` of its
    /// messages are part of the history already, since another attempt has stored them so.
    pub(in crate::run) fn resuming(
        holder: u64,
        length: Duration,
        now: SystemTime,
        content: &OpenRunContent,
        own: &[Arc<Message>],
        visible: usize,
    ) -> Self {
        let mut journal = Self::new(holder, length, now, content.open.visible);
        journal.lease.attempt = content.open.lease.attempt.saturating_add(1);
        journal.stage = Stage::Open;
        journal.partial_text = PartialText::left(content.open.partial_text.as_ref());
        journal.input = match visible {
            0 => input_of(&content.messages, own),
            _ => own.len().saturating_sub(visible).min(content.messages.len()),
        };
        journal.visible_before = visible;
        journal.read_again(content);
        journal
    }

    /// Takes note of what the run's rows say now.
    pub(in crate::run) fn read_again(&mut self, content: &OpenRunContent) {
        self.interrupted = Some(InterruptedRun::of(content, self.input));
        self.unanswered.clear();
        self.note_rows(&content.tools);
    }

    /// Takes note of rows that are in the store or on the way there.
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

    /// With rows that the commit has to resolve.
    pub(in crate::run) fn with_deferred(mut self, deferred: Vec<ToolRecord>) -> Self {
        self.deferred = deferred;
        self
    }

    /// How many of the messages that an earlier attempt has staged are the run's input.
    pub(in crate::run) fn input(&self) -> usize {
        self.input
    }

    /// How many messages of the run were part of the history before it was staged.
    pub(in crate::run) fn visible_before(&self) -> usize {
        self.visible_before
    }

    /// A call was cut off after this text. The next write keeps it, which is the one that leaves
    /// the run.
    pub(in crate::run) fn keep_partial_text(&mut self, text: Arc<str>) {
        self.partial_text.keep(text);
    }

    /// A call was answered.
    pub(in crate::run) fn forget_partial_text(&mut self) {
        self.partial_text.forget();
    }

    pub(in crate::run) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    /// Whether the store has the run as an open one, whoever works on it.
    pub(in crate::run) fn is_in_store(&self) -> bool {
        matches!(self.stage, Stage::Open | Stage::Left)
    }

    /// The number of this attempt at the run.
    pub(super) fn attempt(&self) -> u32 {
        self.lease.attempt
    }

    pub(super) fn renew(&mut self, now: SystemTime) {
        self.lease.renewed_at = now;
        self.lease.until = until(now, self.length);
    }

    /// The run is left open until then, for a later attempt.
    pub(in crate::run) fn leave_until(&mut self, until: Option<SystemTime>) {
        self.lease.until = until;
        self.stage = Stage::Left;
    }

    /// The interval at which the lease has to be renewed from now on; `None` if it is renewed
    /// already, or need not be.
    pub(super) fn begin_renewals(&mut self) -> Option<Duration> {
        if self.is_kept || !self.is_open() || self.length.is_zero() {
            return None;
        }
        self.is_kept = true;
        Some(self.length / 3)
    }

    /// The rows of the calls of this run whose results are in no message yet, in their order.
    pub(in crate::run) fn unanswered(&self) -> impl Iterator<Item = &ToolRecord> {
        self.unanswered.values()
    }

    /// The text of an answer that was cut off, if it is kept.
    pub(in crate::run) fn partial_text(&self) -> Option<Arc<str>> {
        self.partial_text.text()
    }

    /// What an earlier attempt has left, once; approved calls whose results are staged count among
    /// its tool calls.
    pub(super) fn take_interrupted(&mut self) -> Option<InterruptedRun> {
        let mut interrupted = self.interrupted.take()?;
        let started = self.deferred.iter().filter(|row| row.started_at.is_some());
        interrupted.tool_calls += started.count();
        Some(interrupted)
    }

    /// Whether the start of a call is staged.
    pub(in crate::run) fn is_started(&self, call: CallOfRun) -> bool {
        self.started.contains(&call)
    }

    /// Takes note of starts that are about to be staged.
    pub(in crate::run) fn note_started(&mut self, calls: &[CallOfRun]) {
        self.started.extend(calls);
    }

    /// A write as one of this run.
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

    /// A write as one of this run, which neither opens nor closes it.
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

fn until(now: SystemTime, length: Duration) -> Option<SystemTime> {
    (!length.is_zero()).then(|| now + length)
}
