//! Tests of converting single Gemini contents to messages, and messages of other wires to contents.

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role,
    ToolCall, ToolResult,
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::{
    WireError,
    gemini::{Unsigned, WIRE, parse_answer, parse_body, parse_contents, render_messages},
};

fn contents(messages: &[Message]) -> Value {
    serde_json::to_value(render_messages(messages, Unsigned::AsRecorded).contents).unwrap()
}

fn signed(messages: &[Message]) -> Value {
    serde_json::to_value(render_messages(messages, Unsigned::StandIn).contents).unwrap()
}

fn parse(content: &Value) -> Message {
    parse_contents(&json!([content]).to_string()).unwrap().remove(0)
}

fn part(role: &str, part: &Value) -> Part {
    let message = parse(&json!({"role": role, "parts": [part]}));
    assert_eq!(message.parts.len(), 1, "{message:?}");
    message.parts[0].clone()
}

fn assert_valid(messages: &[Message]) {
    validate(Wire::Gemini, &json!({"contents": contents(messages)})).unwrap();
}

fn assert_exact(written: &Value) {
    let messages = parse_contents(&written.to_string()).unwrap();
    assert_eq!(&contents(&messages), written);
}

#[test]
fn an_ordinary_conversation_is_read_without_native_items() {
    let body = json!({
        "systemInstruction": {"parts": [{"text": "be brief"}]},
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [
                {"text": "one moment"},
                {"functionCall": {"id": "c1", "name": "look", "args": {"at": "it"}}},
            ]},
            {"role": "user", "parts": [
                {"functionResponse": {"id": "c1", "name": "look", "response": {"output": "seen"}}},
            ]},
        ],
    });
    let mut result = ToolResult::new("c1", "seen");
    result.name = Some("look".to_owned());
    let call = ToolCall::new("c1", "look", r#"{"at":"it"}"#);
    let expected = [
        Message::system("be brief"),
        Message::user("hi"),
        Message::new(Role::Assistant, vec![Part::text("one moment"), call.into()]),
        Message::tool_results([result]),
    ];
    assert_eq!(parse_body(&body.to_string()).unwrap(), expected);
    let written = render_messages(&expected, Unsigned::AsRecorded);
    assert_eq!(serde_json::to_value(written.contents).unwrap(), body["contents"]);
    let system: Value = written.system_instruction.unwrap().parse().unwrap();
    assert_eq!(system, body["systemInstruction"]);
}

#[test]
fn a_thought_is_read_as_reasoning_and_written_with_its_signature() {
    let json = json!({"text": "hm", "thought": true, "thoughtSignature": "c2k="});
    let Part::Reasoning(mut reasoning) = part("model", &json) else { panic!("no reasoning") };
    assert_eq!(reasoning.text, "hm");
    assert!(!reasoning.native.as_ref().unwrap().item.get().contains("hm"));
    reasoning.text = "redacted".to_owned();
    let message = Message::new(Role::Assistant, vec![reasoning.into()]);
    let expected = json!({"text": "redacted", "thought": true, "thoughtSignature": "c2k="});
    assert_eq!(contents(&[message])[0]["parts"], json!([expected]));
}

#[test]
fn both_spellings_of_field_names_and_unknown_fields_are_written_as_read() {
    assert_exact(&json!([
        {"role": "user", "parts": [
            {"inline_data": {"mime_type": "image/png", "data": "AA"}, "video_metadata": {"fps": 2}},
            {"inlineData": {"mimeType": "image/png", "data": "AA", "displayName": "a"}},
            {"file_data": {"file_uri": "gs://a/b", "mime_type": "audio/mpeg"}},
            {"fileData": {"fileUri": "https://a.example/b"}},
        ]},
        {"role": "model", "new": 1, "parts": [
            {"function_call": {"name": "f", "args": {"x": 1.50}, "new": [2]},
             "thought_signature": "c2k=", "thought": false},
            {"functionCall": {"name": "g", "args": null, "id": ""}, "text": null},
        ]},
        {"parts": [
            {"function_response": {"name": "f", "response": {"result": {"a": 1}}, "willContinue": false}},
            {"functionResponse": {"name": "g", "response": {"return_value": "x"}}, "thought": false},
        ]},
        {"role": "model", "parts": [{"executableCode": {"language": "PYTHON", "code": "1"}}, {
            "codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}}, {"text": "", "thoughtSignature": "c2k="}]},
        {"role": "function", "parts": [{"new_part": {}}]},
    ]));
}

#[test]
fn consecutive_contents_of_one_role_are_written_as_separate_contents() {
    let response = |name| json!({"functionResponse": {"name": name, "response": {"output": "x"}}});
    assert_exact(&json!([
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "user", "parts": [{"text": "b"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
        {"role": "model", "parts": [{"functionCall": {"name": "g", "args": {}}}]},
        {"role": "user", "parts": [response("f")]},
        {"role": "user", "parts": [response("g")]},
        {"role": "user", "parts": [{"text": "c"}]},
    ]));
}

#[test]
fn a_single_part_in_place_of_a_list_is_written_as_a_single_part() {
    let system = json!({"parts": {"text": "be brief"}});
    let body = json!({"system_instruction": system, "contents": []});
    let messages = parse_body(&body.to_string()).unwrap();
    assert_eq!(messages[0].text(), "be brief");
    let written = render_messages(&messages, Unsigned::AsRecorded).system_instruction.unwrap();
    assert_eq!(written.parse::<Value>().unwrap(), system);
}

#[test]
fn the_response_of_a_result_is_read_as_its_text_and_a_changed_text_is_written() {
    for (response, text, is_error) in [
        (json!({"output": "12"}), "12", false),
        (json!({"result": "12"}), "12", false),
        (json!({"error": "no such city"}), "no such city", true),
        (json!({"degrees": 12}), r#"{"degrees":12}"#, false),
        (json!({"error": {"code": 1}}), r#"{"error":{"code":1}}"#, true),
        (json!({"output": r#"{"a":1}"#}), r#"{"a":1}"#, false),
    ] {
        let json = json!({"functionResponse": {"name": "f", "response": response}});
        let Part::ToolResult(result) = part("user", &json) else { panic!("no result") };
        assert_eq!((result.text().as_str(), result.is_error), (text, is_error));
        let mut changed = result.clone();
        changed.content = vec![Part::text("[redacted]")];
        let replaced = result.with_content(changed.content.clone());
        for result in [changed, replaced] {
            let written = contents(&[Message::tool_results([result])]).to_string();
            assert!(written.contains("[redacted]"), "{written}");
            assert!(!written.contains("12") && !written.contains("city"), "{written}");
        }
    }
}

#[test]
fn a_failed_result_and_an_empty_result_are_written_as_objects() {
    let call = |id| ToolCall::new(id, "f", "{}");
    let mut empty = ToolResult::new("b", "");
    empty.content.clear();
    let messages = [
        Message::user("go"),
        Message::tool_calls([call("a"), call("b")]),
        Message::tool_results([ToolResult::error("a", "no"), empty]),
    ];
    let written = contents(&messages);
    let response = |index: usize| &written[2]["parts"][index]["functionResponse"]["response"];
    assert_eq!((response(0), response(1)), (&json!({"error": "no"}), &json!({"output": ""})));
}

#[test]
fn a_changed_call_is_written_with_its_changes_and_its_signature() {
    let json =
        json!({"functionCall": {"name": "f", "args": {"a": "secret"}}, "thoughtSignature": "c2k="});
    let Part::ToolCall(mut call) = part("model", &json) else { panic!("no call") };
    assert!(!call.native.as_ref().unwrap().item.get().contains("secret"));
    call.arguments = r#"{"a":"-"}"#.to_owned();
    let written = contents(&[Message::user("go"), Message::tool_calls([call])]);
    let expected =
        json!({"functionCall": {"name": "f", "args": {"a": "-"}}, "thoughtSignature": "c2k="});
    assert_eq!(written[1]["parts"], json!([expected]));
}

#[test]
fn media_inside_a_function_response_are_read_as_media_of_the_result() {
    let json = json!({"functionResponse": {
        "name": "f",
        "response": {"output": "see"},
        "parts": [{"inlineData": {"mimeType": "image/png", "data": "AA"}}],
    }});
    let Part::ToolResult(result) = part("user", &json) else { panic!("no result") };
    assert!(matches!(&result.content[1], Part::Media(media) if media.media_type == "image/png"));
    assert_exact(&json!([{"role": "user", "parts": [json]}]));
}

#[test]
fn arguments_of_any_form_are_written_as_an_object() {
    for (text, expected) in [
        (r#"{"a": 1}"#, json!({"name": "f", "args": {"a": 1}})),
        ("", json!({"name": "f"})),
        ("null", json!({"name": "f", "args": {}})),
        (r#"{"a": "#, json!({"name": "f", "args": {"arguments": r#"{"a": "#}})),
        ("[1]", json!({"name": "f", "args": {"arguments": "[1]"}})),
    ] {
        let message = Message::tool_calls([ToolCall::without_id("f", text)]);
        let written = contents(&[Message::user("go"), message]);
        assert_eq!(written[1]["parts"][0]["functionCall"], expected, "{text}");
    }
}

#[test]
fn results_are_written_with_the_ids_and_names_of_their_calls() {
    let mut by_name = ToolResult::new("", "2");
    (by_name.call_id, by_name.name) = (None, Some("g".to_owned()));
    let messages = [
        Message::user("go"),
        Message::tool_calls([
            ToolCall::new("a", "f", "{}"),
            ToolCall::without_id("g", "{}"),
            ToolCall::new("", "h", "{}"),
            ToolCall::new("b", "f", "{}"),
        ]),
        Message::tool_results([ToolResult::new("b", "4")]),
        Message::tool_results([by_name]),
        Message::tool_results([ToolResult::new("", "3"), ToolResult::new("a", "1")]),
    ];
    let response = |name, output| json!({"name": name, "response": {"output": output}});
    let with_id =
        |id, name, output| json!({"id": id, "name": name, "response": {"output": output}});
    let written = contents(&messages);
    let found: Vec<&Value> = written[2]["parts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["functionResponse"])
        .collect();
    let expected = [
        &with_id("b", "f", "4"),
        &response("g", "2"),
        &response("h", "3"),
        &with_id("a", "f", "1"),
    ];
    assert_eq!(found, expected);
    assert_valid(&messages);
}

#[test]
fn the_results_of_a_round_are_written_first_and_in_one_content() {
    let image = Media::new("image/png", MediaSource::Base64("AA".to_owned()));
    let mut first = ToolResult::new("a", "1");
    first.content.push(image.into());
    let messages = [
        Message::user("go"),
        Message::tool_calls([ToolCall::new("a", "f", "{}"), ToolCall::new("b", "f", "{}")]),
        Message::user("wait"),
        Message::tool_results([first]),
        Message::system("hurry"),
        Message::tool_results([ToolResult::new("b", "2")]),
        Message::user("now?"),
    ];
    assert_valid(&messages);
    let written = contents(&messages);
    let kinds: Vec<String> = written[2]["parts"].as_array().unwrap().iter().map(kind).collect();
    assert_eq!(kinds, ["functionResponse", "functionResponse", "text", "inlineData"]);
    assert_eq!(written[3]["parts"], json!([{"text": "now?"}]));
    assert_eq!(written.as_array().unwrap().len(), 4);
}

fn kind(part: &Value) -> String {
    part.as_object().unwrap().keys().next().unwrap().clone()
}

#[test]
fn all_system_messages_become_the_instruction() {
    let developer = Message::new(Role::Developer, vec![Part::text("b")]);
    let messages = [Message::system("a"), Message::user("hi"), developer];
    let written = render_messages(&messages, Unsigned::AsRecorded);
    let system: Value = written.system_instruction.unwrap().parse().unwrap();
    assert_eq!(system, json!({"parts": [{"text": "a"}, {"text": "b"}]}));
    assert_eq!(written.contents.len(), 1);
    assert_eq!(
        render_messages(&[Message::user("hi")], Unsigned::AsRecorded).system_instruction,
        None
    );
}

#[test]
fn an_empty_user_content_is_written_before_a_conversation_that_begins_with_a_call() {
    let messages = [
        Message::assistant("hello"),
        Message::tool_calls([ToolCall::new("a", "f", "{}")]),
        Message::tool_results([ToolResult::new("a", "1")]),
    ];
    assert_valid(&messages);
    assert_eq!(contents(&messages)[0], json!({"role": "user", "parts": [{"text": ""}]}));
    assert_eq!(contents(&messages[..1]).as_array().unwrap().len(), 1);
}

#[test]
fn items_of_other_wires_errors_and_approvals_are_omitted() {
    let foreign = Native::new("openai-responses", r#"{"type":"reasoning"}"#.parse().unwrap());
    let mut reasoning = Reasoning::new("hm");
    reasoning.native = Some(foreign.clone());
    let mut search = ToolCall::new("s", "search", "{}");
    search.provider_executed = true;
    let waiting = ToolCall::new("w", "pay", "{}");
    let assistant = Message::new(
        Role::Assistant,
        vec![
            reasoning.into(),
            Reasoning::new("hm").into(),
            foreign.into(),
            search.into(),
            ToolResult::new("s", "found").into(),
            ErrorPart::new("no").into(),
            ApprovalRequest::new("r", waiting, true).into(),
        ],
    );
    let file = Media::new("image/png", MediaSource::File("file-1".to_owned()));
    let user = Message::new(Role::User, vec![file.into(), Part::text("hi")]);
    assert_eq!(
        contents(&[assistant, user, Message::new(Role::User, Vec::new())]),
        json!([{"role": "user", "parts": [{"text": "hi"}]}])
    );
}

#[test]
fn results_in_an_assistant_message_are_written_in_a_user_content() {
    let aggregate = Message::new(
        Role::Assistant,
        vec![ToolCall::new("a", "f", "{}").into(), ToolResult::new("a", "1").into()],
    );
    let messages = [Message::user("go"), aggregate, Message::assistant("done")];
    assert_valid(&messages);
    assert_eq!(contents(&messages).as_array().unwrap().len(), 4);
}

#[test]
fn the_first_call_of_a_content_gets_a_stand_in_signature_if_requested() {
    let recorded = parse(&json!({"role": "model", "parts": [
        {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "c2k="},
        {"functionCall": {"name": "g", "args": {}}},
    ]}));
    let stand_in = json!("c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I=");
    let signatures = |message: &Message| -> Vec<Value> {
        let written = signed(&[Message::user("go"), message.clone()]);
        let parts = written[1]["parts"].as_array().unwrap();
        parts.iter().map(|part| part["thoughtSignature"].clone()).collect()
    };
    assert_eq!(signatures(&recorded), [json!("c2k="), Value::Null]);
    let dropped = recorded.with_parts(recorded.parts[1..].to_vec());
    assert_eq!(signatures(&dropped), [stand_in]);
    assert!(!contents(&[dropped]).to_string().contains("thoughtSignature"));
}

#[test]
fn addresses_of_uploaded_files_are_distinguished_from_other_addresses() {
    let uploaded = "https://generativelanguage.googleapis.com/v1beta/files/a";
    let uri = |uri: &str| json!({"fileData": {"fileUri": uri, "mimeType": "audio/mpeg"}});
    let Part::Media(media) = part("user", &uri(uploaded)) else { panic!("no media") };
    assert_eq!(media, Media::new("audio/mpeg", MediaSource::File(uploaded.to_owned())));
    let Part::Media(media) = part("user", &uri("gs://a/b")) else { panic!("no media") };
    assert_eq!(media, Media::new("audio/mpeg", MediaSource::Url("gs://a/b".to_owned())));
    let image = Media::new("image/*", MediaSource::Url("https://a.example/b".to_owned()));
    let written = contents(&[Message::new(Role::User, vec![image.into()])]);
    assert_eq!(written[0]["parts"][0], json!({"fileData": {"fileUri": "https://a.example/b"}}));
}

#[test]
fn every_candidate_of_an_answer_is_read_as_a_message() {
    let answer = json!({"candidates": [
        {"content": {"parts": [{"text": "a"}]}, "finishReason": "STOP"},
        {"content": {"role": "model"}, "finishReason": "MAX_TOKENS"},
        {"finishReason": "SAFETY"},
    ], "usageMetadata": {}});
    let nothing = Message::new(Role::Assistant, Vec::new());
    let expected = [Message::assistant("a"), nothing.clone(), nothing];
    assert_eq!(parse_answer(&answer.to_string()).unwrap(), expected);
    assert_eq!(parse_answer(r#"{"promptFeedback": {"blockReason": "OTHER"}}"#).unwrap(), []);
}

#[test]
fn an_invalid_conversation_is_a_typed_error() {
    let refuse = |contents: Value| parse_contents(&contents.to_string()).unwrap_err();
    let nested = |error: WireError| match error {
        WireError::InMessage { index: 0, source } => *source,
        other => panic!("{other:?}"),
    };
    assert!(matches!(refuse(json!({})), WireError::Json { .. }));
    assert!(matches!(nested(refuse(json!([1]))), WireError::Json { .. }));
    assert!(matches!(nested(refuse(json!([{"role": 1}]))), WireError::Field { .. }));
    assert!(matches!(nested(refuse(json!([{"parts": "x"}]))), WireError::Json { .. }));
    let confusing = json!([{"parts": [{"parts": null}]}]);
    assert!(matches!(nested(refuse(confusing)), WireError::Field { .. }));
    let error = nested(refuse(json!([{"role": "assistant"}])));
    assert!(matches!(error, WireError::UnknownRole { role } if role == "assistant"));
    assert!(matches!(parse_body("{}"), Err(WireError::Field { field: "contents", .. })));
    let user = r#"{"candidates": [{"content": {"role": "user", "parts": []}}]}"#;
    assert!(matches!(parse_answer(user), Err(WireError::InMessage { index: 0, .. })));
}

#[test]
fn an_envelope_item_is_not_written_as_a_part() {
    let envelope = Native::new(WIRE, r#"{"role":"model","parts":null,"x":1}"#.parse().unwrap());
    let user = Message::new(Role::User, vec![envelope.into(), Part::text("hi")]);
    assert_eq!(contents(&[user]), json!([{"role": "user", "parts": [{"text": "hi"}], "x": 1}]));
}
