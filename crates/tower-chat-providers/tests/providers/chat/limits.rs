//! Tests of the limits on the size of an answer, for whole and streamed answers of Chat Completions
//! and Responses.

use std::io::Write;

use serde_json::{Value, json};
use tower_chat_core::{ChatRequest, ChatResponse};
use tower_chat_providers::{
    OpenAiChat, ProviderError, ProviderErrorKind as Kind, Refusal, ReqwestTransport,
};
use tower_chat_wire::stream::{Limit, Limits};
use tower_service::Service;

use crate::{
    client::ask,
    server::{Reply, Server},
};

/// Returns the errors of the clients of Chat Completions and of Responses for the same reply.
async fn errors(
    limits: Limits,
    reply: impl Fn() -> Reply,
    request: &ChatRequest,
) -> [ProviderError; 2] {
    let server = Server::start([reply(), reply()]).await;
    let chat = server.model().with_limits(limits);
    let responses = server.responses().with_limits(limits);
    [error(chat, request).await, error(responses, request).await]
}

async fn error<S>(mut model: S, request: &ChatRequest) -> ProviderError
where
    S: Service<ChatRequest, Response = ChatResponse, Error = ProviderError>,
{
    *ask(&mut model, request.clone()).await.unwrap_err().downcast().unwrap()
}

fn assert_names(error: &ProviderError, limit: Limit, max: usize) {
    let Kind::Limit(found) = error.kind() else { panic!("{error}") };
    assert_eq!((found.limit, found.max), (limit, max));
    assert!(error.to_string().contains(limit.setting()), "{error}");
    assert!(error.to_string().contains(&max.to_string()), "{error}");
    assert!(!error.is_retryable());
}

fn long_answer(is_event: bool) -> String {
    let json = json!({"choices": [{"delta": {"content": "x".repeat(5000)}}]});
    if is_event { format!("data: {json}\n\n") } else { json.to_string() }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_a_typed_error() {
    let whole = ChatRequest::user("hi");
    let limits = Limits::default().with_max_body_bytes(4000);
    for found in errors(limits, || Reply::json(200, long_answer(false)), &whole).await {
        assert_names(&found, Limit::Body, 4000);
    }
    let streamed = ChatRequest::user("hi").streamed();
    for found in errors(limits, || Reply::stream(long_answer(true)), &streamed).await {
        assert_names(&found, Limit::Body, 4000);
    }
    let lines = Limits::default().with_max_line_bytes(3000);
    for found in errors(lines, || Reply::stream(long_answer(true)), &streamed).await {
        assert_names(&found, Limit::Line, 3000);
    }
    let events = Limits::default().with_max_event_bytes(2000);
    let endless = "data: {\n".to_owned() + &"data: 1,\n".repeat(1000);
    for found in errors(events, || Reply::stream(endless.clone()), &streamed).await {
        assert_names(&found, Limit::Event, 2000);
    }
}

/// A model client ignores the bytes after the end of an answer, even if they exceed a limit.
#[tokio::test]
async fn an_answer_that_is_complete_before_the_bytes_over_a_limit_is_accepted() {
    let events = [
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"all of it\"}}]}\n\n",
        "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
        "data: [DONE]\n\n",
        &long_answer(true),
    ];
    let limits = Limits::default();
    for limits in [limits.with_max_line_bytes(3000), limits.with_max_body_bytes(4000)] {
        let server = Server::start([Reply::stream(events.concat())]).await;
        let mut model = server.model().with_limits(limits);
        let answer = ask(&mut model, ChatRequest::user("hi").streamed()).await.unwrap();
        assert_eq!(answer.text(), "all of it");
    }
}

#[tokio::test]
async fn a_refusal_that_is_too_long_is_shortened_and_its_message_names_the_limit() {
    let limits = Limits::default().with_max_error_bytes(1000);
    for request in [ChatRequest::user("hi"), ChatRequest::user("hi").streamed()] {
        for found in errors(limits, || Reply::json(503, "e".repeat(9000)), &request).await {
            let Some(Refusal { body, message, .. }) = found.refusal() else { panic!("{found}") };
            assert_eq!(body.len(), 1000);
            assert!(message.contains("1000") && message.contains("max_error_bytes"), "{message}");
            assert_eq!((found.status(), found.is_retryable()), (Some(503), true));
        }
    }
}

/// Without the limit, merging two deltas with 8,000 levels would overflow the stack.
#[tokio::test]
async fn json_that_is_nested_too_deeply_is_refused_without_a_stack_overflow() {
    let deep = |levels: usize| {
        let nested = "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
        format!("{{\"choices\":[{{\"index\":0,\"delta\":{{\"odd\":{nested}}}}}]}}")
    };
    for levels in [117, 8_000, 20_000] {
        let event = format!("data: {}\n\n", deep(levels));
        let stream = || Reply::stream(event.repeat(2));
        let request = ChatRequest::user("hi").streamed();
        for found in errors(Limits::default(), stream, &request).await {
            assert_names(&found, Limit::Depth, 120);
        }
        let whole = || Reply::json(200, deep(levels));
        for found in errors(Limits::default(), whole, &ChatRequest::user("hi")).await {
            assert_names(&found, Limit::Depth, 120);
        }
    }
    let event = format!("data: {}\n\n", deep(110));
    let server = Server::start([Reply::stream(event.repeat(2) + "data: [DONE]\n\n")]).await;
    let request = ChatRequest::user("hi").streamed();
    ask(&mut server.model(), request).await.unwrap();
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn compressed(text: &str) -> Reply {
    Reply::json(200, gzip(text)).header("content-encoding", "gzip")
}

#[tokio::test]
async fn a_compressed_answer_is_refused_unless_compression_was_requested() {
    let answer = r#"{"choices":[{"index":0,"message":{"content":"packed"}}]}"#;
    let server = Server::start([compressed(answer)]).await;
    let found = error(server.model(), &ChatRequest::user("hi")).await;
    assert!(matches!(found.kind(), Kind::Malformed { .. }), "{found}");
    assert!(found.to_string().contains("compressed (gzip)"), "{found}");
    assert!(!server.received()[0].head.contains("accept-encoding"));
}

/// Limits apply to the decompressed bytes.
#[tokio::test]
async fn a_small_body_that_decompresses_to_a_large_body_is_refused() {
    let answer = r#"{"choices":[{"index":0,"message":{"content":"packed"}}]}"#;
    let bomb = format!("{answer}{}", " ".repeat(10_000_000));
    let server = Server::start([compressed(answer), compressed(&bomb)]).await;
    let limits = Limits::default().with_max_body_bytes(1_000_000);
    let mut model =
        OpenAiChat::compatible_over(&server.url, ReqwestTransport::with_gzip().unwrap())
            .with_limits(limits);
    let found = ask(&mut model, ChatRequest::user("hi")).await.unwrap();
    assert_eq!(found.text(), "packed");
    assert!(server.received()[0].head.contains("accept-encoding: gzip"));
    assert!(gzip(&bomb).len() < 100_000);
    assert_names(&error(model, &ChatRequest::user("hi")).await, Limit::Body, 1_000_000);
}

#[tokio::test]
async fn an_error_event_that_contains_a_status_is_an_error_with_this_status() {
    let fields = |fields: Value| {
        let mut error = json!({"message": "Failed to call a function.", "type": "x"});
        error.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        format!("event: error\ndata: {}\n\n", json!({"error": error}))
    };
    let begun = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n";
    for (named, status, retryable) in [
        (json!({"status_code": 400, "code": "tool_use_failed"}), Some(400), false),
        (json!({"status_code": "429"}), Some(429), true),
        (json!({"status": 503}), Some(503), true),
        (json!({"code": 400}), Some(400), false),
        (json!({"status_code": 200}), None, true),
    ] {
        let server =
            Server::start([Reply::stream(format!("{begun}{}", fields(named.clone())))]).await;
        let found = error(server.model(), &ChatRequest::user("hi").streamed()).await;
        assert_eq!((found.status(), found.is_retryable()), (status, retryable), "{named}");
        assert!(found.to_string().ends_with(": Failed to call a function."), "{found}");
    }
}

#[test]
fn the_default_limits_are_at_least_ten_times_the_largest_recorded_sizes() {
    let limits = Limits::default();
    assert!(limits.max_body_bytes >= 10 * 107_801 && limits.max_line_bytes >= 10 * 26_813);
    assert!(limits.max_event_bytes >= 10 * 26_840 && limits.max_error_bytes >= 10 * 1_410);
    assert!(limits.max_depth >= 10 * 11);
}
