//! Tests with generated conversations that contain unusual values. Reading and writing them never
//! panics. Conversations that the service accepts are written unchanged.

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role,
    ToolCall, ToolResult, format,
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::anthropic::{parse_body, render_body};

use crate::json_rng::JsonRng;

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

fn source(rng: &mut JsonRng) -> Value {
    let kinds = ["base64", "url", "file", "text"].map(Value::from);
    let mut source = rng.object(
        6,
        &[
            ("media_type", &[json!("image/png"), json!("application/pdf"), json!("a"), json!(1)]),
            ("data", &[json!("AAAA"), json!("")]),
            ("url", &[json!("https://a.example/b"), json!(null)]),
            ("file_id", &[json!("file_1"), json!(3)]),
            ("more", &[json!(true)]),
        ],
    );
    source["type"] = rng.choose(&kinds);
    source
}

fn block(rng: &mut JsonRng) -> Value {
    random_block(rng, true)
}

fn inner_block(rng: &mut JsonRng) -> Value {
    random_block(rng, false)
}

fn random_block(rng: &mut JsonRng, is_outer: bool) -> Value {
    let ids = ["a", "b", "c"].map(Value::from);
    let kind = rng.choose(&KINDS);
    let texts = [json!("hi"), json!("bye"), json!(" "), json!("")];
    let source = [source(rng), json!(null)];
    let mut contents = vec![json!("found"), json!(""), json!(null), json!({"type": "x", "y": 1})];
    if is_outer {
        contents.push(rng.list(4, inner_block));
        contents.push(rng.list(4, inner_block));
    }
    let mut block = rng.object(
        6,
        &[
            ("text", &texts),
            ("thinking", &texts),
            ("data", &[json!("encrypted")]),
            ("signature", &[json!("signed"), json!("signed"), json!("")]),
            ("id", &ids),
            ("tool_use_id", &ids),
            ("source", &source),
            ("content", &contents),
            ("is_error", &[json!(true), json!(false), json!(null), json!("no")]),
        ],
    );
    block["type"] = kind.into();
    block["name"] = "f".into();
    block["input"] = rng.choose(&[json!({}), json!({"a": [1.5, null]})]);
    if rng.below(4) == 0 {
        block["cache_control"] = json!({"type": "ephemeral"});
    }
    block
}

fn message(rng: &mut JsonRng) -> Value {
    let contents = [
        json!("hi"),
        json!(""),
        rng.list(4, block),
        rng.list(4, block),
        rng.list(2, block),
        json!([{"type": "tool_use", "id": "a", "name": "f", "input": {}}]),
        json!([{"type": "tool_result", "tool_use_id": "a"}]),
    ];
    let mut message = json!({"content": rng.choose(&contents)});
    message["role"] = rng.choose(&["user", "assistant", "user", "assistant", "system"]).into();
    if rng.below(8) == 0 {
        message["more"] = rng.choose(&[json!(null), json!("more"), json!({})]);
    }
    message
}

fn body(rng: &mut JsonRng) -> Value {
    let systems = [json!("Be brief."), json!(""), json!(null), rng.list(3, block)];
    let mut body = json!({"messages": rng.list(5, message)});
    if rng.below(2) == 0 {
        body["system"] = rng.choose(&systems);
    }
    body
}

#[test]
fn every_generated_body_that_the_service_accepts_is_written_as_it_was_read() {
    let mut rng = JsonRng::seeded(0x9E37_79B9_7F4A_7C15);
    let (mut taken, mut refused) = (0, 0);
    for _ in 0..5_000 {
        let json = body(&mut rng);
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

fn part(rng: &mut JsonRng) -> Part {
    let ids = [None, Some(""), Some("a"), Some("a.b"), Some("a:b"), Some("a_b"), Some("é")];
    let arguments = ["", "null", "{}", "{'cut", "[1]", r#"{"a":"\ud800"}"#, r#" {"a": 1e2} "#];
    let wires = ["anthropic", "openai-chat"];
    let items = ["{}", "1", r#"{"type":"x"}"#, r#"{"role":"x"}"#, r#"{"type":"thinking"}"#];
    let native = Native::new(rng.choose(&wires), rng.choose(&items).parse().unwrap());
    let native = (rng.below(2) == 0).then_some(native);
    match rng.below(9) {
        0 | 1 => {
            let mut call = ToolCall::without_id("f", rng.choose(&arguments));
            call.id = rng.choose(&ids).map(str::to_owned);
            call.provider_executed = rng.below(4) == 0;
            call.native = native;
            call.into()
        }
        2 | 3 => {
            let mut result = ToolResult::new("", rng.choose(&["", "found"]));
            result.call_id = rng.choose(&ids).map(str::to_owned);
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
            let mut media = Media::new(rng.choose(&types), MediaSource::Base64("AAAA".to_owned()));
            media.native = native;
            media.into()
        }
        6 => match native {
            Some(native) => native.into(),
            None => ErrorPart::new("overloaded").into(),
        },
        7 => ApprovalRequest::new("r", ToolCall::new("a", "f", "{}"), true).into(),
        _ => Part::text(rng.choose(&["", " ", "hi"])),
    }
}

#[test]
fn generated_messages_are_written_without_a_panic_and_can_be_read_again() {
    let roles = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
    let mut rng = JsonRng::seeded(0x0DDB_1A5E_5BAD_5EED);
    for _ in 0..5_000 {
        let messages: Vec<Message> = (0..rng.below(6))
            .map(|_| {
                let parts = (0..rng.below(5)).map(|_| part(&mut rng)).collect();
                Message::new(rng.choose(&roles), parts)
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

/// Returns an answer with calls, and a message for the result of each call, in the form that other
/// providers send.
fn foreign_round(rng: &mut JsonRng) -> Vec<Message> {
    let ids = [None, Some(""), Some("a"), Some("a.b"), Some("a_b"), Some("call_1")];
    let ids: Vec<Option<&str>> = (0..=rng.below(4)).map(|_| rng.choose(&ids)).collect();
    let calls = ids.iter().enumerate().map(|(position, id)| {
        let mut call = ToolCall::without_id(format!("f{position}"), "{}");
        call.id = id.map(str::to_owned);
        Part::from(call)
    });
    let mut parts = vec![Reasoning::new("hm").into(), Part::text("")];
    parts.extend(calls);
    parts.push(Part::text(rng.choose(&["", "Let me look."])));
    let results = ids.iter().enumerate().map(|(position, id)| {
        let mut result = ToolResult::new("", format!("r{position}"));
        result.call_id = id.map(str::to_owned);
        Message::tool_results([result])
    });
    std::iter::once(Message::new(Role::Assistant, parts)).chain(results).collect()
}

#[test]
fn rounds_of_other_providers_are_written_in_a_valid_form_and_results_name_their_calls() {
    let mut rng = JsonRng::seeded(0xC0FF_EE00_C0FF_EE01);
    for _ in 0..1_000 {
        let mut messages = vec![Message::user("hi")];
        for _ in 0..=rng.below(3) {
            messages.extend(foreign_round(&mut rng));
            match rng.below(4) {
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
