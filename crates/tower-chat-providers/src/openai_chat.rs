//! A client of OpenAI Chat Completions and of compatible services.

use http::{HeaderName, Uri};
use tower_chat_core::ChatRequest;
use tower_chat_wire::{
    body::BodyWire,
    openai_chat::{RequestForm, render_request},
    rules::ServiceRules,
};

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, encode_path_segment, json_bytes},
};

/// A client of OpenAI's Chat Completions, or of a compatible service: vLLM, llama.cpp, Groq,
/// DeepSeek, xAI, OpenRouter, Azure and others.
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
///
/// Chat Completions stores neither conversations nor answers. The client therefore does not send a
/// request with a [service id](tower_chat_core::HistoryOwner::Service) (the id under which a
/// service stores the history), or for a background answer: the call fails.
///
/// If the service returns several choices (`n`), the call fails with
/// [`Malformed`](crate::ProviderErrorKind::Malformed), because a conversation can continue with
/// only one answer.
pub type OpenAiChat<T> = ProviderClient<OpenAiChatApi, T>;

/// The base URL of OpenAI's API.
pub(crate) const OPENAI_BASE_URL: &str = "https://api.openai.com/v1";

/// The [`Provider`](crate::Provider) of an [`OpenAiChat`] client.
#[derive(Debug, Clone)]
pub struct OpenAiChatApi {
    name: &'static str,
    auth_header: AuthHeader,
    /// The name of the field with the maximum number of output tokens.
    token_limit: &'static str,
    /// Whether call ids are converted to nine letters and digits.
    mistral_ids: bool,
    /// The query of the request URL, including the question mark.
    query: String,
}

impl OpenAiChatApi {
    pub(crate) fn compatible(name: &'static str) -> Self {
        Self {
            name,
            auth_header: AuthHeader::Bearer,
            token_limit: "max_tokens",
            mistral_ids: false,
            query: String::new(),
        }
    }

    pub(crate) fn with_mistral_ids(self) -> Self {
        Self { mistral_ids: true, ..self }
    }
}

/// A well-known service whose API is compatible with Chat Completions.
///
/// ```no_run
/// # fn main() -> Result<(), tower_chat_providers::ProviderError> {
/// use tower_chat_providers::{CompatibleService, OpenAiChat};
///
/// // The key is in GROQ_API_KEY.
/// let client = OpenAiChat::service_from_env(CompatibleService::Groq)?.with_model("qwen/qwen3-32b");
/// # let _ = client;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CompatibleService {
    /// DeepSeek. The key is in `DEEPSEEK_API_KEY`.
    DeepSeek,
    /// Groq. The key is in `GROQ_API_KEY`.
    Groq,
    /// OpenRouter. The key is in `OPEN_ROUTER_API_KEY`.
    OpenRouter,
    /// xAI. The key is in `XAI_API_KEY`.
    XAi,
}

impl CompatibleService {
    /// Returns the name in errors, the base URL, and the environment variable with the key.
    fn description(self) -> (&'static str, &'static str, &'static str) {
        match self {
            Self::DeepSeek => ("deepseek", "https://api.deepseek.com/v1", "DEEPSEEK_API_KEY"),
            Self::Groq => ("groq", "https://api.groq.com/openai/v1", "GROQ_API_KEY"),
            Self::OpenRouter => {
                ("openrouter", "https://openrouter.ai/api/v1", "OPEN_ROUTER_API_KEY")
            }
            Self::XAi => ("xai", "https://api.x.ai/v1", "XAI_API_KEY"),
        }
    }
}

impl<T> OpenAiChat<T> {
    /// Creates a client of OpenAI that sends its requests through `transport`. The transport, or a
    /// layer around it, must add the key.
    pub fn new(transport: T) -> Self {
        let api = OpenAiChatApi::compatible("openai");
        Self::with_provider(api, OPENAI_BASE_URL, transport)
            .with_token_limit_field("max_completion_tokens")
    }

    /// Creates a client of a compatible service that sends its requests through `transport`.
    /// `base_url` is the URL without `/chat/completions`, such as `http://localhost:8000/v1`.
    pub fn compatible_over(base_url: &str, transport: T) -> Self {
        Self::with_provider(OpenAiChatApi::compatible("openai-compatible"), base_url, transport)
    }

    /// Creates a client of a well-known compatible service that sends its requests through
    /// `transport`. The transport, or a layer around it, must add the key.
    pub fn service_over(service: CompatibleService, transport: T) -> Self {
        let (name, url, _) = service.description();
        Self::with_provider(OpenAiChatApi::compatible(name), url, transport)
    }

    /// Creates a client of a deployment of Azure OpenAI that sends its requests through
    /// `transport`. `endpoint` is `https://<resource>.openai.azure.com`.
    /// [`with_key`](ProviderClient::with_key) sends the key in the header `api-key`. A token of
    /// Microsoft Entra ID must be sent as a [bearer token](AuthHeader::Bearer).
    pub fn azure(endpoint: &str, deployment: &str, api_version: &str, transport: T) -> Self {
        let endpoint = endpoint.trim_end_matches('/');
        let url = format!("{endpoint}/openai/deployments/{}", encode_path_segment(deployment));
        let query = format!("?api-version={}", encode_path_segment(api_version));
        let api = OpenAiChatApi { query, ..OpenAiChatApi::compatible("azure") };
        Self::with_provider(api, &url, transport)
            .with_token_limit_field("max_completion_tokens")
            .with_key_header(HeaderName::from_static("api-key"))
    }

    /// Sets the header in which [`with_key`](ProviderClient::with_key) sends the key. The default
    /// is `Authorization: Bearer`.
    #[must_use]
    pub fn with_key_header(self, name: HeaderName) -> Self {
        self.map_provider(|api| OpenAiChatApi { auth_header: AuthHeader::Named(name), ..api })
    }

    /// Sets the name of the field in which the client sends the option
    /// [`max_output_tokens`](tower_chat_core::ChatOptions). The default is `max_completion_tokens`
    /// for OpenAI and Azure, and `max_tokens` for other services.
    #[must_use]
    pub fn with_token_limit_field(self, field: &'static str) -> Self {
        self.map_provider(|api| OpenAiChatApi { token_limit: field, ..api })
    }

    /// Converts call ids to nine letters and digits in every request. Mistral's models refuse other
    /// ids, such as ids from another provider. The ids in stored messages do not change. For URLs
    /// of `mistral.ai`, the client always converts the ids.
    #[must_use]
    pub fn with_mistral_ids(self) -> Self {
        self.map_provider(OpenAiChatApi::with_mistral_ids)
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiChat<Auth<ReqwestTransport>> {
    /// Creates a client of OpenAI with the key in `OPENAI_API_KEY`. If `OPENAI_BASE_URL` is set,
    /// the client sends requests to this URL, like OpenAI's own SDKs.
    ///
    /// # Errors
    ///
    /// If `OPENAI_API_KEY` is not set, if the base URL is not valid, or if the TLS settings of this
    /// system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        OpenAiChat::new(ReqwestTransport::new()?)
            .with_base_url_from_env(&["OPENAI_BASE_URL"], "")?
            .with_key_from_env("OPENAI_API_KEY")
    }

    /// Creates a client of a well-known compatible service, with the key in the environment
    /// variable that [`CompatibleService`] names. For Groq, if `GROQ_BASE_URL` is set, the client
    /// appends `/openai/v1` to this URL and sends requests to the result, like Groq's own SDK.
    ///
    /// # Errors
    ///
    /// If the variable with the key is not set, if the base URL is not valid, or if the TLS
    /// settings of this system cannot be used.
    pub fn service_from_env(service: CompatibleService) -> Result<Self, ProviderError> {
        let (_, _, variable) = service.description();
        let client = OpenAiChat::service_over(service, ReqwestTransport::new()?);
        let client = match service {
            CompatibleService::Groq => {
                client.with_base_url_from_env(&["GROQ_BASE_URL"], "/openai/v1")?
            }
            CompatibleService::DeepSeek
            | CompatibleService::OpenRouter
            | CompatibleService::XAi => client,
        };
        client.with_key_from_env(variable)
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiChat<ReqwestTransport> {
    /// Creates a client of a compatible service that sends no key, until
    /// [`with_key`](ProviderClient::with_key) sets a key. `base_url` is the URL without
    /// `/chat/completions`, such as `http://localhost:8000/v1`.
    ///
    /// # Errors
    ///
    /// If the URL does not begin with `http://` or `https://` and a host, or if the TLS settings of
    /// this system cannot be used.
    pub fn compatible(base_url: &str) -> Result<Self, ProviderError> {
        let client = OpenAiChat::compatible_over(base_url, ReqwestTransport::new()?);
        client.with_checked_base_url(base_url)
    }
}

impl Provider for OpenAiChatApi {
    fn name(&self) -> &'static str {
        self.name
    }

    fn auth_header(&self) -> AuthHeader {
        self.auth_header.clone()
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(BodyWire::OpenAiChat, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let form = RequestForm {
            model: settings.model(request),
            token_limit: self.token_limit,
            mistral_ids: self.mistral_ids || is_mistral(&settings.base_url),
        };
        let body = json_bytes(&render_request(request, &form));
        let post = settings.post(&format!("/chat/completions{}", self.query), body)?;
        let framing = request.options.stream.then_some(StreamFraming::Sse);
        Ok(Exchange::new(BodyWire::OpenAiChat, post).with_framing(framing))
    }
}

fn is_mistral(base_url: &str) -> bool {
    let url = base_url.parse::<Uri>().ok();
    let host = url.as_ref().and_then(Uri::host);
    host.is_some_and(|host| host == "mistral.ai" || host.ends_with(".mistral.ai"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistral_is_recognised_by_its_host() {
        for url in ["https://api.mistral.ai/v1", "https://codestral.mistral.ai/v1/"] {
            assert!(is_mistral(url), "{url}");
        }
        for url in ["https://api.openai.com/v1", "http://127.0.0.1:1/mistral.ai", "mistral.ai/v1"] {
            assert!(!is_mistral(url), "{url}");
        }
    }
}
