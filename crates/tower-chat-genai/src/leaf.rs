//! The leaf itself.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    task::{Context, Poll},
};

use futures_util::{StreamExt, future::BoxFuture};
use genai::{
    Client, ModelIden, ServiceTarget,
    resolver::{AuthData, Endpoint},
};
use http::{HeaderMap, HeaderName, HeaderValue};
use tower_chat_core::{ChatRequest, ChatResponse, register_error};
use tower_chat_openai::OpenAiChat;
use tower_chat_wire::{
    anthropic::{self, RequestForm},
    bedrock_converse,
    body::BodyWire,
    cohere, gemini, ollama,
    stream::{Limits, updates},
};
use tower_service::Service;

use crate::{
    GenAiError, Provider, compatible,
    direct::{self, Framed, KeyHeader, Request},
    frame::Answer,
    object::Object,
    provider::Route,
    resolution,
};

/// A model of one provider, as a leaf.
///
/// A clone is cheap and shares the connections. Dropping the future or the response of a call
/// cancels it.
///
/// Of the [options](tower_chat_core::ChatOptions), `extra` is merged into the body and counts more
/// than the named ones; a `null` in it takes a field out. `instructions` stand before the system
/// messages.
#[derive(Clone)]
pub struct GenAiChat {
    provider: Provider,
    client: Client,
    http: reqwest::Client,
    endpoint: Option<Arc<str>>,
    key: Option<Arc<str>>,
    model: Option<Arc<str>>,
    headers: HeaderMap,
    limits: Limits,
    takes_gzip: bool,
    /// The leaf of a compatible service, once it was needed.
    compatible: Arc<OnceLock<OpenAiChat>>,
}

impl GenAiChat {
    /// A leaf for a provider, with the address and the key that genai finds in its environment
    /// variables when it is called, unless they are given here. That of a compatible service looks
    /// for them at its first call.
    ///
    /// # Errors
    ///
    /// [`GenAiError::Configuration`], if the TLS settings of this system cannot be used.
    pub fn new(provider: Provider) -> Result<Self, GenAiError> {
        register_error(GenAiError::is_retryable);
        let http = http_client(|builder| builder)?;
        let client = Client::builder().with_reqwest(http.clone()).build();
        let client = client.map_err(resolution::error)?;
        let (headers, compatible) = (HeaderMap::new(), Arc::default());
        Ok(Self {
            provider,
            client,
            http,
            endpoint: None,
            key: None,
            model: None,
            headers,
            limits: Limits::default(),
            takes_gzip: false,
            compatible,
        })
    }

    /// The key, or the token, to send.
    #[must_use]
    pub fn with_key(mut self, key: &str) -> Self {
        self.key = Some(key.into());
        self.compatible = Arc::default();
        self
    }

    /// The address to ask, up to and with the version, such as `https://api.anthropic.com/v1/`.
    #[must_use]
    pub fn with_endpoint(mut self, url: &str) -> Self {
        self.endpoint = Some(format!("{}/", url.trim_end_matches('/')).into());
        self.compatible = Arc::default();
        self
    }

    /// The model of requests that name none.
    #[must_use]
    pub fn with_model(mut self, model: &str) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sends a header with every request, in place of one of the same name.
    ///
    /// # Errors
    ///
    /// [`GenAiError::Configuration`], if HTTP has no such header, or it is not plain text.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, GenAiError> {
        let name: HeaderName = name.parse().map_err(|error: http::header::InvalidHeaderName| {
            GenAiError::configuration("the name of a header", error)
        })?;
        let value = HeaderValue::from_str(value)
            .map_err(|error| GenAiError::configuration("a header", error))?;
        self.headers.insert(name, value);
        self.compatible = Arc::default();
        Ok(self)
    }

    /// How large an answer may be: see [`Limits`]. One that is larger is [`GenAiError::Limit`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self.compatible = Arc::default();
        self
    }

    /// Asks for answers compressed with gzip, and takes them. The limits count what is there after
    /// decompression. Otherwise a compressed answer is refused.
    ///
    /// # Errors
    ///
    /// [`GenAiError::Configuration`], if the TLS settings of this system cannot be used.
    pub fn with_gzip(mut self) -> Result<Self, GenAiError> {
        self.http = http_client(|builder| builder.gzip(true))?;
        self.takes_gzip = true;
        self.compatible = Arc::default();
        Ok(self)
    }

    /// Where and as who the provider is asked for a model.
    async fn target(&self, model: &str) -> Result<ServiceTarget, GenAiError> {
        let model = ModelIden::new(self.provider.kind(), model);
        let target = self.client.resolve_service_target(model).await;
        let mut target = target.map_err(resolution::error)?;
        match &self.endpoint {
            Some(url) => target.endpoint = Endpoint::from_owned(url.clone()),
            // genai knows version 1, which has no tools.
            None if self.provider == Provider::Cohere => {
                target.endpoint = Endpoint::from_static("https://api.cohere.com/v2/");
            }
            None => {}
        }
        match &self.key {
            Some(key) => target.auth = AuthData::from_single(&**key),
            // The name that AWS gives it; genai reads it for itself alone.
            None if self.provider == Provider::Bedrock && !is_set("BEDROCK_API_KEY") => {
                target.auth = AuthData::from_env("AWS_BEARER_TOKEN_BEDROCK");
            }
            // genai makes one up.
            None if self.provider == Provider::Ollama => target.auth = AuthData::None,
            None => {}
        }
        Ok(target)
    }

    async fn answer(self, request: ChatRequest) -> Result<ChatResponse, GenAiError> {
        let model = request.options.model.as_deref().or(self.model.as_deref());
        let Some(model) = model.map(str::to_owned) else {
            return Err(GenAiError::Configuration {
                what: "a request without a model, to a leaf without one,",
                source: None,
            });
        };
        let target = self.target(&model).await?;
        match self.provider.route(&model) {
            Route::Anthropic => {
                let form = RequestForm::Anthropic { model: &model };
                let body = anthropic::render_request(&request, form);
                let asked = self.asked(
                    &request,
                    &target,
                    "messages",
                    &body,
                    (BodyWire::Anthropic, Framed::Sse),
                );
                let key = KeyHeader::Named("x-api-key");
                let asked = Request { key, demanded: ANTHROPIC_VERSION, ..asked };
                let answer = self.send(&target, asked).await?;
                respond(BodyWire::Anthropic, answer)
            }
            Route::Gemini => {
                let body = gemini::render_request(&request, &model);
                let path = self.gemini_path(&model, request.options.stream);
                let asked =
                    self.asked(&request, &target, &path, &body, (BodyWire::Gemini, Framed::Sse));
                let key = match self.provider {
                    Provider::Vertex => KeyHeader::Bearer,
                    _ => KeyHeader::Named("x-goog-api-key"),
                };
                let answer = self.send(&target, Request { key, ..asked }).await?;
                respond(BodyWire::Gemini, answer)
            }
            Route::Compatible => {
                let settings = compatible::Settings {
                    provider: self.provider,
                    headers: &self.headers,
                    limits: self.limits,
                    takes_gzip: self.takes_gzip,
                };
                compatible::answer(&self.compatible, &settings, &model, target, request).await
            }
            Route::VertexClaude => {
                let body = anthropic::render_request(&request, RequestForm::Vertex);
                let method = if request.options.stream { "streamRawPredict" } else { "rawPredict" };
                let path = format!("publishers/anthropic/models/{model}:{method}");
                let wire = BodyWire::Anthropic;
                let framed = (wire, Framed::Sse);
                let answer = self.directly(&request, &target, &path, &body, framed).await?;
                respond(wire, answer)
            }
            Route::Bedrock => {
                let wire = BodyWire::BedrockConverse;
                let body = bedrock_converse::render_request(&request)?;
                let method = if request.options.stream { "converse-stream" } else { "converse" };
                let path = format!("model/{}/{method}", in_path(&model));
                let framed = (wire, Framed::EventStream);
                let answer = self.directly(&request, &target, &path, &body, framed).await?;
                respond(wire, answer)
            }
            Route::Cohere => {
                let wire = BodyWire::Cohere;
                let body = cohere::render_request(&request, &model);
                let framed = (wire, Framed::Sse);
                let answer = self.directly(&request, &target, "chat", &body, framed).await?;
                respond(wire, answer)
            }
            Route::Ollama => {
                let wire = BodyWire::Ollama;
                let body = ollama::render_request(&request, &model)?;
                let framed = (wire, Framed::Lines);
                let answer = self.directly(&request, &target, "api/chat", &body, framed).await?;
                respond(wire, answer)
            }
        }
    }

    /// The method of Gemini, and of Gemini in Vertex AI, as a path.
    fn gemini_path(&self, model: &str, is_streamed: bool) -> String {
        let publisher = match self.provider {
            Provider::Vertex => "publishers/google/",
            _ => "",
        };
        let method = if is_streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("{publisher}models/{model}:{method}")
    }

    fn asked<'a>(
        &self,
        request: &ChatRequest,
        target: &ServiceTarget,
        path: &str,
        body: &'a Object,
        (wire, framed): (BodyWire, Framed),
    ) -> Request<'a> {
        let url = format!("{}{path}", target.endpoint.base_url());
        let framed = request.options.stream.then_some(framed);
        Request { wire, url, body, framed, key: KeyHeader::Bearer, demanded: &[] }
    }

    async fn directly(
        &self,
        request: &ChatRequest,
        target: &ServiceTarget,
        path: &str,
        body: &Object,
        framed: (BodyWire, Framed),
    ) -> Result<Answer, GenAiError> {
        self.send(target, self.asked(request, target, path, body, framed)).await
    }

    async fn send(
        &self,
        target: &ServiceTarget,
        request: Request<'_>,
    ) -> Result<Answer, GenAiError> {
        direct::send(&self.http, target, request, &self.headers, self.limits).await
    }
}

impl Service<ChatRequest> for GenAiChat {
    type Response = ChatResponse;
    type Error = GenAiError;
    type Future = BoxFuture<'static, Result<ChatResponse, GenAiError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), GenAiError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let leaf = self.clone();
        Box::pin(async move {
            if request.service_id()?.is_some() {
                let what = "conversations that the service keeps";
                return Err(GenAiError::Unsupported { what });
            }
            if request.options.is_background() {
                return Err(GenAiError::Unsupported { what: "background answers" });
            }
            leaf.answer(request).await
        })
    }
}

impl fmt::Debug for GenAiChat {
    /// Shows no key and no header, which may hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GenAiChat")
            .field("provider", &self.provider)
            .field("endpoint", &self.endpoint)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// The version of Anthropic's API (<https://docs.claude.com/en/api/versioning>).
const ANTHROPIC_VERSION: &[(&str, &str)] = &[("anthropic-version", "2023-06-01")];

/// An HTTP client that decompresses nothing unless it is told to. genai turns on reqwest's feature
/// `gzip` for the whole program, and with it decompression for every client that does not say no.
fn http_client(
    change: impl FnOnce(reqwest::ClientBuilder) -> reqwest::ClientBuilder,
) -> Result<reqwest::Client, GenAiError> {
    let plain = reqwest::Client::builder().no_gzip().no_brotli().no_deflate().no_zstd();
    let client = change(plain).build();
    client.map_err(|error| GenAiError::configuration("the TLS settings of this system", error))
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty())
}

/// The text as a segment of a path: Bedrock's models have colons, and addresses of resources.
fn in_path(segment: &str) -> String {
    let mut path = String::with_capacity(segment.len());
    for byte in segment.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            path.push(char::from(byte));
        } else {
            path.push_str(&format!("%{byte:02X}"));
        }
    }
    path
}

/// The response that an answer of a wire is.
fn respond(wire: BodyWire, answer: Answer) -> Result<ChatResponse, GenAiError> {
    match answer {
        Answer::Streamed(frames) => {
            let updates = updates(frames, wire.accumulator());
            let error = |error| GenAiError::from(error).into();
            Ok(ChatResponse::stream(updates.map(move |update| update.map_err(error))))
        }
        Answer::Whole(body) => Ok(wire.parse_answer(&body)?.into()),
    }
}
