//! A loopback HTTP server that answers each connection with the next reply of a script.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};
use tower_chat_core::{Answer, BoxError, ChatRequest};
use tower_chat_genai::{GenAiChat, Provider};
use tower_service::Service;

/// What a connection is answered with.
#[derive(Debug, Clone)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) framing: Framing,
}

/// How the end of a body is told.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Framing {
    /// Its length comes before it.
    Length,
    /// It comes in chunks of this many bytes.
    Chunks(usize),
    /// Only this many bytes of it come, then the connection ends, as a body's end does.
    EndAt(usize),
    /// Only this many bytes of it come, although its length said more.
    BreakAt(usize),
}

impl Reply {
    pub(crate) fn json(status: u16, body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type", "application/json".to_owned())];
        Self { status, headers, body: body.into(), framing: Framing::Length }
    }

    pub(crate) fn stream(body: impl Into<Vec<u8>>) -> Self {
        let headers = vec![("content-type", "text/event-stream".to_owned())];
        Self { status: 200, headers, body: body.into(), framing: Framing::Chunks(7) }
    }

    pub(crate) fn framed(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.push((name, value.to_owned()));
        self
    }

    async fn write(self, stream: &mut TcpStream) -> std::io::Result<()> {
        let Self { status, headers, body, framing } = self;
        let mut head = format!("HTTP/1.1 {status} Answer\r\nconnection: close\r\n");
        for (name, value) in headers {
            head += &format!("{name}: {value}\r\n");
        }
        match framing {
            Framing::Length | Framing::BreakAt(_) => {
                head += &format!("content-length: {}\r\n", body.len());
            }
            Framing::Chunks(_) => head += "transfer-encoding: chunked\r\n",
            Framing::EndAt(_) => {}
        }
        let mut bytes = (head + "\r\n").into_bytes();
        match framing {
            Framing::Length => bytes.extend(body),
            Framing::EndAt(at) | Framing::BreakAt(at) => bytes.extend(&body[..at]),
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
        stream.shutdown().await
    }
}

/// A request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// The request line and the headers, in lower case.
    pub(crate) head: String,
    pub(crate) body: Value,
}

/// The server; it ends when it is dropped.
pub(crate) struct Server {
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/v1/", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let replies: Vec<Reply> = replies.into_iter().collect();
        let seen = received.clone();
        let task = tokio::spawn(async move {
            for reply in replies {
                let (mut stream, _) = listener.accept().await.unwrap();
                stream.set_nodelay(true).unwrap();
                let request = read(&mut stream).await;
                seen.lock().unwrap().push(request);
                // The client may hang up once it has seen enough.
                let _ = reply.write(&mut stream).await;
            }
        });
        Self { url, received, task }
    }

    /// A leaf whose requests come here.
    pub(crate) fn leaf(&self, provider: Provider) -> GenAiChat {
        GenAiChat::new(provider)
            .unwrap()
            .with_endpoint(&self.url)
            .with_key("test-key")
            .with_model("test-model")
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The answer to a request, whole or streamed.
pub(crate) async fn ask(leaf: &mut GenAiChat, request: ChatRequest) -> Result<Answer, BoxError> {
    leaf.call(request).await?.collect().await
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
    let head = String::from_utf8(bytes[..end].to_vec()).unwrap().to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.expect("a request with a body").parse().unwrap();
    let mut body = bytes[end..].to_vec();
    let mut rest = vec![0; length - body.len()];
    stream.read_exact(&mut rest).await.unwrap();
    body.extend(rest);
    Received { head, body: serde_json::from_slice(&body).unwrap() }
}
