//! Tests with generated items and messages that contain unusual values.

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role,
    ToolCall, ToolResult, format,
};
use tower_chat_testkit::validate::{Rule, Wire, validate};
use tower_chat_wire::openai_responses::{WIRE, parse_input, render_input};

use crate::json_rng::{JsonRng, unusual_values};

fn content_part(rng: &mut JsonRng) -> Value {
    let kinds =
        ["input_text", "output_text", "input_image", "input_file", "input_audio", "refusal"];
    let location = [json!("data:image/png;base64,AA"), json!("https://a.example/b"), json!(null)];
    let audio =
        [json!({"data": "AA", "format": "mp3"}), json!({"data": "AA", "format": "x", "b": 1})];
    rng.object(
        4,
        &[
            ("type", &kinds.map(Value::from)),
            ("text", &unusual_values()),
            ("image_url", &location),
            ("file_data", &location),
            ("file_id", &unusual_values()),
            ("input_audio", &audio),
            ("annotations", &unusual_values()),
        ],
    )
}

fn content(rng: &mut JsonRng) -> Value {
    if rng.below(2) == 0 {
        return rng.choose(&[json!("text"), json!(""), json!([]), json!(["bare", 1, null])]);
    }
    (0..rng.below(4)).map(|_| content_part(rng)).collect()
}

fn message(rng: &mut JsonRng, role: &str) -> Value {
    let mut item = rng.object(
        4,
        &[
            ("type", &[json!("message")]),
            ("id", &unusual_values()),
            ("status", &unusual_values()),
            ("phase", &[json!("commentary")]),
        ],
    );
    if rng.below(2) == 0 {
        item = json!({});
    }
    item["role"] = role.into();
    item["content"] = content(rng);
    item
}

const OUTPUTS: [(&str, &str); 4] = [
    ("function_call", "function_call_output"),
    ("custom_tool_call", "custom_tool_call_output"),
    ("computer_call", "computer_call_output"),
    ("shell_call", "shell_call_output"),
];

/// Returns a valid list of items with unusual values: another item of the model follows reasoning,
/// every call has an output, and all ids are distinct.
fn items(rng: &mut JsonRng) -> Vec<Value> {
    let mut items = Vec::new();
    for turn in 0..1 + rng.below(4) {
        let role = rng.choose(&["user", "system", "developer", "assistant"]);
        items.push(message(rng, role));
        for _ in 0..rng.below(3) {
            items.push(json!({"type": "reasoning", "summary": rng.choose(&[json!([]),
                json!([{"type": "summary_text", "text": "hm"}, {"type": "summary_text", "text": "ah"}])]),
                "encrypted_content": "gAAA", "content": rng.choose(&unusual_values())}));
        }
        let reply = message(rng, "assistant");
        items.push(reply);
        let mut outputs = Vec::new();
        for index in 0..rng.below(4) {
            if rng.below(3) == 0 {
                let kind = ["web_search_call", "mcp_call", "image_generation_call", "new_call"];
                let (kind, x) = (rng.choose(&kind), rng.choose(&unusual_values()));
                items.push(
                    json!({"type": kind, "id": "ws", "name": "n", "action": x, "arguments": x}),
                );
                continue;
            }
            let (call, output) = rng.choose(&OUTPUTS);
            let mut item = rng.object(
                4,
                &[
                    ("arguments", &unusual_values()),
                    ("input", &unusual_values()),
                    ("action", &unusual_values()),
                    ("id", &unusual_values()),
                    ("status", &unusual_values()),
                ],
            );
            let id = format!("c{turn}.{index}");
            item["type"] = call.into();
            item["call_id"] = json!(id);
            item["name"] = rng.choose(&["f", ""]).into();
            items.push(item);
            let content = content(rng);
            let answer = rng.choose(&[content, json!({"type": "x"}), json!(null), json!(5)]);
            let mut item =
                rng.object(4, &[("status", &unusual_values()), ("id", &unusual_values())]);
            item["type"] = output.into();
            item["call_id"] = json!(id);
            item["output"] = answer;
            outputs.push(item);
        }
        items.extend(outputs);
    }
    items
}

fn written(messages: &[Message]) -> Vec<Value> {
    render_input(messages).iter().map(|item| item.parse().unwrap()).collect()
}

#[test]
fn generated_items_are_written_as_they_were_read() {
    let mut rng = JsonRng::seeded(0x9E37_79B9_7F4A_7C15);
    for _ in 0..1_000 {
        let items = items(&mut rng);
        let messages = parse_input(&json!(items).to_string()).unwrap();
        assert_eq!(written(&messages), items, "{messages:#?}");
        let stored: Vec<Message> = messages
            .iter()
            .map(|message| format::decode(&format::encode(message)).unwrap())
            .collect();
        assert_eq!(written(&stored), items);
    }
}

fn unusual_text(rng: &mut JsonRng) -> String {
    rng.choose(&["", "text", "{}", "{\"cut", "null", "[1]", "ä\u{0}\u{FFFD}"]).to_owned()
}

fn unusual_native(rng: &mut JsonRng) -> Native {
    let items = [
        r#"{"role":"user"}"#,
        r#"{"role":"assistant","content":null,"type":"message"}"#,
        r#"{"content":[1,{"type":"refusal"}]}"#,
        r#"{"content":"x"}"#,
        r#"{"type":"item_reference","id":"x"}"#,
        r#"{"type":"function_call","arguments":null}"#,
        r#"{"type":"computer_call_output"}"#,
        r#"{"type":"web_search_call","action":null}"#,
        r#"{"type":"reasoning","summary":5}"#,
        r#"{"type":"input_image","image_url":1}"#,
        r#"{"type":"input_audio","input_audio":null}"#,
        r#"{"output":{"a":1}}"#,
        "[]",
        "null",
    ];
    let wire = rng.choose(&[WIRE, WIRE, "anthropic"]);
    Native::new(wire, rng.choose(&items).parse().unwrap())
}

fn unusual_call(rng: &mut JsonRng) -> ToolCall {
    let mut call = ToolCall::without_id(unusual_text(rng), unusual_text(rng));
    call.id =
        rng.choose(&[None, Some(""), Some("a"), Some("a_0"), Some("call_0")]).map(String::from);
    call.provider_executed = rng.below(4) == 0;
    call.native = (rng.below(2) == 0).then(|| unusual_native(rng));
    call
}

fn unusual_part(rng: &mut JsonRng) -> Part {
    let native = (rng.below(3) == 0).then(|| unusual_native(rng));
    match rng.below(9) {
        0 | 1 => {
            let mut text = tower_chat_core::Text::new(unusual_text(rng));
            text.native = native;
            text.into()
        }
        2 => {
            let mut reasoning = Reasoning::new(unusual_text(rng));
            reasoning.native = native;
            reasoning.into()
        }
        3 => unusual_call(rng).into(),
        4 => {
            let mut result = ToolResult::new(rng.choose(&["", "a", "a_0", "b"]), "");
            result.native = native;
            result.content = (0..rng.below(3)).map(|_| unusual_part(rng)).collect();
            result.into()
        }
        5 => {
            let source = match rng.below(3) {
                0 => MediaSource::Url(unusual_text(rng)),
                1 => MediaSource::Base64(unusual_text(rng)),
                _ => MediaSource::File(unusual_text(rng)),
            };
            let kinds = ["image/png", "audio/wav", "audio/x", "", "text/plain"];
            let mut media = Media::new(rng.choose(&kinds), source);
            media.native = native;
            media.into()
        }
        6 => ErrorPart::new("overloaded").into(),
        7 => ApprovalRequest::new("approval", unusual_call(rng), true).into(),
        _ => unusual_native(rng).into(),
    }
}

#[test]
fn generated_messages_are_written_without_a_panic_and_with_calls_and_outputs_in_order() {
    let mut rng = JsonRng::seeded(0xD1B5_4A32_D192_ED03);
    let roles = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
    for _ in 0..5_000 {
        let messages: Vec<Message> = (0..rng.below(6))
            .map(|_| {
                let parts = (0..rng.below(5)).map(|_| unusual_part(&mut rng)).collect();
                Message::new(rng.choose(&roles), parts)
            })
            .collect();
        let before = messages.clone();
        let input = written(&messages);
        assert_eq!(messages, before);
        assert!(!json!(input).to_string().contains("approval"));
        let Err(invalid) = validate(Wire::OpenAiResponses, &json!({ "input": input })) else {
            continue;
        };
        for violation in invalid.violations() {
            assert!(
                // The writer does not repair faults that `tower_chat::replay` repairs, and faults
                // in native items that the reader of this wire never creates.
                matches!(
                    violation.rule,
                    Rule::CallsAnswered
                        | Rule::ResultAnswersCall
                        | Rule::OneResultPerCall
                        | Rule::ReasoningKeepsItem
                        | Rule::CallIdForm
                ),
                "{violation:?}\n{input:#?}\n{messages:#?}"
            );
        }
    }
}
