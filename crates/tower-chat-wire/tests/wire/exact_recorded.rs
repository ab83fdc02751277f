//! Tests that recorded requests and answers of Bedrock Converse, Cohere and Ollama are written as
//! they were read.

use serde_json::Value;
use tower_chat_core::{Message, Role, format};
use tower_chat_testkit::{
    recordings::{Api, Exchange, Recordings},
    validate::{Rule, Wire, validate},
};
use tower_chat_wire::{body::BodyWire, stream::Frame};

const WIRES: [(&str, Api, BodyWire, Wire); 3] = [
    ("bedrock-converse", Api::BedrockConverse, BodyWire::BedrockConverse, Wire::BedrockConverse),
    ("cohere", Api::Cohere, BodyWire::Cohere, Wire::Cohere),
    ("ollama", Api::Ollama, BodyWire::Ollama, Wire::Ollama),
];

/// Removes `null` fields and an empty list of tools from a body.
fn without_unset_fields(mut body: Value) -> Value {
    let is_set = |name: &str, value: &Value| {
        !value.is_null() && (name != "tools" || *value != Value::Array(Vec::new()))
    };
    body.as_object_mut().unwrap().retain(|name, value| is_set(name, value));
    body
}

/// Asserts that a request is written as it was read, both before and after its messages were stored
/// and loaded.
fn assert_exact(source: &str, wire: BodyWire, body: &Value) {
    let mut request = wire.parse_request_json(&body.to_string()).expect(source);
    // The body does not name the model.
    let model = request.options.model.clone();
    let written: Value = wire.render_request_json(&request).expect(source).parse().unwrap();
    assert_eq!(written, without_unset_fields(body.clone()), "{source}");
    assert_eq!(request.options.model, model);
    let stored: Vec<Message> = request
        .messages()
        .iter()
        .map(|message| format::decode(&format::encode(message)).unwrap())
        .collect();
    request.set_new_messages(stored);
    let written: Value = wire.render_request_json(&request).expect(source).parse().unwrap();
    assert_eq!(written, without_unset_fields(body.clone()), "{source}, after it was stored");
}

fn exchanges(recordings: &Recordings, api: Api) -> Vec<Exchange> {
    let cassettes = recordings.cassettes().unwrap();
    let exchanges = cassettes.into_iter().flat_map(|cassette| cassette.exchanges);
    exchanges.filter(|exchange| exchange.api().unwrap() == api).collect()
}

#[test]
fn accepted_requests_are_written_as_they_were_read() {
    let recordings = Recordings::all();
    for (name, _, wire, _) in WIRES {
        let accepted = recordings.accepted(name).unwrap();
        println!("{name}: {} accepted requests", accepted.len());
        assert!(!accepted.is_empty(), "{name}");
        for request in &accepted {
            assert_exact(&request.id, wire, &request.body);
        }
    }
}

#[test]
fn requests_on_cassettes_are_written_as_they_were_read() {
    let recordings = Recordings::all();
    for (name, api, wire, _) in WIRES {
        let exchanges = exchanges(&recordings, api);
        println!("{name}: {} requests on cassettes", exchanges.len());
        assert!(!exchanges.is_empty(), "{name}");
        for exchange in &exchanges {
            assert_exact(&exchange.source, wire, &exchange.request);
        }
    }
}

#[test]
fn whole_answers_on_cassettes_are_written_as_they_were_read() {
    let recordings = Recordings::all();
    for (name, api, wire, _) in WIRES {
        let mut count = 0;
        for exchange in exchanges(&recordings, api) {
            if !exchange.is_success() || exchange.is_streamed() {
                continue;
            }
            count += 1;
            let source = &exchange.source;
            let answer = wire.parse_answer(exchange.text().unwrap()).expect(source);
            let [message] = answer.messages.as_slice() else { panic!("{source}: {answer:?}") };
            let written = wire.render_answer_json(message, &answer.finish);
            let written: Value = written.parse().unwrap();
            assert_eq!(
                without_unset_fields(written),
                without_unset_fields(exchange.json().unwrap()),
                "{source}"
            );
        }
        println!("{name}: {count} whole answers on cassettes");
        assert!(count > 0, "{name}");
    }
}

#[test]
fn streamed_answers_on_cassettes_are_written_whole_and_read_again() {
    let recordings = Recordings::all();
    for (name, api, wire, _) in WIRES {
        let mut count = 0;
        for exchange in exchanges(&recordings, api) {
            if !exchange.is_success() || !exchange.is_streamed() {
                continue;
            }
            count += 1;
            let source = &exchange.source;
            let mut accumulator = wire.accumulator();
            let events = exchange.events().unwrap();
            let mut frames = events.into_iter().map(|it| Frame { event: it.event, data: it.data });
            let read = frames.try_for_each(|frame| accumulator.push(&frame).map(drop));
            if exchange.reported_error().unwrap().is_some() {
                assert!(read.is_err() || !accumulator.is_complete(), "{source}");
                continue;
            }
            read.expect(source);
            assert!(accumulator.is_complete(), "{source}");
            let answer = accumulator.finish().expect(source);
            let [message] = answer.messages.as_slice() else { panic!("{source}: {answer:?}") };
            let written = wire.render_answer_json(message, &answer.finish);
            let read = wire.parse_answer(written.get()).expect(source);
            assert_eq!(read.messages[0].text(), message.text(), "{source}");
            assert_eq!(read.finish, answer.finish, "{source}");
            let calls = |message: &Message| {
                message.calls().map(|call| (call.id.clone(), call.arguments.clone())).collect()
            };
            let (read, sent): (Vec<_>, Vec<_>) = (calls(&read.messages[0]), calls(message));
            assert_eq!(read, sent, "{source}");
        }
        println!("{name}: {count} streamed answers on cassettes");
    }
}

#[test]
fn accepted_requests_of_other_wires_are_written_in_a_form_that_each_wire_accepts() {
    let recordings = Recordings::all();
    let others = [
        ("openai-chat", BodyWire::OpenAiChat),
        ("anthropic", BodyWire::Anthropic),
        ("gemini", BodyWire::Gemini),
    ];
    for (name, _, wire, checked) in WIRES {
        let mut count = 0;
        for (other, from) in others {
            for line in recordings.accepted(other).unwrap() {
                let read = from.parse_request_json(&line.body.to_string()).unwrap();
                let roles: Vec<Role> = read.messages().iter().map(|it| it.role).collect();
                if roles.windows(2).any(|pair| pair == [Role::Assistant, Role::Assistant]) {
                    // The results of two answers with calls follow the second answer. Only
                    // `tower_chat::replay` can move the results to the answer with their calls.
                    continue;
                }
                let mut request = read.clone();
                let mut options = (*read.options).clone();
                options.tool_choice = None;
                options.extra.clear();
                options.model = Some("m".to_owned());
                request.options = options.into();
                let written: Value = wire.render_request_json(&request).unwrap().parse().unwrap();
                if let Err(invalid) = validate(checked, &written) {
                    // The writer does not add a user message to a conversation that begins with an
                    // assistant message.
                    let rules: Vec<Rule> = invalid.violations().map(|found| found.rule).collect();
                    assert_eq!(rules, [Rule::UserFirst], "{} on {name}: {invalid}", line.id);
                    assert_eq!(written["messages"][0]["role"], "assistant", "{}", line.id);
                }
                count += 1;
            }
        }
        println!("{name}: {count} accepted requests of other wires");
    }
}
