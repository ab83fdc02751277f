//! Adds the input of a run to the conversation, and checks the decisions in the input.

use std::collections::{BTreeMap, BTreeSet};

use super::ActiveRun;
use crate::contract_model::{
    approvals::Decision,
    media,
    model::{
        End, Expected, Model, RunInput,
        entry::{Call, Entry, Form, Outcome},
    },
    script,
    tools::{Hook, Tool},
};

/// Returns the decision about each call, by token.
fn decisions(answers: &[(String, Decision)]) -> BTreeMap<&str, &Decision> {
    answers.iter().map(|(token, decision)| (&**token, decision)).collect()
}

impl Model<'_> {
    /// Adds the input of the run, and executes the calls that the input approves. Returns whether a
    /// service call follows.
    pub(super) fn take_input(
        &mut self,
        active_run: &mut ActiveRun,
        trace: &mut Expected,
    ) -> Result<bool, End> {
        let message = script::input(self.case, active_run.run);
        match self.inputs[&active_run.run].clone() {
            RunInput::Text => active_run.entries.push(Entry::Text(message)),
            RunInput::Again(message) => active_run.entries.push(Entry::Text(message)),
            RunInput::Results { tokens, has_text, from_record } => {
                let outcomes = tokens.iter().map(|token| self.late(token, from_record)).collect();
                active_run.entries.push(Entry::Results(outcomes));
                active_run.entries.extend(has_text.then_some(Entry::Text(message)));
            }
            RunInput::Approvals { answers, has_text } => {
                let chosen = self.chosen_batches(active_run.run)?;
                let decisions = decisions(&answers);
                let decision = |call: &Call| match decisions.get(&*call.token) {
                    Some(decision) => Decision::clone(decision),
                    None => Decision::Approved,
                };
                // The caller also executes a call if its tool was declared only after the model
                // made the call.
                let is_callers = |call: &Call| call.tool == Tool::Ask && self.tools.has(Tool::Ask);
                if chosen
                    .iter()
                    .flatten()
                    .any(|call| decision(call).is_approved() && is_callers(call))
                {
                    return Err(End::ResultsMissing);
                }
                let calls: Vec<(Call, Decision)> = chosen
                    .into_iter()
                    .flatten()
                    .map(|call| (self.as_registered(&call), decision(&call)))
                    .collect();
                if let Some(refused) = self.with_changed_arguments(&calls) {
                    return Err(refused);
                }
                let message = has_text.then_some(message);
                active_run.entries.push(Entry::Approvals { answers, message });
                let executed = self.execute(calls, self.tools, trace);
                let continues = executed.end.is_none();
                if !executed.outcomes.is_empty() {
                    self.add_results(active_run, executed);
                }
                return Ok(continues);
            }
        }
        Ok(true)
    }

    /// Returns the pending batches that the input of a run decides. Returns an error if the
    /// decisions are not valid: the run then fails before it does anything else.
    pub(super) fn chosen_batches(&self, run: usize) -> Result<Vec<Vec<Call>>, End> {
        let RunInput::Approvals { answers, .. } = &self.inputs[&run] else { return Ok(Vec::new()) };
        let decisions = decisions(answers);
        let is_decided =
            |batch: &Vec<Call>| batch.iter().any(|call| decisions.contains_key(&*call.token));
        let chosen: Vec<Vec<Call>> = self.waiting().into_iter().filter(is_decided).collect();
        if chosen.iter().flatten().any(|call| {
            let is_optional = call.form == Form::Request(false) && self.is_mixed(call);
            !decisions.contains_key(&*call.token) && !is_optional
        }) {
            return Err(End::ApprovalMissing);
        }
        if answers.iter().any(|(token, _)| self.is_settled(token)) {
            return Err(End::ApprovalAnswered);
        }
        match chosen.iter().flatten().any(|call| self.waits_for_results(call)) {
            true => Err(End::ResultsMissing),
            false => Ok(chosen),
        }
    }

    /// Returns the calls in the answer of this call that the caller executes.
    fn returned_beside(&self, call: &Call) -> impl Iterator<Item = &Call> {
        let is_it = |it: &Call| it.token == call.token;
        let answer = self.history.iter().find(|(_, entry)| entry.calls().any(is_it));
        let calls = answer.into_iter().flat_map(|(_, entry)| entry.calls());
        calls.filter(|call| call.form == Form::Call && call.hook != Hook::Drop)
    }

    fn is_mixed(&self, call: &Call) -> bool {
        self.returned_beside(call).next().is_some()
    }

    /// Returns whether the caller must still send a result for a call in the batch of this call.
    fn waits_for_results(&self, call: &Call) -> bool {
        let answered: BTreeSet<&str> = self.outcomes().collect();
        self.returned_beside(call).any(|call| !answered.contains(&*call.token))
    }

    /// Records an error outcome for each approved call whose stored arguments a hook has changed.
    /// It cannot run, unless the decision has other arguments.
    fn with_changed_arguments(&mut self, calls: &[(Call, Decision)]) -> Option<End> {
        let is_changed = |(call, decision): &&(Call, Decision)| {
            let is_changed = matches!(call.hook, Hook::Arguments | Hook::Both);
            *decision == Decision::Approved
                && is_changed
                && self.tools.has(call.tool)
                && call.tool != Tool::Token
                && !self.known.contains_key(&call.token)
        };
        let refused: Vec<Outcome> =
            calls.iter().filter(is_changed).map(|(call, _)| Outcome::not_kept(call)).collect();
        let end = (!refused.is_empty()).then_some(End::ArgumentsNotKept);
        self.known.extend(refused.into_iter().map(|it| (it.token.clone(), it)));
        end
    }

    /// Returns a call of an earlier run with the hook that applies now: none if its tool is no
    /// longer registered.
    fn as_registered(&self, call: &Call) -> Call {
        let hook = if self.tools.has(call.tool) { call.hook } else { Hook::None };
        Call { hook, ..call.clone() }
    }

    /// Returns whether the result of a call can no longer change: the model has answered after it,
    /// or the run was stopped.
    fn is_settled(&self, token: &str) -> bool {
        let has_result = |entry: &Entry| match entry {
            Entry::Results(outcomes) => outcomes.iter().any(|outcome| outcome.token == token),
            _ => false,
        };
        let mut since = self.history.iter().skip_while(|(_, entry)| !has_result(entry));
        since.any(|(run, entry)| {
            matches!(entry, Entry::Answer(_)) || (has_result(entry) && self.stopped.contains(run))
        })
    }

    fn late(&self, token: &str, from_record: bool) -> Outcome {
        match self.in_record_alone.get(token).filter(|_| from_record) {
            Some(outcome) => Outcome { hook: Hook::None, ..outcome.stored() },
            None => {
                let medium = media::of_caller(self.case, token).map(|medium| medium.to_string());
                let text = format!("late {token}{}", medium.unwrap_or_default());
                Outcome::new(token, text, "ok")
            }
        }
    }
}
