//! A client of Anthropic Messages.

use http::{HeaderName, HeaderValue};
use tower_chat_core::ChatRequest;
use tower_chat_wire::{
    anthropic::{RequestForm, render_request},
    body::BodyWire,
    rules::ServiceRules,
};

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, json_bytes},
};

/// A client of Anthropic's Messages API.
///
/// Thinking blocks, their signatures, redacted thinking and ids are sent back unchanged.
///
/// If a request ends with tool results, the service accepts the option `thinking` only if the first
/// answer after the last user message begins with a thinking block. If the block is missing, the
/// client omits the option.
///
/// The API requires a token limit: if the caller sets no limit, the client sends the maximum number
/// of output tokens of the model.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use tower_chat_core::ChatRequest;
/// use tower_chat_providers::Anthropic;
/// use tower_service::Service;
///
/// // The key is in ANTHROPIC_API_KEY.
/// let mut client = Anthropic::from_env()?.with_model("claude-sonnet-4-5");
/// std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
/// let answer = client.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
/// println!("{}", answer.text());
/// # Ok(())
/// # }
/// ```
pub type Anthropic<T> = ProviderClient<AnthropicApi, T>;

/// The [`Provider`](crate::Provider) of an [`Anthropic`] client.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct AnthropicApi;

/// The version of the API (<https://docs.claude.com/en/api/versioning>).
const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

impl<T> Anthropic<T> {
    /// Creates a client that sends its requests through `transport`. The transport, or a layer
    /// around it, must add the key.
    pub fn new(transport: T) -> Self {
        Self::with_provider(AnthropicApi, "https://api.anthropic.com/v1", transport)
    }
}

#[cfg(feature = "reqwest")]
impl Anthropic<Auth<ReqwestTransport>> {
    /// Creates a client with the key in `ANTHROPIC_API_KEY`. If `ANTHROPIC_BASE_URL` is set, the
    /// client appends `/v1` to this URL and sends requests to the result, like Anthropic's own SDK.
    ///
    /// # Errors
    ///
    /// If `ANTHROPIC_API_KEY` is not set, if the base URL is not valid, or if the TLS settings of
    /// this system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        Anthropic::new(ReqwestTransport::new()?)
            .with_base_url_from_env(&["ANTHROPIC_BASE_URL"], "/v1")?
            .with_key_from_env("ANTHROPIC_API_KEY")
    }
}

impl Provider for AnthropicApi {
    fn name(&self) -> &'static str {
        "anthropic"
    }

    fn auth_header(&self) -> AuthHeader {
        AuthHeader::Named(HeaderName::from_static("x-api-key"))
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(BodyWire::Anthropic, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let model = settings.required_model(request)?;
        let body = json_bytes(&render_request(request, RequestForm::Anthropic { model }));
        let mut post = settings.post("/messages", body)?;
        let version = post.headers_mut().entry(HeaderName::from_static(VERSION.0));
        version.or_insert(HeaderValue::from_static(VERSION.1));
        let framing = request.options.stream.then_some(StreamFraming::Sse);
        Ok(Exchange::new(BodyWire::Anthropic, post).with_framing(framing))
    }
}
