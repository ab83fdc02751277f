//! The allowed differences between a replayed history and the recorded one.

use serde_json::Value;
use tower_chat_testkit::validate::Wire;

/// A difference between a replayed history and the request in which it was recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Difference {
    None,
    /// An assistant message with empty text, which other providers reject, is omitted.
    EmptyAnswerLeft,
    /// Calls and results were recorded without ids, and replay has added matching ids.
    IdsGiven,
    /// In addition to [`IdsGiven`](Self::IdsGiven), other content of the message with the results
    /// is in a separate message after the results.
    ResultsApart,
    /// The results of two messages with calls were recorded in one message. In the replay, each of
    /// the two messages is followed by its own results.
    RoundsApart,
}

/// Returns the difference, or `None` if it is not allowed.
pub(crate) fn difference(wire: Wire, recorded: &Value, sent: &Value) -> Option<Difference> {
    if recorded == sent {
        return Some(Difference::None);
    }
    if without_empty_answers(wire, recorded) == *sent {
        return Some(Difference::EmptyAnswerLeft);
    }
    if wire != Wire::Gemini || recorded.get("systemInstruction") != sent.get("systemInstruction") {
        return None;
    }
    let has_ids = |body: &Value| parts(body).iter().any(|part| id_of(part).is_some());
    if !has_ids(recorded) {
        let plain = without_ids(sent);
        if plain == *recorded {
            return Some(Difference::IdsGiven);
        }
        let same = parts(&plain) == parts(recorded);
        return same.then_some(Difference::ResultsApart);
    }
    let sorted = |body: &Value| {
        let mut parts: Vec<String> = parts(body).iter().map(ToString::to_string).collect();
        parts.sort();
        parts
    };
    (sorted(recorded) == sorted(sent)).then_some(Difference::RoundsApart)
}

fn without_empty_answers(wire: Wire, body: &Value) -> Value {
    let mut body = body.clone();
    let items = body.get_mut(wire.conversation_field()).and_then(Value::as_array_mut);
    items.unwrap().retain(|item| {
        let content = &item["content"];
        let is_empty = *content == ""
            || content.as_array().is_some_and(|parts| parts.iter().all(|part| part["text"] == ""));
        item["role"] != "assistant" || !is_empty || item.get("tool_calls").is_some()
    });
    body
}

/// Returns all parts of a body in order, each with its role.
fn parts(body: &Value) -> Vec<Value> {
    let contents = body["contents"].as_array().unwrap();
    let of = |content: &Value| -> Vec<Value> {
        let parts = content["parts"].as_array().unwrap().iter();
        parts.map(|part| serde_json::json!([content["role"], part])).collect()
    };
    contents.iter().flat_map(of).collect()
}

fn id_of(part: &Value) -> Option<&Value> {
    let part = &part[1];
    let item = part.get("functionCall").or_else(|| part.get("functionResponse"))?;
    item.get("id")
}

fn without_ids(body: &Value) -> Value {
    let mut body = body.clone();
    let contents = body["contents"].as_array_mut().unwrap().iter_mut();
    for part in contents.flat_map(|content| content["parts"].as_array_mut().unwrap()) {
        for kind in ["functionCall", "functionResponse"] {
            if let Some(item) = part.get_mut(kind).and_then(Value::as_object_mut) {
                item.remove("id");
            }
        }
    }
    body
}
