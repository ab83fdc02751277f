//! Determines which write follows each event of a run in each mode. Implements the table of
//! `docs/contract.md`.
//!
//! Each row of the table is a variant of [`Event`] and a function in this module. The comment of
//! the function begins with the name of the row in italics. Each column is an arm of the match in
//! that function. No function in this module awaits, reads a clock or accesses a store: [`apply`]
//! updates the run log and returns the write. `docs/run-events.md` lists the event of each row.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    EndedBy, Message, PersistenceMode, Role, ToolStatus,
    store::{LeaseEnd, author::Close},
};

use super::{
    calls::Attempt,
    complete::follows_open_calls,
    effect::{Effect, RunWrite},
    incomplete_commit::{IncompleteCommit, OfPriorCalls, incomplete_commit},
    last_answer::response_at_end,
    log::{Persister, RunLog},
    partial_text::partial_message,
    recording::Adopted,
    run_end::{mark_results, take_trailing_results},
};
use crate::{
    PersistencePolicy, UnansweredInputs,
    next_step::{NextStep, pending_calls},
    policy::{OnDisconnect, RunEnd},
    tool::{CallOfRun, ResultSource, ToolOutcome},
};

/// An event of a run.
pub(crate) enum Event {
    /// The run begins with this input, which is not stored yet.
    Begun { input: Vec<Arc<Message>> },
    /// A service call succeeds.
    Answered(Answered),
    /// A service call fails, or its caller drops the response. `text` is the part of the answer
    /// that had arrived.
    Unanswered {
        ordinal: Option<u32>,
        inputs: Vec<Arc<Message>>,
        text: Option<Arc<str>>,
        kept: UnansweredInputs,
    },
    /// An answer is refused because of its service id. `inputs` are the new messages of the service
    /// call.
    AnswerRefused { inputs: Vec<Arc<Message>> },
    /// The tools of these calls are about to start.
    ToolsStart { calls: Vec<CallOfRun> },
    /// A tool finishes. `beside` contains the outcomes of calls of the same round that were not
    /// run. `next` is the call whose tool starts next.
    ToolFinished {
        outcome: ToolOutcome,
        beside: Vec<ToolOutcome>,
        next: Option<CallOfRun>,
        ends_run: bool,
    },
    /// None of the tools of a round runs.
    ToolsNotRun { outcomes: Vec<ToolOutcome> },
    /// The tools of these calls were dropped while they were running.
    ToolsDropped { calls: Vec<(CallOfRun, SystemTime)> },
    /// No service call will send these results of tools, and the messages after them.
    ResultsUnsent { messages: Vec<Arc<Message>> },
    /// The run is stopped. `unsent` contains the messages that no service call has sent, and
    /// `answer` the received part of the last answer.
    Stopped { unsent: Vec<Arc<Message>>, answer: Vec<Arc<Message>> },
    /// The answer of the run is complete. Its first `before` messages are from an earlier attempt.
    Completed { answer: Vec<Arc<Message>>, before: usize, ended_by: Option<EndedBy> },
    /// The store already contains the complete run.
    FoundComplete { answer: Vec<Arc<Message>> },
    /// The run is refused before the model has answered.
    InputRefused,
    /// The run is committed or discarded in its current state, without another service call.
    EndedAsItStands { end: RunEnd, of_prior_calls: OfPriorCalls },
    /// The current attempt no longer works on the run, which may be incomplete.
    Left { cause: LeaveCause },
}

pub(crate) struct Answered {
    /// The new inputs of the service call, followed by its answer.
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) answer: Vec<Arc<Message>>,
    pub(super) adopted: Adopted,
    pub(super) step: Option<NextStep>,
    /// The calls whose tools start after the answer is stored.
    pub(super) first_calls: Vec<CallOfRun>,
    /// The reason for the end of the run. `None` if the model has given its final answer.
    pub(super) ended_by: Option<EndedBy>,
}

/// The reason why the current attempt no longer works on a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaveCause {
    Failed,
    Disconnected,
}

/// Updates the run log for an event, and returns the effect of the event.
pub(super) fn apply(log: &mut RunLog, policy: &PersistencePolicy, event: Event) -> Effect {
    let write = match event {
        Event::Begun { input } => begun(log, input),
        Event::Answered(answered) => return call_answered(log, answered),
        Event::Unanswered { ordinal, inputs, text, kept } => {
            unanswered(log, ordinal, inputs, text, kept)
        }
        Event::AnswerRefused { inputs } => answer_refused(log, policy, &inputs),
        Event::ToolsStart { calls } => tools_start(log, calls),
        Event::ToolFinished { outcome, beside, next, ends_run } => {
            tool_finished(log, policy, outcome, (beside, next, ends_run))
        }
        Event::ToolsNotRun { outcomes } => tools_not_run(log, outcomes),
        Event::ToolsDropped { calls } => tools_dropped(log, calls),
        Event::ResultsUnsent { messages } => results_unsent(log, messages),
        Event::Stopped { unsent, answer } => stopped(log, unsent, answer),
        Event::Completed { answer, before, ended_by } => {
            completed(log, policy, &answer, (before, ended_by))
        }
        Event::FoundComplete { answer } => found_complete(log, policy, &answer),
        Event::InputRefused => input_refused(log),
        Event::EndedAsItStands { end, of_prior_calls } => ended(log, end, of_prior_calls),
        Event::Left { cause } => return left(log, policy, cause),
    };
    write.map_or(Effect::Nothing, |write| Effect::Write(Box::new(write)))
}

/// *A run begins.*
fn begun(log: &mut RunLog, input: Vec<Arc<Message>>) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun => {
            log.conversation.added.input = input;
            None
        }
        PersistenceMode::PerServiceCall => None,
        PersistenceMode::Journaled => (!input.is_empty()).then(|| RunWrite::messages(input)),
    }
}

/// *A service call succeeds*, *the service pauses an answer*, *a token limit cuts an answer off*, *a tool
/// needs approval*.
fn call_answered(log: &mut RunLog, answered: Answered) -> Effect {
    log.forget_partial_text();
    let Answered { messages, answer, adopted, step, first_calls, ended_by } = answered;
    let ends_run = match &step {
        Some(step) => step.ends_run(),
        // A tool loop of another crate does not report the next step. An answer without calls,
        // after calls without results, is marked as the end of the run. Without the mark, it would
        // count as a part of the interrupted answer before it.
        None => {
            follows_open_calls(log.conversation.added.as_slice(), &messages)
                && pending_calls(&answer).is_empty()
        }
    };
    let write = RunWrite { ended_by, ends_run, ..RunWrite::messages(messages) };
    Effect::Write(Box::new(match log.mode {
        PersistenceMode::PerRun => {
            return Effect::AddUnsubmitted(write.messages, adopted);
        }
        PersistenceMode::PerServiceCall => RunWrite { adopted: Some(adopted), ..write },
        PersistenceMode::Journaled => {
            let is_last = step.is_some_and(|step| step.ends_run());
            let close = is_last.then_some(Close::Commit);
            RunWrite { adopted: Some(adopted), starts: first_calls, close, ..write }
        }
    }))
}

/// *A service call fails*, *the caller drops the response*, *the task of the caller is aborted*, *a
/// timeout fires*; *an answer is cut off*. Writes nothing if a retry of the same service call was
/// already answered.
fn unanswered(
    log: &mut RunLog,
    ordinal: Option<u32>,
    mut inputs: Vec<Arc<Message>>,
    text: Option<Arc<str>>,
    kept: UnansweredInputs,
) -> Option<RunWrite> {
    if let Some(Attempt::Answered { .. }) = log.calls.attempt(ordinal) {
        return None;
    }
    match log.mode {
        // A retry of the service call reads the inputs from the run log.
        PersistenceMode::PerRun => {
            log.calls.set_last(ordinal, Attempt::Unanswered { unsubmitted: inputs });
            None
        }
        PersistenceMode::PerServiceCall => {
            // The text would otherwise be stored without its question.
            let kept = if text.is_some() { UnansweredInputs::All } else { kept };
            let unsubmitted = inputs.split_off(log.kept_of(kept, &inputs));
            log.leave_out_submitted(ordinal, &mut inputs);
            log.partial_text = text.or_else(|| log.partial_text.take());
            log.calls.set_last(ordinal, Attempt::Unanswered { unsubmitted });
            let is_unsettled = true;
            (!inputs.is_empty()).then(|| RunWrite { is_unsettled, ..RunWrite::messages(inputs) })
        }
        // The inputs are already staged. A retry reads them from the run log. The write that ends
        // or leaves the run stores the text.
        PersistenceMode::Journaled => {
            if let (Some(journal), Some(text)) = (log.journal.as_deref_mut(), text) {
                journal.partial_text.replace_with(text);
            }
            if log.calls.attempt(ordinal).is_none() {
                log.calls.set_last(ordinal, Attempt::Unanswered { unsubmitted: inputs });
            }
            None
        }
    }
}

/// *The service reports in the middle of a run that it stores the history, or no longer does.*
/// Stores the inputs that are results of tools in the record, because the tools have run. No
/// message of the service call is stored.
fn answer_refused(
    log: &RunLog,
    policy: &PersistencePolicy,
    inputs: &[Arc<Message>],
) -> Option<RunWrite> {
    match log.mode {
        // In per-run mode, no part of the run is stored. In journaled mode, each result is already
        // stored.
        PersistenceMode::PerRun | PersistenceMode::Journaled => None,
        PersistenceMode::PerServiceCall => {
            if policy.inputs_of_failed_call == UnansweredInputs::None {
                return None;
            }
            let outcomes = log.call_records.outcomes_in(&log.conversation, inputs);
            let is_unsettled = true;
            (!outcomes.is_empty()).then(|| RunWrite {
                outcomes,
                is_unsettled,
                ..RunWrite::default()
            })
        }
    }
}

/// *Two processes receive the approval of one call*. Writes the claims of approved calls, and in
/// journaled mode also the starts of other calls.
fn tools_start(log: &RunLog, mut starts: Vec<CallOfRun>) -> Option<RunWrite> {
    let journal = log.journal.as_deref();
    let is_known = |call| journal.is_some_and(|journal| journal.started.contains(&call));
    starts.retain(|call| log.records_call(*call) && !is_known(*call));
    (!starts.is_empty()).then(|| RunWrite { starts, ..RunWrite::default() })
}

/// *A tool finishes*, *a tool ends the run*, *an approved tool has run*.
fn tool_finished(
    log: &RunLog,
    policy: &PersistencePolicy,
    outcome: ToolOutcome,
    (beside, next, ends_run): (Vec<ToolOutcome>, Option<CallOfRun>, bool),
) -> Option<RunWrite> {
    let call = outcome.0;
    if !log.records_call(call) {
        return None;
    }
    let starts = next.into_iter().collect();
    let write = RunWrite { outcomes: vec![outcome], starts, ..RunWrite::default() };
    Some(match log.mode {
        PersistenceMode::PerRun | PersistenceMode::PerServiceCall => write,
        // The same write commits the run, because the store does not show a later attempt that the
        // tool has ended the run. With `keep_trailing_results`, and for approved calls of earlier
        // runs, a later write contains the results and commits the run.
        PersistenceMode::Journaled => {
            let ends_run = ends_run && log.is_of_run(call) && !policy.keep_trailing_results;
            let close = ends_run.then_some(Close::Commit);
            let mut outcomes = log.of_this_run(beside);
            outcomes.extend(write.outcomes);
            RunWrite { outcomes, close, ends_run, ..write }
        }
    })
}

/// *A tool finishes*, for calls that were not run, and that a later attempt with other tools must
/// not run.
fn tools_not_run(log: &RunLog, outcomes: Vec<ToolOutcome>) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun | PersistenceMode::PerServiceCall => None,
        PersistenceMode::Journaled => {
            let mut outcomes = log.of_this_run(outcomes);
            outcomes.retain(|(.., report)| report.source != ResultSource::Record);
            (!outcomes.is_empty()).then(|| RunWrite { outcomes, ..RunWrite::default() })
        }
    }
}

/// *The caller drops the response*. Records the running tools as interrupted. An approved call of
/// an earlier run needs no row, because its claim shows that the tool has started.
fn tools_dropped(log: &RunLog, calls: Vec<(CallOfRun, SystemTime)>) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun | PersistenceMode::Journaled => None,
        PersistenceMode::PerServiceCall if log.persister == Persister::Missing => None,
        PersistenceMode::PerServiceCall => {
            let of_run = calls.into_iter().filter(|(call, _)| log.is_of_run(*call));
            let rows = of_run.filter_map(|(call, started_at)| {
                let mut row = log.call_records.call_row(&log.conversation, call)?;
                row.status = ToolStatus::Interrupted;
                row.started_at = Some(started_at);
                Some(row)
            });
            let rows: Vec<_> = rows.collect();
            (!rows.is_empty()).then(|| RunWrite { rows, ..RunWrite::default() })
        }
    }
}

/// *The caller drops the response*, *a service call fails*. Stores the results of tools that have
/// finished.
fn results_unsent(log: &RunLog, messages: Vec<Arc<Message>>) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun => None,
        // Without a persister, neither the calls nor their results are stored.
        _ if log.persister == Persister::Missing || messages.is_empty() => None,
        PersistenceMode::PerServiceCall | PersistenceMode::Journaled => {
            Some(RunWrite::messages(messages))
        }
    }
}

/// *`stop` of a `RunHandle` ends the run.* Adds the results at the end of the run to the history,
/// so that the model receives these results when the conversation continues.
fn stopped(
    log: &mut RunLog,
    unsent: Vec<Arc<Message>>,
    answer: Vec<Arc<Message>>,
) -> Option<RunWrite> {
    let close = match log.mode {
        // [`completed`] writes these messages together with the run.
        PersistenceMode::PerRun => return None,
        // Without a persister, neither the calls nor their results are stored.
        _ if log.persister == Persister::Missing => return None,
        PersistenceMode::PerServiceCall => None,
        PersistenceMode::Journaled => Some(Close::Commit),
    };
    // `answer` contains the same text.
    log.forget_partial_text();
    let mut messages = log.not_stored_of(unsent);
    messages.extend(answer);
    messages.retain(|message| !log.conversation.added.has_assigned_id(message));
    log.call_records.mark_trailing_results(&mut messages);
    let (ends_run, ended_by) = (true, Some(EndedBy::Stop));
    Some(RunWrite { close, ends_run, ended_by, ..RunWrite::messages(messages) })
}

/// *The run completes*, *a tool ends the run*, *`stop`* of a run that is stored at its end. Results
/// at the end that no service call has sent are stored only in the record, unless the policy or a
/// stop requires their messages.
fn completed(
    log: &mut RunLog,
    policy: &PersistencePolicy,
    answer: &[Arc<Message>],
    (before, ended_by): (usize, Option<EndedBy>),
) -> Option<RunWrite> {
    let new = answer.get(before..).unwrap_or_default();
    let last_response = || response_at_end(new).to_vec();
    match log.mode {
        PersistenceMode::PerRun => {
            let mut write = RunWrite::messages(log.conversation.take_run(new));
            if ended_by == Some(EndedBy::Stop) || policy.keep_trailing_results {
                log.call_records.mark_trailing_results(&mut write.messages);
            } else {
                write.left_out = take_trailing_results(&mut write.messages);
                mark_results(&mut write.left_out);
            }
            let adopted = Some(log.conversation.history_owner());
            Some(RunWrite { adopted, ended_by, ends_run: true, ..write })
        }
        PersistenceMode::PerServiceCall => {
            let mut left_out = log.conversation.added.unsent_trailing_results(answer);
            let ends_run = log.has_unmarked_end();
            if left_out.is_empty() && !ends_run {
                return None;
            }
            mark_results(&mut left_out);
            let last_response = last_response();
            Some(RunWrite { left_out, ends_run, last_response, ..RunWrite::default() })
        }
        // An earlier write has already committed the run.
        PersistenceMode::Journaled if !log.is_open() => None,
        PersistenceMode::Journaled => {
            let mut messages = log.conversation.added.unsent_trailing_results(answer);
            let mut left_out = Vec::new();
            if !policy.keep_trailing_results {
                let added = log.conversation.added.as_slice();
                let stored = added.len();
                let mut all: Vec<_> = added.iter().chain(&messages).cloned().collect();
                left_out = take_trailing_results(&mut all);
                messages = all.split_off(stored.min(all.len()));
            }
            mark_results(&mut left_out);
            let (close, ends_run) = (Some(Close::Commit), true);
            let write = RunWrite::messages(messages);
            Some(RunWrite { left_out, close, ends_run, last_response: last_response(), ..write })
        }
    }
}

/// *The same request is sent again*, and the store already contains the answer. If the run of the
/// answer is still open, commits the run.
fn found_complete(
    log: &mut RunLog,
    policy: &PersistencePolicy,
    answer: &[Arc<Message>],
) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun | PersistenceMode::PerServiceCall => None,
        PersistenceMode::Journaled => completed(log, policy, answer, (answer.len(), None)),
    }
}

/// *A decision is sent about a call that already has a result, or about an unknown call*, *an
/// approved call's arguments were changed by a hook*. Discards the staged messages if they contain
/// no answer. Otherwise each later request would first resume this run, which would be refused
/// again.
fn input_refused(log: &mut RunLog) -> Option<RunWrite> {
    match log.conversation.added.has_answers() {
        true => None,
        false => ended(log, RunEnd::Discard, OfPriorCalls::default()),
    }
}

/// *A service call fails* before any answer, *the caller drops the response*. Commits or discards
/// an open run, as `end` requires.
fn ended(log: &mut RunLog, end: RunEnd, of_prior_calls: OfPriorCalls) -> Option<RunWrite> {
    let journal = log.journal.as_deref().filter(|journal| journal.is_open())?;
    if end == RunEnd::Discard {
        let close = Some(Close::Discard { visible: journal.visible });
        return Some(RunWrite { close, ..RunWrite::default() });
    }
    let (id_of, text) = (|sequence| log.id_at(sequence), journal.partial_text.text());
    let next = log.conversation.revision.sequence + 1;
    let calls = (journal.unanswered.values(), id_of);
    let IncompleteCommit { mut messages, rows } =
        incomplete_commit(calls, next, of_prior_calls, text.as_deref());
    messages.extend(log.refused.as_message().map(Arc::new));
    let (close, is_as_stored) = (Some(Close::Commit), true);
    Some(RunWrite { rows, close, is_as_stored, ..RunWrite::messages(messages) })
}

/// *The caller drops the response*, *the task of the caller is aborted*, *a timeout fires*, *a
/// service call fails*, *an answer is cut off, and `with_partial_text` is set*.
fn left(log: &mut RunLog, policy: &PersistencePolicy, cause: LeaveCause) -> Effect {
    let write = match log.mode {
        PersistenceMode::PerRun => None,
        PersistenceMode::PerServiceCall => {
            let text = log.partial_text.take();
            text.map(|text| RunWrite::messages(vec![Arc::new(partial_message(&text))]))
        }
        PersistenceMode::Journaled => {
            let end = match (cause, policy.journal.on_disconnect) {
                (LeaveCause::Failed, _) => return Effect::Leave(LeaseEnd::NotHeld),
                // The commit would need the recorded results of approved calls. The next run of the
                // conversation commits this run.
                (LeaveCause::Disconnected, OnDisconnect::Commit)
                    if log.conversation.added.has_open_decisions() =>
                {
                    return Effect::Leave(LeaseEnd::Abandoned);
                }
                (LeaveCause::Disconnected, OnDisconnect::LeaveOpen) => {
                    return Effect::Leave(LeaseEnd::Abandoned);
                }
                (LeaveCause::Disconnected, OnDisconnect::Commit) => RunEnd::Commit,
                (LeaveCause::Disconnected, OnDisconnect::Discard) => RunEnd::Discard,
            };
            ended(log, end, OfPriorCalls::default())
        }
    };
    write.map_or(Effect::Nothing, |write| Effect::Write(Box::new(write)))
}

impl RunLog {
    /// Returns whether the outcome of a call is stored in the record before a message contains its
    /// result: for each call of a journaled run, and for approved calls of earlier runs.
    pub(crate) fn records_call(&self, call: CallOfRun) -> bool {
        self.mode == PersistenceMode::Journaled || !self.is_of_run(call)
    }

    fn is_of_run(&self, (message, _): CallOfRun) -> bool {
        message.run == self.conversation.added.run
    }

    /// Returns the outcomes of calls of this run. Calls of earlier runs that were not run remain
    /// pending.
    fn of_this_run(&self, mut outcomes: Vec<ToolOutcome>) -> Vec<ToolOutcome> {
        outcomes.retain(|(call, ..)| self.is_of_run(*call));
        outcomes
    }

    /// Returns how many inputs, from the first on, are stored if the service call fails. A message
    /// that a tool has queued counts as a result.
    fn kept_of(&self, kept: UnansweredInputs, inputs: &[Arc<Message>]) -> usize {
        let is_result = |message: &Arc<Message>| {
            message.role == Role::Tool
                || message.id.is_some_and(|id| self.queued_by_tools.contains(&id))
        };
        match kept {
            UnansweredInputs::All => inputs.len(),
            UnansweredInputs::Results => inputs.iter().rposition(is_result).map_or(0, |it| it + 1),
            UnansweredInputs::None => 0,
        }
    }
}

#[cfg(test)]
mod tests;
