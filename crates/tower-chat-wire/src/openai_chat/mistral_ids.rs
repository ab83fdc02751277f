//! Converts call ids to the form that Mistral accepts.

use std::collections::{HashMap, HashSet};

use tower_chat_core::RawJson;

use crate::fields::{Fields, raw};

const LENGTH: usize = 9;
const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// Replaces the ids of calls, and the call ids in results, by ids of nine ASCII letters and digits.
/// Mistral's server refuses any other id with the status 400: "Tool call id was … but must be a-z,
/// A-Z, 0-9, with a length of 9" (recorded in
/// <https://github.com/langchain-ai/langchain/pull/24668>).
///
/// An id that already has this form is not changed. A new id is a hash of the old id, so that every
/// request of a conversation contains the same ids. If two old ids have the same hash, a different
/// hash is used for the second. A call without an id remains without an id.
///
/// ```
/// use tower_chat_core::{Message, ToolCall, ToolResult};
/// use tower_chat_wire::openai_chat::{Audience, render_messages, with_mistral_ids};
/// let history = [
///     Message::tool_calls([ToolCall::new("toolu_01A09q90qw90lq917835lq9", "look", "{}")]),
///     Message::tool_results([ToolResult::new("toolu_01A09q90qw90lq917835lq9", "12 degrees")]),
/// ];
/// let sent = with_mistral_ids(render_messages(&history, Audience::Model));
/// let result: serde_json::Value = sent[1].parse()?;
/// assert_eq!(result["tool_call_id"].as_str().map(str::len), Some(9));
/// # Ok::<(), serde_json::Error>(())
/// ```
pub fn with_mistral_ids(messages: impl IntoIterator<Item = RawJson>) -> Vec<RawJson> {
    let mut ids = Ids::default();
    messages.into_iter().map(|message| ids.change_message(&message).unwrap_or(message)).collect()
}

#[derive(Debug, Default)]
struct Ids {
    /// The new id for each original id.
    new_ids: HashMap<String, String>,
    /// The new ids that are in use. Each new id belongs to one original id.
    used_ids: HashSet<String>,
}

impl Ids {
    /// Returns the message with new ids, or `None` if it has no ids.
    fn change_message(&mut self, message: &RawJson) -> Option<RawJson> {
        let mut fields: Fields = message.parse().ok()?;
        let calls = fields.get("tool_calls").and_then(|calls| calls.parse().ok());
        let mut calls: Vec<Fields> = calls.unwrap_or_default();
        for call in &mut calls {
            self.change_field(call, "id");
        }
        if !calls.is_empty() {
            fields.set("tool_calls", raw(&calls));
        }
        let names_call = self.change_field(&mut fields, "tool_call_id");
        (names_call || !calls.is_empty()).then(|| raw(&fields))
    }

    fn change_field(&mut self, fields: &mut Fields, name: &str) -> bool {
        let Some(id) = fields.text(name).filter(|id| !id.is_empty()) else { return false };
        fields.set(name, raw(&self.new_id(id)));
        true
    }

    fn new_id(&mut self, id: String) -> String {
        if let Some(new_id) = self.new_ids.get(&id) {
            return new_id.clone();
        }
        let own = is_mistral_id(&id).then(|| id.clone());
        let hashed = (0..).map(|attempt| hashed_id(&id, attempt));
        let mut wanted = own.into_iter().chain(hashed);
        let unused = wanted.find(|id| !self.used_ids.contains(id)).unwrap_or_default();
        self.used_ids.insert(unused.clone());
        self.new_ids.insert(id, unused.clone());
        unused
    }
}

fn is_mistral_id(id: &str) -> bool {
    id.len() == LENGTH && id.bytes().all(|byte| byte.is_ascii_alphanumeric())
}

/// Returns nine base-62 digits of a hash of the id and `attempt`: FNV-1a, mixed by SplitMix64.
fn hashed_id(id: &str, attempt: u64) -> String {
    let start = 0xcbf2_9ce4_8422_2325 ^ attempt;
    let fnv = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = id.bytes().fold(start, fnv);
    hash = (hash ^ (hash >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    hash = (hash ^ (hash >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    hash ^= hash >> 31;
    let digits = std::iter::successors(Some(hash), |rest| Some(rest / 62)).take(LENGTH);
    digits
        .filter_map(|rest| DIGITS.get((rest % 62) as usize))
        .map(|&digit| char::from(digit))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn changed(messages: &Value) -> Value {
        let messages: Vec<RawJson> = serde_json::from_value(messages.clone()).expect("a list");
        serde_json::to_value(with_mistral_ids(messages)).expect("JSON")
    }

    #[test]
    fn ids_of_mistral_are_unchanged_and_other_ids_change_equally_in_call_and_result() {
        let call = |id: &str| json!({"id": id, "type": "function", "function": {"name": "f"}});
        let messages = json!([
            {"role": "user", "content": "hi"},
            {"role": "assistant", "tool_calls": [call("vAKGXGFZD"), call("call_1"), call("call_2")]},
            {"role": "tool", "tool_call_id": "vAKGXGFZD", "content": "1"},
            {"role": "tool", "tool_call_id": "call_1", "content": "2"},
            {"role": "tool", "tool_call_id": "call_2", "content": "3"},
        ]);
        let sent = changed(&messages);
        assert_eq!((&sent[0], &sent[2]), (&messages[0], &messages[2]));
        let id = |index: usize| sent[1]["tool_calls"][index]["id"].as_str().expect("an id");
        assert_eq!(id(0), "vAKGXGFZD");
        assert!(is_mistral_id(id(1)) && is_mistral_id(id(2)) && id(1) != id(2));
        assert_eq!(
            (&sent[3]["tool_call_id"], &sent[4]["tool_call_id"]),
            (&json!(id(1)), &json!(id(2)))
        );
        assert_eq!(sent[3]["content"], "2");
        assert_eq!(changed(&sent), sent);
    }

    #[test]
    fn equal_ids_are_always_replaced_by_equal_ids_and_distinct_ids_by_distinct_ids() {
        assert_eq!(hashed_id("call_1", 0), "6cVnL8Rc5");
        let mut ids = Ids::default();
        for index in 0..1_000 {
            assert!(is_mistral_id(&ids.new_id(format!("call_{index}"))));
        }
        assert_eq!(ids.used_ids.len(), 1_000);
        assert_eq!(ids.new_id("call_7".to_owned()), hashed_id("call_7", 0));
    }

    #[test]
    fn an_id_that_is_already_in_use_is_not_generated_again() {
        let mut ids = Ids::default();
        let hashed = ids.new_id("call_1".to_owned());
        assert_ne!(ids.new_id(hashed.clone()), hashed);
        assert!(is_mistral_id(&ids.new_id(hashed)));
    }

    #[test]
    fn a_call_without_an_id_is_sent_without_an_id() {
        let messages = json!([
            {"role": "assistant", "tool_calls": [{"type": "function"}, {"id": "", "type": "function"}]},
            {"role": "tool", "tool_call_id": "", "content": "1"},
        ]);
        assert_eq!(changed(&messages), messages);
    }
}
