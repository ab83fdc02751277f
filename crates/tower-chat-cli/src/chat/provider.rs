//! Creates the model client of a chat.

use clap::ValueEnum;
use tower::{ServiceExt, retry::Retry, util::BoxCloneSyncService};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse,
    providers::{
        Anthropic, Bedrock, Cohere, CompatibleService, Gemini, Mistral, Ollama, OpenAiChat,
        OpenAiResponses, Provider, ProviderClient, ProviderError, ReqwestTransport, Vertex,
        retry::RetryPolicy,
    },
};

/// The model client of a chat, for any provider.
pub(crate) type ModelClient = BoxCloneSyncService<ChatRequest, ChatResponse, BoxError>;

/// The provider of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProviderName {
    /// OpenAI's Chat Completions, or a compatible service with --base-url; `OPENAI_API_KEY`
    Openai,
    /// OpenAI's Responses; `OPENAI_API_KEY`
    OpenaiResponses,
    /// Anthropic; `ANTHROPIC_API_KEY`
    Anthropic,
    /// Gemini; `GEMINI_API_KEY`
    Gemini,
    /// Gemini and Claude in Vertex AI; `VERTEX_API_KEY`, `VERTEX_PROJECT_ID`, `VERTEX_LOCATION`
    Vertex,
    /// Amazon Bedrock; `BEDROCK_API_KEY`, `AWS_BEARER_TOKEN_BEDROCK`, or `AWS_ACCESS_KEY_ID` with
    /// `AWS_SECRET_ACCESS_KEY`; `AWS_REGION`
    Bedrock,
    /// Cohere; `COHERE_API_KEY`
    Cohere,
    /// Mistral; `MISTRAL_API_KEY`
    Mistral,
    /// Ollama on this machine, or at the URL of --base-url; no key
    Ollama,
    /// DeepSeek; `DEEPSEEK_API_KEY`
    Deepseek,
    /// Groq; `GROQ_API_KEY`
    Groq,
    /// OpenRouter; `OPEN_ROUTER_API_KEY`
    Openrouter,
    /// xAI; `XAI_API_KEY`
    Xai,
}

impl ProviderName {
    /// Returns the environment variables that may contain the key. The first that is set is used.
    pub(crate) fn key_variables(self) -> &'static [&'static str] {
        match self {
            Self::Openai | Self::OpenaiResponses => &["OPENAI_API_KEY"],
            Self::Anthropic => &["ANTHROPIC_API_KEY"],
            Self::Gemini => &["GEMINI_API_KEY"],
            Self::Vertex => &["VERTEX_API_KEY"],
            Self::Bedrock => &["BEDROCK_API_KEY", "AWS_BEARER_TOKEN_BEDROCK", "AWS_ACCESS_KEY_ID"],
            Self::Cohere => &["COHERE_API_KEY"],
            Self::Mistral => &["MISTRAL_API_KEY"],
            Self::Ollama => &[],
            Self::Deepseek => &["DEEPSEEK_API_KEY"],
            Self::Groq => &["GROQ_API_KEY"],
            Self::Openrouter => &["OPEN_ROUTER_API_KEY"],
            Self::Xai => &["XAI_API_KEY"],
        }
    }

    /// Returns the names of the environment variables of all providers, each name once.
    pub(crate) fn all_key_variables() -> Vec<&'static str> {
        let all = Self::value_variants().iter().flat_map(|provider| provider.key_variables());
        let mut variables: Vec<&'static str> = Vec::new();
        for variable in all {
            if !variables.contains(variable) {
                variables.push(variable);
            }
        }
        variables
    }

    /// Returns the name of the provider on the command line.
    pub(crate) fn as_argument(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Creates a model client with the key in the environment. With `base_url`, a missing key is
    /// not an error, because a compatible service may need no key.
    pub(crate) fn client(
        self,
        model: &str,
        base_url: Option<&str>,
    ) -> Result<ModelClient, ProviderError> {
        let settings = ClientSettings { variables: self.key_variables(), model, base_url };
        let transport = ReqwestTransport::new()?;
        let compatible =
            |service| settings.keyed(OpenAiChat::service_over(service, transport.clone()));
        match (self, base_url) {
            (Self::Openai, None) => settings.keyed(OpenAiChat::new(transport)),
            (Self::Openai, Some(url)) => {
                settings.keyed(OpenAiChat::compatible_over(url, transport))
            }
            (Self::OpenaiResponses, None) => settings.keyed(OpenAiResponses::new(transport)),
            (Self::OpenaiResponses, Some(url)) => {
                settings.keyed(OpenAiResponses::compatible_over(url, transport))
            }
            (Self::Anthropic, _) => settings.keyed(Anthropic::new(transport)),
            (Self::Gemini, _) => settings.keyed(Gemini::new(transport)),
            (Self::Vertex, None) => Ok(settings.finish(Vertex::from_env()?)),
            (Self::Vertex, Some(_)) => settings.keyed(Vertex::new("-", "global", transport)),
            (Self::Bedrock, _) => settings.bedrock(transport),
            (Self::Cohere, _) => settings.keyed(Cohere::new(transport)),
            (Self::Mistral, _) => settings.keyed(Mistral::new(transport)),
            (Self::Ollama, _) => Ok(settings.finish(Ollama::new(transport))),
            (Self::Deepseek, _) => compatible(CompatibleService::DeepSeek),
            (Self::Groq, _) => compatible(CompatibleService::Groq),
            (Self::Openrouter, _) => compatible(CompatibleService::OpenRouter),
            (Self::Xai, _) => compatible(CompatibleService::XAi),
        }
    }
}

/// The settings of a model client. One of the environment variables `variables` contains the key.
struct ClientSettings<'a> {
    variables: &'static [&'static str],
    model: &'a str,
    base_url: Option<&'a str>,
}

impl ClientSettings<'_> {
    /// Returns the name of the first variable that is set, or the first name if none is set.
    fn variable(&self) -> Option<&'static str> {
        let is_set = |name: &&&str| is_variable_set(name);
        self.variables.iter().find(is_set).or(self.variables.first()).copied()
    }

    fn keyed<P: Provider>(
        &self,
        client: ProviderClient<P, ReqwestTransport>,
    ) -> Result<ModelClient, ProviderError> {
        match self.variable() {
            Some(variable) if self.base_url.is_none() || is_variable_set(variable) => {
                Ok(self.finish(client.with_key_from_env(variable)?))
            }
            _ => Ok(self.finish(client)),
        }
    }

    fn bedrock(&self, transport: ReqwestTransport) -> Result<ModelClient, ProviderError> {
        match self.variable().filter(|variable| is_variable_set(variable)) {
            Some("AWS_ACCESS_KEY_ID") => Ok(self.finish(Bedrock::signed_from_env()?)),
            None if self.base_url.is_some() => {
                Ok(self.finish(Bedrock::new("us-east-1", transport)))
            }
            _ => Ok(self.finish(Bedrock::from_env()?)),
        }
    }

    fn finish<P, T>(&self, client: ProviderClient<P, T>) -> ModelClient
    where
        P: Provider,
        ProviderClient<P, T>: tower::Service<
                ChatRequest,
                Response = ChatResponse,
                Error = ProviderError,
                Future: Send,
            > + Clone
            + Send
            + Sync
            + 'static,
    {
        let client = client.with_model(self.model);
        let client = match self.base_url {
            Some(url) => client.with_base_url(url),
            None => client,
        };
        BoxCloneSyncService::new(Retry::new(retries(), client).map_err(Into::into))
    }
}

/// Returns a retry policy with short waits, because the user waits for the answer.
fn retries() -> RetryPolicy {
    let longest = std::time::Duration::from_secs(15);
    RetryPolicy::new().with_max_attempts(3).with_max_retry_after(longest).with_deadline(longest)
}

/// Returns whether an environment variable is set and not empty.
pub(crate) fn is_variable_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}
