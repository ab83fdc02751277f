//! The supported formats.

use std::{fmt, str::FromStr};

/// The format of a history.
///
/// ```
/// use tower_chat::import::Format;
/// let format: Format = "langgraph".parse()?;
/// assert_eq!(format, Format::LangGraph);
/// assert_eq!(Format::VercelUi.to_string(), "vercel-ui");
/// # Ok::<(), tower_chat::import::ParseFormatError>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// Messages of OpenAI Chat Completions, as JSON or JSON Lines.
    OpenAiChat,
    /// Items of OpenAI Responses, as JSON or JSON Lines.
    OpenAiResponses,
    /// Messages of Anthropic, as JSON or JSON Lines.
    Anthropic,
    /// Contents of Gemini, as JSON or JSON Lines.
    Gemini,
    /// The SQLite file of a `SQLiteSession` of the OpenAI Agents SDK for Python.
    OpenAiAgents,
    /// The SQLite file of a `SqliteSaver` of LangGraph.
    LangGraph,
    /// The JSON Lines of a `FileHistoryProvider` of Microsoft Agent Framework.
    AgentFramework,
    /// The JSON that `ModelMessagesTypeAdapter` of Pydantic AI writes.
    PydanticAi,
    /// The JSON of `UIMessage`s of Vercel's AI SDK.
    VercelUi,
}

impl Format {
    /// All formats, in the order in which the documentation lists them.
    pub const ALL: [Self; 9] = [
        Self::OpenAiChat,
        Self::OpenAiResponses,
        Self::Anthropic,
        Self::Gemini,
        Self::OpenAiAgents,
        Self::LangGraph,
        Self::AgentFramework,
        Self::PydanticAi,
        Self::VercelUi,
    ];

    /// Returns the name of the format in commands and error messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenAiChat => "openai-chat",
            Self::OpenAiResponses => "openai-responses",
            Self::Anthropic => "anthropic",
            Self::Gemini => "gemini",
            Self::OpenAiAgents => "openai-agents",
            Self::LangGraph => "langgraph",
            Self::AgentFramework => "agent-framework",
            Self::PydanticAi => "pydantic-ai",
            Self::VercelUi => "vercel-ui",
        }
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error of parsing a text that is not the name of a [`Format`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a format of histories: use one of {}", names())]
#[non_exhaustive]
pub struct ParseFormatError {
    /// The text that was parsed.
    pub name: String,
}

impl FromStr for Format {
    type Err = ParseFormatError;

    fn from_str(name: &str) -> Result<Self, ParseFormatError> {
        let found = Self::ALL.into_iter().find(|format| format.name() == name);
        found.ok_or_else(|| ParseFormatError { name: name.to_owned() })
    }
}

fn names() -> String {
    Format::ALL.map(Format::name).join(", ")
}
