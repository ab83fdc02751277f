//! The expected messages of a request, computed from the recorded JSON alone. A round consists of
//! the calls of one answer and their results.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat::{Role, ToolCall};

use super::recording::RecordedMessage;

#[derive(Debug, Clone)]
pub(super) struct ExpectedMessage {
    pub(super) json: Arc<Value>,
    /// For a result: the positions of the message with its call, and of the call in that message.
    pub(super) answers: Option<(usize, usize)>,
}

/// The messages that replay sends to a model for a recording. Replay removes empty answers, calls
/// without results, and results without calls. If a result was recorded after its round, replay
/// moves the call directly before the result.
#[derive(Default)]
pub(super) struct ExpectedMessages {
    messages: Vec<ExpectedMessage>,
    /// The calls that were removed because they have no results, with their recorded ids.
    left_out: Vec<(String, Value)>,
}

impl ExpectedMessages {
    pub(super) fn messages(&self) -> &[ExpectedMessage] {
        &self.messages
    }

    /// Adds recorded messages. No later message may belong to the last round.
    pub(super) fn extend(&mut self, recorded: &[RecordedMessage]) {
        let mut rest = recorded;
        while let Some((first, after)) = rest.split_first() {
            rest = after;
            if first.role() == Role::Tool {
                self.add_late_results(&[first]);
            } else if first.message.calls().next().is_none() {
                if !is_empty_answer(first) {
                    self.push(first.json.clone());
                }
            } else {
                let results = after.iter().take_while(|next| next.role() == Role::Tool).count();
                let (results, after) = after.split_at(results);
                self.round(first, results);
                rest = after;
            }
        }
    }

    fn push(&mut self, json: Arc<Value>) {
        self.messages.push(ExpectedMessage { json, answers: None });
    }

    /// Adds a message with calls, and the tool messages directly after it.
    fn round(&mut self, asking: &RecordedMessage, results: &[RecordedMessage]) {
        let calls: Vec<&ToolCall> = asking.message.calls().collect();
        let (answers, others): (Vec<_>, Vec<_>) =
            results.iter().partition(|result| result.answers.is_some());
        let answered: Vec<usize> = answers.iter().filter_map(|answer| answer.call()).collect();
        let mut json = asking.json.clone();
        let left_out = if answered.len() < calls.len() {
            take_calls(Arc::make_mut(&mut json), |call| !answered.contains(&call))
        } else {
            Vec::new()
        };
        if !answered.is_empty() || left_out.is_empty() || has_content(&json) {
            self.push(json);
        }
        let asked_at = self.messages.len().saturating_sub(1);
        for (call, answer) in answers.iter().enumerate() {
            let json = answer.json.clone();
            self.messages.push(ExpectedMessage { json, answers: Some((asked_at, call)) });
        }
        let is_complete =
            left_out.is_empty() && answers.iter().all(|answer| answer.names().is_some());
        for (call, json) in left_out {
            if let Some(id) = calls.get(call).and_then(|call| call.id.clone()) {
                self.left_out.push((id, json));
            }
        }
        let is_repeat = |other: &RecordedMessage| {
            let names = other.names();
            names.is_some()
                && answered
                    .iter()
                    .any(|&call| calls.get(call).is_some_and(|call| call.id.as_deref() == names))
        };
        let late: Vec<_> = others.into_iter().filter(|other| !is_repeat(other)).collect();
        if is_complete {
            late.iter().for_each(|result| self.add_late_results(&[result]));
        } else {
            self.add_late_results(&late);
        }
    }

    /// Adds results that were recorded after the round of their calls. Each call was removed from
    /// its round and is added again before the results. A result without such a call is removed.
    fn add_late_results(&mut self, results: &[&RecordedMessage]) {
        let mut calls = Vec::new();
        let mut answers = Vec::new();
        for result in results {
            let Some(id) = result.names() else { continue };
            let Some(position) = self.left_out.iter().rposition(|(left_out, _)| left_out == id)
            else {
                continue;
            };
            calls.push(self.left_out.remove(position).1);
            answers.push(result.json.clone());
        }
        if calls.is_empty() {
            return;
        }
        let asking = json!({"role": "assistant", "content": null, "tool_calls": calls});
        self.push(Arc::new(asking));
        let asked_at = self.messages.len() - 1;
        for (call, json) in answers.into_iter().enumerate() {
            self.messages.push(ExpectedMessage { json, answers: Some((asked_at, call)) });
        }
    }
}

/// Removes the selected calls from a recorded message, and returns each with its position.
fn take_calls(message: &mut Value, is_taken: impl Fn(usize) -> bool) -> Vec<(usize, Value)> {
    let mut taken = Vec::new();
    let Some(fields) = message.as_object_mut() else { return taken };
    let mut count = 0;
    if let Some(Value::Array(calls)) = fields.get_mut("tool_calls") {
        let all = std::mem::take(calls);
        count = all.len();
        for (position, call) in all.into_iter().enumerate() {
            if is_taken(position) {
                taken.push((position, call));
            } else {
                calls.push(call);
            }
        }
        if calls.is_empty() && count > 0 {
            fields.remove("tool_calls");
        }
    }
    let is_legacy = fields.get("function_call").is_some_and(|call| !call.is_null());
    if is_legacy && is_taken(count) {
        taken.extend(fields.remove("function_call").map(|call| (count, call)));
    }
    taken
}

fn is_empty_answer(recorded: &RecordedMessage) -> bool {
    let parts = &recorded.message.parts;
    recorded.role() == Role::Assistant && parts.iter().all(|part| part.as_text() == Some(""))
}

fn has_content(message: &Value) -> bool {
    match message.get("content") {
        None | Some(Value::Null) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(Value::Array(parts)) => parts.iter().any(|part| part.get("text") != Some(&json!(""))),
        Some(_) => true,
    }
}
