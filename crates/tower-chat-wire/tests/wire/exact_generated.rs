//! Tests with generated conversations that contain unusual values, on the wires of Bedrock
//! Converse, Cohere and Ollama. Reading and writing them never panics. Conversations that can be
//! read are written unchanged.

use serde_json::{Value, json};
use tower_chat_core::{Message, Messages, Part, Role, Text, ToolCall, ToolResult, format};
use tower_chat_wire::body::BodyWire;

use crate::json_rng::JsonRng;

/// Returns one value of each JSON type. An empty string is not included, because the result of a
/// call with an empty id is not written unchanged.
fn unusual_values() -> Vec<Value> {
    vec![json!(null), json!("text"), json!(7), json!(true), json!([]), json!({"a": 1})]
}

/// Returns the possible values of a field: the usual values three times, so that they are chosen
/// more often, and one value of each type.
fn or_unusual(usual: &[Value]) -> Vec<Value> {
    [usual, usual, usual, &unusual_values()].concat()
}

fn arguments() -> Vec<Value> {
    or_unusual(&[json!({}), json!({"a": [1.0, 1e30]}), json!({"b": {"c": "d"}})])
}

fn names() -> Vec<Value> {
    vec![json!("f"), json!("g"), json!("")]
}

fn ids() -> Vec<Value> {
    vec![json!("one"), json!("two-2"), json!("a b"), json!("")]
}

fn function(rng: &mut JsonRng, arguments: &[Value]) -> Value {
    let mut function =
        rng.sparse_object(9, &[("new", &unusual_values()), ("index", &unusual_values())]);
    function.insert("name".to_owned(), rng.choose(&or_unusual(&names())));
    if rng.below(5) > 0 {
        function.insert("arguments".to_owned(), rng.choose(arguments));
    }
    function.into()
}

fn ollama(rng: &mut JsonRng) -> Value {
    let roles = ["assistant", "user", "system", "tool"];
    let role = roles[rng.below(roles.len())];
    let texts = or_unusual(&[json!("t1"), json!(""), json!("Grüße")]);
    let images = [json!(["/9j/AA", "iVBOR"]), json!([]), json!([1])];
    let mut message = rng.sparse_object(7, &[("new", &unusual_values()), ("images", &images)]);
    if rng.below(6) > 0 {
        message.insert("content".to_owned(), rng.choose(&texts));
    }
    match role {
        "assistant" => {
            message.extend(rng.sparse_object(3, &[("thinking", &texts)]));
            let calls = rng.list(3, |rng| {
                let mut call = rng.sparse_object(3, &[("id", &ids()), ("type", &unusual_values())]);
                call.insert("function".to_owned(), function(rng, &arguments()));
                call.into()
            });
            message.extend(rng.sparse_object(2, &[("tool_calls", &or_unusual(&[calls]))]));
        }
        "tool" => message.extend(
            rng.sparse_object(2, &[("tool_name", &or_unusual(&names())), ("tool_call_id", &ids())]),
        ),
        _ => {}
    }
    message.insert("role".to_owned(), json!(role));
    message.into()
}

fn cohere(rng: &mut JsonRng) -> Value {
    let roles = ["assistant", "user", "system", "tool"];
    let role = roles[rng.below(roles.len())];
    let block = |rng: &mut JsonRng| {
        let kinds = ["text", "thinking", "document", "image_url", "new"];
        let kind = kinds[rng.below(kinds.len())];
        let value = match kind {
            "document" => json!({"data": rng.choose(&unusual_values()), "id": "d1"}),
            "image_url" => {
                let urls = [json!("https://a/b"), json!("data:image/png;base64,AA"), json!(1)];
                json!({"url": rng.choose(&urls)})
            }
            _ => rng.choose(&or_unusual(&[json!("t2"), json!(" ")])),
        };
        let mut block = rng.sparse_object(8, &[("new", &unusual_values())]);
        block.insert("type".to_owned(), json!(kind));
        block.insert(kind.to_owned(), value);
        block.into()
    };
    let blocks = rng.list(4, block);
    let content = or_unusual(&[json!("t3"), json!(""), blocks]);
    let mut message = rng.sparse_object(
        9,
        &[("new", &unusual_values()), ("citations", &[json!([]), json!([{"start": 1}])])],
    );
    if rng.below(6) > 0 {
        message.insert("content".to_owned(), rng.choose(&content));
    }
    match role {
        "assistant" => {
            message.extend(rng.sparse_object(3, &[("tool_plan", &or_unusual(&[json!("plan")]))]));
            let calls = rng.list(3, |rng| {
                let mut call = rng.sparse_object(3, &[("id", &ids()), ("type", &unusual_values())]);
                let texts = or_unusual(&[json!("{}"), json!("{\"a\": 1.0}"), json!("{cut")]);
                call.insert("function".to_owned(), function(rng, &texts));
                call.into()
            });
            message.extend(rng.sparse_object(2, &[("tool_calls", &or_unusual(&[calls]))]));
        }
        "tool" => message.extend(rng.sparse_object(2, &[("tool_call_id", &or_unusual(&ids()))])),
        _ => {}
    }
    message.insert("role".to_owned(), json!(role));
    message.into()
}

fn converse_block(rng: &mut JsonRng) -> Value {
    let formats = [json!("png"), json!("pdf"), json!(1)];
    let sources = [json!({"bytes": "AA"}), json!({"s3Location": {"uri": "s3://a"}})];
    let (kind, value) = match rng.below(7) {
        0 | 1 => ("text", rng.choose(&[json!("t4"), json!("t5"), json!(5)])),
        2 => {
            let mut call = rng.sparse_object(6, &[("type", &unusual_values())]);
            call.insert("name".to_owned(), rng.choose(&or_unusual(&names())));
            call.extend(rng.sparse_object(1, &[("toolUseId", &ids()), ("input", &arguments())]));
            ("toolUse", call.into())
        }
        3 => {
            let inner = |rng: &mut JsonRng| match rng.below(3) {
                0 => json!({"json": rng.choose(&unusual_values())}),
                1 => json!({"text": "t6"}),
                _ => json!({"image": {"format": "png", "source": {"bytes": "AA"}}}),
            };
            let content = or_unusual(&[rng.list(3, inner)]);
            let statuses = [json!("success"), json!("error"), json!(null)];
            let mut result =
                rng.sparse_object(3, &[("status", &statuses), ("type", &unusual_values())]);
            result.extend(rng.sparse_object(1, &[("toolUseId", &ids()), ("content", &content)]));
            ("toolResult", result.into())
        }
        4 => {
            let text = json!({"reasoningText": {"text": "t7", "signature": "s"}});
            let content = or_unusual(&[text, json!({"redactedContent": "AA"})]);
            ("reasoningContent", rng.choose(&content))
        }
        5 => {
            let media = rng.sparse_object(1, &[("format", &formats), ("source", &sources)]);
            (["image", "document", "video"][rng.below(3)], media.into())
        }
        _ => (["cachePoint", "role", "as_read"][rng.below(3)], rng.choose(&unusual_values())),
    };
    let mut block = rng.sparse_object(12, &[("new", &unusual_values())]);
    block.insert(kind.to_owned(), value);
    block.into()
}

fn converse(rng: &mut JsonRng, is_assistant: bool) -> Value {
    let blocks: Value = (0..=rng.below(3)).map(|_| converse_block(rng)).collect();
    let mut message =
        rng.sparse_object(8, &[("new", &unusual_values()), ("newer", &unusual_values())]);
    message.insert("content".to_owned(), blocks);
    message.insert("role".to_owned(), json!(if is_assistant { "assistant" } else { "user" }));
    message.into()
}

fn after_storage(messages: &Messages) -> Messages {
    let stored = messages.iter().map(|it| format::decode(&format::encode(it)).unwrap());
    Messages::from(stored.collect::<Vec<Message>>())
}

/// Reads a body and writes it again. Returns the original and the written body, or `None` if the
/// body cannot be read.
fn written(wire: BodyWire, body: &Value) -> Option<(Value, Value)> {
    let mut request = wire.parse_request_json(&body.to_string()).ok()?;
    let written = wire.render_request_json(&request).unwrap().parse().unwrap();
    request.set_new_messages(after_storage(request.messages()));
    Some((written, wire.render_request_json(&request).unwrap().parse().unwrap()))
}

#[test]
fn messages_that_can_be_read_are_written_as_they_were_read() {
    let mut rng = JsonRng::seeded(0x9E37_79B9_7F4A_7C15);
    for wire in [BodyWire::BedrockConverse, BodyWire::Cohere, BodyWire::Ollama] {
        let (mut read, mut refused) = (0, 0);
        for _ in 0..6_000 {
            let begins = rng.below(2);
            let messages: Vec<Value> = (0..=rng.below(5))
                .map(|at| match wire {
                    BodyWire::Cohere => cohere(&mut rng),
                    BodyWire::Ollama => ollama(&mut rng),
                    _ => converse(&mut rng, at % 2 == begins),
                })
                .collect();
            let mut body = json!({"messages": messages});
            if wire != BodyWire::BedrockConverse {
                body["model"] = json!("m");
            }
            match written(wire, &body) {
                Some((at_once, later)) => {
                    read += 1;
                    assert_eq!(at_once, body, "{wire:?}");
                    assert_eq!(later, body, "{wire:?}, after it was stored");
                }
                None => refused += 1,
            }
        }
        println!("{wire:?}: {read} conversations read, {refused} refused");
        assert!(read > refused, "{wire:?}");
    }
}

#[test]
fn a_changed_message_is_written_with_its_changes() {
    let bodies = [
        (
            BodyWire::BedrockConverse,
            json!({"messages": [{"role": "user", "new": 1, "content": [{"text": "before"}]}]}),
            "/messages/0/content/0/text",
        ),
        (
            BodyWire::Cohere,
            json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "text", "text": "before"}]}]}),
            "/messages/0/content",
        ),
        (
            BodyWire::Ollama,
            json!({"model": "m", "messages": [{"role": "tool", "content": "before", "tool_name": 7}]}),
            "/messages/0/content",
        ),
    ];
    for (wire, body, pointer) in bodies {
        let mut request = wire.parse_request_json(&body.to_string()).unwrap();
        let message = request.messages().get(0).unwrap();
        let mut parts = message.parts.clone();
        for part in &mut parts {
            match part {
                Part::Text(text) => *text = Text::new("after"),
                Part::ToolResult(result) => result.content = vec![Part::text("after")],
                _ => {}
            }
        }
        request.set_new_messages(message.with_parts(parts));
        let written: Value = wire.render_request_json(&request).unwrap().parse().unwrap();
        assert_eq!(written.pointer(pointer), Some(&json!("after")), "{wire:?}: {written}");
    }
}

#[test]
fn numbers_of_any_size_are_written_with_every_digit() {
    let big = r#"{"n":123456789012345678901234567890,"x":1.10,"y":-0.0,"z":1e300}"#;
    for (wire, call) in [
        (
            BodyWire::BedrockConverse,
            format!(
                r#"{{"content":[{{"toolUse":{{"input":{big},"name":"f","toolUseId":"a"}}}}],"role":"assistant"}}"#
            ),
        ),
        (
            BodyWire::Ollama,
            format!(
                r#"{{"content":"","role":"assistant","tool_calls":[{{"function":{{"arguments":{big},"name":"f"}}}}]}}"#
            ),
        ),
        (
            BodyWire::Anthropic,
            format!(
                r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"a","input":{big},"name":"f"}}]}}"#
            ),
        ),
        (
            BodyWire::Gemini,
            format!(
                r#"{{"role":"model","parts":[{{"functionCall":{{"args":{big},"name":"f"}}}}]}}"#
            ),
        ),
    ] {
        let field = if wire == BodyWire::Gemini { "contents" } else { "messages" };
        let body = format!(r#"{{"model":"m","max_tokens":9,"{field}":[{call}]}}"#);
        let request = wire.parse_request_json(&body).unwrap();
        let read = request.messages().get(0).unwrap();
        assert_eq!(read.calls().next().unwrap().arguments, big, "{wire:?}");
        let written = wire.render_request_json(&request).unwrap();
        assert!(written.get().contains(big), "{wire:?}: {}", written.get());
    }
}

#[test]
fn bedrock_gets_messages_of_one_role_joined_and_no_blank_texts() {
    let body = json!({"messages": [
        {"role": "user", "odd": true, "content": [{"text": "q1"}]},
        {"role": "assistant", "content": [{"text": " "}, {"text": "a1"}]},
    ]});
    let mut request = BodyWire::BedrockConverse.parse_request_json(&body.to_string()).unwrap();
    let mut messages: Vec<Message> = request.messages().iter().map(|it| (**it).clone()).collect();
    messages.insert(1, Message::user("q2"));
    messages.push(Message::new(Role::Tool, vec![ToolResult::new("x y", "r1").into()]));
    messages.push(Message::user("q3"));
    messages.push(Message::tool_calls([ToolCall::new("x y", "f", "")]));
    request.set_new_messages(messages);
    let written = BodyWire::BedrockConverse.render_request_json(&request).unwrap();
    let written: Value = written.parse().unwrap();
    let result = json!({"toolResult": {"toolUseId": "x_y", "content": [{"text": "r1"}]}});
    let call = json!({"toolUse": {"toolUseId": "x_y", "name": "f", "input": {}}});
    let expected = json!([
        {"role": "user", "odd": true, "content": [{"text": "q1"}, {"text": "q2"}]},
        {"role": "assistant", "content": [{"text": "a1"}]},
        {"role": "user", "content": [result, {"text": "q3"}]},
        {"role": "assistant", "content": [call]},
    ]);
    assert_eq!(written["messages"], expected);
}

#[test]
fn bodies_of_unexpected_shapes_cause_no_panic_and_no_stack_overflow() {
    let deep = "[".repeat(100_000) + &"]".repeat(100_000);
    let many: String = (0..20_000)
        .map(|at| format!(r#"{{"id":"{at}","function":{{"name":"f","arguments":{{}}}}}},"#))
        .collect();
    for wire in [BodyWire::BedrockConverse, BodyWire::Cohere, BodyWire::Ollama] {
        for body in [
            "",
            "null",
            "[]",
            "{}",
            r#"{"messages":7}"#,
            r#"{"messages":[7]}"#,
            r#"{"messages":[{"role":"nobody"}]}"#,
            r#"{"messages":[{}]}"#,
        ] {
            assert!(wire.parse_request_json(body).is_err(), "{wire:?}: {body}");
        }
        for field in ["content", "tool_calls", "new"] {
            let body =
                format!(r#"{{"model":"m","messages":[{{"role":"assistant","{field}":{deep}}}]}}"#);
            if let Ok(request) = wire.parse_request_json(&body) {
                wire.render_request_json(&request).unwrap();
            }
        }
        let results: String = (0..20_000)
            .map(|at| format!(r#"{{"role":"tool","content":"r","tool_call_id":"x{at}"}},"#))
            .collect();
        let body = format!(
            r#"{{"model":"m","messages":[{{"role":"assistant","content":"","tool_calls":[{}]}},{}]}}"#,
            many.trim_end_matches(','),
            results.trim_end_matches(','),
        );
        if let Ok(request) = wire.parse_request_json(&body) {
            wire.render_request_json(&request).unwrap();
        }
    }
}
