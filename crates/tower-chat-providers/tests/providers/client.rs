//! A type for the clients of all providers.

use tower::util::BoxCloneSyncService;
use tower_chat_core::{BoxError, ChatRequest, ChatResponse};
use tower_chat_providers::{
    Anthropic, Bedrock, Cohere, CompatibleService, Gemini, Mistral, Ollama, OpenAiChat,
    ProviderClient, ProviderError, ReqwestTransport, Vertex,
};
use tower_chat_wire::stream::Limits;
use tower_service::Service;

/// A provider or a compatible service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Provider {
    Anthropic,
    Gemini,
    Vertex,
    Bedrock,
    Cohere,
    Ollama,
    Mistral,
    Groq,
    DeepSeek,
    XAi,
    OpenRouter,
}

/// A builder of clients.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    provider: Provider,
    base_url: Option<String>,
    key: Option<&'static str>,
    limits: Limits,
    is_compressed: bool,
    headers: Vec<(&'static str, &'static str)>,
}

pub(crate) type AnyClient = BoxCloneSyncService<ChatRequest, ChatResponse, ProviderError>;

impl Client {
    pub(crate) fn new(provider: Provider) -> Self {
        let (base_url, key, headers) = (None, None, Vec::new());
        let limits = Limits::default();
        Self { provider, base_url, key, limits, is_compressed: false, headers }
    }

    pub(crate) fn with_base_url(mut self, url: &str) -> Self {
        self.base_url = Some(url.to_owned());
        self
    }

    pub(crate) fn with_key(mut self, key: &'static str) -> Self {
        self.key = Some(key);
        self
    }

    pub(crate) fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    pub(crate) fn with_gzip(mut self) -> Self {
        self.is_compressed = true;
        self
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Creates the client.
    pub(crate) fn build(self) -> AnyClient {
        let transport = match self.is_compressed {
            true => ReqwestTransport::with_gzip().unwrap(),
            false => ReqwestTransport::new().unwrap(),
        };
        let compatible = |service| OpenAiChat::service_over(service, transport.clone());
        match self.provider {
            Provider::Anthropic => self.finish(Anthropic::new(transport)),
            Provider::Gemini => self.finish(Gemini::new(transport)),
            Provider::Vertex => self.finish(Vertex::new("my-project", "global", transport)),
            Provider::Bedrock => self.finish(Bedrock::new("us-east-1", transport)),
            Provider::Cohere => self.finish(Cohere::new(transport)),
            Provider::Ollama => self.finish(Ollama::new(transport)),
            Provider::Mistral => self.finish(Mistral::new(transport)),
            Provider::Groq => self.finish(compatible(CompatibleService::Groq)),
            Provider::DeepSeek => self.finish(compatible(CompatibleService::DeepSeek)),
            Provider::XAi => self.finish(compatible(CompatibleService::XAi)),
            Provider::OpenRouter => self.finish(compatible(CompatibleService::OpenRouter)),
        }
    }

    fn finish<P>(&self, mut client: ProviderClient<P, ReqwestTransport>) -> AnyClient
    where
        P: tower_chat_providers::Provider,
    {
        client = client.with_limits(self.limits).with_model("test-model");
        if let Some(url) = &self.base_url {
            client = client.with_base_url(url);
        }
        for (name, value) in &self.headers {
            client = client.with_header(name, value).unwrap();
        }
        match self.key {
            Some(key) => BoxCloneSyncService::new(client.with_key(key).unwrap()),
            None => BoxCloneSyncService::new(client),
        }
    }
}

/// Downcasts the error of a call, or of the stream that it returned, to a `ProviderError`.
pub(crate) fn provider_error(error: BoxError) -> ProviderError {
    *error.downcast().expect("a typed error")
}

/// Polls a client to readiness, sends a request, and returns the whole or streamed answer.
pub(crate) async fn ask<S>(
    client: &mut S,
    request: ChatRequest,
) -> Result<tower_chat_core::Answer, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse, Error: Into<BoxError>>,
{
    std::future::poll_fn(|cx| client.poll_ready(cx)).await.map_err(Into::into)?;
    client.call(request).await.map_err(Into::into)?.collect().await
}
