use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    api::Api,
    error::RecordingError,
    events::{Framing, StreamEvent, events},
};

/// A request and its response.
#[derive(Debug, Clone)]
pub struct Exchange {
    /// The name of the file's folder, which is that of a provider or a host.
    pub folder: String,
    /// The method, in upper case.
    pub method: String,
    /// The URL; without a host in the files of some recorders.
    pub url: String,
    /// The body of the request, if it is JSON, otherwise `null`.
    pub request: Value,
    /// The body of the request.
    pub request_body: Vec<u8>,
    /// The headers of the request, with names in lower case.
    pub request_headers: BTreeMap<String, String>,
    /// The status of the response.
    pub status: u16,
    /// The headers of the response, with names in lower case. [`body`](Self::body) is decompressed,
    /// even if there is a `content-encoding`.
    pub headers: BTreeMap<String, String>,
    /// The body of the response, decompressed.
    pub body: Vec<u8>,
    /// The file, and the number of the exchange in it.
    pub source: String,
}

impl Exchange {
    /// Returns the URL without its query.
    pub fn path(&self) -> &str {
        self.url.split('?').next().unwrap_or_default()
    }

    /// Returns the API of the request.
    ///
    /// # Errors
    ///
    /// If the request contains a conversation and its URL belongs to no known API.
    pub fn api(&self) -> Result<Api, RecordingError> {
        Api::of(self)
    }

    /// Returns whether the status is 2xx.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the framing of the response: one body, or a stream of events.
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
    /// If the body is not UTF-8.
    pub fn text(&self) -> Result<&str, RecordingError> {
        std::str::from_utf8(&self.body)
            .map_err(|error| self.error(format!("its body is not UTF-8: {error}")))
    }

    /// Returns the body of the response as JSON.
    ///
    /// # Errors
    ///
    /// If the body is not JSON.
    pub fn json(&self) -> Result<Value, RecordingError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| self.error(format!("its body is not JSON: {error}")))
    }

    /// Returns the events of a streamed response, or the body of another response as one event.
    ///
    /// # Errors
    ///
    /// If the body is damaged.
    pub fn events(&self) -> Result<Vec<StreamEvent>, RecordingError> {
        events(self)
    }

    /// Returns the JSON of the events, without the terminator `[DONE]`.
    ///
    /// # Errors
    ///
    /// If the body is damaged, or the data of an event are not JSON.
    pub fn json_events(&self) -> Result<Vec<Value>, RecordingError> {
        let events = self.events()?.into_iter().filter(|event| event.data.trim() != "[DONE]");
        let json = events.map(|event| {
            serde_json::from_str(&event.data).map_err(|error| {
                self.error(format!("an event is not JSON ({error}): {}", event.data))
            })
        });
        json.collect()
    }

    /// Returns the message of an error that the service reports with status 2xx: in an event of a
    /// stream, or as a response that has failed.
    ///
    /// # Errors
    ///
    /// If the body is damaged.
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

    /// Creates an error about this exchange.
    pub(super) fn error(&self, problem: impl Into<String>) -> RecordingError {
        RecordingError::new(&self.source, problem)
    }

    /// Sets `request` to the JSON of the request's body. Fails if a body with the media type of JSON is
    /// not JSON, if the API is not known, or if the response cannot be parsed.
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
