//! Decodes the events of a streamed response from the whole body.

use serde_json::Value;

use super::{aws, error::RecordingError, exchange::Exchange};

/// How the body of a response is divided into events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Framing {
    /// The body is not divided: JSON, an image, or empty.
    Whole,
    /// Server-sent events.
    Sse,
    /// Each line is a JSON value.
    JsonLines,
    /// A JSON array whose items are the events. Gemini uses this framing for a request without
    /// `alt=sse`.
    JsonArray,
    /// `application/vnd.amazon.eventstream`.
    AwsEventStream,
}

/// An event of a streamed response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamEvent {
    /// The name of the event, if the framing contains names. For an exception in an AWS event
    /// stream, the type of the exception.
    pub event: Option<String>,
    /// The data of the event.
    pub data: String,
}

impl Framing {
    pub(super) fn of(exchange: &Exchange) -> Self {
        let media_type = exchange.headers.get("content-type").map_or("", String::as_str);
        if media_type.contains("vnd.amazon.eventstream") || aws::is_event_stream(&exchange.body) {
            return Self::AwsEventStream;
        }
        let Ok(text) = std::str::from_utf8(&exchange.body) else { return Self::Whole };
        let text = text.trim_start_matches('\u{feff}').trim_start();
        let is_field = |line: &str| {
            ["data:", "event:", "id:", "retry:", ":"].iter().any(|field| line.starts_with(field))
        };
        // The media type is not enough: some services send an undivided error with the media type
        // of server-sent events.
        if is_field(text) {
            return Self::Sse;
        }
        if text.starts_with('[') && exchange.path().ends_with(":streamGenerateContent") {
            return Self::JsonArray;
        }
        let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let is_json = matches!(values.next(), Some(Ok(_)));
        let is_lines = media_type.contains("ndjson") || media_type.contains("jsonl");
        if is_json && (is_lines || matches!(values.next(), Some(Ok(_)))) {
            return Self::JsonLines;
        }
        Self::Whole
    }
}

pub(super) fn events(exchange: &Exchange) -> Result<Vec<StreamEvent>, RecordingError> {
    let unnamed = |data: &str| StreamEvent { event: None, data: data.to_owned() };
    match exchange.framing() {
        Framing::AwsEventStream => {
            aws::events(&exchange.body).map_err(|problem| exchange.error(problem))
        }
        Framing::Sse => Ok(sse(exchange.text()?)),
        Framing::JsonLines => {
            let lines = exchange.text()?.lines().filter(|line| !line.trim().is_empty());
            Ok(lines.map(unnamed).collect())
        }
        Framing::JsonArray => {
            let items: Vec<Value> = serde_json::from_slice(&exchange.body).map_err(|error| {
                exchange.error(format!("its body is not a complete JSON array: {error}"))
            })?;
            Ok(items.iter().map(|item| unnamed(&item.to_string())).collect())
        }
        Framing::Whole if exchange.body.is_empty() => Ok(Vec::new()),
        Framing::Whole => {
            let media_type = exchange.headers.get("content-type").map_or("", String::as_str);
            if media_type.contains("json") {
                exchange.json()?;
            } else if !["image/", "application/pdf", "audio/", "video/", "text/"]
                .iter()
                .any(|known| media_type.starts_with(known))
            {
                // A body with an unknown media type must be JSON.
                exchange.json().map_err(|_| {
                    exchange.error(format!(
                        "its body has the unknown media type {media_type:?} and is not JSON"
                    ))
                })?;
            }
            Ok(vec![unnamed(&String::from_utf8_lossy(&exchange.body))])
        }
    }
}

/// Parses server-sent events (<https://html.spec.whatwg.org/multipage/server-sent-events.html>).
/// The last event may lack the blank line at its end.
fn sse(text: &str) -> Vec<StreamEvent> {
    let mut events = Vec::new();
    let (mut event, mut data): (Option<String>, Option<String>) = (None, None);
    let text = text.trim_start_matches('\u{feff}').replace("\r\n", "\n").replace('\r', "\n");
    for line in text.split('\n').chain([""]) {
        if line.is_empty() {
            let name = event.take();
            if let Some(data) = data.take() {
                events.push(StreamEvent { event: name, data });
            }
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => event = Some(value.to_owned()),
            "data" => {
                data = Some(match data.take() {
                    Some(before) => before + "\n" + value,
                    None => value.to_owned(),
                });
            }
            _ => {}
        }
    }
    events
}
