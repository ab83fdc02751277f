//! OpenAI Responses, and every service that is compatible with it.

use std::sync::Arc;

use http::HeaderName;
use tower_chat_core::ChatRequest;
use tower_chat_wire::{
    body::{AnswerContext, BodyWire},
    openai_responses::{HistoryLocation, RequestForm, parse_conversation_id, render_request},
    rules::ServiceRules,
};

#[cfg(feature = "reqwest")]
use crate::{ReqwestTransport, auth::Auth};
use crate::{
    auth::AuthHeader,
    client::ProviderClient,
    error::{ProviderError, ProviderErrorKind},
    frames::StreamFraming,
    openai_chat::OPENAI,
    provider::{Exchange, Provider, Settings, json_bytes},
};

/// A client of OpenAI's Responses, or of a compatible service: xAI, DeepSeek, OpenRouter, Ollama, vLLM,
/// Azure and others.
///
/// What the model puts out goes back as it was: ids, phases, summaries and encrypted content of
/// reasoning, and items of the provider's own tools. [`HistoryStorage`] says who stores the history; by
/// default it is the caller.
///
/// Tools are sent with `strict: false`, so that their schemas count as they are; those in `extra`
/// options may say otherwise. With the option `background` the answer is only begun, and never
/// streamed: [`Finish::continuation`](tower_chat_core::Finish) is the token to ask for it later, by the
/// option of that name, as often as need be. Dropping a call does not end a background answer.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use tower_chat_core::ChatRequest;
/// use tower_chat_providers::{HistoryStorage, OpenAiResponses};
/// use tower_service::Service;
///
/// let client = OpenAiResponses::from_env()?.with_model("gpt-5-mini");
/// let mut client = client.with_history_storage(HistoryStorage::Response);
/// std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
/// let answer = client.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
/// let mut next = ChatRequest::user("And when does it arrive?");
/// next.history_owner = answer.finish.history_owner;
/// std::future::poll_fn(|cx| client.poll_ready(cx)).await?;
/// println!("{}", client.call(next).await?.collect().await?.text());
/// # Ok(())
/// # }
/// ```
///
/// A service that stores the history does not know of tools that have run until the next request tells
/// it. If a run stops between an answer that calls tools and that request, OpenAI refuses to go on from
/// that answer without their results. With [`HistoryStorage::Response`], and a store that persists per
/// run, the next run goes on from the answer before that.
pub type OpenAiResponses<T> = ProviderClient<OpenAiResponsesApi, T>;

/// Where the history of a conversation that begins at an [`OpenAiResponses`] is stored.
///
/// It decides about requests without a service id. A request that has one goes on where
/// the history is, whatever the setting of the client: an id that begins with `conv_` is a conversation
/// of the Conversations API, any other that of a response.
///
/// ```no_run
/// # fn main() -> Result<(), tower_chat_providers::ProviderError> {
/// use tower_chat_providers::{HistoryStorage, OpenAiResponses};
///
/// let client = OpenAiResponses::from_env()?
///     .with_model("gpt-5-mini")
///     .with_history_storage(HistoryStorage::Conversation);
/// # let _ = client;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum HistoryStorage {
    /// With the caller, in a history store or otherwise: every request carries all of it.
    ///
    /// The service is told to store nothing (`store: false`), and asked for the
    /// [encrypted reasoning](OpenAiResponses::with_encrypted_reasoning), without which reasoning could
    /// not be sent back.
    #[default]
    Caller,
    /// At the service, response by response; a request names the one that it goes on from
    /// (`previous_response_id`).
    ///
    /// The id of the conversation is that of its newest response, so it is another one after each call.
    /// The service deletes responses in time; OpenAI after 30 days (OpenAI guide, Conversation state).
    Response,
    /// At the service, in a conversation of the Conversations API, whose id stays the same. It is
    /// created before the first request.
    ///
    /// If that request fails, the conversation stays empty at the service, under an id that no answer
    /// has told.
    Conversation,
}

/// The API of an [`OpenAiResponses`].
#[derive(Debug, Clone)]
pub struct OpenAiResponsesApi {
    name: &'static str,
    auth_header: AuthHeader,
    storage: HistoryStorage,
    /// Decided by the name of the model, if it is not set.
    encrypted_reasoning: Option<bool>,
}

impl OpenAiResponsesApi {
    fn named(name: &'static str) -> Self {
        let (auth_header, storage) = (AuthHeader::Bearer, HistoryStorage::default());
        Self { name, auth_header, storage, encrypted_reasoning: None }
    }
}

impl<T> OpenAiResponses<T> {
    /// A client of OpenAI over a transport, which is to authenticate.
    pub fn new(transport: T) -> Self {
        Self::with_provider(OpenAiResponsesApi::named("openai"), OPENAI, transport)
    }

    /// A client of a compatible service over a transport; `base_url` is the address before
    /// `/responses`, such as `http://localhost:11434/v1`.
    pub fn compatible_over(base_url: &str, transport: T) -> Self {
        let api = OpenAiResponsesApi::named("openai-compatible");
        Self::with_provider(api, base_url, transport)
    }

    /// A client of Azure OpenAI by its v1 API over a transport; `endpoint` is
    /// `https://<resource>.openai.azure.com`, and the model is the name of a deployment.
    /// [`with_key`](ProviderClient::with_key) sends the key as `api-key`.
    pub fn azure(endpoint: &str, transport: T) -> Self {
        let url = format!("{}/openai/v1", endpoint.trim_end_matches('/'));
        let auth_header = AuthHeader::Named(HeaderName::from_static("api-key"));
        let api = OpenAiResponsesApi { auth_header, ..OpenAiResponsesApi::named("azure") };
        Self::with_provider(api, &url, transport)
    }

    /// Where the history of requests without a service id is stored.
    #[must_use]
    pub fn with_history_storage(self, storage: HistoryStorage) -> Self {
        self.map_provider(|api| OpenAiResponsesApi { storage, ..api })
    }

    /// Whether to ask for encrypted reasoning where the caller stores the history.
    ///
    /// If it is not set, every model is asked but those of OpenAI whose names say that they do not
    /// reason, such as `gpt-4o`: they refuse to be asked. Set it where the name of a deployment does
    /// not show the model, or where a service does not know the option.
    #[must_use]
    pub fn with_encrypted_reasoning(self, ask: bool) -> Self {
        self.map_provider(|api| OpenAiResponsesApi { encrypted_reasoning: Some(ask), ..api })
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiResponses<Auth<ReqwestTransport>> {
    /// A client of OpenAI with the key in `OPENAI_API_KEY`, at the address in `OPENAI_BASE_URL` if that is
    /// set, as in OpenAI's own SDKs.
    ///
    /// # Errors
    ///
    /// If the variable is not set.
    pub fn from_env() -> Result<Self, ProviderError> {
        OpenAiResponses::new(ReqwestTransport::new()?)
            .with_base_url_from_env(&["OPENAI_BASE_URL"], "")?
            .with_key_from_env("OPENAI_API_KEY")
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiResponses<ReqwestTransport> {
    /// A client of a compatible service, without a key; see
    /// [`with_key`](ProviderClient::with_key). `base_url` is the address before `/responses`, such as
    /// `http://localhost:11434/v1`.
    ///
    /// # Errors
    ///
    /// If the address does not begin with `http://` or `https://` and a host, or the TLS settings of this
    /// system cannot be used.
    pub fn compatible(base_url: &str) -> Result<Self, ProviderError> {
        let client = OpenAiResponses::compatible_over(base_url, ReqwestTransport::new()?);
        client.with_checked_base_url(base_url)
    }
}

const WIRE: BodyWire = BodyWire::OpenAiResponses;

impl Provider for OpenAiResponsesApi {
    fn name(&self) -> &'static str {
        self.name
    }

    fn auth_header(&self) -> AuthHeader {
        self.auth_header.clone()
    }

    fn rules(&self, request: &ChatRequest, settings: &Settings) -> Option<ServiceRules> {
        Some(settings.rules(WIRE, request))
    }

    fn exchange(
        &self,
        request: &ChatRequest,
        settings: &Settings,
    ) -> Result<Exchange, ProviderError> {
        let errors = settings.errors;
        let sentinel = |error| errors.make(ProviderErrorKind::Sentinel(error));
        let history = self.history(request.service_id().map_err(sentinel)?);
        if let Some(token) = &request.options.continuation {
            let get = settings.get(&format!("/responses/{}", response_id(token, settings)?))?;
            let context = AnswerContext::of_history(history).with_background(true);
            return Ok(Exchange::new(WIRE, get).with_context(context));
        }
        if history != HistoryLocation::NewConversation {
            return self.ask(request, settings, history);
        }
        let (api, request, settings) = (self.clone(), request.clone(), settings.clone());
        let create = settings.post("/conversations", "{}")?;
        Ok(Exchange::first(WIRE, create, move |body| {
            let id = parse_conversation_id(body).map_err(|error| errors.answer(error))?;
            api.ask(&request, &settings, HistoryLocation::InConversation(id.into()))
        }))
    }
}

impl OpenAiResponsesApi {
    /// Where the history of a request is.
    fn history(&self, service_id: Option<&Arc<str>>) -> HistoryLocation {
        match (service_id, self.storage) {
            (Some(id), _) => HistoryLocation::of_service_id(id.clone()),
            (None, HistoryStorage::Caller) => HistoryLocation::Request,
            (None, HistoryStorage::Response) => HistoryLocation::NewResponse,
            (None, HistoryStorage::Conversation) => HistoryLocation::NewConversation,
        }
    }

    fn ask(
        &self,
        request: &ChatRequest,
        settings: &Settings,
        history: HistoryLocation,
    ) -> Result<Exchange, ProviderError> {
        let is_background = request.options.background;
        let is_streamed = request.options.stream && !is_background;
        let form = RequestForm {
            model: settings.model(request),
            encrypted_reasoning: self.encrypted_reasoning,
            is_streamed,
        };
        let body = json_bytes(&render_request(request, &history, &form));
        let context = AnswerContext::of_history(history).with_background(is_background);
        Ok(Exchange::new(WIRE, settings.post("/responses", body)?)
            .with_framing(is_streamed.then_some(StreamFraming::Sse))
            .with_context(context))
    }
}

/// The continuation token, if it can be the id of a response; another would be another address.
fn response_id<'a>(token: &'a str, settings: &Settings) -> Result<&'a str, ProviderError> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if token.is_empty() || !token.chars().all(is_id) {
        let what = "continuation token of this form, which no response has as its id";
        return Err(settings.errors.unsupported(what));
    }
    Ok(token)
}
