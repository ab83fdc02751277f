//! A server with the API of OpenAI that is sometimes overloaded. In each run, it calls the first
//! tool, refuses the first request that contains the tool result, and answers the next request.

use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tower_chat::BoxError;

/// The server, on a free local port.
pub(crate) struct UnreliableServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

/// A request, and the status of its answer.
#[derive(Clone)]
pub(crate) struct Request {
    pub(crate) token: String,
    pub(crate) status: u16,
}

impl UnreliableServer {
    pub(crate) async fn start() -> Result<Self, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/v1", listener.local_addr()?);
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = requests.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                if let Err(error) = answer(stream, &seen).await {
                    eprintln!("the server could not answer: {error}");
                }
            }
        });
        Ok(Self { url, requests })
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn answer(stream: TcpStream, requests: &Mutex<Vec<Request>>) -> Result<(), BoxError> {
    let mut stream = BufReader::new(stream);
    let (token, body) = read(&mut stream).await?;
    let (status, headers, body) = {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        let refused = requests.iter().filter(|request| request.status == 503).count();
        let answered = requests.len().saturating_sub(refused);
        let reply = reply(&body, answered, refused);
        requests.push(Request { token, status: reply.0 });
        reply
    };
    let head = format!(
        "HTTP/1.1 {status} Answer\r\nconnection: close\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n{headers}\r\n",
        body.len()
    );
    stream.write_all([head, body].concat().as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

fn reply(request: &Value, answered: usize, refused: usize) -> (u16, &'static str, String) {
    let messages = request.get("messages").and_then(Value::as_array);
    let last = messages.and_then(|messages| messages.last());
    let text = |name: &str| last.and_then(|last| last.get(name)?.as_str()).unwrap_or_default();
    let (message, reason) = match text("role") {
        // In each run: an answer with a call, a refusal, and an answer with a text.
        "tool" if answered > 2 * refused => {
            let error = json!({"error": {"message": "overloaded", "type": "server_error"}});
            return (503, "retry-after-ms: 20\r\n", error.to_string());
        }
        "tool" => (json!({"role": "assistant", "content": text("content")}), "stop"),
        _ => {
            let name = request.pointer("/tools/0/function/name");
            let function = json!({"name": name, "arguments": "{\"order\":7}"});
            let call = json!({"id": "call_1", "type": "function", "function": function});
            let message = json!({"role": "assistant", "content": null, "tool_calls": [call]});
            (message, "tool_calls")
        }
    };
    let choice = json!({"index": 0, "message": message, "finish_reason": reason});
    let usage = json!({"prompt_tokens": 20, "completion_tokens": 10});
    let body = json!({"choices": [choice], "usage": usage, "model": "script"});
    // The client has used up the rate limit, which resets after 30 ms.
    let headers = "x-ratelimit-remaining-requests: 0\r\nx-ratelimit-reset-requests: 30ms\r\n";
    (200, headers, body.to_string())
}

async fn read(stream: &mut BufReader<TcpStream>) -> Result<(String, Value), BoxError> {
    let (mut token, mut length) = (String::new(), 0);
    let mut line = String::new();
    while stream.read_line(&mut line).await? > 2 {
        let (name, value) = line.split_once(':').unwrap_or((&line, ""));
        match name.to_ascii_lowercase().as_str() {
            "authorization" => token = value.trim().trim_start_matches("Bearer ").to_owned(),
            "content-length" => length = value.trim().parse()?,
            _ => {}
        }
        line.clear();
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((token, serde_json::from_slice(&body)?))
}
