//! Tests that deltas are returned as soon as the service sends them, and that dropping a response
//! closes its connection.

use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_chat_core::{ChatResponse, ChatUpdate};

use tower_service::Service;

use crate::client::Provider;
use crate::wires::errors::both;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const ANTHROPIC: [&str; 2] = [
    "data: {\"type\":\"message_start\",\"message\":{\"role\":\"assistant\"}}\n\n\
     data: {\"type\":\"content_block_start\",\"index\":0,\
     \"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
     event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
     \"delta\":{\"type\":\"text_delta\",\"text\":\"one\"}}\n\n",
    "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\
     \"delta\":{\"type\":\"text_delta\",\"text\":\" two\"}}\n\n\
     event: message_delta\n\
     data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"}}\n\n\
     event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
];
const GEMINI: [&str; 2] = [
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\"one\"}]}}]}\n\n",
    "data: {\"candidates\":[{\"content\":{\"parts\":[{\"text\":\" two\"}]},\
     \"finishReason\":\"STOP\"}]}\n\n",
];

/// Returns a response whose first event was received, and the connection on the side of the server.
async fn start_stream(provider: Provider, model: &str, first: &str) -> (ChatResponse, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
        stream.write_all([HEAD, first].concat().as_bytes()).await.unwrap();
        stream
    };
    let mut model = GenAiChat::new(provider).unwrap().with_endpoint(&url).with_key("k");
    let [_, request] = whole_and_streamed(model);
    let (response, stream) = tokio::join!(model.call(request), server);
    let mut response = response.unwrap();
    let first = response.next().await.unwrap().unwrap();
    assert_eq!(first, ChatUpdate::TextDelta("one".to_owned()));
    (response, stream)
}

const CASES: [(Provider, &str, [&str; 2]); 3] = [
    (Provider::Anthropic, "claude-x", ANTHROPIC),
    (Provider::Gemini, "gemini-x", GEMINI),
    (Provider::Vertex, "claude-x", ANTHROPIC),
];

#[tokio::test]
async fn a_delta_is_returned_before_the_service_sends_the_next_delta() {
    for (provider, model, [first, rest]) in CASES {
        let (response, mut stream) = start_stream(provider, model, first).await;
        stream.write_all(rest.as_bytes()).await.unwrap();
        drop(stream);
        assert_eq!(response.collect().await.unwrap().text(), "one two", "{provider:?}");
    }
}

#[tokio::test]
async fn dropping_a_response_closes_the_connection() {
    for (provider, model, [first, _]) in CASES {
        let (response, mut stream) = start_stream(provider, model, first).await;
        drop(response);
        let mut rest = Vec::new();
        // Waits until the client has closed or reset the connection.
        let _ = stream.read_to_end(&mut rest).await;
    }
}
