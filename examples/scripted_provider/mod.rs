//! A local server in place of a provider. It streams scripted answers in the provider's wire
//! format.

#![allow(dead_code, reason = "each example plays one of the scripts")]

use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use tower_chat::BoxError;

/// Returns the media type and the content of a stream.
type Script = fn(&Value) -> (&'static str, String);

/// Starts a server on a free port of this machine, and returns its address.
pub(crate) async fn start(script: Script) -> Result<String, BoxError> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let url = format!("http://{}", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Err(error) = answer(stream, script).await {
                eprintln!("the scripted server could not answer: {error}");
            }
        }
    });
    Ok(url)
}

/// Returns an answer in the format of Anthropic: reasoning and a call of the first tool or, if the
/// request contains a tool result, the text of the result.
pub(crate) fn anthropic(request: &Value) -> (&'static str, String) {
    let last = messages(request).last().and_then(|message| message.pointer("/content/0"));
    let result = last.filter(|block| block.get("type") == Some(&json!("tool_result")));
    let mut events = vec![json!({"type": "message_start", "message": {"role": "assistant",
        "model": "script", "content": [], "usage": {"input_tokens": 20, "output_tokens": 1}}})];
    let mut block = |index: usize, begin: Value, deltas: Vec<Value>| {
        events.push(json!({"type": "content_block_start", "index": index,
            "content_block": begin}));
        for delta in deltas {
            events.push(json!({"type": "content_block_delta", "index": index, "delta": delta}));
        }
        events.push(json!({"type": "content_block_stop", "index": index}));
    };
    let reason = match result {
        Some(result) => {
            let reply = text(result.get("content"));
            let words = reply.split_inclusive(' ');
            let deltas = words.map(|word| json!({"type": "text_delta", "text": word}));
            block(0, json!({"type": "text", "text": ""}), deltas.collect());
            "end_turn"
        }
        None => {
            let thought = json!({"type": "thinking", "thinking": "", "signature": ""});
            let thinking = json!({"type": "thinking_delta", "thinking": "The tool knows."});
            let signature = json!({"type": "signature_delta", "signature": "c2lnbmVk"});
            block(0, thought, vec![thinking, signature]);
            let name = text(request.pointer("/tools/0/name"));
            let call = json!({"type": "tool_use", "id": "toolu_1", "name": name, "input": {}});
            let input = ["{\"order\"", ": 7}"];
            let input = input.map(|json| json!({"type": "input_json_delta", "partial_json": json}));
            block(1, call, input.to_vec());
            "tool_use"
        }
    };
    events.push(json!({"type": "message_delta", "delta": {"stop_reason": reason},
        "usage": {"output_tokens": 10}}));
    events.push(json!({"type": "message_stop"}));
    let lines =
        events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", text(event.get("type"))));
    ("text/event-stream", lines.collect())
}

/// Returns an answer in the format of Ollama, whose text contains the number of user messages.
pub(crate) fn ollama(request: &Value) -> (&'static str, String) {
    let is_user = |message: &&Value| message.get("role") == Some(&json!("user"));
    let asked = messages(request).iter().filter(is_user).count();
    let reply = format!("You have asked {asked} times.");
    let mut lines = String::new();
    for word in reply.split_inclusive(' ') {
        let message = json!({"role": "assistant", "content": word});
        lines += &format!("{}\n", json!({"model": "script", "message": message, "done": false}));
    }
    let end = json!({"model": "script", "message": {"role": "assistant", "content": ""},
        "done": true, "done_reason": "stop", "prompt_eval_count": 20, "eval_count": 10});
    ("application/x-ndjson", format!("{lines}{end}\n"))
}

fn messages(request: &Value) -> &[Value] {
    request.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

fn text(value: Option<&Value>) -> String {
    value.and_then(Value::as_str).unwrap_or_default().to_owned()
}

async fn answer(stream: TcpStream, script: Script) -> Result<(), BoxError> {
    let mut stream = BufReader::new(stream);
    let request = read_body(&mut stream).await?;
    let (kind, body) = script(&request);
    let head = "HTTP/1.1 200 OK\r\nconnection: close\r\n";
    let length = format!("content-type: {kind}\r\ncontent-length: {}\r\n\r\n", body.len());
    stream.write_all([head, &length, &body].concat().as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

async fn read_body(stream: &mut BufReader<TcpStream>) -> Result<Value, BoxError> {
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
    Ok(serde_json::from_slice(&body)?)
}
