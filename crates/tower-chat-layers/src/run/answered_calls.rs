//! Finds the calls to which the results in a write belong.

use std::{collections::VecDeque, sync::Arc};

use tower_chat_core::{Message, Role};

use crate::replay::{AskedCall, Replay};

/// Finds the calls to which the results in each message of a write belong. Pairs the results of
/// consecutive messages in one step, because the cost per result would otherwise grow with the
/// number of results.
#[derive(Default)]
pub(super) struct AnsweredCalls {
    /// The replay of all messages up to and including the last paired message.
    replay: Option<Replay>,
    /// The number of messages of the write that were paired or skipped.
    pushed: usize,
    /// The calls to which the results belong, for each paired message that
    /// [`by_message_at`](Self::by_message_at) has not returned yet.
    found: VecDeque<Vec<Option<AskedCall>>>,
}

impl AnsweredCalls {
    /// Returns the calls to which the results of the message at `position` belong. Must be called
    /// in ascending order of the positions. `before` is the replay of the messages before the
    /// write.
    pub(super) fn by_message_at(
        &mut self,
        position: usize,
        write: &[&Arc<Message>],
        before: &Replay,
    ) -> Vec<Option<AskedCall>> {
        if position >= self.pushed {
            self.pair_from(position, write, before);
        }
        let skipped = self.found.len().saturating_sub(self.pushed - position);
        self.found.drain(..skipped);
        self.found.pop_front().unwrap_or_default()
    }

    fn pair_from(&mut self, position: usize, write: &[&Arc<Message>], before: &Replay) {
        let replay = self.replay.get_or_insert_with(|| before.clone());
        let since = write.get(self.pushed..position).unwrap_or_default();
        since.iter().for_each(|message| replay.push(message));
        let rest = write.get(position..).unwrap_or_default();
        let next = rest.iter().skip(1).take_while(|message| message.role == Role::Tool).count();
        let together: Vec<Arc<Message>> =
            rest.iter().take(1 + next).map(|message| Arc::clone(message)).collect();
        self.found = replay.push_answering(&together).into();
        self.pushed = position + together.len();
    }
}
