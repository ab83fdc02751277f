//! How the model is asked, apart from the messages.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{ExactNumbers, Native};

/// What a request asks of the model besides its messages.
///
/// Sent with each service call and never stored. Fields left at `None` are left to the provider.
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
    /// The model's name, where the model client serves several.
    pub model: Option<String>,
    /// Instructions for this request alone; unlike a system message they are never stored.
    pub instructions: Option<String>,
    /// The tools the model may ask for.
    pub tools: Vec<ToolDefinition>,
    /// Whether the model must use one.
    pub tool_choice: Option<ToolChoice>,
    /// Sampling temperature.
    pub temperature: Option<f64>,
    /// Nucleus sampling.
    pub top_p: Option<f64>,
    /// The most tokens the answer may have.
    pub max_output_tokens: Option<u64>,
    /// Ask for the answer as a stream. A model client that cannot stream answers whole.
    pub stream: bool,
    /// Let the service work in the background and answer later, by continuation token.
    pub background: bool,
    /// Go on with a background answer: the token of an earlier [`Finish`](crate::Finish).
    pub continuation: Option<String>,
    /// Options only this provider knows, passed on as they are.
    pub extra: Map<String, Value>,
    /// The integers of the body from which these options were read that the values above would
    /// round. A body of the same wire is written with all their digits.
    pub exact_numbers: ExactNumbers,
}

impl ChatOptions {
    /// Leaves everything to the provider.
    pub fn new() -> Self {
        Self::default()
    }

    /// The model's name.
    #[must_use]
    pub fn with_model(mut self, model: impl Into<String>) -> Self {
        self.model = Some(model.into());
        self
    }

    /// Instructions for this request alone.
    #[must_use]
    pub fn with_instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// The tools the model may ask for, instead of those before.
    #[must_use]
    pub fn with_tools(mut self, tools: impl IntoIterator<Item = ToolDefinition>) -> Self {
        self.tools = tools.into_iter().collect();
        self
    }

    /// Whether and which tool the model must use.
    #[must_use]
    pub fn with_tool_choice(mut self, tool_choice: ToolChoice) -> Self {
        self.tool_choice = Some(tool_choice);
        self
    }

    /// The sampling temperature.
    #[must_use]
    pub fn with_temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// Nucleus sampling.
    #[must_use]
    pub fn with_top_p(mut self, top_p: f64) -> Self {
        self.top_p = Some(top_p);
        self
    }

    /// The most tokens the answer may have.
    #[must_use]
    pub fn with_max_output_tokens(mut self, max_output_tokens: u64) -> Self {
        self.max_output_tokens = Some(max_output_tokens);
        self
    }

    /// Whether to ask for the answer as a stream.
    #[must_use]
    pub fn with_stream(mut self, stream: bool) -> Self {
        self.stream = stream;
        self
    }

    /// Whether the service may answer later, by continuation token.
    #[must_use]
    pub fn with_background(mut self, background: bool) -> Self {
        self.background = background;
        self
    }

    /// Goes on with a background answer, by its token.
    #[must_use]
    pub fn with_continuation(mut self, continuation: impl Into<String>) -> Self {
        self.continuation = Some(continuation.into());
        self
    }

    /// Options only this provider knows, instead of those before.
    #[must_use]
    pub fn with_extra(mut self, extra: impl IntoIterator<Item = (String, Value)>) -> Self {
        self.extra = extra.into_iter().collect();
        self
    }

    /// The integers that the values would round.
    #[must_use]
    pub fn with_exact_numbers(mut self, exact_numbers: ExactNumbers) -> Self {
        self.exact_numbers = exact_numbers;
        self
    }

    /// Whether the service produces this answer apart from the call: such an answer is persisted
    /// at the end of the run in every mode, and no history is put before it.
    pub fn is_background(&self) -> bool {
        self.background || self.continuation.is_some()
    }
}

/// What the model is told about a tool.
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
    /// The name the model calls it by.
    pub name: String,
    /// What it does, in words for the model.
    pub description: String,
    /// JSON Schema of its arguments; `null` for a tool that its native item alone describes, such
    /// as one that a provider runs itself.
    pub parameters: Value,
    /// Its calls wait for approval.
    #[serde(default)]
    pub needs_approval: bool,
    /// The wire's item for it, without the fields above, where it says more than they do
    /// (`strict`, a grammar, a cache mark).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// A call of it that may or may not have run can simply be run again: it only reads, or it
    /// knows a repetition by its idempotency key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub safe_to_retry: bool,
    /// The tool can be run with the arguments that its `persist` hook has stored instead of the
    /// model's, because they mean the same to it: a token, for example. Without this a call whose
    /// arguments the hook changed never runs from the store.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accepts_stored_arguments: bool,
    /// A provider that can is to hold the model to the schema. The schema has to be one that strict
    /// modes take: objects closed, every property required.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strict: bool,
}

impl ToolDefinition {
    /// A tool that may run without approval.
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

    /// Adds the wire's item.
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

    /// Says that a call which may or may not have run can be run again.
    #[must_use]
    pub fn safe_to_retry(mut self) -> Self {
        self.safe_to_retry = true;
        self
    }

    /// Asks providers that can to hold the model to the schema.
    #[must_use]
    pub fn strict(mut self) -> Self {
        self.strict = true;
        self
    }

    /// Says that the tool can be run with what its `persist` hook stores of the arguments.
    #[must_use]
    pub fn accepts_stored_arguments(mut self) -> Self {
        self.accepts_stored_arguments = true;
        self
    }
}

/// Whether and which tool the model must use.
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
    /// As the model likes.
    Auto,
    /// No tool.
    None,
    /// At least one tool.
    Required,
    /// This tool.
    Tool(String),
}
