//! Per-run mode: the state of a run until one write stores the run at its end.

use std::sync::Arc;

use tower_chat_core::{Message, Messages, Role};

use crate::replay::Replay;

/// The state of a run that is stored at its end.
#[derive(Default)]
pub(super) struct WholeRun {
    /// The index, in the run, of the first message of the run's answer. The stored messages of the run
    /// and its input come first.
    pub(super) answer_from: usize,
    /// The replay of the open end of the stored history, if the input answers approval requests in it.
    pub(super) open_replay: Option<Replay>,
    /// The messages of the request that the tool loop received, and the index of the first new one.
    pub(super) given: (Messages, usize),
    pub(super) rounds: SeenRounds,
}

/// The messages that a persister below a tool loop of another crate has seen.
#[derive(Debug, Default)]
pub(super) struct SeenRounds {
    /// The messages that the service calls have added after the run's request, in order.
    pub(super) messages: Vec<Arc<Message>>,
    /// Whether a service call did not continue the messages of the earlier calls, so that `messages` is
    /// not the whole run.
    pub(super) is_broken: bool,
}

impl WholeRun {
    /// Removes and returns the recorded rounds of tools. Returns nothing if the answer contains rounds
    /// itself, or if the recorded rounds are incomplete.
    pub(super) fn take_unseen_rounds(&mut self, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let SeenRounds { messages, is_broken } = &mut self.rounds;
        let has_rounds =
            |messages: &[Arc<Message>]| messages.iter().any(|it| it.role != Role::Assistant);
        match !*is_broken && has_rounds(messages) && !has_rounds(answer) {
            true => std::mem::take(messages),
            false => Vec::new(),
        }
    }
}
