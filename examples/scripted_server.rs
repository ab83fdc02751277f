//! A local server in place of OpenAI. It calls the first tool of the request, and then repeats the
//! result of the tool. It streams its answers in the formats of Chat Completions and Responses.

mod responses;

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tower_chat::BoxError;

/// Starts the server on a free port of this machine, and returns its base URL.
pub(crate) async fn start() -> Result<String, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}/v1", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Err(error) = answer(stream).await {
                eprintln!("the scripted server could not answer: {error}");
            }
        }
    });
    Ok(url)
}

async fn answer(stream: TcpStream) -> Result<(), BoxError> {
    let mut stream = BufReader::new(stream);
    let (path, request) = read(&mut stream).await?;
    let events = match path.ends_with("/responses") {
        true => responses::events(&request),
        false => chat_events(&request),
    };
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-type: text/event-stream\r\n";
    let length = format!("content-length: {}\r\n\r\n", events.len());
    stream.write_all([head, &length, &events].concat().as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

/// Returns the event stream that answers a request of Chat Completions.
fn chat_events(request: &Value) -> String {
    let mut events = String::new();
    for delta in deltas(request) {
        let event = json!({"choices": [{"index": 0, "delta": delta}]});
        events += &format!("data: {event}\n\n");
    }
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 20, "completion_tokens": 10}});
    events + &format!("data: {usage}\n\ndata: [DONE]\n\n")
}

fn deltas(request: &Value) -> Vec<Value> {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).unwrap_or_default().to_owned();
    let messages = request.get("messages").and_then(Value::as_array);
    let messages = messages.map(Vec::as_slice).unwrap_or_default();
    let role = |message: &Value| text(message.get("role"));
    let asked = messages.iter().filter(|message| role(message) == "user").count();
    match messages.last() {
        Some(last) if role(last) == "tool" => {
            let reply = text(last.get("content"));
            let reply = format!("{reply} (You have asked {asked} times.)");
            reply.split_inclusive(' ').map(|word| json!({"content": word})).collect()
        }
        _ => {
            let name = text(request.pointer("/tools/0/function/name"));
            let function = json!({"name": name, "arguments": "{\"order\""});
            let id = format!("call_{asked}");
            vec![
                json!({"tool_calls": [{"index": 0, "id": id, "type": "function",
                    "function": function}]}),
                json!({"tool_calls": [{"index": 0, "function": {"arguments": ": 7}"}}]}),
            ]
        }
    }
}

async fn read(stream: &mut BufReader<TcpStream>) -> Result<(String, Value), BoxError> {
    let mut first = String::new();
    stream.read_line(&mut first).await?;
    let path = first.split_whitespace().nth(1).unwrap_or_default().to_owned();
    let mut length = 0;
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        if line.is_empty() {
            break;
        }
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    Ok((path, serde_json::from_slice(&body)?))
}
