//! OpenAI Chat Completions, and every service that is compatible with it.

use http::HeaderName;
use tower_chat_core::ChatRequest;
use tower_chat_wire::body::{BodyError, BodyWire};

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::{Errors, ProviderError, ProviderErrorKind},
    provider::{Exchange, Provider, Settings},
};

/// A client of OpenAI's Chat Completions, or of a compatible service: vLLM, llama.cpp, Groq, DeepSeek,
/// xAI, OpenRouter, Azure and others.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use tower_chat_core::ChatRequest;
/// use tower_chat_providers::OpenAiChat;
/// use tower_service::Service;
///
/// // The key is in OPENAI_API_KEY.
/// let mut client = OpenAiChat::from_env()?.with_model("gpt-5-mini");
/// std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
/// let answer = client.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
/// println!("{}", answer.text());
/// # Ok(())
/// # }
/// ```
pub type OpenAiChat<T> = ProviderClient<OpenAiChatApi, T>;

const OPENAI: &str = "https://api.openai.com/v1";

/// The API of an [`OpenAiChat`].
#[derive(Debug, Clone)]
pub struct OpenAiChatApi {
    name: &'static str,
    auth_header: AuthHeader,
}

impl<T> OpenAiChat<T> {
    /// A client of OpenAI over a transport, which is to authenticate.
    pub fn new(transport: T) -> Self {
        let api = OpenAiChatApi { name: "openai", auth_header: AuthHeader::Bearer };
        Self::with_provider(api, OPENAI, transport)
    }

    /// A client of a compatible service over a transport; `base_url` is the address before
    /// `/chat/completions`, such as `http://localhost:8000/v1`.
    pub fn compatible_over(base_url: &str, transport: T) -> Self {
        let api = OpenAiChatApi { name: "openai-compatible", auth_header: AuthHeader::Bearer };
        Self::with_provider(api, base_url, transport)
    }

    /// The header in which [`with_key`](ProviderClient::with_key) sends a key, if it is not
    /// `Authorization: Bearer`.
    #[must_use]
    pub fn with_key_header(self, name: HeaderName) -> Self {
        self.map_provider(|api| OpenAiChatApi { auth_header: AuthHeader::Named(name), ..api })
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiChat<Auth<ReqwestTransport>> {
    /// A client of OpenAI with the key in `OPENAI_API_KEY`.
    ///
    /// # Errors
    ///
    /// If the variable is not set.
    pub fn from_env() -> Result<Self, ProviderError> {
        OpenAiChat::new(ReqwestTransport::new()?).with_key_from_env("OPENAI_API_KEY")
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiChat<ReqwestTransport> {
    /// A client of a compatible service, without a key; see
    /// [`with_key`](ProviderClient::with_key). `base_url` is the address before `/chat/completions`,
    /// such as `http://localhost:8000/v1`.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    pub fn compatible(base_url: &str) -> Result<Self, ProviderError> {
        Ok(OpenAiChat::compatible_over(base_url, ReqwestTransport::new()?))
    }
}

impl Provider for OpenAiChatApi {
    fn name(&self) -> &'static str {
        self.name
    }

    fn auth_header(&self) -> AuthHeader {
        self.auth_header.clone()
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        let mut request = request.clone();
        let mut options = (*request.options).clone();
        options.model = settings.model(&request).map(str::to_owned);
        // Answers are read whole.
        options.stream = false;
        request.options = options.into();
        let body = BodyWire::OpenAiChat.render_request(&request);
        let body = body.map_err(|error| unsupported(settings.errors, error))?;
        let request = settings.post("/chat/completions", body.to_string())?;
        Ok(Exchange::new(BodyWire::OpenAiChat, request))
    }
}

fn unsupported(errors: Errors, error: BodyError) -> ProviderError {
    match error {
        BodyError::Unsupported { what } => errors.unsupported(what),
        BodyError::Sentinel(error) => errors.make(ProviderErrorKind::Sentinel(error)),
        error => errors.configuration("the request cannot be written", error),
    }
}
