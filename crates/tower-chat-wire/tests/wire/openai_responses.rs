//! Tests of reading and writing single items of OpenAI Responses.

use serde_json::{Value, json};
use tower_chat_core::{
    ApprovalRequest, ErrorPart, Media, MediaSource, Message, Native, Part, Reasoning, Role,
    ToolCall, ToolResult, format,
};
use tower_chat_testkit::validate::{Wire, validate};
use tower_chat_wire::{
    WireError,
    openai_responses::{WIRE, parse_answer, parse_body, parse_input, render_input},
};

fn written<'a>(messages: impl IntoIterator<Item = &'a Message>) -> Value {
    render_input(messages).iter().map(|item| item.parse::<Value>().unwrap()).collect()
}

/// Reads items and returns their messages. Asserts that the items are written unchanged, both
/// before and after the messages were stored and loaded.
fn round_trip(items: Value) -> Vec<Message> {
    let messages = parse_input(&items.to_string()).unwrap();
    assert_eq!(written(&messages), items, "{messages:#?}");
    let stored: Vec<Message> =
        messages.iter().map(|message| format::decode(&format::encode(message)).unwrap()).collect();
    assert_eq!(written(&stored), items);
    messages
}

fn roles(messages: &[Message]) -> Vec<Role> {
    messages.iter().map(|message| message.role).collect()
}

#[test]
fn ordinary_messages_equal_the_messages_that_the_constructors_create() {
    let messages = round_trip(json!([
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "hello"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"cut"},
        {"type": "function_call_output", "call_id": "c", "output": "12"},
        {"type": "function_call_output", "call_id": "d", "output": ""},
    ]));
    let mut reply = Message::assistant("hello");
    reply.parts.push(ToolCall::new("c", "f", "{\"cut").into());
    assert_eq!(
        messages,
        [
            Message::system("Be brief."),
            Message::user("hi"),
            reply,
            Message::tool_results([ToolResult::new("c", "12"), ToolResult::new("d", "")]),
        ]
    );
}

#[test]
fn an_input_text_is_read_as_one_message_and_instructions_as_a_separate_field() {
    let body = r#"{"model":"m","input":"hi","instructions":"Be brief."}"#;
    let conversation = parse_body(body).unwrap();
    assert_eq!(conversation.instructions.as_deref(), Some("Be brief."));
    assert_eq!(conversation.messages, [Message::user("hi")]);
    assert_eq!(written(&conversation.messages), json!([{"role": "user", "content": "hi"}]));
    let conversation = parse_body(r#"{"input":[],"instructions":null}"#).unwrap();
    assert_eq!((conversation.instructions, conversation.messages.len()), (None, 0));
}

#[test]
fn the_output_of_an_answer_is_one_message_with_ids_phases_and_encrypted_reasoning() {
    let output = json!([
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "One."},
            {"type": "summary_text", "text": "Two."}], "encrypted_content": "gAAAAA==", "status": null},
        {"type": "message", "id": "msg_1", "role": "assistant", "phase": "commentary",
            "status": "completed",
            "content": [{"type": "output_text", "text": "I look.", "annotations": [], "logprobs": []}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed",
            "action": {"query": "rain", "type": "search"}},
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "f", "arguments": "{}",
            "status": "completed"},
        {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "gBBB"},
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c2", "name": "sql", "input": "select 1"},
    ]);
    let answer =
        parse_answer(&json!({"object": "response", "output": output}).to_string()).unwrap();
    assert_eq!(roles(&answer), [Role::Assistant]);
    assert_eq!(answer[0].text(), "I look.");
    assert!(matches!(&answer[0].parts[0], Part::Reasoning(found) if found.text == "One.\n\nTwo."));
    let calls: Vec<_> =
        answer[0].calls().map(|call| (call.id.as_deref(), &*call.arguments)).collect();
    assert_eq!(calls, [(Some("c1"), "{}"), (Some("c2"), "select 1")]);
    let search = answer[0].parts.iter().filter_map(Part::as_tool_call).next().unwrap();
    assert!(search.provider_executed && search.name == "web_search");
    assert_eq!(search.arguments, r#"{"query":"rain","type":"search"}"#);

    let mut history = answer;
    history.push(Message::tool_results([ToolResult::new("c1", "1"), ToolResult::new("c2", "2")]));
    let mut expected = output.as_array().unwrap().clone();
    expected.push(json!({"type": "function_call_output", "call_id": "c1", "output": "1"}));
    expected.push(json!({"type": "custom_tool_call_output", "call_id": "c2", "output": "2"}));
    assert_eq!(written(&history), json!(expected));
    round_trip(json!(expected));
}

#[test]
fn consecutive_assistant_messages_are_written_as_separate_messages() {
    let messages = round_trip(json!([
        {"role": "assistant", "content": "one"},
        {"role": "assistant", "content": [{"type": "output_text", "text": "two"}]},
        {"type": "message", "role": "assistant", "content": "three"},
        {"role": "assistant", "content": "four"},
        {"type": "message", "role": "assistant", "content": null},
        {"role": "assistant", "content": "five"},
    ]));
    assert_eq!(messages.iter().map(Message::text).collect::<String>(), "onetwothreefourfive");
}

#[test]
fn provider_specific_items_are_written_as_they_were_read() {
    let messages = round_trip(json!([
        {"type": "additional_tools", "role": "developer", "tools": [{"type": "function"}]},
        {"type": "item_reference", "id": "msg_9"},
        {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"},
        {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
        {"type": "mcp_approval_request", "id": "mcpr_1", "name": "f", "arguments": "{}", "server_label": "s"},
        {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true},
        {"type": "mcp_call", "id": "mcp_1", "name": "f", "arguments": "{}", "output": "x", "server_label": "s"},
        {"type": "code_interpreter_call", "id": "ci_1", "code": null, "outputs": [{"type": "logs"}]},
        {"type": "file_search_call", "id": "fs_1", "queries": ["a"], "results": null},
        {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"},
        {"type": "tool_search_call", "call_id": null, "execution": "server", "arguments": {"q": 1.50}},
        {"type": "tool_search_output", "call_id": null, "execution": "server", "tools": [{"name": "f"}]},
        {"type": "shell_call", "call_id": "sh_1", "environment": {"type": "container_reference"}, "action": {}},
        {"type": "shell_call_output", "call_id": "sh_1", "output": [{"stdout": "x"}]},
        {"type": "something_new", "x": [1, null]},
        {"type": "message", "id": "msg_1", "role": "assistant",
            "content": [{"type": "refusal", "refusal": "No."}, {"type": "output_text", "text": "Sorry."}]},
    ]));
    assert_eq!(roles(&messages), [Role::Developer, Role::Assistant, Role::User, Role::Assistant]);
    assert_eq!(messages.iter().flat_map(Message::calls).count(), 0);
    assert_eq!(messages.iter().flat_map(Message::results).count(), 0);
}

#[test]
fn calls_of_provider_tools_that_the_caller_runs_are_calls_that_need_results() {
    let items = json!([
        {"type": "computer_call", "id": "cu_1", "call_id": "c1", "action": {"type": "screenshot"},
            "pending_safety_checks": []},
        {"type": "shell_call", "id": "sh_1", "call_id": "c2", "action": {"commands": ["ls"]},
            "environment": {"type": "local"}},
        {"type": "apply_patch_call", "id": "ap_1", "call_id": "c3", "operation": {"type": "delete_file"}},
        {"type": "local_shell_call", "id": "ls_1", "call_id": "c4", "action": {"command": []}},
        {"type": "tool_search_call", "call_id": "c5", "execution": "client", "arguments": {"q": "x"}},
        {"type": "computer_call_output", "call_id": "c1", "acknowledged_safety_checks": [],
            "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}},
        {"type": "shell_call_output", "call_id": "c2", "max_output_length": 9,
            "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "timeout"}}]},
        {"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "no"},
        {"type": "local_shell_call_output", "call_id": "c4", "output": "b"},
        {"type": "tool_search_output", "call_id": "c5", "execution": "client", "tools": [{"name": "f"}]},
    ]);
    let messages = round_trip(items.clone());
    assert_eq!(roles(&messages), [Role::Assistant, Role::Tool]);
    let names: Vec<_> = messages[0].calls().map(|call| call.name.as_str()).collect();
    assert_eq!(names, ["computer", "shell", "apply_patch", "local_shell", "tool_search"]);
    assert_eq!(messages[0].calls().next().unwrap().arguments, r#"{"type":"screenshot"}"#);

    let mut screenshot = ToolResult::new("c1", "");
    screenshot.content = vec![Media::new("image/png", MediaSource::Base64("AA".to_owned())).into()];
    let results = Message::tool_results([
        screenshot,
        ToolResult::new("c2", "a"),
        ToolResult::error("c3", "no"),
        ToolResult::new("c4", "b"),
        ToolResult::new("c5", r#"[{"name":"f"}]"#),
    ]);
    let input = written([&messages[0], &results]);
    assert_eq!(
        input.as_array().unwrap()[5..],
        [
            json!({"type": "computer_call_output", "call_id": "c1",
                "output": {"type": "computer_screenshot", "image_url": "data:image/png;base64,AA"}}),
            json!({"type": "shell_call_output", "call_id": "c2", "output":
                [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]}),
            json!({"type": "apply_patch_call_output", "call_id": "c3", "status": "failed", "output": "no"}),
            json!({"type": "local_shell_call_output", "call_id": "c4", "output": "b"}),
            json!({"type": "tool_search_output", "call_id": "c5", "execution": "client",
                "tools": [{"name": "f"}]}),
        ]
    );
}

#[test]
fn media_are_read_as_media_parts_and_written_as_they_were_read() {
    for part in [
        json!({"type": "input_image", "image_url": "data:image/png;base64,AAAA"}),
        json!({"type": "input_image", "image_url": "https://example.org/a.png", "detail": "low"}),
        json!({"type": "input_image", "file_id": "file-1", "image_url": null}),
        json!({"type": "input_file", "file_data": "data:application/pdf;base64,AAAA", "filename": "a.pdf"}),
        json!({"type": "input_file", "file_url": "https://example.org/a.pdf"}),
        json!({"type": "input_file", "file_id": "file-1"}),
        json!({"type": "input_audio", "input_audio": {"data": "AAAA", "format": "mp3"}}),
    ] {
        let messages = round_trip(json!([{"role": "user", "content": [part]},
            {"type": "function_call_output", "call_id": "c", "output": [part]}]));
        assert!(matches!(messages[0].parts[..], [Part::Media(_)]), "{part}");
        let result = messages[1].results().next().unwrap();
        assert!(matches!(result.content[..], [Part::Media(_)]), "{part}");
    }
    for part in [
        json!({"type": "input_file", "file_data": "AAAA", "filename": "raw base64"}),
        json!({"type": "input_image", "file_id": "a", "image_url": "b"}),
        json!({"type": "input_image"}),
        json!({"type": "input_audio", "input_audio": "AAAA"}),
    ] {
        let messages = round_trip(json!([{"role": "user", "content": [part]}]));
        assert!(matches!(messages[0].parts[..], [Part::Native(_)]), "{part}");
    }
}

#[test]
fn a_changed_field_is_written_with_its_new_value() {
    let mut messages = round_trip(json!([
        {"type": "reasoning", "id": "rs", "encrypted_content": "g",
            "summary": [{"type": "summary_text", "text": "old"}],
            "content": [{"type": "reasoning_text", "text": "old"}]},
        {"type": "message", "id": "m", "role": "assistant",
            "content": [{"type": "output_text", "text": "old", "annotations": [1]}]},
        {"type": "function_call", "id": "fc", "call_id": "old", "name": "old", "arguments": {"old": 1}},
        {"type": "function_call_output", "id": "fo", "call_id": "old", "output": {"old": 1}},
    ]));
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        match part {
            Part::Text(text) => text.text = "new".to_owned(),
            Part::Reasoning(reasoning) => reasoning.text = "new".to_owned(),
            Part::ToolCall(call) => {
                call.id = Some("new".to_owned());
                call.name = "new".to_owned();
                call.arguments = "no json".to_owned();
            }
            Part::ToolResult(result) => {
                result.call_id = Some("new".to_owned());
                result.content = vec![Part::text("new")];
            }
            _ => {}
        }
    }
    let input = written(&messages);
    assert_eq!(
        input,
        json!([
            {"type": "reasoning", "id": "rs", "encrypted_content": "g",
                "summary": [{"type": "summary_text", "text": "new"}]},
            {"type": "message", "id": "m", "role": "assistant",
                "content": [{"type": "output_text", "text": "new", "annotations": [1]}]},
            {"type": "function_call", "id": "fc", "call_id": "new", "name": "new", "arguments": "no json"},
            {"type": "function_call_output", "id": "fo", "call_id": "new", "output": "new"},
        ])
    );
    messages[0].parts.retain(|part| part.as_text().is_none() && part.as_tool_call().is_none());
    assert_eq!(written(&messages[..1]), json!([]), "reasoning without a next item is omitted");
}

#[test]
fn call_ids_become_distinct_and_depend_only_on_earlier_messages() {
    let long = "x".repeat(80);
    let round = |ids: [Option<&str>; 2]| {
        let call = |id: Option<&str>| {
            let mut call = ToolCall::without_id("f", "{}");
            call.id = id.map(String::from);
            call
        };
        let result = |id: Option<&str>| {
            let mut result = ToolResult::new("", "12");
            result.call_id = id.map(String::from);
            result
        };
        [Message::tool_calls(ids.map(call)), Message::tool_results(ids.map(result))]
    };
    let mut messages = Vec::new();
    messages.extend(round([Some("a"), Some("a")]));
    messages.extend(round([None, Some("")]));
    messages.extend(round([Some("a"), Some("b")]));
    messages.extend(round([Some(&long), Some("a_1")]));
    let input = written(&messages);
    validate(Wire::OpenAiResponses, &json!({ "input": input })).unwrap();
    let ids: Vec<&str> =
        input.as_array().unwrap().iter().map(|item| item["call_id"].as_str().unwrap()).collect();
    assert_eq!(ids[..4], ["a", "a_1", "a", "a_1"]);
    assert!(ids.iter().all(|id| id.chars().count() <= 64));
    for count in 1..=messages.len() {
        let shorter = written(&messages[..count]);
        let shorter = shorter.as_array().unwrap();
        assert_eq!(shorter[..], input.as_array().unwrap()[..shorter.len()]);
    }
}

#[test]
fn outputs_are_written_before_messages_between_the_calls_and_the_results() {
    let aggregate = Message::new(
        Role::Assistant,
        vec![
            Part::text("I look."),
            ToolCall::new("a", "f", "{}").into(),
            ToolCall::new("b", "f", "{}").into(),
            Part::text("One moment."),
        ],
    );
    let results = Message::new(
        Role::User,
        vec![
            Part::text("Well?"),
            ToolResult::new("a", "1").into(),
            ToolResult::new("b", "2").into(),
        ],
    );
    let input = written([&aggregate, &results]);
    let order: Vec<&Value> = input
        .as_array()
        .unwrap()
        .iter()
        .map(|item| item.get("content").or(item.get("output")).unwrap_or(&item["call_id"]))
        .collect();
    assert_eq!(order, ["I look.", "a", "b", "1", "2", "One moment.", "Well?"]);
    validate(Wire::OpenAiResponses, &json!({ "input": input })).unwrap();

    let reasoned = json!([
        {"type": "function_call", "call_id": "a", "name": "f", "arguments": "{}"},
        {"type": "reasoning", "id": "rs_1", "summary": []},
        {"type": "message", "id": "msg_1", "role": "assistant", "content": "Hm."},
        {"type": "function_call_output", "call_id": "a", "output": "1"},
    ]);
    let input = written(&parse_input(&reasoned.to_string()).unwrap());
    assert_eq!(input, json!([reasoned[0], reasoned[3], reasoned[1], reasoned[2]]));
}

#[test]
fn parts_that_the_wire_cannot_represent_are_omitted() {
    let foreign = Native::new("anthropic", r#"{"type":"thinking"}"#.parse().unwrap());
    let call = ToolCall::new("c", "f", "{}");
    let mut by_provider = ToolCall::new("srv", "web_search", "{}");
    by_provider.provider_executed = true;
    by_provider.native = Some(foreign.clone());
    let mut thinking = Reasoning::new("hm");
    thinking.native = Some(foreign.clone());
    let everything = Message::new(
        Role::Assistant,
        vec![
            thinking.into(),
            Reasoning::new("hm").into(),
            foreign.clone().into(),
            by_provider.into(),
            ToolResult::new("srv", "found").into(),
            ErrorPart::new("overloaded").into(),
            Part::text("one"),
            ApprovalRequest::new("a", call.clone(), true).into(),
            ApprovalRequest::new("a", call.clone(), true).approve().into(),
            Part::text("two"),
            call.into(),
        ],
    );
    let before = everything.clone();
    let mut empty = ToolResult::error("c", "");
    empty.content = vec![foreign.into()];
    assert_eq!(
        written([
            &everything,
            &Message::tool_results([empty]),
            &Message::new(Role::User, vec![]),
            &Message::new(Role::Assistant, vec![])
        ]),
        json!([
            {"role": "assistant", "content": [{"type": "output_text", "text": "one"},
                {"type": "output_text", "text": "two"}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": ""},
            {"role": "user", "content": ""},
        ])
    );
    assert_eq!(everything, before);
}

#[test]
fn results_of_calls_that_only_the_service_stores_are_written_with_their_ids() {
    let body = json!({"previous_response_id": "resp_1", "input": [
        {"type": "function_call_output", "call_id": "call_9", "output": "12"},
        {"role": "user", "content": "And now?"},
    ]});
    let messages = parse_body(&body.to_string()).unwrap().messages;
    assert_eq!(written(&messages), body["input"]);
    let own = Message::tool_results([ToolResult::new("call_9", "12")]);
    assert_eq!(written([&own])[0], body["input"][0]);
}

#[test]
fn an_invalid_input_is_a_typed_error() {
    assert!(matches!(parse_input("{"), Err(WireError::Json { .. })));
    assert!(matches!(parse_input("{}"), Err(WireError::Json { .. })));
    assert!(matches!(parse_input("5"), Err(WireError::Json { .. })));
    assert!(matches!(parse_body("[]"), Err(WireError::Json { .. })));
    assert!(matches!(parse_body("{}"), Err(WireError::Field { field: "input", .. })));
    let body = r#"{"input":"x","instructions":[]}"#;
    assert!(matches!(parse_body(body), Err(WireError::Field { field: "instructions", .. })));
    assert!(matches!(parse_answer("{}"), Err(WireError::Field { field: "output", .. })));
    for (item, is_expected) in [
        ("5", (|error| matches!(error, WireError::Json { .. })) as fn(&WireError) -> bool),
        ("{}", |error| matches!(error, WireError::Field { field: "role", .. })),
        (r#"{"role":"king","content":""}"#, |error| matches!(error, WireError::UnknownRole { .. })),
        (r#"{"role":"tool","content":""}"#, |error| matches!(error, WireError::UnknownRole { .. })),
        (r#"{"role":"user"}"#, |error| matches!(error, WireError::Field { field: "content", .. })),
        (r#"{"role":"user","content":5}"#, |error| matches!(error, WireError::Json { .. })),
        (r#"{"type":"function_call"}"#, |error| {
            matches!(error, WireError::Field { field: "name", .. })
        }),
    ] {
        let json = format!(r#"["bare",{item}]"#).replacen(
            r#""bare""#,
            r#"{"role":"user","content":"x"}"#,
            1,
        );
        match parse_input(&json).unwrap_err() {
            WireError::InMessage { index: 1, source } => {
                assert!(is_expected(&source), "{source:?}")
            }
            error => panic!("{item}: {error:?}"),
        }
    }
    assert_eq!(WIRE, Wire::OpenAiResponses.name());
}

/// Returns the items that are written after [`Replay`](tower_chat::replay::Replay) has removed the
/// calls without results.
fn replayed(items: &Value) -> Value {
    let mut replay = tower_chat::replay::Replay::new(tower_chat::replay::DanglingCalls::Drop);
    for message in parse_input(&items.to_string()).unwrap() {
        replay.push(&std::sync::Arc::new(message));
    }
    let view = replay.view();
    written(view.iter().map(|message| &**message))
}

#[test]
fn an_output_is_written_with_the_type_that_it_was_read_with() {
    let calls = [
        json!({"type": "tool_search_call", "call_id": "c1", "execution": "client", "arguments": {}}),
        json!({"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"}),
        json!({"type": "shell_call", "call_id": "c1", "action": {}, "environment": {"type": "local"}}),
        json!({"type": "apply_patch_call", "call_id": "c1", "operation": {}}),
        json!({"type": "computer_call", "call_id": "c1", "action": {}}),
        json!({"type": "local_shell_call", "call_id": "c1", "action": {}}),
        json!({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}),
    ];
    for call in calls {
        for output in ["function_call_output", "custom_tool_call_output", "apply_patch_call_output"]
        {
            let answered = json!([
                call,
                {"type": output, "call_id": "c1", "output": format!("{output} says 12")},
            ]);
            round_trip(answered.clone());
            assert_eq!(replayed(&answered), answered);
            if output == "function_call_output" {
                validate(Wire::OpenAiResponses, &json!({ "input": answered })).unwrap();
            }
        }
    }
    // A result that is not a list of tools is written as the output of a function.
    let search = parse_input(
        &json!([
            {"type": "tool_search_call", "call_id": "c5", "execution": "client", "arguments": {}},
        ])
        .to_string(),
    );
    let results = Message::tool_results([ToolResult::new("c5", "nothing found")]);
    let input = written([&search.unwrap()[0], &results]);
    let expected =
        json!({"type": "function_call_output", "call_id": "c5", "output": "nothing found"});
    assert_eq!(input[1], expected);
}

#[test]
fn reasoning_before_a_message_without_an_id_is_written_without_its_id() {
    let reasoning = |id: &str, content: Value| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": content});
    let reply = json!({"role": "assistant", "content": "It is 12."});
    let refused =
        json!([{"role": "user", "content": "q"}, reasoning("rs_1", "gAAA".into()), reply]);
    validate(Wire::OpenAiResponses, &json!({ "input": refused })).unwrap_err();
    let messages = parse_input(&refused.to_string()).unwrap();
    let expected = json!([
        {"role": "user", "content": "q"},
        {"type": "reasoning", "summary": [], "encrypted_content": "gAAA"},
        reply,
    ]);
    assert_eq!(written(&messages), expected);
    validate(Wire::OpenAiResponses, &json!({ "input": expected })).unwrap();

    let empty = json!([reasoning("rs_1", Value::Null), reply]);
    assert_eq!(written(&parse_input(&empty.to_string()).unwrap()), json!([reply]));
    let with_id = json!([reasoning("rs_1", "gBBB".into()),
        {"type": "message", "id": "msg_1", "role": "assistant", "content": "It is 13."}]);
    round_trip(with_id.clone());
    validate(Wire::OpenAiResponses, &json!({ "input": with_id })).unwrap();
    // DeepSeek does not require that a particular item follows reasoning. In a recording, DeepSeek
    // has accepted this input.
    let foreign = json!([{"type": "reasoning", "id": "rs-a", "summary": []}, reply]);
    round_trip(foreign.clone());
    validate(Wire::OpenAiResponses, &json!({ "input": foreign })).unwrap();
}

#[test]
fn items_linked_with_an_omitted_dangling_call_are_written_without_their_ids() {
    let reasoning = |id: &str, content: Value| json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": content});
    let call = |id: &str| {
        json!({"type": "function_call", "id": format!("fc_{id}"), "call_id": id, "name": "f",
            "arguments": format!("{{\"n\":\"{id}\"}}")})
    };
    let without = |id: &str| {
        json!({"type": "function_call", "call_id": id, "name": "f",
            "arguments": format!("{{\"n\":\"{id}\"}}")})
    };
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": format!("of {id}")});
    let items = json!([
        reasoning("rs_1", "gAAA".into()),
        call("a"),
        call("b"),
        reasoning("rs_2", "gBBB".into()),
        call("c"),
        output("b"),
        output("c"),
    ]);
    let unlinked = json!({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"});
    let expected = json!([
        unlinked,
        without("b"),
        reasoning("rs_2", "gBBB".into()),
        call("c"),
        output("b"),
        output("c"),
    ]);
    assert_eq!(replayed(&items), expected);
    let items = json!([
        reasoning("rs_1", "gAAA".into()),
        call("a"),
        reasoning("rs_2", "gBBB".into()),
        call("c"),
        output("c"),
    ]);
    let expected = json!([unlinked, reasoning("rs_2", "gBBB".into()), call("c"), output("c")]);
    assert_eq!(replayed(&items), expected);
    let items = json!([reasoning("rs_1", Value::Null), call("a"), call("b"), output("b")]);
    assert_eq!(replayed(&items), json!([without("b"), output("b")]));
    let whole =
        json!([reasoning("rs_1", "gAAA".into()), call("a"), call("b"), output("a"), output("b")]);
    assert_eq!(replayed(&whole), whole);
}
