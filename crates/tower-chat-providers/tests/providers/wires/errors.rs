//! Tests that each form in which a service reports an error becomes a typed error, and that the
//! model client does not retry the request.

use std::time::Duration;

use tower_chat_core::{ChatOptions, ChatRequest, HistoryOwner};
use tower_chat_providers::{Anthropic, ProviderError, ReqwestTransport};

use crate::{
    client::ask,
    client::{Client, Provider},
    server::{Reply, Server},
};

/// One provider for each wire format, each with a model.
pub(crate) const PROVIDERS: [(Provider, &str); 7] = [
    (Provider::Anthropic, "claude-x"),
    (Provider::Gemini, "gemini-x"),
    (Provider::Vertex, "claude-x"),
    (Provider::Bedrock, "nova-x:0"),
    (Provider::Cohere, "command-x"),
    (Provider::Ollama, "llama-x"),
    (Provider::Groq, "llama-x"),
];

pub(crate) fn whole_and_streamed(model: &str) -> [ChatRequest; 2] {
    let mut options = ChatOptions::default();
    options.model = Some(model.to_owned());
    let request = ChatRequest::user("hi").with_options(options);
    [request.clone(), request.streamed()]
}

async fn error(provider: Provider, reply: Reply, request: ChatRequest) -> ProviderError {
    let server = Server::start([reply]).await;
    let error = ask(&mut server.client(provider).build(), request).await.expect_err("no answer");
    assert_eq!(server.received().len(), 1, "the model client must not retry");
    *error.downcast().expect("a typed error")
}

#[tokio::test]
async fn the_error_of_a_rate_limit_has_the_time_to_wait() {
    let body = r#"{"error":{"message":"slow down","type":"rate_limit_error"}}"#;
    for (provider, model) in PROVIDERS {
        for request in whole_and_streamed(model) {
            let reply = Reply::json(429, body).header("retry-after", "7");
            let found = error(provider, reply, request).await;
            assert_eq!(found.status(), Some(429), "{provider:?}");
            assert_eq!(found.code(), Some("rate_limit_error"));
            assert_eq!(found.retry_after(), Some(Duration::from_secs(7)));
            assert!(found.is_retryable());
            let words = "refused the request with status 429 (rate_limit_error): slow down";
            assert!(found.to_string().ends_with(words), "{found}");
        }
    }
}

#[tokio::test]
async fn an_error_body_of_another_shape_is_reported_with_its_text() {
    let shapes = [
        (502, "<html>Bad Gateway</html>", "<html>Bad Gateway</html>", true),
        (404, r#"{"error":"model not found"}"#, "model not found", false),
        (400, r#"[{"error":{"code":400,"message":"bad"}}]"#, "bad", false),
        (403, r#"{"message":"who are you?"}"#, "who are you?", false),
        (
            529,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "Overloaded",
            true,
        ),
        (500, "", "", true),
    ];
    for (provider, model) in PROVIDERS {
        for (status, body, words, retryable) in shapes {
            for request in whole_and_streamed(model) {
                let found = error(provider, Reply::json(status, body), request).await;
                assert_eq!(found.status(), Some(status), "{provider:?}: {found}");
                assert!(found.to_string().ends_with(&format!(": {words}")), "{found}");
                assert_eq!(found.is_retryable(), retryable, "{provider:?}: {body}");
            }
        }
    }
}

#[tokio::test]
async fn the_time_to_wait_is_read_from_the_error_body_of_gemini() {
    let body = r#"{"error":{"code":429,"message":"no","status":"RESOURCE_EXHAUSTED","details":[
        {"@type":"type.googleapis.com/google.rpc.RetryInfo","retryDelay":"1.5s"}]}}"#;
    let [request, _] = whole_and_streamed("gemini-x");
    let found = error(Provider::Gemini, Reply::json(429, body), request).await;
    assert_eq!(found.code(), Some("RESOURCE_EXHAUSTED"));
    assert_eq!(found.retry_after(), Some(Duration::from_millis(1500)));
}

#[tokio::test]
async fn an_error_event_inside_a_stream_with_status_200_fails_the_call() {
    let anthropic = concat!(
        r#"event: message_start
data: {"type":"message_start","message":{"role":"assistant","content":[],"usage":{}}}

event: content_block_start
data: {"type":"content_block_start","index":0,"content_block":{"type":"text","text":"Hel"}}

event: error
data: {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}

"#,
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
    );
    let gemini = concat!(
        "data: {\"candidates\":[{\"content\":{\"role\":\"model\",\"parts\":[{\"text\":\"Hel\"}]}}]}\n\n",
        "data: {\"error\":{\"code\":503,\"message\":\"Overloaded\",\"status\":\"UNAVAILABLE\"}}\n\n",
    );
    let chat = concat!(
        "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"Hel\"}}]}\n\n",
        "data: {\"error\":{\"message\":\"Overloaded\",\"type\":\"server_error\"}}\n\n",
    );
    let cases = [
        (Provider::Anthropic, "claude-x", anthropic, "overloaded_error"),
        (Provider::Vertex, "claude-x", anthropic, "overloaded_error"),
        (Provider::Gemini, "gemini-x", gemini, "UNAVAILABLE"),
        (Provider::Groq, "llama-x", chat, "server_error"),
    ];
    for (provider, model, body, code) in cases {
        let [_, request] = whole_and_streamed(model);
        let found = error(provider, Reply::stream(body), request).await;
        assert_eq!(found.code(), Some(code), "{provider:?}: {found}");
        assert!(found.to_string().ends_with(": Overloaded"), "{found}");
        assert!(found.is_retryable(), "{provider:?}");
    }
}

#[tokio::test]
async fn a_blocked_prompt_is_a_refusal_that_is_not_retryable() {
    let body = r#"{"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{}}"#;
    let [whole, streamed] = whole_and_streamed("gemini-x");
    let stream = Reply::stream(format!("data: {body}\n\n"));
    for (request, reply) in [(whole, Reply::json(200, body)), (streamed, stream)] {
        let found = error(Provider::Gemini, reply, request).await;
        assert_eq!(found.code(), Some("PROHIBITED_PROMPT_SAFETY"), "{found}");
        assert!(!found.is_retryable());
    }
}

#[tokio::test]
async fn an_invalid_answer_is_an_error_that_is_not_retryable() {
    for (provider, model) in PROVIDERS {
        for body in ["<html>", "[]", "{}"] {
            let [request, _] = whole_and_streamed(model);
            let found = error(provider, Reply::json(200, body), request).await;
            assert!(!found.is_retryable(), "{provider:?}, {body}: {found}");
            assert!(found.to_string().contains("cannot be read"), "{provider:?}, {body}: {found}");
        }
    }
}

#[tokio::test]
async fn requests_that_a_provider_cannot_serve_are_refused_before_they_are_sent() {
    for (provider, model) in PROVIDERS {
        let mut client = Client::new(provider).with_base_url("http://127.0.0.1:9/").build();
        let [request, _] = whole_and_streamed(model);
        let kept = request.clone().with_service_id("conv_1");
        let mut sentinel = request.clone();
        sentinel.history_owner = Some(HistoryOwner::Local);
        let mut options = (*request.options).clone();
        options.background = true;
        let background = request.with_options(options);
        for (request, words) in [
            (kept, "conversations that the service stores"),
            (sentinel, "local history"),
            (background, "background answers"),
        ] {
            let error = ask(&mut client, request).await.unwrap_err();
            let error = error.downcast::<ProviderError>().unwrap();
            assert!(error.to_string().contains(words), "{error}");
            assert!(!error.is_retryable());
        }
    }
}

#[tokio::test]
async fn a_service_that_does_not_listen_is_a_retryable_error() {
    // The listener is dropped, so that connections to its port are refused.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    for (provider, model) in PROVIDERS {
        let mut client = Client::new(provider).with_base_url(&url).with_key("k").build();
        for request in whole_and_streamed(model) {
            let error = ask(&mut client, request).await.unwrap_err();
            let error = error.downcast::<ProviderError>().unwrap();
            assert!(error.is_retryable(), "{provider:?}: {error}");
            assert!(error.to_string().contains("the request to"), "{provider:?}: {error}");
        }
    }
}

#[tokio::test]
async fn a_request_without_a_model_is_not_sent() {
    let mut client = Anthropic::new(ReqwestTransport::new().unwrap());
    let error = ask(&mut client, ChatRequest::user("hi")).await.unwrap_err();
    assert!(error.to_string().contains("no model is set"), "{error}");
}
