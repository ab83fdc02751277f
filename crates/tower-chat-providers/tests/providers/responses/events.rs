//! Tests of unusual ways in which services stream a response.

use serde_json::{Value, json};
use tower_chat_core::{Answer, ChatRequest, FinishReason, Part};

use super::{event, message, text_response};
use crate::{
    client::ask,
    server::{Reply, Server},
};

async fn answer(events: &[Value]) -> Answer {
    let body: String = events.iter().map(event).collect();
    let server = Server::start([Reply::stream(body)]).await;
    ask(&mut server.responses(), ChatRequest::user("hi").streamed()).await.unwrap()
}

fn call(arguments: &str) -> Value {
    json!({"id": "fc_1", "type": "function_call", "status": "in_progress", "call_id": "call_1",
        "name": "f", "arguments": arguments})
}

fn end_event(status: &str, output: Value) -> Value {
    let details = json!({"reason": "max_output_tokens"});
    let details = if status == "incomplete" { details } else { Value::Null };
    json!({"type": format!("response.{status}"), "response": {"id": "resp_1", "status": status,
        "incomplete_details": details, "output": output}})
}

#[tokio::test]
async fn items_of_earlier_events_are_used_if_the_last_event_has_no_items() {
    let reasoning = json!({"id": "rs_1", "type": "reasoning", "summary": [],
        "encrypted_content": "gAAA"});
    let items = [reasoning, message("msg_1", "Hello"), call("{}")];
    let mut events: Vec<Value> = items
        .iter()
        .map(|item| json!({"type": "response.output_item.done", "item": item}))
        .collect();
    events.push(end_event("completed", json!([])));
    let found = answer(&events).await;
    assert_eq!(found.text(), "Hello");
    assert_eq!(found.finish.reason, Some(FinishReason::ToolCalls));
    assert!(matches!(&found.messages[0].parts[0], Part::Reasoning(r) if r.native.is_some()));
    assert_eq!(found.tool_calls().count(), 1);
}

#[tokio::test]
async fn items_of_the_last_event_replace_items_of_earlier_events() {
    let early = json!({"type": "response.output_item.done", "item": message("msg_1", "early")});
    let found = answer(&[early, end_event("completed", json!([message("msg_1", "late")]))]).await;
    assert_eq!(found.text(), "late");
}

#[tokio::test]
async fn a_call_that_the_token_limit_cuts_off_is_returned_as_it_was_received() {
    let begun = [
        json!({"type": "response.output_item.added", "output_index": 0,
            "item": {"id": "rs_1", "type": "reasoning", "summary": []}}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": call("")}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1,
            "item_id": "fc_1", "delta": "{\"x\": "}),
        json!({"type": "response.function_call_arguments.delta", "output_index": 1,
            "item_id": "fc_1", "delta": "\"y"}),
    ];
    // OpenAI sends the items in the last event. Some services send an empty list there.
    for output in [json!([call("{\"x\": \"y")]), json!([])] {
        let found = answer(&[&begun[..], &[end_event("incomplete", output)]].concat()).await;
        assert_eq!(found.finish.reason, Some(FinishReason::Length));
        let call = found.tool_calls().next().unwrap();
        assert_eq!((call.id.as_deref(), &*call.name), (Some("call_1"), "f"));
        assert_eq!(call.arguments, "{\"x\": \"y");
        assert_eq!(found.messages[0].parts.len(), 1, "reasoning that was cut off is omitted");
    }
}

#[tokio::test]
async fn items_without_a_done_event_are_returned() {
    let begun = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    let found = answer(&[
        json!({"type": "response.output_item.added", "output_index": 0, "item": begun}),
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "Hel"}),
        json!({"type": "response.output_item.added", "output_index": 1, "item": call("{}")}),
        json!({"type": "response.output_text.delta", "output_index": 0, "delta": "lo"}),
        end_event("completed", json!([])),
    ])
    .await;
    assert_eq!(found.text(), "Hello");
    let call = found.tool_calls().next().unwrap();
    assert_eq!(call.arguments, "{}");
    assert!(call.native.as_ref().unwrap().item.get().contains(r#""status":"completed""#));
    assert_eq!(found.finish.reason, Some(FinishReason::ToolCalls));
}

#[tokio::test]
async fn a_text_that_the_token_limit_cuts_off_is_returned() {
    let begun = json!({"id": "msg_1", "type": "message", "role": "assistant", "content": []});
    let found = answer(&[
        json!({"type": "response.output_item.added", "item": begun}),
        json!({"type": "response.output_text.delta", "item_id": "msg_1", "delta": "Hel"}),
        end_event("incomplete", json!([])),
    ])
    .await;
    assert_eq!((found.text().as_str(), found.finish.reason), ("Hel", Some(FinishReason::Length)));
}

#[tokio::test]
async fn the_reasons_of_an_incomplete_response_are_distinguished() {
    for (reason, expected) in [
        ("content_filter", FinishReason::ContentFilter),
        ("max_output_tokens", FinishReason::Length),
        ("odd", FinishReason::Other("odd".to_owned())),
    ] {
        let mut end = end_event("incomplete", json!([message("msg_1", "Hel")]));
        end["response"]["incomplete_details"] = json!({"reason": reason});
        assert_eq!(answer(&[end.clone()]).await.finish.reason, Some(expected.clone()));
        let server = Server::start([Reply::json(200, end["response"].to_string())]).await;
        let found = ask(&mut server.responses(), ChatRequest::user("hi")).await.unwrap();
        assert_eq!(found.finish.reason, Some(expected));
    }
}

#[tokio::test]
async fn unknown_events_are_ignored_and_unknown_items_are_returned_as_native_items() {
    let odd = json!({"id": "x_1", "type": "odd_item", "n": 1});
    let found = answer(&[
        json!({"type": "response.odd.delta", "delta": "?"}),
        json!({"type": "response.odd"}),
        end_event("completed", json!([odd, message("msg_1", "Hello")])),
        json!({"type": "response.output_text.delta", "delta": "after the end"}),
    ])
    .await;
    assert_eq!(found.text(), "Hello");
    let Part::Native(native) = &found.messages[0].parts[0] else { panic!("{found:?}") };
    assert!(native.item.get().contains("odd_item"));
}

#[tokio::test]
async fn an_answer_with_only_provider_executed_calls_finishes_with_stop() {
    let search = json!({"id": "ws_1", "type": "web_search_call", "status": "completed",
        "action": {"type": "search", "query": "q"}});
    let found =
        answer(&[end_event("completed", json!([search, message("msg_1", "Found.")]))]).await;
    assert_eq!(found.finish.reason, Some(FinishReason::Stop));
}

#[tokio::test]
async fn a_whole_answer_to_a_streamed_request_is_accepted() {
    let server =
        Server::start([Reply::json(200, text_response("resp_1", "hello").to_string())]).await;
    let request = ChatRequest::user("hi").streamed();
    let found = ask(&mut server.responses(), request).await.unwrap();
    assert_eq!(found.text(), "hello");
    assert_eq!(found.finish.reason, Some(FinishReason::Stop));
}
