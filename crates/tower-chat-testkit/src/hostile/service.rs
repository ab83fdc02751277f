//! What the services take, as the checker knows it.

/// A service that a request goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Service<'s> {
    /// Its wire: `openai-chat`, `openai-responses`, `anthropic`, `gemini`, `bedrock`, `cohere`, `ollama`.
    pub wire: &'s str,
    /// Its name, such as `deepseek`; any other name is an unknown service.
    pub name: &'s str,
    /// Whether the model refuses calls without a signature.
    pub wants_signatures: bool,
}

impl<'s> Service<'s> {
    /// A service of a wire.
    pub fn new(wire: &'s str, name: &'s str) -> Self {
        Self { wire, name, wants_signatures: false }
    }

    /// The same service with a model that refuses calls without a signature.
    #[must_use]
    pub fn with_signatures(self, wants_signatures: bool) -> Self {
        Self { wants_signatures, ..self }
    }

    /// The most characters of the id of a call.
    pub(super) fn longest_id(&self) -> usize {
        match (self.wire, self.name) {
            ("openai-chat", "mistral") => 9,
            ("openai-chat", "openai" | "azure" | "openrouter") => 40,
            ("anthropic", _) => 256,
            _ => 64,
        }
    }

    /// Whether an id must not occur in two answers.
    pub(super) fn wants_unique_ids(&self) -> bool {
        match self.wire {
            "openai-chat" => !matches!(self.name, "vllm" | "llama.cpp" | "ollama" | "unknown"),
            "openai-responses" => true,
            _ => false,
        }
    }

    /// Whether the service refuses an answer without content and calls.
    pub(super) fn refuses_empty_answers(&self) -> bool {
        self.wire == "openai-chat"
            && !matches!(self.name, "vllm" | "llama.cpp" | "ollama" | "unknown")
    }

    /// Whether the model reads pictures in messages of tools.
    pub(super) fn reads_pictures_in_results(&self) -> bool {
        self.wire != "openai-chat" || matches!(self.name, "llama.cpp" | "ollama")
    }

    /// Whether the service takes this field of reasoning.
    pub(super) fn takes_field(&self, field: &str) -> bool {
        match self.name {
            "mistral" | "cerebras" => false,
            "groq" => field == "reasoning",
            _ => true,
        }
    }

    /// Whether the service takes a content part of this type from the user.
    pub(super) fn takes_part(&self, kind: &str) -> bool {
        match self.name {
            "deepseek" => kind == "text",
            "mistral" | "groq" | "xai" => matches!(kind, "text" | "image_url"),
            _ => matches!(kind, "text" | "image_url" | "input_audio" | "file"),
        }
    }
}
