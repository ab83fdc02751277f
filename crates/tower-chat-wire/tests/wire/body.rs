//! Tests of reading and writing whole bodies, with their options.

use serde_json::{Value, json};
use tower_chat_core::{
    ChatOptions, ChatRequest, FinishReason, HistoryOwner, Message, Messages, ToolCall, ToolChoice,
    ToolDefinition, Usage,
};
use tower_chat_testkit::recordings::Recordings;
use tower_chat_wire::{
    AnswerError,
    body::{BodyError, BodyWire},
};

const WIRES: [(&str, BodyWire); 4] = [
    ("openai-chat", BodyWire::OpenAiChat),
    ("openai-responses", BodyWire::OpenAiResponses),
    ("anthropic", BodyWire::Anthropic),
    ("gemini", BodyWire::Gemini),
];

#[test]
fn an_accepted_body_is_written_as_it_was_read() {
    let recordings = Recordings::all();
    for (name, wire) in WIRES {
        let requests = recordings.accepted(name).unwrap();
        println!("{} of {name}", requests.len());
        let mut different = Vec::new();
        for request in requests {
            let body = request.body;
            let parsed = wire.parse_request(body.clone()).unwrap();
            let written = wire.render_request(&parsed).unwrap();
            let (written, body) = (normalized(written), normalized(body));
            if written != body {
                different.push(format!("{}\n{written}\n{body}", request.id));
            }
        }
        assert!(different.is_empty(), "{} of {name}: {}", different.len(), different[0]);
    }
}

/// Normalizes a body: fields with two names or two forms get the same name and form, and fields
/// without a value are removed.
fn normalized(mut body: Value) -> Value {
    without_integers(&mut body);
    let fields = body.as_object_mut().unwrap();
    let empty_values = [json!(null), json!(false), json!([]), json!({})];
    fields.retain(|_, value| !empty_values.contains(value));
    if fields.get("messages").is_some()
        && fields.get("anthropic_version").is_none()
        && let Some(limit) = fields.remove("max_tokens")
    {
        fields.entry("max_completion_tokens").or_insert(limit);
    }
    for tool in fields.get_mut("tools").and_then(Value::as_array_mut).into_iter().flatten() {
        tool.as_object_mut().unwrap().retain(|_, value| !value.is_null());
    }
    if let Some(Value::String(text)) = fields.get("input") {
        let input = json!([{"role": "user", "content": text}]);
        fields.insert("input".to_owned(), input);
    }
    body
}

fn without_integers(value: &mut Value) {
    match value {
        Value::Number(number) => *value = json!(number.as_f64()),
        Value::Array(items) => items.iter_mut().for_each(without_integers),
        Value::Object(fields) => fields.values_mut().for_each(without_integers),
        _ => {}
    }
}

/// Returns a request that sets every option that is common to all wires.
fn request() -> ChatRequest {
    let mut options = ChatOptions::default();
    options.instructions = Some("Be brief.".to_owned());
    options.temperature = Some(0.5);
    options.top_p = Some(0.75);
    options.max_output_tokens = Some(100);
    options.tool_choice = Some(ToolChoice::Tool("look".to_owned()));
    let schema = json!({"type": "object", "properties": {"at": {"type": "string"}}});
    options.tools = vec![ToolDefinition::new("look", "Looks.", schema)];
    options.extra.insert("seed".to_owned(), json!(7));
    ChatRequest::new(Message::user("hi")).with_options(options)
}

#[test]
fn options_are_written_and_read_again_unchanged_on_every_wire() {
    for (name, wire) in WIRES {
        let written = wire.render_request(&request()).unwrap();
        let read = wire.parse_request(written.clone()).unwrap();
        let mut expected = (*request().options).clone();
        let mut options = (*read.options).clone();
        if options.instructions.is_none() {
            // This wire has no field for instructions, so they are read as the first message.
            assert_eq!(read.messages().get(0).unwrap().text(), "Be brief.", "{name}");
            options.instructions = expected.instructions.take();
            expected.instructions.clone_from(&options.instructions);
        }
        assert_eq!(options, expected, "{name}: {written}");
        assert_eq!(read.messages().last().unwrap().text(), "hi", "{name}");
    }
}

#[test]
fn an_answer_is_written_and_read_again_on_every_wire() {
    let mut message = Message::assistant("Let me look.");
    message.parts.push(ToolCall::new("call_1", "look", r#"{"at": "Paris"}"#).into());
    let mut usage = Usage::new(30, 12);
    usage.cached_input_tokens = 10;
    let mut finish = tower_chat_core::Finish::new(FinishReason::ToolCalls).with_usage(usage);
    finish.model = Some("m".to_owned());
    for (name, wire) in WIRES {
        let body = wire.render_answer(&message, &finish);
        let answer = wire.parse_answer(&body.to_string()).unwrap();
        assert_eq!(answer.messages.len(), 1, "{name}");
        assert_eq!(answer.text(), "Let me look.", "{name}: {body}");
        let call = answer.tool_calls().next().unwrap();
        assert_eq!((call.id.as_deref(), call.name.as_str()), (Some("call_1"), "look"), "{name}");
        let arguments: Value = call.parse_arguments().unwrap();
        assert_eq!(arguments, json!({"at": "Paris"}), "{name}");
        assert_eq!(answer.finish.reason, Some(FinishReason::ToolCalls), "{name}");
        assert_eq!((answer.finish.usage, answer.finish.model), (usage, finish.model.clone()));
    }
}

#[test]
fn extra_fields_of_a_tool_definition_are_written_only_on_their_own_wire() {
    let strict = json!({"type": "function",
        "function": {"name": "look", "parameters": {"type": "object"}, "strict": true}});
    let grammar = json!({"type": "custom", "custom": {"name": "sql", "format": {"type": "text"}}});
    let body = json!({"messages": [{"role": "user", "content": "hi"}], "tools": [strict, grammar]});
    let request = BodyWire::OpenAiChat.parse_request(body.clone()).unwrap();
    assert_eq!(BodyWire::OpenAiChat.render_request(&request).unwrap(), body);
    let elsewhere = BodyWire::Anthropic.render_request(&request).unwrap();
    let look = json!({"name": "look", "description": "", "input_schema": {"type": "object"}});
    assert_eq!(elsewhere["tools"], json!([look]));
}

/// Two integers, a positive and a negative one, that need more than 64 bits, and the largest and
/// the smallest integer with 64 bits.
const INTEGERS: &str = r#"[123456789012345678901234567890,-98765432109876543210,18446744073709551616,18446744073709551615,-9223372036854775808]"#;

#[test]
fn integers_of_any_size_in_options_and_schemas_are_written_exactly_on_every_wire() {
    let schema = format!(r#"{{"properties":{{"n":{{"enum":{INTEGERS}}}}},"type":"object"}}"#);
    let function = format!(r#"{{"description":"d","name":"f","parameters":{schema}}}"#);
    let nested = format!(r#"{{"function":{function},"type":"function"}}"#);
    let user = r#"[{"content":"go","role":"user"}]"#;
    let bodies = [
        (
            BodyWire::OpenAiChat,
            format!(r#"{{"messages":{user},"model":"a","odd":{INTEGERS},"tools":[{nested}]}}"#),
        ),
        (
            BodyWire::OpenAiResponses,
            format!(
                r#"{{"input":{user},"odd":{{"deep":{INTEGERS}}},"tools":[{{"description":"d","name":"f","parameters":{schema},"type":"function"}}]}}"#
            ),
        ),
        (
            BodyWire::Anthropic,
            format!(
                r#"{{"max_tokens":5,"messages":{user},"odd":{INTEGERS},"tools":[{{"description":"d","input_schema":{schema},"name":"f"}}]}}"#
            ),
        ),
        (
            BodyWire::Gemini,
            format!(
                r#"{{"contents":[{{"role":"user","parts":[{{"text":"go"}}]}}],"generationConfig":{{"odd":{INTEGERS}}},"tools":[{{"functionDeclarations":[{function}]}}]}}"#
            ),
        ),
        (
            BodyWire::BedrockConverse,
            format!(
                r#"{{"additionalModelRequestFields":{{"odd":{INTEGERS}}},"messages":[{{"content":[{{"text":"go"}}],"role":"user"}}]}}"#
            ),
        ),
        (
            BodyWire::Cohere,
            format!(r#"{{"messages":{user},"model":"b","odd":{INTEGERS},"tools":[{nested}]}}"#),
        ),
        (
            BodyWire::Ollama,
            format!(
                r#"{{"messages":{user},"model":"c","options":{{"odd":{INTEGERS}}},"tools":[{nested}]}}"#
            ),
        ),
    ];
    for (wire, body) in bodies {
        let request = wire.parse_request_json(&body).unwrap();
        let written = wire.render_request_json(&request).unwrap();
        let count = |text: &str| text.matches(INTEGERS).count();
        assert_eq!(count(written.get()), count(&body), "{wire:?}: {}", written.get());
        let values: [Value; 2] = [written.parse().unwrap(), serde_json::from_str(&body).unwrap()];
        assert_eq!(values[0], values[1], "{wire:?}");
    }
}

#[test]
fn a_number_that_was_changed_after_reading_is_written_with_its_new_value() {
    let body = r#"{"messages":[{"role":"user","content":"go"}],"odd":[10000000000000000000000,20000000000000000000000]}"#;
    let mut request = BodyWire::OpenAiChat.parse_request_json(body).unwrap();
    let options = std::sync::Arc::make_mut(&mut request.options);
    options.extra["odd"][0] = json!(3);
    let written = BodyWire::OpenAiChat.render_request_json(&request).unwrap();
    let expected = body.replace("[10000000000000000000000,", "[3,");
    assert_eq!(written.get(), expected);
}

#[test]
fn integers_of_any_size_in_the_metadata_of_an_answer_are_written_exactly() {
    let message = r#"{"content":"done","refusal":null,"role":"assistant"}"#;
    let chat = format!(
        r#"{{"choices":[{{"finish_reason":"stop","index":0,"message":{message},"odd":{INTEGERS}}}],"created":99999999999999999999,"object":"chat.completion"}}"#
    );
    let answer = BodyWire::OpenAiChat.parse_answer(&chat).unwrap();
    let written = BodyWire::OpenAiChat.render_answer_json(&answer.messages[0], &answer.finish);
    assert_eq!(written.get().matches(INTEGERS).count(), 1, "{}", written.get());
    assert!(written.get().contains(r#""created":99999999999999999999,"#), "{}", written.get());
}

#[test]
fn an_error_body_is_read_as_a_refusal_and_not_as_an_answer() {
    for (name, wire) in WIRES {
        let error = json!({"error": {"message": "slow down"}, "content": [], "output": []});
        let error = wire.parse_answer(&error.to_string()).unwrap_err();
        assert!(matches!(error, AnswerError::Refused { .. }), "{name}: {error}");
        assert!(error.to_string().contains("slow down"));
    }
}

#[test]
fn only_the_responses_wire_supports_a_history_that_the_service_stores() {
    let request = ChatRequest::user("hi").with_service_id("resp_1");
    for (name, wire) in WIRES {
        match wire.render_request(&request) {
            Ok(body) => assert_eq!(body["previous_response_id"], "resp_1", "{name}"),
            Err(error) => {
                assert!(matches!(error, BodyError::Unsupported { .. }), "{name}");
                continue;
            }
        }
        let answer = json!({"id": "resp_2", "previous_response_id": "resp_1", "output": []});
        let id = wire.parse_answer(&answer.to_string()).unwrap().finish.history_owner;
        assert_eq!(id, Some(HistoryOwner::Service("resp_2".into())), "{name}");
    }
}

/// A model can write half of a surrogate pair. Every later request contains the text of the model,
/// and services refuse a body with half of a surrogate pair.
#[test]
fn half_a_surrogate_pair_in_an_answer_is_replaced_and_is_not_sent_again() {
    let answers = [
        (
            BodyWire::OpenAiChat,
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"A \ud83d.","note":{"mood":"\udc00"}}}]}"#,
        ),
        (
            BodyWire::OpenAiResponses,
            r#"{"id":"r","output":[{"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"B \ud83d"}]},
                {"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"A \ud83d."}]}]}"#,
        ),
        (
            BodyWire::Anthropic,
            r#"{"role":"assistant","content":[{"type":"thinking","thinking":"C \ud83d","signature":"s"},{"type":"text","text":"A \ud83d."}]}"#,
        ),
        (
            BodyWire::Gemini,
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"A \ud83d."}]}}]}"#,
        ),
        (
            BodyWire::BedrockConverse,
            r#"{"output":{"message":{"role":"assistant","content":[{"text":"A \ud83d."}]}},"stopReason":"end_turn"}"#,
        ),
        (
            BodyWire::Cohere,
            r#"{"message":{"role":"assistant","content":[{"type":"text","text":"A \ud83d."}]},"finish_reason":"COMPLETE"}"#,
        ),
        (BodyWire::Ollama, r#"{"message":{"role":"assistant","content":"A \ud83d."},"done":true}"#),
    ];
    for (wire, body) in answers {
        let answer = wire.parse_answer(body).unwrap();
        assert_eq!(answer.text(), "A \u{fffd}.", "{wire:?}");
        let mut messages: Messages = answer.messages.into_iter().collect();
        messages.push(Message::user("Go on."));
        let mut request = ChatRequest::new(messages);
        request.options = ChatOptions::default().with_model("m").into();
        let sent = wire.render_request_json(&request).unwrap();
        let sent: Value = sent.parse().unwrap();
        assert!(sent.to_string().contains("A \u{fffd}."), "{wire:?}: {sent}");
    }
}

/// Unknown fields of an answer are sent back in every later request. No service accepts a number
/// that exceeds the range of a 64-bit floating-point number.
#[test]
fn a_number_out_of_range_in_an_answer_is_not_sent_again() {
    let answers = [
        (
            BodyWire::OpenAiChat,
            r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"A.","note":{"mood":1e999}}}]}"#,
        ),
        (
            BodyWire::OpenAiResponses,
            r#"{"id":"r","output":[{"type":"message","id":"m","role":"assistant",
                "content":[{"type":"output_text","text":"A.","annotations":[-1e999]}]}]}"#,
        ),
        (
            BodyWire::Anthropic,
            r#"{"role":"assistant","content":[{"type":"text","text":"A.","note":1.5e+340}]}"#,
        ),
        (
            BodyWire::Gemini,
            r#"{"candidates":[{"content":{"role":"model","parts":[{"text":"A.","note":1e999}]}}]}"#,
        ),
        (
            BodyWire::BedrockConverse,
            r#"{"output":{"message":{"role":"assistant","content":[{"text":"A."}],"note":1e999}},"stopReason":"end_turn"}"#,
        ),
        (
            BodyWire::Cohere,
            r#"{"message":{"role":"assistant","content":[{"type":"text","text":"A."}],"citations":[{"end":3e400}]},"finish_reason":"COMPLETE"}"#,
        ),
    ];
    for (wire, body) in answers {
        let answer = wire.parse_answer(body).unwrap();
        assert_eq!(answer.text(), "A.", "{wire:?}");
        let mut messages: Messages = answer.messages.into_iter().collect();
        messages.push(Message::user("Go on."));
        let mut request = ChatRequest::new(messages);
        request.options = ChatOptions::default().with_model("m").into();
        let sent = wire.render_request_json(&request).unwrap();
        sent.parse::<Value>().unwrap_or_else(|error| panic!("{wire:?}: {error}: {}", sent.get()));
    }
}
