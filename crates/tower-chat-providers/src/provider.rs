//! The trait that a provider's API implements for the generic client.
//!
//! An exchange is the one or two HTTP requests of a call. A wire is a provider's JSON format. A
//! frame is one event of a streamed answer.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, header::CONTENT_TYPE};
use tower_chat_core::ChatRequest;
use tower_chat_wire::{
    body::{AnswerContext, BodyWire},
    rules::ServiceRules,
    stream::Limits,
};

use crate::{
    auth::{AuthHeader, SentSecrets},
    error::{Errors, ProviderError, ProviderErrorKind},
    exchange::Expected,
    frames::StreamFraming,
};

/// A provider's API, which converts a [`ChatRequest`] to an HTTP request.
///
/// [`ProviderClient`](crate::ProviderClient) implements the rest of a call for all providers.
///
/// This example implements a gateway that uses OpenAI's wire format.
///
/// ```
/// use tower_chat_core::ChatRequest;
/// use tower_chat_providers::{
///     Exchange, Provider, ProviderClient, ProviderError, ProviderErrorKind, ReqwestTransport,
///     Settings, StreamFraming, auth::AuthHeader,
/// };
/// use tower_chat_wire::body::{BodyError, BodyWire};
///
/// #[derive(Debug, Clone)]
/// struct Gateway;
///
/// impl Provider for Gateway {
///     fn name(&self) -> &'static str {
///         "gateway"
///     }
///
///     fn auth_header(&self) -> AuthHeader {
///         AuthHeader::Bearer
///     }
///
///     fn exchange(
///         &self,
///         request: &ChatRequest,
///         settings: &Settings,
///     ) -> Result<Exchange, ProviderError> {
///         settings.refuse_stored(request)?;
///         let mut request = request.clone();
///         let model = settings.required_model(&request)?.to_owned();
///         std::sync::Arc::make_mut(&mut request.options).model = Some(model);
///         let body = BodyWire::OpenAiChat.render_request_json(&request);
///         let body = body.map_err(|error: BodyError| {
///             let what = error.to_string();
///             ProviderError::new("gateway", ProviderErrorKind::Unsupported { what })
///         });
///         let body = body?.get().to_owned();
///         let post = settings.post("/chat", body)?;
///         let framing = request.options.stream.then_some(StreamFraming::Sse);
///         Ok(Exchange::new(BodyWire::OpenAiChat, post).with_framing(framing))
///     }
/// }
///
/// let transport = ReqwestTransport::new()?;
/// let client = ProviderClient::with_provider(Gateway, "https://llm.example.com", transport)
///     .with_key("secret")?
///     .with_model("large");
/// # let _ = client;
/// # Ok::<(), ProviderError>(())
/// ```
pub trait Provider: Clone + fmt::Debug + Send + Sync + 'static {
    /// Returns the name of the provider in errors, such as `anthropic`.
    fn name(&self) -> &'static str;

    /// Returns the header in which the service expects its key.
    fn auth_header(&self) -> AuthHeader;

    /// Returns the rules of the service: requirements beyond the JSON format, such as the length of
    /// tool names. The client changes a request to comply with the rules before it calls
    /// [`exchange`](Self::exchange). The call fails if a new message contains media that the
    /// service does not accept.
    ///
    /// If this method returns `None`, which is the default, the client neither changes the request
    /// nor checks media.
    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        let _ = (request, settings);
        None
    }

    /// Converts a request to an HTTP request.
    ///
    /// # Errors
    ///
    /// If the API cannot express the request, or a setting is missing.
    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError>;
}

/// An HTTP request, and how the client reads its response.
#[derive(Debug)]
pub struct Exchange {
    pub(crate) request: Request<Bytes>,
    pub(crate) step: Step,
}

/// What the client does with the response to an HTTP request.
pub(crate) enum Step {
    /// The response contains the answer of the model.
    Answer(Expected),
    /// The next HTTP request is created from the body of the response.
    First { wire: BodyWire, then: NextExchange },
}

/// Creates the next HTTP request from the body of a response.
type NextExchange = Box<dyn FnOnce(&str) -> Result<Exchange, ProviderError> + Send>;

impl Exchange {
    /// Creates an exchange of one HTTP request, whose response is a whole answer in the format of
    /// `wire`.
    pub fn new(wire: BodyWire, request: Request<Bytes>) -> Self {
        let expected = Expected { wire, framing: None, context: AnswerContext::default() };
        Self { request, step: Step::Answer(expected) }
    }

    /// Creates an exchange of two HTTP requests. `then` creates the second request from the body of
    /// the first response.
    pub fn first(
        wire: BodyWire,
        request: Request<Bytes>,
        then: impl FnOnce(&str) -> Result<Self, ProviderError> + Send + 'static,
    ) -> Self {
        Self { request, step: Step::First { wire, then: Box::new(then) } }
    }

    /// Sets the format that divides a streamed answer into frames, or `None` if the answer is not
    /// streamed. Has no effect on an exchange of two requests.
    ///
    /// If the service sends one JSON value instead of a stream, the client reads the value as a
    /// whole answer. The first bytes of the body decide this, and not the content type.
    #[must_use]
    pub fn with_framing(mut self, framing: Option<StreamFraming>) -> Self {
        if let Step::Answer(expected) = &mut self.step {
            expected.framing = framing;
        }
        self
    }

    /// Sets the information about the request that is needed to read the answer. The client itself
    /// sets the fields `issuer`, `names` and `changes`. Has no effect on an exchange of two
    /// requests.
    #[must_use]
    pub fn with_context(mut self, context: AnswerContext) -> Self {
        if let Step::Answer(expected) = &mut self.step {
            expected.context = context;
        }
        self
    }
}

impl fmt::Debug for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answer(expected) => expected.fmt(f),
            Self::First { wire, .. } => {
                f.debug_struct("First").field("wire", wire).finish_non_exhaustive()
            }
        }
    }
}

/// The settings that the clients of all providers have.
#[derive(Clone)]
pub struct Settings {
    pub(crate) errors: Errors,
    pub(crate) base_url: Arc<str>,
    pub(crate) model: Option<Arc<str>>,
    pub(crate) headers: HeaderMap,
    pub(crate) limits: Limits,
    /// The rules that the application has set. If `None`, the provider chooses the rules.
    pub(crate) rules: Option<Arc<ServiceRules>>,
}

impl Settings {
    pub(crate) fn new(provider: &'static str, base_url: &str) -> Self {
        Self {
            errors: Errors(provider),
            base_url: base_url.trim_end_matches('/').into(),
            model: None,
            headers: HeaderMap::new(),
            limits: Limits::default(),
            rules: None,
        }
    }

    /// Returns the model of the request, or the model of the client if the request names no model.
    pub fn model<'a>(&'a self, request: &'a ChatRequest) -> Option<&'a str> {
        request.options.model.as_deref().or(self.model.as_deref())
    }

    /// Returns the same model as [`model`](Self::model), for an API that requires a model.
    ///
    /// # Errors
    ///
    /// If neither the request nor the client names a model.
    pub fn required_model<'a>(
        &'a self,
        request: &'a ChatRequest,
    ) -> Result<&'a str, ProviderError> {
        let missing = "no model is set: set the model of the request or of the client";
        self.model(request).ok_or_else(|| self.errors.missing(missing))
    }

    /// [Chooses](ServiceRules::choose) the rules by the provider, the base URL and the model, for
    /// an implementation of [`Provider::rules`].
    pub fn rules(&self, wire: BodyWire, request: &ChatRequest) -> ServiceRules {
        ServiceRules::choose(wire, self.errors.0, &self.base_url, self.model(request))
    }

    /// Returns an error if the request needs a service that stores the conversation or the answer.
    ///
    /// # Errors
    ///
    /// If the request has a service id (the id under which a service stores the history), or is for
    /// a background answer, which the client fetches later.
    pub fn refuse_stored(&self, request: &ChatRequest) -> Result<(), ProviderError> {
        let sentinel = |error| self.errors.with_kind(ProviderErrorKind::Sentinel(error));
        if request.service_id().map_err(sentinel)?.is_some() {
            return Err(self.errors.unsupported("conversations that the service stores"));
        }
        if request.options.is_background() {
            return Err(self.errors.unsupported("background answers"));
        }
        Ok(())
    }

    /// Adds the secrets in the client's headers to `secrets`. A header contains a secret if its
    /// name contains `auth`, `key`, `secret` or `token`.
    pub(crate) fn collect_secrets(&self, secrets: &mut SentSecrets) {
        let names_secret = |name: &HeaderName| {
            ["auth", "key", "secret", "token"].iter().any(|part| name.as_str().contains(part))
        };
        for (name, value) in &self.headers {
            if let (true, Ok(value)) = (names_secret(name), value.to_str()) {
                secrets.push_header(value);
            }
        }
    }

    /// Creates a `GET` request. `path` is appended to the base URL.
    ///
    /// # Errors
    ///
    /// If the base URL and the path together are not a valid HTTP URL.
    pub fn get(&self, path: &str) -> Result<Request<Bytes>, ProviderError> {
        let mut request = Request::new(Bytes::new());
        *request.uri_mut() = self.uri(path)?;
        Ok(self.with_headers(request))
    }

    /// Creates a `POST` request with a JSON body. `path` is appended to the base URL.
    ///
    /// # Errors
    ///
    /// If the base URL and the path together are not a valid HTTP URL.
    pub fn post(
        &self,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<Request<Bytes>, ProviderError> {
        let mut request = Request::new(body.into());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = self.uri(path)?;
        let json = HeaderValue::from_static("application/json");
        request.headers_mut().insert(CONTENT_TYPE, json);
        Ok(self.with_headers(request))
    }

    /// Adds the headers of the client. Existing headers of the same name are replaced.
    fn with_headers(&self, mut request: Request<Bytes>) -> Request<Bytes> {
        for (name, value) in &self.headers {
            request.headers_mut().insert(name.clone(), value.clone());
        }
        request
    }

    fn uri(&self, path: &str) -> Result<Uri, ProviderError> {
        let configuration = |error: http::Error| {
            self.errors.configuration("its base URL is not a valid HTTP URL", error)
        };
        let uri: Uri = format!("{}{path}", self.base_url)
            .parse()
            .map_err(|error: http::uri::InvalidUri| configuration(error.into()))?;
        if matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some() {
            Ok(uri)
        } else {
            Err(self
                .errors
                .missing("its base URL does not begin with http:// or https:// and a host"))
        }
    }

    pub(crate) fn insert_header(&mut self, name: &str, value: &str) -> Result<(), ProviderError> {
        let errors = self.errors;
        let name: HeaderName = name.parse().map_err(|error: http::header::InvalidHeaderName| {
            errors.configuration("the name of a header is not valid in HTTP", error)
        })?;
        let mut value = HeaderValue::from_str(value).map_err(|error| {
            errors.configuration(
                format!("the value of the header {name} is not valid in HTTP"),
                error,
            )
        })?;
        // The value is marked as sensitive, because it may be a key.
        value.set_sensitive(true);
        self.headers.insert(name, value);
        Ok(())
    }
}

impl fmt::Debug for Settings {
    /// Prints headers without their values, and the base URL without its user, password and query,
    /// because these may contain a key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&str> = self.headers.keys().map(HeaderName::as_str).collect();
        f.debug_struct("Settings")
            .field("base_url", &without_secrets(&self.base_url))
            .field("model", &self.model)
            .field("headers", &headers)
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Removes user, password, query and fragment from a URL.
pub(crate) fn without_secrets(url: &str) -> String {
    let url = url.split(['?', '#']).next().unwrap_or_default();
    let (scheme, rest) = url.split_at(url.find("://").map_or(0, |end| end + 3));
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let host = authority.rsplit('@').next().unwrap_or_default();
    format!("{scheme}{host}{path}")
}

/// Serializes a JSON object.
#[cfg(any(
    feature = "anthropic",
    feature = "bedrock",
    feature = "cohere",
    feature = "gemini",
    feature = "ollama",
    feature = "openai"
))]
pub(crate) fn json_bytes(object: &tower_chat_wire::stream::Object) -> Bytes {
    #[allow(clippy::expect_used, reason = "an object of JSON texts always has a JSON form")]
    serde_json::to_vec(object).expect("the object has a JSON form").into()
}

/// Percent-encodes a text, such as the name of a model, for a segment of a path. An `@`, which
/// names of Claude models in Vertex AI contain, is not encoded.
#[cfg(any(feature = "bedrock", feature = "gemini", feature = "openai"))]
pub(crate) fn encode_path_segment(segment: &str) -> String {
    let mut path = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~' | b'@') {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// Returns the value of an environment variable, or `None` if it is not set or empty.
#[cfg(any(feature = "sigv4", feature = "reqwest"))]
pub(crate) fn env_variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
