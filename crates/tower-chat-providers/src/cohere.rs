//! A client of Cohere's chat API, version 2.

use tower_chat_core::ChatRequest;
use tower_chat_wire::{body::BodyWire, cohere::render_request, rules::ServiceRules};

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, json_bytes},
};

/// A client of Cohere's chat API, version 2.
///
/// ```no_run
/// # fn main() -> Result<(), tower_chat_providers::ProviderError> {
/// use tower_chat_providers::Cohere;
///
/// // The key is in COHERE_API_KEY.
/// let client = Cohere::from_env()?.with_model("command-a-03-2025");
/// # Ok(())
/// # }
/// ```
pub type Cohere<T> = ProviderClient<CohereApi, T>;

/// The [`Provider`](crate::Provider) of a [`Cohere`] client.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct CohereApi;

impl<T> Cohere<T> {
    /// Creates a client that sends its requests through `transport`. The transport, or a layer
    /// around it, must add the key.
    pub fn new(transport: T) -> Self {
        Self::with_provider(CohereApi, "https://api.cohere.com/v2", transport)
    }
}

#[cfg(feature = "reqwest")]
impl Cohere<Auth<ReqwestTransport>> {
    /// Creates a client with the key in `COHERE_API_KEY`. If `CO_API_URL` is set, the client
    /// appends `/v2` to this URL and sends requests to the result, like Cohere's own SDK.
    ///
    /// # Errors
    ///
    /// If `COHERE_API_KEY` is not set, if the base URL is not valid, or if the TLS settings of this
    /// system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        Cohere::new(ReqwestTransport::new()?)
            .with_base_url_from_env(&["CO_API_URL"], "/v2")?
            .with_key_from_env("COHERE_API_KEY")
    }
}

impl Provider for CohereApi {
    fn name(&self) -> &'static str {
        "cohere"
    }

    fn auth_header(&self) -> AuthHeader {
        AuthHeader::Bearer
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(BodyWire::Cohere, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let model = settings.required_model(request)?;
        let post = settings.post("/chat", json_bytes(&render_request(request, model)))?;
        let framing = request.options.stream.then_some(StreamFraming::Sse);
        Ok(Exchange::new(BodyWire::Cohere, post).with_framing(framing))
    }
}
