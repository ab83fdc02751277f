//! Tests that every recorded message of OpenAI Chat Completions is read and written again
//! unchanged.

use serde_json::Value;
use tower_chat_core::{Message, Part, format};
use tower_chat_testkit::recordings::Recordings;
use tower_chat_wire::openai_chat::{Audience, parse_message, render_message};

fn recorded_messages() -> Vec<(String, Value)> {
    let recordings = Recordings::all();
    let accepted = recordings.accepted("openai-chat").unwrap().into_iter();
    let accepted =
        accepted.map(|request| (request.id, request.body["messages"].as_array().unwrap().clone()));
    let whole = recordings.conversations().unwrap().into_iter();
    let lists = accepted.chain(whole.map(|found| (found.source, found.messages)));
    let messages = lists.flat_map(|(source, messages)| {
        let numbered = messages.into_iter().enumerate();
        numbered.map(move |(index, message)| (format!("{source}#{index}"), message))
    });
    messages.collect()
}

fn rendered(message: &Message) -> Vec<Value> {
    let json = render_message(message, Audience::Transcript);
    json.iter().map(|json| json.parse().unwrap()).collect()
}

#[test]
fn a_recorded_message_is_written_as_it_was_read() {
    let recorded = recorded_messages();
    assert!(!recorded.is_empty());
    for (source, json) in &recorded {
        let message = parse_message(&json.to_string()).expect(source);
        assert_eq!(rendered(&message), std::slice::from_ref(json), "{source}");
        let stored = format::decode(&format::encode(&message)).expect(source);
        assert_eq!(rendered(&stored), std::slice::from_ref(json), "{source}, after it was stored");
    }
}

#[test]
fn texts_names_arguments_and_ids_are_read_into_fields_and_not_into_native_items() {
    let recorded = recorded_messages();
    for (source, json) in &recorded {
        let message = parse_message(&json.to_string()).expect(source);
        let calls: Vec<_> = message.calls().collect();
        let expected = json["tool_calls"].as_array().into_iter().flatten();
        let expected: Vec<&Value> = expected.collect();
        assert_eq!(calls.len(), expected.len() + usize::from(json["function_call"].is_object()));
        for (call, expected) in calls.iter().zip(expected) {
            assert_eq!(call.id.as_deref(), expected["id"].as_str(), "{source}");
            assert_eq!(Some(call.name.as_str()), expected["function"]["name"].as_str(), "{source}");
            let arguments = expected["function"]["arguments"].as_str();
            assert_eq!(Some(call.arguments.as_str()), arguments, "{source}");
        }
        let result = message.results().next();
        if let Some(text) = json["content"].as_str() {
            let found = result.map_or_else(|| message.text(), |result| result.text());
            assert_eq!(found, text, "{source}");
        }
        if let Some(result) = result {
            assert_eq!(result.call_id.as_deref(), json["tool_call_id"].as_str(), "{source}");
            assert_eq!(result.is_error, json["x_error"] == true, "{source}");
        }
    }
}

#[test]
fn an_ordinary_recorded_message_is_read_without_native_items() {
    let recorded = recorded_messages();
    let mut ordinary = 0;
    for (source, json) in &recorded {
        let fields = json.as_object().unwrap();
        let known = ["role", "content", "name", "tool_call_id", "x_error", "tool_calls"];
        let calls = json["tool_calls"].as_array().into_iter().flatten();
        let is_ordinary = fields.keys().all(|field| known.contains(&field.as_str()))
            && (json["content"].is_string() || json["role"] == "assistant")
            && !json["content"].is_array()
            && fields.contains_key("content")
            && json["role"] != "function"
            && calls.into_iter().all(|call| {
                call["type"] == "function"
                    && call
                        .as_object()
                        .unwrap()
                        .keys()
                        .all(|field| field != "index" && field != "cache_control")
            });
        if is_ordinary {
            ordinary += 1;
            let message = parse_message(&json.to_string()).expect(source);
            let stored = format::encode(&message);
            assert!(!stored.contains(r#""wire":"openai-chat""#), "{source}: {stored}");
            assert!(!message.parts.iter().any(|part| matches!(part, Part::Native(_))), "{source}");
        }
    }
    println!("{ordinary} of {} messages are ordinary", recorded.len());
    assert!(ordinary > 0);
}
