//! Removes interrupted calls for which the real result arrives later, and splits off the part of a
//! replay that may still change.
//!
//! A call is interrupted if its run ended before the call had a result. The view of a replay, which
//! is its output, contains such a call with an error result. A round consists of the calls of one
//! answer of the model and their results. The open round is the last one, if results may still
//! arrive for it.

use std::sync::Arc;

use tower_chat_core::{Message, Messages};

use super::{
    Replay,
    interrupted::{self, Retracted},
    round::{Round, RoundCall},
};

impl Replay {
    /// Removes from the view each interrupted call that a result in the open round or in `messages`
    /// answers. The caller then pushes `messages` to this replay or to the
    /// [split](Self::split_open_round) one, which adds the calls again with their results.
    pub(crate) fn retract_answered_by(&mut self, messages: &[Arc<Message>]) {
        // Only a push finds the call that a result answers, so the messages are pushed to a clone.
        // If a result answers a call of the open round, an earlier call with the same id remains
        // interrupted.
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

    pub(super) fn retract(&mut self, call: Arc<RoundCall>) {
        self.retracted.push(Retracted { call, within: self.closed.len() });
    }

    pub(super) fn take_retracted_out(&mut self) {
        let retracted = std::mem::take(&mut self.retracted);
        if !retracted.is_empty() {
            self.closed = interrupted::without(&self.closed, &retracted);
        }
    }

    /// Replaces the messages before the open round by the output of `edit`. If no round is open,
    /// `edit` receives all messages. In the output of `edit`, each call must directly precede its
    /// result, as in the input.
    pub fn edit_closed(&mut self, edit: impl FnOnce(&Messages) -> Messages) {
        self.take_retracted_out();
        self.closed = edit(&self.closed);
    }

    /// Like [`edit_closed`](Self::edit_closed), but `edit` may also change the
    /// [later messages](Round::later_messages_mut) of the open round.
    pub(super) fn edit_before_open(
        &mut self,
        edit: impl FnOnce(&Messages, &mut [&mut Arc<Message>]) -> Messages,
    ) {
        self.take_retracted_out();
        self.name_unnamed_results();
        let mut open: Vec<_> = self.open.iter_mut().flat_map(Round::later_messages_mut).collect();
        self.closed = edit(&self.closed, &mut open);
    }

    pub(super) fn edit_open(&mut self, edit: impl FnOnce(&mut Round)) {
        self.name_unnamed_results();
        if let Some(round) = &mut self.open {
            edit(round);
        }
    }

    /// Splits off and returns the part that may still change. This part begins with the first
    /// interrupted call in the view, because a later result may answer this call. If the view
    /// contains no interrupted call, the part begins with the open round.
    ///
    /// The view of `self` and the view of the returned replay together are the view of the whole
    /// replay, also after messages are pushed to the returned replay.
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

    /// Splits off and returns the open round. `self` keeps all messages before the open round,
    /// including interrupted calls, which the returned replay cannot remove. Before the split, the
    /// caller must pass the messages that it will push to
    /// [`retract_answered_by`](Self::retract_answered_by).
    ///
    /// The returned replay has copies of all fields that this function does not name.
    #[must_use]
    pub(crate) fn split_open_round(&mut self) -> Self {
        Self {
            closed: Messages::new(),
            open: self.open.take(),
            omitted_calls: std::mem::take(&mut self.omitted_calls),
            retracted: Vec::new(),
            first_dangling: self.first_dangling.take(),
            ..self.clone()
        }
    }
}
