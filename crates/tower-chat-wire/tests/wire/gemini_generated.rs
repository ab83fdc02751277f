//! Tests with generated conversations that contain unusual values. Reading and writing them never
//! panics. Conversations that Gemini accepts are written unchanged.

use serde_json::{Value, json};
use tower_chat_core::{
    Media, MediaSource, Message, Native, Part, Reasoning, Role, ToolCall, ToolResult, format,
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::gemini::{Unsigned, parse_answer, parse_contents, render_messages};

use crate::json_rng::{JsonRng, unusual_values};

fn part(rng: &mut JsonRng, is_model: bool) -> Value {
    let names = [json!("f"), json!("g"), json!("")];
    let objects = [json!({}), json!({"a": 1}), json!({"error": "e"}), json!({"output": "o"})];
    let responses =
        [objects.to_vec(), unusual_values(), vec![json!({"result": 1}), json!({"result": "r"})]]
            .concat();
    let list = [json!([{"inlineData": {"data": "AA", "mimeType": "a/b"}}]), json!([1]), json!([])];
    let types = [json!("image/png"), json!("application/octet-stream"), json!(null)];
    let uris =
        [json!("gs://a/b"), json!("https://generativelanguage.googleapis.com/a"), json!("x")];
    let inner = match rng.below(3) {
        0 => {
            let mut call = rng.sparse_object(
                2,
                &[
                    ("id", &unusual_values()),
                    ("args", &unusual_values()),
                    ("new", &unusual_values()),
                ],
            );
            call.insert("name".to_owned(), rng.choose(&names));
            call
        }
        1 => {
            let mut result = rng.sparse_object(
                2,
                &[("id", &unusual_values()), ("response", &responses), ("parts", &list)],
            );
            result.insert("name".to_owned(), rng.choose(&names));
            result
        }
        _ => rng.sparse_object(
            2,
            &[
                ("data", &unusual_values()),
                ("mimeType", &types),
                ("mime_type", &types),
                ("fileUri", &uris),
                ("file_uri", &uris),
                ("displayName", &unusual_values()),
            ],
        ),
    };
    let mut part = rng.sparse_object(
        5,
        &[
            ("thought", &[json!(true), json!(false), json!("true")]),
            ("thoughtSignature", &unusual_values()),
            ("thought_signature", &unusual_values()),
            ("new", &unusual_values()),
            ("parts", &[json!([]), json!(1)]),
            ("text", &[json!(null)]),
        ],
    );
    let calls = ["functionCall", "function_call", "text"];
    let results = ["functionResponse", "function_response", "text"];
    let kinds = if is_model { calls } else { results };
    let media = ["inlineData", "inline_data", "fileData", "file_data", "executableCode"];
    let kind = if rng.below(2) == 0 { kinds[rng.below(3)] } else { media[rng.below(5)] };
    let value = if kind == "text" { rng.choose(&unusual_values()) } else { inner.into() };
    part.insert(kind.to_owned(), value);
    part.into()
}

fn content(rng: &mut JsonRng) -> Value {
    let is_model = rng.below(2) == 0;
    let parts: Vec<Value> = (0..=rng.below(3)).map(|_| part(rng, is_model)).collect();
    let mut content = rng.sparse_object(6, &[("new", &unusual_values())]);
    content.insert("parts".to_owned(), parts.into());
    let users = [json!("user"), json!("function"), json!(null)];
    let role = if is_model { json!("model") } else { rng.choose(&users) };
    content.insert("role".to_owned(), role);
    content.into()
}

fn written(messages: &[Message]) -> Value {
    serde_json::to_value(render_messages(messages, Unsigned::AsRecorded).contents).unwrap()
}

#[test]
fn a_generated_content_whose_results_are_first_is_written_as_it_was_read() {
    let mut rng = JsonRng::seeded(0x9E37_79B9_7F4A_7C15);
    let (mut exact, mut reordered) = (0, 0);
    for _ in 0..4_000 {
        let content = content(&mut rng);
        let contents = json!([{"role": "user", "parts": [{"text": "go"}]}, content]);
        let messages = parse_contents(&contents.to_string()).unwrap();
        let stored: Vec<Message> = messages
            .iter()
            .map(|message| format::decode(&format::encode(message)).unwrap())
            .collect();
        assert_eq!(written(&stored), written(&messages));
        if results_come_first(&contents[1]) {
            assert_eq!(written(&messages), contents, "{messages:#?}");
            exact += 1;
        } else {
            let count = |contents: &Value| -> usize {
                let contents = contents.as_array().unwrap().iter();
                contents.map(|content| content["parts"].as_array().unwrap().len()).sum()
            };
            assert_eq!(count(&written(&messages)), count(&contents));
            reordered += 1;
        }
    }
    assert!(exact > 2_000 && reordered > 500, "{exact}, {reordered}");
}

/// Returns whether the writer does not change the order of the parts. The writer moves results of
/// the user before all other parts of the user, including those of an earlier content.
fn results_come_first(content: &Value) -> bool {
    if content["role"] == "model" {
        return true;
    }
    let parts = content["parts"].as_array().unwrap();
    !parts
        .iter()
        .any(|part| part["functionResponse"].is_object() || part["function_response"].is_object())
}

#[test]
fn a_generated_conversation_that_gemini_accepts_is_written_as_it_was_read() {
    let mut rng = JsonRng::seeded(0x2545_F491_4F6C_DD1D);
    let mut accepted = 0;
    for _ in 0..6_000 {
        let count = 1 + rng.below(4);
        let contents: Value = (0..count).map(|_| content(&mut rng)).collect();
        let body = json!({"contents": contents});
        let messages = parse_contents(&contents.to_string()).unwrap();
        let again = written(&messages);
        if validate(Wire::Gemini, &body).is_ok() {
            accepted += 1;
            assert_eq!(again, contents, "{messages:#?}");
        }
    }
    println!("{accepted} accepted");
    assert!(accepted > 1_000, "{accepted}");
}

#[test]
fn generated_messages_are_written_without_a_panic_and_equally_each_time() {
    let mut rng = JsonRng::seeded(0xD1B5_4A32_D192_ED03);
    for _ in 0..5_000 {
        let messages: Vec<Message> = (0..rng.below(6)).map(|_| message(&mut rng)).collect();
        let first = render_messages(&messages, Unsigned::StandIn);
        assert_eq!(first, render_messages(&messages, Unsigned::StandIn));
        for content in &first.contents {
            let content: Value = content.parse().unwrap();
            let parts = &content["parts"];
            let is_list = parts.as_array().is_some_and(|parts| !parts.is_empty());
            assert!(is_list || parts.is_object(), "{content}");
        }
        let json = serde_json::to_string(&first.contents).unwrap();
        parse_contents(&json).unwrap();
    }
}

#[test]
fn a_generated_answer_is_read_or_refused_without_a_panic() {
    let mut rng = JsonRng::seeded(0x1234_5678_9ABC_DEF1);
    let mut read = 0;
    for _ in 0..3_000 {
        let content = [content(&mut rng), rng.choose(&unusual_values())];
        let candidate = [rng.sparse_object(1, &[("content", &content)]).into(), json!(1)];
        let candidates = [json!([candidate[0]]), json!(candidate), json!(null), json!("x")];
        let answer = Value::Object(rng.sparse_object(1, &[("candidates", &candidates)]));
        read += usize::from(parse_answer(&answer.to_string()).is_ok());
    }
    assert!(read > 500, "{read}");
}

fn message(rng: &mut JsonRng) -> Message {
    let roles = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
    let parts = (0..rng.below(5)).map(|_| message_part(rng)).collect();
    Message::new(roles[rng.below(roles.len())], parts)
}

fn message_part(rng: &mut JsonRng) -> Part {
    let texts = ["", "a", "{}", "{\"a\":", "null", "[1]", "{\"error\":1}"];
    let text = texts[rng.below(texts.len())];
    let natives = [
        json!(null),
        json!(1),
        json!({}),
        json!({"parts": null, "role": "model"}),
        json!({"parts": {}}),
        json!({"functionCall": 1}),
        json!({"functionResponse": {"response": null}}),
        json!({"functionResponse": {"parts": null, "response": {"output": 1, "error": 1}}}),
        json!({"inlineData": {"mimeType": null}}),
        json!({"file_data": []}),
        json!({"text": 1}),
    ];
    let wires = ["gemini", "gemini", "gemini", "anthropic"];
    let item = rng.choose(&natives).to_string().parse().unwrap();
    let native = Native::new(wires[rng.below(4)], item);
    let some_native = (rng.below(2) == 0).then(|| native.clone());
    match rng.below(7) {
        0 => Part::text(text),
        1 => {
            let mut reasoning = Reasoning::new(text);
            reasoning.native = some_native;
            reasoning.into()
        }
        2 | 3 => {
            let mut call = ToolCall::new(texts[rng.below(2)], "f", text);
            call.provider_executed = rng.below(4) == 0;
            call.native = some_native;
            call.into()
        }
        4 => {
            let mut result = ToolResult::new(texts[rng.below(2)], text);
            result.is_error = rng.below(2) == 0;
            result.native = some_native;
            if rng.below(3) == 0 {
                result.content = vec![native.into()];
            }
            result.into()
        }
        5 => {
            let sources = [MediaSource::Url, MediaSource::Base64, MediaSource::File];
            let mut media = Media::new(text, sources[rng.below(3)](text.to_owned()));
            media.native = some_native;
            media.into()
        }
        _ => native.into(),
    }
}
