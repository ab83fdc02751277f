//! The messages that a run adds to its conversation.

use std::{sync::Arc, time::SystemTime};

use tower_chat_core::{ChatRequest, Message, MessageId, Role, RunId};

use super::{complete::is_complete, last_answer::response_at_end};
use crate::approval::answers_approvals;

/// The messages that a run has added to its conversation, in order.
///
/// The first messages are submitted: a write contains them. If the run is stored at its end, the
/// messages of answered service calls follow, which one write submits at the end of the run.
pub(super) struct AddedMessages {
    pub(super) run: RunId,
    messages: Vec<Arc<Message>>,
    /// The number of submitted messages.
    submitted: usize,
    /// The number of messages to which the run has given an index, which is also the index of the
    /// next message.
    assigned_ids: usize,
    /// The index that the tool loop gives to its next message. The loop numbers its messages before
    /// a service call sends them.
    next_of_loop: usize,
    /// The input of a run that is stored at its end. A layer above the service may change the input
    /// of a service call, so the write at the end stores these messages instead.
    pub(super) input: Vec<Arc<Message>>,
    /// Whether messages of the tool loop did not continue its earlier service calls. From then on,
    /// messages of service calls are not added to a run that is stored at its end.
    pub(super) is_discontinuous: bool,
}

impl AddedMessages {
    /// Creates the list of a run of which the store contains these messages.
    pub(super) fn stored(run: RunId, messages: Vec<Arc<Message>>) -> Self {
        let indices = messages.iter().filter_map(|message| message.id).map(|id| id.index as usize);
        Self {
            run,
            submitted: messages.len(),
            assigned_ids: indices.max().map_or(0, |last| last + 1),
            next_of_loop: 0,
            messages,
            input: Vec::new(),
            is_discontinuous: false,
        }
    }

    pub(super) fn as_slice(&self) -> &[Arc<Message>] {
        &self.messages
    }

    pub(super) fn is_empty(&self) -> bool {
        self.messages.is_empty()
    }

    pub(super) fn has_answers(&self) -> bool {
        self.messages.iter().any(|message| message.role == Role::Assistant)
    }

    /// Returns whether the messages at the end contain decisions about approval requests that were
    /// not processed.
    pub(super) fn has_open_decisions(&self) -> bool {
        let is_input = |message: &&Arc<Message>| message.role == Role::User;
        answers_approvals(self.messages.iter().rev().take_while(is_input))
    }

    pub(super) fn submitted(&self) -> usize {
        self.submitted
    }

    fn unsubmitted(&self) -> &[Arc<Message>] {
        self.messages.get(self.submitted..).unwrap_or_default()
    }

    pub(super) fn assigned_ids(&self) -> usize {
        self.assigned_ids
    }

    pub(super) fn next_id(&self) -> MessageId {
        self.id(self.assigned_ids)
    }

    fn id(&self, index: usize) -> MessageId {
        MessageId { run: self.run, index: u32::try_from(index).unwrap_or(u32::MAX) }
    }

    /// Returns whether the run has already assigned the id of a message.
    pub(super) fn has_assigned_id(&self, message: &Message) -> bool {
        let id = message.id.filter(|id| id.run == self.run);
        id.is_some_and(|id| (id.index as usize) < self.assigned_ids)
    }

    /// Sets the ids of messages, with indices from `first` on, and missing times.
    pub(super) fn number(
        &self,
        first: usize,
        mut messages: Vec<Arc<Message>>,
        now: Option<SystemTime>,
    ) -> Vec<Arc<Message>> {
        for (message, index) in messages.iter_mut().zip(first..) {
            let id = self.id(index);
            if message.id != Some(id) || message.added_at.is_none() {
                let message = Arc::make_mut(message);
                message.id = Some(id);
                message.added_at = message.added_at.or(now);
            }
        }
        messages
    }

    /// Sets the index of the tool loop's next message: the one after the messages of a request, or
    /// after all ids that the run has assigned.
    pub(super) fn number_after(&mut self, request: &ChatRequest) {
        let of_run = request.messages().last().and_then(|last| last.id);
        self.next_of_loop = match of_run.filter(|id| id.run == self.run) {
            Some(last) => last.index as usize + 1,
            None => {
                let own = request.messages().len().saturating_sub(request.history_len());
                own.max(self.assigned_ids)
            }
        };
    }

    /// Continues the numbers that the tool loop has given before a persister began the run.
    pub(super) fn continue_numbers_of(&mut self, before: &Self) {
        self.next_of_loop = before.next_of_loop.max(self.assigned_ids);
    }

    /// Sets the id of a message of the tool loop, if it has none.
    pub(super) fn number_of_loop(
        &mut self,
        mut message: Arc<Message>,
        now: Option<SystemTime>,
    ) -> Arc<Message> {
        let id = message.id.unwrap_or(self.id(self.next_of_loop));
        if message.id.is_none() {
            let message = Arc::make_mut(&mut message);
            message.id = Some(id);
            message.added_at = message.added_at.or(now);
        }
        if id.run == self.run {
            self.next_of_loop = id.index as usize + 1;
        }
        message
    }

    /// Assigns the next ids to these messages. A store that numbers the messages itself assigns the
    /// same number of ids.
    pub(super) fn assign_ids(
        &mut self,
        messages: Vec<Arc<Message>>,
        is_numbered_by_store: bool,
        now: Option<SystemTime>,
    ) -> Vec<Arc<Message>> {
        let first = self.assigned_ids;
        self.assigned_ids += messages.len();
        match is_numbered_by_store {
            true => messages,
            false => self.number(first, messages, now),
        }
    }

    /// Adds messages that a write contains, and that have their ids. There must be no unsubmitted
    /// messages.
    pub(super) fn push_submitted(&mut self, messages: Vec<Arc<Message>>) {
        debug_assert!(messages.is_empty() || self.unsubmitted().is_empty());
        self.submitted += messages.len();
        self.messages.extend(messages);
    }

    /// Adds the messages of an answered service call, which have their ids, to a run that is stored
    /// at its end.
    pub(super) fn push_unsubmitted(&mut self, messages: Vec<Arc<Message>>) {
        self.messages.extend(messages);
    }

    /// Removes the unsubmitted messages of the last answer, and returns the other unsubmitted ones.
    pub(super) fn drop_last_answer(&mut self) -> &[Arc<Message>] {
        let kept = self.messages.len() - response_at_end(self.unsubmitted()).len();
        self.assigned_ids -= self.messages.len() - kept;
        self.messages.truncate(kept);
        self.unsubmitted()
    }

    /// Sets the ids of the messages in the answer of a run that is stored at its end. `answer` does
    /// not contain messages of an earlier attempt.
    pub(super) fn number_answer(
        &self,
        answer: Vec<Arc<Message>>,
        now: Option<SystemTime>,
    ) -> Vec<Arc<Message>> {
        let rounds = self.unreported_rounds(&answer);
        let input = self.assigned_ids - self.unsubmitted().len();
        let first = input + self.input.len() + rounds.len() - repeated_len(rounds);
        self.number(first, answer, now)
    }

    /// Takes the messages of a run that is stored at its end: the input, the unsubmitted rounds
    /// that `answer` does not contain, and `answer`, whose messages must have their ids.
    pub(super) fn take_run(&mut self, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let rounds = self.unreported_rounds(answer).to_vec();
        let new_answer = answer.iter().skip(repeated_len(&rounds)).cloned();
        let mut messages = std::mem::take(&mut self.input);
        messages.extend(rounds.iter().cloned().chain(new_answer));
        self.assigned_ids -= self.unsubmitted().len();
        self.messages.truncate(self.submitted);
        messages
    }

    /// Returns the unsubmitted messages after the input, if they are complete and contain results
    /// of tools, and `answer` contains none.
    fn unreported_rounds(&self, answer: &[Arc<Message>]) -> &[Arc<Message>] {
        if self.is_discontinuous {
            return &[];
        }
        let has_rounds =
            |messages: &[Arc<Message>]| messages.iter().any(|it| it.role != Role::Assistant);
        let after_input = self.unsubmitted().get(self.input.len()..).unwrap_or_default();
        if has_rounds(after_input) && !has_rounds(answer) { after_input } else { &[] }
    }
}

/// Returns the number of messages at the end of `rounds` that the answer of the tool loop repeats
/// at its beginning: the last response of the model, if `rounds` is complete.
fn repeated_len(rounds: &[Arc<Message>]) -> usize {
    if is_complete(rounds) { response_at_end(rounds).len() } else { 0 }
}
