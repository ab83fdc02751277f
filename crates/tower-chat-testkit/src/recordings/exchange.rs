use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    api::Api,
    error::RecordingError,
    events::{Framing, StreamEvent, events},
};

/// A recorded request and its response.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The name of the folder of the file, which names a provider or a host.
    pub folder: String,
    /// The method, in upper case.
    pub method: String,
    /// The URL of the request. In the files of some recorders, the URL has no host.
    pub url: String,
    /// The body of the request as a JSON value, or `null` if the body is not JSON.
    pub request: Value,
    /// The bytes of the request's body.
    pub request_body: Vec<u8>,
    /// The headers of the request, with names in lower case.
    pub request_headers: BTreeMap<String, String>,
    /// The status of the response.
    pub status: u16,
    /// The headers of the response, with names in lower case. The header `content-encoding` may be
    /// present, although [`body`](Self::body) is decompressed.
    pub headers: BTreeMap<String, String>,
    /// The body of the response after decompression.
    pub body: Vec<u8>,
    /// The file, and the number of the exchange in the file.
    pub source: String,
}

impl Exchange {
    /// Returns the URL without its query.
    pub fn path(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// Returns the API that the request calls.
    ///
    /// # Errors
    ///
    /// Fails if the request contains a conversation but its URL belongs to no known API.
    pub fn api(&self) -> Result<Api, RecordingError> {
        Api::of(self)
    }

    /// Returns whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns how the body of the response is divided into events.
    pub fn framing(&self) -> Framing {
        Framing::of(self)
    }

    /// Returns whether the response is a stream of events.
    pub fn is_streamed(&self) -> bool {
        self.framing() != Framing::Whole
    }

    /// Returns the body of the response as text.
    ///
    /// # Errors
    ///
    /// Fails if the body is not UTF-8.
    pub fn text(&self) -> Result<&str, RecordingError> {
        std::str::from_utf8(&self.body)
            .map_err(|error| self.error(format!("its body is not UTF-8: {error}")))
    }

    /// Returns the body of the response as JSON.
    ///
    /// # Errors
    ///
    /// Fails if the body is not JSON.
    pub fn json(&self) -> Result<Value, RecordingError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| self.error(format!("its body is not JSON: {error}")))
    }

    /// Returns the events of a streamed response. The body of any other response is returned as one
    /// event.
    ///
    /// # Errors
    ///
    /// Fails if the body is damaged.
    pub fn events(&self) -> Result<Vec<StreamEvent>, RecordingError> {
        events(self)
    }

    /// Returns the JSON of the events, without the terminator `[DONE]`.
    ///
    /// # Errors
    ///
    /// Fails if the body is damaged, or if the data of an event is not JSON.
    pub fn json_events(&self) -> Result<Vec<Value>, RecordingError> {
        let events = self.events()?.into_iter().filter(|event| event.data.trim() != "[DONE]");
        let json = events.map(|event| {
            serde_json::from_str(&event.data).map_err(|error| {
                self.error(format!("an event is not JSON ({error}): {}", event.data))
            })
        });
        json.collect()
    }

    /// Returns the message of an error that the service reported although the status is 2xx. A
    /// service reports such an error in an event of a stream, or in a response object with the
    /// status `failed`.
    ///
    /// # Errors
    ///
    /// Fails if the body is damaged.
    pub fn reported_error(&self) -> Result<Option<String>, RecordingError> {
        if !self.is_success() {
            return Ok(None);
        }
        let is_streamed = self.is_streamed();
        let message = |event: StreamEvent| {
            let name = event.event.unwrap_or_default();
            let json: Value = serde_json::from_str(&event.data).unwrap_or_default();
            let is = |field: &str, value: &str| json.get(field).is_some_and(|it| it == value);
            let is_failed = match is_streamed {
                true => is("type", "error") || name == "error" || name.ends_with("Exception"),
                false => is("status", "failed"),
            };
            let found = ["/error", "/response/error"].into_iter().find_map(|at| {
                json.pointer(at).filter(|error| !error.is_null() && (is_streamed || is_failed))
            });
            let error = found.or(is_failed.then_some(&json))?;
            let message = error.get("message").unwrap_or(error).as_str();
            Some(message.unwrap_or_default().to_owned())
        };
        Ok(self.events()?.into_iter().find_map(message))
    }

    pub(super) fn error(&self, problem: impl Into<String>) -> RecordingError {
        RecordingError::new(&self.source, problem)
    }

    /// Parses the request's body and sets `request`.
    pub(super) fn with_request_json(mut self) -> Result<Self, RecordingError> {
        let media_type = self.request_headers.get("content-type");
        let is_json = media_type.is_some_and(|kind| kind.contains("json"));
        self.request = match serde_json::from_slice(&self.request_body) {
            Ok(json) => json,
            Err(error) if is_json && !self.request_body.is_empty() => {
                return Err(self.error(format!("its request is not JSON: {error}")));
            }
            Err(_) => Value::Null,
        };
        self.api()?;
        self.events()?;
        Ok(self)
    }
}
