//! The messages of a run, and whether a service call has sent each of them.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, HistoryOwner, Message, Messages, Role};

use crate::replay::{PendingBatch, Replay};

/// The messages of a run, with the state of each message.
pub(super) struct Transcript {
    /// The whole history, which each service call sends unless the service or a layer below stores
    /// it.
    history: Option<WholeHistory>,
    /// The messages before the request's own messages, until a service call has sent them.
    prefix: Messages,
    /// The request's own messages, followed by the messages that the run has added.
    entries: Vec<Entry>,
    /// The number of the request's own messages.
    own_len: usize,
    only_unsent: bool,
    history_owner: Option<HistoryOwner>,
}

struct Entry {
    message: Arc<Message>,
    reach: Reach,
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

struct WholeHistory {
    prefix_len: usize,
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
    pub(super) fn with_whole_history(request: &ChatRequest) -> Self {
        let prefix = request.history();
        let mut replay = Replay::lenient().after_prefix(&prefix);
        replay.push_from(request.messages(), request.history_len());
        let history = Some(WholeHistory { prefix_len: prefix.len(), replay });
        Self { history, only_unsent: false, ..Self::only_unsent(request) }
    }

    /// Creates the transcript of a run that sends only new messages, because a layer below adds the
    /// history.
    pub(super) fn only_unsent(request: &ChatRequest) -> Self {
        let own = request.messages().iter_from(request.history_len()).cloned();
        let unsent = |message| Entry { message, reach: Reach::Unsent };
        let entries: Vec<_> = own.map(unsent).collect();
        Self {
            history: None,
            prefix: request.history(),
            own_len: entries.len(),
            entries,
            only_unsent: true,
            history_owner: without_sentinel(request.history_owner.clone()),
        }
    }

    /// Sends only new messages from now on, because a layer below stores the history.
    pub(super) fn keep_below(&mut self) {
        self.history = None;
        self.only_unsent = true;
    }

    pub(super) fn push_unsent(&mut self, message: &Arc<Message>) {
        self.entries.push(Entry { message: message.clone(), reach: Reach::Unsent });
        if let Some(history) = &mut self.history {
            history.replay.push(message);
        }
    }

    pub(super) fn push_sent(&mut self, message: &Arc<Message>) {
        self.entries.push(Entry { message: message.clone(), reach: Reach::Done });
        if let Some(history) = &mut self.history {
            history.replay.push_answer(message);
        }
    }

    /// Returns the batches (the calls of one answer each) that wait for approval in the request's
    /// own messages. If the loop sends the history, batches at the end of the history are included.
    pub(super) fn pending_batches(&self) -> Vec<PendingBatch> {
        if let Some(history) = &self.history {
            return history.replay.pending_batches();
        }
        let mut own = Replay::lenient();
        self.entries.iter().take(self.own_len).for_each(|entry| own.push(&entry.message));
        own.pending_batches()
    }

    pub(super) fn is_kept_below(&self) -> bool {
        self.history.is_none()
    }

    /// Returns the messages that the run has added.
    pub(super) fn added(&self) -> impl ExactSizeIterator<Item = &Arc<Message>> {
        self.entries.iter().skip(self.own_len).map(|entry| &entry.message)
    }

    /// Returns whether the run has added results that no service call has sent.
    pub(super) fn has_unsent_results(&self) -> bool {
        let mut added = self.entries.iter().skip(self.own_len);
        added.any(|entry| entry.reach == Reach::Unsent && entry.message.role == Role::Tool)
    }

    pub(super) fn unsent(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.at(Reach::Unsent)
    }

    fn at(&self, reach: Reach) -> impl Iterator<Item = &Arc<Message>> {
        let of_reach = self.entries.iter().filter(move |entry| entry.reach == reach);
        of_reach.map(|entry| &entry.message)
    }

    /// Returns the unsent messages. They are then done, because no service call will send them.
    pub(super) fn take_unsent(&mut self) -> Vec<Arc<Message>> {
        self.advance(Reach::Unsent, Reach::Done)
    }

    /// Returns the messages of the service call in flight, which has ended.
    pub(super) fn take_in_flight(&mut self) -> Vec<Arc<Message>> {
        self.advance(Reach::InFlight, Reach::Done)
    }

    fn advance(&mut self, from: Reach, to: Reach) -> Vec<Arc<Message>> {
        let reached = self.entries.iter_mut().filter(|entry| entry.reach == from);
        let advanced = reached.map(|entry| {
            entry.reach = to;
            entry.message.clone()
        });
        advanced.collect()
    }

    /// Updates the states after the service call in flight was answered.
    pub(super) fn answered(&mut self, history_owner: Option<HistoryOwner>) {
        self.advance(Reach::InFlight, Reach::Done);
        self.only_unsent = self.is_kept_below() || history_owner.is_some();
        self.history_owner = without_sentinel(history_owner);
    }

    pub(super) fn outgoing(&mut self) -> Outgoing {
        let history_owner = self.history_owner.clone();
        let mut prefix = std::mem::take(&mut self.prefix);
        let unsent = self.advance(Reach::Unsent, Reach::InFlight);
        match &self.history {
            Some(WholeHistory { prefix_len, replay }) if !self.only_unsent => {
                Outgoing { messages: replay.view(), history_len: *prefix_len, history_owner }
            }
            Some(_) | None => {
                let history_len = prefix.len();
                prefix.extend(unsent);
                Outgoing { messages: prefix, history_len, history_owner }
            }
        }
    }
}

/// Removes the sentinel `HistoryOwner::Local`, which only the loop may receive.
pub(super) fn without_sentinel(id: Option<HistoryOwner>) -> Option<HistoryOwner> {
    id.filter(|id| id.service_id().is_some())
}
