//! Per-run mode: collects the messages of a run, which one write stores at the end of the run.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{Message, Role};

use super::{
    conversation::LoadedConversation,
    effect::AnsweredServiceCall,
    log::{RunLog, StateBeforeFirstCall, UnstoredRun},
    run_end::{is_complete, response_at_end},
};

impl RunLog {
    /// Adds the messages of an answered service call to those that the write at the end of the run
    /// stores.
    pub(super) fn add_unstored(&mut self, call: AnsweredServiceCall, now: Option<SystemTime>) {
        let AnsweredServiceCall { messages, adopted } = call;
        self.conversation.service_id = adopted.service_id;
        self.conversation.recording = adopted.recording;
        if self.unstored.is_discontinuous {
            return;
        }
        if self.unstored.state_before.is_none() {
            let LoadedConversation { added, assigned_ids, replay, .. } = &self.conversation;
            let (added, assigned_ids, replay) = (added.len(), *assigned_ids, replay.clone());
            self.unstored.state_before = Some(StateBeforeFirstCall { added, assigned_ids, replay });
        }
        let messages = self.push(messages, false, now);
        messages.iter().for_each(|message| self.conversation.replay.push(message));
        self.conversation.added.extend(messages);
    }

    /// Returns the number of the run's messages that a write has submitted.
    pub(super) fn submitted(&self) -> usize {
        self.unstored
            .state_before
            .as_ref()
            .map_or(self.conversation.added.len(), |before| before.added)
    }

    /// Removes the unstored answer of the last service call, which the tool loop repeats.
    pub(super) fn drop_last_answer(&mut self) {
        let Some(StateBeforeFirstCall { added, replay, assigned_ids }) =
            &self.unstored.state_before
        else {
            return;
        };
        let conversation = &mut self.conversation;
        let kept = conversation.added.len() - response_at_end(&conversation.added).len();
        conversation.added.truncate(kept.max(*added));
        conversation.replay = replay.clone();
        let unstored = conversation.added.iter().skip(*added);
        conversation.assigned_ids = assigned_ids + unstored.len();
        unstored.for_each(|message| conversation.replay.push(message));
    }

    /// Sets the ids of the messages in a run's answer, without those of an earlier attempt.
    pub(super) fn number_answer(
        &self,
        answer: Vec<Arc<Message>>,
        now: Option<SystemTime>,
    ) -> Vec<Arc<Message>> {
        let rounds = self.unreported_rounds(&answer);
        let first = self.unstored.state_before.as_ref().map(|before| before.assigned_ids);
        let first = first.unwrap_or(self.conversation.assigned_ids) + self.unstored.input.len();
        self.number(first + rounds.len() - repeated_len(rounds), answer, now)
    }

    /// Removes the unstored messages. Returns all messages of the run: the input, the unstored rounds that
    /// `answer` does not contain, and `answer`, whose messages must have their ids.
    pub(super) fn take_run_messages(&mut self, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let rounds = self.unreported_rounds(answer).to_vec();
        let new_answer = answer.iter().skip(repeated_len(&rounds)).cloned();
        let mut messages = std::mem::take(&mut self.unstored.input);
        messages.extend(rounds.iter().cloned().chain(new_answer));
        if let Some(StateBeforeFirstCall { added, assigned_ids, replay }) =
            self.unstored.state_before.take()
        {
            self.conversation.added.truncate(added);
            self.conversation.assigned_ids = assigned_ids;
            self.conversation.replay = replay;
        }
        messages
    }

    /// Returns the unstored messages after the input, if they are complete and contain results of
    /// tools, and `answer` contains none.
    fn unreported_rounds(&self, answer: &[Arc<Message>]) -> &[Arc<Message>] {
        let UnstoredRun { state_before: Some(before), is_discontinuous: false, input, .. } =
            &self.unstored
        else {
            return &[];
        };
        let has_rounds =
            |messages: &[Arc<Message>]| messages.iter().any(|it| it.role != Role::Assistant);
        let after_input = before.added + input.len();
        let unstored = self.conversation.added.get(after_input..).unwrap_or_default();
        if has_rounds(unstored) && !has_rounds(answer) { unstored } else { &[] }
    }

    /// Returns whether persistence layers have received every service call of the run.
    pub(crate) fn has_seen_rounds(&self) -> bool {
        self.calls.is_answered && !self.unstored.is_discontinuous
    }
}

/// Returns the number of messages at the end of `rounds` that the answer of the tool loop repeats
/// at its beginning: the last response of the model, if `rounds` is complete.
fn repeated_len(rounds: &[Arc<Message>]) -> usize {
    if is_complete(rounds) { response_at_end(rounds).len() } else { 0 }
}
