//! Calls that were shown as interrupted and are answered after all, and what may still change.

use std::sync::Arc;

use tower_chat_core::{Message, Messages};

use super::{
    Replay,
    interrupted::{self, Retracted},
    round::{Round, Unanswered},
};

impl Replay {
    /// Does not show the calls any more that were said to be interrupted and that these messages
    /// answer: they will stand with their results where those are pushed, after a
    /// [split](Self::split_open) too.
    pub(crate) fn retract_answered_by(&mut self, messages: &[Arc<Message>]) {
        let mut unanswered = self.left_out.clone();
        for result in messages.iter().flat_map(|message| message.results()) {
            let Some(number) = unanswered.find(result) else { continue };
            let answered = unanswered.remove(number);
            if let Some(call) = answered.filter(|call| call.is_visible) {
                self.retract(call);
            }
        }
    }

    /// Marks a call that was shown as interrupted: the next view is without it.
    pub(super) fn retract(&mut self, call: Arc<Unanswered>) {
        self.retracted.push(Retracted { call, within: self.closed.len() });
    }

    pub(super) fn take_retracted_out(&mut self) {
        let retracted = std::mem::take(&mut self.retracted);
        if !retracted.is_empty() {
            self.closed = interrupted::without(&self.closed, &retracted);
        }
    }

    /// Hides the calls that results in the open round answer, as
    /// [`retract_answered_by`](Self::retract_answered_by) does, before the round is
    /// [split off](Self::split_open_round).
    pub(crate) fn retract_answered_by_open_round(&mut self) {
        self.settle();
        let leftover = self.open.as_ref().map(Round::leftover).unwrap_or_default();
        if !leftover.is_empty() {
            self.retract_answered_by(&[Arc::new(Message::tool_results(leftover))]);
        }
    }

    /// Changes what is shown of everything that is closed.
    pub(crate) fn edit_closed(&mut self, edit: impl FnOnce(&Messages) -> Messages) {
        self.take_retracted_out();
        self.closed = edit(&self.closed);
    }

    /// Changes what is shown of the round that is still open, if there is one.
    pub(super) fn edit_open(&mut self, edit: impl FnOnce(&mut Round)) {
        self.settle();
        if let Some(round) = &mut self.open {
            edit(round);
        }
    }

    /// Splits off what may still change: `self` keeps what is closed, and the returned replay
    /// starts with the open round, or before it with the first call that is shown as interrupted
    /// and may still be answered.
    ///
    /// The view of the first followed by that of the second is the view of the whole, whatever is
    /// pushed to the second.
    #[must_use]
    pub fn split_open(&mut self) -> Self {
        self.take_retracted_out();
        let visible = self.left_out.iter().filter(|call| call.is_visible).map(|call| &**call);
        let first = interrupted::first_position(&self.closed, visible);
        let mut open = self.split_open_round();
        if let Some(first) = first {
            open.closed = self.closed.skip(first);
            self.closed = self.closed.take(first);
        }
        open
    }

    /// The same, but `self` keeps everything before the open round: what is pushed to the returned
    /// replay must not answer a call that is shown as interrupted, unless it was
    /// [retracted](Self::retract_answered_by).
    #[must_use]
    pub(crate) fn split_open_round(&mut self) -> Self {
        Self {
            strictness: self.strictness,
            closed: Messages::new(),
            open: self.open.take(),
            pushed: self.pushed,
            position: self.position,
            left_out: std::mem::take(&mut self.left_out),
            retracted: Vec::new(),
            first_dangling: self.first_dangling.take(),
            decided: self.decided.clone(),
        }
    }
}
