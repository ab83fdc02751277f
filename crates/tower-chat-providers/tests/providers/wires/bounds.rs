//! Tests of the limits on the size of whole and streamed answers, for every provider.

use std::io::Write;

use tower_chat_core::ChatRequest;
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};
use tower_chat_wire::stream::{Limit, LimitExceeded, Limits};

use crate::{
    client::Provider,
    client::ask,
    server::{Reply, Server},
    wires::errors::{PROVIDERS, whole_and_streamed},
};

async fn error(
    provider: Provider,
    limits: Limits,
    reply: Reply,
    request: ChatRequest,
) -> ProviderError {
    let server = Server::start([reply]).await;
    let mut model = server.client(provider).with_limits(limits).build();
    *ask(&mut model, request).await.expect_err("no answer").downcast().expect("a typed error")
}

fn exceeded(error: &ProviderError) -> LimitExceeded {
    assert!(!error.is_retryable(), "{error}");
    let Kind::Limit(found) = error.kind() else { panic!("{error}") };
    *found
}

/// Returns an event with these data, in the framing of the provider.
fn event(provider: Provider, data: &str) -> Vec<u8> {
    match provider {
        Provider::Bedrock => {
            let mut bytes = Vec::new();
            let message = aws_smithy_types::event_stream::Message::new(data.as_bytes().to_vec());
            aws_smithy_eventstream::frame::write_message_to(&message, &mut bytes).unwrap();
            bytes
        }
        Provider::Ollama => format!("{data}\n").into_bytes(),
        _ => format!("data: {data}\n\n").into_bytes(),
    }
}

#[tokio::test]
async fn an_answer_that_is_too_long_is_a_typed_error_with_every_provider() {
    let long = format!("{{\"odd\":\"{}\"}}", "x".repeat(5000));
    for (provider, model) in PROVIDERS {
        let [whole, streamed] = whole_and_streamed(model);
        let limits = Limits::default().with_max_body_bytes(4000);
        let found = error(provider, limits, Reply::json(200, long.clone()), whole).await;
        assert_eq!(exceeded(&found).limit, Limit::Body, "{provider:?}");
        let events = event(provider, r#"{"odd":1}"#).repeat(500);
        let found = error(provider, limits, Reply::stream(events), streamed.clone()).await;
        assert_eq!(exceeded(&found).limit, Limit::Body, "{provider:?}");
        let limits = Limits::default().with_max_event_bytes(4000);
        let event = event(provider, &long);
        let found = error(provider, limits, Reply::stream(event.clone()), streamed.clone()).await;
        assert_eq!(exceeded(&found).limit, Limit::Event, "{provider:?}");
        if provider != Provider::Bedrock {
            let limits = Limits::default().with_max_line_bytes(4000);
            let found = error(provider, limits, Reply::stream(event), streamed).await;
            assert_eq!(exceeded(&found).limit, Limit::Line, "{provider:?}");
        }
    }
}

#[tokio::test]
async fn a_refusal_that_is_too_long_is_shortened_and_its_message_names_the_limit() {
    let limits = Limits::default().with_max_error_bytes(1000);
    for (provider, model) in PROVIDERS {
        for request in whole_and_streamed(model) {
            let found = error(provider, limits, Reply::json(503, "e".repeat(9000)), request).await;
            assert_eq!((found.status(), found.is_retryable()), (Some(503), true), "{provider:?}");
            assert!(found.to_string().contains("max_error_bytes"), "{found}");
        }
    }
}

#[tokio::test]
async fn json_that_is_nested_too_deeply_is_refused_without_a_stack_overflow() {
    for levels in [121, 8_000, 20_000] {
        let deep = "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
        for (provider, model) in PROVIDERS {
            let [whole, streamed] = whole_and_streamed(model);
            let reply = Reply::json(200, deep.clone());
            let found = error(provider, Limits::default(), reply, whole).await;
            assert_eq!(exceeded(&found).limit, Limit::Depth, "{provider:?}");
            let events = event(provider, &deep).repeat(2);
            let found = error(provider, Limits::default(), Reply::stream(events), streamed).await;
            assert_eq!(exceeded(&found).limit, Limit::Depth, "{provider:?}");
        }
    }
}

#[tokio::test]
async fn a_compressed_answer_is_refused_unless_requested_and_limits_apply_decompressed() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![b' '; 10_000_000]).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 100_000);
    let reply = || Reply::json(200, bomb.clone()).header("content-encoding", "gzip");
    for (provider, model) in PROVIDERS {
        let [whole, _] = whole_and_streamed(model);
        let server = Server::start([reply(), reply()]).await;
        let mut model = server.client(provider).build();
        let found = ask(&mut model, whole.clone()).await.unwrap_err();
        assert!(found.to_string().contains("compressed (gzip)"), "{provider:?}: {found}");
        assert!(!server.received()[0].head.contains("accept-encoding"));
        let limits = Limits::default().with_max_body_bytes(1_000_000);
        let mut model = server.client(provider).with_gzip().with_limits(limits).build();
        let found = ask(&mut model, whole).await.unwrap_err().downcast::<ProviderError>().unwrap();
        assert_eq!(exceeded(&found).limit, Limit::Body, "{provider:?}");
    }
}
