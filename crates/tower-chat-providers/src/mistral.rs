//! A client of Mistral's chat API.

use tower_chat_core::ChatRequest;
use tower_chat_wire::rules::ServiceRules;

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    openai_chat::OpenAiChatApi,
    provider::{Exchange, Provider, Settings},
};

/// A client of Mistral's Chat Completions. Mistral accepts only call ids of nine letters and
/// digits, so the client replaces the ids of calls that another provider made.
///
/// ```no_run
/// # fn main() -> Result<(), tower_chat_providers::ProviderError> {
/// use tower_chat_providers::Mistral;
///
/// // The key is in MISTRAL_API_KEY.
/// let client = Mistral::from_env()?.with_model("mistral-large-latest");
/// # Ok(())
/// # }
/// ```
pub type Mistral<T> = ProviderClient<MistralApi, T>;

/// The [`Provider`](crate::Provider) of a [`Mistral`] client.
#[derive(Debug, Clone)]
pub struct MistralApi(OpenAiChatApi);

impl<T> Mistral<T> {
    /// Creates a client that sends its requests through `transport`. The transport, or a layer
    /// around it, must add the key.
    pub fn new(transport: T) -> Self {
        let api = MistralApi(OpenAiChatApi::compatible("mistral").with_mistral_ids());
        Self::with_provider(api, "https://api.mistral.ai/v1", transport)
    }
}

#[cfg(feature = "reqwest")]
impl Mistral<Auth<ReqwestTransport>> {
    /// Creates a client with the key in `MISTRAL_API_KEY`.
    ///
    /// # Errors
    ///
    /// If `MISTRAL_API_KEY` is not set, or if the TLS settings of this system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        Mistral::new(ReqwestTransport::new()?).with_key_from_env("MISTRAL_API_KEY")
    }
}

impl Provider for MistralApi {
    fn name(&self) -> &'static str {
        self.0.name()
    }

    fn auth_header(&self) -> AuthHeader {
        self.0.auth_header()
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        self.0.rules(request, settings)
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        self.0.exchange(request, settings)
    }
}
