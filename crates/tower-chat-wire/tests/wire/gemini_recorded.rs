//! Tests with recorded conversations. Conversations of Gemini are written as they were read.
//! Conversations of other providers are written in a form that Gemini accepts.

use std::sync::Arc;

use serde_json::{Value, json};
use tower_chat::replay::{DanglingCalls, Replay};
use tower_chat_core::{Message, Part, Role, format};
use tower_chat_testkit::{
    recordings::{Api, RecordedConversation, Recordings},
    validate::{Rule, Wire, validate},
};
use tower_chat_wire::{
    gemini::{Unsigned, parse_answer, parse_body, render_messages},
    openai_chat,
};

/// The names of the fields in which clients send the text of a result.
const KEYS: [&str; 5] = ["output", "error", "result", "return_value", "content"];

/// Returns the recorded request bodies that Gemini accepted, with their sources.
fn accepted_bodies() -> Vec<Located> {
    let requests = Recordings::all().accepted("gemini").unwrap();
    assert!(!requests.is_empty());
    requests.into_iter().map(|request| (request.id, request.body)).collect()
}

/// JSON and its source.
type Located = (String, Value);

/// Returns the request bodies of the recorded exchanges, and the events of their answers.
fn cassettes() -> (Vec<Located>, Vec<Located>) {
    let cassettes = Recordings::all().cassettes().unwrap();
    let (mut requests, mut events) = (Vec::new(), Vec::new());
    let exchanges = cassettes.iter().flat_map(|cassette| &cassette.exchanges);
    for exchange in exchanges.filter(|exchange| exchange.api().unwrap() == Api::Gemini) {
        requests.push((exchange.source.clone(), exchange.request.clone()));
        if exchange.is_success() {
            let found = exchange.json_events().unwrap().into_iter();
            events.extend(found.map(|event| (exchange.source.clone(), event)));
        }
    }
    (requests, events)
}

/// Returns a body with the written conversation and the system instruction.
fn written(messages: &[Message], unsigned: Unsigned) -> Value {
    let conversation = render_messages(messages, unsigned);
    json!({
        "systemInstruction": conversation.system_instruction,
        "contents": conversation.contents,
    })
}

fn after_storage(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|message| format::decode(&format::encode(message)).unwrap()).collect()
}

fn conversation_of(body: &Value) -> Value {
    let system = body.get("systemInstruction").or_else(|| body.get("system_instruction"));
    json!({"systemInstruction": system, "contents": body["contents"]})
}

fn assert_exact(source: &str, body: &Value) {
    let messages = parse_body(&body.to_string()).expect(source);
    let expected = conversation_of(body);
    assert_eq!(written(&messages, Unsigned::AsRecorded), expected, "{source}");
    let stored = after_storage(&messages);
    assert_eq!(written(&stored, Unsigned::AsRecorded), expected, "{source}, after it was stored");
}

#[test]
fn an_accepted_body_is_written_as_it_was_read() {
    let bodies = accepted_bodies();
    for (source, body) in &bodies {
        assert_exact(source, body);
    }
}

#[test]
fn a_request_on_a_cassette_is_written_as_it_was_read() {
    let (requests, _) = cassettes();
    println!("{} requests", requests.len());
    for (source, body) in &requests {
        assert_exact(source, body);
    }
}

#[test]
fn an_answer_on_a_cassette_is_written_as_it_was_sent() {
    let (_, events) = cassettes();
    let mut compared = 0;
    for (source, event) in &events {
        let messages = parse_answer(&event.to_string()).expect(source);
        let candidates = event["candidates"].as_array().map_or(&[][..], Vec::as_slice);
        assert_eq!(messages.len(), candidates.len(), "{source}");
        for (message, candidate) in messages.iter().zip(candidates) {
            assert_eq!(message.role, Role::Assistant);
            let is_call = message.calls().next().is_some();
            let asked = [Message::user("?"), message.clone()];
            let written = written(&asked, Unsigned::AsRecorded);
            let parts = candidate["content"]["parts"].as_array().map_or(0, Vec::len);
            if parts > 0 {
                assert_eq!(written["contents"][1], candidate["content"], "{source}");
                compared += 1;
            } else {
                assert!(!is_call && written["contents"].as_array().unwrap().len() == 1, "{source}");
            }
        }
    }
    println!("{compared} answers of {} events", events.len());
}

#[test]
fn texts_names_arguments_and_results_are_read_into_fields_and_not_into_native_items() {
    let bodies = accepted_bodies();
    let (mut calls, mut results, mut thoughts) = (0, 0, 0);
    for (source, body) in &bodies {
        let contents = json!({"contents": body["contents"]});
        let messages = parse_body(&contents.to_string()).expect(source);
        for (message, content) in messages.iter().zip(body["contents"].as_array().unwrap()) {
            let parts = message.parts.iter().filter(|part| !matches!(part, Part::Native(_)));
            for (part, json) in parts.zip(content["parts"].as_array().unwrap()) {
                match part {
                    Part::ToolCall(call) => {
                        let field = ["functionCall", "function_call"].map(|name| &json[name]);
                        let field = field.into_iter().find(|field| field.is_object()).unwrap();
                        assert_eq!(field["name"], call.name, "{source}");
                        assert_eq!(field["args"], call.parse_arguments::<Value>().unwrap());
                        assert_eq!(field["id"].as_str(), call.id.as_deref(), "{source}");
                        calls += 1;
                    }
                    Part::ToolResult(result) => {
                        let field =
                            ["functionResponse", "function_response"].map(|name| &json[name]);
                        let field = field.into_iter().find(|field| field.is_object()).unwrap();
                        assert_eq!(field["name"].as_str(), result.name.as_deref(), "{source}");
                        let response = field["response"].as_object().unwrap();
                        assert_eq!(result.is_error, response.contains_key("error"), "{source}");
                        let only = KEYS.into_iter().find_map(|key| response.get(key)?.as_str());
                        match only.filter(|_| response.len() == 1) {
                            Some(text) => assert_eq!(result.text(), text, "{source}"),
                            None => {
                                let whole: Value = serde_json::from_str(&result.text()).unwrap();
                                assert_eq!(whole, field["response"], "{source}");
                            }
                        }
                        results += 1;
                    }
                    Part::Reasoning(reasoning) => {
                        assert_eq!(json["text"], reasoning.text, "{source}");
                        assert_eq!(json["thought"], true, "{source}");
                        thoughts += 1;
                    }
                    Part::Text(text) => assert_eq!(json["text"], text.text, "{source}"),
                    Part::Media(_) => assert!(json.to_string().contains("ime"), "{source}"),
                    other => panic!("{source}: {other:?}"),
                }
            }
        }
    }
    println!("{calls} calls, {results} results, {thoughts} thoughts");
}

#[test]
fn conversations_recorded_with_openai_are_written_in_a_form_valid_for_gemini() {
    let recordings = Recordings::all();
    let (mut count, mut cut_off) = (0, 0);
    for RecordedConversation { source, messages, .. } in recordings.conversations().unwrap() {
        let messages = openai_chat::parse_messages(&Value::from(messages).to_string()).unwrap();
        let body = written(&messages, Unsigned::AsRecorded);
        match validate(Wire::Gemini, &body) {
            Ok(()) => {}
            Err(invalid) => {
                let mut found = invalid.violations();
                let last = body["contents"].as_array().unwrap().len() - 1;
                let is_cut_off = found.all(|violation| {
                    violation.rule == Rule::CallsAnswered && violation.message == last
                });
                assert!(is_cut_off, "{source}: {invalid}");
                cut_off += 1;
            }
        }
        assert_eq!(written(&after_storage(&messages), Unsigned::AsRecorded), body, "{source}");
        assert_signed(&written(&messages, Unsigned::StandIn), &source);
        assert_replayed(&messages, &source);
        assert_no_content_is_lost(&messages, &body, &source);
        count += 1;
    }
    println!("{count} conversations, {cut_off} recorded without their last result");
}

#[test]
fn accepted_requests_of_openai_clients_are_written_in_a_form_valid_for_gemini() {
    let recordings = Recordings::all();
    for request in recordings.accepted("openai-chat").unwrap() {
        let source = request.id.as_str();
        let messages = request.body["messages"].to_string();
        let messages = openai_chat::parse_messages(&messages).expect(source);
        let body = written(&messages, Unsigned::StandIn);
        validate(Wire::Gemini, &body).unwrap_or_else(|invalid| panic!("{source}: {invalid}"));
    }
}

#[test]
fn bodies_that_gemini_accepted_are_written_in_a_form_valid_for_openai() {
    let bodies = accepted_bodies();
    for (source, body) in &bodies {
        let messages = parse_body(&body.to_string()).expect(source);
        if messages.iter().flat_map(Message::calls).any(|call| call.id.is_none()) {
            continue;
        }
        let mut replay = Replay::new(DanglingCalls::Drop);
        messages.into_iter().for_each(|message| replay.push(&Arc::new(message)));
        let view = replay.view();
        let written = openai_chat::render_messages(
            view.iter().map(|message| &**message),
            openai_chat::Audience::Model,
        );
        let body = json!({"messages": serde_json::to_value(written).unwrap()});
        validate(Wire::OpenAiChat, &body).unwrap_or_else(|invalid| panic!("{source}: {invalid}"));
        assert!(!body.to_string().contains("hought"), "{source}");
    }
}

fn assert_replayed(messages: &[Message], source: &str) {
    let step = messages.len() / 6 + 1;
    for cut in (1..=messages.len()).rev().step_by(step) {
        for dangling in [DanglingCalls::Drop, DanglingCalls::Interrupted] {
            let mut replay = Replay::new(dangling);
            messages[..cut].iter().for_each(|message| replay.push(&Arc::new(message.clone())));
            let view = replay.view();
            let shown: Vec<Message> = view.iter().map(|message| (**message).clone()).collect();
            validate(Wire::Gemini, &written(&shown, Unsigned::AsRecorded))
                .unwrap_or_else(|invalid| panic!("{source}, cut after {cut}: {invalid}"));
        }
    }
}

/// Asserts that the first call of each content has a signature, and that no other call has one.
fn assert_signed(body: &Value, source: &str) {
    for content in body["contents"].as_array().unwrap() {
        let parts = content["parts"].as_array().unwrap();
        let calls = parts.iter().filter(|part| part["functionCall"].is_object());
        for (index, call) in calls.enumerate() {
            assert_eq!(call["thoughtSignature"].is_string(), index == 0, "{source}");
        }
    }
}

fn assert_no_content_is_lost(messages: &[Message], body: &Value, source: &str) {
    let parts = |message: &Message| {
        let texts: Vec<_> = message.parts.iter().filter_map(Part::as_text).collect();
        texts.len() + message.calls().count() + message.results().count()
    };
    let expected: usize = messages.iter().map(parts).sum();
    let contents = body["contents"].as_array().unwrap();
    let begins_with_call = contents[0]["parts"][0] == json!({"text": ""});
    let contents = contents.iter().skip(usize::from(begins_with_call));
    let system = body["systemInstruction"]["parts"].as_array().map_or(0, Vec::len);
    let found: usize = contents.map(|content| content["parts"].as_array().unwrap().len()).sum();
    assert_eq!(found + system, expected, "{source}");
}

#[test]
fn an_accepted_body_is_replayed_unchanged_except_for_new_ids_and_moved_results() {
    let bodies = accepted_bodies();
    let (mut exact, mut with_new_ids, mut split) = (0, 0, 0);
    for (source, body) in &bodies {
        let messages = parse_body(&body.to_string()).expect(source);
        let has_ids = messages.iter().flat_map(Message::calls).all(|call| call.id.is_some());
        let is_call = |message: &Message| message.calls().next().is_some();
        let is_split = messages.windows(2).any(|pair| is_call(&pair[0]) && is_call(&pair[1]))
            || messages.iter().any(|found| found.role == Role::User && found.results().count() > 0);
        let mut replay = Replay::new(DanglingCalls::Fail);
        messages.into_iter().for_each(|message| replay.push(&Arc::new(message)));
        let view = replay.view();
        let shown: Vec<Message> = view.iter().map(|message| (**message).clone()).collect();
        let mut replayed = written(&shown, Unsigned::AsRecorded);
        validate(Wire::Gemini, &replayed).unwrap_or_else(|invalid| panic!("{source}: {invalid}"));
        if is_split {
            // The results of two messages with calls follow both messages. The writer moves the
            // results to their calls, and writes the other parts of the message with the results as
            // a separate message. The written body is valid, but the order of its messages differs
            // from the recording.
            split += 1;
            continue;
        }
        if has_ids {
            exact += 1;
        } else {
            remove_ids(&mut replayed);
            with_new_ids += 1;
        }
        assert_eq!(replayed, conversation_of(body), "{source}");
    }
    println!("{exact} exact, {with_new_ids} with new ids, {split} split");
    assert_eq!(exact + with_new_ids + split, bodies.len());
}

fn remove_ids(body: &mut Value) {
    for content in body["contents"].as_array_mut().unwrap() {
        for part in content["parts"].as_array_mut().unwrap() {
            for name in ["functionCall", "functionResponse"] {
                if let Some(inner) = part.get_mut(name) {
                    inner.as_object_mut().unwrap().remove("id").unwrap();
                }
            }
        }
    }
}
