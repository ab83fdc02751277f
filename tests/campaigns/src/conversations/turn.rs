//! The model of one run: the messages that may be stored, and those that must be stored. It is
//! built from the reports of the processes. A run has several attempts if it is executed again
//! after an interruption.

use serde::{Deserialize, Serialize};
use tower_chat::{PersistenceMode, run::RunId};

use super::{
    entry::{CallResult, Entry},
    plan::Turn,
};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) enum TurnEvent {
    /// The model client received a request with these tokens of inputs and answers.
    Asked { shown: Vec<String> },
    /// The model client returned an answer with these calls and the text of this token.
    Answered { token: String, calls: Vec<String> },
    /// A tool execution for this call ended with the text of this token.
    Ran { call: String, token: String },
}

#[derive(Debug, Clone)]
pub(crate) struct TurnModel {
    pub(crate) turn: Turn,
    pub(crate) run: RunId,
    pub(crate) mode: PersistenceMode,
    pub(crate) attempts: u32,
    /// The answers with their calls, in order.
    answers: Vec<(String, Vec<String>)>,
    /// The executions of tools: call and token.
    executions: Vec<(String, String)>,
    /// The tokens of answers that must be stored.
    durable: Vec<String>,
    /// The tokens of the last answers of the current attempt. They may not be stored yet, because
    /// no later event has been reported.
    last_answers: Vec<String>,
    /// The final answer, if the caller received it.
    pub(crate) acknowledged: Option<String>,
}

impl TurnModel {
    pub(crate) fn new(turn: Turn, run: RunId, mode: PersistenceMode) -> Self {
        Self {
            turn,
            run,
            mode,
            attempts: 0,
            answers: Vec::new(),
            executions: Vec::new(),
            durable: Vec::new(),
            last_answers: Vec::new(),
            acknowledged: None,
        }
    }

    pub(crate) fn begin_attempt(&mut self) {
        self.attempts += 1;
        self.last_answers.clear();
    }

    pub(crate) fn end_attempt(&mut self) {
        self.last_answers.clear();
    }

    pub(crate) fn add(&mut self, event: TurnEvent) {
        match event {
            // In per-service-call mode and in journaled mode, an answer is stored before the next
            // service call.
            TurnEvent::Asked { .. } => self.answers_are_durable(),
            TurnEvent::Answered { token, calls } => {
                self.last_answers.push(token.clone());
                self.answers.push((token, calls));
            }
            TurnEvent::Ran { call, token } => {
                if self.mode == PersistenceMode::Journaled {
                    self.answers_are_durable();
                }
                self.executions.push((call, token));
            }
        }
    }

    /// Removes the answers that a server has lost in a crash, which then need not be stored.
    /// Returns the run if its caller received a lost answer.
    pub(crate) fn remove_lost(&mut self, is_stored: impl Fn(&str) -> bool) -> Option<Turn> {
        self.durable.retain(|token| is_stored(token));
        self.acknowledged.take_if(|token| !is_stored(token)).map(|_| self.turn)
    }

    fn answers_are_durable(&mut self) {
        match self.mode {
            PersistenceMode::PerRun => self.last_answers.clear(),
            PersistenceMode::PerServiceCall | PersistenceMode::Journaled => {
                self.durable.append(&mut self.last_answers);
            }
        }
    }

    /// Returns whether the run had more than one attempt, or its caller received no answer.
    fn was_interrupted(&self) -> bool {
        self.attempts != 1 || self.acknowledged.is_none()
    }

    pub(crate) fn check_visible(&self, entries: &[Entry]) -> Result<(), String> {
        let unanswered = self.check_entries(entries)?;
        let last = match entries.last() {
            Some(Entry::Answer { token, .. }) if unanswered.is_empty() => Some(token),
            _ => None,
        };
        match &self.acknowledged {
            Some(token) if last != Some(token) => {
                return Err(format!(
                    "its caller received the answer {token}, but the last is {last:?}"
                ));
            }
            None if last.is_none() && self.mode == PersistenceMode::PerRun => {
                return Err("a part of a run of the mode per run is visible".to_owned());
            }
            None if !unanswered.is_empty() && self.mode == PersistenceMode::Journaled => {
                return Err(format!("it was committed without results of {unanswered:?}"));
            }
            Some(_) | None => {}
        }
        self.check_durable(entries)
    }

    /// Checks the staged messages of the run, which are stored but not yet visible.
    pub(crate) fn check_staged(&self, entries: &[Entry]) -> Result<(), String> {
        if self.mode != PersistenceMode::Journaled || self.acknowledged.is_some() {
            return Err("it must not be open".to_owned());
        }
        self.check_entries(entries)?;
        self.check_durable(entries)
    }

    /// Checks that the run may be absent.
    pub(crate) fn check_absent(&self, is_over: bool) -> Result<(), String> {
        if let Some(token) = &self.acknowledged {
            return Err(format!("its caller received the answer {token}, but it is not stored"));
        }
        let is_due = self.mode == PersistenceMode::PerServiceCall || is_over;
        match self.durable.first().filter(|_| is_due) {
            Some(token) => Err(format!("the answer {token} was durable, but is not stored")),
            None => Ok(()),
        }
    }

    fn check_durable(&self, entries: &[Entry]) -> Result<(), String> {
        let is_stored = |durable: &&String| {
            let is_it =
                |entry: &Entry| matches!(entry, Entry::Answer { token, .. } if token == *durable);
            entries.iter().any(is_it)
        };
        match self.durable.iter().find(|durable| !is_stored(durable)) {
            Some(token) => Err(format!("the answer {token} was durable, but is not stored")),
            None => Ok(()),
        }
    }

    /// Checks the order of the entries, and that each was reported. Returns the calls of the last
    /// answer that have no result.
    fn check_entries(&self, entries: &[Entry]) -> Result<Vec<String>, String> {
        let mut unanswered: Vec<String> = Vec::new();
        let mut answers = Vec::new();
        for (index, entry) in entries.iter().enumerate() {
            match entry {
                Entry::Input(turn) if *turn == self.turn && index == 0 => {}
                Entry::Answer { token, calls } if index > 0 => {
                    if !unanswered.is_empty() && !self.was_interrupted() {
                        return Err(format!("the calls {unanswered:?} have no result"));
                    }
                    if answers.contains(token)
                        || !self.answers.contains(&(token.clone(), calls.clone()))
                    {
                        return Err(format!(
                            "this answer was not given by the model, or is stored twice: {entry:?}"
                        ));
                    }
                    answers.push(token.clone());
                    unanswered.clone_from(calls);
                }
                Entry::Results(results) if index > 0 => {
                    for (call, result) in results {
                        let Some(position) = unanswered.iter().position(|it| it == call) else {
                            return Err(format!("a result of {call}, which is not an open call"));
                        };
                        unanswered.remove(position);
                        self.check_result(call, result)?;
                    }
                }
                Entry::Input(_) | Entry::Answer { .. } | Entry::Results(_) | Entry::Foreign(_) => {
                    return Err(format!("entry {index} does not belong to this run: {entry:?}"));
                }
            }
        }
        let given = self.answers.iter().map(|(token, _)| token);
        if !self.was_interrupted() && !answers.iter().eq(given.clone()) {
            let given: Vec<_> = given.collect();
            return Err(format!("the model answered {given:?}, but {answers:?} is stored"));
        }
        Ok(unanswered)
    }

    fn check_result(&self, call: &str, result: &CallResult) -> Result<(), String> {
        let is_right = match result {
            CallResult::Of(token) => {
                self.executions.iter().any(|(of, execution)| of == call && execution == token)
            }
            CallResult::Unknown | CallResult::NeverRun => self.was_interrupted(),
        };
        match is_right {
            true => Ok(()),
            false => Err(format!("call {call} cannot have the result {result:?}")),
        }
    }
}
