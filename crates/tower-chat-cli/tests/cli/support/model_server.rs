//! A local HTTP server that replaces a provider. The server answers each request with the next
//! reply of a script.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread,
};

use serde_json::{Value, json};

#[derive(Debug, Clone)]
pub(crate) struct Reply {
    status: u16,
    content_type: &'static str,
    body: Vec<u8>,
    /// Whether the connection stays open after the body until the client closes it.
    hangs: bool,
}

impl Reply {
    /// Creates a streamed answer of Chat Completions with these deltas.
    pub(crate) fn text(pieces: &[&str]) -> Self {
        let deltas = pieces.iter().map(|piece| json!({"content": piece}));
        Self::chat(deltas.collect(), "stop")
    }

    /// Creates a streamed answer that contains these deltas and has no end.
    pub(crate) fn beginning(pieces: &[&str]) -> Self {
        let deltas = pieces.iter().map(|piece| chunk(json!({"content": piece}), None));
        let body: String = deltas.map(|chunk| format!("data: {chunk}\n\n")).collect();
        Self { hangs: true, ..Self::stream(body) }
    }

    /// Creates an answer with tool calls, each as id, name and arguments.
    pub(crate) fn calls(calls: &[(&str, &str, &str)]) -> Self {
        let deltas = calls.iter().enumerate().map(|(index, (id, name, arguments))| {
            let function = json!({"name": name, "arguments": arguments});
            let call = json!({"index": index, "id": id, "type": "function", "function": function});
            json!({"tool_calls": [call]})
        });
        Self::chat(deltas.collect(), "tool_calls")
    }

    /// Creates an error response in OpenAI's format.
    pub(crate) fn refusal(status: u16, message: &str) -> Self {
        let body = json!({"error": {"message": message, "type": "refused", "code": null}});
        let body = body.to_string().into_bytes();
        Self { status, content_type: "application/json", body, hangs: false }
    }

    /// Creates a reply whose body was recorded.
    pub(crate) fn recorded(content_type: &'static str, body: Vec<u8>) -> Self {
        Self { status: 200, content_type, body, hangs: false }
    }

    fn chat(deltas: Vec<Value>, reason: &str) -> Self {
        let mut chunks: Vec<Value> = deltas.into_iter().map(|delta| chunk(delta, None)).collect();
        chunks.push(chunk(json!({}), Some(reason)));
        let mut last = chunk(json!({}), None);
        last["choices"] = json!([]);
        last["usage"] = json!({"prompt_tokens": 31, "completion_tokens": 7, "total_tokens": 38});
        chunks.push(last);
        let mut body: String = chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        body += "data: [DONE]\n\n";
        Self::stream(body)
    }

    fn stream(body: String) -> Self {
        let body = body.into_bytes();
        Self { status: 200, content_type: "text/event-stream", body, hangs: false }
    }

    fn write(&self, mut connection: &TcpStream) -> io::Result<()> {
        let Self { status, content_type, body, hangs } = self;
        write!(connection, "HTTP/1.1 {status} Answer\r\nconnection: close\r\n")?;
        write!(connection, "content-type: {content_type}\r\ntransfer-encoding: chunked\r\n\r\n")?;
        for piece in body.chunks(97) {
            write!(connection, "{:x}\r\n", piece.len())?;
            connection.write_all(piece)?;
            connection.write_all(b"\r\n")?;
        }
        match hangs {
            // Waits until the client closes the connection.
            true => connection.read(&mut [0]).map(drop),
            false => connection.write_all(b"0\r\n\r\n"),
        }
    }
}

fn chunk(delta: Value, reason: Option<&str>) -> Value {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": reason});
    json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "gpt-test",
        "choices": [choice],
    })
}

#[derive(Debug, Clone)]
pub(crate) struct Received {
    /// The request line and the headers.
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl Received {
    /// Formats messages, one per line: `role: text`, or `role: name(arguments)` for a call.
    pub(crate) fn messages(&self) -> Vec<String> {
        let messages = self.body["messages"].as_array().expect("messages");
        messages.iter().map(line_of).collect()
    }
}

fn line_of(message: &Value) -> String {
    let role = message["role"].as_str().unwrap();
    let mut line = match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            parts.iter().map(|part| part["text"].as_str().unwrap()).collect::<String>()
        }
        Value::Null => String::new(),
        other => other.to_string(),
    };
    for call in message["tool_calls"].as_array().into_iter().flatten() {
        let function = &call["function"];
        let (name, arguments) = (&function["name"], &function["arguments"]);
        line += &format!("{}({})", name.as_str().unwrap(), arguments.as_str().unwrap());
    }
    format!("{role}: {line}")
}

/// A server that runs until the test has ended.
pub(crate) struct ModelServer {
    /// The URL of the server, without a path.
    pub(crate) url: String,
    received: Arc<Mutex<Vec<Received>>>,
}

impl ModelServer {
    pub(crate) fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let received = Arc::new(Mutex::new(Vec::new()));
        let seen = received.clone();
        let replies: Vec<Reply> = replies.into_iter().collect();
        thread::spawn(move || {
            let over = Reply::refusal(418, "the script of the test is at its end");
            for (connection, reply) in
                listener.incoming().zip(replies.iter().cloned().chain(std::iter::repeat(over)))
            {
                let connection = connection.unwrap();
                let seen = seen.clone();
                // The reply is written on another thread, because it may hang.
                let request = read(&connection).unwrap();
                seen.lock().unwrap().push(request);
                // Writing fails if the client closes the connection early.
                thread::spawn(move || drop(reply.write(&connection)));
            }
        });
        Self { url, received }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    /// Returns the formatted messages of each received request.
    pub(crate) fn messages(&self) -> Vec<Vec<String>> {
        self.received().iter().map(Received::messages).collect()
    }
}

fn read(connection: &TcpStream) -> io::Result<Received> {
    let mut reader = BufReader::new(connection);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    Ok(Received { head, body: serde_json::from_slice(&body).unwrap_or(Value::Null) })
}
