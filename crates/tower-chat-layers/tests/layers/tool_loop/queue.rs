//! Tests messages that are queued while a run is in progress.

use std::pin::pin;

use futures_util::{future::poll_immediate, stream};
use tower_chat::{BoxError, ChatRequest, ChatResponse, Message, Role, ToolContext, tool_fn};

use super::script::*;

#[tokio::test]
async fn messages_queued_by_a_tool_are_sent_after_its_results_with_the_next_service_call() {
    for request in both(&ChatRequest::user("hi")) {
        let tool = tool_fn(definition("t"), |context: ToolContext| async move {
            context.queue(Message::user("and this"));
            context.run_handle().queue(Message::user("and that"));
            Ok("ok")
        });
        let script = Script::new([calls([("t", "")]), Message::assistant("done")]);
        let answer = ask(&over(tool), &script, request).await.unwrap();
        assert_eq!(script.texts(1), ["hi", "t()", "=ok", "and this", "and that"]);
        assert_eq!(texts(&answer.messages), ["t()", "=ok", "and this", "and that", "done"]);
        assert_eq!(answer.messages[2].role, Role::User);
    }
}

#[tokio::test]
async fn a_message_queued_before_the_run_goes_with_its_first_service_call() {
    for mut request in both(&ChatRequest::user("hi")) {
        request.run_handle().queue(Message::user("one more"));
        let script = Script::new(["done"]);
        let answer = ask(&over(echo()), &script, request).await.unwrap();
        assert_eq!(script.texts(0), ["hi", "one more"]);
        assert_eq!(texts(&answer.messages), ["one more", "done"]);
    }
}

#[tokio::test]
async fn a_message_queued_during_the_final_answer_makes_the_loop_call_once_more() {
    let mut request = ChatRequest::user("hi");
    let handle = request.run_handle();
    for request in both(&request) {
        let script = Script::new(["first", "second"]);
        let model = script.clone();
        let queueing = handle.clone();
        // The message is queued between the first request and its answer.
        let service = tower::service_fn(move |request: ChatRequest| {
            if model.calls() == 0 {
                queueing.queue(Message::user("wait"));
            }
            tower::ServiceExt::oneshot(model.clone(), request)
        });
        let layered = tower::Layer::layer(&over(echo()), service);
        let response = tower::ServiceExt::oneshot(layered, request).await.unwrap();
        let answer = response.collect().await.unwrap();
        assert_eq!(script.texts(1), ["hi", "first", "wait"]);
        assert_eq!(texts(&answer.messages), ["first", "wait", "second"]);
    }
}

#[tokio::test]
async fn service_calls_for_queued_messages_alone_do_not_count_as_rounds() {
    let mut request = ChatRequest::user("hi");
    let handle = request.run_handle();
    let script =
        Script::new([Message::assistant("a"), calls([("echo", "1")]), Message::assistant("b")]);
    let model = script.clone();
    let service = tower::service_fn(move |request: ChatRequest| {
        if model.calls() == 0 {
            handle.queue(Message::user("wait"));
        }
        tower::ServiceExt::oneshot(model.clone(), request)
    });
    let layered = tower::Layer::layer(&over(echo()).max_rounds(1).unwrap(), service);
    let response = tower::ServiceExt::oneshot(layered, request).await.unwrap();
    let answer = response.collect().await.unwrap();
    assert_eq!(texts(&answer.messages), ["a", "wait", "echo(1)", "=1", "b"]);
}

#[tokio::test]
async fn queued_messages_go_back_to_the_handle_when_their_service_call_fails() {
    let replies = [
        Reply::error("down"),
        Reply::from("half").failing_with("reset"),
        Reply::from("half").cut_off(),
    ];
    for reply in replies {
        let mut request = ChatRequest::user("hi").streamed();
        let handle = request.run_handle();
        handle.queue(Message::user("first"));
        handle.queue(Message::user("second"));
        let script = Script::new([reply]);
        ask(&over(echo()), &script, request).await.unwrap_err();
        let left: Vec<String> = handle.take_queued().iter().map(Message::text).collect();
        assert_eq!(left, ["first", "second"]);
    }
}

#[tokio::test]
async fn queued_messages_go_back_to_the_handle_when_the_caller_disconnects() {
    for mut request in both(&ChatRequest::user("hi")) {
        let handle = request.run_handle();
        handle.queue(Message::user("first"));
        let service = tower::service_fn(|request: ChatRequest| async move {
            if !request.options.stream {
                std::future::pending::<()>().await;
            }
            Ok::<_, BoxError>(ChatResponse::forward(stream::pending()))
        });
        let layered = tower::Layer::layer(&over(echo()), service);
        let run = async { tower::ServiceExt::oneshot(layered, request).await?.collect().await };
        assert!(poll_immediate(pin!(run)).await.is_none());
        handle.queue(Message::user("second"));
        let left: Vec<String> = handle.take_queued().iter().map(Message::text).collect();
        assert_eq!(left, ["first", "second"]);
    }
}
