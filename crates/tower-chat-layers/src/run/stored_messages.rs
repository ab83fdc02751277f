//! An index from message ids to the positions of stored messages.

use std::{cell::RefCell, collections::HashMap, sync::Arc};

use tower_chat_core::{
    Message, MessageId, Messages, RefusalMark, RunId, pairing::AnswerKey, store::History,
};

use super::input_digest::take_mark;

/// An index of the messages of the loaded history. A lookup extends the index toward the beginning
/// of the history until it finds the message.
#[derive(Debug, Default)]
pub(super) struct StoredMessages(RefCell<Index>);

#[derive(Debug, Default)]
struct Index {
    positions: HashMap<MessageId, usize>,
    indexed: usize,
    /// The index of the round, by the index of the message. Contains the messages of runs that were
    /// looked up.
    rounds: HashMap<usize, u32>,
}

pub(super) fn stored_of_run(history: &History, run: RunId) -> RunInStore {
    let Some(end) = history.end_of_run(run) else { return RunInStore::default() };
    let before = (0..end).rev().map_while(|position| history.messages.get(position));
    let is_of_run = |message: &&Arc<Message>| message.id.is_some_and(|id| id.run == run);
    let mut added: Vec<_> = before.take_while(is_of_run).cloned().collect();
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

impl StoredMessages {
    /// Returns the index of a message. If two messages have the same id, the later one.
    pub(super) fn position(&self, history: &Messages, id: MessageId) -> Option<usize> {
        self.0.borrow_mut().position(history, id)
    }

    /// Returns the index of the round that the message at a position belongs to.
    pub(super) fn round(&self, history: &Messages, position: usize) -> u32 {
        self.0.borrow_mut().round(history, position)
    }
}

impl Index {
    fn position(&mut self, history: &Messages, id: MessageId) -> Option<usize> {
        if let Some(known) = self.positions.get(&id) {
            return Some(*known);
        }
        let mut position = history.len().saturating_sub(self.indexed);
        let unseen = history.take(position);
        for message in unseen.iter().rev() {
            position -= 1;
            self.indexed += 1;
            let Some(found) = message.id else { continue };
            self.positions.entry(found).or_insert(position);
            if found == id {
                return Some(position);
            }
        }
        None
    }

    fn round(&mut self, history: &Messages, position: usize) -> u32 {
        if let Some(known) = self.rounds.get(&position) {
            return *known;
        }
        let run_of = |message: &Arc<Message>| message.id.map(|id| id.run);
        let run = history.get(position).and_then(run_of);
        let of_run = |message: &&Arc<Message>| run_of(message) == run;
        let before = history.take(position).iter().rev().take_while(of_run).count();
        let mut rounds = RoundCounter::default();
        let of_run = history.iter_from(position - before).take_while(of_run);
        for (position, message) in (position - before..).zip(of_run) {
            rounds.push(message);
            self.rounds.insert(position, rounds.last_index());
        }
        self.rounds.get(&position).copied().unwrap_or_default()
    }
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

    fn last_index(&self) -> u32 {
        u32::try_from(self.count.saturating_sub(1)).unwrap_or(u32::MAX)
    }
}
