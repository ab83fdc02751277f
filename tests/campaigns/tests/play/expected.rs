//! The expected export of a recorded conversation, computed from its JSON alone.

use serde_json::{Value, json};

/// Returns the expected export of a conversation. A line of a transcript contains the export only
/// if it differs from the recorded messages.
pub(crate) fn own_export(line: &Value) -> Option<Value> {
    if line.get("exported") == Some(&json!(false)) {
        return None;
    }
    Some(line.get("export").unwrap_or(&line["messages"]).clone())
}

/// Returns the recorded messages that a play exports. It does not export input after the last
/// answer, results at the end, and calls whose result does not directly follow their message.
///
/// This function requires that results are in the order of the calls.
pub(crate) fn expected_export(messages: &Value) -> Option<Value> {
    let messages = messages.as_array().expect("a list");
    let is = |message: &Value, role: &str| message["role"] == role;
    let is_result = |message: &Value| is(message, "tool") || is(message, "function");
    let first_input = messages.iter().position(|m| !is(m, "assistant") && !is_result(m));
    let last_answer = messages.iter().rposition(|message| is(message, "assistant"))?;
    let end = match first_input {
        Some(first) if first < last_answer => last_answer + 1,
        Some(first) => first,
        None => messages.len(),
    };
    let mut kept = Vec::new();
    for (position, message) in messages[..end].iter().enumerate() {
        let mut message = message.clone();
        let behind = messages[..end].iter().skip(position + 1);
        let results = behind.take_while(|next| is_result(next)).count();
        if results == 0 && message.get("function_call").is_some_and(Value::is_object) {
            message.as_object_mut().expect("an object").remove("function_call");
            if matches!(&message["content"], Value::Null) || message["content"] == "" {
                continue;
            }
        }
        if message["tool_calls"].as_array().is_some_and(|calls| !calls.is_empty()) {
            let calls = message["tool_calls"].as_array_mut().expect("a list");
            calls.truncate(results);
            if calls.is_empty() {
                message.as_object_mut().expect("an object").remove("tool_calls");
                if matches!(&message["content"], Value::Null) || message["content"] == "" {
                    continue;
                }
            }
        }
        kept.push(message);
    }
    Some(json!(kept))
}

/// Returns both lists of messages without generated ids. A call has a generated id if it was
/// recorded without an id, or with the id of an earlier call in the message. This function checks
/// that the call and its result have the same generated id.
pub(crate) fn without_generated_ids(recorded: &Value, exported: &Value) -> (Value, Value) {
    let (mut recorded, mut exported) = (recorded.clone(), exported.clone());
    let empty = Vec::new();
    let mut generated: Vec<Value> = Vec::new();
    for (recorded, exported) in list(&mut recorded).iter_mut().zip(list(&mut exported)) {
        if recorded["role"] == "assistant" {
            generated.clear();
        }
        let calls = recorded["tool_calls"].as_array().unwrap_or(&empty).len();
        for call in 0..calls {
            let given = |call: usize| recorded["tool_calls"][call].get("id");
            let is_given = is_id(given(call)) && (0..call).all(|other| given(other) != given(call));
            let recorded = &mut recorded["tool_calls"][call];
            let Some(exported) = exported.pointer_mut(&format!("/tool_calls/{call}")) else {
                continue;
            };
            if !is_given {
                remove(recorded, "id");
                let id = remove(exported, "id").expect("an id was generated");
                assert!(is_id(Some(&id)) && !generated.contains(&id), "{id}");
                generated.push(id);
            }
        }
        let names_generated = exported.get("tool_call_id").is_some_and(|id| generated.contains(id));
        if recorded["role"] == "tool" && (names_generated || !is_id(recorded.get("tool_call_id"))) {
            remove(recorded, "tool_call_id");
            let id = remove(exported, "tool_call_id").expect("the result names its call");
            assert_eq!(Some(&id), generated.first(), "results in the order of the calls");
            generated.remove(0);
        }
    }
    (recorded, exported)
}

fn list(value: &mut Value) -> &mut Vec<Value> {
    value.as_array_mut().expect("a list of messages")
}

fn remove(value: &mut Value, field: &str) -> Option<Value> {
    value.as_object_mut()?.remove(field)
}

fn is_id(id: Option<&Value>) -> bool {
    id.and_then(Value::as_str).is_some_and(|id| !id.is_empty())
}
