//! Generated HTTP exchanges, and files of such exchanges in the format of vcrpy.

use base64::{Engine, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Dialogue},
    text::text,
};

pub(crate) const JSON: &str = "application/json";
pub(crate) const SSE: &str = "text/event-stream; charset=utf-8";

#[derive(Debug)]
pub(crate) struct Exchange {
    pub(crate) url: String,
    pub(crate) request: Value,
    pub(crate) status: u16,
    pub(crate) media_type: &'static str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
}

/// Generates the requests and responses of a provider.
pub(crate) trait Provider {
    fn folder(&self) -> &'static str;

    fn url(&self, is_streamed: bool) -> String;

    /// Returns the body of a request for the next answer in a dialogue.
    fn request(&self, dialogue: &Dialogue, is_streamed: bool) -> Value;

    /// Returns the body of a response that contains the whole answer.
    fn whole(&self, answer: &Answer) -> Value;

    /// Returns the body of a response that streams the answer.
    fn stream(&self, answer: &Answer) -> Vec<u8>;

    fn stream_type(&self) -> &'static str {
        SSE
    }

    /// Returns one exchange for each answer of a dialogue.
    fn exchanges(&self, dialogue: &Dialogue, is_streamed: bool) -> Vec<Exchange> {
        let exchange = |(asked, answer): (Dialogue, &Answer)| match is_streamed {
            true => self.streamed(&asked, self.stream(answer)),
            false => self.answered(&asked, 200, &self.whole(answer)),
        };
        dialogue.exchanges().map(exchange).collect()
    }

    /// Returns the exchange of a dialogue whose response is a JSON body.
    fn answered(&self, dialogue: &Dialogue, status: u16, body: &Value) -> Exchange {
        Exchange {
            url: self.url(false),
            request: self.request(dialogue, false),
            status,
            media_type: JSON,
            headers: Vec::new(),
            body: text(body).into_bytes(),
        }
    }

    /// Returns the exchange of a dialogue whose response is a stream.
    fn streamed(&self, dialogue: &Dialogue, body: Vec<u8>) -> Exchange {
        Exchange {
            url: self.url(true),
            request: self.request(dialogue, true),
            status: 200,
            media_type: self.stream_type(),
            headers: Vec::new(),
            body,
        }
    }
}

/// Formats events as server-sent events.
pub(crate) fn sse(events: &[Value]) -> Vec<u8> {
    let event = |event: &Value| {
        let name = event["type"].as_str().map(|name| format!("event: {name}\n"));
        format!("{}data: {}\n\n", name.unwrap_or_default(), text(event))
    };
    events.iter().map(event).collect::<String>().into_bytes()
}

/// Returns the content of a file of exchanges.
pub(crate) fn cassette(exchanges: &[Exchange]) -> String {
    exchanges.iter().fold("version: 1\ninteractions:\n".to_owned(), |file, it| file + &yaml(it))
}

fn yaml(exchange: &Exchange) -> String {
    let Exchange { url, request, status, media_type, headers, body } = exchange;
    let request = quoted(&text(request));
    let headers = headers.iter().map(|(name, value)| {
        let values = [value];
        format!("      {name}: {}\n", json!(values))
    });
    let headers: String = headers.collect();
    let body = match std::str::from_utf8(body) {
        Ok(body) if body.contains('\n') => format!("|+\n{}", indented(body)),
        Ok(body) => format!("{}\n", quoted(body)),
        Err(_) => format!("!!binary |\n{}", indented(&lines(&STANDARD.encode(body)))),
    };
    format!(
        "- request:\n    method: POST\n    uri: {}\n    headers:\n      content-type: [application/json]\n    \
         body: {request}\n  response:\n    status: {{code: {status}}}\n    headers:\n      \
         content-type: [{}]\n{headers}    body:\n      string: {body}",
        json!(url),
        json!(media_type),
    )
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn indented(text: &str) -> String {
    let line = |line: &str| match line.is_empty() {
        true => "\n".to_owned(),
        false => format!("        {line}\n"),
    };
    text.lines().map(line).collect()
}

fn lines(text: &str) -> String {
    let lines = text.as_bytes().chunks(96).map(|line| String::from_utf8_lossy(line).into_owned());
    lines.collect::<Vec<_>>().join("\n") + "\n"
}
