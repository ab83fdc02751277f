//! A model of a conversation: the messages that the stored conversation may contain, and the
//! messages that it must contain.

use std::collections::{BTreeMap, VecDeque};

use tower_chat::{PersistenceMode, run::RunId};

use super::{
    entry::Entry,
    plan::Turn,
    stack::Outcome,
    turn::{TurnEvent, TurnModel},
};

#[derive(Debug, Clone)]
pub(crate) struct ConversationModel {
    pub(crate) number: u32,
    /// Models of the runs that may be stored, oldest first.
    pub(super) turns: VecDeque<TurnModel>,
    /// The messages that were visible at the last inspection, by their numbers.
    pub(super) seen: BTreeMap<u64, (u32, Entry)>,
    pub(super) pruned: u64,
    /// The minimum number of messages that the last prune (a removal of the oldest runs) had to
    /// retain, until an inspection has checked it.
    pub(super) kept: Option<u64>,
    next_turn: u32,
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

    /// Begins a run. If `is_again` is set and the last run has not been answered, begins another
    /// attempt of the last run instead.
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

    /// Adds an event of a run. It may be an earlier run that a later request has resumed.
    pub(crate) fn add(&mut self, turn: Turn, event: TurnEvent) -> Result<(), String> {
        match self.turns.iter_mut().find(|model| model.turn == turn) {
            Some(model) => {
                model.add(event);
                Ok(())
            }
            None => Err(format!("an event of run {}, which has ended: {event:?}", turn.token())),
        }
    }

    /// Ends the attempt at the last run. The outcome is `None` if the process was killed.
    pub(crate) fn end(&mut self, outcome: Option<&Outcome>) {
        // The request may have resumed an earlier run first. The attempts of all runs therefore
        // end.
        self.turns.iter_mut().for_each(TurnModel::end_attempt);
        let Some(last) = self.turns.back_mut() else { return };
        if let Some(Outcome::Answered { token }) = outcome {
            last.acknowledged = Some(token.clone());
            self.since_prune += 1;
        }
    }

    pub(crate) fn begin_prune(&mut self, keep: u64) {
        self.kept = Some(keep);
        self.since_prune = 0;
    }

    pub(crate) fn last_acknowledged(&self) -> Option<u32> {
        let acknowledged = self.turns.iter().rev().find(|turn| turn.acknowledged.is_some());
        acknowledged.map(|turn| turn.turn.number)
    }

    /// Checks that a service call contains the input and the answer of every earlier acknowledged
    /// run, in order.
    pub(crate) fn check_shown(&self, turn: Turn, event: &TurnEvent) -> Result<(), String> {
        let TurnEvent::Asked { shown } = event else { return Ok(()) };
        let mut shown = shown.iter();
        for earlier in self.turns.iter().filter(|earlier| earlier.turn < turn) {
            let Some(answer) = &earlier.acknowledged else { continue };
            for token in [&earlier.turn.token(), answer] {
                if !shown.any(|it| it == token) {
                    return Err(format!("in run {} the model is not sent {token}", turn.token()));
                }
            }
        }
        Ok(())
    }
}
