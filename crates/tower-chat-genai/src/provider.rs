//! The providers, and how each is asked.

use genai::adapter::AdapterKind;

/// A provider of models.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Provider {
    /// Anthropic Messages; the key is `ANTHROPIC_API_KEY`.
    Anthropic,
    /// The Gemini API; the key is `GEMINI_API_KEY`.
    Gemini,
    /// Gemini and Claude in Google's Vertex AI; the key is an OAuth token, `VERTEX_API_KEY`, and
    /// the address is made of `VERTEX_PROJECT_ID` and `VERTEX_LOCATION`.
    Vertex,
    /// Amazon Bedrock's Converse; the key is a Bedrock API key, `BEDROCK_API_KEY` or
    /// `AWS_BEARER_TOKEN_BEDROCK`, and the address is made of `AWS_REGION`.
    Bedrock,
    /// Cohere's chat, version 2; the key is `COHERE_API_KEY`.
    Cohere,
    /// Ollama's own chat, at `http://localhost:11434/` unless another address is given; no key.
    Ollama,
    /// Mistral; the key is `MISTRAL_API_KEY`.
    Mistral,
    /// Groq; the key is `GROQ_API_KEY`.
    Groq,
    /// DeepSeek; the key is `DEEPSEEK_API_KEY`.
    DeepSeek,
    /// xAI; the key is `XAI_API_KEY`.
    XAi,
    /// OpenRouter; the key is `OPEN_ROUTER_API_KEY`.
    OpenRouter,
}

/// In which words a provider is asked, and by whom.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route {
    /// Anthropic Messages, by genai.
    Anthropic,
    /// Gemini, by genai.
    Gemini,
    /// Anthropic Messages in Vertex AI, directly.
    VertexClaude,
    /// Bedrock Converse, directly.
    Bedrock,
    /// Cohere chat, directly.
    Cohere,
    /// Ollama chat, directly.
    Ollama,
    /// Chat Completions, by the OpenAI leaf.
    Compatible,
}

impl Provider {
    /// How genai names it.
    pub(crate) fn kind(self) -> AdapterKind {
        match self {
            Self::Anthropic => AdapterKind::Anthropic,
            Self::Gemini => AdapterKind::Gemini,
            Self::Vertex => AdapterKind::Vertex,
            Self::Bedrock => AdapterKind::BedrockApi,
            Self::Cohere => AdapterKind::Cohere,
            Self::Ollama => AdapterKind::Ollama,
            Self::Mistral => AdapterKind::Mistral,
            Self::Groq => AdapterKind::Groq,
            Self::DeepSeek => AdapterKind::DeepSeek,
            Self::XAi => AdapterKind::Xai,
            Self::OpenRouter => AdapterKind::OpenRouter,
        }
    }

    pub(crate) fn route(self, model: &str) -> Route {
        match self {
            Self::Anthropic => Route::Anthropic,
            Self::Vertex if model.starts_with("claude") => Route::VertexClaude,
            Self::Gemini | Self::Vertex => Route::Gemini,
            Self::Bedrock => Route::Bedrock,
            Self::Cohere => Route::Cohere,
            Self::Ollama => Route::Ollama,
            Self::Mistral | Self::Groq | Self::DeepSeek | Self::XAi | Self::OpenRouter => {
                Route::Compatible
            }
        }
    }
}
