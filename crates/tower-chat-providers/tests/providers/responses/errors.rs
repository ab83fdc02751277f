//! Tests that each form in which a service reports an error becomes a typed error, and that the
//! model client does not retry the request.

use std::time::Duration;

use serde_json::json;
use tower_chat_core::ChatRequest;
use tower_chat_providers::{
    OpenAiResponses, ProviderError, ProviderErrorKind as Kind, Refusal, ReqwestTransport,
};

use super::{event, text_response};
use crate::{
    client::ask,
    server::{Framing, Reply, Server},
};

async fn error(reply: Reply, request: ChatRequest) -> ProviderError {
    let server = Server::start([reply]).await;
    let error = ask(&mut server.responses(), request).await.expect_err("no answer");
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
        let found = error(Reply::json(429, body).header("retry-after", "7"), request).await;
        assert_eq!((found.status(), found.code()), (Some(429), Some("rate_limit")));
        assert_eq!(found.retry_after(), Some(Duration::from_secs(7)));
        assert!(found.is_retryable());
    }
}

#[tokio::test]
async fn an_error_body_of_another_shape_is_reported_with_its_text() {
    for (status, body, words, retryable) in [
        (502, "<html>Bad Gateway</html>", "<html>Bad Gateway</html>", true),
        (400, r#"{"detail":"Stream must be set to true"}"#, "Stream must be set to true", false),
        (404, r#"{"error":"model not found"}"#, "model not found", false),
        (500, "", "", true),
    ] {
        for request in whole_and_streamed() {
            let found = error(Reply::json(status, body), request).await;
            let Some(Refusal { message, body: kept, .. }) = found.refusal() else {
                panic!("{found}")
            };
            assert_eq!((message.as_str(), kept.as_str()), (words, body));
            assert_eq!((found.status(), found.is_retryable()), (Some(status), retryable));
        }
    }
}

#[tokio::test]
async fn an_error_inside_a_stream_with_status_200_fails_the_call() {
    let begun = event(&json!({"type": "response.output_text.delta", "delta": "Hel"}));
    let failed = json!({"id": "resp_1", "status": "failed", "output": [],
        "error": {"code": "server_error", "message": "overloaded"}});
    let events = [
        json!({"type": "error", "code": "server_error", "message": "overloaded", "param": null}),
        json!({"type": "error", "error": {"type": "server_error", "message": "overloaded"}}),
        json!({"error": {"code": "server_error", "message": "overloaded"}}),
        json!({"type": "response.failed", "response": failed}),
    ];
    for data in events {
        let body = begun.clone() + &event(&data) + &event(&json!({"type": "response.odd"}));
        let found = error(Reply::stream(body), ChatRequest::user("hi").streamed()).await;
        assert_eq!(found.code(), Some("server_error"), "{data}");
        assert!(found.to_string().ends_with(": overloaded"), "{found}");
        assert!(found.is_retryable());
        let Some(Refusal { body, .. }) = found.refusal() else { panic!("{found}") };
        assert!(body.contains("overloaded"), "{body}");
    }
    let nameless = json!({"type": "error", "code": null, "message": "odd"});
    let found = error(Reply::stream(event(&nameless)), ChatRequest::user("hi").streamed()).await;
    assert_eq!((found.code(), found.is_retryable()), (None, true));
}

#[tokio::test]
async fn a_response_with_the_status_failed_is_an_error() {
    let failed = |code: &str| {
        json!({"id": "resp_1", "status": "failed", "output": [],
            "error": {"code": code, "message": "no"}})
    };
    for (code, retryable) in [
        ("server_error", true),
        ("rate_limit_exceeded", true),
        ("invalid_prompt", false),
        ("image_content_policy_violation", false),
        ("insufficient_quota", false),
    ] {
        let body = failed(code);
        let found = error(Reply::json(200, body.to_string()), ChatRequest::user("hi")).await;
        assert_eq!((found.code(), found.is_retryable()), (Some(code), retryable));
        let body = event(&json!({"type": "response.failed", "response": body}));
        let found = error(Reply::stream(body), ChatRequest::user("hi").streamed()).await;
        assert_eq!((found.code(), found.is_retryable()), (Some(code), retryable));
    }
    for status in ["failed", "cancelled"] {
        let body = json!({"id": "resp_1", "status": status, "output": [], "error": null});
        let found = error(Reply::json(200, body.to_string()), ChatRequest::user("hi")).await;
        assert_eq!(found.code(), Some(&*format!("response_{status}")));
        assert!(found.to_string().contains(status), "{found}");
    }
}

#[tokio::test]
async fn an_invalid_answer_is_a_typed_error() {
    let unread = [
        "",
        "<html>",
        "[]",
        "{}",
        r#"{"output":{}}"#,
        r#"{"output":[1]}"#,
        r#"{"output":[{"type":"function_call"}]}"#,
        r#"{"status":"in_progress","output":[]}"#,
    ];
    for body in unread {
        let found = error(Reply::json(200, body), ChatRequest::user("hi")).await;
        assert!(matches!(found.kind(), Kind::Malformed { .. }), "{body}: {found}");
        assert!(!found.is_retryable());
    }
    for data in ["not JSON", "[]", "{}", r#"{"type":"response.completed"}"#] {
        let body = Reply::stream(format!("data: {data}\n\n"));
        let found = error(body, ChatRequest::user("hi").streamed()).await;
        let Kind::Malformed { body, .. } = found.kind() else { panic!("{data}: {found}") };
        assert_eq!(body, data);
    }
}

#[tokio::test]
async fn a_whole_answer_that_is_cut_off_is_a_transport_error_or_malformed() {
    let body = text_response("resp_1", "Hello").to_string();
    for at in 0..body.len() {
        let reply = Reply::json(200, body.clone()).framed(Framing::BreakAt(at));
        let found = error(reply, ChatRequest::user("hi")).await;
        assert!(matches!(found.kind(), Kind::Transport { .. }), "{found}");
        assert!(found.is_retryable());
        let reply = Reply::json(200, body.clone()).framed(Framing::EndAt(at));
        let found = error(reply, ChatRequest::user("hi")).await;
        assert!(matches!(found.kind(), Kind::Malformed { .. }), "{found}");
    }
}

#[test]
fn a_key_that_is_not_valid_in_a_header_is_an_error_that_omits_the_key() {
    let client = || OpenAiResponses::compatible("http://localhost").unwrap();
    let azure = OpenAiResponses::azure("http://localhost", ReqwestTransport::new().unwrap());
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
