//! Tests that a stream that is cut off results in an error or in the complete answer, and never in
//! an incomplete answer.

use std::collections::BTreeMap;

use serde_json::json;
use tower_chat_core::{Answer, BoxError, ChatRequest};
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};

use super::{event, streamed, text_response};
use crate::{
    cassettes::{self, Cassette, Exchange},
    client::{ask, provider_error},
    server::{Framing, Reply, Server},
};

#[tokio::test]
async fn a_stream_cut_at_any_byte_is_an_error() {
    let delta = json!({"type": "response.output_text.delta", "delta": "Grüße"});
    let body = event(&delta) + ": a comment\n\n" + &streamed(&text_response("resp_1", "Grüße"));
    let whole = answer(&body, Framing::Length).await.unwrap();
    assert_eq!((whole.text().as_str(), whole.finish.usage.output_tokens), ("Grüße", 4));
    cut_everywhere(&body, 1, &whole).await;
}

#[tokio::test]
async fn a_recorded_stream_cut_short_is_an_error() {
    for cassettes in cassettes::cassettes_by_folder() {
        cut_shortest_of(&cassettes).await;
    }
}

async fn cut_shortest_of(cassettes: &[Cassette]) {
    let mut shortest: BTreeMap<&str, &Exchange> = BTreeMap::new();
    for exchange in
        cassettes.iter().flat_map(cassettes::responses_exchanges).filter(|it| is_complete(it))
    {
        let found = shortest.entry(&exchange.folder).or_insert(exchange);
        if exchange.body.len() < found.body.len() {
            *found = exchange;
        }
    }
    println!("streams of {:?}", shortest.keys());
    assert!(!shortest.is_empty());
    // Cuts the shortest stream of all folders at every byte, and the shortest stream of every other
    // folder at some bytes.
    let least = shortest.values().map(|exchange| exchange.body.len()).min();
    for exchange in shortest.values() {
        let body = exchange.text().unwrap();
        let step = if Some(body.len()) == least { 1 } else { (body.len() / 60).max(1) };
        let whole = answer(body, Framing::Length).await.unwrap();
        cut_everywhere(body, step, &whole).await;
    }
}

/// Returns whether the exchange is a stream that ends with a completed or incomplete response.
fn is_complete(exchange: &Exchange) -> bool {
    let events = exchange.is_streamed().then(|| exchange.json_events().unwrap());
    let ends = ["response.completed", "response.incomplete"];
    events.is_some_and(|events| {
        events.last().is_some_and(|end| ends.iter().any(|kind| end["type"] == *kind))
    })
}

/// Cuts the body at every `step`th byte, and at each of the last 100 bytes. The bodies alternate
/// between two kinds: one ends with its connection ([`Framing::EndAt`]), and the next is shorter
/// than its `content-length` ([`Framing::BreakAt`]).
async fn cut_everywhere(body: &str, step: usize, whole: &Answer) {
    let end = body.len().saturating_sub(100);
    let cuts: Vec<Framing> = (0..end)
        .step_by(step)
        .chain(end..=body.len())
        .enumerate()
        .map(|(n, at)| if n % 2 == 0 { Framing::EndAt(at) } else { Framing::BreakAt(at) })
        .collect();
    let replies: Vec<Reply> = cuts.iter().map(|cut| Reply::stream(body).framed(*cut)).collect();
    let server = Server::start(replies).await;
    let mut model = server.responses();
    for cut in cuts {
        let (Framing::EndAt(at) | Framing::BreakAt(at)) = cut else { continue };
        match ask(&mut model, ChatRequest::user("hi").streamed()).await {
            Ok(answer) => {
                assert_eq!(&answer, whole, "short: {cut:?}");
                assert!(at >= end_of_answer(body), "{cut:?}");
            }
            Err(error) => {
                assert_ne!(at, body.len(), "nothing was cut off: {error}");
                let error = error.downcast::<ProviderError>().expect("a typed error");
                assert!(matches!(error.kind(), Kind::Truncated { .. }), "{cut:?}: {error}");
                assert!(error.is_retryable());
            }
        }
    }
}

/// Returns the position after the last event, which is accepted without the blank line that
/// follows. Some services send `[DONE]` after the last event.
fn end_of_answer(body: &str) -> usize {
    body.rfind('}').map_or(body.len(), |end| end + 1)
}

#[tokio::test]
async fn the_error_of_a_cut_stream_contains_the_received_text() {
    let delta = |text| event(&json!({"type": "response.output_text.delta", "delta": text}));
    let body = delta("Hel") + &delta("lo");
    for framing in [Framing::Length, Framing::BreakAt(body.len() - 1)] {
        let error = answer(&body, framing).await.unwrap_err();
        let Kind::Truncated { text, reason } = provider_error(error).into_kind() else { panic!() };
        let how = match framing {
            Framing::Length => "ended before",
            _ => "connection broke",
        };
        // The last event is accepted without the blank line that follows.
        assert_eq!(text, "Hello");
        assert!(reason.contains(how), "{reason}");
    }
}

async fn answer(body: &str, framing: Framing) -> Result<Answer, BoxError> {
    let server = Server::start([Reply::stream(body).framed(framing)]).await;
    ask(&mut server.responses(), ChatRequest::user("hi").streamed()).await
}
