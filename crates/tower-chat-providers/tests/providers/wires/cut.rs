//! Tests that a stream that is cut off results in an error or in the complete answer, and never in
//! an incomplete answer.

use serde_json::json;
use tower_chat_core::{Answer, BoxError, ChatOptions, ChatRequest};
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};

use crate::{
    cassettes::{self, Api, Cassette, Exchange},
    client::Provider,
    client::ask,
    server::{Framing, Server},
    wires::recorded::reply,
    wires::wire::{ModelRequest, Wire},
};

/// Cuts the shortest stream of the wire in each folder of recorded data. A body that ends with its
/// connection ([`Framing::EndAt`]) is cut at every byte, and a body that is shorter than its
/// `content-length` ([`Framing::BreakAt`]) at some bytes.
async fn cut_everywhere(wire: Wire) {
    let mut count = 0;
    for cassettes in cassettes::cassettes_by_folder() {
        let exchanges = cassettes.iter().flat_map(|cassette| &cassette.exchanges);
        let streams =
            exchanges.filter_map(|exchange| Some((exchange, ModelRequest::of_exchange(exchange)?)));
        let streams = streams.filter(|(exchange, model_request)| {
            model_request.wire == wire
                && exchange.is_streamed()
                && exchange.reported_error().unwrap().is_none()
        });
        if let Some((exchange, model_request)) =
            streams.min_by_key(|(exchange, _)| exchange.body.len())
        {
            cut(exchange, &model_request).await;
            count += 1;
        }
    }
    assert!(count > 0, "no stream of {wire:?} is recorded");
}

async fn cut(exchange: &Exchange, model_request: &ModelRequest) {
    let reply = reply(exchange, model_request);
    let length = exchange.body.len();
    let broken = (0..length).filter(|at| at % 13 == 0 || at + 50 > length);
    let cuts = (0..length).map(Framing::EndAt).chain(broken.map(Framing::BreakAt));
    let cuts: Vec<Framing> = cuts.collect();
    let count = cuts.len();
    let replies = cuts.iter().map(|framing| reply.clone().framed(*framing));
    let server = Server::start([reply.clone()].into_iter().chain(replies)).await;
    let mut model = server.client(model_request.provider).build();
    let whole = ask(&mut model, streamed(&model_request.model)).await.unwrap();
    let mut complete = 0;
    for cut in cuts {
        match ask(&mut model, streamed(&model_request.model)).await {
            Ok(answer) => {
                // The answer has a finish reason, so only its usage may be missing.
                assert_eq!(answer.messages, whole.messages, "short: {cut:?} of {length}");
                assert_eq!(answer.finish.reason, whole.finish.reason, "{cut:?} of {length}");
                complete += 1;
            }
            Err(error) => assert_cut_off(&error, cut, &whole),
        }
    }
    println!("{:?}: {complete} of {count} cuts came after the end", model_request.wire);
    // In a complete answer, only the usage, white space and fields without content may be missing,
    // so most cuts must result in an error.
    assert!(complete * 2 < length, "complete {complete} of {count} times");
}

fn assert_cut_off(error: &BoxError, cut: Framing, whole: &Answer) {
    let error = error.downcast_ref::<ProviderError>().expect("a typed error");
    let Kind::Truncated { text, .. } = error.kind() else { panic!("{cut:?}: {error}") };
    assert!(whole.text().starts_with(text.as_str()), "{cut:?}: {text}");
    assert!(error.is_retryable());
}

fn streamed(model: &str) -> ChatRequest {
    let mut options = ChatOptions::default();
    options.model = Some(model.to_owned());
    ChatRequest::user("hi").with_options(options).streamed()
}

#[tokio::test]
async fn a_cut_stream_of_ollama_is_an_error_or_the_whole_answer() {
    let yaml = json!({"interactions": [{
        "request": {"uri": "/api/chat", "body": "{\"messages\":[]}"},
        "response": {"status": 200, "body": crate::wires::ollama::STREAM},
    }]});
    let cassette = Cassette::parse("ollama", "stream.yaml", &yaml.to_string()).unwrap();
    let exchange = &cassette.exchanges[0];
    let (provider, wire) = (Provider::Ollama, Wire::Ollama);
    let model_request =
        ModelRequest { provider, wire, model: "llama-x".to_owned(), is_streamed: true };
    cut(exchange, &model_request).await;
}

#[tokio::test]
async fn a_cut_stream_of_anthropic_is_an_error_or_the_whole_answer() {
    cut_everywhere(Wire::Anthropic).await;
}

#[tokio::test]
async fn a_cut_stream_of_gemini_is_an_error_or_the_whole_answer() {
    cut_everywhere(Wire::Gemini).await;
}

#[tokio::test]
async fn a_cut_stream_of_bedrock_is_an_error_or_the_whole_answer() {
    cut_everywhere(Wire::Bedrock).await;
}

#[tokio::test]
async fn a_cut_stream_of_cohere_is_an_error_or_the_whole_answer() {
    cut_everywhere(Wire::Cohere).await;
}

#[tokio::test]
async fn a_cut_stream_of_claude_in_vertex_is_an_error_or_the_whole_answer() {
    let cassettes = cassettes::all_cassettes();
    let all = cassettes.iter().flat_map(|cassette| &cassette.exchanges);
    let streams = all.filter(|exchange| {
        exchange.api().unwrap() == Api::AnthropicMessages
            && exchange.is_streamed()
            && exchange.reported_error().unwrap().is_none()
    });
    let shortest = streams.min_by_key(|exchange| exchange.body.len()).unwrap();
    let model_request = ModelRequest {
        provider: Provider::Vertex,
        wire: Wire::Anthropic,
        model: "claude-x".to_owned(),
        is_streamed: true,
    };
    cut(shortest, &model_request).await;
}
