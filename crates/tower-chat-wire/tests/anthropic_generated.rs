//! Conversations of every odd shape: none is a panic, and what the service would take is written
//! as it was.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

use serde_json::{Map, Value, json};
use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role,
    ToolCall, ToolResult, format,
};
use tower_chat_wire::{
    anthropic::{parse_body, render_body},
    validate::{Wire, validate},
};

/// A generator of the same numbers at every run (xorshift, by Marsaglia).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    fn object(&mut self, fields: &[(&str, &[Value])]) -> Value {
        let mut object = Map::new();
        for (name, values) in fields {
            if self.below(6) > 0 {
                object.insert((*name).to_owned(), self.one_of(values));
            }
        }
        Value::Object(object)
    }

    fn list(&mut self, limit: usize, item: fn(&mut Self) -> Value) -> Value {
        (0..self.below(limit)).map(|_| item(self)).collect()
    }
}

const KINDS: [&str; 14] = [
    "text",
    "text",
    "thinking",
    "redacted_thinking",
    "tool_use",
    "tool_use",
    "server_tool_use",
    "mcp_tool_use",
    "web_search_tool_result",
    "mcp_tool_result",
    "tool_result",
    "image",
    "document",
    "later_invention",
];

fn source(numbers: &mut Numbers) -> Value {
    let kinds = ["base64", "url", "file", "text"].map(Value::from);
    let mut source = numbers.object(&[
        ("media_type", &[json!("image/png"), json!("application/pdf"), json!("a"), json!(1)]),
        ("data", &[json!("AAAA"), json!("")]),
        ("url", &[json!("https://a.example/b"), json!(null)]),
        ("file_id", &[json!("file_1"), json!(3)]),
        ("more", &[json!(true)]),
    ]);
    source["type"] = numbers.one_of(&kinds);
    source
}

fn block(numbers: &mut Numbers) -> Value {
    block_of(numbers, true)
}

fn inner_block(numbers: &mut Numbers) -> Value {
    block_of(numbers, false)
}

fn block_of(numbers: &mut Numbers, is_outer: bool) -> Value {
    let ids = ["a", "b", "c"].map(Value::from);
    let kind = numbers.one_of(&KINDS);
    let texts = [json!("hi"), json!("bye"), json!(" "), json!("")];
    let source = [source(numbers), json!(null)];
    let mut contents = vec![json!("found"), json!(""), json!(null), json!({"type": "x", "y": 1})];
    if is_outer {
        contents.push(numbers.list(4, inner_block));
        contents.push(numbers.list(4, inner_block));
    }
    let mut block = numbers.object(&[
        ("text", &texts),
        ("thinking", &texts),
        ("data", &[json!("encrypted")]),
        ("signature", &[json!("signed"), json!("signed"), json!("")]),
        ("id", &ids),
        ("tool_use_id", &ids),
        ("source", &source),
        ("content", &contents),
        ("is_error", &[json!(true), json!(false), json!(null), json!("no")]),
    ]);
    block["type"] = kind.into();
    block["name"] = "f".into();
    block["input"] = numbers.one_of(&[json!({}), json!({"a": [1.5, null]})]);
    if numbers.below(4) == 0 {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
    block
}

fn message(numbers: &mut Numbers) -> Value {
    let contents = [
        json!("hi"),
        json!(""),
        numbers.list(4, block),
        numbers.list(4, block),
        numbers.list(2, block),
        json!([{"type": "tool_use", "id": "a", "name": "f", "input": {}}]),
        json!([{"type": "tool_result", "tool_use_id": "a"}]),
    ];
    let mut message = json!({"content": numbers.one_of(&contents)});
    message["role"] = numbers.one_of(&["user", "assistant", "user", "assistant", "system"]).into();
    if numbers.below(8) == 0 {
        message["more"] = numbers.one_of(&[json!(null), json!("more"), json!({})]);
    }
    message
}

fn body(numbers: &mut Numbers) -> Value {
    let systems = [json!("Be brief."), json!(""), json!(null), numbers.list(3, block)];
    let mut body = json!({"messages": numbers.list(5, message)});
    if numbers.below(2) == 0 {
        body["system"] = numbers.one_of(&systems);
    }
    body
}

#[test]
fn whatever_the_service_takes_is_written_as_it_was() {
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..5_000 {
        let json = body(&mut numbers);
        let messages = parse_body(&json.to_string()).unwrap();
        let written = serde_json::to_value(render_body(&messages)).unwrap();
        let stored: Vec<Message> = messages
            .iter()
            .map(|message| format::decode(&format::encode(message)).unwrap())
            .collect();
        assert_eq!(serde_json::to_value(render_body(&stored)).unwrap(), written);
        if validate(Wire::Anthropic, &json).is_ok() {
            taken += 1;
            assert_eq!(written, json, "{messages:#?}");
        } else {
            refused += 1;
        }
    }
    assert!(taken > 500 && refused > 500, "taken {taken}, refused {refused}");
}

fn part(numbers: &mut Numbers) -> Part {
    let ids = [None, Some(""), Some("a"), Some("a.b"), Some("a:b"), Some("a_b"), Some("é")];
    let arguments = ["", "null", "{}", "{'cut", "[1]", r#"{"a":"\ud800"}"#, r#" {"a": 1e2} "#];
    let wires = ["anthropic", "openai-chat"];
    let items = ["{}", "1", r#"{"type":"x"}"#, r#"{"role":"x"}"#, r#"{"type":"thinking"}"#];
    let native = Native::new(numbers.one_of(&wires), numbers.one_of(&items).parse().unwrap());
    let native = (numbers.below(2) == 0).then_some(native);
    match numbers.below(9) {
        0 | 1 => {
            let mut call = ToolCall::without_id("f", numbers.one_of(&arguments));
            call.id = numbers.one_of(&ids).map(str::to_owned);
            call.provider_executed = numbers.below(4) == 0;
            call.native = native;
            call.into()
        }
        2 | 3 => {
            let mut result = ToolResult::new("", numbers.one_of(&["", "found"]));
            result.call_id = numbers.one_of(&ids).map(str::to_owned);
            result.native = native;
            result.into()
        }
        4 => {
            let mut reasoning = Reasoning::new("hm");
            reasoning.native = native;
            reasoning.into()
        }
        5 => {
            let types = ["image/png", "audio/wav", "application/pdf", ""];
            let mut media =
                Media::new(numbers.one_of(&types), MediaSource::Base64("AAAA".to_owned()));
            media.native = native;
            media.into()
        }
        6 => match native {
            Some(native) => native.into(),
            None => ErrorPart::new("overloaded").into(),
        },
        7 => ApprovalRequest::new("r", ToolCall::new("a", "f", "{}"), true).into(),
        _ => Part::text(numbers.one_of(&["", " ", "hi"])),
    }
}

#[test]
fn no_message_however_odd_is_a_panic_and_writing_gives_what_can_be_read() {
    let roles = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
    let mut numbers = Numbers(0x0DDB_1A5E_5BAD_5EED);
    for _ in 0..5_000 {
        let messages: Vec<Message> = (0..numbers.below(6))
            .map(|_| {
                let parts = (0..numbers.below(5)).map(|_| part(&mut numbers)).collect();
                Message::new(numbers.one_of(&roles), parts)
            })
            .collect();
        let body = render_body(&messages);
        assert_eq!(body, render_body(&messages));
        let json = serde_json::to_value(&body).unwrap();
        let text = json.to_string();
        assert!(!text.contains("overloaded"));
        for message in json["messages"].as_array().unwrap() {
            let blocks = message["content"].as_array().into_iter().flatten();
            for block in blocks.filter(|block| block["type"] == "tool_use") {
                assert!(block["input"].is_object(), "{message}");
            }
        }
    }
}

/// A round of calls and all its results, in the words of other providers.
fn foreign_round(numbers: &mut Numbers) -> Vec<Message> {
    let ids = [None, Some(""), Some("a"), Some("a.b"), Some("a_b"), Some("call_1")];
    let ids: Vec<Option<&str>> = (0..=numbers.below(4)).map(|_| numbers.one_of(&ids)).collect();
    let calls = ids.iter().enumerate().map(|(place, id)| {
        let mut call = ToolCall::without_id(format!("f{place}"), "{}");
        call.id = id.map(str::to_owned);
        Part::from(call)
    });
    let mut parts = vec![Reasoning::new("hm").into(), Part::text("")];
    parts.extend(calls);
    parts.push(Part::text(numbers.one_of(&["", "Let me look."])));
    let results = ids.iter().enumerate().map(|(place, id)| {
        let mut result = ToolResult::new("", format!("r{place}"));
        result.call_id = id.map(str::to_owned);
        Message::tool_results([result])
    });
    std::iter::once(Message::new(Role::Assistant, parts)).chain(results).collect()
}

#[test]
fn a_round_recorded_elsewhere_is_one_that_the_service_takes_with_each_result_at_its_call() {
    let mut numbers = Numbers(0xC0FF_EE00_C0FF_EE01);
    for _ in 0..1_000 {
        let mut messages = vec![Message::user("hi")];
        for _ in 0..=numbers.below(3) {
            messages.extend(foreign_round(&mut numbers));
            match numbers.below(4) {
                0 => messages.push(Message::user("go on")),
                1 => messages.push(Message::assistant("Well.")),
                2 => messages.push(Message::system("Be brief.")),
                _ => {}
            }
        }
        let body = serde_json::to_value(render_body(&messages)).unwrap();
        validate(Wire::Anthropic, &body).unwrap_or_else(|error| panic!("{error}: {body:#}"));
        let mut names = std::collections::HashMap::new();
        for block in body["messages"].as_array().unwrap().iter().flat_map(|message| {
            message["content"].as_array().into_iter().flatten().collect::<Vec<_>>()
        }) {
            if block["type"] == "tool_use" {
                names.insert(block["id"].clone(), block["name"].as_str().unwrap()[1..].to_owned());
            } else if block["type"] == "tool_result" {
                let result = block["content"].as_str().unwrap()[1..].to_owned();
                assert_eq!(names.get(&block["tool_use_id"]), Some(&result), "{body:#}");
            }
        }
    }
}
