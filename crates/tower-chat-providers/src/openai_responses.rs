//! A client of OpenAI Responses and of compatible services.

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
    openai_chat::OPENAI_BASE_URL,
    provider::{Exchange, Provider, Settings, json_bytes},
};

/// A client of OpenAI's Responses, or of a compatible service: xAI, DeepSeek, OpenRouter, Ollama,
/// vLLM, Azure and others.
///
/// The output of the model is sent back unchanged, including ids, phases, summaries and encrypted
/// content of reasoning, and items of tools that the provider runs. [`HistoryStorage`] determines
/// whether the caller or the service stores the history. By default, the caller stores it.
///
/// A tool whose definition is not strict is sent with `strict: false`, because the service would
/// change the schema of a tool without this field. Tools in the `extra` options are sent unchanged.
///
/// With the option `background`, the service generates the answer after the call has returned. The
/// call returns only a token, [`Finish::continuation`](tower_chat_core::Finish). A request with
/// this token in the option `continuation` returns the current state of the answer, and can be
/// repeated. A background answer is never streamed. Dropping a call does not cancel a background
/// answer.
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
/// A service that stores the history receives the results of tools with the next request. If a run
/// (the requests for one message of the user) fails before this request, the service has stored an
/// answer whose calls have no results, and OpenAI refuses to continue from this answer. To avoid
/// this, use [`HistoryStorage::Response`] with the persistence mode `PerRun` of
/// `tower-chat-layers`. This mode does not store a failed run, so that the next run continues from
/// the last answer before the failed run.
pub type OpenAiResponses<T> = ProviderClient<OpenAiResponsesApi, T>;

/// Selects who stores the history of a new conversation of an [`OpenAiResponses`] client: the
/// caller or the service.
///
/// The setting applies to requests without a [service id](tower_chat_core::HistoryOwner::Service).
/// If a request has a service id, the service stores the history: an id that begins with `conv_` is
/// the id of a conversation of the Conversations API, and any other id is the id of a response.
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
    /// The caller stores the history, in a history store or elsewhere. Every request contains the
    /// whole history.
    ///
    /// The client sends `store: false`, and requests [encrypted
    /// reasoning](OpenAiResponses::with_encrypted_reasoning), because reasoning can be sent back
    /// only in this form.
    #[default]
    Caller,
    /// The service stores the history as a chain of responses. Each request contains the id of the
    /// response from which it continues (`previous_response_id`).
    ///
    /// The service id of the conversation is the id of its newest response. The service id
    /// therefore changes with each call. The service deletes responses after some time. OpenAI
    /// deletes responses after 30 days (OpenAI guide, Conversation state).
    Response,
    /// The service stores the history in a conversation of the Conversations API. The client
    /// creates the conversation before the first request. The service id of the conversation does
    /// not change.
    ///
    /// If the first request fails, an empty conversation remains at the service. The caller does
    /// not receive the id of this conversation, because only an answer contains the service id.
    Conversation,
}

/// The [`Provider`](crate::Provider) of an [`OpenAiResponses`] client.
#[derive(Debug, Clone)]
pub struct OpenAiResponsesApi {
    name: &'static str,
    auth_header: AuthHeader,
    storage: HistoryStorage,
    /// Whether the client requests encrypted reasoning. If `None`, the name of the model decides.
    encrypted_reasoning: Option<bool>,
}

impl OpenAiResponsesApi {
    fn named(name: &'static str) -> Self {
        let (auth_header, storage) = (AuthHeader::Bearer, HistoryStorage::default());
        Self { name, auth_header, storage, encrypted_reasoning: None }
    }
}

impl<T> OpenAiResponses<T> {
    /// Creates a client of OpenAI that sends its requests through `transport`. The transport, or a
    /// layer around it, must add the key.
    pub fn new(transport: T) -> Self {
        Self::with_provider(OpenAiResponsesApi::named("openai"), OPENAI_BASE_URL, transport)
    }

    /// Creates a client of a compatible service that sends its requests through `transport`.
    /// `base_url` is the URL without `/responses`, such as `http://localhost:11434/v1`.
    pub fn compatible_over(base_url: &str, transport: T) -> Self {
        let api = OpenAiResponsesApi::named("openai-compatible");
        Self::with_provider(api, base_url, transport)
    }

    /// Creates a client of Azure OpenAI's v1 API that sends its requests through `transport`.
    /// `endpoint` is `https://<resource>.openai.azure.com`, and the name of the model is the name
    /// of a deployment. [`with_key`](ProviderClient::with_key) sends the key in the header
    /// `api-key`.
    pub fn azure(endpoint: &str, transport: T) -> Self {
        let url = format!("{}/openai/v1", endpoint.trim_end_matches('/'));
        let auth_header = AuthHeader::Named(HeaderName::from_static("api-key"));
        let api = OpenAiResponsesApi { auth_header, ..OpenAiResponsesApi::named("azure") };
        Self::with_provider(api, &url, transport)
    }

    /// Sets whether the caller or the service stores the history of requests without a service id.
    #[must_use]
    pub fn with_history_storage(self, storage: HistoryStorage) -> Self {
        self.map_provider(|api| OpenAiResponsesApi { storage, ..api })
    }

    /// Sets whether the client requests encrypted reasoning if the caller stores the history.
    ///
    /// By default, the client requests encrypted reasoning from every model except OpenAI's models
    /// without reasoning, such as `gpt-4o`, for which OpenAI refuses such a request. The client
    /// recognises these models by their names. Call this method if the name of a deployment does
    /// not contain the name of the model, or if a service does not support encrypted reasoning.
    #[must_use]
    pub fn with_encrypted_reasoning(self, ask: bool) -> Self {
        self.map_provider(|api| OpenAiResponsesApi { encrypted_reasoning: Some(ask), ..api })
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiResponses<Auth<ReqwestTransport>> {
    /// Creates a client of OpenAI with the key in `OPENAI_API_KEY`. If `OPENAI_BASE_URL` is set,
    /// the client sends requests to this URL, like OpenAI's own SDKs.
    ///
    /// # Errors
    ///
    /// If `OPENAI_API_KEY` is not set, if the base URL is not valid, or if the TLS settings of this
    /// system cannot be used.
    pub fn from_env() -> Result<Self, ProviderError> {
        OpenAiResponses::new(ReqwestTransport::new()?)
            .with_base_url_from_env(&["OPENAI_BASE_URL"], "")?
            .with_key_from_env("OPENAI_API_KEY")
    }
}

#[cfg(feature = "reqwest")]
impl OpenAiResponses<ReqwestTransport> {
    /// Creates a client of a compatible service that sends no key, until
    /// [`with_key`](ProviderClient::with_key) sets a key. `base_url` is the URL without
    /// `/responses`, such as `http://localhost:11434/v1`.
    ///
    /// # Errors
    ///
    /// If the URL does not begin with `http://` or `https://` and a host, or if the TLS settings of
    /// this system cannot be used.
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
        let sentinel = |error| errors.with_kind(ProviderErrorKind::Sentinel(error));
        let history = self.history_location(request.service_id().map_err(sentinel)?);
        if let Some(token) = &request.options.continuation {
            let get = settings.get(&format!("/responses/{}", response_id(token, settings)?))?;
            let context = AnswerContext::of_history(history).with_background(true);
            return Ok(Exchange::new(WIRE, get).with_context(context));
        }
        if history != HistoryLocation::NewConversation {
            return self.create_response(request, settings, history);
        }
        let (api, request, settings) = (self.clone(), request.clone(), settings.clone());
        let create = settings.post("/conversations", "{}")?;
        Ok(Exchange::first(WIRE, create, move |body| {
            let id = parse_conversation_id(body).map_err(|error| errors.answer_error(error))?;
            api.create_response(&request, &settings, HistoryLocation::InConversation(id.into()))
        }))
    }
}

impl OpenAiResponsesApi {
    /// Returns where the history of a request with this service id is stored.
    fn history_location(&self, service_id: Option<&Arc<str>>) -> HistoryLocation {
        match (service_id, self.storage) {
            (Some(id), _) => HistoryLocation::of_service_id(id.clone()),
            (None, HistoryStorage::Caller) => HistoryLocation::Request,
            (None, HistoryStorage::Response) => HistoryLocation::NewResponse,
            (None, HistoryStorage::Conversation) => HistoryLocation::NewConversation,
        }
    }

    fn create_response(
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

/// Returns a continuation token, with which the client fetches a background answer. Fails if the
/// token is not a response id, because other characters could change the path of the request.
fn response_id<'a>(token: &'a str, settings: &Settings) -> Result<&'a str, ProviderError> {
    let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
    if token.is_empty() || !token.chars().all(is_id) {
        let what = "answer for this continuation token, which is not the id of a response";
        return Err(settings.errors.unsupported(what));
    }
    Ok(token)
}
