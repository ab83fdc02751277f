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
    openai_chat::{RequestForm, render_request},
    stream::Limits,
};
use tower_service::Service;

use crate::{
    OpenAiError,
    connection::Connection,
    object::Object,
    transport::{self, Asked},
};

/// A model behind OpenAI's Chat Completions API, or behind a compatible one, as a leaf.
///
/// A clone is cheap and shares the connections. Dropping the future or the response of a call
/// cancels it.
///
/// Of the [options](tower_chat_core::ChatOptions), `extra` is merged into the body and counts more
/// than the named ones; a `null` in it takes a field out, such as `stream_options` for a server
/// that does not know it. `instructions` lead the messages as a system message.
#[derive(Clone)]
pub struct OpenAiChat {
    connection: Connection,
    defaults: Defaults,
}

impl OpenAiChat {
    /// A leaf for OpenAI itself.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if the key cannot stand in a header.
    pub fn openai(key: impl Into<String>) -> Result<Self, OpenAiError> {
        let leaf = Self::compatible(OPENAI_API_BASE, Some(&key.into()))?;
        Ok(leaf.with_token_limit_field("max_completion_tokens"))
    }

    /// A leaf for a compatible service: Ollama, vLLM, llama.cpp, Groq, Mistral, DeepSeek, xAI,
    /// OpenRouter and others.
    ///
    /// `base_url` is what comes before `/chat/completions`, such as `http://localhost:11434/v1`;
    /// without a key no `authorization` header is sent. To `mistral.ai` the ids of calls are sent as
    /// [`with_nine_character_ids`](Self::with_nine_character_ids) says.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if the key cannot stand in a header.
    pub fn compatible(base_url: &str, key: Option<&str>) -> Result<Self, OpenAiError> {
        let leaf = Self::new(Connection::compatible(base_url, key)?);
        Ok(if is_mistral(base_url) { leaf.with_nine_character_ids() } else { leaf })
    }

    /// A leaf for a deployment of Azure OpenAI; `endpoint` is `https://<resource>.openai.azure.com`.
    ///
    /// # Errors
    ///
    /// [`OpenAiError::Configuration`], if the key cannot stand in a header.
    pub fn azure(
        endpoint: &str,
        deployment: &str,
        api_version: &str,
        key: &str,
    ) -> Result<Self, OpenAiError> {
        let leaf = Self::new(Connection::azure_deployment(endpoint, deployment, api_version, key)?);
        Ok(leaf.with_token_limit_field("max_completion_tokens"))
    }

    /// The model of requests that name none.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.defaults.model = Some(model.into());
        self
    }

    /// The field that carries [`max_output_tokens`](tower_chat_core::ChatOptions):
    /// `max_completion_tokens` for OpenAI and Azure, `max_tokens` for others, unless it is said.
    #[must_use]
    pub fn with_token_limit_field(mut self, field: &'static str) -> Self {
        self.defaults.token_limit = field;
        self
    }

    /// Sends the ids of calls as nine letters and digits, for Mistral's models, which refuse others
    /// as soon as they come in a history that was begun elsewhere. Nothing that is stored changes.
    #[must_use]
    pub fn with_nine_character_ids(mut self) -> Self {
        self.defaults.nine_character_ids = true;
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
        let defaults =
            Defaults { model: None, token_limit: "max_tokens", nine_character_ids: false };
        Self { connection, defaults }
    }
}

impl Service<ChatRequest> for OpenAiChat {
    type Response = ChatResponse;
    type Error = OpenAiError;
    type Future = BoxFuture<'static, Result<ChatResponse, OpenAiError>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), OpenAiError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: ChatRequest) -> Self::Future {
        let is_streamed = request.options.stream;
        let (connection, limits) = (self.connection.clone(), self.connection.limits());
        let body = body(&request, &self.defaults);
        Box::pin(async move {
            let response = connection.post("/chat/completions", &body?).await?;
            let (wire, context) = (BodyWire::OpenAiChat, AnswerContext::default());
            transport::read(response, limits, Asked { wire, context, is_streamed }).await
        })
    }
}

impl fmt::Debug for OpenAiChat {
    /// Shows no key and no header, which may hold one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenAiChat")
            .field("url", &self.connection.url("/chat/completions"))
            .field("defaults", &self.defaults)
            .finish_non_exhaustive()
    }
}

/// What a leaf adds to every request.
#[derive(Debug, Clone)]
struct Defaults {
    model: Option<String>,
    /// The field that limits the answer's tokens.
    token_limit: &'static str,
    /// The service takes only ids of nine letters and digits.
    nine_character_ids: bool,
}

const API: &str = "Chat Completions";

fn body(request: &ChatRequest, defaults: &Defaults) -> Result<Object, OpenAiError> {
    if request.service_id()?.is_some() {
        return Err(OpenAiError::Unsupported {
            api: API,
            what: "conversations that the service keeps",
        });
    }
    if request.options.is_background() {
        return Err(OpenAiError::Unsupported { api: API, what: "background answers" });
    }
    let form = RequestForm {
        model: request.options.model.as_deref().or(defaults.model.as_deref()),
        token_limit: defaults.token_limit,
        nine_character_ids: defaults.nine_character_ids,
    };
    Ok(render_request(request, &form))
}

fn is_mistral(base_url: &str) -> bool {
    let host = reqwest::Url::parse(base_url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.is_some_and(|host| host == "mistral.ai" || host.ends_with(".mistral.ai"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mistral_is_known_by_its_host() {
        for url in ["https://api.mistral.ai/v1", "https://codestral.mistral.ai/v1/"] {
            assert!(is_mistral(url), "{url}");
        }
        for url in ["https://api.openai.com/v1", "http://127.0.0.1:1/mistral.ai", "mistral.ai"] {
            assert!(!is_mistral(url), "{url}");
        }
        let leaf = OpenAiChat::compatible("https://api.mistral.ai/v1", None);
        assert!(leaf.is_ok_and(|leaf| leaf.defaults.nine_character_ids));
    }
}
