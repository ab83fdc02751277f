//! Ollama's own chat.

use tower_chat_core::ChatRequest;
use tower_chat_wire::{body::BodyWire, ollama::render_request, rules::ServiceRules};

#[cfg(feature = "reqwest")]
use crate::ReqwestTransport;
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, json_bytes},
};

/// A client of Ollama's own chat (<https://docs.ollama.com/api/chat>), whose streams are lines of JSON.
///
/// ```no_run
/// # fn main() -> Result<(), tower_chat_providers::ProviderError> {
/// use tower_chat_providers::Ollama;
///
/// let client = Ollama::local()?.with_model("qwen3");
/// # Ok(())
/// # }
/// ```
pub type Ollama<T> = ProviderClient<OllamaApi, T>;

/// The API of an [`Ollama`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct OllamaApi;

impl<T> Ollama<T> {
    /// A client of an Ollama on this machine, over a transport. For another, see
    /// [`with_base_url`](ProviderClient::with_base_url).
    pub fn new(transport: T) -> Self {
        Self::with_provider(OllamaApi, "http://localhost:11434", transport)
    }
}

#[cfg(feature = "reqwest")]
impl Ollama<ReqwestTransport> {
    /// A client of an Ollama on this machine, at its usual port.
    ///
    /// # Errors
    ///
    /// If the TLS settings of this system cannot be used.
    pub fn local() -> Result<Self, ProviderError> {
        Ok(Ollama::new(ReqwestTransport::new()?))
    }
}

impl Provider for OllamaApi {
    fn name(&self) -> &'static str {
        "ollama"
    }

    fn auth_header(&self) -> AuthHeader {
        AuthHeader::Bearer
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(BodyWire::Ollama, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let model = settings.required_model(request)?;
        let body = render_request(request, model).map_err(|error| settings.errors.body(error))?;
        let post = settings.post("/api/chat", json_bytes(&body))?;
        let framing = request.options.stream.then_some(StreamFraming::Lines);
        Ok(Exchange::new(BodyWire::Ollama, post).with_framing(framing))
    }
}
