//! The messages of a run, and whether a service call has sent each of them.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, HistoryOwner, Message, MessageId, Messages, Role, RunId};

use crate::{
    Clock,
    replay::{PendingBatch, Replay},
};

/// The messages of a run, with the state of each message.
pub(super) struct Transcript {
    run: RunId,
    next_index: u32,
    history: Option<WholeHistory>,
    /// The messages of the request. The request's own messages begin at the index `own_from`.
    request: Messages,
    own_from: usize,
    request_reach: Reach,
    added: Vec<(Arc<Message>, Reach)>,
    only_unsent: bool,
    history_owner: Option<HistoryOwner>,
}

/// Whether a service call has sent a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    Unsent,
    InFlight,
    /// An answered service call has sent the message, the model has returned the message, or no
    /// service call will send the message.
    Done,
}

/// The whole history, which the loop sends in each service call unless the service or a layer below
/// stores it.
struct WholeHistory {
    prefix: usize,
    replay: Replay,
}

/// The messages of one service call.
pub(super) struct Outgoing {
    pub(super) messages: Messages,
    pub(super) history_len: usize,
    pub(super) history_owner: Option<HistoryOwner>,
}

impl Transcript {
    /// Creates the transcript of a run that sends the whole history, until an answer names a
    /// history owner (the service or a layer below, which stores the history).
    pub(super) fn with_whole_history(request: &ChatRequest, run: RunId) -> Self {
        let prefix = request.history();
        let mut replay = Replay::lenient().after_prefix(&prefix);
        replay.push_from(request.messages(), request.history_len());
        let history = Some(WholeHistory { prefix: prefix.len(), replay });
        Self { history, only_unsent: false, ..Self::only_unsent(request, run, || 0) }
    }

    /// Creates the transcript of a run that sends only new messages, because a layer below adds the
    /// history. `assigned_ids` returns the number of messages of the run that the layer below has
    /// already numbered.
    pub(super) fn only_unsent(
        request: &ChatRequest,
        run: RunId,
        assigned_ids: impl FnOnce() -> usize,
    ) -> Self {
        Self {
            run,
            next_index: next_index(request, run, assigned_ids),
            history: None,
            request: request.messages().clone(),
            own_from: request.history_len(),
            request_reach: Reach::Unsent,
            added: Vec::new(),
            only_unsent: true,
            history_owner: without_sentinel(request.history_owner.clone()),
        }
    }

    /// Sends only new messages from now on, because a layer below stores the history.
    pub(super) fn keep_below(&mut self) {
        self.history = None;
        self.only_unsent = true;
    }

    /// Gives a message without an id its index in the run.
    pub(super) fn number(&mut self, mut message: Arc<Message>, clock: &Clock) -> Arc<Message> {
        match message.id {
            Some(id) if id.run == self.run => self.next_index = id.index.saturating_add(1),
            Some(_) => {}
            None => {
                let id = MessageId { run: self.run, index: self.next_index };
                self.next_index = self.next_index.saturating_add(1);
                let message = Arc::make_mut(&mut message);
                message.id = Some(id);
                message.added_at = message.added_at.or_else(|| clock.whole_milliseconds());
            }
        }
        message
    }

    /// Sets the index of the next message to at least this number, because a layer below has
    /// assigned the smaller indices.
    pub(super) fn number_from(&mut self, assigned_ids: usize) {
        self.next_index = self.next_index.max(u32::try_from(assigned_ids).unwrap_or(u32::MAX));
    }

    pub(super) fn push_unsent(&mut self, message: &Arc<Message>) {
        self.added.push((message.clone(), Reach::Unsent));
        if let Some(history) = &mut self.history {
            history.replay.push(message);
        }
    }

    pub(super) fn push_sent(&mut self, message: &Arc<Message>) {
        self.added.push((message.clone(), Reach::Done));
        if let Some(history) = &mut self.history {
            history.replay.push_answer(message);
        }
    }

    /// Returns the batches (the calls of one answer each) that wait for approval in the request's
    /// own messages. If the loop sends the history, batches at the end of the history are included.
    pub(super) fn pending_batches(&self, request: &ChatRequest) -> Vec<PendingBatch> {
        if let Some(history) = &self.history {
            return history.replay.pending_batches();
        }
        let mut own = Replay::lenient();
        own.push_from(request.messages(), request.history_len());
        own.pending_batches()
    }

    pub(super) fn is_kept_below(&self) -> bool {
        self.history.is_none()
    }

    pub(super) fn added(&self) -> impl ExactSizeIterator<Item = &Arc<Message>> {
        self.added.iter().map(|(message, _)| message)
    }

    pub(super) fn has_unsent_results(&self) -> bool {
        let is_results = |message: &Arc<Message>| message.role == Role::Tool;
        self.added.iter().any(|(message, reach)| *reach == Reach::Unsent && is_results(message))
    }

    pub(super) fn unsent(&self) -> Messages {
        self.messages_at(Reach::Unsent)
    }

    /// Returns the unsent messages. They are then done, because no service call will send them.
    pub(super) fn take_unsent(&mut self) -> Vec<Arc<Message>> {
        self.take_messages(Reach::Unsent)
    }

    /// Returns the messages of the service call in flight, which has ended.
    pub(super) fn take_in_flight(&mut self) -> Vec<Arc<Message>> {
        self.take_messages(Reach::InFlight)
    }

    fn take_messages(&mut self, reach: Reach) -> Vec<Arc<Message>> {
        let own = self.messages_at(reach).iter().cloned().collect();
        self.advance(reach, Reach::Done);
        own
    }

    fn messages_at(&self, reach: Reach) -> Messages {
        let mut messages = match self.request_reach == reach {
            true => self.request.skip(self.own_from),
            false => Messages::new(),
        };
        let added = self.added.iter().filter(|(_, of_message)| *of_message == reach);
        messages.extend(added.map(|(message, _)| message.clone()));
        messages
    }

    fn advance(&mut self, from: Reach, to: Reach) {
        let added = self.added.iter_mut().map(|(_, reach)| reach);
        let reached = added.chain([&mut self.request_reach]).filter(|reach| **reach == from);
        reached.for_each(|reach| *reach = to);
    }

    /// Updates the states after the service call in flight was answered.
    pub(super) fn answered(&mut self, history_owner: Option<HistoryOwner>) {
        self.advance(Reach::InFlight, Reach::Done);
        self.only_unsent = self.is_kept_below() || history_owner.is_some();
        self.history_owner = without_sentinel(history_owner);
    }

    pub(super) fn outgoing(&mut self) -> Outgoing {
        let history_owner = self.history_owner.clone();
        let outgoing = match &self.history {
            Some(WholeHistory { prefix, replay }) if !self.only_unsent => {
                Outgoing { messages: replay.view(), history_len: *prefix, history_owner }
            }
            Some(_) | None if self.request_reach == Reach::Unsent => {
                let mut messages = self.request.take(self.own_from);
                messages.append(&self.unsent());
                Outgoing { messages, history_len: self.own_from, history_owner }
            }
            Some(_) | None => Outgoing { messages: self.unsent(), history_len: 0, history_owner },
        };
        self.advance(Reach::Unsent, Reach::InFlight);
        outgoing
    }
}

/// Returns the index of the run's next message. If the last message of the request belongs to the
/// run, the index follows its index. Otherwise the index is the number of own messages or
/// `assigned_ids`, whichever is larger.
fn next_index(request: &ChatRequest, run: RunId, assigned_ids: impl FnOnce() -> usize) -> u32 {
    match request.messages().last().and_then(|last| last.id) {
        Some(last) if last.run == run => last.index.saturating_add(1),
        Some(_) | None => {
            let own = request.messages().len().saturating_sub(request.history_len());
            u32::try_from(own.max(assigned_ids())).unwrap_or(u32::MAX)
        }
    }
}

/// Removes the sentinel `HistoryOwner::Local`, which only the loop may receive.
pub(super) fn without_sentinel(id: Option<HistoryOwner>) -> Option<HistoryOwner> {
    id.filter(|id| id.service_id().is_some())
}
