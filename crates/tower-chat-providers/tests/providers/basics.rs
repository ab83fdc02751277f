//! Tests of behaviour that all clients share.

use std::time::Duration;

use serde_json::json;
use tower_chat_core::{BoxError, ChatRequest, Retryability, SentinelAtClient, is_retryable};
use tower_chat_providers::{
    OpenAiChat, ProviderError, ProviderErrorKind, Refusal, rate_limit::RateLimitExceeded,
    retry::RetryableError,
};

use crate::{
    client::ask,
    server::{Framing, Reply, Server},
};

const ANSWER: &str = r#"{"model":"m-1","choices":[{"index":0,"finish_reason":"stop",
    "message":{"role":"assistant","content":"On its way."}}]}"#;

#[tokio::test]
async fn a_request_is_posted_as_json_and_its_answer_is_read() {
    let server = Server::start([Reply::json(200, ANSWER)]).await;
    let client = OpenAiChat::compatible(&format!("{}/", server.url)).unwrap();
    let mut client = client.with_model("m").with_header("x-tenant", "blue").unwrap();
    let answer = ask(&mut client, ChatRequest::user("Where is my order?")).await.unwrap();
    assert_eq!(answer.text(), "On its way.");
    assert_eq!(answer.finish.model.as_deref(), Some("m-1"));
    let [received] = &server.received()[..] else { panic!("one request") };
    assert_eq!(received.target, "POST /v1/chat/completions");
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("x-tenant"), Some("blue"));
    assert_eq!(received.header("authorization"), None);
    let messages = json!([{"role": "user", "content": "Where is my order?"}]);
    assert_eq!(received.body, json!({"model": "m", "messages": messages}));
}

#[tokio::test]
async fn the_error_of_a_refusal_has_the_status_the_request_id_and_the_retry_time() {
    let reply = Reply::json(429, r#"{"error":{"message":"slow down"}}"#)
        .header("x-request-id", "req-7")
        .header("retry-after", "3");
    let server = Server::start([reply]).await;
    let mut client = OpenAiChat::compatible(&server.url).unwrap();
    let error = ask(&mut client, ChatRequest::user("first")).await.unwrap_err();
    assert_eq!(is_retryable(&*error), Some(true));
    let error = error.downcast::<ProviderError>().unwrap();
    assert_eq!(error.provider(), "openai-compatible");
    assert_eq!(error.status(), Some(429));
    assert_eq!(error.request_id(), Some("req-7"));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(3)));
    assert!(error.is_retryable());
}

#[test]
fn every_kind_of_error_reports_in_its_source_chain_whether_it_is_retryable() {
    let refused = |status, code: Option<&str>| {
        let mut refusal = Refusal::default();
        (refusal.status, refusal.code) = (Some(status), code.map(str::to_owned));
        ProviderErrorKind::Refused(refusal)
    };
    let transport = |source: BoxError| ProviderErrorKind::Transport { source };
    let text = String::new;
    let kinds = [
        (ProviderErrorKind::Sentinel(SentinelAtClient), false),
        (ProviderErrorKind::Configuration { what: text(), source: None }, false),
        (ProviderErrorKind::Configuration { what: text(), source: Some("bad".into()) }, false),
        (ProviderErrorKind::Unsupported { what: text() }, false),
        (transport("broken pipe".into()), true),
        (transport(Retryability::Permanent.into()), false),
        (transport(Retryability::Retryable.into()), true),
        (refused(400, None), false),
        (refused(429, None), true),
        (refused(429, Some("insufficient_quota")), false),
        (refused(503, None), true),
        (ProviderErrorKind::Malformed { what: text(), body: text(), source: None }, false),
        (
            ProviderErrorKind::Malformed {
                what: text(),
                body: text(),
                source: Some(Retryability::Retryable.into()),
            },
            false,
        ),
        (ProviderErrorKind::Truncated { text: text(), reason: text() }, true),
    ];
    for (kind, expected) in kinds {
        let error = ProviderError::new("p", kind);
        assert_eq!(error.is_retryable(), expected, "{error:?}");
        assert_eq!(is_retryable(&error), Some(expected), "{error:?}");
        let boxed: BoxError = error.into();
        assert_eq!(RetryableError::is_retryable(&boxed), expected);
    }
    let limit = RateLimitExceeded::new("requests", Duration::ZERO, Duration::ZERO);
    assert_eq!(is_retryable(&limit), Some(true));
}

#[tokio::test]
async fn a_whole_answer_that_is_cut_off_is_an_error() {
    let chunked = Reply::json(200, ANSWER).framed(Framing::Chunks(9));
    let broken = Reply::json(200, ANSWER).framed(Framing::BreakAt(40));
    let ended = Reply::json(200, ANSWER).framed(Framing::EndAt(41));
    let server = Server::start([chunked, broken, ended]).await;
    let mut client = OpenAiChat::compatible(&server.url).unwrap();
    ask(&mut client, ChatRequest::user("chunked")).await.unwrap();
    let broken = ask(&mut client, ChatRequest::user("broken")).await.unwrap_err();
    let broken = broken.downcast::<ProviderError>().unwrap();
    assert!(matches!(broken.kind(), ProviderErrorKind::Transport { .. }), "{broken:?}");
    let ended = ask(&mut client, ChatRequest::user("ended")).await.unwrap_err();
    let ended = ended.downcast::<ProviderError>().unwrap();
    assert!(matches!(ended.kind(), ProviderErrorKind::Malformed { .. }), "{ended:?}");
}

#[tokio::test]
async fn dropping_a_call_closes_the_connection() {
    let server = Server::start([Reply::json(200, ANSWER).framed(Framing::HangAt(10))]).await;
    let mut client = OpenAiChat::compatible(&server.url).unwrap();
    let call = ask(&mut client, ChatRequest::user("never mind"));
    tokio::select! {
        answer = call => panic!("the server has not answered, but the call ended with {answer:?}"),
        () = server.wait_for_request() => {}
    }
    server.wait_for_end().await;
}
