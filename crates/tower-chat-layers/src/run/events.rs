//! What is written of a run after each event, by its mode: the table of `docs/contract.md`.
//!
//! A row of the table is a variant of [`Event`] and a function here, a column is an arm of the match in
//! that function. Nothing here waits, reads a clock or knows a store: [`apply`] changes what the run
//! knows, and returns what is to be written. `docs/run-events.md` lists which row is which event.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{
    EndedBy, Message, PersistenceMode, Role, ToolStatus,
    store::{Lease, author::Close},
};

use super::{
    RunLog, answers_approvals,
    as_it_stands::{AsItStands, OfPriorCalls, as_it_stands},
    last_call::Attempt,
    partial_text::partial_message,
    run_end::{follows_open_calls, response_at_end},
    service_id::Adopted,
    trailing_results::{mark_results, take_trailing_results},
    write::RunWrite,
};
use crate::{
    PersistencePolicy, UnansweredInputs,
    next_step::{NextStep, pending_calls},
    policy::{OnDisconnect, RunEnd},
    tool::{CallOfRun, ResultSource, ToolOutcome},
};

/// What happens to a run.
pub(crate) enum Event {
    /// It begins with this input, which is not stored yet.
    Begun { input: Vec<Arc<Message>> },
    /// A service call succeeds. Of a run that is stored at its end, the call is the whole run.
    Answered(Answered),
    /// A service call fails, or its caller drops it. `text` is what was streamed of its answer.
    Unanswered {
        ordinal: Option<u32>,
        inputs: Vec<Arc<Message>>,
        text: Option<Arc<str>>,
        kept: UnansweredInputs,
    },
    /// An answer names another owner of the history than the run has. The call has carried these
    /// inputs.
    AnswerRefused { inputs: Vec<Arc<Message>> },
    /// The tools of these calls are about to start.
    ToolsStart { calls: Vec<CallOfRun> },
    /// A tool has finished. `beside` are the outcomes of calls of its round that were not run, `next`
    /// is the call whose tool starts then.
    ToolFinished {
        outcome: ToolOutcome,
        beside: Vec<ToolOutcome>,
        next: Option<CallOfRun>,
        ends_run: bool,
    },
    /// No tool of a round runs.
    ToolsNotRun { outcomes: Vec<ToolOutcome> },
    /// The tools of these calls were dropped while they ran.
    ToolsDropped { calls: Vec<(CallOfRun, SystemTime)> },
    /// No service call will carry these messages, which are results of tools or follow them.
    ResultsUnsent { messages: Vec<Arc<Message>> },
    /// The run is stopped: no service call has carried `unsent`, and `answer` has come of the last.
    Stopped { unsent: Vec<Arc<Message>>, answer: Vec<Arc<Message>> },
    /// The run has its answer, of which the first `before` messages are of an earlier attempt.
    Completed { answer: Vec<Arc<Message>>, before: usize },
    /// The run was found complete in the store.
    FoundComplete { answer: Vec<Arc<Message>> },
    /// The run is refused before anything comes of it.
    InputRefused,
    /// The run is ended where it stands.
    EndedAsItStands { end: RunEnd, of_prior_calls: OfPriorCalls },
    /// The run is over for its caller, whether it came to its end or not.
    Left { cause: LeaveCause },
}

/// A service call that was answered.
pub(crate) struct Answered {
    /// Its new inputs and its answer.
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) answer: Vec<Arc<Message>>,
    pub(super) adopted: Adopted,
    /// What follows, where the tool loop has said how it decides.
    pub(super) step: Option<NextStep>,
    /// The calls that start once the answer is stored.
    pub(super) first_calls: Vec<CallOfRun>,
    /// What has ended the run, apart from the model's own last answer.
    pub(super) ended_by: Option<EndedBy>,
}

/// Why nobody works on an open run any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LeaveCause {
    /// It has failed.
    Failed,
    /// Its caller dropped it.
    Disconnected,
}

/// What an event leads to.
pub(super) enum Effect {
    Nothing,
    Write(Box<RunWrite>),
    /// The run is left open, for a later attempt: nothing but its lease is written, which ends then.
    Leave(Option<SystemTime>),
}

/// Decides what an event leads to. Messages that it adds are added `now`.
pub(super) fn apply(
    log: &mut RunLog,
    policy: &PersistencePolicy,
    now: Option<SystemTime>,
    event: Event,
) -> Effect {
    let write = match event {
        Event::Begun { input } => begun(log, input),
        Event::Answered(answered) => Some(call_answered(log, policy, answered)),
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
        Event::ResultsUnsent { messages } => results_unsent(log, now, messages),
        Event::Stopped { unsent, answer } => stopped(log, now, unsent, answer),
        Event::Completed { answer, before } => completed(log, policy, &answer, before),
        Event::FoundComplete { answer } => found_complete(log, policy, &answer),
        Event::InputRefused => input_refused(log),
        Event::EndedAsItStands { end, of_prior_calls } => ended(log, end, of_prior_calls),
        Event::Left { cause } => return left(log, policy, now, cause),
    };
    write.map_or(Effect::Nothing, |write| Effect::Write(Box::new(write)))
}

/// *A run begins.*
fn begun(log: &RunLog, input: Vec<Arc<Message>>) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun | PersistenceMode::PerServiceCall => None,
        PersistenceMode::Journaled => (!input.is_empty()).then(|| RunWrite::messages(input)),
    }
}

/// *A service call succeeds*, *the service pauses an answer*, *a token limit cuts an answer off*,
/// *a tool needs approval*; of a run that is stored at its end, *the run completes* and *`stop`*.
fn call_answered(log: &mut RunLog, policy: &PersistencePolicy, answered: Answered) -> RunWrite {
    log.forget_partial_text();
    let Answered { messages, answer, adopted, step, first_calls, ended_by } = answered;
    let write = RunWrite { adopted: Some(adopted), ended_by, ..RunWrite::messages(messages) };
    let ends_run = match &step {
        Some(step) => step.ends_run(),
        // A loop that is not of this crate does not say what follows. Unmarked, the answer would count
        // as a part of the interrupted one before it.
        None => {
            follows_open_calls(&log.conversation.added, &write.messages)
                && pending_calls(&answer).is_empty()
        }
    };
    match log.mode {
        PersistenceMode::PerRun => {
            let mut write = write;
            if ended_by == Some(EndedBy::Stop) || policy.keep_trailing_results {
                log.mark_trailing_results(&mut write.messages);
            } else {
                write.left_out = take_trailing_results(&mut write.messages);
                mark_results(&mut write.left_out);
            }
            RunWrite { is_whole_run: true, ends_run: true, ..write }
        }
        PersistenceMode::PerServiceCall => RunWrite { ends_run, ..write },
        PersistenceMode::Journaled => {
            let is_last = step.is_some_and(|step| step.ends_run());
            let close = is_last.then_some(Close::Commit);
            RunWrite { ends_run, starts: first_calls, close, ..write }
        }
    }
}

/// *A service call fails*, *the caller drops the response*, *its task is aborted*, *a timeout fires*;
/// *an answer is cut off*. Nothing, where another attempt at the same call was answered meanwhile.
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
        PersistenceMode::PerRun => None,
        PersistenceMode::PerServiceCall => {
            let rest = inputs.split_off(log.kept_of(kept, &inputs));
            log.leave_out_taken(ordinal, &mut inputs);
            log.partial_text = text.or_else(|| log.partial_text.take());
            log.calls.keep(ordinal, Attempt::Unanswered { rest });
            let is_unsettled = true;
            (!inputs.is_empty()).then(|| RunWrite { is_unsettled, ..RunWrite::messages(inputs) })
        }
        // Everything worth keeping is staged, so that a retry finds its inputs here. The next write,
        // which leaves the run, keeps the text.
        PersistenceMode::Journaled => {
            if let (Some(journal), Some(text)) = (log.journal.as_deref_mut(), text) {
                journal.keep_partial_text(text);
            }
            if log.calls.attempt(ordinal).is_none() {
                log.calls.keep(ordinal, Attempt::Unanswered { rest: inputs });
            }
            None
        }
    }
}

/// *The service says in the middle of a run that it keeps the history, or no longer does.* The tools
/// of the results have run, but the history goes on without the call.
fn answer_refused(
    log: &RunLog,
    policy: &PersistencePolicy,
    inputs: &[Arc<Message>],
) -> Option<RunWrite> {
    match log.mode {
        // Nothing of the run is stored, or the results are already, one by one.
        PersistenceMode::PerRun | PersistenceMode::Journaled => None,
        PersistenceMode::PerServiceCall => {
            if policy.inputs_of_failed_call == UnansweredInputs::None {
                return None;
            }
            let outcomes = log.outcomes_in(inputs);
            let is_unsettled = true;
            (!outcomes.is_empty()).then(|| RunWrite {
                outcomes,
                is_unsettled,
                ..RunWrite::default()
            })
        }
    }
}

/// *Two processes are asked for one approved call*: the claims.
fn tools_start(log: &RunLog, mut starts: Vec<CallOfRun>) -> Option<RunWrite> {
    let journal = log.journal.as_deref();
    let is_known = |call| journal.is_some_and(|journal| journal.is_started(call));
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
        // The commit is part of the same write, since nothing else would tell a later attempt that the
        // tool has ended the run. Results that are kept come with their message, and those of
        // approved calls always.
        PersistenceMode::Journaled => {
            let ends_run = ends_run && log.is_of_run(call) && !policy.keep_trailing_results;
            let close = ends_run.then_some(Close::Commit);
            let mut outcomes = log.of_this_run(beside);
            outcomes.extend(write.outcomes);
            RunWrite { outcomes, close, ends_run, ..write }
        }
    })
}

/// *A tool finishes*, of calls that were not run: an attempt with other tools must not run them after
/// all.
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

/// *The caller drops the response*: the record says of a call whose tool was running that it was
/// interrupted. A call that waited for approval has a claim that says so.
fn tools_dropped(log: &RunLog, calls: Vec<(CallOfRun, SystemTime)>) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun | PersistenceMode::Journaled => None,
        PersistenceMode::PerServiceCall if log.is_persister_missed => None,
        PersistenceMode::PerServiceCall => {
            let of_run = calls.into_iter().filter(|(call, _)| log.is_of_run(*call));
            let rows = of_run.filter_map(|(call, started_at)| {
                let mut row = log.call_row(call)?;
                row.status = ToolStatus::Interrupted;
                row.started_at = Some(started_at);
                Some(row)
            });
            let rows: Vec<_> = rows.collect();
            (!rows.is_empty()).then(|| RunWrite { rows, ..RunWrite::default() })
        }
    }
}

/// *The caller drops the response*, *a service call fails*: the results of tools that have finished.
fn results_unsent(
    log: &RunLog,
    now: Option<SystemTime>,
    messages: Vec<Arc<Message>>,
) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun => None,
        // Nobody has stored the calls.
        _ if log.is_persister_missed || messages.is_empty() => None,
        PersistenceMode::PerServiceCall | PersistenceMode::Journaled => {
            Some(RunWrite::messages(log.number(log.conversation.taken, messages, now)))
        }
    }
}

/// *`stop` of a `RunHandle` ends the run.* Results at the end are part of the history, so that the
/// model knows what its calls have done.
fn stopped(
    log: &mut RunLog,
    now: Option<SystemTime>,
    unsent: Vec<Arc<Message>>,
    answer: Vec<Arc<Message>>,
) -> Option<RunWrite> {
    let close = match log.mode {
        // With the answer of the run.
        PersistenceMode::PerRun => return None,
        // Nobody has stored the calls.
        _ if log.is_persister_missed => return None,
        PersistenceMode::PerServiceCall => None,
        PersistenceMode::Journaled => Some(Close::Commit),
    };
    // Its text is among the messages.
    log.forget_partial_text();
    let mut messages = log.not_stored_of(unsent);
    messages.extend(answer);
    messages.retain(|message| !log.is_taken(message));
    let mut messages = log.number(log.conversation.taken, messages, now);
    log.mark_trailing_results(&mut messages);
    let (ends_run, ended_by) = (true, Some(EndedBy::Stop));
    Some(RunWrite { close, ends_run, ended_by, ..RunWrite::messages(messages) })
}

/// *The run completes*, *a tool ends the run*: results at its end, which no service call has seen, are
/// in the record alone.
fn completed(
    log: &RunLog,
    policy: &PersistencePolicy,
    answer: &[Arc<Message>],
    before: usize,
) -> Option<RunWrite> {
    let last_response = || response_at_end(answer.get(before..).unwrap_or_default()).to_vec();
    match log.mode {
        // With the answer of the run.
        PersistenceMode::PerRun => None,
        PersistenceMode::PerServiceCall => {
            let mut left_out = log.not_taken(answer);
            let ends_run = log.has_unmarked_end();
            if left_out.is_empty() && !ends_run {
                return None;
            }
            mark_results(&mut left_out);
            let last_response = last_response();
            Some(RunWrite { left_out, ends_run, last_response, ..RunWrite::default() })
        }
        // Unless it was committed with the answer itself.
        PersistenceMode::Journaled if !log.is_open() => None,
        PersistenceMode::Journaled => {
            let mut messages = log.not_taken(answer);
            let mut left_out = Vec::new();
            if !policy.keep_trailing_results {
                let added = &log.conversation.added;
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

/// *The same request is sent again*: its answer is stored.
fn found_complete(
    log: &RunLog,
    policy: &PersistencePolicy,
    answer: &[Arc<Message>],
) -> Option<RunWrite> {
    match log.mode {
        PersistenceMode::PerRun | PersistenceMode::PerServiceCall => None,
        PersistenceMode::Journaled => completed(log, policy, answer, answer.len()),
    }
}

/// *An approval is answered that has its result already*, *an approved call's arguments were changed
/// by a hook*: takes back what is staged, if that is no more than the run's input. Left open, the run
/// would be resumed before every later request, and refused again.
fn input_refused(log: &RunLog) -> Option<RunWrite> {
    let journal = log.journal.as_deref().filter(|journal| journal.is_open())?;
    if log.conversation.has_answers() {
        return None;
    }
    let close = Some(Close::Discard { visible: journal.visible });
    Some(RunWrite { close, ..RunWrite::default() })
}

/// *A service call fails* before any answer, *the caller drops the response*, by the policy.
fn ended(log: &mut RunLog, end: RunEnd, of_prior_calls: OfPriorCalls) -> Option<RunWrite> {
    let journal = log.journal.as_deref().filter(|journal| journal.is_open())?;
    if end == RunEnd::Discard {
        let close = Some(Close::Discard { visible: journal.visible });
        return Some(RunWrite { close, ..RunWrite::default() });
    }
    let (id_of, text) = (|sequence| log.id_at(sequence), journal.partial_text());
    let next = log.conversation.revision.sequence + 1;
    let calls = (journal.unanswered(), id_of);
    let AsItStands { mut messages, rows } =
        as_it_stands(calls, next, of_prior_calls, text.as_deref());
    messages.extend(log.refused.as_message().map(Arc::new));
    let (close, is_as_stored) = (Some(Close::Commit), true);
    Some(RunWrite { rows, close, is_as_stored, ..RunWrite::messages(messages) })
}

/// *The caller drops the response*, *its task is aborted*, *a timeout fires*, *a service call fails*,
/// *an answer is cut off, and `with_partial_text` is set*.
fn left(
    log: &mut RunLog,
    policy: &PersistencePolicy,
    now: Option<SystemTime>,
    cause: LeaveCause,
) -> Effect {
    let write = match log.mode {
        PersistenceMode::PerRun => None,
        PersistenceMode::PerServiceCall => log.partial_text.take().map(|text| {
            let mut messages = log.calls.unanswered().to_vec();
            messages.push(Arc::new(partial_message(&text)));
            RunWrite::messages(log.number(log.conversation.taken, messages, now))
        }),
        PersistenceMode::Journaled => {
            let end = match (cause, policy.journal.on_disconnect) {
                (LeaveCause::Failed, _) => return Effect::Leave(None),
                // The results of approved calls are in the record, which cannot be read here: the
                // next run commits it.
                (LeaveCause::Disconnected, OnDisconnect::Commit) if log.has_open_decisions() => {
                    return Effect::Leave(Some(Lease::ABANDONED));
                }
                (LeaveCause::Disconnected, OnDisconnect::LeaveOpen) => {
                    return Effect::Leave(Some(Lease::ABANDONED));
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
    /// Whether what becomes of a call is made durable before its result is part of a message: of
    /// every call in a journal, elsewhere of one that an earlier run had asked for and that waited
    /// for approval.
    pub(crate) fn records_call(&self, call: CallOfRun) -> bool {
        self.mode == PersistenceMode::Journaled || !self.is_of_run(call)
    }

    fn is_of_run(&self, (message, _): CallOfRun) -> bool {
        message.run == self.run
    }

    /// Those of the outcomes that are staged: an approved call of an earlier run that was not run
    /// goes on waiting, as in the other modes.
    fn of_this_run(&self, mut outcomes: Vec<ToolOutcome>) -> Vec<ToolOutcome> {
        outcomes.retain(|(call, ..)| self.is_of_run(*call));
        outcomes
    }

    /// How many of a call's inputs are stored, from the first, if the call comes to no answer. What
    /// a tool has queued comes with its result.
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

    /// Whether the run has staged decisions about approvals, and nothing that they have led to.
    fn has_open_decisions(&self) -> bool {
        let is_input = |message: &&Arc<Message>| message.role == Role::User;
        answers_approvals(self.conversation.added.iter().rev().take_while(is_input))
    }
}

#[cfg(test)]
mod tests;
