//! Tests with recorded conversations. Conversations of Anthropic are read and written again
//! unchanged. Conversations of OpenAI are written in a form that Anthropic accepts.

use serde_json::{Value, json};
use tower_chat::replay::{DanglingCalls, Replay};
use tower_chat_core::{Message, Messages, Part, Reasoning, format};
use tower_chat_testkit::{
    recordings::{Api, RecordedConversation, Recordings},
    validate::{Wire, validate},
};
use tower_chat_wire::{
    anthropic::{parse_answer, parse_body, parse_message, render_body},
    openai_chat,
};

/// Returns the recorded request bodies that Anthropic accepted, with their sources.
fn accepted_bodies() -> Vec<(String, Value)> {
    let recordings = Recordings::all();
    let requests = ["anthropic", "bedrock-invoke"].map(|wire| recordings.accepted(wire).unwrap());
    let requests: Vec<_> =
        requests.into_iter().flatten().map(|request| (request.id, request.body)).collect();
    assert!(!requests.is_empty());
    requests
}

/// Returns the requests and the whole answers of the recorded exchanges with Anthropic.
fn exchanged_bodies() -> Vec<(String, Value)> {
    let cassettes = Recordings::all().cassettes().unwrap();
    let exchanges = cassettes.iter().flat_map(|cassette| &cassette.exchanges);
    let apis = [Api::AnthropicMessages, Api::VertexAnthropic];
    let exchanges = exchanges.filter(|exchange| apis.contains(&exchange.api().unwrap()));
    let mut found = Vec::new();
    for exchange in exchanges {
        found.push((exchange.source.clone(), exchange.request.clone()));
        if !exchange.is_streamed() {
            found.push((exchange.source.clone(), exchange.json().unwrap()));
        }
    }
    found
}

fn rendered<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    serde_json::to_value(render_body(messages)).unwrap()
}

fn after_storage(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|message| format::decode(&format::encode(message)).unwrap()).collect()
}

/// Returns the fields of a body that the wire's module is expected to write.
fn conversation(body: &Value) -> Value {
    let mut conversation = json!({"messages": body["messages"]});
    if let Some(system) = body.get("system") {
        conversation["system"] = system.clone();
    }
    conversation
}

#[test]
fn a_recorded_conversation_is_written_as_it_was_read() {
    let bodies = accepted_bodies();
    println!("{} bodies", bodies.len());
    for (source, body) in &bodies {
        let messages = parse_body(&body.to_string()).expect(source);
        assert_eq!(rendered(&messages), conversation(body), "{source}");
        assert_eq!(
            rendered(&after_storage(&messages)),
            conversation(body),
            "{source}, after the store"
        );
    }
}

/// Removes blank texts from the assistant messages of a conversation. The service sends blank texts
/// in answers and refuses them in requests, so the writer omits them.
fn without_blank_texts(mut conversation: Value) -> Value {
    let is_blank = |block: &Value| {
        block["type"] == "text" && block["text"].as_str().is_some_and(|it| it.trim().is_empty())
    };
    for message in conversation["messages"].as_array_mut().unwrap() {
        if let Some(blocks) = message["content"].as_array_mut() {
            blocks.retain(|block| !is_blank(block));
        }
    }
    conversation
}

#[test]
fn recorded_requests_and_answers_are_written_as_they_were_read() {
    let exchanged = exchanged_bodies();
    let (mut sent, mut answered) = (0, 0);
    for (source, json) in &exchanged {
        if json.get("messages").is_some() {
            sent += 1;
            let messages = parse_body(&json.to_string()).expect(source);
            let expected = without_blank_texts(conversation(json));
            assert_eq!(
                without_blank_texts(rendered(&after_storage(&messages))),
                expected,
                "{source}"
            );
        } else if json["type"] == "message" {
            answered += 1;
            let answer = parse_answer(&json.to_string()).expect(source);
            let written =
                rendered(&after_storage(&[Message::user("hi"), answer, Message::user("bye")]));
            let content = &json["content"];
            if content.as_array().unwrap().is_empty() {
                assert_eq!(written["messages"].as_array().unwrap().len(), 1, "{source}");
            } else {
                assert_eq!(&written["messages"][1]["content"], content, "{source}");
            }
        }
    }
    println!("{sent} requests, {answered} answers");
    assert!(sent > 0);
}

#[test]
fn texts_names_arguments_and_ids_are_read_into_fields_and_not_into_native_items() {
    let bodies = accepted_bodies();
    let (mut calls, mut results) = (0, 0);
    for (source, body) in &bodies {
        for json in body["messages"].as_array().unwrap() {
            let message = parse_message(&json.to_string()).expect(source);
            let blocks: Vec<&Value> = json["content"].as_array().into_iter().flatten().collect();
            let of = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
            assert_eq!(message.calls().count(), of("tool_use").count(), "{source}");
            for (call, block) in message.calls().zip(of("tool_use")) {
                calls += 1;
                assert_eq!(call.id.as_deref(), block["id"].as_str(), "{source}");
                assert_eq!(Some(call.name.as_str()), block["name"].as_str(), "{source}");
                assert_eq!(call.parse_arguments::<Value>().unwrap(), block["input"], "{source}");
                assert_eq!(call.native, None, "{source}");
            }
            let provided: Vec<_> = message
                .parts
                .iter()
                .filter_map(Part::as_tool_call)
                .filter(|call| call.provider_executed)
                .collect();
            let expected = of("server_tool_use").count() + of("mcp_tool_use").count();
            assert_eq!(provided.len(), expected, "{source}");
            let expected = of("tool_result").count() + of("tool_search_tool_result").count();
            assert_eq!(message.results().count(), expected, "{source}");
            for (result, block) in message.results().zip(of("tool_result")) {
                results += 1;
                assert_eq!(result.call_id.as_deref(), block["tool_use_id"].as_str(), "{source}");
                assert_eq!(result.is_error, block["is_error"] == true, "{source}");
                if let Some(text) = block["content"].as_str() {
                    assert_eq!(result.text(), text, "{source}");
                }
            }
            let whole = json["content"].as_str().into_iter();
            let texts: String =
                whole.chain(of("text").filter_map(|block| block["text"].as_str())).collect();
            assert_eq!(message.text(), texts, "{source}");
        }
    }
    println!("{calls} calls, {results} results");
}

#[test]
fn a_conversation_recorded_with_openai_is_written_in_a_form_that_anthropic_accepts() {
    let recordings = Recordings::all();
    let (mut whole, mut unanswered, mut words) = (0, 0, 0);
    for RecordedConversation { source, messages, .. } in recordings.conversations().unwrap() {
        let messages = Value::from(messages).to_string();
        let mut history = openai_chat::parse_messages(&messages).unwrap();
        // Some conversations end with a call without a result.
        history.pop_if(|last| last.calls().next().is_some());
        let body = rendered(&history);
        assert_eq!(rendered(&after_storage(&history)), body, "{source}, after the store");
        let calls = history.iter().flat_map(Message::calls).count();
        let results = history.iter().flat_map(Message::results).count();
        if calls == results {
            whole += 1;
            validate(Wire::Anthropic, &body).expect(&source);
        } else {
            unanswered += 1;
        }
        let roles: Vec<_> = body["messages"].as_array().unwrap().iter().collect();
        assert!(roles.windows(2).all(|pair| pair[0]["role"] != pair[1]["role"]), "{source}");
        // Reading and writing the written body again does not change it, because it is a
        // conversation of this wire.
        let again = parse_body(&body.to_string()).expect(&source);
        assert_eq!(rendered(&again), body, "{source}, read again");
        for message in &history {
            let texts = message.parts.iter().filter_map(Part::as_text);
            for text in texts.filter(|text| !text.trim().is_empty()) {
                words += 1;
                assert!(body.to_string().contains(&json!(text).to_string()), "{source}");
            }
        }
    }
    println!("{whole} conversations are valid, {words} texts were found again");
    println!("{unanswered} have calls without a result");
    assert!(whole > 0 && words > 0);
}

#[test]
fn the_replay_of_a_recorded_conversation_is_written_as_it_was_recorded() {
    let bodies = accepted_bodies();
    for (source, body) in &bodies {
        let messages: Messages = parse_body(&body.to_string()).expect(source).into();
        let mut replay = Replay::new(DanglingCalls::Drop);
        replay.push_from(&messages, 0);
        let view: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
        assert_eq!(rendered(&view), conversation(body), "{source}");
    }
}

#[test]
fn reasoning_and_native_items_of_other_wires_are_omitted() {
    let bodies = accepted_bodies();
    for (source, body) in &bodies {
        let mut messages = parse_body(&body.to_string()).expect(source);
        for message in &mut messages {
            let foreign = tower_chat_core::Native::new("elsewhere", r#"{"x":1}"#.parse().unwrap());
            let mut thought = Reasoning::new("hm");
            thought.native = Some(foreign.clone());
            message.parts.extend([Reasoning::new("hm").into(), thought.into(), foreign.into()]);
        }
        assert_eq!(rendered(&messages), conversation(body), "{source}");
    }
}
