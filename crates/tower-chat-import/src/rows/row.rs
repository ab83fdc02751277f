//! Rows of histories that hold a turn each.

use serde::Deserialize;
use tower_chat_core::{Native, Reasoning, Role};

use super::json::{StoredCall, StoredResult, list, reasoning};

/// One row of a history that is stored one row per turn: what was said, the calls, and their
/// results.
///
/// It can be read from JSON. `content`, `tool_calls` and `tool_results` are other names of `text`,
/// `calls` and `results`. Lists may be lists, `null`, objects whose keys are numbers, with gaps
/// (`{"0": ..., "2": ...}`), as some languages store them, or a text that holds the JSON of either,
/// as a text column does. Reasoning may be a text. Other columns of the row, and other fields of a
/// step, are ignored; a call or a result with a field of unknown meaning is refused, since that field
/// may hold what the tool answered.
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
    /// Who speaks.
    pub role: Role,
    /// What was said; of a turn with tools, the final answer.
    #[serde(default, alias = "content")]
    pub text: Option<String>,
    /// What the model had thought before it asked for the calls.
    #[serde(default, deserialize_with = "reasoning")]
    pub reasoning: Vec<Reasoning>,
    /// The calls, all in one round.
    #[serde(default, alias = "tool_calls", deserialize_with = "list")]
    pub calls: Vec<AggregateCall>,
    /// The results, of these calls or of those of an earlier row.
    #[serde(default, alias = "tool_results", deserialize_with = "list")]
    pub results: Vec<AggregateResult>,
    /// The rounds of the turn one by one, where the system kept them.
    #[serde(default, deserialize_with = "list")]
    pub steps: Vec<AggregateStep>,
}

impl AggregateRow {
    /// A row with nothing in it.
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

    /// Whether it holds calls, its own or those of a step.
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

/// One service call of a turn, and the results of the calls it asked for.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct AggregateStep {
    /// What was said before the calls.
    #[serde(default, alias = "content")]
    pub text: Option<String>,
    /// What was thought before that.
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
    /// A step with a text, calls and results.
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
/// As JSON it may hold its own result, in the fields of an [`AggregateResult`]:
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
    /// The provider's id, where the row has one.
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments' text; any other JSON value than a string counts as its own text.
    pub arguments: String,
    /// The provider's item for the call: thought signatures, reasoning ids.
    pub native: Option<Native>,
    /// The result of this very call, where the system stores it inside the call. It answers the
    /// call whatever its ids say.
    pub result: Option<AggregateResult>,
}

impl AggregateCall {
    /// A call with an id.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self { id: Some(id.into()), ..Self::without_id(name, arguments) }
    }

    /// A call whose id was not stored.
    pub fn without_id(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            id: None,
            name: name.into(),
            arguments: arguments.into(),
            native: None,
            result: None,
        }
    }

    /// Sets the result that the call was answered with.
    #[must_use]
    pub fn answered(mut self, result: AggregateResult) -> Self {
        self.result = Some(result);
        self
    }
}

/// A result in a row.
///
/// As JSON its id is `call_id`, `tool_call_id` or `id`, and its content `content` or `result`. It
/// failed if `failed`, `is_error` or `denied` is true, `successful` is false, or there is an `error`;
/// the text of an `error` is content too.
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
    /// The id of the call it answers, where the row has one.
    pub call_id: Option<String>,
    /// The tool's name, where it was stored.
    pub name: Option<String>,
    /// What the tool answered; any other JSON value than a string counts as its own text, and
    /// `null` as an empty one. Nothing is an answer too.
    pub content: String,
    /// The tool failed. Rows from before there was such a flag succeeded.
    pub failed: bool,
    /// The provider's item for the result.
    pub native: Option<Native>,
}

impl AggregateResult {
    /// The result of the call with an id.
    pub fn new(call_id: impl Into<String>, content: impl Into<String>) -> Self {
        Self {
            call_id: Some(call_id.into()),
            name: None,
            content: content.into(),
            failed: false,
            native: None,
        }
    }

    /// Marks it as that of a tool that failed.
    #[must_use]
    pub fn failed(mut self) -> Self {
        self.failed = true;
        self
    }
}
