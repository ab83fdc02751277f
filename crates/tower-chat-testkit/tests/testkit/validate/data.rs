//! Reads the recorded data for the tests of the validator.

use serde_json::Value;
use tower_chat_testkit::{
    recordings::{RecordedConversation, Recordings},
    validate::Wire,
};

/// A request that a provider answered with a status of 2xx.
pub(crate) struct Accepted {
    pub(crate) wire: Wire,
    pub(crate) id: String,
    pub(crate) body: Value,
}

/// Returns all accepted requests of every wire that can be validated. The wire of a request to
/// Claude with Bedrock's `InvokeModel` is Anthropic's.
pub(crate) fn accepted() -> Vec<Accepted> {
    let recordings = Recordings::all();
    let files = Wire::ALL.map(|wire| (wire, wire.name())).into_iter();
    let files = files.chain([(Wire::Anthropic, "bedrock-invoke")]);
    let bodies = files.flat_map(|(wire, name)| {
        let accepted = recordings.accepted(name).unwrap().into_iter();
        accepted.map(move |request| Accepted { wire, id: request.id, body: request.body })
    });
    bodies.collect()
}

/// Returns the whole conversations in the format of OpenAI Chat Completions.
pub(crate) fn transcripts() -> Vec<RecordedConversation> {
    Recordings::all().conversations().unwrap()
}
