//! A codec that makes a model client from an HTTP client.
//!
//! A wire is a provider's JSON format. A model client is the innermost service of a stack, and
//! sends requests to a provider.

use std::{error::Error, fmt, sync::Arc, time::Duration};

use futures_core::future::BoxFuture;
use http::{HeaderValue, Method, StatusCode, Uri, header};
use serde_json::Value;
use tower_chat_layers::{BoxError, ChatRequest, ChatResponse, Retryability, adapt::ClientCodec};

use crate::body::{BodyError, BodyWire};

/// A codec for an HTTP client with JSON bodies.
///
/// Each request is a `POST` to the same URL, with `content-type: application/json`. Layers of the
/// HTTP client can add an API key and other headers. Answers are not streamed.
#[derive(Debug, Clone)]
pub struct JsonClient {
    wire: BodyWire,
    uri: String,
}

impl JsonClient {
    /// Creates a codec for a wire and a URL, such as `https://api.openai.com/v1/chat/completions`.
    /// The codec replaces `{model}` in the URL by the name of the model, because some services,
    /// such as Gemini, expect the name there.
    pub fn new(wire: BodyWire, uri: impl Into<String>) -> Self {
        Self { wire, uri: uri.into() }
    }

    fn uri(&self, model: Option<&str>) -> Result<Uri, BoxError> {
        const MODEL: &str = "{model}";
        if !self.uri.contains(MODEL) {
            return Ok(self.uri.parse()?);
        }
        let unnamed =
            BodyError::Field { field: "model", expected: "a name to insert into the URL" };
        Ok(self.uri.replace(MODEL, model.ok_or(unnamed)?).parse()?)
    }
}

impl ClientCodec for JsonClient {
    type Request = http::Request<Value>;
    type Response = http::Response<Value>;

    fn encode(&self, mut request: ChatRequest) -> Result<http::Request<Value>, BoxError> {
        if request.options.stream {
            Arc::make_mut(&mut request.options).stream = false;
        }
        let body = self.wire.render_request(&request)?;
        let mut encoded = http::Request::new(body);
        *encoded.method_mut() = Method::POST;
        *encoded.uri_mut() = self.uri(request.options.model.as_deref())?;
        let json = HeaderValue::from_static("application/json");
        encoded.headers_mut().insert(header::CONTENT_TYPE, json);
        *encoded.extensions_mut() = request.extensions;
        Ok(encoded)
    }

    fn decode(
        &self,
        response: http::Response<Value>,
    ) -> BoxFuture<'static, Result<ChatResponse, BoxError>> {
        let (parts, body) = response.into_parts();
        let decoded = if parts.status.is_success() {
            self.wire.parse_answer(&body.to_string()).map(ChatResponse::from).map_err(Into::into)
        } else {
            let seconds = parts.headers.get(header::RETRY_AFTER);
            let seconds = seconds.and_then(|value| value.to_str().ok()?.trim().parse().ok());
            let retry_after = seconds.map(Duration::from_secs);
            Err(RefusedAnswer { status: parts.status, retry_after, body }.into())
        };
        Box::pin(std::future::ready(decoded))
    }
}

/// The error for a response whose HTTP status is not 2xx.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct RefusedAnswer {
    /// The HTTP status.
    pub status: StatusCode,
    /// How long the client has to wait before a retry, if the response has a header `retry-after`
    /// with a number of seconds.
    pub retry_after: Option<Duration>,
    /// The body of the response.
    pub body: Value,
}

impl RefusedAnswer {
    /// Returns whether the same request may succeed later: `true` for the statuses 408, 409, 429
    /// and 5xx.
    pub fn is_retryable(&self) -> bool {
        matches!(self.status.as_u16(), 408 | 409 | 429 | 500..=599)
    }
}

impl fmt::Display for RefusedAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { status, body, .. } = self;
        write!(f, "the chat service refused the request with status {status}: {body}")
    }
}

impl Error for RefusedAnswer {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(Retryability::from_retryable(self.is_retryable()).as_source())
    }
}
