//! The types of a row that contains a turn, and of its steps, calls and results.

use serde::Deserialize;
use tower_chat_core::{Native, Reasoning, Role};

use super::json::{StoredCall, StoredResult, list, reasoning};

/// A row that contains one turn of a history: a text, calls, and results.
///
/// A row can be deserialized from JSON. `content`, `tool_calls` and `tool_results` are aliases of
/// `text`, `calls` and `results`. Reasoning may be a list or a string. A list may be:
///
/// - a JSON list, or `null`;
/// - an object whose keys are numbers, possibly with gaps (`{"0": ..., "2": ...}`);
/// - a string that contains the JSON of a list, as in a text column.
///
/// Unknown fields of a row or a step are ignored. A call or a result with an unknown field is
/// refused, because this field may contain the result.
///
/// ```
/// use tower_chat::import::rows::AggregateRow;
/// let row: AggregateRow = serde_json::from_str(
///     r#"{"role": "assistant", "text": "It is sunny.",
///         "calls": [{"id": "c1", "name": "weather", "arguments": {"city": "Paris"}}],
///         "results": {"1": {"call_id": "c1", "content": "sunny"}}}"#,
/// )?;
/// assert_eq!((row.calls.len(), row.results.len()), (1, 1));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct AggregateRow {
    /// The role of the row.
    pub role: Role,
    /// The text of the turn. In a turn with tools, this is the final answer.
    #[serde(default, alias = "content")]
    pub text: Option<String>,
    /// The reasoning that the model generated before the calls.
    #[serde(default, deserialize_with = "reasoning")]
    pub reasoning: Vec<Reasoning>,
    /// The calls of the turn, which are imported as the calls of one answer.
    #[serde(default, alias = "tool_calls", deserialize_with = "list")]
    pub calls: Vec<AggregateCall>,
    /// The results of these calls, or of calls in an earlier row.
    #[serde(default, alias = "tool_results", deserialize_with = "list")]
    pub results: Vec<AggregateResult>,
    /// The steps of the turn, one for each answer of the model, if the system stored the answers
    /// separately.
    #[serde(default, deserialize_with = "list")]
    pub steps: Vec<AggregateStep>,
}

impl AggregateRow {
    /// Creates an empty row.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            text: None,
            reasoning: Vec::new(),
            calls: Vec::new(),
            results: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// Returns whether the row, or one of its steps, contains a call.
    pub(super) fn asks(&self) -> bool {
        !self.calls.is_empty() || self.steps.iter().any(|step| !step.calls.is_empty())
    }

    /// Sets the text.
    #[must_use]
    pub fn with_text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Adds a call.
    #[must_use]
    pub fn with_call(mut self, call: AggregateCall) -> Self {
        self.calls.push(call);
        self
    }

    /// Adds a result.
    #[must_use]
    pub fn with_result(mut self, result: AggregateResult) -> Self {
        self.results.push(result);
        self
    }

    /// Adds a step.
    #[must_use]
    pub fn with_step(mut self, step: AggregateStep) -> Self {
        self.steps.push(step);
        self
    }
}

/// One answer of the model in a turn: its text, its tool calls, and the results of the calls.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct AggregateStep {
    /// The text that the model generated before the calls.
    #[serde(default, alias = "content")]
    pub text: Option<String>,
    /// The reasoning that the model generated before the text.
    #[serde(default, deserialize_with = "reasoning")]
    pub reasoning: Vec<Reasoning>,
    /// The calls.
    #[serde(default, alias = "tool_calls", deserialize_with = "list")]
    pub calls: Vec<AggregateCall>,
    /// The results.
    #[serde(default, alias = "tool_results", deserialize_with = "list")]
    pub results: Vec<AggregateResult>,
}

impl AggregateStep {
    /// Creates a step with a text, calls and results.
    pub fn new(
        text: impl Into<String>,
        calls: impl IntoIterator<Item = AggregateCall>,
        results: impl IntoIterator<Item = AggregateResult>,
    ) -> Self {
        Self {
            text: Some(text.into()),
            reasoning: Vec::new(),
            calls: calls.into_iter().collect(),
            results: results.into_iter().collect(),
        }
    }
}

/// A call in a row.
///
/// The JSON of a call may also contain the result, in the fields of an [`AggregateResult`]:
///
/// ```
/// use tower_chat::import::rows::AggregateCall;
/// let call: AggregateCall = serde_json::from_str(
///     r#"{"id": "c1", "name": "weather", "arguments": {"city": "Oslo"}, "result": "rain"}"#,
/// )?;
/// assert_eq!(call.result.map(|result| result.content).as_deref(), Some("rain"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "StoredCall")]
#[non_exhaustive]
pub struct AggregateCall {
    /// The id that the provider generated for the call, if the row contains it.
    pub id: Option<String>,
    /// The name of the tool.
    pub name: String,
    /// The arguments: the content of a JSON string, or the JSON of any other value.
    pub arguments: String,
    /// The call in the provider's own format, which may contain thought signatures and reasoning
    /// ids.
    pub native: Option<Native>,
    /// The result, if the system stores it inside the call. This result answers the call even if it
    /// has another id.
    pub result: Option<AggregateResult>,
}

impl AggregateCall {
    /// Creates a call with an id.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self { id: Some(id.into()), ..Self::without_id(name, arguments) }
    }

    /// Creates a call without an id.
    pub fn without_id(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            id: None,
            name: name.into(),
            arguments: arguments.into(),
            native: None,
            result: None,
        }
    }

    /// Sets the result that the call contains.
    #[must_use]
    pub fn answered(mut self, result: AggregateResult) -> Self {
        self.result = Some(result);
        self
    }
}

/// A result in a row.
///
/// In JSON the id is `call_id`, `tool_call_id` or `id`, and the content is `content` or `result`.
/// The tool has failed if `failed`, `is_error` or `denied` is true, if `successful` is false, or if
/// the field `error` is set. The text of `error` is added to the content.
///
/// ```
/// use tower_chat::import::rows::AggregateResult;
/// let result: AggregateResult =
///     serde_json::from_str(r#"{"id": "c1", "result": null, "error": "no such city"}"#)?;
/// assert_eq!(result, AggregateResult::new("c1", "no such city").failed());
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(try_from = "StoredResult")]
#[non_exhaustive]
pub struct AggregateResult {
    /// The id of the call that the result answers, if the row contains it.
    pub call_id: Option<String>,
    /// The name of the tool, if the row contains it.
    pub name: Option<String>,
    /// The text of the result: the content of a JSON string, an empty text for `null`, or the JSON
    /// of any other value. A result may be empty.
    pub content: String,
    /// Whether the tool has failed. The value is `false` if the row does not contain this
    /// information.
    pub failed: bool,
    /// The result in the provider's own format.
    pub native: Option<Native>,
}

impl AggregateResult {
    /// Creates a result for the call with this id.
    pub fn new(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            call_id: Some(call_id.into()),
            name: None,
            content: content.into(),
            failed: false,
            native: None,
        }
    }

    /// Marks the tool as failed.
    #[must_use]
    pub fn failed(mut self) -> Self {
        self.failed = true;
        self
    }
}
