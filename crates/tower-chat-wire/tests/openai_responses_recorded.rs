//! Recorded conversations: those of this wire come back equal, those of another are accepted.
//!
//! The recorded data lie in the folder that `TOWER_CHAT_DATA` names; without it the tests say that
//! they are skipped.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

use std::{collections::HashMap, fs, path::PathBuf, sync::Arc};

use serde_json::{Value, json};
use tower_chat::replay::{DanglingCalls, Replay};
use tower_chat_core::{Message, Part, Role, format};
use tower_chat_wire::{
    openai_chat,
    openai_responses::{parse_answer, parse_body, render_input},
    validate::{Wire, validate},
};

fn folder() -> Option<PathBuf> {
    let folder = std::env::var_os("TOWER_CHAT_DATA").map(PathBuf::from);
    if folder.is_none() {
        eprintln!("skipped: TOWER_CHAT_DATA names no folder of recorded data");
    }
    folder
}

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn accepted() -> Option<Vec<(String, Value)>> {
    let mut lines = lines(&folder()?.join("oracle/accepted_openai-responses.jsonl"));
    assert!(lines.len() > 50);
    let bodies = lines
        .iter_mut()
        .map(|line| (line["id"].as_str().unwrap().to_owned(), line["request"].take()));
    Some(bodies.collect())
}

fn written<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    render_input(messages).iter().map(|item| item.parse::<Value>().unwrap()).collect()
}

fn stored(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|message| format::decode(&format::encode(message)).unwrap()).collect()
}

#[test]
fn an_accepted_body_is_written_as_it_was_read_and_so_it_is_once_stored() {
    let Some(bodies) = accepted() else { return };
    for (id, body) in bodies {
        let conversation = parse_body(&body.to_string()).expect(&id);
        assert_eq!(conversation.instructions.as_deref(), body["instructions"].as_str(), "{id}");
        assert_eq!(written(&conversation.messages), body["input"], "{id}");
        assert_eq!(written(&stored(&conversation.messages)), body["input"], "{id}, stored");
    }
}

#[test]
fn what_the_vocabulary_has_a_field_for_is_not_hidden_in_native_items() {
    let Some(bodies) = accepted() else { return };
    let (mut calls, mut plain) = (0, 0);
    for (id, body) in bodies {
        let messages = parse_body(&body.to_string()).unwrap().messages;
        let items = body["input"].as_array().unwrap();
        let of = |kind: &str| items.iter().filter(|item| item["type"] == kind).collect::<Vec<_>>();
        let found: Vec<_> = messages
            .iter()
            .flat_map(Message::calls)
            .filter(|call| call.name != "tool_search")
            .collect();
        assert_eq!(found.len(), of("function_call").len(), "{id}");
        for (call, item) in found.iter().zip(of("function_call")) {
            assert_eq!(call.id.as_deref(), item["call_id"].as_str(), "{id}");
            assert_eq!(call.name, item["name"], "{id}");
            assert_eq!(call.arguments, item["arguments"], "{id}");
            let is_plain = item.as_object().unwrap().len() == 4;
            assert_eq!(call.native.is_none(), is_plain, "{id}");
            plain += usize::from(is_plain);
            calls += 1;
        }
        let results = messages.iter().flat_map(Message::results);
        let texts: Vec<String> = results
            .filter(|result| matches!(result.content[..], [Part::Text(_)]))
            .map(tower_chat_core::ToolResult::text)
            .collect();
        let outputs = of("function_call_output");
        let outputs: Vec<&str> =
            outputs.iter().filter_map(|item| item["output"].as_str()).collect();
        assert_eq!(texts, outputs, "{id}");
        let texts: String = messages.iter().map(Message::text).collect();
        let content = items.iter().map(|item| &item["content"]);
        let expected: String = content
            .zip(items)
            .filter(|(_, item)| item["type"] != "reasoning")
            .flat_map(|(content, _)| match content {
                Value::String(text) => vec![text.as_str()],
                content => {
                    let parts = content.as_array().into_iter().flatten();
                    parts.filter_map(|part| part["text"].as_str()).collect()
                }
            })
            .collect();
        assert_eq!(texts, expected, "{id}");
    }
    assert!(calls > 80 && plain > 40, "{calls} calls, {plain} plain");
}

#[test]
fn every_cut_of_an_accepted_body_is_valid_once_replayed() {
    let Some(bodies) = accepted() else { return };
    let mut count = 0;
    for (id, body) in bodies {
        let messages = parse_body(&body.to_string()).unwrap().messages;
        for cut in 1..=messages.len() {
            for dangling in [DanglingCalls::Drop, DanglingCalls::Interrupted] {
                let mut sent = body.clone();
                sent["input"] = replayed(&messages[..cut], dangling);
                let place = format!("{id}, cut after {cut}: {sent:#}");
                validate(Wire::OpenAiResponses, &sent).expect(&place);
            }
            count += 1;
        }
    }
    assert!(count > 200, "{count}");
}

fn replayed(messages: &[Message], dangling: DanglingCalls) -> Value {
    let mut replay = Replay::new(dangling);
    messages.iter().for_each(|message| replay.push(&Arc::new(message.clone())));
    let view = replay.view();
    written(view.iter().map(|message| &**message))
}

/// Conversations recorded as OpenAI chat, of which each names its place.
fn chats() -> Option<Vec<(String, Vec<Message>)>> {
    let folder = folder()?;
    let mut files = vec![(folder.join("oracle/accepted_openai-chat.jsonl"), "/request/messages")];
    for name in ["tau_bench", "tau2", "openhands", "swe_agent", "toolbench_legacy"] {
        let paths = fs::read_dir(folder.join(name)).unwrap().map(|entry| entry.unwrap().path());
        let paths = paths.filter(|path| path.extension().is_some_and(|name| name == "jsonl"));
        files.extend(paths.map(|path| (path, "/messages")));
    }
    let mut chats = Vec::new();
    for (path, pointer) in files {
        for (number, line) in lines(&path).iter().enumerate() {
            let json = line.pointer(pointer).unwrap().to_string();
            let messages = openai_chat::parse_messages(&json).unwrap();
            chats.push((format!("{}:{}", path.display(), number + 1), messages));
        }
    }
    Some(chats)
}

#[test]
fn a_conversation_of_openai_chat_is_accepted_here_and_loses_no_word() {
    let Some(chats) = chats() else { return };
    let (mut repeated, mut as_recorded) = (0, 0);
    for (place, messages) in &chats {
        let input = replayed(messages, DanglingCalls::Interrupted);
        validate(Wire::OpenAiResponses, &json!({ "input": input })).expect(place);
        assert_eq!(input, replayed(messages, DanglingCalls::Interrupted), "{place}");
        let ids: Vec<_> = messages
            .iter()
            .flat_map(Message::calls)
            .filter_map(|call| call.id.as_deref())
            .collect();
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        repeated += usize::from(distinct.len() < ids.len());

        let owed = messages.iter().flat_map(Message::calls).count();
        if owed == messages.iter().flat_map(Message::results).count() {
            let input = written(messages);
            validate(Wire::OpenAiResponses, &json!({ "input": input })).expect(place);
            assert_same_words(messages, &input, place);
            as_recorded += 1;
        }
    }
    println!("{} conversations, {repeated} with an id of several calls", chats.len());
    assert!(repeated > 20 && as_recorded > 150, "{repeated}, {as_recorded}");
}

fn assert_same_words(messages: &[Message], input: &Value, place: &str) {
    let items = input.as_array().unwrap();
    let of = |kind: &'static str| items.iter().filter(move |item| item["type"] == kind);
    let calls = messages.iter().flat_map(Message::calls);
    assert!(
        calls.map(|call| (call.name.as_str(), call.arguments.as_str())).eq(of("function_call")
            .map(|item| { (item["name"].as_str().unwrap(), item["arguments"].as_str().unwrap()) })),
        "{place}"
    );
    let asked: HashMap<_, _> = of("function_call").map(|item| (&item["call_id"], item)).collect();
    assert!(of("function_call_output").all(|item| asked.contains_key(&item["call_id"])));
    let said = |role: Role| -> String {
        messages.iter().filter(|message| message.role == role).map(Message::text).collect()
    };
    for (role, name) in [(Role::User, "user"), (Role::Assistant, "assistant")] {
        let found: String = items
            .iter()
            .filter(|item| item["role"] == name)
            .flat_map(|item| match &item["content"] {
                Value::String(text) => vec![text.clone()],
                content => content
                    .as_array()
                    .into_iter()
                    .flatten()
                    .filter_map(|part| Some(part["text"].as_str()?.to_owned()))
                    .collect(),
            })
            .collect();
        assert_eq!(found, said(role), "{place}");
    }
}

/// The JSON bodies that a cassette has as literal blocks, of requests and responses alike.
fn literal_bodies(cassette: &str) -> Vec<Value> {
    let mut found = Vec::new();
    let mut lines = cassette.lines().peekable();
    while let Some(line) = lines.next() {
        let key = line.trim_start();
        if !(key.starts_with("string: |") || key.starts_with("body: |")) {
            continue;
        }
        let indent = line.len() - key.len();
        let mut block = String::new();
        while let Some(next) = lines
            .next_if(|next| next.trim().is_empty() || next.len() - next.trim_start().len() > indent)
        {
            block.push_str(next.trim_start());
            block.push('\n');
        }
        found.extend(serde_json::from_str::<Value>(&block));
    }
    found
}

#[test]
fn a_recorded_answer_is_one_message_that_goes_back_as_it_came() {
    let Some(folder) = folder() else { return };
    let mut count = 0;
    for entry in fs::read_dir(folder.join("cassettes/openai_responses")).unwrap() {
        let path = entry.unwrap().path();
        for body in literal_bodies(&fs::read_to_string(&path).unwrap_or_default()) {
            if body["object"] != "response" {
                continue;
            }
            let answer = parse_answer(&body.to_string()).unwrap();
            assert!(matches!(&answer[..], [message] if message.role == Role::Assistant));
            assert_eq!(written(&stored(&answer)), body["output"], "{}", path.display());
            count += 1;
        }
    }
    println!("{count} recorded answers");
    assert!(count >= 8, "{count}");
}
