//! A client of Amazon Bedrock's Converse API.

use tower_chat_core::ChatRequest;
use tower_chat_wire::{bedrock_converse::render_request, body::BodyWire, rules::ServiceRules};

#[cfg(all(feature = "reqwest", feature = "sigv4"))]
use crate::auth::{SigV4, SigV4Layer};
#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth, provider::env_variable};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::ProviderError,
    frames::StreamFraming,
    provider::{Exchange, Provider, Settings, encode_path_segment, json_bytes},
};

/// A client of Bedrock's Converse API. Requests contain a Bedrock API key, or are signed (feature
/// `sigv4`).
///
/// The name of the model is the id of a model (`anthropic.claude-sonnet-4-5-20250929-v1:0`), the id
/// of an inference profile (`us.anthropic.…`), or the ARN of a model or a profile.
///
/// ```no_run
/// # fn main() -> Result<(), tower_chat_providers::ProviderError> {
/// use tower_chat_providers::Bedrock;
///
/// // The key is in AWS_BEARER_TOKEN_BEDROCK, the region in AWS_REGION.
/// let client = Bedrock::from_env()?.with_model("us.amazon.nova-pro-v1:0");
/// # Ok(())
/// # }
/// ```
pub type Bedrock<T> = ProviderClient<BedrockApi, T>;

/// The [`Provider`](crate::Provider) of a [`Bedrock`] client.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct BedrockApi;

/// The environment variables from which AWS's SDKs read the URL of the endpoint.
#[cfg(feature = "reqwest")]
const ENDPOINTS: [&str; 2] = ["AWS_ENDPOINT_URL_BEDROCK_RUNTIME", "AWS_ENDPOINT_URL"];

/// The region that is used if no environment variable names a region.
#[cfg(feature = "reqwest")]
const DEFAULT_REGION: &str = "us-east-1";

impl<T> Bedrock<T> {
    /// Creates a client for a region that sends its requests through `transport`. The transport, or
    /// a layer around it, must add the key or the signature.
    pub fn new(region: &str, transport: T) -> Self {
        let url = format!("https://bedrock-runtime.{region}.amazonaws.com");
        Self::with_provider(BedrockApi, &url, transport)
    }
}

#[cfg(feature = "reqwest")]
impl Bedrock<Auth<ReqwestTransport>> {
    /// Creates a client with the Bedrock API key in `BEDROCK_API_KEY` or
    /// `AWS_BEARER_TOKEN_BEDROCK`. The region is read from `AWS_REGION` or `AWS_DEFAULT_REGION`.
    /// The default is `us-east-1`. If `AWS_ENDPOINT_URL_BEDROCK_RUNTIME` or `AWS_ENDPOINT_URL` is
    /// set, the client sends requests to this URL, like AWS's SDKs.
    ///
    /// # Errors
    ///
    /// If neither variable with a key is set, if the base URL is not valid, or if the TLS settings
    /// of this system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        let own = "BEDROCK_API_KEY";
        let key = if env_variable(own).is_some() { own } else { "AWS_BEARER_TOKEN_BEDROCK" };
        Bedrock::new(&region_from_env(), ReqwestTransport::new()?)
            .with_base_url_from_env(&ENDPOINTS, "")?
            .with_key_from_env(key)
    }
}

#[cfg(all(feature = "reqwest", feature = "sigv4"))]
impl Bedrock<SigV4<ReqwestTransport>> {
    /// Creates a client that signs its requests with the credentials in `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`. The region and the base URL are read from
    /// the same variables as in `from_env`.
    ///
    /// # Errors
    ///
    /// If `AWS_ACCESS_KEY_ID` or `AWS_SECRET_ACCESS_KEY` is not set, if the base URL is not valid,
    /// or if the TLS settings of this system cannot be used.
    pub fn signed_from_env() -> Result<Self, ProviderError> {
        let region = region_from_env();
        let layer = SigV4Layer::from_env(&region, "bedrock")?;
        let client = Bedrock::new(&region, ReqwestTransport::new()?);
        Ok(client.with_base_url_from_env(&ENDPOINTS, "")?.with_layer(layer))
    }
}

#[cfg(feature = "reqwest")]
fn region_from_env() -> String {
    let region = env_variable("AWS_REGION").or_else(|| env_variable("AWS_DEFAULT_REGION"));
    region.unwrap_or_else(|| DEFAULT_REGION.to_owned())
}

impl Provider for BedrockApi {
    fn name(&self) -> &'static str {
        "bedrock"
    }

    fn auth_header(&self) -> AuthHeader {
        AuthHeader::Bearer
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(BodyWire::BedrockConverse, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        settings.refuse_stored(request)?;
        let model = encode_path_segment(settings.required_model(request)?);
        let body = render_request(request).map_err(|error| settings.errors.body_error(error))?;
        let is_streamed = request.options.stream;
        let method = if is_streamed { "converse-stream" } else { "converse" };
        let post = settings.post(&format!("/model/{model}/{method}"), json_bytes(&body))?;
        let framing = is_streamed.then_some(StreamFraming::EventStream);
        Ok(Exchange::new(BodyWire::BedrockConverse, post).with_framing(framing))
    }
}
