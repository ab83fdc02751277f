//! The leaf itself.

use std::{
    fmt,
    task::{Context, Poll},
};

use async_openai::config::OPENAI_API_BASE;
use futures_util::future::BoxFuture;
use tower_chat_core::{ChatRequest, ChatResponse, register_error};
use tower_chat_wire::{
    body::{AnswerContext, BodyWire},
    openai_responses::{HistoryLocation, RequestForm, parse_conversation_id, render_request},
    stream::Limits,
};
use tower_service::Service;

use super::{API, Keeping};
use crate::{
    OpenAiError,
    connection::Connection,
    object::Object,
    transport::{self, Asked},
};

/// What a leaf adds to every request.
#[derive(Debug, Clone, Default)]
struct Defaults {
    model: Option<String>,
    /// Whether to ask for encrypted reasoning; if it is not set, the model's name decides.
    encrypted_reasoning: Option<bool>,
}

/// A model behind OpenAI's Responses API, or behind a compatible one, as a leaf.
///
/// What the model puts out goes back as it came: ids, phases, summaries and encrypted content of
/// reasoning, and items of the provider's own tools. Who keeps the history is for [`Keeping`] to
/// say; by default it is the caller.
///
/// A clone is cheap and shares the connections. Dropping the future or the response of a call
/// cancels it; a background answer goes on at the service.
///
/// Of the [options](tower_chat_core::ChatOptions), `extra` is merged into the body and counts more
/// than the named ones; a `null` in it takes a field out, such as `include` or `store` for a server
/// that does not know it. `instructions` are the field of that name. Tools are sent with
/// `strict: false`, so that their schemas count as they are; those in `extra` may say otherwise.
///
/// With `background` the answer is only begun, and never streamed:
/// [`Finish::continuation`](tower_chat_core::Finish) is the token to ask for it later, by the option
/// of that name, as often as need be.
///
/// ```no_run
/// # async fn run() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use tower_chat_core::ChatRequest;
/// use tower_chat_openai::{Keeping, OpenAiResponses};
/// use tower_service::Service;
///
/// let leaf = OpenAiResponses::openai("sk-...")?.with_model("gpt-5-mini");
/// let mut leaf = leaf.with_keeping(Keeping::PreviousResponse);
/// let answer = leaf.call(ChatRequest::user("Where is my order?")).await?.collect().await?;
/// let mut next = ChatRequest::user("And when does it come?");
/// next.conversation_id = answer.finish.conversation_id;
/// println!("{}", leaf.call(next).await?.collect().await?.text());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct OpenAiResponses {
    connection: Connection,
    defaults: Defaults,
    keeping: Keeping,
}

impl OpenAiResponses {
    /// A leaf for OpenAI itself.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if the key cannot stand in a header.
    pub fn openai(key: impl Into<String>) -> Result<Self, OpenAiError> {
        Self::compatible(OPENAI_API_BASE, Some(&key.into()))
    }

    /// A leaf for a compatible service: xAI, DeepSeek, OpenRouter, Ollama, vLLM and others.
    ///
    /// `base_url` is what comes before `/responses`, such as `http://localhost:11434/v1`; without a
    /// key no `authorization` header is sent.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if the key cannot stand in a header.
    pub fn compatible(base_url: &str, key: Option<&str>) -> Result<Self, OpenAiError> {
        Connection::compatible(base_url, key).map(Self::new)
    }

    /// A leaf for Azure OpenAI by its v1 API; `endpoint` is `https://<resource>.openai.azure.com`.
    /// The model is the name of a deployment.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if the key cannot stand in a header.
    pub fn azure(endpoint: &str, key: &str) -> Result<Self, OpenAiError> {
        Connection::azure(endpoint, key).map(Self::new)
    }

    /// The model of requests that name none.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.defaults.model = Some(model.into());
        self
    }

    /// Who keeps the history of requests that have no service conversation id.
    #[must_use]
    pub fn with_keeping(mut self, keeping: Keeping) -> Self {
        self.keeping = keeping;
        self
    }

    /// Whether to ask for encrypted reasoning where the caller keeps the history.
    ///
    /// If it is not said, every model is asked but those of OpenAI whose names say that they do not
    /// reason, such as `gpt-4o`: they refuse to be asked. Say it where the name of a deployment does
    /// not show the model, or where a service does not know the option.
    #[must_use]
    pub fn with_encrypted_reasoning(mut self, ask: bool) -> Self {
        self.defaults.encrypted_reasoning = Some(ask);
        self
    }

    /// Sends a header with every request, in place of one of the same name.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if HTTP has no such header.
    pub fn with_header(mut self, name: &str, value: &str) -> Result<Self, OpenAiError> {
        self.connection = self.connection.with_header(name, value)?;
        Ok(self)
    }

    /// How large an answer may be: see [`Limits`]. One that is larger is
    /// [`OpenAiError::Limit`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.connection = self.connection.with_limits(limits);
        self
    }

    /// Asks for answers compressed with gzip, and takes them. The limits count what is there after
    /// decompression. Otherwise a compressed answer is refused.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if the TLS settings of this system cannot be used.
    #[cfg(feature = "gzip")]
    pub fn with_gzip(mut self) -> Result<Self, OpenAiError> {
        self.connection = self.connection.with_gzip()?;
        Ok(self)
    }

    fn new(connection: Connection) -> Self {
        register_error(OpenAiError::is_retryable);
        Self { connection, defaults: Defaults::default(), keeping: Keeping::default() }
    }

    async fn answer(self, request: ChatRequest) -> Result<ChatResponse, OpenAiError> {
        let mut location = self.keeping.location(request.service_id()?);
        let options = &*request.options;
        let is_background = options.is_background();
        if let Some(token) = &options.continuation {
            let body = self.continued(token).await?;
            let context = AnswerContext::of_history(location).with_background(is_background);
            return Ok(BodyWire::OpenAiResponses.parse_answer_to(&body, &context)?.into());
        }
        if location == HistoryLocation::NewConversation {
            location = HistoryLocation::InConversation(self.new_conversation().await?.into());
        }
        let is_streamed = options.stream && !is_background;
        let form = RequestForm {
            model: options.model.as_deref().or(self.defaults.model.as_deref()),
            encrypted_reasoning: self.defaults.encrypted_reasoning,
            is_streamed,
        };
        let body = render_request(&request, &location, &form);
        let context = AnswerContext::of_history(location).with_background(is_background);
        let asked = Asked { wire: BodyWire::OpenAiResponses, context, is_streamed };
        let limits = self.connection.limits();
        let response = self.connection.post("/responses", &body).await?;
        transport::read(response, limits, asked).await
    }

    /// A background answer, or that it is still to come.
    async fn continued(&self, token: &str) -> Result<String, OpenAiError> {
        let is_id = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if token.is_empty() || !token.chars().all(is_id) {
            // It would be another address.
            let what = "continuation token of this form, which no response has as its id";
            return Err(OpenAiError::Unsupported { api: API, what });
        }
        let response = self.connection.get(&format!("/responses/{token}")).await?;
        transport::whole(response, self.connection.limits()).await
    }

    async fn new_conversation(&self) -> Result<String, OpenAiError> {
        let response = self.connection.post("/conversations", &Object::new()).await?;
        let made = transport::whole(response, self.connection.limits()).await?;
        Ok(parse_conversation_id(&made)?)
    }
}

impl Service<ChatRequest> for OpenAiResponses {
    type Response = ChatResponse;
    type Error = OpenAiError;
    type Future = BoxFuture<'static, Result<ChatResponse, OpenAiError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), OpenAiError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        Box::pin(self.clone().answer(request))
    }
}

impl fmt::Debug for OpenAiResponses {
    /// Shows no key and no header, which may hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiResponses")
            .field("url", &self.connection.url("/responses"))
            .field("defaults", &self.defaults)
            .field("keeping", &self.keeping)
            .finish_non_exhaustive()
    }
}
