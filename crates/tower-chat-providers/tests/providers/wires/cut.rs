//! A stream that is cut off is an error or the complete answer, never a short one.

use tower_chat_core::{Answer, BoxError, ChatOptions, ChatRequest};
use tower_chat_providers::{ProviderError, ProviderErrorKind as Kind};
use tower_chat_testkit::recordings::Api;

use crate::{
    cassettes::{self, Exchange},
    client::Provider,
    client::ask,
    server::{Framing, Server},
    wires::recorded::reply,
    wires::wire::{Asked, FOLDERS, Wire},
};

/// Cuts the shortest recorded stream of the wire at every byte by a clean end, and at some of them
/// by a broken one.
async fn cut_everywhere(wire: Wire) {
    let Some(cassettes) = cassettes::of(&FOLDERS) else { return };
    let streams = cassettes.iter().flat_map(|cassette| {
        let asked = cassette
            .exchanges
            .iter()
            .map(|exchange| (exchange, Asked::of(&cassette.folder, exchange)));
        asked.filter_map(|(exchange, asked)| Some((exchange, asked?)))
    });
    let streams = streams.filter(|(exchange, asked)| {
        asked.wire == wire && asked.is_streamed && exchange.status == 200
    });
    let shortest = streams.min_by_key(|(exchange, _)| exchange.response.len());
    let (exchange, asked) = shortest.expect("a recorded stream");
    cut(exchange, &asked).await;
}

async fn cut(exchange: &Exchange, asked: &Asked) {
    let reply = reply(exchange, asked);
    let length = exchange.response.len();
    let broken = (0..length).filter(|at| at % 13 == 0 || at + 50 > length);
    let cuts = (0..length).map(Framing::EndAt).chain(broken.map(Framing::BreakAt));
    let cuts: Vec<Framing> = cuts.collect();
    let count = cuts.len();
    let replies = cuts.iter().map(|framing| reply.clone().framed(*framing));
    let server = Server::start([reply.clone()].into_iter().chain(replies)).await;
    let mut leaf = server.client(asked.provider).build();
    let whole = ask(&mut leaf, streamed(&asked.model)).await.unwrap();
    let mut complete = 0;
    for cut in cuts {
        match ask(&mut leaf, streamed(&asked.model)).await {
            Ok(answer) => {
                assert_eq!(answer, whole, "short: {cut:?} of {length}");
                complete += 1;
            }
            Err(error) => assert_cut_off(&error, cut, &whole),
        }
    }
    println!("{:?}: {complete} of {count} cuts came after the end", asked.wire);
    // Only the white space after the end, and what says nothing more of the answer, may miss.
    assert!(complete * 10 < length, "complete {complete} of {count} times");
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
async fn ollama() {
    let exchange = Exchange {
        url: String::new(),
        api: Api::Ollama,
        request: serde_json::Value::Null,
        status: 200,
        response: crate::wires::ollama::STREAM.into(),
    };
    let (provider, wire) = (Provider::Ollama, Wire::Ollama);
    let asked = Asked { provider, wire, model: "llama-x".to_owned(), is_streamed: true };
    cut(&exchange, &asked).await;
}

#[tokio::test]
async fn anthropic() {
    cut_everywhere(Wire::Anthropic).await;
}

#[tokio::test]
async fn gemini() {
    cut_everywhere(Wire::Gemini).await;
}

#[tokio::test]
async fn bedrock() {
    cut_everywhere(Wire::Bedrock).await;
}

#[tokio::test]
async fn cohere() {
    cut_everywhere(Wire::Cohere).await;
}

#[tokio::test]
async fn claude_in_vertex() {
    let Some(cassettes) = cassettes::of(&["anthropic"]) else { return };
    let all = cassettes.iter().flat_map(|cassette| &cassette.exchanges);
    let streams = all.filter(|exchange| exchange.request["stream"] == true);
    let shortest = streams.min_by_key(|exchange| exchange.response.len()).unwrap();
    let asked = Asked {
        provider: Provider::Vertex,
        wire: Wire::Anthropic,
        model: "claude-x".to_owned(),
        is_streamed: true,
    };
    cut(shortest, &asked).await;
}
