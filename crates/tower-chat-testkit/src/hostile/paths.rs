//! Finds the calls and texts in a request body of any wire (JSON format of a provider).

use serde_json::Value;

/// Returns the name and the arguments of each call in a body. The arguments are the JSON value that
/// the service would parse, or a string if the arguments are not valid JSON.
pub fn calls(body: &Value) -> Vec<(String, Value)> {
    let mut calls = Vec::new();
    walk(body, &mut |fields| {
        let name = |value: &Value| value["name"].as_str().unwrap_or_default().to_owned();
        let read = |value: &Value| match value.as_str() {
            Some(text) => serde_json::from_str(text).unwrap_or_else(|_| value.clone()),
            None => value.clone(),
        };
        let value = Value::Object(fields.clone());
        match value["type"].as_str() {
            Some("function_call") => calls.push((name(&value), read(&value["arguments"]))),
            Some("tool_use") => calls.push((name(&value), value["input"].clone())),
            _ => {}
        }
        if let Some(listed) = value["tool_calls"].as_array() {
            for call in listed {
                let function = &call["function"];
                calls.push((name(function), read(&function["arguments"])));
            }
        }
        if value["toolUse"].is_object() {
            calls.push((name(&value["toolUse"]), value["toolUse"]["input"].clone()));
        }
        if value["functionCall"].is_object() {
            let call = &value["functionCall"];
            let none = Value::Object(serde_json::Map::new());
            calls.push((name(call), call.get("args").cloned().unwrap_or(none)));
        }
    });
    calls
}

/// Returns all texts in a body, one per line.
pub fn texts(body: &Value) -> String {
    match body {
        Value::String(text) => format!("{text}\n"),
        Value::Array(items) => items.iter().map(texts).collect(),
        Value::Object(fields) => fields.values().map(texts).collect(),
        _ => String::new(),
    }
}

/// Calls `visit` for every object in a JSON value.
pub(super) fn walk(value: &Value, visit: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        Value::Object(fields) => {
            visit(fields);
            fields.values().for_each(|value| walk(value, visit));
        }
        _ => {}
    }
}
