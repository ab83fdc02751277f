//! Tests of answers that were cut off or paused, and of the parts of these answers that the next
//! request contains.

use serde_json::{Value, json};
use tower_chat_core::{Answer, ChatRequest, ChatUpdate, FinishReason, Message, ToolResult};
use tower_chat_wire::{
    anthropic::{RequestForm, render_request},
    body::{AnswerContext, BodyWire},
    stream::Frame,
};

fn streamed(wire: BodyWire, events: &[(&str, Value)]) -> Answer {
    let mut accumulator = wire.accumulator();
    for (event, data) in events {
        let frame = Frame { event: Some((*event).to_owned()), data: data.to_string() };
        accumulator.push(&frame).unwrap();
    }
    accumulator.finish().unwrap()
}

fn are_cut_off(answer: &Answer) -> Vec<bool> {
    answer.tool_calls().map(|call| call.is_cut_off).collect()
}

#[test]
fn a_token_limit_cuts_off_the_last_call_on_wires_whose_arguments_are_objects() {
    let call =
        |id: &str, input: Value| json!({"type": "tool_use", "id": id, "name": "f", "input": input});
    for input in [json!({}), json!({"x": 1})] {
        let body = |reason: &str| {
            let content = json!([call("a", json!({})), call("b", input.clone())]);
            json!({"type": "message", "role": "assistant", "content": content, "stop_reason": reason})
                .to_string()
        };
        for (reason, expected) in [
            ("max_tokens", [false, true]),
            ("model_context_window_exceeded", [false, true]),
            ("tool_use", [false, false]),
        ] {
            let answer = BodyWire::Anthropic.parse_answer(&body(reason)).unwrap();
            assert_eq!(are_cut_off(&answer), expected, "{reason}");
        }
    }
    let begin = |index: u32, id: &str| {
        (
            "content_block_start",
            json!({"type": "content_block_start", "index": index,
            "content_block": call(id, json!({}))}),
        )
    };
    let end =
        ("message_delta", json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"}}));
    let answer = streamed(BodyWire::Anthropic, &[begin(0, "a"), begin(1, "b"), end]);
    assert_eq!(are_cut_off(&answer), [false, true]);
    assert_eq!(answer.finish.reason, Some(FinishReason::Length));

    let call = |id: &str| json!({"toolUse": {"toolUseId": id, "name": "f", "input": {}}});
    let body = json!({"output": {"message": {"role": "assistant", "content": [call("a"), call("b")]}},
        "stopReason": "max_tokens"});
    let answer = BodyWire::BedrockConverse.parse_answer(&body.to_string()).unwrap();
    assert_eq!(are_cut_off(&answer), [false, true]);
    let begin = |index: u32, id: &str| {
        (
            "contentBlockStart",
            json!({"contentBlockIndex": index,
            "start": {"toolUse": {"toolUseId": id, "name": "f"}}}),
        )
    };
    let end = ("messageStop", json!({"stopReason": "max_tokens"}));
    let answer = streamed(BodyWire::BedrockConverse, &[begin(0, "a"), begin(1, "b"), end]);
    assert_eq!(are_cut_off(&answer), [false, true]);
    // A text follows the call, so the call was complete when the answer reached the limit.
    let body = json!({"role": "assistant", "stop_reason": "max_tokens", "content": [
        {"type": "tool_use", "id": "a", "name": "f", "input": {}}, {"type": "text", "text": "and"}]});
    let answer = BodyWire::Anthropic.parse_answer(&body.to_string()).unwrap();
    assert_eq!(are_cut_off(&answer), [false]);
}

/// Returns a paused answer, which ends with a provider-executed call, and the answer that continues
/// it.
fn paused_and_continued() -> [Message; 2] {
    let parse = |content: Value| {
        let body = json!({"role": "assistant", "content": content}).to_string();
        let answer = BodyWire::Anthropic.parse_answer(&body).unwrap();
        (*answer.messages[0]).clone()
    };
    let call = json!({"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search",
        "input": {"query": "x"}});
    let result =
        json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []});
    [
        parse(json!([{"type": "text", "text": "I search."}, call])),
        parse(json!([result, {"type": "text", "text": "Found."}])),
    ]
}

/// Returns the types of the blocks of each assistant message.
fn block_types(messages: Vec<Message>) -> Vec<Vec<String>> {
    let form = RequestForm::Anthropic { model: "claude-x" };
    let body = render_request(&ChatRequest::new(messages), form);
    let messages: Vec<Value> = body["messages"].parse().unwrap();
    let of_assistant = messages.iter().filter(|message| message["role"] == "assistant");
    let kinds = |message: &Value| match &message["content"] {
        Value::Array(blocks) => {
            blocks.iter().map(|block| block["type"].as_str().unwrap().to_owned()).collect()
        }
        _ => vec!["text".to_owned()],
    };
    of_assistant.map(kinds).collect()
}

#[test]
fn a_provider_executed_call_without_a_result_is_sent_only_if_the_service_continues_it() {
    let [begun, rest] = paused_and_continued();
    let user = || Message::user("hi");
    let open = ["text", "server_tool_use"];
    // The paused answer is the last message.
    assert_eq!(block_types(vec![user(), begun.clone()]), [open]);
    // The next answer continues the paused answer, and the service treats both as one answer.
    let whole = ["text", "server_tool_use", "web_search_tool_result", "text"];
    assert_eq!(block_types(vec![user(), begun.clone(), rest.clone()]), [whole]);
    assert_eq!(block_types(vec![user(), begun.clone(), rest, user()]), [whole]);
    // The paused answer is followed by a user message, and its call has no result.
    assert_eq!(block_types(vec![user(), begun.clone(), user()]), [["text"]]);
    // The same answer also contains a call of a client's tool. This call has a result, so the
    // service continues the provider-executed call.
    let mut beside = begun;
    beside.parts.push(tower_chat_core::ToolCall::new("toolu_1", "f", "{}").into());
    let result = Message::tool_results([ToolResult::new("toolu_1", "done")]);
    let all = ["text", "server_tool_use", "tool_use"];
    assert_eq!(block_types(vec![user(), beside, result]), [all]);
}

#[test]
fn a_request_names_the_container_of_an_earlier_answer_until_it_expires() {
    let answer = |expires_at: &str| {
        let body = json!({"role": "assistant", "content": [{"type": "text", "text": "ran"}],
            "stop_reason": "end_turn", "container": {"id": "container_1", "expires_at": expires_at}});
        let answer = BodyWire::Anthropic.parse_answer(&body.to_string()).unwrap();
        (*answer.messages[0]).clone()
    };
    let asked = |expires_at: &str, model: &str, own: Option<Value>| {
        let messages = [Message::user("run"), answer(expires_at), Message::user("again")];
        let mut request = ChatRequest::new(messages);
        let mut options = tower_chat_core::ChatOptions::default();
        options.extra.extend(own.map(|own| ("container".to_owned(), own)));
        request = request.with_options(options);
        let body = render_request(&request, RequestForm::Anthropic { model });
        body.get("container").map(|container| container.get().to_owned())
    };
    let (never, past) = ("9999-12-31T23:59:59Z", "2020-01-01T00:00:00.000Z");
    assert_eq!(asked(never, "claude-x", None).as_deref(), Some(r#""container_1""#));
    assert_eq!(asked(past, "claude-x", None), None);
    assert_eq!(asked(never, "claude-x", Some(json!("mine"))).as_deref(), Some(r#""mine""#));
    assert_eq!(asked(never, "claude-x", Some(Value::Null)), None);
    assert_eq!(asked(never, "minimax-m2", None), None, "another service of the same format");
}

#[test]
fn a_call_with_empty_arguments_before_a_limit_or_filter_is_cut_off_on_every_wire() {
    let function = |arguments: Value| json!({"name": "f", "arguments": arguments});
    let gemini = |reason: &str, arguments: Value| {
        let part = json!({"functionCall": {"name": "f", "args": arguments}});
        json!({"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": reason}]})
    };
    let ollama = |reason: &str, arguments: Value| {
        let message = json!({"role": "assistant", "content": "",
            "tool_calls": [{"function": function(arguments)}]});
        json!({"message": message, "done": true, "done_reason": reason})
    };
    let chat = |reason: &str, arguments: &str| {
        let call = json!({"id": "a", "type": "function", "function": function(json!(arguments))});
        let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
        json!({"choices": [{"index": 0, "finish_reason": reason, "message": message}]})
    };
    let bedrock = |reason: &str| {
        let call = json!({"toolUse": {"toolUseId": "a", "name": "f", "input": {}}});
        json!({"output": {"message": {"role": "assistant", "content": [call]}}, "stopReason": reason})
    };
    let item = |status: &str, arguments: &str| {
        let call = json!({"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f",
            "arguments": arguments, "status": status});
        json!({"status": "incomplete", "output": [call]})
    };
    for (wire, body, expected) in [
        (BodyWire::Gemini, gemini("MAX_TOKENS", json!({})), true),
        (BodyWire::Gemini, gemini("SAFETY", json!({})), true),
        (BodyWire::Gemini, gemini("MALFORMED_FUNCTION_CALL", json!({})), true),
        (BodyWire::Gemini, gemini("MAX_TOKENS", json!({"x": 1})), false),
        (BodyWire::Gemini, gemini("STOP", json!({})), false),
        (BodyWire::Ollama, ollama("length", json!({})), true),
        (BodyWire::Ollama, ollama("length", json!({"x": 1})), false),
        (BodyWire::Ollama, ollama("stop", json!({})), false),
        (BodyWire::OpenAiChat, chat("content_filter", ""), true),
        (BodyWire::OpenAiChat, chat("MAX_TOKENS", ""), true),
        (BodyWire::OpenAiChat, chat("max_output_tokens", "{\"x\":"), true),
        (BodyWire::OpenAiChat, chat("model_context_window_exceeded", ""), true),
        (BodyWire::OpenAiChat, chat("length", "{}"), false),
        (BodyWire::OpenAiChat, chat("tool_calls", ""), false),
        (BodyWire::BedrockConverse, bedrock("guardrail_intervened"), true),
        (BodyWire::BedrockConverse, bedrock("malformed_tool_use"), true),
        (BodyWire::BedrockConverse, bedrock("tool_use"), false),
        (BodyWire::OpenAiResponses, item("incomplete", ""), true),
        (BodyWire::OpenAiResponses, item("incomplete", "{}"), true),
        (BodyWire::OpenAiResponses, item("in_progress", "{}"), true),
        (BodyWire::OpenAiResponses, item("in_progress", "{\"x\": 1}"), true),
        (BodyWire::OpenAiResponses, item("completed", "{}"), false),
    ] {
        let answer = wire.parse_answer(&body.to_string()).unwrap();
        assert_eq!(are_cut_off(&answer), [expected], "{body}");
    }
}

/// Returns the names and the arguments of the calls of an answer, and whether each call was cut
/// off.
fn calls_with_cut_off(answer: &Answer) -> Vec<(String, String, bool)> {
    let calls = answer.tool_calls();
    calls.map(|call| (call.name.clone(), call.arguments.clone(), call.is_cut_off)).collect()
}

#[test]
fn in_chat_a_custom_call_that_a_limit_cuts_off_does_not_run_but_complete_calls_do() {
    let custom = ("custom", "input");
    let function = ("function", "arguments");
    // Each row has the types and the arguments of two calls, the finish reason, and whether each
    // call is expected to be cut off.
    let table = [
        ([(custom, "print(1)"), (custom, "prin")], "length", [false, true]),
        ([(custom, "print(1)"), (custom, "5")], "length", [false, true]),
        ([(custom, ""), (custom, "")], "length", [false, true]),
        ([(custom, "print(1)"), (custom, "prin")], "content_filter", [false, true]),
        ([(custom, "print(1)"), (custom, "prin")], "tool_calls", [false, false]),
        ([(custom, "print(1)"), (function, "{\"x\":")], "length", [false, true]),
        ([(custom, "print(1)"), (function, "{}")], "length", [false, false]),
        ([(function, "{}"), (custom, "prin")], "length", [false, true]),
    ];
    for (calls, reason, cut) in table {
        let call = |index: usize, text: &str| {
            let (kind, arguments) = calls[index].0;
            json!({"id": format!("c{index}"), "type": kind, kind: {"name": "f", arguments: text}})
        };
        let whole = |index: usize| call(index, calls[index].1);
        let message =
            json!({"role": "assistant", "content": null, "tool_calls": [whole(0), whole(1)]});
        let body = json!({"choices": [{"index": 0, "finish_reason": reason, "message": message}]});
        let piece = |fields: Value| {
            ("", json!({"choices": [{"index": 0, "delta": {"tool_calls": [fields]}}]}))
        };
        let mut events = Vec::new();
        for (index, ((kind, arguments), text)) in calls.into_iter().enumerate() {
            let mut begin = call(index, "");
            begin["index"] = json!(index);
            events.push(piece(begin));
            let halves = text.split_at(text.len() / 2);
            for half in [halves.0, halves.1] {
                events.push(piece(json!({"index": index, kind: {arguments: half}})));
            }
        }
        let end = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]});
        events.push(("", end));
        let expected: Vec<_> =
            (0..2).map(|index| ("f".to_owned(), calls[index].1.to_owned(), cut[index])).collect();
        let whole = BodyWire::OpenAiChat.parse_answer(&body.to_string()).unwrap();
        assert_eq!(calls_with_cut_off(&whole), expected, "{body}");
        assert_eq!(
            calls_with_cut_off(&streamed(BodyWire::OpenAiChat, &events)),
            expected,
            "{body}"
        );
    }
}

#[test]
fn in_responses_a_custom_call_that_a_limit_cuts_off_does_not_run_but_complete_calls_do() {
    let item = |id: &str, input: &str, status: Option<&str>| {
        let mut item = json!({"type": "custom_tool_call", "id": format!("ctc_{id}"), "call_id": id,
            "name": "f", "input": input});
        if let Some(status) = status {
            item["status"] = json!(status);
        }
        item
    };
    let response = |output: Value, reason: &str| {
        json!({"id": "r1", "status": "incomplete", "incomplete_details": {"reason": reason},
            "output": output})
    };
    let expected = |cut: [bool; 2]| {
        [("print(1)", cut[0]), ("5", cut[1])]
            .map(|(text, is)| ("f".to_owned(), text.to_owned(), is))
    };
    for (first, last, cut) in [
        (Some("completed"), Some("incomplete"), [false, true]),
        (Some("completed"), Some("completed"), [false, false]),
        (None, None, [false, true]),
    ] {
        for reason in ["max_output_tokens", "content_filter"] {
            let output = json!([item("a", "print(1)", first), item("b", "5", last)]);
            let body = response(output, reason);
            let answer = BodyWire::OpenAiResponses.parse_answer(&body.to_string()).unwrap();
            assert_eq!(calls_with_cut_off(&answer), expected(cut), "{body}");
        }
    }
    // The stream ends before the event that ends the second item.
    let event = |kind: &str, index: usize, (field, value): (&str, Value)| {
        let kind = format!("response.{kind}");
        ("", json!({"type": kind, "output_index": index, field: value}))
    };
    let added = |index, item| event("output_item.added", index, ("item", item));
    let delta =
        |index, text: &str| event("custom_tool_call_input.delta", index, ("delta", json!(text)));
    let ending = json!({"type": "response.incomplete",
        "response": response(json!([]), "max_output_tokens")});
    let events = [
        added(0, item("a", "", Some("in_progress"))),
        delta(0, "print"),
        delta(0, "(1)"),
        event("output_item.done", 0, ("item", item("a", "print(1)", Some("completed")))),
        added(1, item("b", "", Some("in_progress"))),
        delta(1, "5"),
        ("", ending),
    ];
    let answer = streamed(BodyWire::OpenAiResponses, &events);
    assert_eq!(calls_with_cut_off(&answer), expected([false, true]));
    assert_eq!(answer.finish.reason, Some(FinishReason::Length));
}

#[test]
fn an_answer_that_the_service_could_not_finish_is_an_error() {
    let message = json!({"role": "assistant", "content": "It"});
    let choice = json!({"finish_reason": "insufficient_system_resource", "message": message});
    let error = BodyWire::OpenAiChat.parse_answer(&json!({"choices": [choice]}).to_string());
    assert!(error.is_err_and(|error| error.is_retryable()));
    // MiniMax reports errors with the HTTP status 200.
    let failed =
        json!({"base_resp": {"status_code": 1008, "status_msg": "no money"}, "choices": null});
    let error = BodyWire::OpenAiChat.parse_answer(&failed.to_string()).unwrap_err();
    assert!(error.to_string().contains("no money"), "{error}");
    let fine = json!({"base_resp": {"status_code": 0, "status_msg": ""},
        "choices": [{"finish_reason": "stop", "message": message}]});
    assert_eq!(BodyWire::OpenAiChat.parse_answer(&fine.to_string()).unwrap().text(), "It");
}

#[test]
fn partial_arguments_in_a_whole_gemini_answer_are_joined() {
    let body = |will_continue: bool| {
        let pieces = json!([{"jsonPath": "$.city", "stringValue": "New "},
            {"jsonPath": "$.city", "stringValue": "York"}]);
        let call = json!({"name": "f", "partialArgs": pieces, "willContinue": will_continue});
        let content = json!({"role": "model", "parts": [{"functionCall": call}]});
        json!({"candidates": [{"content": content, "finishReason": "STOP"}]}).to_string()
    };
    let arguments = |will_continue| {
        let answer = BodyWire::Gemini.parse_answer(&body(will_continue)).unwrap();
        answer.tool_calls().map(|call| call.arguments.clone()).collect::<Vec<_>>()
    };
    assert_eq!(arguments(false), [r#"{"city":"New York"}"#]);
    assert_eq!(
        arguments(true),
        [r#"{"city":"New York"#],
        "the last piece of the arguments is missing"
    );
}

#[test]
fn two_complete_calls_with_the_same_index_and_id_are_two_calls() {
    let piece = |name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        let call = json!({"index": 0, "id": "a", "type": "function", "function": function});
        ("", json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}}]}))
    };
    let end = ("", json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]}));
    let pieces = [piece("f", r#"{"x":1}"#), piece("g", "{}"), end.clone()];
    let answer = streamed(BodyWire::OpenAiChat, &pieces);
    let calls: Vec<_> = answer.tool_calls().map(|it| (&*it.name, &*it.arguments)).collect();
    assert_eq!(calls, [("f", r#"{"x":1}"#), ("g", "{}")]);
    // The same call in two pieces, both of which contain its id and its name.
    let pieces = [piece("f", r#"{"x":"#), piece("f", "1}"), end];
    let answer = streamed(BodyWire::OpenAiChat, &pieces);
    assert_eq!(answer.tool_calls().map(|it| &*it.arguments).collect::<Vec<_>>(), [r#"{"x":1}"#]);
}

#[test]
fn every_custom_tool_call_of_xai_is_executed_by_xai() {
    let item = json!({"type": "custom_tool_call", "id": "ctc_1", "call_id": "c1", "name": "view_image",
        "input": "{}", "status": "completed"});
    let added = json!({"type": "response.output_item.added", "output_index": 0, "item": item});
    let delta =
        json!({"type": "response.custom_tool_call_input.delta", "output_index": 0, "delta": "{}"});
    let response = json!({"id": "r1", "status": "completed", "output": [item]});
    let end = json!({"type": "response.completed", "response": response});
    for (issuer, expected) in [("xai", 0), ("openai", 1)] {
        let context = AnswerContext::default().with_issuer(issuer.into());
        let wire = BodyWire::OpenAiResponses;
        let whole = wire.parse_answer_to(&response.to_string(), &context).unwrap();
        let mut accumulator = wire.accumulator_to(context);
        let mut deltas = 0;
        for event in [&added, &delta, &end] {
            let frame = Frame { event: None, data: event.to_string() };
            let updates = accumulator.push(&frame).unwrap();
            deltas +=
                updates.iter().filter(|it| matches!(it, ChatUpdate::ToolCallDelta(_))).count();
        }
        for answer in [whole, accumulator.finish().unwrap()] {
            assert_eq!(answer.tool_calls().count(), expected, "{issuer}");
            let reason = if expected == 0 { FinishReason::Stop } else { FinishReason::ToolCalls };
            assert_eq!(answer.finish.reason, Some(reason), "{issuer}");
        }
        assert_eq!(deltas, 2 * expected, "{issuer}");
    }
}
