//! What the run has said so far, and how far each message has come.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, HistoryOwner, Message, MessageId, Messages, Role, RunId};

use crate::{
    Clock,
    replay::{PendingBatch, Replay},
};

/// The messages of a run as the loop sends them, and how far each has come.
pub(super) struct Transcript {
    run: RunId,
    next_index: u32,
    history: Option<WholeHistory>,
    /// The messages of the request, and where the run's own messages begin in them.
    request: Messages,
    own_from: usize,
    request_reach: Reach,
    /// What the run has added since, in order.
    added: Vec<(Arc<Message>, Reach)>,
    only_unsent: bool,
    history_owner: Option<HistoryOwner>,
}

/// How far a message has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reach {
    /// No service call has carried it.
    Unsent,
    /// The service call under way carries it.
    InFlight,
    /// A service call that was answered has carried it, or the model has said it, or no service call will
    /// carry it any more.
    Done,
}

/// Everything, for a service that keeps no history itself.
struct WholeHistory {
    /// How many messages stand before the request's own.
    prefix: usize,
    replay: Replay,
}

/// The messages of one service call.
pub(super) struct Outgoing {
    pub(super) messages: Messages,
    pub(super) new_from: usize,
    pub(super) history_owner: Option<HistoryOwner>,
}

impl Transcript {
    /// The transcript of a run whose service calls carry the whole history until somebody below
    /// says that he keeps it. The replay stands where the request's own messages begin.
    pub(super) fn whole(request: &ChatRequest, run: RunId, replay: Replay) -> Self {
        let prefix = request.messages.take(request.new_from);
        let mut replay = replay.after(&prefix);
        replay.push_from(&request.messages, request.new_from);
        let history = Some(WholeHistory { prefix: prefix.len(), replay });
        Self { history, only_unsent: false, ..Self::only_unsent(request, run, || 0) }
    }

    /// The transcript of a run whose history a layer below keeps and puts before each call. That
    /// layer has `taken` so many of the run's messages already, and numbers on from them.
    pub(super) fn only_unsent(
        request: &ChatRequest,
        run: RunId,
        taken: impl FnOnce() -> usize,
    ) -> Self {
        Self {
            run,
            next_index: next_index(request, run, taken),
            history: None,
            request: request.messages.clone(),
            own_from: request.new_from,
            request_reach: Reach::Unsent,
            added: Vec::new(),
            only_unsent: true,
            history_owner: without_sentinel(request.history_owner.clone()),
        }
    }

    /// With the index that the run's next message gets.
    pub(super) fn numbered_from(mut self, next: usize) -> Self {
        self.next_index = u32::try_from(next).unwrap_or(u32::MAX);
        self
    }

    /// A layer below has begun the run: it keeps the history from the first service call on.
    pub(super) fn keep_below(&mut self) {
        self.history = None;
        self.only_unsent = true;
    }

    /// Gives a message its position in the run, unless it has one: a persister below gives its own.
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

    /// Takes a message that the next service call must carry.
    pub(super) fn push_unsent(&mut self, message: &Arc<Message>) {
        self.added.push((message.clone(), Reach::Unsent));
        if let Some(history) = &mut self.history {
            history.replay.push(message);
        }
    }

    /// Takes a message that came from below.
    pub(super) fn push_sent(&mut self, message: &Arc<Message>) {
        self.added.push((message.clone(), Reach::Done));
        if let Some(history) = &mut self.history {
            history.replay.push_answer(message);
        }
    }

    /// The batches that wait for approval among the request's own messages, and in the open end of
    /// the history before them.
    pub(super) fn pending_batches(&self, request: &ChatRequest) -> Vec<PendingBatch> {
        if let Some(history) = &self.history {
            return history.replay.pending_batches();
        }
        let mut own = Replay::lenient();
        own.push_from(&request.messages, request.new_from);
        own.pending_batches()
    }

    /// Whether a layer below keeps the history and puts it before each call.
    pub(super) fn is_kept_below(&self) -> bool {
        self.history.is_none()
    }

    /// What the run has added, in order.
    pub(super) fn added(&self) -> impl ExactSizeIterator<Item = &Arc<Message>> {
        self.added.iter().map(|(message, _)| message)
    }

    /// Whether results are among the messages that no service call has carried yet.
    pub(super) fn has_unsent_results(&self) -> bool {
        let is_results = |message: &Arc<Message>| message.role == Role::Tool;
        self.added.iter().any(|(message, reach)| *reach == Reach::Unsent && is_results(message))
    }

    /// Everything that no service call has carried yet, without a layer's prefix.
    pub(super) fn unsent(&self) -> Messages {
        self.own(Reach::Unsent)
    }

    /// Takes the same: no service call will carry it.
    pub(super) fn take_unsent(&mut self) -> Vec<Arc<Message>> {
        self.take(Reach::Unsent)
    }

    /// Takes what the service call under way carries: the call is over.
    pub(super) fn take_in_flight(&mut self) -> Vec<Arc<Message>> {
        self.take(Reach::InFlight)
    }

    fn take(&mut self, reach: Reach) -> Vec<Arc<Message>> {
        let taken = self.own(reach).iter().cloned().collect();
        self.advance(reach, Reach::Done);
        taken
    }

    /// The run's own messages that have come so far.
    fn own(&self, reach: Reach) -> Messages {
        let mut own = match self.request_reach == reach {
            true => self.request.skip(self.own_from),
            false => Messages::new(),
        };
        let added = self.added.iter().filter(|(_, of_message)| *of_message == reach);
        own.extend(added.map(|(message, _)| message.clone()));
        own
    }

    fn advance(&mut self, from: Reach, to: Reach) {
        let added = self.added.iter_mut().map(|(_, reach)| reach);
        let reached = added.chain([&mut self.request_reach]).filter(|reach| **reach == from);
        reached.for_each(|reach| *reach = to);
    }

    /// The service call under way was answered, by an answer that says who keeps the history.
    pub(super) fn answered(&mut self, history_owner: Option<HistoryOwner>) {
        self.advance(Reach::InFlight, Reach::Done);
        self.only_unsent = self.is_kept_below() || history_owner.is_some();
        self.history_owner = without_sentinel(history_owner);
    }

    /// What the next service call carries.
    pub(super) fn outgoing(&mut self) -> Outgoing {
        let history_owner = self.history_owner.clone();
        let outgoing = match &self.history {
            Some(WholeHistory { prefix, replay }) if !self.only_unsent => {
                Outgoing { messages: replay.view(), new_from: *prefix, history_owner }
            }
            Some(_) | None if self.request_reach == Reach::Unsent => {
                let mut messages = self.request.take(self.own_from);
                messages.append(&self.unsent());
                Outgoing { messages, new_from: self.own_from, history_owner }
            }
            Some(_) | None => Outgoing { messages: self.unsent(), new_from: 0, history_owner },
        };
        self.advance(Reach::Unsent, Reach::InFlight);
        outgoing
    }
}

/// The position of the run's next message: after those of the run in the request that have one, else
/// after the request's own and those that were taken before.
fn next_index(request: &ChatRequest, run: RunId, taken: impl FnOnce() -> usize) -> u32 {
    match request.messages.last().and_then(|last| last.id) {
        Some(last) if last.run == run => last.index.saturating_add(1),
        Some(_) | None => {
            let own = request.messages.len().saturating_sub(request.new_from);
            u32::try_from(own.max(taken())).unwrap_or(u32::MAX)
        }
    }
}

/// The sentinel is for the loop alone.
pub(super) fn without_sentinel(id: Option<HistoryOwner>) -> Option<HistoryOwner> {
    id.filter(|id| id.service_id().is_some())
}
