//! Deltas come as the service sends them, and a dropped response ends the connection.

use futures_util::StreamExt;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_chat_core::{ChatRequest, ChatResponse, ChatUpdate};
use tower_chat_openai::OpenAiChat;
use tower_service::Service;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";
const FIRST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n";
const REST: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" two\"}}]}\n\n\
                    data: [DONE]\n\n";

/// A response of which the first event has come, and the server's end of its connection.
async fn begun() -> (ChatResponse, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
        stream.write_all([HEAD, FIRST].concat().as_bytes()).await.unwrap();
        stream
    };
    let mut leaf = OpenAiChat::compatible(&url, None).unwrap();
    let (response, stream) = tokio::join!(leaf.call(ChatRequest::user("hi").streamed()), server);
    let mut response = response.unwrap();
    let first = response.next().await.unwrap().unwrap();
    assert_eq!(first, ChatUpdate::TextDelta("one".to_owned()));
    (response, stream)
}

#[tokio::test]
async fn a_delta_is_seen_before_the_next_one_is_sent() {
    let (response, mut stream) = begun().await;
    stream.write_all(REST.as_bytes()).await.unwrap();
    drop(stream);
    assert_eq!(response.collect().await.unwrap().text(), "one two");
}

#[tokio::test]
async fn a_dropped_response_hangs_up() {
    let (response, mut stream) = begun().await;
    drop(response);
    let mut rest = Vec::new();
    // Ends, by a clean or a reset connection, only once the client has hung up.
    let _ = stream.read_to_end(&mut rest).await;
}
