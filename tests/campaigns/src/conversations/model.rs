//! What may be in a conversation, and what must be.

use std::collections::{BTreeMap, VecDeque};

use tower_chat::{PersistenceMode, RunId};

use super::{
    entry::Entry,
    plan::Turn,
    stack::Outcome,
    turn::{TurnEvent, TurnModel},
};

/// A conversation as its callers know it.
#[derive(Debug, Clone)]
pub(crate) struct ConversationModel {
    pub(crate) number: u32,
    /// Runs of which something may be stored, oldest first.
    pub(super) turns: VecDeque<TurnModel>,
    /// What was visible when it was last looked at, by the numbers of the messages.
    pub(super) seen: BTreeMap<u64, (u32, Entry)>,
    pub(super) pruned: u64,
    /// The most that a prune may have left since: so many messages must still be there.
    pub(super) kept: Option<u64>,
    next_turn: u32,
    /// Turns that were acknowledged since it was last pruned.
    pub(crate) since_prune: u32,
}

impl ConversationModel {
    pub(crate) fn new(number: u32) -> Self {
        Self {
            number,
            turns: VecDeque::new(),
            seen: BTreeMap::new(),
            pruned: 0,
            kept: None,
            next_turn: 0,
            since_prune: 0,
        }
    }

    /// The next run: the last one again, if its caller received no answer and it is wanted, or a new one.
    pub(crate) fn begin(
        &mut self,
        is_again: bool,
        mode: impl FnOnce(Turn) -> PersistenceMode,
    ) -> (Turn, RunId) {
        let last = self.turns.back_mut().filter(|last| is_again && last.acknowledged.is_none());
        if let Some(last) = last {
            last.begin_attempt();
            return (last.turn, last.run);
        }
        let turn = Turn { conversation: self.number, number: self.next_turn };
        self.next_turn += 1;
        let mut model = TurnModel::new(turn, RunId::new(), mode(turn));
        model.begin_attempt();
        let begun = (turn, model.run);
        self.turns.push_back(model);
        begun
    }

    /// Adds what happened in a run, which need not be the last: a later one may go on with it.
    pub(crate) fn add(&mut self, turn: Turn, event: TurnEvent) -> Result<(), String> {
        match self.turns.iter_mut().find(|model| model.turn == turn) {
            Some(model) => {
                model.add(event);
                Ok(())
            }
            None => Err(format!("run {} goes on although it has ended: {event:?}", turn.token())),
        }
    }

    /// The attempt at the last run has ended. `None` if its process was killed.
    pub(crate) fn end(&mut self, outcome: Option<&Outcome>) {
        // The attempt may have gone on with an earlier run first.
        self.turns.iter_mut().for_each(TurnModel::end_attempt);
        let Some(last) = self.turns.back_mut() else { return };
        if let Some(Outcome::Answered { token }) = outcome {
            last.acknowledged = Some(token.clone());
            self.since_prune += 1;
        }
    }

    /// A prune begins that leaves at least so many messages.
    pub(crate) fn begin_prune(&mut self, keep: u64) {
        self.kept = Some(keep);
        self.since_prune = 0;
    }

    /// The last run whose answer its caller has.
    pub(crate) fn last_acknowledged(&self) -> Option<u32> {
        let acknowledged = self.turns.iter().rev().find(|turn| turn.acknowledged.is_some());
        acknowledged.map(|turn| turn.turn.number)
    }

    /// The model is shown every earlier run whose caller has its answer, in order.
    pub(crate) fn check_shown(&self, turn: Turn, event: &TurnEvent) -> Result<(), String> {
        let TurnEvent::Asked { shown } = event else { return Ok(()) };
        let mut shown = shown.iter();
        for earlier in self.turns.iter().filter(|earlier| earlier.turn < turn) {
            let Some(answer) = &earlier.acknowledged else { continue };
            for token in [&earlier.turn.token(), answer] {
                if !shown.any(|it| it == token) {
                    return Err(format!("in run {} the model is not shown {token}", turn.token()));
                }
            }
        }
        Ok(())
    }
}
