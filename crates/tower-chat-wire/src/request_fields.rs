//! The fields of the body of a request to OpenAI's APIs, except for the conversation.

use serde_json::{Map, Value};
use tower_chat_core::ChatOptions;

use crate::object::{Object, raw};

/// The fields that options ask for. `extra` options count more than named ones, and a `null` among
/// them takes the field out; but whether the answer is streamed is not theirs to say.
pub(crate) fn render(
    named: &Map<String, Value>,
    options: &ChatOptions,
    is_streamed: bool,
) -> Object {
    let mut body = Object::new();
    for (name, value) in named.iter().chain(&options.extra) {
        if value.is_null() {
            body.remove(name);
        } else {
            body.insert(name.clone(), raw(value));
        }
    }
    if !body.contains_key("tools") {
        // Services refuse a choice among no tools.
        body.remove("tool_choice");
    }
    if is_streamed {
        body.insert("stream".to_owned(), raw(&true));
    } else {
        body.remove("stream");
        body.remove("stream_options");
    }
    body
}
