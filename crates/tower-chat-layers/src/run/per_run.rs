//! Per-run mode: the run is kept in memory, and appended at its end by one write.

use std::sync::Arc;

use tower_chat_core::{
    Answer, EndedBy, HistoryOwner, Message,
    store::{StoreError, author::Slot},
};

use super::{
    Run, State,
    service_id::Adopted,
    trailing_results::{mark_results, take_trailing_results},
    write::RunWrite,
};
use crate::{PersistenceError, replay::Replay};

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
            let (input, first) = match buffer {
                Some(buffer) => (buffer.input.take(), buffer.answer_from),
                None => (None, state.conversation.taken),
            };
            let Input { mut messages, slot } = input.unwrap_or_default();
            answer.messages = run.number(first, std::mem::take(&mut answer.messages));
            if let Err(refused) = state.call_records.keep_pending_calls(&answer.messages) {
                return Err(run.pending_call_not_kept(refused, answer));
            }
            messages.extend(answer.messages.iter().cloned());
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
            Err(failed) => Err(run.not_stored(failed, Some(answer))),
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
