//! Tests with generated messages that contain unusual values. Messages that can be read are written
//! unchanged.

use serde_json::{Value, json};
use tower_chat_core::format;
use tower_chat_wire::openai_chat::{Audience, parse_message, render_message};

use crate::json_rng::{JsonRng, unusual_values};

fn content_part(rng: &mut JsonRng) -> Value {
    let url = [json!("data:image/png;base64,AA"), json!("https://a.example/b"), json!("")];
    let data = [json!("AAAA"), json!("data:a/b;base64,AA"), json!(null)];
    let inner = rng.object(
        3,
        &[
            ("url", &url),
            ("data", &data),
            ("file_data", &data),
            ("file_id", &unusual_values()),
            ("format", &[json!("wav"), json!("mp3"), json!("mpeg"), json!(1)]),
            ("filename", &[json!("file"), json!("a.pdf")]),
            ("detail", &unusual_values()),
        ],
    );
    let kinds = ["text", "image_url", "input_audio", "file", "refusal"].map(Value::from);
    let inner = [inner, json!("data:image/png;base64,AA"), json!(null)];
    rng.object(
        3,
        &[
            ("type", &kinds),
            ("text", &unusual_values()),
            ("image_url", &inner),
            ("input_audio", &inner),
            ("file", &inner),
            ("cache_control", &unusual_values()),
        ],
    )
}

fn call(rng: &mut JsonRng) -> Value {
    let arguments =
        [json!("{}"), json!("{'cut"), json!(""), json!("null"), json!(null), json!({"a": [1.5]})];
    let names = [json!("f"), json!("")];
    let function = rng.object(
        3,
        &[
            ("name", &names),
            ("name", &names),
            ("arguments", &arguments),
            ("input", &arguments),
            ("strict", &unusual_values()),
        ],
    );
    let kinds = [json!("function"), json!("custom"), json!(null)];
    let function = [function];
    rng.object(
        3,
        &[
            ("id", &unusual_values()),
            ("type", &kinds),
            ("function", &function),
            ("custom", &function),
            ("function_call", &unusual_values()),
            ("index", &unusual_values()),
        ],
    )
}

fn message(rng: &mut JsonRng) -> Value {
    let mut content = unusual_values();
    content.extend([rng.list(4, content_part), rng.list(4, content_part)]);
    let calls = [json!(null), rng.list(4, call), rng.list(4, call)];
    let legacy =
        [json!(null), json!({"name": "f"}), json!({"name": "f", "arguments": "{", "x": 1})];
    let mut message = rng.object(
        3,
        &[
            ("content", &content),
            ("name", &unusual_values()),
            ("tool_call_id", &unusual_values()),
            ("tool_calls", &calls),
            ("function_call", &legacy),
            ("reasoning", &unusual_values()),
            ("reasoning_content", &unusual_values()),
            ("x_error", &unusual_values()),
            ("type", &unusual_values()),
            ("wire", &unusual_values()),
        ],
    );
    let roles = ["system", "developer", "user", "assistant", "tool", "function"];
    message["role"] = roles[rng.below(roles.len())].into();
    message
}

#[test]
fn every_generated_message_that_can_be_read_is_written_as_it_was_read() {
    let mut rng = JsonRng::seeded(0x9E37_79B9_7F4A_7C15);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..6_000 {
        let json = message(&mut rng);
        let Ok(message) = parse_message(&json.to_string()) else {
            refused += 1;
            continue;
        };
        read += 1;
        for message in [format::decode(&format::encode(&message)).unwrap(), message] {
            let written = render_message(&message, Audience::Transcript);
            let written: Vec<Value> = written.iter().map(|json| json.parse().unwrap()).collect();
            assert_eq!(written, std::slice::from_ref(&json), "{message:?}");
        }
    }
    assert!(read > 1_000 && refused > 300, "read {read}, refused {refused}");
}
