//! A short text form of messages, in which each result is paired with the call that it answers.
//!
//! An id does not identify a call, because ids may be equal, empty or missing. The arguments of
//! each call therefore contain a label. Results are paired as providers pair them: the first result
//! with an id answers the first call with this id.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat::{Message, Part, Role, ToolCall, ToolResult, tool::CallPosition};

pub(crate) fn labelled(label: &str) -> String {
    json!({ "call": label }).to_string()
}

pub(crate) fn label(arguments: &str) -> Option<String> {
    let arguments: Value = serde_json::from_str(arguments).ok()?;
    arguments.get("call")?.as_str().map(str::to_owned)
}

/// Returns the short form of messages: `user hi`, `assistant look#c1`, `tool c1=looked c1`.
pub(crate) fn shorts<'a>(messages: impl IntoIterator<Item = &'a Arc<Message>>) -> Vec<String> {
    shorts_after([], messages)
}

/// Returns the short form of messages. Results may answer calls in `before`.
pub(crate) fn shorts_after<'a, 'b>(
    before: impl IntoIterator<Item = &'b Arc<Message>>,
    messages: impl IntoIterator<Item = &'a Arc<Message>>,
) -> Vec<String> {
    let mut unanswered = Unanswered::default();
    before.into_iter().for_each(|message| drop(unanswered.show(message)));
    messages.into_iter().map(|message| unanswered.show(message)).collect()
}

/// The calls without a result so far, by batch.
#[derive(Debug, Default)]
struct Unanswered {
    batches: Vec<Vec<Open>>,
    /// Whether the previous message contained calls. Calls of the next message then belong to the
    /// same batch.
    in_batch: bool,
}

#[derive(Debug)]
struct Open {
    id: Option<String>,
    label: String,
    position: Option<CallPosition>,
}

impl Open {
    /// Returns whether replay generates this id for this call. It generates an id if the call has
    /// none, or shares its id with another call. The id ends with the index of the message in its
    /// run and the index of the call in its message.
    fn is_named(&self, id: Option<&str>) -> bool {
        let (Some(id), Some(position)) = (id, self.position) else { return false };
        let suffix = format!("_{}_{}", position.message.index, position.index);
        id.starts_with("call_") && id.ends_with(&suffix)
    }
}

impl Unanswered {
    fn show(&mut self, message: &Message) -> String {
        if message.role != Role::Assistant {
            self.in_batch = false;
        }
        let role = format!("{:?}", message.role).to_lowercase();
        let mut shown = vec![role];
        let mut index = 0;
        for part in &message.parts {
            if let Some(call) = asked(part) {
                self.add(call, message, index);
                index += 1;
            }
            shown.push(self.part(part));
        }
        shown.join(" ")
    }

    fn add(&mut self, call: &ToolCall, message: &Message, index: u32) {
        if !std::mem::replace(&mut self.in_batch, true) {
            self.batches.push(Vec::new());
        }
        let position = message.id.map(|message| CallPosition { message, index });
        let open = Open { id: call.id.clone(), label: label_of(call), position };
        self.batches.last_mut().unwrap().push(open);
    }

    /// Removes the call that a result answers, and returns its label.
    fn answered(&mut self, result: &ToolResult) -> Option<String> {
        let answers = |open: &Open| match result.call {
            Some(position) => open.position == Some(position),
            None => open.id == result.call_id || open.is_named(result.call_id.as_deref()),
        };
        let batch = self.batches.iter_mut().rev().find(|batch| batch.iter().any(answers))?;
        let position = batch.iter().position(answers)?;
        Some(batch.remove(position).label)
    }

    fn part(&mut self, part: &Part) -> String {
        match part {
            Part::Text(text) => text.text.clone(),
            Part::ToolCall(call) => format!("{}#{}", call.name, label_of(call)),
            Part::ToolResult(result) => {
                let mark = if result.is_error { "!" } else { "=" };
                let answered = self.answered(result).or_else(|| result.call_id.clone());
                format!("{}{mark}{}", answered.as_deref().unwrap_or("-"), result.text())
            }
            Part::ApprovalRequest(request) => {
                format!("{}#{}?", request.call.name, label_of(&request.call))
            }
            Part::ApprovalResponse(response) if response.approved => "yes".to_owned(),
            Part::ApprovalResponse(_) => "no".to_owned(),
            other => format!("{other:?}"),
        }
    }
}

fn asked(part: &Part) -> Option<&ToolCall> {
    match part {
        Part::ToolCall(call) => Some(call),
        Part::ApprovalRequest(request) => Some(&request.call),
        _ => None,
    }
}

fn label_of(call: &ToolCall) -> String {
    label(&call.arguments).or_else(|| call.id.clone()).unwrap_or_else(|| "-".to_owned())
}
