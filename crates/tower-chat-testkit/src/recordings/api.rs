use serde_json::Value;

use super::{error::RecordingError, exchange::Exchange};

/// The API that a request calls, as determined by its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// Chat Completions, of OpenAI or of a compatible service.
    ChatCompletions,
    /// Responses, of OpenAI or of a compatible service.
    Responses,
    /// Anthropic's Messages, served by Anthropic.
    AnthropicMessages,
    /// Anthropic's Messages, served by Vertex AI: `rawPredict` and `streamRawPredict`.
    VertexAnthropic,
    /// Gemini's `generateContent` and `streamGenerateContent`, served by the Gemini API or by
    /// Vertex AI.
    Gemini,
    /// Bedrock's Converse and ConverseStream.
    BedrockConverse,
    /// Bedrock's InvokeModel and InvokeModelWithResponseStream, whose bodies have the format of the
    /// model.
    BedrockInvoke,
    /// Cohere's Chat, version 2.
    Cohere,
    /// Ollama's native chat API.
    Ollama,
    /// Writer's chat API.
    Writer,
    /// A request that does not call a chat model, such as one that counts tokens or uploads a file.
    Other,
}

/// Suffixes of URLs, and the API of each.
const ENDS: [(&str, Api); 16] = [
    ("/chat/completions", Api::ChatCompletions),
    ("/responses", Api::Responses),
    ("/messages", Api::AnthropicMessages),
    (":rawPredict", Api::VertexAnthropic),
    (":streamRawPredict", Api::VertexAnthropic),
    (":generateContent", Api::Gemini),
    (":streamGenerateContent", Api::Gemini),
    ("/converse", Api::BedrockConverse),
    ("/converse-stream", Api::BedrockConverse),
    ("/invoke", Api::BedrockInvoke),
    ("/invoke-with-response-stream", Api::BedrockInvoke),
    ("/v2/chat", Api::Cohere),
    ("/api/chat", Api::Ollama),
    ("/responses/input_tokens", Api::Other),
    ("/responses/compact", Api::Other),
    ("/messages/count_tokens", Api::Other),
];

/// Suffixes of URLs whose requests contain a field of [`CONVERSATION`] but do not call a chat
/// model.
const OTHER: [&str; 8] = [
    ":countTokens",
    "/count-tokens",
    "/embeddings",
    "/moderations",
    "/tokenize",
    "/rerank",
    "/conversations",
    "/cachedContents",
];

/// The fields of a request that may contain a conversation.
const CONVERSATION: [&str; 5] = ["messages", "contents", "input", "prompt", "message"];

impl Api {
    /// Returns whether a request of this API calls a chat model.
    pub fn asks_model(self) -> bool {
        self != Self::Other
    }

    /// Returns the API that a request calls.
    pub(super) fn of(exchange: &Exchange) -> Result<Self, RecordingError> {
        let path = exchange.path();
        if exchange.method != "POST" {
            return Ok(Self::Other);
        }
        if let Some((_, api)) = ENDS.iter().find(|(end, _)| path.ends_with(end)) {
            return Ok(*api);
        }
        if path.ends_with("api.writer.com/v1/chat") {
            return Ok(Self::Writer);
        }
        let has_field = |name: &&str| exchange.request.get(*name).is_some_and(is_conversation);
        if OTHER.iter().any(|end| path.ends_with(end)) || !CONVERSATION.iter().any(has_field) {
            return Ok(Self::Other);
        }
        Err(exchange
            .error(format!("the API at {path} is unknown: add its address to `recordings::Api`")))
    }
}

fn is_conversation(value: &Value) -> bool {
    value.is_array() || value.is_string()
}
