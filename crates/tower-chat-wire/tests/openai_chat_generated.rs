//! Messages of every odd shape: whatever can be read is written as it was.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is a failing test")]

use serde_json::{Map, Value, json};
use tower_chat_core::format;
use tower_chat_wire::openai_chat::{Audience, parse_message, render_message};

/// A generator of the same numbers at every run (xorshift, by Marsaglia).
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    fn one_of(&mut self, values: &[Value]) -> Value {
        values[self.below(values.len())].clone()
    }

    fn object(&mut self, fields: &[(&str, &[Value])]) -> Value {
        let mut object = Map::new();
        for (name, values) in fields {
            if self.below(3) > 0 {
                object.insert((*name).to_owned(), self.one_of(values));
            }
        }
        Value::Object(object)
    }

    fn list(&mut self, item: fn(&mut Self) -> Value) -> Value {
        (0..self.below(4)).map(|_| item(self)).collect()
    }
}

fn odd() -> Vec<Value> {
    vec![json!(null), json!(""), json!("text"), json!(7), json!(true), json!([]), json!({"a": 1})]
}

fn content_part(rng: &mut Rng) -> Value {
    let url = [json!("data:image/png;base64,AA"), json!("https://a.example/b"), json!("")];
    let data = [json!("AAAA"), json!("data:a/b;base64,AA"), json!(null)];
    let inner = rng.object(&[
        ("url", &url),
        ("data", &data),
        ("file_data", &data),
        ("file_id", &odd()),
        ("format", &[json!("wav"), json!("mp3"), json!("mpeg"), json!(1)]),
        ("filename", &[json!("file"), json!("a.pdf")]),
        ("detail", &odd()),
    ]);
    let kinds = ["text", "image_url", "input_audio", "file", "refusal"].map(Value::from);
    let inner = [inner, json!("data:image/png;base64,AA"), json!(null)];
    rng.object(&[
        ("type", &kinds),
        ("text", &odd()),
        ("image_url", &inner),
        ("input_audio", &inner),
        ("file", &inner),
        ("cache_control", &odd()),
    ])
}

fn call(rng: &mut Rng) -> Value {
    let arguments =
        [json!("{}"), json!("{'cut"), json!(""), json!("null"), json!(null), json!({"a": [1.5]})];
    let names = [json!("f"), json!("")];
    let function = rng.object(&[
        ("name", &names),
        ("name", &names),
        ("arguments", &arguments),
        ("input", &arguments),
        ("strict", &odd()),
    ]);
    let kinds = [json!("function"), json!("custom"), json!(null)];
    let function = [function];
    rng.object(&[
        ("id", &odd()),
        ("type", &kinds),
        ("function", &function),
        ("custom", &function),
        ("function_call", &odd()),
        ("index", &odd()),
    ])
}

fn message(rng: &mut Rng) -> Value {
    let mut content = odd();
    content.extend([rng.list(content_part), rng.list(content_part)]);
    let calls = [json!(null), rng.list(call), rng.list(call)];
    let legacy =
        [json!(null), json!({"name": "f"}), json!({"name": "f", "arguments": "{", "x": 1})];
    let mut message = rng.object(&[
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
    ]);
    let roles = ["system", "developer", "user", "assistant", "tool", "function"];
    message["role"] = roles[rng.below(roles.len())].into();
    message
}

#[test]
fn whatever_can_be_read_is_written_as_it_was() {
    let mut rng = Rng(0x9E37_79B9_7F4A_7C15);
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
