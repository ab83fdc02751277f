//! The parts of a request besides its messages: model, tools, sampling and limits.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ExactNumbers, Native};

/// The settings of a request besides its messages.
///
/// The options are sent with each service call and never stored. If a field is `None`, the
/// provider's default applies.
///
/// ```
/// use tower_chat_core::{ChatOptions, ChatRequest};
/// let options = ChatOptions::new().with_model("small").with_temperature(0.2);
/// let request = ChatRequest::user("Where is my order?").with_options(options);
/// assert_eq!(request.options.model.as_deref(), Some("small"));
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct ChatOptions {
    /// The model's name, for a model client that serves several models.
    pub model: Option<String>,
    /// Instructions for this request alone. Unlike a system message, the instructions are not
    /// stored.
    pub instructions: Option<String>,
    /// The tools that the model may call.
    pub tools: Vec<ToolDefinition>,
    /// Whether the model must call a tool, and which one.
    pub tool_choice: Option<ToolChoice>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// The maximum number of tokens of the answer.
    pub max_output_tokens: Option<u64>,
    /// Whether the answer is requested as a stream. A model client that does not support streams
    /// returns a whole answer.
    pub stream: bool,
    /// Whether the service may generate the answer in the background. A later request then fetches
    /// the answer with a token (the continuation) that the service has returned.
    pub background: bool,
    /// The continuation token of an earlier [`Finish`](crate::Finish), which identifies the
    /// background answer to fetch.
    pub continuation: Option<String>,
    /// Options of one provider, which are sent to it unchanged.
    pub extra: Map<String, Value>,
    pub(crate) exact_numbers: ExactNumbers,
}

impl ChatOptions {
    /// Creates options with the provider's defaults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the model's name.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Sets the instructions for this request alone.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// Replaces the tools that the model may call.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = ToolDefinition>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// Sets whether the model must call a tool, and which one.
    #[must_use]
    pub fn with_tool_choice(mut self, tool_choice: ToolChoice) -> Self {
        self.tool_choice = Some(tool_choice);
        self
    }

    /// Sets the sampling temperature.
    #[must_use]
    pub fn with_temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Sets nucleus sampling.
    #[must_use]
    pub fn with_top_p(mut self, top_p: f64) -> Self {
        self.top_p = Some(top_p);
        self
    }

    /// Sets the maximum number of tokens of the answer.
    #[must_use]
    pub fn with_max_output_tokens(mut self, max_output_tokens: u64) -> Self {
        self.max_output_tokens = Some(max_output_tokens);
        self
    }

    /// Sets whether the answer is requested as a stream.
    #[must_use]
    pub fn with_stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Sets whether the service may generate the answer in the background, so that a later request
    /// fetches the answer with a continuation token.
    #[must_use]
    pub fn with_background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Sets the continuation token, so that the request fetches a background answer.
    #[must_use]
    pub fn with_continuation(mut self, continuation: impl Into<String>) -> Self {
        self.continuation = Some(continuation.into());
        self
    }

    /// Replaces the options of one provider, which are sent to it unchanged.
    #[must_use]
    pub fn with_extra(mut self, extra: impl IntoIterator<Item = (String, Value)>) -> Self {
        self.extra = extra.into_iter().collect();
        self
    }

    /// Returns the integers in these options that a [`Value`] rounds, with all digits. The reader
    /// of a wire (JSON format of a provider) collects these integers from the body that it parses,
    /// and the writer of the same wire writes them with all digits.
    pub fn exact_numbers(&self) -> &ExactNumbers {
        &self.exact_numbers
    }

    /// Sets the [exact numbers](Self::exact_numbers).
    #[must_use]
    pub fn with_exact_numbers(mut self, exact_numbers: ExactNumbers) -> Self {
        self.exact_numbers = exact_numbers;
        self
    }

    /// Returns whether the service generates this answer in the background. A background answer is
    /// stored at the end of the run in every persistence mode, and the layers add no history to the
    /// request.
    pub fn is_background(&self) -> bool {
        self.background || self.continuation.is_some()
    }
}

/// The definition of a tool, as the model receives it.
///
/// ```
/// use serde_json::json;
/// use tower_chat_core::ToolDefinition;
///
/// let parameters = json!({
///     "type": "object",
///     "properties": {"cents": {"type": "integer", "description": "How much."}},
///     "required": ["cents"],
///     "additionalProperties": false
/// });
/// let pay = ToolDefinition::new("pay", "Pays an amount.", parameters).needs_approval().strict();
/// assert!(pay.needs_approval && pay.strict && !pay.safe_to_retry);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolDefinition {
    /// The name by which the model calls the tool.
    pub name: String,
    /// A description of the tool, which the model receives.
    pub description: String,
    /// The JSON Schema of the arguments; `null` if only the provider's own JSON (the field
    /// `native`) describes the tool, as for a tool that a provider executes itself.
    pub parameters: Value,
    /// Whether calls of the tool wait for approval.
    #[serde(default)]
    pub needs_approval: bool,
    /// Those fields of the provider's own JSON for the tool that have no counterpart in this type,
    /// such as a grammar or a cache mark. If `parameters` is `null`, the whole JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// Whether a call may run again if it is unknown whether the call has run. Set this for a tool
    /// that only reads, or that recognises a repeated call by its idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe_to_retry: bool,
    /// Whether the tool can run with the stored arguments of a call. The stored arguments differ
    /// from the arguments of the model if the tool's hook (`Tool::persist`) has changed them before
    /// the call was stored, for example by replacing a secret with a token that the tool resolves.
    /// Without this setting, a run that is resumed from the store never runs a call whose arguments
    /// the hook has changed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepts_stored_arguments: bool,
    /// Whether the provider enforces the schema on the model, if the provider supports this. Strict
    /// modes accept a schema only if its objects are closed and every property is required.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

impl ToolDefinition {
    /// Creates a tool that needs no approval.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: description.into(),
            parameters,
            needs_approval: false,
            native: None,
            safe_to_retry: false,
            accepts_stored_arguments: false,
            strict: false,
        }
    }

    /// Sets the [provider's own JSON](Self::native) for the tool.
    #[must_use]
    pub fn with_native(mut self, native: Native) -> Self {
        self.native = Some(native);
        self
    }

    /// Makes every call of the tool wait for approval.
    #[must_use]
    pub fn needs_approval(mut self) -> Self {
        self.needs_approval = true;
        self
    }

    /// Declares that a call may run again if it is unknown whether it has run.
    #[must_use]
    pub fn safe_to_retry(mut self) -> Self {
        self.safe_to_retry = true;
        self
    }

    /// Requests that the provider enforces the schema, if it can.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Declares that the tool can run with the arguments that its `persist` hook stores.
    #[must_use]
    pub fn accepts_stored_arguments(mut self) -> Self {
        self.accepts_stored_arguments = true;
        self
    }
}

/// Whether the model must call a tool, and which one.
///
/// ```
/// use tower_chat_core::{ChatOptions, ToolChoice};
///
/// let options = ChatOptions::new().with_tool_choice(ToolChoice::Tool("weather".to_owned()));
/// assert_eq!(options.tool_choice, Some(ToolChoice::Tool("weather".to_owned())));
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ToolChoice {
    /// The model decides.
    Auto,
    /// The model calls no tool.
    None,
    /// The model calls at least one tool.
    Required,
    /// The model calls this tool.
    Tool(String),
}
