//! Every recorded conversation of Anthropic, read and written again, is an equal JSON value; those
//! recorded with OpenAI become ones that Anthropic takes.
//!
//! The recorded data lie in the folder that `TOWER_CHAT_DATA` names; without it the tests say that
//! they are skipped.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde_json::{Value, json};
use tower_chat::replay::{DanglingCalls, Replay};
use tower_chat_core::{Message, Messages, Part, Reasoning, format};
use tower_chat_wire::{
    anthropic::{parse_answer, parse_body, parse_message, render_body},
    openai_chat,
    validate::{Wire, validate},
};

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TOWER_CHAT_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: TOWER_CHAT_DATA names no folder of recorded data");
    }
    folder
}

fn lines(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut paths: Vec<_> =
        fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

/// Request bodies that the service accepted, with where each comes from.
fn accepted() -> Option<Vec<(String, Value)>> {
    let oracle = folder()?.join("oracle");
    let mut bodies = Vec::new();
    for name in ["anthropic", "bedrock-invoke"] {
        for mut line in lines(&oracle.join(format!("accepted_{name}.jsonl"))) {
            bodies.push((line["id"].as_str().unwrap().to_owned(), line["request"].take()));
        }
    }
    Some(bodies)
}

/// The JSON objects in the recorded exchanges with the service that stand on one line of their
/// file, in the quotes of YAML.
fn exchanged() -> Option<Vec<(String, Value)>> {
    let mut found = Vec::new();
    for path in files(&folder()?.join("cassettes/anthropic")) {
        for line in fs::read_to_string(&path).unwrap().lines() {
            let quoted = ["body: '{", "string: '{"].iter().find_map(|start| {
                let (_, text) = line.split_once(start)?;
                text.strip_suffix('\'').map(|text| format!("{{{}", text.replace("''", "'")))
            });
            if let Some(Ok(value)) = quoted.map(|text| serde_json::from_str(&text)) {
                found.push((path.display().to_string(), value));
            }
        }
    }
    Some(found)
}

fn rendered<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    serde_json::to_value(render_body(messages)).unwrap()
}

fn stored(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|message| format::decode(&format::encode(message)).unwrap()).collect()
}

/// What the wire's module is to write of a body.
fn conversation(body: &Value) -> Value {
    let mut conversation = json!({"messages": body["messages"]});
    if let Some(system) = body.get("system") {
        conversation["system"] = system.clone();
    }
    conversation
}

#[test]
fn a_recorded_conversation_is_written_as_it_was_read() {
    let Some(bodies) = accepted() else { return };
    assert_eq!(bodies.len(), 30);
    for (place, body) in &bodies {
        let messages = parse_body(&body.to_string()).expect(place);
        assert_eq!(rendered(&messages), conversation(body), "{place}");
        assert_eq!(rendered(&stored(&messages)), conversation(body), "{place}, after the store");
    }
}

#[test]
fn what_was_sent_and_answered_in_an_exchange_is_written_as_it_was() {
    let Some(exchanged) = exchanged() else { return };
    let (mut sent, mut answered) = (0, 0);
    for (place, json) in &exchanged {
        if json.get("messages").is_some() {
            sent += 1;
            let messages = parse_body(&json.to_string()).expect(place);
            assert_eq!(rendered(&stored(&messages)), conversation(json), "{place}");
        } else if json["type"] == "message" {
            answered += 1;
            let answer = parse_answer(&json.to_string()).expect(place);
            let written = rendered(&stored(&[Message::user("hi"), answer, Message::user("bye")]));
            let content = &json["content"];
            if content.as_array().unwrap().is_empty() {
                assert_eq!(written["messages"].as_array().unwrap().len(), 1, "{place}");
            } else {
                assert_eq!(&written["messages"][1]["content"], content, "{place}");
            }
        }
    }
    println!("{sent} requests, {answered} answers");
    assert!(sent >= 6 && answered >= 4, "{sent}, {answered}");
}

#[test]
fn text_names_arguments_and_ids_are_not_hidden_in_native_items() {
    let Some(bodies) = accepted() else { return };
    let (mut calls, mut results) = (0, 0);
    for (place, body) in &bodies {
        for json in body["messages"].as_array().unwrap() {
            let message = parse_message(&json.to_string()).expect(place);
            let blocks: Vec<&Value> = json["content"].as_array().into_iter().flatten().collect();
            let of = |kind: &'static str| blocks.iter().filter(move |block| block["type"] == kind);
            assert_eq!(message.calls().count(), of("tool_use").count(), "{place}");
            for (call, block) in message.calls().zip(of("tool_use")) {
                calls += 1;
                assert_eq!(call.id.as_deref(), block["id"].as_str(), "{place}");
                assert_eq!(Some(call.name.as_str()), block["name"].as_str(), "{place}");
                assert_eq!(call.parse_arguments::<Value>().unwrap(), block["input"], "{place}");
                assert_eq!(call.native, None, "{place}");
            }
            let provided: Vec<_> = message
                .parts
                .iter()
                .filter_map(Part::as_tool_call)
                .filter(|call| call.provider_executed)
                .collect();
            let expected = of("server_tool_use").count() + of("mcp_tool_use").count();
            assert_eq!(provided.len(), expected, "{place}");
            let expected = of("tool_result").count() + of("tool_search_tool_result").count();
            assert_eq!(message.results().count(), expected, "{place}");
            for (result, block) in message.results().zip(of("tool_result")) {
                results += 1;
                assert_eq!(result.call_id.as_deref(), block["tool_use_id"].as_str(), "{place}");
                assert_eq!(result.is_error, block["is_error"] == true, "{place}");
                if let Some(text) = block["content"].as_str() {
                    assert_eq!(result.text(), text, "{place}");
                }
            }
            let texts: String = of("text").filter_map(|block| block["text"].as_str()).collect();
            assert_eq!(message.text(), texts, "{place}");
        }
    }
    assert!(calls > 50 && results > 50, "{calls} calls, {results} results");
}

#[test]
fn a_conversation_recorded_with_openai_becomes_one_that_anthropic_takes() {
    let Some(folder) = folder() else { return };
    let (mut whole, mut unanswered, mut words) = (0, 0, 0);
    for name in ["tau_bench", "tau2", "openhands", "swe_agent", "toolbench_legacy"] {
        for path in files(&folder.join(name)) {
            if path.extension().is_none_or(|extension| extension != "jsonl") {
                continue;
            }
            for (number, line) in lines(&path).iter().enumerate() {
                let place = format!("{}:{}", path.display(), number + 1);
                let messages = line["messages"].to_string();
                let mut history = openai_chat::parse_messages(&messages).unwrap();
                // Some end with a call, which nothing answered any more.
                history.pop_if(|last| last.calls().next().is_some());
                let body = rendered(&history);
                assert_eq!(rendered(&stored(&history)), body, "{place}, after the store");
                let calls = history.iter().flat_map(Message::calls).count();
                let results = history.iter().flat_map(Message::results).count();
                if calls == results {
                    whole += 1;
                    validate(Wire::Anthropic, &body).expect(&place);
                } else {
                    unanswered += 1;
                }
                let roles: Vec<_> = body["messages"].as_array().unwrap().iter().collect();
                assert!(roles.windows(2).all(|pair| pair[0]["role"] != pair[1]["role"]), "{place}");
                // It is now a conversation of this wire, and stays what it is.
                let again = parse_body(&body.to_string()).expect(&place);
                assert_eq!(rendered(&again), body, "{place}, read again");
                for message in &history {
                    let texts = message.parts.iter().filter_map(Part::as_text);
                    for text in texts.filter(|text| !text.trim().is_empty()) {
                        words += 1;
                        assert!(body.to_string().contains(&json!(text).to_string()), "{place}");
                    }
                }
            }
        }
    }
    println!("{whole} conversations are valid, {words} texts were found again");
    assert!(whole > 150 && unanswered <= 1 && words > 2_000, "{whole}, {unanswered}, {words}");
}

#[test]
fn a_replay_of_a_recorded_conversation_is_written_as_it_was() {
    let Some(bodies) = accepted() else { return };
    for (place, body) in &bodies {
        let messages: Messages = parse_body(&body.to_string()).expect(place).into();
        let mut replay = Replay::new(DanglingCalls::Drop);
        replay.push_from(&messages, 0);
        let view: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
        assert_eq!(rendered(&view), conversation(body), "{place}");
    }
}

#[test]
fn reasoning_and_native_items_of_other_wires_are_left_out() {
    let Some(bodies) = accepted() else { return };
    for (place, body) in &bodies {
        let mut messages = parse_body(&body.to_string()).expect(place);
        for message in &mut messages {
            let foreign = tower_chat_core::Native::new("elsewhere", r#"{"x":1}"#.parse().unwrap());
            let mut thought = Reasoning::new("hm");
            thought.native = Some(foreign.clone());
            message.parts.extend([Reasoning::new("hm").into(), thought.into(), foreign.into()]);
        }
        assert_eq!(rendered(&messages), conversation(body), "{place}");
    }
}
