//! Tests of reading and writing conversations of Anthropic Messages.

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role,
    ToolCall, ToolResult,
};
use tower_chat_wire::{
    WireError,
    anthropic::{
        WIRE, parse_answer, parse_body, parse_message, parse_messages, parse_system, render_body,
    },
};

fn written<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    serde_json::to_value(render_body(messages)).unwrap()
}

fn written_messages<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    written(messages)["messages"].take()
}

#[track_caller]
fn round_trip(json: Value) -> Vec<Message> {
    let messages = parse_messages(&json.to_string()).unwrap();
    assert_eq!(written(&messages), json!({"messages": json}));
    messages
}

fn native_count(message: &Message) -> usize {
    tower_chat_core::format::encode(message).matches(r#""wire""#).count()
}

#[test]
fn plain_messages_are_read_as_plain_parts() {
    for (json, expected) in [
        (json!({"role": "user", "content": "hi"}), Message::user("hi")),
        (json!({"role": "assistant", "content": "hi"}), Message::assistant("hi")),
        (
            json!({"role": "user", "content": [
                {"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            Message::new(Role::User, vec![Part::text("a"), Part::text("b")]),
        ),
        (
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "c", "content": "r"},
                {"type": "tool_result", "tool_use_id": "d", "content": "s", "is_error": true}]}),
            Message::tool_results([ToolResult::new("c", "r"), ToolResult::error("d", "s")]),
        ),
    ] {
        assert_eq!(round_trip(json!([json])), [expected]);
    }
}

#[test]
fn the_input_of_a_call_is_written_byte_for_byte() {
    let input = r#"{ "z":1e2,  "a": 12345678901234567890123 , "a": 1 }"#;
    let json = format!(
        r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"c","name":"f","input":{input}}}]}}"#
    );
    let message = parse_message(&json).unwrap();
    assert_eq!(message, Message::tool_calls([ToolCall::new("c", "f", input)]));
    assert!(render_body([&message]).messages[0].get().contains(input));
}

#[test]
fn thinking_is_written_with_its_signature_and_redacted_thinking_with_its_bytes() {
    let json = json!([{"role": "assistant", "content": [
        {"type": "thinking", "thinking": "Let me see.", "signature": "s=="},
        {"type": "redacted_thinking", "data": "e=="},
        {"type": "thinking", "thinking": "", "signature": "t=="},
        {"type": "text", "text": "Hello", "citations": null},
    ]}]);
    let messages = round_trip(json);
    let texts: Vec<&str> = messages[0]
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Reasoning(reasoning) => Some(reasoning.text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(texts, ["Let me see.", "", ""]);
    assert_eq!(messages[0].text(), "Hello");
}

#[test]
fn provider_executed_calls_and_their_results_are_parts_of_one_message() {
    let json = json!([{"role": "assistant", "content": [
        {"type": "text", "text": "I search."},
        {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
            "input": {"query": "x"}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [
            {"type": "web_search_result", "url": "https://a.example", "title": "A",
                "encrypted_content": "E==", "page_age": null}]},
        {"type": "server_tool_use", "id": "srvtoolu_2", "name": "web_search", "input": {}},
        {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_2", "content":
            {"type": "web_search_tool_result_error", "error_code": "max_uses_exceeded"}},
        {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "ask", "server_name": "wiki",
            "input": {}},
        {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "is_error": true,
            "content": [{"type": "text", "text": "no such page"}]},
        {"type": "code_execution_tool_result", "tool_use_id": "srvtoolu_0", "content": {
            "type": "code_execution_result", "return_code": 0}},
        {"type": "text", "text": "Found."},
    ]}]);
    let messages = round_trip(json);
    let message = &messages[0];
    assert_eq!(message.calls().count(), 0);
    let calls = message.parts.iter().filter_map(Part::as_tool_call);
    let names: Vec<&str> = calls.map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["web_search", "web_search", "ask"]);
    let results: Vec<&ToolResult> = message.results().collect();
    assert_eq!(results.len(), 3, "a result without its call in this message is a native item");
    assert!(results[2].is_error && results[2].text() == "no such page");
    assert!(matches!(&message.parts[7], Part::Native(native) if &*native.wire == WIRE));
}

#[test]
fn unknown_fields_and_blocks_are_written_as_they_were_read() {
    let cache = json!({"type": "ephemeral", "ttl": "1h"});
    round_trip(json!([
        {"role": "user", "content": [
            {"type": "text", "text": "hi", "cache_control": cache},
            {"type": "search_result", "source": "s", "title": "t", "content": []},
            {"type": "container_upload", "file_id": "file_1"}]},
        {"role": "assistant", "more": {"a": 1}, "content": [
            {"type": "tool_use", "id": "c", "name": "f", "input": {},
                "caller": {"type": "direct"}, "cache_control": cache},
            {"type": "later_invention", "x": [1, 2.50]}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "c", "is_error": false, "cache_control": cache,
                "content": [{"type": "tool_reference", "tool_name": "f"}]}]},
        {"role": "system", "content": [{"type": "tool_addition", "tool": {"name": "g"}}]},
        {"role": "system", "content": "mind the gap"},
        {"role": "assistant", "content": [{"type": "text", "text": "alone in a list"}]},
    ]));
}

#[test]
fn every_form_of_the_content_of_a_result_is_written_as_it_was_read() {
    let messages = round_trip(json!([
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a"},
            {"type": "tool_result", "tool_use_id": "b", "content": []},
            {"type": "tool_result", "tool_use_id": "c", "content": ""},
            {"type": "tool_result", "tool_use_id": "d", "content": [
                {"type": "text", "text": "one"}]},
            {"type": "tool_result", "tool_use_id": "e", "content": [
                {"type": "text", "text": "one"}, {"type": "text", "text": ""}]},
        ]},
    ]));
    assert_eq!(messages[0].role, Role::Tool);
}

#[test]
fn consecutive_messages_of_one_role_are_written_as_separate_messages() {
    let messages = round_trip(json!([
        {"role": "user", "content": "a"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "f",
            "input": {}}]},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "d", "name": "f",
            "input": {}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c"}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "d"}]},
    ]));
    assert_eq!(messages[2].calls().count(), 2, "one turn");
    assert_eq!(messages.iter().map(native_count).collect::<Vec<_>>(), [0, 1, 1, 1, 2]);
}

#[test]
fn images_and_documents_are_read_as_media() {
    let messages = round_trip(json!([{"role": "user", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA"}},
        {"type": "image", "source": {"type": "url", "url": "https://a.example/b.png"}},
        {"type": "document", "source": {"type": "base64", "media_type": "application/pdf",
            "data": "BB"}, "title": "B", "citations": {"enabled": true}},
        {"type": "document", "source": {"type": "file", "file_id": "file_1"}},
        {"type": "document", "source": {"type": "text", "media_type": "text/plain",
            "data": "plain"}},
    ]}]));
    let media: Vec<&Media> = messages[0]
        .parts
        .iter()
        .filter_map(|part| match part {
            Part::Media(media) => Some(media),
            _ => None,
        })
        .collect();
    assert_eq!(media.len(), 4);
    assert_eq!(*media[0], Media::new("image/png", MediaSource::Base64("AA".to_owned())));
    assert_eq!(media[2].source, MediaSource::Base64("BB".to_owned()));
    assert!(!media[2].native.as_ref().unwrap().item.get().contains("BB"));
    assert_eq!(media[3].source, MediaSource::File("file_1".to_owned()));
    assert!(matches!(messages[0].parts[4], Part::Native(_)));
}

#[test]
fn the_system_field_is_read_as_the_first_message_and_written_as_a_field() {
    for system in [
        json!("Be brief."),
        json!(""),
        json!([]),
        json!(null),
        json!([{"type": "text", "text": "Be brief."}]),
        json!([{"type": "text", "text": "a"},
            {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}}]),
    ] {
        let body = json!({"system": system, "messages": [{"role": "user", "content": "hi"}]});
        let messages = parse_body(&body.to_string()).unwrap();
        assert_eq!((messages.len(), messages[0].role), (2, Role::System));
        assert_eq!(messages[0], parse_system(&system.to_string()).unwrap());
        assert_eq!(written(&messages), body);
    }
    assert_eq!(parse_system(r#""Be brief.""#).unwrap(), Message::system("Be brief."));
}

#[test]
fn a_changed_field_is_written_with_its_new_value() {
    let mut messages = parse_messages(
        &json!([
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "pay",
                "input": {"card": "4000"}, "cache_control": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c",
                "content": [{"type": "text", "text": "paid with 4000"}], "cache_control": {}}]},
        ])
        .to_string(),
    )
    .unwrap();
    if let Part::ToolCall(call) = &mut messages[0].parts[0] {
        call.arguments = r#"{"card":"[redacted]"}"#.to_owned();
    }
    if let Part::ToolResult(result) = &mut messages[1].parts[0] {
        result.content = vec![Part::text("paid")];
    }
    assert_eq!(
        written_messages(&messages),
        json!([
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c", "name": "pay",
                "input": {"card": "[redacted]"}, "cache_control": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c",
                "content": "paid", "cache_control": {}}]},
        ])
    );
}

#[test]
fn messages_of_one_role_are_joined_results_are_first_and_system_messages_move() {
    let messages = [
        Message::system("Be brief."),
        Message::user("one"),
        Message::new(Role::Developer, vec![Part::text("Be kind.")]),
        Message::user("two"),
        Message::assistant("I look."),
        Message::new(
            Role::Assistant,
            vec![
                ToolCall::new("a.1", "f", "{}").into(),
                Part::text("So."),
                ToolCall::new("a.2", "f", "").into(),
            ],
        ),
        Message::tool_results([ToolResult::new("a.1", "found")]),
        Message::user(" "),
        Message::tool_results([ToolResult::error("a.2", "")]),
        Message::user("three"),
    ];
    assert_eq!(
        written(&messages),
        json!({
            "system": [{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind."}],
            "messages": [
                {"role": "user", "content": [
                    {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]},
                {"role": "assistant", "content": [
                    {"type": "text", "text": "I look."}, {"type": "text", "text": "So."},
                    {"type": "tool_use", "id": "a_1", "name": "f", "input": {}},
                    {"type": "tool_use", "id": "a_2", "name": "f", "input": {}}]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "a_1", "content": "found"},
                    {"type": "tool_result", "tool_use_id": "a_2", "content": "", "is_error": true},
                    {"type": "text", "text": "three"}]},
            ],
        })
    );
}

#[test]
fn call_ids_become_valid_within_their_round_and_results_are_matched_by_occurrence() {
    let ids =
        [None, Some(""), Some("call_1"), Some("same"), Some("same"), Some("a b"), Some("a_b")];
    let call = |id: Option<&str>| {
        let mut call = ToolCall::without_id("f", "{}");
        call.id = id.map(str::to_owned);
        call
    };
    let round = [
        Message::tool_calls(ids.map(call)),
        Message::tool_results(ids.map(|id| {
            let mut result = ToolResult::new("", "r");
            result.call_id = id.map(str::to_owned);
            result
        })),
    ];
    let json = written_messages(round.iter().chain(&round));
    let of = |message: usize, field: &str| -> Vec<String> {
        let blocks = json[message]["content"].as_array().unwrap().iter();
        blocks.map(|block| block[field].as_str().unwrap().to_owned()).collect()
    };
    let expected = ["call_0", "call_1", "call_1_2", "same", "same_2", "a_b", "a_b_2"];
    assert_eq!(of(0, "id"), expected);
    assert_eq!(of(1, "tool_use_id"), expected);
    assert_eq!((of(2, "id"), of(3, "tool_use_id")), (of(0, "id"), of(1, "tool_use_id")));
}

#[test]
fn arguments_that_are_not_an_object_become_an_object() {
    for (arguments, input) in [
        ("", json!({})),
        (" ", json!({})),
        ("null", json!({})),
        ("[1]", json!({"arguments": "[1]"})),
        (r#"{"city": "Pa"#, json!({"arguments": r#"{"city": "Pa"#})),
        (r#"{"a":"\ud800"}"#, json!({"arguments": r#"{"a":"\ud800"}"#})),
        ("{\"a\": 1}\n", json!({"a": 1})),
    ] {
        let message = Message::tool_calls([ToolCall::new("c", "f", arguments)]);
        assert_eq!(written_messages([&message])[0]["content"][0]["input"], input);
    }
}

#[test]
fn parts_that_the_service_would_refuse_or_not_understand_are_omitted() {
    let elsewhere = |item: &str| Native::new("elsewhere", item.parse().unwrap());
    let mut search = ToolCall::new("ws_1", "web_search", "{}");
    search.provider_executed = true;
    let mut thought = Reasoning::new("hm");
    thought.native = Some(elsewhere(r#"{"type":"thinking","signature":"s"}"#));
    let mut unsigned = Reasoning::new("hm");
    unsigned.native = Some(Native::new(WIRE, r#"{"type":"thinking"}"#.parse().unwrap()));
    let mut kept = Reasoning::new("last");
    kept.native =
        Some(Native::new(WIRE, r#"{"type":"thinking","signature":"s"}"#.parse().unwrap()));
    let request = ApprovalRequest::new("r", ToolCall::new("c", "pay", "{}"), true);
    let messages = [
        Message::user("hi"),
        Message::new(
            Role::Assistant,
            vec![
                thought.into(),
                unsigned.into(),
                Reasoning::new("hm").into(),
                search.into(),
                ToolResult::new("ws_1", "pages").into(),
                Part::text("\n\n"),
                elsewhere(r#"{"type":"text","text":"x"}"#).into(),
                ErrorPart::new("overloaded").into(),
                Media::new("image/png", MediaSource::Base64("AA".to_owned())).into(),
                request.clone().into(),
                kept.into(),
            ],
        ),
        Message::new(
            Role::User,
            vec![
                request.approve().into(),
                Media::new("audio/wav", MediaSource::Base64("AA".to_owned())).into(),
            ],
        ),
        Message::user("bye"),
    ];
    assert_eq!(
        written(&messages),
        json!({"messages": [{"role": "user", "content": [
            {"type": "text", "text": "hi"}, {"type": "text", "text": "bye"}]}]})
    );
}

#[test]
fn an_empty_message_is_written_only_if_it_is_the_last_and_of_the_assistant() {
    let json = json!([
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": []},
        {"role": "user", "content": "there?"},
        {"role": "assistant", "content": ""},
    ]);
    let messages = parse_messages(&json.to_string()).unwrap();
    assert_eq!(
        written_messages(&messages),
        json!([
            {"role": "user", "content": [
                {"type": "text", "text": "hi"}, {"type": "text", "text": "there?"}]},
            {"role": "assistant", "content": ""},
        ])
    );
    assert_eq!(written_messages(&messages[..1]), json!([{"role": "user", "content": "hi"}]));
}

#[test]
fn an_answer_is_sent_again_as_it_was_received() {
    let answer = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": "m",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {}},
        ],
        "stop_reason": "tool_use", "stop_sequence": null, "usage": {"input_tokens": 1},
    });
    let message = parse_answer(&answer.to_string()).unwrap();
    let calls: Vec<&ToolCall> = message.calls().collect();
    assert_eq!(calls, [&ToolCall::new("toolu_1", "look", "{}")]);
    assert_eq!(
        written_messages([&message]),
        json!([{"role": "assistant", "content": answer["content"]}])
    );
}

#[test]
fn an_invalid_conversation_is_a_typed_error() {
    let error = |json: Value| parse_messages(&json.to_string()).unwrap_err();
    assert!(matches!(error(json!({})), WireError::Json { .. }));
    let inner = |json: Value| match error(json!([{"role": "user", "content": "hi"}, json])) {
        WireError::InMessage { index: 1, source } => *source,
        error => panic!("{error}"),
    };
    let block = |block: Value| inner(json!({"role": "assistant", "content": [block]}));
    assert!(matches!(inner(json!(1)), WireError::Json { .. }));
    assert!(matches!(inner(json!({"content": "x"})), WireError::Field { field: "role", .. }));
    assert!(
        matches!(inner(json!({"role": "tool"})), WireError::UnknownRole { role } if role == "tool")
    );
    assert!(matches!(inner(json!({"role": "user"})), WireError::Field { field: "content", .. }));
    assert!(matches!(inner(json!({"role": "user", "content": 1})), WireError::Json { .. }));
    assert!(matches!(block(json!("x")), WireError::Json { .. }));
    assert!(matches!(block(json!({"text": "x"})), WireError::Field { field: "type", .. }));
    assert!(matches!(
        block(json!({"type": "tool_use", "id": "c", "input": {}})),
        WireError::Field { field: "name", .. }
    ));
    assert!(matches!(
        block(json!({"type": "x", "role": "user"})),
        WireError::Field { field: "type", .. }
    ));
    assert!(matches!(parse_body("{}"), Err(WireError::Field { field: "messages", .. })));
    assert!(matches!(parse_system("1"), Err(WireError::Json { .. })));
    let overloaded = r#"{"type":"error","error":{"type":"overloaded_error","message":"x"}}"#;
    assert!(matches!(parse_answer(overloaded), Err(WireError::Field { field: "content", .. })));
}
