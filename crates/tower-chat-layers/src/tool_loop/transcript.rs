//! What the run has said so far, and what of it the next service call must carry.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, HistoryOwner, Message, MessageId, Messages, RunId};

use crate::{
    Clock,
    replay::{PendingBatch, Replay},
};

/// The messages of a run as the loop sends them.
pub(super) struct Transcript {
    run: RunId,
    next_index: u32,
    history: Option<WholeHistory>,
    /// What no service call has carried yet.
    unsent: Messages,
    /// Where the run's own messages begin in `unsent`.
    unsent_from: usize,
    only_unsent: bool,
    history_owner: Option<HistoryOwner>,
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
            unsent: request.messages.clone(),
            unsent_from: request.new_from,
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
        self.unsent.push(message.clone());
        if let Some(history) = &mut self.history {
            history.replay.push(message);
        }
    }

    /// Takes a message that came from below.
    pub(super) fn push_sent(&mut self, message: &Arc<Message>) {
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

    /// Everything that no service call has carried yet, without a layer's prefix.
    pub(super) fn unsent(&self) -> impl Iterator<Item = &Arc<Message>> {
        self.unsent.iter_from(self.unsent_from)
    }

    /// Takes everything that no service call has carried yet, without a layer's prefix.
    pub(super) fn take_unsent(&mut self) -> Messages {
        let unsent = std::mem::take(&mut self.unsent);
        unsent.skip(std::mem::take(&mut self.unsent_from))
    }

    /// Takes note of who keeps the history, as a response says.
    pub(super) fn answered(&mut self, history_owner: Option<HistoryOwner>) {
        self.only_unsent = self.is_kept_below() || history_owner.is_some();
        self.history_owner = without_sentinel(history_owner);
    }

    /// What the next service call carries.
    pub(super) fn outgoing(&mut self) -> Outgoing {
        let unsent = std::mem::take(&mut self.unsent);
        let unsent_from = std::mem::take(&mut self.unsent_from);
        let history_owner = self.history_owner.clone();
        match &self.history {
            Some(WholeHistory { prefix, replay }) if !self.only_unsent => {
                Outgoing { messages: replay.view(), new_from: *prefix, history_owner }
            }
            Some(_) | None => Outgoing { messages: unsent, new_from: unsent_from, history_owner },
        }
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
