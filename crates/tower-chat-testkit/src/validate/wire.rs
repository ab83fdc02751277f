//! The wires (JSON formats of providers) whose conversations can be validated.

use std::{fmt, str::FromStr};

use super::{
    Citation, anthropic, bedrock_converse, cohere, gemini, ollama, openai_chat, openai_responses,
};

/// A request format whose conversations can be validated.
///
/// ```
/// use tower_chat_testkit::validate::Wire;
/// assert_eq!("bedrock-converse".parse(), Ok(Wire::BedrockConverse));
/// assert_eq!(Wire::OpenAiChat.to_string(), "openai-chat");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Wire {
    /// OpenAI Chat Completions and compatible APIs.
    OpenAiChat,
    /// OpenAI Responses.
    OpenAiResponses,
    /// Anthropic Messages, served by Anthropic or by another service.
    Anthropic,
    /// Gemini's `generateContent`, in the Gemini API and in Vertex AI.
    Gemini,
    /// Amazon Bedrock Converse.
    BedrockConverse,
    /// Ollama's native `/api/chat`.
    Ollama,
    /// Cohere's Chat API, version 2.
    Cohere,
}

impl Wire {
    /// All wires.
    pub const ALL: [Self; 7] = [
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::BedrockConverse,
        Self::Ollama,
        Self::Cohere,
    ];

    /// Returns the name of the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::BedrockConverse => "bedrock-converse",
            Self::Ollama => "ollama",
            Self::Cohere => "cohere",
        }
    }

    /// Returns the rules of this wire, each in the words of the provider and with its source.
    pub fn rules(self) -> &'static [Citation] {
        match self {
            Self::OpenAiChat => openai_chat::RULES,
            Self::OpenAiResponses => openai_responses::RULES,
            Self::Anthropic => anthropic::RULES,
            Self::Gemini => gemini::RULES,
            Self::BedrockConverse => bedrock_converse::RULES,
            Self::Ollama => ollama::RULES,
            Self::Cohere => cohere::RULES,
        }
    }

    /// Returns the name of the field of a request body that contains the conversation.
    pub fn conversation_field(self) -> &'static str {
        match self {
            Self::OpenAiResponses => "input",
            Self::Gemini => "contents",
            Self::OpenAiChat
            | Self::Anthropic
            | Self::BedrockConverse
            | Self::Ollama
            | Self::Cohere => "messages",
        }
    }
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The error of parsing a text that is not the name of a wire.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the wire {name:?} is unknown: use one of {}", Wire::ALL.map(Wire::name).join(", "))]
#[non_exhaustive]
pub struct UnknownWire {
    /// The text that was parsed.
    pub name: String,
}

impl FromStr for Wire {
    type Err = UnknownWire;

    fn from_str(name: &str) -> Result<Self, UnknownWire> {
        Self::ALL
            .into_iter()
            .find(|wire| wire.name() == name)
            .ok_or_else(|| UnknownWire { name: name.to_owned() })
    }
}
