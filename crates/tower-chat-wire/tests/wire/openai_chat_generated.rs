//! Tests with generated messages that contain unusual values. Messages that can be read are written
//! unchanged.

use serde_json::{Value, json};
use tower_chat_core::format;
use tower_chat_wire::openai_chat::{Audience, parse_message, render_message};

use crate::odd::{Odd, odd};

fn content_part(rng: &mut Odd) -> Value {
    let url = [json!("data:image/png;base64,AA"), json!("https://a.example/b"), json!("")];
    let data = [json!("AAAA"), json!("data:a/b;base64,AA"), json!(null)];
    let inner = rng.object(
        3,
        &[
            ("url", &url),
            ("data", &data),
            ("file_data", &data),
            ("file_id", &odd()),
            ("format", &[json!("wav"), json!("mp3"), json!("mpeg"), json!(1)]),
            ("filename", &[json!("file"), json!("a.pdf")]),
            ("detail", &odd()),
        ],
    );
    let kinds = ["text", "image_url", "input_audio", "file", "refusal"].map(Value::from);
    let inner = [inner, json!("data:image/png;base64,AA"), json!(null)];
    rng.object(
        3,
        &[
            ("type", &kinds),
            ("text", &odd()),
            ("image_url", &inner),
            ("input_audio", &inner),
            ("file", &inner),
            ("cache_control", &odd()),
        ],
    )
}

fn call(rng: &mut Odd) -> Value {
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
            ("strict", &odd()),
        ],
    );
    let kinds = [json!("function"), json!("custom"), json!(null)];
    let function = [function];
    rng.object(
        3,
        &[
            ("id", &odd()),
            ("type", &kinds),
            ("function", &function),
            ("custom", &function),
            ("function_call", &odd()),
            ("index", &odd()),
        ],
    )
}

fn message(rng: &mut Odd) -> Value {
    let mut content = odd();
    content.extend([rng.list(4, content_part), rng.list(4, content_part)]);
    let calls = [json!(null), rng.list(4, call), rng.list(4, call)];
    let legacy =
        [json!(null), json!({"name": "f"}), json!({"name": "f", "arguments": "{", "x": 1})];
    let mut message = rng.object(
        3,
        &[
            ("content", &content),
            ("name", &odd()),
            ("tool_call_id", &odd()),
            ("tool_calls", &calls),
            ("function_call", &legacy),
            ("reasoning", &odd()),
            ("reasoning_content", &odd()),
            ("x_error", &odd()),
            ("type", &odd()),
            ("wire", &odd()),
        ],
    );
    let roles = ["system", "developer", "user", "assistant", "tool", "function"];
    message["role"] = roles[rng.below(roles.len())].into();
    message
}

#[test]
fn every_generated_message_that_can_be_read_is_written_as_it_was_read() {
    let mut rng = Odd::of(0x9E37_79B9_7F4A_7C15);
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
