//! Tests of reading and writing single messages of OpenAI Chat Completions.

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role,
    ToolCall, ToolResult,
};
use tower_chat_wire::{
    WireError,
    openai_chat::{Audience, WIRE, parse_message, parse_messages, render_message, render_messages},
};

fn written(message: &Message) -> Vec<Value> {
    let json = render_message(message, Audience::Transcript);
    json.iter().map(|json| json.parse().unwrap()).collect()
}

#[track_caller]
fn round_trip(json: Value) -> Message {
    let message = parse_message(&json.to_string()).unwrap();
    assert_eq!(written(&message), [json]);
    message
}

fn native_count(message: &Message) -> usize {
    tower_chat_core::format::encode(message).matches(r#""wire""#).count()
}

#[test]
fn plain_messages_are_read_as_plain_parts() {
    for (json, expected) in [
        (json!({"role": "system", "content": "be brief"}), Message::system("be brief")),
        (json!({"role": "user", "content": ""}), Message::user("")),
        (json!({"role": "assistant", "content": "hi"}), Message::assistant("hi")),
        (json!({"role": "assistant", "content": null}), Message::new(Role::Assistant, vec![])),
        (
            json!({"role": "developer", "content": "d"}),
            Message::new(Role::Developer, vec![Part::text("d")]),
        ),
        (
            json!({"role": "assistant", "content": null, "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{ } "}}]}),
            Message::tool_calls([ToolCall::new("c", "f", "{ } ")]),
        ),
        (
            json!({"role": "tool", "tool_call_id": "c", "content": "r"}),
            Message::tool_results([ToolResult::new("c", "r")]),
        ),
        (
            json!({"role": "tool", "tool_call_id": "", "content": "", "x_error": true}),
            Message::tool_results([ToolResult::error("", "")]),
        ),
    ] {
        assert_eq!(round_trip(json), expected);
    }
}

#[test]
fn every_form_of_content_is_written_as_it_was_read() {
    for role in ["system", "developer", "user", "assistant", "tool", "function"] {
        round_trip(json!({"role": role}));
        for content in [
            json!(null),
            json!(""),
            json!("text"),
            json!([]),
            json!([{"type": "text", "text": "alone"}]),
            json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]),
            json!([{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]),
            json!([{"type": "text"}, {"type": "text", "text": null}, {"text": "untyped"}]),
            json!([{"type": "refusal", "refusal": "no"}]),
            json!(["bare", 1, null, []]),
        ] {
            round_trip(json!({"role": role, "content": content}));
            round_trip(json!({"role": role, "content": content, "extra": {"a": [1.50, null]}}));
        }
    }
}

#[test]
fn unknown_fields_are_written_byte_for_byte() {
    let json = r#"{"role":"assistant","content":"hi","logit": 1.500e+3,"audio":{"b":1, "a":2}}"#;
    let message = parse_message(json).unwrap();
    let written = render_message(&message, Audience::Transcript);
    assert!(written[0].get().contains(r#""logit":1.500e+3"#));
    assert!(written[0].get().contains(r#""audio":{"b":1, "a":2}"#));
}

#[test]
fn a_response_message_with_null_fields_is_written_as_it_was_read() {
    let message = round_trip(json!({
        "role": "assistant", "content": null, "refusal": null, "annotations": [],
        "function_call": null, "tool_calls": null, "name": null, "reasoning_content": null,
    }));
    assert_eq!(message.calls().count(), 0);
    assert_eq!(native_count(&message), 1);
}

#[test]
fn calls_of_every_form_are_written_as_they_were_read() {
    for call in [
        json!({"type": "function", "function": {"name": "f", "arguments": "{'python': 1}"}}),
        json!({"id": "", "type": "function", "function": {"name": "f", "arguments": ""}}),
        json!({"id": null, "type": "function", "function": {"name": "f", "arguments": "{\"cut"}}),
        json!({"id": 7, "type": "function", "function": {"name": "f", "arguments": "null"}}),
        json!({"id": "c", "index": 1, "type": "function", "function": {"name": "", "arguments": "1"}}),
        json!({"function": {"name": "ollama", "arguments": {"b": 1, "a": [2]}}}),
        json!({"function": {"name": "f", "arguments": null}}),
        json!({"id": "c", "function": {"name": "no arguments"}}),
        json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "strict": true},
               "extra_content": {"google": {"thought_signature": "sig"}}}),
        json!({"id": "c", "type": "custom", "custom": {"name": "shell", "input": "ls -l"}}),
        json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}, "function_call": {}}),
    ] {
        let message =
            round_trip(json!({"role": "assistant", "content": "x", "tool_calls": [call, call]}));
        assert_eq!(message.calls().count(), 2);
    }
    round_trip(json!({"role": "assistant", "content": "x", "tool_calls": []}));
}

#[test]
fn arguments_that_are_an_object_are_written_byte_for_byte() {
    let arguments = r#"{"b": 1.0,"a":[ ]}"#;
    let json = format!(
        r#"{{"role":"assistant","content":"","tool_calls":[{{"function":{{"name":"f","arguments":{arguments}}}}}]}}"#
    );
    let message = parse_message(&json).unwrap();
    assert_eq!(message.calls().next().unwrap().arguments, arguments);
    assert!(render_message(&message, Audience::Model)[0].get().contains(arguments));
}

#[test]
fn messages_in_the_legacy_format_are_written_as_they_were_read() {
    let message = round_trip(json!({"role": "assistant", "content": null,
        "function_call": {"name": "f", "arguments": "{}"}}));
    let call = message.calls().next().unwrap();
    assert_eq!((call.id.as_deref(), call.name.as_str()), (None, "f"));
    let message = round_trip(json!({"role": "function", "name": "f", "content": "12"}));
    let result = message.results().next().unwrap();
    assert_eq!((message.role, result.call_id.as_deref()), (Role::Tool, None));
    assert_eq!((result.name.as_deref(), result.text().as_str()), (Some("f"), "12"));
    round_trip(json!({"role": "assistant", "content": "", "function_call": {"name": "f"},
        "tool_calls": [{"id": "c", "type": "function", "function": {"name": "g", "arguments": ""}}]}));
}

#[test]
fn readable_reasoning_is_read_as_a_reasoning_part() {
    for content in [json!(null), json!("answer")] {
        let message = round_trip(json!({"role": "assistant", "content": content,
            "reasoning_content": "hm", "reasoning": "", "reasoning_details": [{"type": "x"}]}));
        assert!(
            message
                .parts
                .iter()
                .any(|part| matches!(part, Part::Reasoning(reasoning) if reasoning.text == "hm"))
        );
        round_trip(json!({"role": "assistant", "content": content, "reasoning_content": "hm"}));
    }
}

#[test]
fn media_are_read_as_media_parts_and_written_as_they_were_read() {
    for part in [
        json!({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}),
        json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA", "detail": "low"}}),
        json!({"type": "image_url", "image_url": "data:image/png;base64,AAAA"}),
        json!({"type": "image_url", "image_url": {"url": "data:application/pdf;base64,AAAA"}, "x": 1}),
        json!({"type": "image_url", "image_url": {"url": "data:text/plain;charset=utf-8;base64,AAAA"}}),
        json!({"type": "image_url", "image_url": {"url": "data:;base64,AAAA"}}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mpeg"}}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav", "x": 1}}),
        json!({"type": "file", "file": {"file_id": "file-1"}}),
        json!({"type": "file", "file": {"file_data": "data:application/pdf;base64,AAAA"}}),
        json!({"type": "file", "file": {"file_data": "data:audio/wav;base64,AAAA", "filename": "file"}}),
        json!({"type": "file", "file": {"file_data": "AAAA", "filename": "a.pdf"}}),
    ] {
        let message = round_trip(json!({"role": "user", "content": [part]}));
        assert!(matches!(&message.parts[..], [Part::Media(_)]), "{part}");
    }
    for part in [
        json!({"type": "image_url", "image_url": null}),
        json!({"type": "image_url"}),
        json!({"type": "input_audio", "input_audio": "AAAA"}),
        json!({"type": "file", "file": {"file_data": "data:a/b;base64,AAAA", "file_id": "f"}}),
    ] {
        let message = round_trip(json!({"role": "user", "content": [part]}));
        assert!(matches!(&message.parts[..], [Part::Native(_)]), "{part}");
    }
}

#[test]
fn a_changed_field_is_written_with_its_new_value() {
    let mut message = parse_message(
        &json!({"role": "assistant", "refusal": null, "name": "a",
            "content": [{"type": "text", "text": "old", "x": 1}], "reasoning": "old",
            "tool_calls": [{"index": 0, "function": {"name": "old", "arguments": {"old": 1}}}]})
        .to_string(),
    )
    .unwrap();
    message.author = Some("b".to_owned());
    for part in &mut message.parts {
        match part {
            Part::Text(text) => text.text = "new".to_owned(),
            Part::Reasoning(reasoning) => reasoning.text = "new".to_owned(),
            Part::ToolCall(call) => {
                call.id = Some("new".to_owned());
                call.name = "new".to_owned();
                call.arguments = "no json".to_owned();
            }
            _ => {}
        }
    }
    assert_eq!(
        written(&message),
        [json!({"role": "assistant", "refusal": null, "name": "b",
            "content": [{"type": "text", "text": "new", "x": 1}], "reasoning": "new",
            "tool_calls": [{"index": 0, "id": "new",
                "function": {"name": "new", "arguments": "no json"}}]})]
    );
    let mut message = parse_message(
        r#"{"role":"function","name":"f","content":null,"tool_call_id":null,"x_error":false}"#,
    )
    .unwrap();
    let Part::ToolResult(result) = &mut message.parts[0] else { panic!("a result") };
    result.call_id = Some("c".to_owned());
    result.is_error = true;
    result.content = vec![Part::text("boom")];
    assert_eq!(
        written(&message),
        [json!({"role": "function", "name": "f", "content": "boom", "tool_call_id": null,
            "x_error": true})]
    );
}

#[test]
fn only_a_model_is_sent_a_legacy_call_with_an_id_as_an_ordinary_call() {
    let mut asking = parse_message(
        r#"{"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}","x":1}}"#,
    )
    .unwrap();
    let mut answer = parse_message(r#"{"role":"function","name":"f","content":null}"#).unwrap();
    for part in asking.parts.iter_mut().chain(&mut answer.parts) {
        match part {
            Part::ToolCall(call) => call.id = Some("c".to_owned()),
            Part::ToolResult(result) => result.call_id = Some("c".to_owned()),
            _ => {}
        }
    }
    let sent = |message| -> Value { render_message(message, Audience::Model)[0].parse().unwrap() };
    assert_eq!(
        sent(&asking),
        json!({"role": "assistant", "content": null, "tool_calls": [
            {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}", "x": 1}}]})
    );
    assert_eq!(
        sent(&answer),
        json!({"role": "tool", "name": "f", "content": "", "tool_call_id": "c"})
    );
    assert_eq!(
        written(&asking),
        [json!({"role": "assistant", "content": null,
            "function_call": {"name": "f", "arguments": "{}", "x": 1}})]
    );
    assert_eq!(written(&answer), [json!({"role": "function", "name": "f", "content": null})]);
}

#[test]
fn the_field_tool_call_id_of_a_legacy_result_is_not_read_as_its_call_id() {
    let message = round_trip(json!({"role": "function", "name": "f", "content": "12",
        "tool_call_id": "c"}));
    assert_eq!(message.results().next().unwrap().call_id, None);
}

#[test]
fn a_model_is_not_sent_an_answer_whose_content_is_missing_or_null() {
    for json in [
        json!({"role": "assistant"}),
        json!({"role": "assistant", "content": null, "refusal": null, "tool_calls": []}),
    ] {
        let message = round_trip(json);
        assert!(render_message(&message, Audience::Model).is_empty());
    }
    let message = round_trip(json!({"role": "assistant", "content": "", "tool_calls": []}));
    let sent: Value = render_message(&message, Audience::Model)[0].parse().unwrap();
    assert_eq!(sent, json!({"role": "assistant", "content": ""}));
}

#[test]
fn a_model_is_not_sent_the_field_x_error() {
    for json in [
        json!({"role": "tool", "tool_call_id": "c", "content": "boom", "x_error": true}),
        json!({"role": "tool", "tool_call_id": "c", "content": "boom", "x_error": false}),
    ] {
        let message = round_trip(json);
        let sent: Value = render_message(&message, Audience::Model)[0].parse().unwrap();
        assert_eq!(sent, json!({"role": "tool", "tool_call_id": "c", "content": "boom"}));
    }
}

#[test]
fn messages_of_the_application_are_written_in_the_forms_of_the_wire() {
    let call = ToolCall::new("c", "f", "{}");
    let call_json =
        json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}});
    let foreign = Native::new("anthropic", r#"{"role":"x"}"#.parse().unwrap());
    let mut by_provider = ToolCall::new("srv", "web_search", "{}");
    by_provider.provider_executed = true;
    let everything = Message::new(
        Role::Assistant,
        vec![
            Reasoning::new("hm").into(),
            foreign.clone().into(),
            by_provider.into(),
            ToolResult::new("srv", "found").into(),
            ErrorPart::new("overloaded").into(),
            ApprovalRequest::new("a", call.clone(), true).into(),
            Part::text("one"),
            call.clone().into(),
            Part::text("two"),
            ToolResult::new("c", "done").into(),
        ],
    );
    assert_eq!(
        written(&everything),
        [
            json!({"role": "assistant", "tool_calls": [call_json],
                "content": [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}),
            json!({"role": "tool", "tool_call_id": "c", "content": "done"}),
        ]
    );
    let nothing_left = Message::new(Role::Assistant, vec![Reasoning::new("hm").into()]);
    assert_eq!(written(&nothing_left), Vec::<Value>::new());
    assert_eq!(
        written(&Message::new(Role::User, vec![])),
        [json!({"role": "user", "content": ""})]
    );
    let answered = Message::new(
        Role::User,
        vec![
            Part::text("go on"),
            ToolResult::new("c", "1").into(),
            ToolResult::new("d", "2").into(),
        ],
    );
    assert_eq!(
        written(&answered),
        [
            json!({"role": "tool", "tool_call_id": "c", "content": "1"}),
            json!({"role": "tool", "tool_call_id": "d", "content": "2"}),
            json!({"role": "user", "content": "go on"}),
        ]
    );
    let mut empty = ToolResult::new("c", "");
    empty.content = vec![foreign.into()];
    assert_eq!(
        written(&Message::tool_results([empty])),
        [json!({"role": "tool", "tool_call_id": "c", "content": ""})]
    );
}

#[test]
fn media_of_the_application_are_written_in_the_form_for_their_type() {
    let base64 = || MediaSource::Base64("AAAA".to_owned());
    let url = || MediaSource::Url("https://example.org/x".to_owned());
    for (media, expected) in [
        (
            Media::new("image/png", base64()),
            json!({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
        ),
        (
            Media::new("image/png", url()),
            json!({"type": "image_url", "image_url": {"url": "https://example.org/x"}}),
        ),
        (
            Media::new("audio/mpeg", base64()),
            json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
        ),
        (
            Media::new("application/pdf", base64()),
            json!({"type": "file", "file": {"filename": "file", "file_data": "data:application/pdf;base64,AAAA"}}),
        ),
        (
            Media::new("application/pdf", url()),
            json!({"type": "file", "file": {"file_data": "https://example.org/x"}}),
        ),
        (
            Media::new("image/png", MediaSource::File("file-1".to_owned())),
            json!({"type": "file", "file": {"file_id": "file-1"}}),
        ),
    ] {
        assert_eq!(
            written(&Message::new(Role::User, vec![media.into()])),
            [json!({"role": "user", "content": [expected]})]
        );
    }
}

#[test]
fn an_invalid_message_is_a_typed_error() {
    for (json, is_expected) in [
        ("[]", (|error| matches!(error, WireError::Json { what: "a message", .. })) as fn(&_) -> _),
        ("{", |error| matches!(error, WireError::Json { .. })),
        (r#"{"content":"x"}"#, |error| matches!(error, WireError::Field { field: "role", .. })),
        (r#"{"role":1}"#, |error| matches!(error, WireError::Field { field: "role", .. })),
        (
            r#"{"role":"king"}"#,
            |error| matches!(error, WireError::UnknownRole { role } if role == "king"),
        ),
        (r#"{"role":"user","content":5}"#, |error| matches!(error, WireError::Json { .. })),
        (r#"{"role":"user","content":[{"role":"x"}]}"#, |error| {
            matches!(error, WireError::Field { .. })
        }),
        (r#"{"role":"assistant","tool_calls":{}}"#, |error| {
            matches!(error, WireError::Json { .. })
        }),
        (r#"{"role":"assistant","tool_calls":[1]}"#, |error| {
            matches!(error, WireError::Json { .. })
        }),
        (r#"{"role":"assistant","tool_calls":[{"id":"c"}]}"#, |error| {
            matches!(error, WireError::Field { field: "function", .. })
        }),
        (r#"{"role":"assistant","tool_calls":[{"function":{"arguments":"{}"}}]}"#, |error| {
            matches!(error, WireError::Field { field: "name", .. })
        }),
        (r#"{"role":"assistant","function_call":"auto"}"#, |error| {
            matches!(error, WireError::Json { .. })
        }),
    ] {
        let error = parse_message(json).unwrap_err();
        assert!(is_expected(&error), "{json}: {error:?}");
    }
}

#[test]
fn messages_are_read_from_a_list_and_an_error_names_the_index_of_its_message() {
    let list = r#"[{"role":"user","content":"hi"},{"role":"assistant","content":"hello"}]"#;
    let messages = parse_messages(list).unwrap();
    let written = render_messages(&messages, Audience::Transcript);
    assert_eq!(
        written.iter().map(|json| json.parse::<Value>().unwrap()).collect::<Vec<_>>(),
        serde_json::from_str::<Vec<Value>>(list).unwrap()
    );
    let error = parse_messages(r#"[{"role":"user","content":"hi"},{"role":"no"}]"#).unwrap_err();
    assert!(matches!(error, WireError::InMessage { index: 1, .. }), "{error:?}");
    assert!(matches!(parse_messages("{}"), Err(WireError::Json { .. })));
    assert_eq!(WIRE, "openai-chat");
}

#[test]
fn a_function_call_with_an_empty_name_is_not_read_as_a_call() {
    let json = r#"{"role":"assistant","content":"hi","function_call":{"arguments":"","name":""}}"#;
    let message = parse_message(json).unwrap();
    assert_eq!(message.calls().count(), 0);
    let rendered = render_message(&message, Audience::Transcript);
    let rendered: serde_json::Value = rendered[0].parse().unwrap();
    assert_eq!(rendered, serde_json::from_str::<serde_json::Value>(json).unwrap());
}
