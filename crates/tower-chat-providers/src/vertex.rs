//! A client of Gemini and Claude in Google's Vertex AI.

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
    gemini::generate_content,
    provider::{Exchange, Provider, Settings, encode_path_segment, json_bytes},
};

/// A client of Vertex AI. The client uses Claude's API if the name of the model begins with `claude`, and
/// Gemini's API otherwise.
///
/// Google's tokens expire after an hour. The application must provide a
/// [`TokenSource`](crate::auth::TokenSource) that obtains new tokens.
///
/// ```
/// use tower_chat_core::BoxError;
/// use tower_chat_providers::{ReqwestTransport, Vertex, auth::{AuthHeader, AuthLayer, Token}};
///
/// async fn google_token() -> Result<Token, BoxError> {
///     // From a metadata server, a service account, or `gcloud auth print-access-token`.
///     Ok(Token::new("ya29.example"))
/// }
///
/// let client = Vertex::new("my-project", "us-east5", ReqwestTransport::new()?)
///     .with_auth(AuthLayer::from_source(AuthHeader::Bearer, google_token))
///     .with_model("claude-sonnet-4-5@20250929");
/// # Ok::<(), tower_chat_providers::ProviderError>(())
/// ```
pub type Vertex<T> = ProviderClient<VertexApi, T>;

/// The [`Provider`](crate::Provider) of a [`Vertex`] client.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct VertexApi;

impl<T> Vertex<T> {
    /// Creates a client of a project in a location (`us-east5`, `europe-west1`, `global`) that
    /// sends its requests through `transport`. The transport, or a layer around it, must add the
    /// token.
    pub fn new(project: &str, location: &str, transport: T) -> Self {
        let (project, region) = (encode_path_segment(project), encode_path_segment(location));
        let host = match location {
            "global" => "aiplatform.googleapis.com".to_owned(),
            _ => format!("{region}-aiplatform.googleapis.com"),
        };
        let url = format!("https://{host}/v1/projects/{project}/locations/{region}");
        Self::with_provider(VertexApi, &url, transport)
    }
}

#[cfg(feature = "reqwest")]
impl Vertex<Auth<ReqwestTransport>> {
    /// Creates a client of the project in `VERTEX_PROJECT_ID`, with the token in `VERTEX_API_KEY`.
    /// The location is read from `VERTEX_LOCATION`. The default is `global`. The token expires
    /// after an hour, so a process that runs longer needs a
    /// [`TokenSource`](crate::auth::TokenSource). If `GOOGLE_VERTEX_BASE_URL` is set, the client
    /// appends `/v1` and the path of the project to this URL and sends requests to the result, like
    /// Google's own SDK.
    ///
    /// # Errors
    ///
    /// If the variable with the project or the token is not set, if the base URL is not valid, or
    /// if the TLS settings of this system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        let errors = crate::error::Errors("vertex");
        let project = crate::provider::env_variable("VERTEX_PROJECT_ID").ok_or_else(|| {
            errors.missing(
                "the variable VERTEX_PROJECT_ID is not set, or empty: set it to the project",
            )
        })?;
        let location = crate::provider::env_variable("VERTEX_LOCATION");
        let location = location.as_deref().unwrap_or("global");
        let path = format!(
            "/v1/projects/{}/locations/{}",
            encode_path_segment(&project),
            encode_path_segment(location)
        );
        Vertex::new(&project, location, ReqwestTransport::new()?)
            .with_base_url_from_env(&["GOOGLE_VERTEX_BASE_URL"], &path)?
            .with_key_from_env("VERTEX_API_KEY")
    }
}

impl Provider for VertexApi {
    fn name(&self) -> &'static str {
        "vertex"
    }

    fn auth_header(&self) -> AuthHeader {
        AuthHeader::Bearer
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        let is_claude = settings.model(request).is_some_and(is_claude);
        let wire = if is_claude { BodyWire::Anthropic } else { BodyWire::Gemini };
        Some(settings.rules(wire, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let model = settings.required_model(request)?;
        if !is_claude(model) {
            return generate_content("/publishers/google/models", model, request, settings);
        }
        let is_streamed = request.options.stream;
        let method = if is_streamed { "streamRawPredict" } else { "rawPredict" };
        let body = json_bytes(&render_request(request, RequestForm::Vertex));
        let path = format!("/publishers/anthropic/models/{}:{method}", encode_path_segment(model));
        let framing = is_streamed.then_some(StreamFraming::Sse);
        Ok(Exchange::new(BodyWire::Anthropic, settings.post(&path, body)?).with_framing(framing))
    }
}

fn is_claude(model: &str) -> bool {
    model.starts_with("claude")
}
