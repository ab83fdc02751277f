//! A fuzz target for the headers of a provider's answer: retry delays and rate limits.

use std::time::Duration;

use axum::body::{Body, Bytes};
use futures_util::{FutureExt, future::ready};
use http::{Request, Response};
use tower::{ServiceExt, service_fn};
use tower_chat::{BoxError, ChatRequest};
use tower_chat_providers::{OpenAiChat, rate_limit::RateLimitLayer};
use tower_chat_testkit::Rng;

use super::Entry;

const HEADERS: [&str; 8] = [
    "retry-after: 7",
    "retry-after: Fri, 31 Dec 1999 23:59:59 GMT",
    "retry-after-ms: 1500.5",
    "x-ratelimit-remaining-requests: 0\nx-ratelimit-reset-requests: 6m0s\n\
     x-ratelimit-remaining-tokens: 149984\nx-ratelimit-reset-tokens: 1h2m3.5s",
    "anthropic-ratelimit-input-tokens-remaining: 0\n\
     anthropic-ratelimit-input-tokens-reset: 2026-11-23T14:52:34Z",
    "x-ratelimit-remaining: 0\nx-ratelimit-reset: 1795395600000",
    "x-ratelimit-remaining-req-minute: 59\nx-ratelimit-reset-req-minute: 88ms",
    "content-type: application/json\nx-request-id: r1\ncontent-encoding: identity",
];

pub(crate) fn target() -> Entry {
    Entry::new(
        "response-headers",
        "Retry-After and rate limits: retry_after, RateLimitLayer",
        || {
            let run = |bytes: &[u8], rng: &mut Rng| accepts(bytes, rng).unwrap_or(false);
            (HEADERS.map(Vec::from).to_vec(), Box::new(run))
        },
    )
}

fn accepts(bytes: &[u8], rng: &mut Rng) -> Option<bool> {
    let status = *rng.one_of(&[200, 400, 429, 503, 529])?;
    let mut response = Response::builder().status(status);
    for line in bytes.split(|byte| *byte == b'\n') {
        let colon = line.iter().position(|byte| *byte == b':')?;
        let (name, value) = line.split_at(colon);
        response = response.header(name, value.strip_prefix(b": ").unwrap_or(value));
    }
    let head = response.body(()).ok()?.into_parts().0;
    let transport = service_fn(move |_: Request<Bytes>| {
        ready(Ok::<_, BoxError>(Response::from_parts(head.clone(), Body::from("{}"))))
    });
    let limits = RateLimitLayer::new(1).max_wait(Duration::ZERO);
    let client = OpenAiChat::new(transport).with_model("m").with_layer(limits);
    let mut waits = false;
    for text in ["Which tide?", "And now?"] {
        let answer = async { client.clone().oneshot(ChatRequest::user(text)).await };
        // The future is not ready if the client waits for the rate limit, even if the delay is
        // zero.
        let Some(answer) = answer.now_or_never() else { break };
        if let Err(error) = answer {
            waits |= error.retry_after().is_some();
            assert!(!error.to_string().is_empty());
        }
    }
    Some(waits)
}
