//! Finds the stored messages of a run, and stored messages by their ids.

use std::sync::Arc;

use tower_chat_core::{Message, MessageId, RefusalMark, RunId, pairing::AnswerKey, store::History};

use super::input_digest::take_mark;

/// Returns the messages of a run at its end in a history, in reverse order.
pub(super) fn messages_of_run(
    history: &History,
    run: RunId,
) -> impl Iterator<Item = &Arc<Message>> {
    let end = history.end_of_run(run).unwrap_or(0);
    let before = (0..end).rev().map_while(|position| history.messages.get(position));
    before.take_while(move |message| message.id.is_some_and(|id| id.run == run))
}

pub(super) fn stored_of_run(history: &History, run: RunId) -> RunInStore {
    let Some(end) = history.end_of_run(run) else { return RunInStore::default() };
    let mut added: Vec<_> = messages_of_run(history, run).cloned().collect();
    added.reverse();
    let input_digest = added.first_mut().and_then(take_mark);
    added.iter_mut().for_each(without_refusals);
    RunInStore { added, input_digest, is_overtaken: end < history.messages.len() }
}

/// Removes the refusal marks from a message, which the messages of the caller do not contain.
fn without_refusals(message: &mut Arc<Message>) {
    if RefusalMark::is_stored_in(message) {
        RefusalMark::remove_from(Arc::make_mut(message));
    }
}

/// The stored state of a run.
#[derive(Debug, Default)]
pub(super) struct RunInStore {
    /// The messages of the run, without the input digest and refusal marks.
    pub(super) added: Vec<Arc<Message>>,
    pub(super) input_digest: Option<String>,
    /// Whether messages of another run follow the messages of this run.
    pub(super) is_overtaken: bool,
}

/// Returns the message with this id and its index. The messages must be in the order of their ids.
pub(super) fn find(messages: &[Arc<Message>], id: MessageId) -> Option<(usize, &Arc<Message>)> {
    let position = messages.partition_point(|message| message.id < Some(id));
    let message = messages.get(position).filter(|message| message.id == Some(id))?;
    Some((position, message))
}

/// Returns the index of a message in a history. If two messages have the same id, the later one.
pub(super) fn position_in(history: &History, id: MessageId) -> Option<usize> {
    let until_end = history.messages.take(history.end_of_run(id.run)?);
    until_end.iter().rposition(|message| message.id == Some(id))
}

/// Counts the rounds in the messages of one run. All messages of an answer belong to one round.
#[derive(Debug, Default)]
pub(super) struct RoundCounter {
    pub(super) count: usize,
    /// The answer of the last message, if it contains calls.
    open: Option<AnswerKey>,
}

impl RoundCounter {
    pub(super) fn push(&mut self, message: &Message) {
        let asks = message.asked_calls().next().is_some();
        let key = AnswerKey::of(message);
        let is_open = key.is_some() && key == self.open;
        self.count += usize::from(asks && !is_open);
        self.open = key.filter(|_| is_open || asks);
    }

    pub(super) fn last_index(&self) -> u32 {
        u32::try_from(self.count.saturating_sub(1)).unwrap_or(u32::MAX)
    }
}
