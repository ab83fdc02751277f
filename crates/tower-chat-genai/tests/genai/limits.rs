//! How much of an answer a leaf takes, of every provider, whole and streamed.

use std::io::Write;

use tower_chat_core::ChatRequest;
use tower_chat_genai::{GenAiError, Provider};
use tower_chat_openai::OpenAiError;
use tower_chat_wire::stream::{Limit, LimitExceeded, Limits};

use crate::{
    errors::{PROVIDERS, both},
    server::{Reply, Server, ask},
};

async fn error(
    provider: Provider,
    limits: Limits,
    reply: Reply,
    request: ChatRequest,
) -> GenAiError {
    let server = Server::start([reply]).await;
    let mut leaf = server.leaf(provider).with_limits(limits);
    *ask(&mut leaf, request).await.expect_err("no answer").downcast().expect("a typed error")
}

fn exceeded(error: &GenAiError) -> LimitExceeded {
    assert!(!error.is_retryable(), "{error}");
    match error {
        GenAiError::Limit(found) | GenAiError::Compatible(OpenAiError::Limit(found)) => *found,
        other => panic!("{other}"),
    }
}

/// An event of each provider's framing that holds a text.
fn event(provider: Provider, data: &str) -> Vec<u8> {
    match provider {
        Provider::Bedrock => {
            let length = u32::try_from(16 + data.len()).unwrap().to_be_bytes();
            let head = [length.as_slice(), &[0; 8]].concat();
            [head.as_slice(), data.as_bytes(), &[0; 4]].concat()
        }
        Provider::Ollama => format!("{data}\n").into_bytes(),
        _ => format!("data: {data}\n\n").into_bytes(),
    }
}

/// Issue 16, 3
#[tokio::test]
async fn an_answer_that_is_too_long_is_a_typed_error_of_every_provider() {
    let long = format!("{{\"odd\":\"{}\"}}", "x".repeat(5000));
    for (provider, model) in PROVIDERS {
        let [whole, streamed] = both(model);
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

/// Issue 16, 3
#[tokio::test]
async fn a_refusal_that_is_too_long_is_cut_off_and_says_so() {
    let limits = Limits::default().with_max_error_bytes(1000);
    for (provider, model) in PROVIDERS {
        for request in both(model) {
            let found = error(provider, limits, Reply::json(503, "e".repeat(9000)), request).await;
            assert_eq!((found.status(), found.is_retryable()), (Some(503), true), "{provider:?}");
            assert!(found.to_string().contains("max_error_bytes"), "{found}");
        }
    }
}

/// Issue 16, 2
#[tokio::test]
async fn json_that_is_nested_too_deeply_is_refused_and_ends_no_process() {
    for levels in [121, 8_000, 20_000] {
        let deep = "{\"a\":".repeat(levels) + "1" + &"}".repeat(levels);
        for (provider, model) in PROVIDERS {
            let [whole, streamed] = both(model);
            let reply = Reply::json(200, deep.clone());
            let found = error(provider, Limits::default(), reply, whole).await;
            assert_eq!(exceeded(&found).limit, Limit::Depth, "{provider:?}");
            let events = event(provider, &deep).repeat(2);
            let found = error(provider, Limits::default(), Reply::stream(events), streamed).await;
            assert_eq!(exceeded(&found).limit, Limit::Depth, "{provider:?}");
        }
    }
}

/// Issue 16, 3: genai turns on reqwest's `gzip` for the whole program.
#[tokio::test]
async fn a_compressed_answer_is_refused_unless_it_was_asked_for_and_counts_unpacked() {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(&vec![b' '; 10_000_000]).unwrap();
    let bomb = encoder.finish().unwrap();
    assert!(bomb.len() < 100_000);
    let reply = || Reply::json(200, bomb.clone()).header("content-encoding", "gzip");
    for (provider, model) in PROVIDERS {
        let [whole, _] = both(model);
        let server = Server::start([reply(), reply()]).await;
        let mut leaf = server.leaf(provider);
        let found = ask(&mut leaf, whole.clone()).await.unwrap_err();
        assert!(found.to_string().contains("compressed (gzip)"), "{provider:?}: {found}");
        assert!(!server.received()[0].head.contains("accept-encoding"));
        let limits = Limits::default().with_max_body_bytes(1_000_000);
        let mut leaf = leaf.with_gzip().unwrap().with_limits(limits);
        let found = ask(&mut leaf, whole).await.unwrap_err().downcast::<GenAiError>().unwrap();
        assert_eq!(exceeded(&found).limit, Limit::Body, "{provider:?}");
    }
}
