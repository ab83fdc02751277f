//! Checks the native items of a streamed answer. If several events of a stream repeat the same text
//! in a field, the accumulator must not join the repetitions.

use std::collections::HashSet;

use serde_json::Value;
use tower_chat_core::{Message, Part};

/// The names of the fields whose texts arrive in pieces, and must be joined.
const CONTINUED: [&str; 9] = [
    "text",
    "summary",
    "thinking",
    "content",
    "reasoning",
    "reasoning_content",
    "refusal",
    "arguments",
    "input",
];

/// Asserts that each text in the native items of a message is equal to the value of a field with
/// the same name in an event of the stream.
pub(crate) fn assert_texts_occur_in_events(events: &[Value], message: &Message, source: &str) {
    let mut known = HashSet::new();
    events.iter().for_each(|event| {
        visit_texts("", event, &mut |name, text| {
            known.insert((name.to_owned(), text.to_owned()));
        })
    });
    for native in natives(message) {
        visit_texts("", &native, &mut |name, text| {
            let is_known = known.contains(&(name.to_owned(), text.to_owned()));
            let is_made_here = matches!((name, text), ("type", _) | ("field", _) | ("role", _));
            let is_continued = CONTINUED.contains(&name);
            assert!(is_known || is_made_here || is_continued, "{source}: {name} is {text:?}");
        });
    }
}

fn natives(message: &Message) -> Vec<Value> {
    let native = |part: &Part| match part {
        Part::Native(native) => Some(native.clone()),
        Part::Text(text) => text.native.clone(),
        Part::Reasoning(reasoning) => reasoning.native.clone(),
        Part::ToolCall(call) => call.native.clone(),
        _ => None,
    };
    message.parts.iter().filter_map(native).map(|native| native.item.parse().unwrap()).collect()
}

fn visit_texts(name: &str, value: &Value, visit: &mut impl FnMut(&str, &str)) {
    match value {
        Value::String(text) => visit(name, text),
        Value::Array(items) => items.iter().for_each(|item| visit_texts(name, item, &mut *visit)),
        Value::Object(fields) => {
            fields.iter().for_each(|(name, value)| visit_texts(name, value, &mut *visit))
        }
        _ => {}
    }
}

#[test]
#[should_panic(expected = "channel")]
fn the_check_finds_a_field_that_was_concatenated_from_repeated_values() {
    let event = serde_json::json!({"delta": {"channel": "analysis"}});
    let item = r#"{"channel":"analysisanalysis"}"#.parse().unwrap();
    let native = tower_chat_core::Native::new("openai-chat", item);
    let message = Message::new(tower_chat_core::Role::Assistant, vec![Part::Native(native)]);
    assert_texts_occur_in_events(&[event.clone(), event], &message, "here");
}
