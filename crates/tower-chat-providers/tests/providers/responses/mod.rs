//! Tests of Responses.

mod background;
mod cut;
mod errors;
mod events;
mod expected;
mod history;
mod recorded;
mod requests;
mod stack;
mod written;

use serde_json::{Value, json};

/// Returns a response with a text.
fn text_response(id: &str, text: &str) -> Value {
    response(id, json!([message("msg_1", text)]))
}

/// Returns a response that calls the tool `f`.
fn response_with_call(id: &str, call_id: &str) -> Value {
    let item = json!({"id": "fc_1", "type": "function_call", "status": "completed",
        "call_id": call_id, "name": "f", "arguments": "{ }"});
    response(id, json!([item]))
}

fn message(id: &str, text: &str) -> Value {
    let part = json!({"type": "output_text", "text": text, "annotations": []});
    json!({"id": id, "type": "message", "status": "completed", "role": "assistant",
        "content": [part]})
}

fn response(id: &str, output: Value) -> Value {
    json!({"id": id, "object": "response", "status": "completed", "model": "m", "error": null,
        "output": output, "usage": {"input_tokens": 3, "output_tokens": 4}})
}

/// Returns the stream of a response: an event for each item, and then the whole response.
fn streamed(response: &Value) -> String {
    let mut body = event(&json!({"type": "response.created", "response": {"id": "resp"}}));
    for (index, item) in response["output"].as_array().unwrap().iter().enumerate() {
        for kind in ["added", "done"] {
            let kind = format!("response.output_item.{kind}");
            body += &event(&json!({"type": kind, "output_index": index, "item": item}));
        }
    }
    body + &event(&json!({"type": "response.completed", "response": response}))
}

fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or("message"))
}
