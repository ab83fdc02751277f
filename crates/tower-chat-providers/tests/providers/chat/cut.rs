//! Tests that a stream that is cut off results in an error or in the complete answer, and never in
//! an incomplete answer.

use std::collections::BTreeMap;

use tower_chat_core::{Answer, BoxError, ChatRequest};
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};

use crate::{
    cassettes::{self, Cassette, Exchange},
    client::ask,
    server::{Framing, Reply, Server},
};

const WITH_TEXT_AND_CALLS: &str = concat!(
    ": a comment\n\n",
    r#"data: {"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":"Grüße"}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"reasoning_content":"[DONE]"}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","#,
    r#""function":{"name":"f","arguments":"{\"x\":"}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"#,
    r#""function":{"arguments":"1}"}}]}}]}"#,
    "\n\n",
    r#"data: {"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
    "\n\n",
    r#"data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":4}}"#,
    "\n\ndata: [DONE]\n\n",
);

#[tokio::test]
async fn a_stream_cut_at_any_byte_is_an_error_or_the_whole_answer() {
    let whole = answer(WITH_TEXT_AND_CALLS, Framing::Length).await.unwrap();
    assert_eq!((whole.text().as_str(), whole.finish.usage.output_tokens), ("Grüße", 4));
    cut_everywhere(WITH_TEXT_AND_CALLS, 1, &whole).await;
}

#[tokio::test]
async fn a_recorded_stream_cut_short_is_an_error_or_the_whole_answer() {
    for cassettes in cassettes::cassettes_by_folder() {
        cut_shortest_of(&cassettes).await;
    }
}

async fn cut_shortest_of(cassettes: &[Cassette]) {
    let mut shortest: BTreeMap<&str, &Exchange> = BTreeMap::new();
    for exchange in
        cassettes.iter().flat_map(cassettes::chat_exchanges).filter(|it| is_complete(it))
    {
        let found = shortest.entry(&exchange.folder).or_insert(exchange);
        if exchange.body.len() < found.body.len() {
            *found = exchange;
        }
    }
    println!("streams of {:?}", shortest.keys());
    assert!(!shortest.is_empty());
    // Cuts the shortest stream of each folder at each of the last 100 bytes, and at some earlier
    // bytes.
    for exchange in shortest.values() {
        let body = exchange.text().unwrap();
        let whole = answer(body, Framing::Length).await.unwrap();
        cut_everywhere(body, (body.len() / 60).max(1), &whole).await;
    }
}

/// Returns whether the exchange is a stream that ends with `[DONE]` and without an error.
fn is_complete(exchange: &Exchange) -> bool {
    exchange.is_streamed()
        && exchange.text().unwrap().trim_end().ends_with("[DONE]")
        && exchange.reported_error().unwrap().is_none()
}

/// Cuts the body at every `step`th byte, and at each of the last 100 bytes. Each cut is tested with
/// a body that ends with its connection ([`Framing::EndAt`]), and with a body that is shorter than
/// its `content-length` ([`Framing::BreakAt`]).
async fn cut_everywhere(body: &str, step: usize, whole: &Answer) {
    let end = body.len().saturating_sub(100);
    let offsets: Vec<usize> = (0..end).step_by(step).chain(end..body.len()).collect();
    let cuts: Vec<Framing> =
        offsets.iter().flat_map(|at| [Framing::EndAt(*at), Framing::BreakAt(*at)]).collect();
    let replies = cuts.iter().map(|framing| Reply::stream(body).framed(*framing));
    let server = Server::start(replies.collect::<Vec<_>>()).await;
    let mut model = server.model();
    let mut complete = 0;
    for cut in cuts {
        let (Framing::EndAt(at) | Framing::BreakAt(at)) = cut else { continue };
        match ask(&mut model, ChatRequest::user("hi").streamed()).await {
            Ok(answer) => {
                assert_eq!(answer.messages, whole.messages, "short: {cut:?}");
                assert_eq!(answer.finish.reason, whole.finish.reason, "{cut:?}");
                let received = String::from_utf8_lossy(&body.as_bytes()[..at]);
                let has_reason = ["\"finish_reason\":\"", "\"finish_reason\": \"", "[DONE]"];
                assert!(has_reason.iter().any(|end| received.contains(end)), "{cut:?}");
                complete += 1;
            }
            Err(error) => {
                let error = error.downcast::<ProviderError>().expect("a typed error");
                assert!(matches!(error.kind(), Kind::Truncated { .. }), "{cut:?}: {error}");
            }
        }
    }
    assert!(complete > 0, "never complete, even after [DONE]");
}

#[tokio::test]
async fn the_error_of_a_cut_stream_contains_the_received_text() {
    let at = WITH_TEXT_AND_CALLS.find("tool_calls").unwrap();
    let error = answer(WITH_TEXT_AND_CALLS, Framing::EndAt(at)).await.unwrap_err();
    let error = error.downcast::<ProviderError>().unwrap();
    let Kind::Truncated { text, reason } = error.kind() else { panic!("{error}") };
    assert_eq!(text, "Grüße");
    assert!(reason.contains("ended before"), "{reason}");
}

async fn answer(body: &str, framing: Framing) -> Result<Answer, BoxError> {
    let server = Server::start([Reply::stream(body).framed(framing)]).await;
    ask(&mut server.model(), ChatRequest::user("hi").streamed()).await
}
