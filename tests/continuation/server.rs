//! A loopback HTTP server that replays recorded answers and records the requests.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    task::JoinHandle,
};

/// The answers to the requests, in order. After the last one, the server begins again with the
/// first.
#[derive(Debug, Clone)]
pub(crate) struct Answers {
    pub(crate) content_type: &'static str,
    pub(crate) bodies: Vec<Vec<u8>>,
}

/// A received request. `line` is its request line, such as `POST /v1/chat/completions HTTP/1.1`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Received {
    pub(crate) line: String,
    pub(crate) body: String,
}

pub(crate) struct Server {
    /// The address of the server with `http://`, without a path.
    pub(crate) url: String,
    state: Arc<Mutex<State>>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct State {
    answers: Option<Answers>,
    /// The number of answers that the server has sent.
    given: usize,
    received: Vec<Received>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(State::default()));
        let shared = state.clone();
        let task = tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let request = read(&mut stream).await;
                let (content_type, body) = shared.lock().unwrap().answer(request);
                // The client may close the connection before it has read the whole answer.
                let _ = write(&mut stream, content_type, &body).await;
            }
        });
        Self { url, state, task }
    }

    /// Sets the answers, and skips the first `from` of them.
    pub(crate) fn play(&self, answers: &Answers, from: usize) {
        let answers = Some(answers.clone());
        *self.state.lock().unwrap() = State { answers, given: from, received: Vec::new() };
    }

    /// Removes and returns the requests since the last call of this method.
    pub(crate) fn take_received(&self) -> Vec<Received> {
        std::mem::take(&mut self.state.lock().unwrap().received)
    }
}

impl State {
    fn answer(&mut self, request: Received) -> (&'static str, Vec<u8>) {
        self.received.push(request);
        let answers = self.answers.as_ref().expect("nothing is sent before the first play");
        let body = answers.bodies[self.given % answers.bodies.len()].clone();
        self.given += 1;
        (answers.content_type, body)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn write(stream: &mut TcpStream, content_type: &str, body: &[u8]) -> std::io::Result<()> {
    let head = format!(
        "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: {content_type}\r\n\
         content-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body).await?;
    stream.shutdown().await
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
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let length: usize = length.expect("a request with a body");
    let mut body = bytes[end..].to_vec();
    let mut rest = vec![0; length - body.len()];
    stream.read_exact(&mut rest).await.unwrap();
    body.extend(rest);
    let line = head.lines().next().unwrap().to_owned();
    Received { line, body: String::from_utf8(body).unwrap() }
}
