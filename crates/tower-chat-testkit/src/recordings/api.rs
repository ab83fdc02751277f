use serde_json::Value;

use super::{error::RecordingError, exchange::Exchange};

/// The API of a request, by its URL.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Api {
    /// Chat Completions of OpenAI, and of services that are compatible with it.
    ChatCompletions,
    /// Responses of OpenAI, and of services that are compatible with it.
    Responses,
    /// Messages of Anthropic, at Anthropic.
    AnthropicMessages,
    /// Messages of Anthropic in Vertex AI: `rawPredict` and `streamRawPredict`.
    VertexAnthropic,
    /// `generateContent` and `streamGenerateContent` of Gemini, with or without Vertex AI.
    Gemini,
    /// Converse and ConverseStream of Bedrock.
    BedrockConverse,
    /// InvokeModel and InvokeModelWithResponseStream of Bedrock, with the body of the model.
    BedrockInvoke,
    /// Chat of Cohere, in its version 2.
    Cohere,
    /// Ollama's own chat.
    Ollama,
    /// Chat of Writer.
    Writer,
    /// Not a call of a chat model: counting of tokens, files, telemetry, keys.
    Other,
}

/// The APIs of requests, by the suffix of the URL without its query.
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

/// Suffixes of URLs whose requests have fields of a conversation, but are not calls of a chat
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

/// Fields of a request that may contain a conversation.
const CONVERSATION: [&str; 5] = ["messages", "contents", "input", "prompt", "message"];

impl Api {
    /// Returns whether a request of this API calls a chat model.
    pub fn asks_model(self) -> bool {
        self != Self::Other
    }

    /// Returns the API of a request. Fails if the request contains a conversation and no API has its
    /// URL.
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
