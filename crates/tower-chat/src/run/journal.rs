//! Journaled runs: what is staged, when, and how the run is closed.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    Answer, Message, MessageId, Role, ToolInvocation, ToolResult, ToolStatus,
    store::{
        Close, Lease, OpenRunContent, RecordedResult, SequencePosition, ServiceIdChange, Slot,
        Staged, StoreError, ToolRecord, Write,
    },
};

use super::{
    Run, Shared, State, Submission, answers_approvals,
    finish::{last_response, mark_results, take_trailing_results},
    missing_results::missing_results,
    partial_text::{PartialText, partial_message},
    record::calls_without_arguments,
    service_call::ToStore,
    submission::FailedSubmission,
};
use crate::{
    PersistenceError, StoreFailure,
    policy::{OnDisconnect, RunEnd, UnknownCalls},
    tool::{CallOfRun, ResultSource, ToolOutcome, ToolReport},
};

/// What a journaled run knows of what it has staged.
#[derive(Debug)]
pub(super) struct Journal {
    lease: Lease,
    length: Duration,
    /// Nothing was written under this lease yet.
    is_first: bool,
    /// Somebody renews the lease.
    is_kept: bool,
    /// How many messages of the conversation readers see.
    pub(super) visible: u64,
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
    /// What is staged, as it is stored, where the commit leaves uncited sources out of it.
    pub(super) staged: Vec<Arc<Message>>,
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

/// What an earlier attempt at a run has left of its last round, for the tool loop to go on with.
#[derive(Debug, Clone, Default)]
pub(crate) struct InterruptedRun {
    /// The last response, if its calls have no results among the messages yet.
    pub(crate) response: Vec<Arc<Message>>,
    /// What is known of the calls in it.
    pub(crate) calls: HashMap<CallOfRun, CallOutcome>,
    /// How many rounds the run has had, that of the response included, in whatever mode.
    pub(crate) rounds: usize,
    /// How many tool calls the run has started before this round.
    pub(crate) tool_calls: usize,
}

/// What the journal knows of a call.
#[derive(Debug, Clone)]
pub(crate) enum CallOutcome {
    NeverStarted,
    /// It may or may not have run.
    Started(Option<SystemTime>),
    /// The same of one that cannot run again, since its arguments were not kept. Without a time
    /// it was never started.
    WithoutArguments(Option<SystemTime>),
    Finished(Box<(ToolResult, ToolReport)>),
}

impl Journal {
    pub(super) fn new(holder: u64, length: Duration, now: SystemTime, visible: u64) -> Self {
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
            staged: Vec::new(),
            unanswered: BTreeMap::new(),
            interrupted: None,
        }
    }

    /// The journal of a run that is taken up again, under the next attempt. `visible` of its
    /// messages are part of the history already, since another attempt has stored them so.
    pub(super) fn resuming(
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
        journal.staged.clone_from(&content.messages);
        journal.input = match visible {
            0 => input_of(&content.messages, own),
            _ => own.len().saturating_sub(visible).min(content.messages.len()),
        };
        journal.visible_before = visible;
        journal.read_again(content);
        journal
    }

    /// Takes note of what the run's rows say now.
    pub(super) fn read_again(&mut self, content: &OpenRunContent) {
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
    pub(super) fn with_deferred(mut self, deferred: Vec<ToolRecord>) -> Self {
        self.deferred = deferred;
        self
    }

    /// How many of the messages that an earlier attempt has staged are the run's input.
    pub(super) fn input(&self) -> usize {
        self.input
    }

    /// How many messages of the run were part of the history before it was staged.
    pub(super) fn visible_before(&self) -> usize {
        self.visible_before
    }

    /// A call was cut off after this text. The next write keeps it, which is the one that leaves
    /// the run.
    pub(super) fn keep_partial_text(&mut self, text: Arc<str>) {
        self.partial_text.keep(text);
    }

    /// A call was answered.
    pub(super) fn forget_partial_text(&mut self) {
        self.partial_text.forget();
    }

    pub(super) fn is_open(&self) -> bool {
        self.stage == Stage::Open
    }

    fn renew(&mut self, now: SystemTime) {
        self.lease.renewed_at = now;
        self.lease.until = until(now, self.length);
    }

    /// A write as one of this run.
    pub(super) fn stage(
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

    fn staged(
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

/// How many of the staged messages are the run's input. A request that is sent again says so; one
/// that only names the run does not, and then the input is what comes before the first answer.
pub(super) fn input_of(staged: &[Arc<Message>], own: &[Arc<Message>]) -> usize {
    if own.is_empty() {
        staged.iter().take_while(|message| message.role != Role::Assistant).count()
    } else {
        own.len().min(staged.len())
    }
}

impl InterruptedRun {
    fn of(content: &OpenRunContent, input: usize) -> Self {
        let messages = &content.messages;
        let added = messages.get(input..).unwrap_or_default();
        let is_response = |message: &&Arc<Message>| message.role == Role::Assistant;
        let last = added.iter().rev().take_while(is_response).count();
        let response = added.get(added.len() - last..).unwrap_or_default().to_vec();
        let message_of = |position: SequencePosition| {
            let index = position.sequence.checked_sub(content.open.visible + 1)?;
            messages.get(usize::try_from(index).ok()?)?.id
        };
        let of_response: HashSet<MessageId> =
            response.iter().filter_map(|response| response.id).collect();
        let mut calls = HashMap::new();
        let mut tool_calls = 0;
        for row in &content.tools {
            let Some(message) = message_of(row.call) else { continue };
            if of_response.contains(&message) {
                calls.insert((message, row.call.index as usize), CallOutcome::of(row));
            } else if row.started_at.is_some() || row.status == ToolStatus::RejectedArguments {
                tool_calls += 1;
            }
        }
        for message in &response {
            for index in calls_without_arguments(message) {
                let of_run = message.id.map(|message| (message, index));
                if let Some(known) = of_run.and_then(|call| calls.get_mut(&call)) {
                    known.lose_arguments();
                }
            }
        }
        Self { response, calls, rounds: 0, tool_calls }
    }
}

impl CallOutcome {
    pub(crate) fn lose_arguments(&mut self) {
        match self {
            Self::NeverStarted => *self = Self::WithoutArguments(None),
            Self::Started(started_at) => *self = Self::WithoutArguments(*started_at),
            Self::WithoutArguments(_) | Self::Finished(..) => {}
        }
    }

    /// What the record knows of a call that waits for approval and was begun. Its status says no
    /// more than that it waits.
    pub(super) fn of_waiting(call: ToolInvocation) -> Self {
        let Some(result) = call.result else { return Self::Started(call.started_at) };
        let status = match (call.started_at, result.is_error) {
            // Its stored arguments are not those that were approved.
            (None, _) => ToolStatus::RejectedArguments,
            (Some(_), true) => ToolStatus::Error,
            (Some(_), false) => ToolStatus::Ok,
        };
        let report = ToolReport {
            status,
            error: call.error,
            started_at: call.started_at,
            finished_at: call.finished_at,
            source: ResultSource::Record,
        };
        Self::Finished(Box::new((result, report)))
    }

    fn of(row: &ToolRecord) -> Self {
        match &row.result {
            RecordedResult::Apart(result) => {
                let report = ToolReport {
                    status: row.status,
                    error: row.error.clone(),
                    started_at: row.started_at,
                    finished_at: row.finished_at,
                    source: ResultSource::Record,
                };
                Self::Finished(Box::new(((**result).clone(), report)))
            }
            RecordedResult::None | RecordedResult::InMessage(_) => match row.started_at {
                Some(_) => Self::Started(row.started_at),
                None => Self::NeverStarted,
            },
        }
    }
}

impl Run {
    /// Whether it is staged as it goes.
    pub(crate) fn is_journaled(&self) -> bool {
        self.0.mode == crate::PersistenceMode::Journaled && !self.is_written_at_end()
    }

    /// Whether an open run was taken up that an earlier attempt has left.
    pub(crate) fn is_resumed(&self) -> bool {
        self.state().journal.as_ref().is_some_and(|journal| journal.lease.attempt > 1)
    }

    /// The position by which every attempt knows a call: a hook may have kept calls before it out of
    /// the journal. `None` for a call that was kept out itself; no other attempt knows of that one.
    pub(crate) fn position_across_attempts(
        &self,
        (message, index): CallOfRun,
    ) -> Option<CallOfRun> {
        if !self.is_journaled() {
            return Some((message, index));
        }
        let stored = self.state().stored_position((message, index))?;
        Some((message, stored.call.index as usize))
    }

    /// What becomes of calls that may or may not have run.
    pub(crate) fn unknown_calls(&self) -> UnknownCalls {
        self.policy().journal.unknown_calls.clone()
    }

    /// What happens when a write fails. A journal that is not durable is none.
    pub(super) fn store_failure(&self) -> StoreFailure {
        if self.is_journaled() { StoreFailure::FailCall } else { self.policy().store_failure }
    }

    /// What an earlier attempt at the run has left, once, and what it has used of the run's limits.
    pub(crate) fn take_interrupted(&self) -> Option<InterruptedRun> {
        let mut state = self.state();
        let rounds = state.recorder.rounds_before;
        let tool_calls = state.tool_calls_before;
        let staged = state.journal.as_mut().and_then(|journal| {
            let mut interrupted = journal.interrupted.take()?;
            // Approved calls whose results are staged.
            let started = journal.deferred.iter().filter(|row| row.started_at.is_some());
            interrupted.tool_calls += started.count();
            Some(interrupted)
        });
        let mut interrupted = match staged {
            None if rounds == 0 => return None,
            staged => staged.unwrap_or_default(),
        };
        interrupted.rounds = rounds;
        interrupted.tool_calls += tool_calls;
        Some(interrupted)
    }

    /// Takes the run over from an earlier attempt, and waits until that one can write no more.
    pub(super) async fn take_over(&self) -> Result<TakenOver, PersistenceError> {
        let slot = self.reserve().await?;
        let submission = self.stage_lease(Some(slot), |_| {});
        let taken = TakenOver(Some(self.clone()));
        match self.settled(submission).await {
            Ok(()) => Ok(taken),
            Err(error) => {
                taken.go_on();
                Err(error)
            }
        }
    }

    /// Stages the run's input, before the model is paid.
    pub(crate) async fn stage_input(
        &self,
        slot: Result<Slot, StoreError>,
        input: Vec<Arc<Message>>,
    ) -> Result<(), PersistenceError> {
        let submission = {
            let mut state = self.state();
            let submission = self.submit(&mut state, slot, ToStore::messages(input.clone())).0;
            input.iter().for_each(|message| state.replay.push(message));
            submission
        };
        self.settled(submission).await
    }

    /// Whether what becomes of a call is made durable before its result is part of a message: of
    /// every call in a journal, elsewhere of one that an earlier run had asked for and that waited
    /// for approval. That one is known whatever becomes of this run.
    pub(crate) fn notes(&self, (message, _): CallOfRun) -> bool {
        self.is_journaled() || message.run != self.id()
    }

    /// Makes durable that calls are about to run. Those that waited for approval are claimed: of
    /// several who try, one may go on.
    ///
    /// # Errors
    ///
    /// If it could not be stored, or somebody else has claimed one; no tool may run then.
    pub(crate) async fn note_starts(&self, calls: &[CallOfRun]) -> Result<(), PersistenceError> {
        let mut starts: Vec<_> = calls.iter().filter(|call| self.notes(**call)).copied().collect();
        starts.retain(|call| !self.state().is_started(*call));
        if starts.is_empty() {
            return Ok(());
        }
        let slot = self.reserve_beside().await?;
        let submission = {
            let mut state = self.state();
            self.submit(&mut state, slot, ToStore { starts, ..ToStore::default() }).0
        };
        self.settled(submission).await
    }

    /// Makes durable what the model is told of the calls of a round of which none runs: an attempt
    /// with other tools must not run them after all.
    ///
    /// # Errors
    ///
    /// If it could not be stored.
    pub(crate) async fn note_refused(
        &self,
        refused: Vec<ToolOutcome>,
    ) -> Result<(), PersistenceError> {
        let mut outcomes = self.of_this_journal(refused);
        outcomes.retain(|(.., report)| report.source != ResultSource::Record);
        if outcomes.is_empty() {
            return Ok(());
        }
        let slot = self.reserve_beside().await?;
        let to_store = ToStore { outcomes, ..ToStore::default() };
        let submission = self.submit(&mut self.state(), slot, to_store).0;
        self.settled(submission).await
    }

    /// Those of the outcomes that a journal holds: an approved call of an earlier run that was not
    /// run goes on waiting, as in the other modes.
    fn of_this_journal(&self, mut outcomes: Vec<ToolOutcome>) -> Vec<ToolOutcome> {
        outcomes.retain(|(call, ..)| self.is_journaled() && call.0.run == self.id());
        outcomes
    }

    /// Makes durable what came out of a call, and that another is about to run. A caller who goes
    /// away before the store has room for it loses nothing.
    ///
    /// Where the tool has ended the run, the commit rides on the same write, since nothing else
    /// would tell a later attempt that it was the end; `beside` are the outcomes of calls of the
    /// round that were not run, which a journal holds with the first outcome.
    ///
    /// # Errors
    ///
    /// If it could not be stored.
    pub(crate) async fn note_outcome(
        &self,
        outcome: ToolOutcome,
        beside: Vec<ToolOutcome>,
        next: Option<CallOfRun>,
        ends_run: bool,
    ) -> Result<(), PersistenceError> {
        let (call, ..) = outcome;
        if !self.notes(call) {
            return Ok(());
        }
        // Results that are kept come with their message, and those of approved calls always.
        let is_left_out = call.0.run == self.id() && !self.policy().keep_trailing_results;
        let closes = ends_run && is_left_out && self.is_journaled();
        let outcomes = self.of_this_journal(beside).into_iter().chain([outcome]).collect();
        let close = closes.then_some(Close::Commit);
        let to_store = ToStore { outcomes, close, ends_run: closes, ..ToStore::default() };
        let mut pending = PendingOutcome(self, Some(to_store));
        let slot = self.reserve_beside().await;
        let to_store = pending.1.take().unwrap_or_default();
        // A claim fails by itself: an outcome that went with it would be lost for it.
        let (claim, start): (Vec<_>, Vec<_>) =
            next.into_iter().partition(|next| next.0.run != self.id());
        let to_store = ToStore { starts: start, ..to_store };
        let submission = self.submit(&mut self.state(), slot?, to_store).0;
        self.settled(submission).await?;
        self.note_starts(&claim).await
    }

    /// A slot in the store's queue for a write besides that of the run itself, which holds its own all along if it is
    /// written at its end: waiting for another one it could wait for itself.
    async fn reserve_beside(&self) -> Result<Result<Slot, StoreError>, PersistenceError> {
        match self.is_written_at_end() {
            true => Ok(Ok(Slot::unbounded())),
            false => self.reserve().await,
        }
    }

    /// The run has its final answer: everything staged becomes part of the history, if that has
    /// not happened with the answer itself. Results at its end that no service call has seen are in
    /// the record alone, unless the policy keeps them.
    ///
    /// `before` of the answer's messages are of an earlier attempt.
    pub(crate) async fn commit(
        &self,
        answer: &Answer,
        before: usize,
    ) -> Result<(), PersistenceError> {
        let mut submission = {
            let mut state = self.state();
            if !state.journal.as_ref().is_some_and(Journal::is_open) {
                return Ok(());
            }
            let mut messages = self.not_taken(&state, &answer.messages);
            let mut left_out = if self.policy().keep_trailing_results {
                Vec::new()
            } else {
                let stored = state.added.len();
                let mut all: Vec<_> = state.added.iter().chain(&messages).cloned().collect();
                let left_out = take_trailing_results(&mut all);
                messages = all.split_off(stored.min(all.len()));
                left_out
            };
            let close = Some(Close::Commit);
            let ends_run = true;
            mark_results(&mut left_out);
            let last_response = last_response(&answer.messages, before);
            let to_store = ToStore {
                messages,
                left_out,
                close,
                ends_run,
                last_response,
                ..ToStore::default()
            };
            self.submit(&mut state, Ok(Slot::unbounded()), to_store).0
        };
        match submission.outcome().await {
            Ok(_) => Ok(()),
            Err(failed) => Err(self.not_stored(failed, Some(answer.clone()))),
        }
    }

    /// Takes back what a journaled run has staged, if that is no more than its input: the run was
    /// refused before anything came of it. Left open, it would be resumed before every later
    /// request, and refused again. Outcomes of calls of earlier runs stay in the record.
    ///
    /// That it could not be taken back is logged and no more: the refusal matters to the caller.
    pub(crate) async fn discard_input(&self) {
        let mut submission = {
            let mut state = self.state();
            let has_answer = state.added.iter().any(|message| message.role == Role::Assistant);
            let visible = match &state.journal {
                Some(journal) if journal.is_open() && !has_answer => journal.visible,
                Some(_) | None => return,
            };
            let close = Some(Close::Discard { visible });
            let to_store = ToStore { close, ..ToStore::default() };
            self.submit(&mut state, Ok(Slot::unbounded()), to_store).0
        };
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::warn!(
                conversation = %self.key(),
                error = &source as &dyn std::error::Error,
                "the input of a refused run could not be taken back, the run is open"
            );
        }
    }

    /// Notes that nobody works on the run any more, so that it can be taken up at once, or ends it
    /// by the policy if its caller is gone. It is a submission, for where nothing can be awaited.
    ///
    /// In per-service-call mode what is kept of an answer that was cut off becomes part of the
    /// history.
    pub(crate) fn leave(&self, cause: LeaveCause) {
        self.submit_partial_response();
        let until = match (cause, self.policy().journal.on_disconnect) {
            (LeaveCause::Failed, _) => None,
            (LeaveCause::Disconnected, OnDisconnect::LeaveOpen) => Some(Lease::ABANDONED),
            // The results of approved calls are in the record, which cannot be read here: the next
            // run commits it.
            (LeaveCause::Disconnected, OnDisconnect::Commit) if self.has_open_decisions() => {
                Some(Lease::ABANDONED)
            }
            (LeaveCause::Disconnected, OnDisconnect::Commit) => {
                return drop(self.submit_end(RunEnd::Commit));
            }
            (LeaveCause::Disconnected, OnDisconnect::Discard) => {
                return drop(self.submit_end(RunEnd::Discard));
            }
        };
        drop(self.stage_lease(None, |journal| {
            journal.lease.until = until;
            journal.stage = Stage::Left;
        }));
    }

    /// Whether the run has staged decisions about approvals, and nothing that they have led to.
    fn has_open_decisions(&self) -> bool {
        let state = self.state();
        let is_input = |message: &&Arc<Message>| message.role == Role::User;
        let last = state.added.iter().rev().take_while(is_input);
        answers_approvals(last)
    }

    /// The number of this attempt at the run, if the run is open and the model has answered nothing
    /// in any attempt.
    pub(crate) fn unanswered_attempt(&self) -> Option<u32> {
        let state = self.state();
        let has_answers = state.added.iter().any(|message| message.role == Role::Assistant);
        let journal = state.journal.as_ref().filter(|journal| journal.is_open());
        journal.filter(|_| !has_answers).map(|journal| journal.lease.attempt)
    }

    /// Ends the run where it stands, if it is open. That it could not be ended is logged: the caller
    /// has an error to report already.
    pub(crate) async fn end(&self, end: RunEnd) {
        let mut submission = self.submit_end(end);
        if let Err(FailedSubmission { source, .. }) = submission.outcome().await {
            tracing::error!(
                conversation = %self.key(),
                error = &source as &dyn std::error::Error,
                "a run that was refused could not be ended: it stays open"
            );
        }
    }

    /// Submits the write that ends the run where it stands, if it is open.
    fn submit_end(&self, end: RunEnd) -> Submission {
        let now = self.0.clock.now();
        let mut state = self.state();
        let State { journal, revision, taken, recorder, history, pruned, .. } = &mut *state;
        let Some(journal) = journal.as_mut().filter(|journal| journal.is_open()) else {
            return Submission::nothing();
        };
        let id = MessageId { run: self.id(), index: u32::try_from(*taken).unwrap_or(u32::MAX) };
        let mut messages = Vec::new();
        let (close, rows) = match end {
            RunEnd::Discard => (Close::Discard { visible: journal.visible }, Vec::new()),
            RunEnd::Commit => {
                let calls = journal.unanswered.values();
                let id_of = |sequence: u64| {
                    let of_attempt = recorder.id_at(sequence);
                    let index = || usize::try_from(sequence.checked_sub(*pruned + 1)?).ok();
                    of_attempt.or_else(|| history.get(index()?)?.id)
                };
                let (results, rows) = missing_results(calls, revision.sequence + 1, id_of);
                messages.extend(results.map(Arc::new));
                let text = journal.partial_text.text();
                messages.extend(text.map(|text| Arc::new(partial_message(&text))));
                (Close::Commit, rows)
            }
        };
        let write = Write::new(self.key().clone(), id, *revision, messages);
        journal.renew(now);
        journal.lease.until = None;
        let write = journal.stage(write, rows, Some(close), None);
        *revision = write.result();
        let slot = Ok(Slot::unbounded().without_blocking());
        Submission::submit(self.store(), StoreFailure::FailCall, slot, vec![write])
    }

    /// Stages nothing but the lease, if the run is open.
    fn stage_lease(
        &self,
        slot: Option<Result<Slot, StoreError>>,
        change: impl FnOnce(&mut Journal),
    ) -> Submission {
        let now = self.0.clock.now();
        let mut state = self.state();
        let State { journal, revision, taken, .. } = &mut *state;
        let Some(journal) = journal.as_mut().filter(|journal| journal.is_open()) else {
            return Submission::nothing();
        };
        let id = MessageId { run: self.id(), index: u32::try_from(*taken).unwrap_or(u32::MAX) };
        let write = Write::new(self.key().clone(), id, *revision, []);
        journal.renew(now);
        change(journal);
        let write = journal.staged(write, Vec::new(), None, None);
        self.keep_lease(journal);
        *revision = write.result();
        let slot = slot.unwrap_or_else(|| Ok(Slot::unbounded().without_blocking()));
        Submission::submit(self.store(), StoreFailure::FailCall, slot, vec![write])
    }

    async fn settled(&self, mut submission: Submission) -> Result<(), PersistenceError> {
        match submission.outcome().await {
            Ok(_) => Ok(()),
            Err(FailedSubmission { source, unsaved }) => {
                Err(self.not_stored(FailedSubmission { source, unsaved }, None))
            }
        }
    }

    /// Renews the lease from the first write under it on, for as long as the run exists and is
    /// open.
    pub(super) fn keep_lease(&self, journal: &mut Journal) {
        if journal.is_kept || !journal.is_open() || journal.length.is_zero() {
            return;
        }
        journal.is_kept = true;
        let length = journal.length;
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let run: Weak<Shared> = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            loop {
                tokio::time::sleep(length / 3).await;
                let Some(run) = run.upgrade().map(Run) else { return };
                if !run.state().journal.as_ref().is_some_and(Journal::is_open) {
                    return;
                }
                // One that comes too late is the last; what else fails is the next one's business.
                let renewed = run.stage_lease(None, |_| {}).outcome().await;
                if let Err(FailedSubmission { source: StoreError::Conflict(_), .. }) = renewed {
                    return;
                }
            }
        });
    }
}

/// Why nobody works on an open run any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaveCause {
    /// It has failed.
    Failed,
    /// Its caller dropped it.
    Disconnected,
}

/// A run that was taken over. If the caller disconnects before the run goes on, it is left for a
/// later attempt.
#[must_use]
pub(super) struct TakenOver(Option<Run>);

impl TakenOver {
    pub(super) fn go_on(mut self) {
        self.0 = None;
    }

    pub(super) fn fail(mut self) {
        if let Some(run) = self.0.take() {
            run.leave(LeaveCause::Failed);
        }
    }
}

impl Drop for TakenOver {
    fn drop(&mut self) {
        if let Some(run) = self.0.take() {
            run.leave(LeaveCause::Disconnected);
        }
    }
}

/// What came out of a call, and whether the run ends with it, until it is submitted.
struct PendingOutcome<'a>(&'a Run, Option<ToStore>);

impl Drop for PendingOutcome<'_> {
    fn drop(&mut self) {
        let Self(run, to_store) = self;
        let Some(to_store) = to_store.take() else { return };
        let slot = Ok(Slot::unbounded().without_blocking());
        drop(run.submit(&mut run.state(), slot, to_store).0);
    }
}

impl State {
    fn is_started(&self, call: CallOfRun) -> bool {
        self.journal.as_ref().is_some_and(|journal| journal.started.contains(&call))
    }

    /// Takes note of starts that are about to be submitted.
    pub(super) fn note_started(&mut self, calls: &[CallOfRun]) {
        if let Some(journal) = &mut self.journal {
            journal.started.extend(calls);
        }
    }
}
