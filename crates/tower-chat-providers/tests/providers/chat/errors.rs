//! Tests that each form in which a service reports an error becomes a typed error, and that the
//! model client does not retry the request.

use std::{error::Error, time::Duration};

use tower_chat_core::{ChatRequest, HistoryOwner};
use tower_chat_providers::{
    OpenAiChat, ProviderError, ProviderErrorKind as Kind, Refusal, ReqwestTransport,
};

use crate::{
    client::{ask, provider_error},
    server::{Framing, Reply, Server},
};

async fn error(reply: Reply, request: ChatRequest) -> ProviderError {
    let server = Server::start([reply]).await;
    let error = ask(&mut server.model(), request).await.expect_err("no answer");
    assert_eq!(server.received().len(), 1, "the model client must not retry");
    *error.downcast().expect("a typed error")
}

fn whole_and_streamed() -> [ChatRequest; 2] {
    [ChatRequest::user("hi"), ChatRequest::user("hi").streamed()]
}

#[tokio::test]
async fn the_error_of_a_rate_limit_has_the_time_to_wait() {
    let body = r#"{"error":{"message":"slow down","type":"requests","code":"rate_limit"}}"#;
    for request in whole_and_streamed() {
        let reply = Reply::json(429, body).header("retry-after", "7");
        let found = error(reply, request.clone()).await;
        assert_eq!(found.status(), Some(429));
        assert_eq!(found.code(), Some("rate_limit"));
        assert_eq!(found.retry_after(), Some(Duration::from_secs(7)));
        assert!(found.is_retryable());
        assert_eq!(
            tower_chat_core::is_retryable(&found),
            Some(true),
            "layers find whether the error is retryable"
        );
        assert_eq!(
            found.to_string(),
            "openai-compatible refused the request with status 429 (rate_limit): slow down"
        );
        let reply = Reply::json(429, body).header("retry-after-ms", "1500");
        assert_eq!(error(reply, request).await.retry_after(), Some(Duration::from_millis(1500)));
    }
}

#[tokio::test]
async fn an_exhausted_quota_is_not_retryable() {
    let body = r#"{"error":{"message":"pay","type":"insufficient_quota","code":null}}"#;
    let found = error(Reply::json(429, body), ChatRequest::user("hi")).await;
    assert_eq!((found.code(), found.is_retryable()), (Some("insufficient_quota"), false));
    assert_eq!(
        tower_chat_core::is_retryable(&found),
        Some(false),
        "layers find whether the error is retryable"
    );
}

#[tokio::test]
async fn an_error_body_of_another_shape_is_reported_with_its_text() {
    let shapes = [
        (502, "<html>Bad Gateway</html>", "<html>Bad Gateway</html>", None, true),
        (404, r#"{"error":"model not found"}"#, "model not found", None, false),
        (422, r#"{"detail":[{"msg":"no"}]}"#, r#"[{"msg":"no"}]"#, None, false),
        (400, r#"[{"error":{"code":400,"message":"bad"}}]"#, "bad", Some("400"), false),
        (401, r#"{"object":"error","message":"who?","type":"auth"}"#, "who?", Some("auth"), false),
        (500, "", "", None, true),
    ];
    for (status, body, words, code, retryable) in shapes {
        for request in whole_and_streamed() {
            let found = error(Reply::json(status, body), request).await;
            let Some(Refusal { message, body: kept, .. }) = found.refusal() else {
                panic!("{found}")
            };
            assert_eq!((message.as_str(), kept.as_str()), (words, body));
            assert_eq!((found.status(), found.code()), (Some(status), code));
            assert_eq!(found.is_retryable(), retryable, "{body}");
        }
    }
}

#[tokio::test]
async fn an_error_inside_an_answer_with_status_200_fails_the_call() {
    let body = r#"{"error":{"message":"upstream is down","code":502},"user_id":"u"}"#;
    let found = error(Reply::json(200, body), ChatRequest::user("hi")).await;
    assert_eq!((found.status(), found.is_retryable()), (Some(502), true));

    let begun = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    let events = [
        "data: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n",
        "event: error\ndata: {\"error\":{\"message\":\"overloaded\",\"type\":\"server_error\"}}\n\n",
        "data: {\"error\":{\"message\":\"overloaded\",\"code\":\"server_error\"},\
         \"choices\":[{\"index\":0,\"delta\":{\"content\":\"\"},\"finish_reason\":\"error\"}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"error\":{\"message\":\"overloaded\",\
         \"type\":\"server_error\"},\"delta\":{}}]}\n\n",
    ];
    for event in events {
        let stream = Reply::stream(format!("{begun}{event}data: [DONE]\n\n"));
        let found = error(stream, ChatRequest::user("hi").streamed()).await;
        assert_eq!(found.code(), Some("server_error"), "{event}");
        assert!(found.to_string().ends_with(": overloaded"), "{found}");
        assert!(found.is_retryable());
    }
}

#[tokio::test]
async fn an_error_inside_an_answer_that_blames_the_request_is_not_retryable() {
    for code in ["context_length_exceeded", "invalid_request_error", "content_filter"] {
        let event = format!("data: {{\"error\":{{\"message\":\"no\",\"code\":\"{code}\"}}}}\n\n");
        let found = error(Reply::stream(event), ChatRequest::user("hi").streamed()).await;
        assert_eq!((found.code(), found.is_retryable()), (Some(code), false));
    }
}

#[tokio::test]
async fn an_invalid_answer_is_an_error_with_the_body() {
    for body in ["", "<html>", "[]", "{}", r#"{"choices":[]}"#, r#"{"choices":[{}]}"#] {
        let found = error(Reply::json(200, body), ChatRequest::user("hi")).await;
        let Kind::Malformed { body: kept, .. } = found.kind() else { panic!("{body}: {found}") };
        assert_eq!(kept, body);
        assert!(!found.is_retryable());
    }
    let two = r#"{"choices":[{"message":{"content":"a"}},{"message":{"content":"b"}}]}"#;
    let found = error(Reply::json(200, two), ChatRequest::user("hi")).await;
    assert!(found.to_string().contains("several choices"), "{found}");

    let stream = Reply::stream("data: not JSON\n\ndata: [DONE]\n\n");
    let found = error(stream, ChatRequest::user("hi").streamed()).await;
    assert!(matches!(found.kind(), Kind::Malformed { body, .. } if body == "not JSON"), "{found}");
    assert!(found.source().is_some());

    let found = error(Reply::stream("data: [DONE]\n\n"), ChatRequest::user("hi").streamed()).await;
    assert!(matches!(found.kind(), Kind::Truncated { .. }), "{found}");
}

#[tokio::test]
async fn a_whole_answer_that_is_cut_off_is_a_transport_error_or_malformed() {
    let body = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"Hello"}}]}"#;
    for at in 0..body.len() {
        let reply = Reply::json(200, body).framed(Framing::BreakAt(at));
        let found = error(reply, ChatRequest::user("hi")).await;
        assert!(matches!(found.kind(), Kind::Transport { .. }), "{found}");
        assert!(found.is_retryable() && found.source().is_some());
        let reply = Reply::json(200, body).framed(Framing::EndAt(at));
        let found = error(reply, ChatRequest::user("hi")).await;
        assert!(matches!(found.kind(), Kind::Malformed { .. }), "{found}");
    }
}

#[tokio::test]
async fn a_service_that_does_not_listen_is_a_transport_error() {
    let url = Server::start([]).await.url.clone();
    let mut model = OpenAiChat::compatible(&url).unwrap();
    let found = ask(&mut model, ChatRequest::user("hi")).await.expect_err("nobody there");
    let found = found.downcast::<ProviderError>().unwrap();
    assert!(matches!(found.kind(), Kind::Transport { .. }), "{found}");
}

#[tokio::test]
async fn requests_that_chat_completions_cannot_serve_are_refused_before_they_are_sent() {
    let server = Server::start([]).await;
    let mut sentinel = ChatRequest::user("hi");
    sentinel.history_owner = Some(HistoryOwner::Local);
    let found = ask(&mut server.model(), sentinel).await.expect_err("the sentinel");
    assert!(matches!(provider_error(found).kind(), Kind::Sentinel(_)));

    let kept = ChatRequest::user("hi").with_service_id("conv_1");
    let mut background = tower_chat_core::ChatOptions::default();
    background.background = true;
    for request in [kept, ChatRequest::user("hi").with_options(background)] {
        let found = ask(&mut server.model(), request).await.expect_err("unsupported");
        assert!(matches!(provider_error(found).kind(), Kind::Unsupported { .. }));
    }
    assert!(server.received().is_empty());
}

#[test]
fn a_key_that_is_not_valid_in_a_header_is_an_error_that_omits_the_key() {
    let client = || OpenAiChat::compatible("http://localhost").unwrap();
    let azure = OpenAiChat::azure("http://localhost", "d", "v", ReqwestTransport::new().unwrap());
    let errors = [
        client().with_key("sk-1\n").unwrap_err(),
        azure.with_key("sk-2\n").unwrap_err(),
        client().with_header("a b", "c").unwrap_err(),
        client().with_header("x-key", "sk-3\n").unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error.kind(), Kind::Configuration { .. }), "{error}");
        assert!(!format!("{error:?} {error}").contains("sk-"), "{error:?}");
    }
}
