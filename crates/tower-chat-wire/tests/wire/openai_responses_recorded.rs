//! Tests with recorded conversations. Conversations of Responses are written unchanged.
//! Conversations of other wires are written in a form that OpenAI accepts.

use std::{collections::HashMap, sync::Arc};

use serde_json::{Value, json};
use tower_chat::replay::{DanglingCalls, Replay};
use tower_chat_core::{Message, Part, Role, format};
use tower_chat_testkit::{
    recordings::{Api, Recordings},
    validate::{Wire, validate},
};
use tower_chat_wire::{
    openai_chat,
    openai_responses::{parse_answer, parse_body, render_input},
};

fn accepted_bodies() -> Vec<(String, Value)> {
    let requests = Recordings::all().accepted("openai-responses").unwrap();
    assert!(!requests.is_empty());
    requests.into_iter().map(|request| (request.id, request.body)).collect()
}

fn written<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    render_input(messages).iter().map(|item| item.parse::<Value>().unwrap()).collect()
}

fn after_storage(messages: &[Message]) -> Vec<Message> {
    messages.iter().map(|message| format::decode(&format::encode(message)).unwrap()).collect()
}

#[test]
fn an_accepted_body_is_written_as_it_was_read_before_and_after_storage() {
    let bodies = accepted_bodies();
    for (id, body) in bodies {
        let conversation = parse_body(&body.to_string()).expect(&id);
        assert_eq!(conversation.instructions.as_deref(), body["instructions"].as_str(), "{id}");
        assert_eq!(written(&conversation.messages), body["input"], "{id}");
        assert_eq!(written(&after_storage(&conversation.messages)), body["input"], "{id}, stored");
    }
}

#[test]
fn texts_calls_and_outputs_are_read_into_fields_and_not_into_native_items() {
    let bodies = accepted_bodies();
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
    println!("{calls} calls, {plain} plain");
}

#[test]
fn every_prefix_of_an_accepted_body_is_valid_after_replay() {
    let bodies = accepted_bodies();
    let mut count = 0;
    for (id, body) in bodies {
        let messages = parse_body(&body.to_string()).unwrap().messages;
        for cut in 1..=messages.len() {
            for dangling in [DanglingCalls::Drop, DanglingCalls::Interrupted] {
                let mut sent = body.clone();
                sent["input"] = replayed(&messages[..cut], dangling);
                let source = format!("{id}, cut after {cut}: {sent:#}");
                validate(Wire::OpenAiResponses, &sent).expect(&source);
            }
            count += 1;
        }
    }
    println!("{count} cuts");
}

fn replayed(messages: &[Message], dangling: DanglingCalls) -> Value {
    let mut replay = Replay::new(dangling);
    messages.iter().for_each(|message| replay.push(&Arc::new(message.clone())));
    let view = replay.view();
    written(view.iter().map(|message| &**message))
}

/// Returns the conversations that were recorded with OpenAI's Chat Completions, with their sources.
fn recorded_chats() -> Vec<(String, Vec<Message>)> {
    let recordings = Recordings::all();
    let accepted = recordings.accepted("openai-chat").unwrap().into_iter();
    let accepted = accepted.map(|request| (request.id, request.body["messages"].to_string()));
    let whole = recordings.conversations().unwrap().into_iter();
    let whole = whole.map(|found| (found.source, Value::from(found.messages).to_string()));
    let chats = accepted.chain(whole);
    chats.map(|(id, json)| (id, openai_chat::parse_messages(&json).unwrap())).collect()
}

#[test]
fn a_conversation_of_openai_chat_is_valid_as_responses_input_and_loses_no_text() {
    let chats = recorded_chats();
    let (mut repeated, mut as_recorded) = (0, 0);
    for (source, messages) in &chats {
        let input = replayed(messages, DanglingCalls::Interrupted);
        validate(Wire::OpenAiResponses, &json!({ "input": input })).expect(source);
        assert_eq!(input, replayed(messages, DanglingCalls::Interrupted), "{source}");
        let ids: Vec<_> = messages
            .iter()
            .flat_map(Message::calls)
            .filter_map(|call| call.id.as_deref())
            .collect();
        let distinct: std::collections::HashSet<_> = ids.iter().collect();
        repeated += usize::from(distinct.len() < ids.len());

        let pending = messages.iter().flat_map(Message::calls).count();
        if pending == messages.iter().flat_map(Message::results).count() {
            let input = written(messages);
            validate(Wire::OpenAiResponses, &json!({ "input": input })).expect(source);
            assert_same_texts(messages, &input, source);
            as_recorded += 1;
        }
    }
    println!("{} conversations, {repeated} with an id of several calls", chats.len());
    assert!(as_recorded > 0);
}

fn assert_same_texts(messages: &[Message], input: &Value, source: &str) {
    let items = input.as_array().unwrap();
    let of = |kind: &'static str| items.iter().filter(move |item| item["type"] == kind);
    let calls = messages.iter().flat_map(Message::calls);
    assert!(
        calls.map(|call| (call.name.as_str(), call.arguments.as_str())).eq(of("function_call")
            .map(|item| { (item["name"].as_str().unwrap(), item["arguments"].as_str().unwrap()) })),
        "{source}"
    );
    let asked: HashMap<_, _> = of("function_call").map(|item| (&item["call_id"], item)).collect();
    assert!(of("function_call_output").all(|item| asked.contains_key(&item["call_id"])));
    let expected_text = |role: Role| -> String {
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
        assert_eq!(found, expected_text(role), "{source}");
    }
}

#[test]
fn a_recorded_answer_is_one_message_and_is_sent_again_as_it_was_received() {
    let recordings = Recordings::all();
    let cassettes = recordings.cassettes().unwrap();
    let exchanges = cassettes.iter().flat_map(|cassette| &cassette.exchanges);
    let mut count = 0;
    for exchange in exchanges.filter(|it| it.api().unwrap() == Api::Responses) {
        // The last event of a stream contains the whole response.
        let Some(end) = exchange.json_events().unwrap().pop() else { continue };
        let body = if exchange.is_streamed() { end["response"].clone() } else { end };
        let output = body["output"].as_array().map_or(&[][..], Vec::as_slice);
        if body["object"] != "response" || output.is_empty() {
            continue;
        }
        let answer = parse_answer(&body.to_string()).unwrap();
        assert!(matches!(&answer[..], [message] if message.role == Role::Assistant));
        // OpenAI refuses reasoning at the end of an input, so the writer omits it.
        let end = output.iter().rposition(|item| item["type"] != "reasoning");
        let expected = &output[..end.map_or(0, |end| end + 1)];
        assert_eq!(written(&after_storage(&answer)), json!(expected), "{}", exchange.source);
        count += 1;
    }
    println!("{count} recorded answers");
    assert!(count > 0);
}
