//! Scripted answers in the format of Responses. With this API, the service stores the history, and
//! a request contains only the new items.

use serde_json::{Value, json};

/// Returns the event stream that answers a request.
pub(super) fn events(request: &Value) -> String {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let input = request.get("input").and_then(Value::as_array);
    let input = input.map(Vec::as_slice).unwrap_or_default();
    let before = asked_before(request);
    let questions = input.iter().filter(|item| text(item.get("role")) == "user").count();
    let asked = before + questions;
    let answered = input.iter().find(|item| text(item.get("type")) == "function_call_output");
    let mut events = Vec::new();
    let (step, item) = match answered {
        Some(output) => {
            let reply = text(output.get("output"));
            let reply = format!("{reply} (You have asked {asked} times.)");
            let item = json!({"id": "msg_1", "type": "message", "role": "assistant",
                "status": "completed", "content": [{"type": "output_text", "text": reply,
                "annotations": []}]});
            for word in reply.split_inclusive(' ') {
                events.push(json!({"type": "response.output_text.delta", "output_index": 0,
                    "delta": word}));
            }
            ("told", item)
        }
        None => {
            let item = json!({"id": "fc_1", "type": "function_call", "status": "completed",
                "call_id": format!("call_{asked}"), "name": text(request.pointer("/tools/0/name")),
                "arguments": "{\"order\": 7}"});
            ("called", item)
        }
    };
    events.push(json!({"type": "response.output_item.done", "output_index": 0, "item": item}));
    events.push(json!({"type": "response.completed", "response": {
        "id": format!("resp_{asked}_{step}"), "object": "response", "status": "completed",
        "store": true, "output": [item],
        "usage": {"input_tokens": 20, "output_tokens": 10}}}));
    events.iter().map(|event| format!("data: {event}\n\n")).collect()
}

/// Returns the number of user messages up to the previous response. The number is part of the
/// response id, because the next run of the example starts a new server, which has no stored
/// history.
fn asked_before(request: &Value) -> usize {
    let previous = request.get("previous_response_id").and_then(Value::as_str);
    let asked = previous.and_then(|id| id.split('_').nth(1)?.parse().ok());
    asked.unwrap_or(0)
}
