//! Tests that deltas are returned as soon as the service sends them, and that dropping a response
//! closes its connection.

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tower_chat_core::{ChatRequest, ChatResponse, ChatUpdate};
use tower_chat_providers::{OpenAiChat, OpenAiResponses, ProviderError, ReqwestTransport};
use tower_service::Service;

const HEAD: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n";

/// The first event of a stream, with the text `one`, and the rest of the stream, with the text
/// ` two`.
struct Script {
    first_event: &'static str,
    remaining_events: &'static str,
}

const CHAT: Script = Script {
    first_event: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one\"}}]}\n\n",
    remaining_events: "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\" two\"}}]}\n\n\
           data: [DONE]\n\n",
};

const RESPONSES: Script = Script {
    first_event: "data: {\"type\":\"response.output_text.delta\",\"delta\":\"one\"}\n\n",
    remaining_events: "data: {\"type\":\"response.completed\",\"response\":{\"output\":[{\"type\":\"message\",\
           \"role\":\"assistant\",\"content\":[{\"type\":\"output_text\",\"text\":\"one two\"}]}]}}\n\n",
};

fn chat(url: &str) -> OpenAiChat<ReqwestTransport> {
    OpenAiChat::compatible(url).unwrap()
}

fn responses(url: &str) -> OpenAiResponses<ReqwestTransport> {
    OpenAiResponses::compatible(url).unwrap()
}

/// Returns a response whose first event was received, and the connection on the side of the server.
async fn start_stream<S>(model: fn(&str) -> S, script: &Script) -> (ChatResponse, TcpStream)
where
    S: Service<ChatRequest, Response = ChatResponse, Error = ProviderError>,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let server = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 4096];
        assert_ne!(stream.read(&mut request).await.unwrap(), 0);
        stream.write_all([HEAD, script.first_event].concat().as_bytes()).await.unwrap();
        stream
    };
    let mut model = model(&url);
    let (response, stream) = tokio::join!(model.call(ChatRequest::user("hi").streamed()), server);
    let mut response = response.unwrap();
    let first = response.next().await.unwrap().unwrap();
    assert_eq!(first, ChatUpdate::TextDelta("one".to_owned()));
    (response, stream)
}

#[tokio::test]
async fn a_delta_is_returned_before_the_service_sends_the_next_delta() {
    for (script, begun) in [
        (CHAT, start_stream(chat, &CHAT).await),
        (RESPONSES, start_stream(responses, &RESPONSES).await),
    ] {
        let (response, mut stream) = begun;
        stream.write_all(script.remaining_events.as_bytes()).await.unwrap();
        drop(stream);
        assert_eq!(response.collect().await.unwrap().text(), "one two");
    }
}

#[tokio::test]
async fn dropping_a_response_closes_the_connection() {
    for (response, mut stream) in
        [start_stream(chat, &CHAT).await, start_stream(responses, &RESPONSES).await]
    {
        drop(response);
        let mut rest = Vec::new();
        // Waits until the client has closed or reset the connection.
        let _ = stream.read_to_end(&mut rest).await;
    }
}
