//! Answers that were cut off or paused, and the parts of them that the next request contains.

use serde_json::{Value, json};
use tower_chat_core::{Answer, ChatRequest, FinishReason, Message, ToolResult};
use tower_chat_wire::{
    anthropic::{RequestForm, render_request},
    body::BodyWire,
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

fn cut_off(answer: &Answer) -> Vec<bool> {
    answer.tool_calls().map(|call| call.is_cut_off).collect()
}

#[test]
fn the_last_call_before_a_token_limit_is_cut_off_where_arguments_are_objects() {
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
            assert_eq!(cut_off(&answer), expected, "{reason}");
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
    assert_eq!(cut_off(&answer), [false, true]);
    assert_eq!(answer.finish.reason, Some(FinishReason::Length));

    let call = |id: &str| json!({"toolUse": {"toolUseId": id, "name": "f", "input": {}}});
    let body = json!({"output": {"message": {"role": "assistant", "content": [call("a"), call("b")]}},
        "stopReason": "max_tokens"});
    let answer = BodyWire::BedrockConverse.parse_answer(&body.to_string()).unwrap();
    assert_eq!(cut_off(&answer), [false, true]);
    let begin = |index: u32, id: &str| {
        (
            "contentBlockStart",
            json!({"contentBlockIndex": index,
            "start": {"toolUse": {"toolUseId": id, "name": "f"}}}),
        )
    };
    let end = ("messageStop", json!({"stopReason": "max_tokens"}));
    let answer = streamed(BodyWire::BedrockConverse, &[begin(0, "a"), begin(1, "b"), end]);
    assert_eq!(cut_off(&answer), [false, true]);
    // The call has a text after it, so the limit did not end the answer inside the call.
    let body = json!({"role": "assistant", "stop_reason": "max_tokens", "content": [
        {"type": "tool_use", "id": "a", "name": "f", "input": {}}, {"type": "text", "text": "and"}]});
    let answer = BodyWire::Anthropic.parse_answer(&body.to_string()).unwrap();
    assert_eq!(cut_off(&answer), [false]);
}

/// An answer that ends with a call of a tool that the service runs, and the answer that continues it.
fn paused() -> [Message; 2] {
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

/// The types of the blocks of each assistant message.
fn blocks(messages: Vec<Message>) -> Vec<Vec<String>> {
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
fn a_hosted_call_without_its_result_goes_back_only_where_the_service_goes_on_with_it() {
    let [begun, rest] = paused();
    let user = || Message::user("hi");
    let open = ["text", "server_tool_use"];
    // The paused answer is the last message.
    assert_eq!(blocks(vec![user(), begun.clone()]), [open]);
    // The next answer continues it, and the service treats both as one answer.
    let whole = ["text", "server_tool_use", "web_search_tool_result", "text"];
    assert_eq!(blocks(vec![user(), begun.clone(), rest.clone()]), [whole]);
    assert_eq!(blocks(vec![user(), begun.clone(), rest, user()]), [whole]);
    // The call has no result.
    assert_eq!(blocks(vec![user(), begun.clone(), user()]), [["text"]]);
    // The client's call in the same answer has a result, so the service continues its own call.
    let mut beside = begun;
    beside.parts.push(tower_chat_core::ToolCall::new("toolu_1", "f", "{}").into());
    let result = Message::tool_results([ToolResult::new("toolu_1", "done")]);
    let all = ["text", "server_tool_use", "tool_use"];
    assert_eq!(blocks(vec![user(), beside, result]), [all]);
}

#[test]
fn the_container_of_an_answer_is_named_until_it_expires() {
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
