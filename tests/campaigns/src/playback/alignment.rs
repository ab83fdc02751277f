//! Determines which part of a recording is stored.

use serde_json::Value;
use tower_chat::message::Messages;
use tower_chat_wire::openai_chat::{Audience, render_message};

use super::{
    comparison::{is_id, message_differences},
    divergence::Difference,
    pairing::has_text,
    recording::Recording,
};

/// The comparison of a stored conversation with its recording.
#[derive(Debug)]
pub(super) struct Alignment {
    /// The number of recorded messages that are stored.
    pub(super) covered: usize,
    /// The differences between the stored conversation and the beginning of the recording.
    pub(super) differences: Vec<(usize, Difference)>,
    /// The first position of a stored message at which the recording has no message, or a message
    /// with another role.
    pub(super) other_shape: Option<usize>,
}

impl Alignment {
    pub(super) fn of(recording: &Recording, stored: &Messages) -> Self {
        let stored: Vec<Value> = rendered(stored);
        let recorded = recording.messages();
        let mut alignment =
            Self { covered: stored.len(), differences: Vec::new(), other_shape: None };
        for (position, found) in stored.iter().enumerate() {
            let Some(expected) = recorded.get(position) else {
                alignment.covered = recorded.len();
                alignment.other_shape.get_or_insert(position);
                let found = found.to_string();
                alignment.differences.push((position, Difference::Extra { found }));
                continue;
            };
            if expected.json.get("role") != found.get("role") {
                alignment.other_shape.get_or_insert(position);
            }
            let mut here = message_differences(&expected.json, found);
            here.extend(id_difference(recording, position, found));
            alignment.differences.extend(here.into_iter().map(|difference| (position, difference)));
        }
        alignment
    }
}

/// Returns the difference between the recorded and the stored call id of a result. Returns `None`
/// if the recorded call has no id, because replay then generates the id.
fn id_difference(recording: &Recording, position: usize, found: &Value) -> Option<Difference> {
    let recorded = recording.messages();
    let result = recorded.get(position)?;
    let call_was_named = result.answers.is_none_or(|answers| {
        let Some(asking) = recorded.get(answers.message) else { return false };
        let mut earlier = asking.message.calls().take(answers.call);
        let call = asking.message.calls().nth(answers.call);
        call.is_some_and(|call| has_text(&call.id) && earlier.all(|other| other.id != call.id))
    });
    let expected = result.json.get("tool_call_id").filter(|id| is_id(id))?;
    let found = found.get("tool_call_id");
    (call_was_named && found != Some(expected))
        .then(|| Difference::field("tool_call_id", Some(expected), found))
}

fn rendered(stored: &Messages) -> Vec<Value> {
    let json = |message| render_message(message, Audience::Transcript);
    stored
        .iter()
        .flat_map(|message| json(message))
        .map(|json| json.parse().unwrap_or(Value::Null))
        .collect()
}
