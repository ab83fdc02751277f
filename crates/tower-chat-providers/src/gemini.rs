//! A client of the Gemini API.

use http::HeaderName;
use tower_chat_core::ChatRequest;
use tower_chat_wire::{body::BodyWire, gemini::render_request, rules::ServiceRules};

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, encode_path_segment, json_bytes},
};

/// A client of the Gemini API.
///
/// Thought signatures are sent back unchanged. Gemini 3 and later models refuse calls without a
/// signature. Calls that another provider made are therefore sent with the value that Google's
/// documentation defines for this case.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use tower_chat_core::ChatRequest;
/// use tower_chat_providers::Gemini;
/// use tower_service::Service;
///
/// // The key is in GEMINI_API_KEY.
/// let mut client = Gemini::from_env()?.with_model("gemini-2.5-flash");
/// std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
/// let answer = client.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
/// println!("{}", answer.text());
/// # Ok(())
/// # }
/// ```
pub type Gemini<T> = ProviderClient<GeminiApi, T>;

/// The [`Provider`](crate::Provider) of a [`Gemini`] client.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct GeminiApi;

impl<T> Gemini<T> {
    /// Creates a client that sends its requests through `transport`. The transport, or a layer
    /// around it, must add the key.
    pub fn new(transport: T) -> Self {
        let url = "https://generativelanguage.googleapis.com/v1beta";
        Self::with_provider(GeminiApi, url, transport)
    }
}

#[cfg(feature = "reqwest")]
impl Gemini<Auth<ReqwestTransport>> {
    /// Creates a client with the key in `GEMINI_API_KEY`. If `GOOGLE_GEMINI_BASE_URL` is set, the
    /// client appends `/v1beta` to this URL and sends requests to the result, like Google's own
    /// SDK.
    ///
    /// # Errors
    ///
    /// If `GEMINI_API_KEY` is not set, if the base URL is not valid, or if the TLS settings of this
    /// system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        Gemini::new(ReqwestTransport::new()?)
            .with_base_url_from_env(&["GOOGLE_GEMINI_BASE_URL"], "/v1beta")?
            .with_key_from_env("GEMINI_API_KEY")
    }
}

impl Provider for GeminiApi {
    fn name(&self) -> &'static str {
        "gemini"
    }

    fn auth_header(&self) -> AuthHeader {
        AuthHeader::Named(HeaderName::from_static("x-goog-api-key"))
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(BodyWire::Gemini, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let model = settings.required_model(request)?;
        generate_content("/models", model, request, settings)
    }
}

/// Creates a request to the `generateContent` method of a model, in the Gemini API or in Vertex AI.
/// `models` is the path of the list of models, such as `/models`.
pub(crate) fn generate_content(
    models: &str,
    model: &str,
    request: &ChatRequest,
    settings: &Settings,
) -> Result<Exchange, ProviderError> {
    let is_streamed = request.options.stream;
    let method = if is_streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
    let body = json_bytes(&render_request(request, model));
    let post = settings.post(&format!("{models}/{}:{method}", encode_path_segment(model)), body)?;
    let framing = is_streamed.then_some(StreamFraming::Sse);
    Ok(Exchange::new(BodyWire::Gemini, post).with_framing(framing))
}
