//! Tests of background answers.

use serde_json::{Value, json};
use tower_chat_core::{ChatOptions, ChatRequest, FinishReason};
use tower_chat_providers::{HistoryStorage, ProviderError, ProviderErrorKind as Kind};

use super::text_response;
use crate::{
    client::ask,
    server::{Reply, Server},
};

fn background_request() -> ChatRequest {
    let mut options = ChatOptions::default();
    (options.background, options.stream) = (true, true);
    ChatRequest::user("hi").with_options(options)
}

fn continued_request(token: &str) -> ChatRequest {
    let mut options = ChatOptions::default();
    options.continuation = Some(token.to_owned());
    ChatRequest::default().with_options(options)
}

fn pending_response(status: &str) -> Value {
    json!({"id": "resp_1", "object": "response", "status": status, "output": [], "model": "m"})
}

#[tokio::test]
async fn a_background_answer_is_started_polled_and_read_when_it_is_complete() {
    let replies = [
        pending_response("queued"),
        pending_response("in_progress"),
        text_response("resp_1", "hello"),
    ];
    let server = Server::start(replies.map(|reply| Reply::json(200, reply.to_string()))).await;
    let mut model = server.responses();
    let answer = ask(&mut model, background_request()).await.unwrap();
    assert!(answer.messages.is_empty());
    assert_eq!(answer.finish.continuation.as_deref(), Some("resp_1"));
    assert_eq!((answer.finish.reason, answer.finish.history_owner), (None, None));
    let answer = ask(&mut model, continued_request("resp_1")).await.unwrap();
    assert_eq!(answer.finish.continuation.as_deref(), Some("resp_1"));
    let answer = ask(&mut model, continued_request("resp_1")).await.unwrap();
    assert_eq!((answer.text().as_str(), answer.finish.continuation), ("hello", None));
    assert_eq!(answer.finish.reason, Some(FinishReason::Stop));
    assert_eq!(answer.finish.history_owner, None);

    let sent = server.received();
    assert_eq!((&sent[0].body["background"], &sent[0].body["store"]), (&json!(true), &json!(true)));
    assert_eq!(sent[0].body.get("stream"), None::<&Value>);
    for fetch in &sent[1..] {
        assert!(fetch.head.starts_with("get /v1/responses/resp_1 "), "{}", fetch.head);
    }
}

#[tokio::test]
async fn the_service_id_is_that_of_a_background_answer_only_when_it_is_complete() {
    let id = |answer: &tower_chat_core::Answer| {
        let id = answer.finish.history_owner.as_ref().unwrap();
        id.service_id().unwrap().to_string()
    };
    let replies = [pending_response("queued"), text_response("resp_1", "hello")];
    let server = Server::start(replies.map(|reply| Reply::json(200, reply.to_string()))).await;
    let mut model = server.responses().with_history_storage(HistoryStorage::Response);
    let answer = ask(&mut model, background_request().with_service_id("resp_0")).await.unwrap();
    assert_eq!(id(&answer), "resp_0", "a queued response may still fail");
    let answer =
        ask(&mut model, continued_request("resp_1").with_service_id("resp_0")).await.unwrap();
    assert_eq!(id(&answer), "resp_1");
    assert_eq!(server.received()[0].body["previous_response_id"], "resp_0");
}

#[tokio::test]
async fn a_background_answer_that_failed_is_an_error() {
    let failed = json!({"id": "resp_1", "status": "failed", "output": [],
        "error": {"code": "server_error", "message": "overloaded"}});
    for (reply, code) in
        [(failed, "server_error"), (pending_response("cancelled"), "response_cancelled")]
    {
        let server = Server::start([Reply::json(200, reply.to_string())]).await;
        let error = ask(&mut server.responses(), continued_request("resp_1")).await.unwrap_err();
        assert_eq!(error.downcast::<ProviderError>().unwrap().code(), Some(code));
    }
}

#[tokio::test]
async fn a_token_that_is_not_a_response_id_is_refused_before_a_request_is_sent() {
    let server = Server::start([]).await;
    for token in ["", "../files", "resp_1?stream=true", "a b"] {
        let error = ask(&mut server.responses(), continued_request(token)).await.unwrap_err();
        let error = error.downcast::<ProviderError>().unwrap();
        assert!(matches!(error.kind(), Kind::Unsupported { .. }), "{error}");
    }
    assert!(server.received().is_empty());
}
