//! An HTTP server on the loopback interface that sends the next reply of a script to each
//! connection.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
};
use tower_chat_providers::{OpenAiChat, OpenAiResponses, ReqwestTransport};

use crate::client::{Client, Provider};

/// The reply that the server sends to a connection.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
}

/// How the end of the body is marked, and whether the connection ends earlier.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Framing {
    /// The header `content-length` contains the length of the body.
    Length,
    /// The body is sent in chunks of this many bytes, and ends with an empty chunk.
    Chunks(usize),
    /// The body has no length, and the connection is closed after this many bytes.
    EndAt(usize),
    /// The connection is closed after this many bytes, fewer than `content-length`.
    BreakAt(usize),
    /// Only this many bytes are sent, and the connection remains open.
    HangAt(usize),
}

impl Reply {
    pub(crate) fn new(status: u16, content_type: &str, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type".to_owned(), content_type.to_owned())];
        Self { status, headers, body: body.into(), framing: Framing::Length }
    }

    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self::new(status, "application/json", body)
    }

    pub(crate) fn stream(body: impl Into<Vec<u8>>) -> Self {
        Self::new(200, "text/event-stream", body).framed(Framing::Chunks(7))
    }

    pub(crate) fn framed(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    pub(crate) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    async fn write(self, stream: &mut TcpStream) -> std::io::Result<()> {
        let Self { status, headers, body, framing } = self;
        let mut head = format!("HTTP/1.1 {status} Answer\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        match framing {
            Framing::Length | Framing::BreakAt(_) | Framing::HangAt(_) => {
                head += &format!("content-length: {}\r\n", body.len());
            }
            Framing::Chunks(_) => head += "transfer-encoding: chunked\r\n",
            Framing::EndAt(_) => {}
        }
        let mut bytes = (head + "\r\n").into_bytes();
        match framing {
            Framing::Length => bytes.extend(body),
            Framing::EndAt(at) | Framing::BreakAt(at) | Framing::HangAt(at) => {
                bytes.extend(&body[..at]);
            }
            Framing::Chunks(size) => {
                for chunk in body.chunks(size) {
                    bytes.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                    bytes.extend(chunk);
                    bytes.extend(b"\r\n");
                }
                bytes.extend(b"0\r\n\r\n");
            }
        }
        stream.write_all(&bytes).await?;
        if let Framing::HangAt(_) = framing {
            // Waits until the client closes the connection or the test ends.
            let _ = stream.read(&mut [0; 1]).await;
        }
        stream.shutdown().await
    }
}

/// A request that the server has received.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// The method and the target.
    pub(crate) target: String,
    /// The request line and the headers, in lower case.
    pub(crate) head: String,
    /// The headers, with their names in lower case.
    pub(crate) headers: Vec<(String, String)>,
    /// The JSON body, or `null` if the request has no body.
    pub(crate) body: Value,
}

impl Received {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A running server. Dropping it stops the server.
pub(crate) struct Server {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    request_read: Arc<Notify>,
    ended: Arc<Notify>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let (request_read, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let replies: Vec<Reply> = replies.into_iter().collect();
        let (seen, reading, ending) = (received.clone(), request_read.clone(), ended.clone());
        let task = tokio::spawn(async move {
            for reply in replies {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let request = read(&mut stream).await;
                seen.lock().unwrap().push(request);
                reading.notify_one();
                // The client may close the connection before the whole reply is written.
                let _ = reply.write(&mut stream).await;
                ending.notify_one();
            }
        });
        Self { url, received, request_read, ended, task }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns a client of Chat Completions that sends requests without a key to this server.
    pub(crate) fn model(&self) -> OpenAiChat<ReqwestTransport> {
        OpenAiChat::compatible(&self.url).unwrap()
    }

    /// Returns a client of Responses that sends requests without a key to this server.
    pub(crate) fn responses(&self) -> OpenAiResponses<ReqwestTransport> {
        OpenAiResponses::compatible(&self.url).unwrap()
    }

    /// Returns a client of a provider that sends requests with a key and a model to this server.
    pub(crate) fn client(&self, provider: Provider) -> Client {
        Client::new(provider).with_base_url(&self.url).with_key("test-key")
    }

    /// Waits until a whole request has been received.
    pub(crate) async fn wait_for_request(&self) {
        self.request_read.notified().await;
    }

    /// Waits until a connection has ended.
    pub(crate) async fn wait_for_end(&self) {
        self.ended.notified().await;
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn read(stream: &mut TcpStream) -> Received {
    let mut bytes = Vec::new();
    let end = loop {
        let mut buffer = [0; 16 * 1024];
        let count = stream.read(&mut buffer).await.unwrap();
        assert_ne!(count, 0, "the request was cut off");
        bytes.extend(&buffer[..count]);
        if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
            break end + 4;
        }
    };
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap();
    let mut lines = head.lines();
    let target = lines.next().unwrap().trim_end_matches(" HTTP/1.1").to_owned();
    let headers = lines.filter_map(|line| line.split_once(": "));
    let headers: Vec<(String, String)> =
        headers.map(|(name, value)| (name.to_lowercase(), value.to_owned())).collect();
    let length = headers.iter().find(|(name, _)| name == "content-length");
    let length: usize = length.map_or(0, |(_, length)| length.parse().unwrap());
    let mut body = bytes[end..].to_vec();
    let mut rest = vec![0; length - body.len()];
    stream.read_exact(&mut rest).await.unwrap();
    body.extend(rest);
    let body = if body.is_empty() { Value::Null } else { serde_json::from_slice(&body).unwrap() };
    Received { target, head: head.to_lowercase(), headers, body }
}
