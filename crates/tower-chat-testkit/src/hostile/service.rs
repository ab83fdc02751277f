//! The rules of each service, which [`violations`](super::violations) checks.

/// The service that would receive a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Service<'s> {
    /// The name of the wire (the JSON format) that the service uses: `openai-chat`,
    /// `openai-responses`, `anthropic`, `gemini`, `bedrock`, `cohere`, `ollama`.
    pub wire: &'s str,
    /// The name of the service, such as `deepseek`. A service whose name is not in the rules of
    /// this module has the rules of an unknown service.
    pub name: &'s str,
    /// Whether the model refuses calls without a thought signature.
    pub requires_signatures: bool,
    /// Whether the conversation must begin with a message of the user.
    pub requires_user_first: bool,
}

impl<'s> Service<'s> {
    /// Creates a service with this wire and this name.
    pub fn new(wire: &'s str, name: &'s str) -> Self {
        let requires_user_first = match wire {
            "anthropic" => matches!(name, "anthropic" | "vertex" | "bedrock"),
            wire => wire == "bedrock",
        };
        Self { wire, name, requires_signatures: false, requires_user_first }
    }

    /// Sets whether the model refuses calls without a thought signature.
    #[must_use]
    pub fn with_signatures(self, requires_signatures: bool) -> Self {
        Self { requires_signatures, ..self }
    }

    /// Allows that the conversation begins with a message of the assistant.
    #[must_use]
    pub fn with_any_first(self) -> Self {
        Self { requires_user_first: false, ..self }
    }

    /// Returns the maximum number of characters of a call id.
    pub(super) fn longest_id(&self) -> usize {
        match (self.wire, self.name) {
            ("openai-chat", "mistral") => 9,
            ("openai-chat", "openai" | "azure" | "openrouter") => 40,
            ("anthropic", _) => 256,
            _ => 64,
        }
    }

    /// Returns the JSON schema keywords that the service refuses at the top level of a schema.
    pub(super) fn refused_in_schemas(&self) -> &'static [&'static str] {
        match (self.wire, self.name) {
            ("openai-chat", "openai" | "azure" | "openrouter")
            | ("openai-responses", "openai" | "azure") => {
                &["allOf", "anyOf", "oneOf", "enum", "not"]
            }
            ("anthropic", "anthropic" | "vertex" | "bedrock") => &["allOf", "anyOf", "oneOf"],
            _ => &[],
        }
    }

    /// Returns whether the service refuses a call id that two answers contain.
    pub(super) fn requires_unique_ids(&self) -> bool {
        match self.wire {
            "openai-chat" => !matches!(self.name, "vllm" | "llama.cpp" | "ollama" | "unknown"),
            "openai-responses" => true,
            "anthropic" => matches!(self.name, "anthropic" | "vertex" | "bedrock" | "minimax"),
            "gemini" | "bedrock" => self.name != "unknown",
            _ => false,
        }
    }

    /// Returns whether the service refuses an answer that has neither content nor calls.
    pub(super) fn refuses_empty_answers(&self) -> bool {
        self.wire == "openai-chat" && !matches!(self.name, "vllm" | "llama.cpp" | "unknown")
    }

    /// Returns whether the model can read images in tool messages.
    pub(super) fn reads_pictures_in_results(&self) -> bool {
        self.wire != "openai-chat" || matches!(self.name, "llama.cpp" | "ollama")
    }

    /// Returns whether the service accepts this field for reasoning.
    pub(super) fn accepts_field(&self, field: &str) -> bool {
        match self.name {
            "mistral" | "cerebras" => false,
            "groq" => field == "reasoning",
            _ => true,
        }
    }

    /// Returns whether the service accepts a content part of this type from the user.
    pub(super) fn accepts_part(&self, kind: &str) -> bool {
        match self.name {
            "deepseek" => kind == "text",
            "mistral" | "groq" | "xai" | "ollama" => matches!(kind, "text" | "image_url"),
            "vllm" | "llama.cpp" => matches!(kind, "text" | "image_url" | "input_audio"),
            _ => matches!(kind, "text" | "image_url" | "input_audio" | "file"),
        }
    }

    /// Returns whether the content of a message of this role may be a list.
    pub(super) fn accepts_list(&self, role: &str) -> bool {
        match self.name {
            "deepseek" => false,
            "groq" => !matches!(role, "assistant" | "tool"),
            "moonshot" => role == "user",
            _ => true,
        }
    }

    /// Returns whether a message may contain the name of its author.
    pub(super) fn accepts_authors(&self) -> bool {
        self.name != "mistral"
    }
}
