//! Removes interrupted calls that were answered later, and splits off the part of a replay that may
//! still change.

use std::sync::Arc;

use tower_chat_core::{Message, Messages};

use super::{
    Replay,
    interrupted::{self, Retracted},
    round::{Round, Unanswered},
};

impl Replay {
    /// Removes from the view each call that it contains as interrupted and that a result of the open
    /// round or of these messages answers. When that result is pushed, the view contains the call with
    /// the result, also after a [split](Self::split_open_round).
    pub(crate) fn retract_answered_by(&mut self, messages: &[Arc<Message>]) {
        // Whether a result answers a call of the open round is only known after it is pushed. If it
        // does, a call with the same id before the round remains interrupted.
        let mut followed = self.clone();
        messages.iter().for_each(|message| followed.push(message));
        followed.close_round();
        let end = self.open.as_ref().map_or(self.position, Round::position);
        for Retracted { call, .. } in followed.retracted.split_off(self.retracted.len()) {
            if call.position < end {
                self.retract(call);
            }
        }
    }

    /// Marks a call that the replay contains as interrupted. The next view does not contain it.
    pub(super) fn retract(&mut self, call: Arc<Unanswered>) {
        self.retracted.push(Retracted { call, within: self.closed.len() });
    }

    pub(super) fn take_retracted_out(&mut self) {
        let retracted = std::mem::take(&mut self.retracted);
        if !retracted.is_empty() {
            self.closed = interrupted::without(&self.closed, &retracted);
        }
    }

    /// Changes the messages before the open round, or all messages if no round is open. The messages
    /// that `edit` returns must be in order and paired, like its input.
    pub fn edit_closed(&mut self, edit: impl FnOnce(&Messages) -> Messages) {
        self.take_retracted_out();
        self.closed = edit(&self.closed);
    }

    /// Changes the open round, if there is one.
    pub(super) fn edit_open(&mut self, edit: impl FnOnce(&mut Round)) {
        self.settle();
        if let Some(round) = &mut self.open {
            edit(round);
        }
    }

    /// Splits off and returns the part that may still change. The returned replay starts with the first
    /// call that the view contains as interrupted, because this call may still be answered. If there is
    /// no such call, it starts with the open round.
    ///
    /// The view of `self`, followed by the view of the returned replay, is the view of the whole
    /// replay. This remains true when messages are pushed to the returned replay.
    #[must_use]
    pub fn split_open(&mut self) -> Self {
        self.take_retracted_out();
        let visible = self.omitted_calls.iter().filter(|call| call.is_visible).map(|call| &**call);
        let first = interrupted::first_position(&self.closed, visible);
        let mut open = self.split_open_round();
        if let Some(first) = first {
            open.closed = self.closed.skip(first);
            self.closed = self.closed.take(first);
        }
        open
    }

    /// Like [`split_open`](Self::split_open), but `self` keeps everything before the open round.
    /// Messages that are pushed to the returned replay must not answer a call that the view contains as
    /// interrupted, unless it was [retracted](Self::retract_answered_by).
    #[must_use]
    pub(crate) fn split_open_round(&mut self) -> Self {
        Self {
            strictness: self.strictness,
            closed: Messages::new(),
            open: self.open.take(),
            pushed: self.pushed,
            position: self.position,
            omitted_calls: std::mem::take(&mut self.omitted_calls),
            retracted: Vec::new(),
            first_dangling: self.first_dangling.take(),
            decided: self.decided.clone(),
            refused: self.refused.clone(),
        }
    }
}
