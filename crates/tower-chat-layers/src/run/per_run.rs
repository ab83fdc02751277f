//! Per-run mode: the run is kept in memory, and appended at its end by one write.

use std::sync::Arc;

use tower_chat_core::{
    Answer, ChatRequest, EndedBy, HistoryOwner, Message, Messages, Role, RunId,
    store::{StoreError, author::Slot},
};

use super::{
    Run, ServiceCall, State,
    model_request::joined,
    run_end::{is_complete, response_at_end},
    service_id::Adopted,
    trailing_results::{mark_results, take_trailing_results},
    write::RunWrite,
};
use crate::{
    PersistenceError,
    replay::Replay,
    transcript::{Observed, Step, StoredRun, StoredTranscript, TranscriptDifference, observe},
};

/// A run that is written at its end.
pub(super) struct PerRun<'r>(pub(super) &'r Run);

/// What such a run keeps until its end.
#[derive(Default)]
pub(super) struct Buffer {
    input: Option<Input>,
    /// Where the messages that the run answers are numbered from: after what is stored of it and
    /// after its input, which it takes in at its end.
    pub(super) answer_from: usize,
    /// The open end of the stored history, if the input answers approval requests in it.
    pub(super) open_replay: Option<Replay>,
    /// The id that each service call's answer names is compared as it comes, so the end of the run
    /// has nothing to compare.
    pub(super) checks_each_answer: bool,
    /// The messages of the request as the tool loop got it, and how many of them are not new.
    pub(super) given: (Messages, usize),
    rounds: SeenRounds,
}

/// What a persister below a tool loop that is not of this crate has seen of the run.
#[derive(Debug, Default)]
struct SeenRounds {
    /// What the service calls have added after the request of the run, in order.
    messages: Vec<Arc<Message>>,
    has_answered: bool,
    /// The messages of a service call did not continue those of the calls before it, so `messages` is
    /// not the whole run.
    is_broken: bool,
}

/// What the run adds before its first service call.
struct Input {
    messages: Vec<Arc<Message>>,
    /// Reserved before the model is paid.
    slot: Result<Slot, StoreError>,
}

impl Buffer {
    pub(super) fn new(answer_from: usize) -> Self {
        Self { answer_from, ..Self::default() }
    }
}

impl PerRun<'_> {
    /// The run begins: nothing is written.
    pub(super) fn begin_input(&self, slot: Result<Slot, StoreError>, messages: Vec<Arc<Message>>) {
        if let Some(buffer) = self.0.state().of_mode.buffer_mut() {
            buffer.input = Some(Input { messages, slot });
        }
    }

    /// The run has its final answer: appends input and answer, and waits until they are durable.
    /// What an earlier attempt has stored is part of the answer, and not stored again.
    ///
    /// # Errors
    ///
    /// If the answer's service id does not fit, by policy, with nothing written; or
    /// [`PersistenceError::NotStored`]. Both carry the answer.
    pub(super) async fn finish(
        &self,
        mut answer: Answer,
        before: usize,
    ) -> Result<Answer, PersistenceError> {
        let run = self.0;
        let new = answer.messages.split_off(before.min(answer.messages.len()));
        let stored = std::mem::replace(&mut answer.messages, new);
        let mut submission = {
            let mut state = run.state();
            let adopted = self.adopt(&mut state, &answer)?;
            run.note_final_answer(&mut state, &answer.finish, &answer.messages);
            let buffer = state.of_mode.buffer_mut();
            let (input, first, rounds) = match buffer {
                Some(buffer) => {
                    let rounds = buffer.rounds.unseen_in(&answer.messages);
                    (buffer.input.take(), buffer.answer_from, rounds)
                }
                None => (None, state.conversation.taken, Vec::new()),
            };
            let Input { mut messages, slot } = input.unwrap_or_default();
            let answered = std::mem::take(&mut answer.messages);
            let rounds = run.number(first, rounds);
            // The last response of the rounds is what the loop has returned, as the model gave it.
            let seen = match is_complete(&rounds) {
                true => response_at_end(&rounds).len(),
                false => 0,
            };
            let from = first + rounds.len() - seen;
            answer.messages = run.number(from, answered);
            messages.extend(rounds.iter().cloned());
            messages.extend(answer.messages.iter().skip(seen).cloned());
            if let Err(refused) = state.call_records.keep_pending_calls(&messages) {
                return Err(run.pending_call_not_kept(refused, answer));
            }
            let is_stopped = answer.finish.ended_by == Some(EndedBy::Stop);
            let mut left_out = if is_stopped || run.policy().keep_trailing_results {
                state.mark_trailing_results(&mut messages);
                Vec::new()
            } else {
                take_trailing_results(&mut messages)
            };
            mark_results(&mut left_out);
            let write = RunWrite {
                messages,
                left_out,
                adopted: Some(adopted),
                is_whole_run: true,
                ends_run: true,
                ended_by: answer.finish.ended_by,
                ..RunWrite::default()
            };
            run.submit(&mut state, slot, write).0
        };
        match submission.outcome().await {
            Ok(unsaved) => {
                run.state().unsaved = unsaved;
                answer.messages.splice(..0, stored);
                Ok(answer)
            }
            Err(failed) => Err(run.refused(failed, Some(answer)).await),
        }
    }

    /// The run is over for its caller: nothing of one that has no answer is written.
    pub(super) fn leave(&self) {
        if let Some(buffer) = self.0.state().of_mode.buffer_mut() {
            buffer.input = None;
        }
    }

    /// What the end of a run means for where its history is kept. Where each answer was compared
    /// as it came, a loop above may have left the id out of what it returns.
    fn adopt(&self, state: &mut State, answer: &Answer) -> Result<Adopted, PersistenceError> {
        let recording = state.conversation.recording;
        let is_compared = state.of_mode.buffer_mut().is_some_and(|it| it.checks_each_answer);
        let returned = answer.finish.history_owner.as_ref().and_then(HistoryOwner::service_id);
        match (&state.conversation.service_id, returned) {
            (Some(service_id), None) if is_compared => {
                Ok(Adopted::named(service_id.clone(), recording))
            }
            (current, _) => {
                let whole = || answer.clone();
                self.0.adopt_service_id(current.as_ref(), recording, &answer.finish, whole)
            }
        }
    }
}

impl SeenRounds {
    /// The messages, if there are rounds of tools among them that this answer does not contain.
    fn unseen_in(&mut self, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let has_rounds =
            |messages: &[Arc<Message>]| messages.iter().any(|it| it.role != Role::Assistant);
        match !self.is_broken && has_rounds(&self.messages) && !has_rounds(answer) {
            true => std::mem::take(&mut self.messages),
            false => Vec::new(),
        }
    }
}

impl Run {
    /// Takes note of what a service call adds to a run that is written at its end, where the tool
    /// loop is not of this crate: its answer may contain the last message alone. A request that has
    /// new messages alone is made complete.
    pub(crate) fn observe_round(&self, request: &mut ChatRequest) {
        if request.extensions.get::<ServiceCall>().is_some() {
            return;
        }
        let id = self.id();
        let mut state = self.state();
        let has_service_id = state.conversation.service_id.is_some();
        let history = state.conversation.history.clone();
        let Some(buffer) = state.of_mode.buffer_mut() else { return };
        if has_service_id || buffer.given.0.is_empty() {
            return;
        }
        let ((given, new_from), rounds) = (&buffer.given, &mut buffer.rounds);
        if !rounds.has_answered && is_same(&request.messages, given) {
            return;
        }
        let own: Vec<_> = request.messages.iter().cloned().collect();
        let observed = observe_after(given.clone(), rounds, id, &own);
        // The loop may remember the conversation itself, and not as the replay has put it.
        let observed = observed
            .or_else(|_| observe_after(joined(history, given.skip(*new_from)), rounds, id, &own));
        let Ok(Observed { instructions, new, step }) = observed else {
            rounds.is_broken = true;
            return;
        };
        if step == Step::Repeat {
            // The loop goes on with the answer that comes now.
            let before = rounds.messages.len() - response_at_end(&rounds.messages).len();
            rounds.messages.truncate(before);
        }
        let first = instructions.len();
        let mut messages: Messages = instructions.into_iter().collect();
        messages.append(given);
        messages.extend(rounds.messages.iter().cloned());
        request.new_from = match rounds.has_answered {
            true => messages.len(),
            false => first + new_from,
        };
        messages.extend(new.iter().cloned());
        request.messages = messages;
        rounds.messages.extend(new);
    }

    /// Takes note of the answer to such a service call.
    pub(crate) fn observe_answer(&self, answer: &Answer) {
        if let Some(buffer) = self.state().of_mode.buffer_mut() {
            buffer.rounds.has_answered = true;
            buffer.rounds.messages.extend(answer.messages.iter().cloned());
        }
    }

    /// Whether layers have seen every service call of the run.
    pub(crate) fn has_seen_rounds(&self) -> bool {
        let mut state = self.state();
        let is_noted = state.calls.untold_usage.is_noted();
        is_noted && state.of_mode.buffer_mut().is_none_or(|buffer| !buffer.rounds.is_broken)
    }
}

/// Compares a request with what was said before the rounds of a run, and with those.
fn observe_after(
    before: Messages,
    rounds: &SeenRounds,
    run: RunId,
    own: &[Arc<Message>],
) -> Result<Observed, TranscriptDifference> {
    let SeenRounds { messages: added, has_answered, .. } = rounds;
    let run = StoredRun::Known { run, has_answered: *has_answered };
    observe(&StoredTranscript { before, added, is_pruned: false, run }, own)
}

/// Whether two lists are clones of one.
fn is_same(one: &Messages, other: &Messages) -> bool {
    let is_last = |(one, other)| Arc::ptr_eq(one, other);
    one.len() == other.len() && one.last().zip(other.last()).is_some_and(is_last)
}

impl Default for Input {
    /// Of a run whose input was never taken.
    fn default() -> Self {
        Self { messages: Vec::new(), slot: Err(StoreError::Closed) }
    }
}

impl Run {
    /// The open end of the stored history, where the input answers approval requests in it: a
    /// tool loop pushes its own messages to it and sends the view.
    pub(crate) fn open_replay(&self) -> Option<Replay> {
        self.state().of_mode.buffer_mut()?.open_replay.clone()
    }

    /// The index of the first message that the tool loop adds to a run that is written at its end.
    /// The request does not say it: among its messages may be some of the history, which the input
    /// answers.
    pub(crate) fn answer_from(&self) -> usize {
        let mut state = self.state();
        let taken = state.conversation.taken;
        state.of_mode.buffer_mut().map_or(taken, |buffer| buffer.answer_from)
    }
}
