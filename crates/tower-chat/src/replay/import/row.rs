//! Rows of histories that hold a turn each.

use std::{fmt, marker::PhantomData};

use serde::{Deserialize, Deserializer, de};
use serde_json::value::RawValue;
use tower_chat_core::{Native, Reasoning, Role};

/// One row of a history that is stored one row per turn: what was said, the calls, and their
/// results.
///
/// It can be read from JSON. `content`, `tool_calls` and `tool_results` are other names of `text`,
/// `calls` and `results`. Lists may be lists, `null`, or objects whose keys are numbers, with gaps
/// (`{"0": ..., "2": ...}`), as some languages store them. Other columns of the row are ignored.
///
/// ```
/// use tower_chat::replay::import::AggregateRow;
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
    #[serde(default, deserialize_with = "list")]
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

    /// Sets the text.
    #[must_use]
    pub fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// Adds a call.
    #[must_use]
    pub fn call(mut self, call: AggregateCall) -> Self {
        self.calls.push(call);
        self
    }

    /// Adds a result.
    #[must_use]
    pub fn result(mut self, result: AggregateResult) -> Self {
        self.results.push(result);
        self
    }

    /// Adds a step.
    #[must_use]
    pub fn step(mut self, step: AggregateStep) -> Self {
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
    #[serde(default, deserialize_with = "list")]
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
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct AggregateCall {
    /// The provider's id, where the row has one.
    #[serde(default)]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments' text; any other JSON value than a string counts as its own text.
    #[serde(default, deserialize_with = "text_of_json")]
    pub arguments: String,
    /// The provider's item for the call: thought signatures, reasoning ids.
    #[serde(default)]
    pub native: Option<Native>,
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
        Self { id: None, name: name.into(), arguments: arguments.into(), native: None }
    }
}

/// A result in a row.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[non_exhaustive]
pub struct AggregateResult {
    /// The id of the call it answers, where the row has one.
    #[serde(default, alias = "tool_call_id")]
    pub call_id: Option<String>,
    /// The tool's name, where it was stored.
    #[serde(default)]
    pub name: Option<String>,
    /// What the tool answered; any other JSON value than a string counts as its own text, and
    /// `null` as an empty one. Nothing is an answer too.
    #[serde(default, alias = "result", deserialize_with = "text_of_json")]
    pub content: String,
    /// The tool failed. Rows from before there was such a flag succeeded.
    #[serde(default, alias = "is_error", deserialize_with = "flag")]
    pub failed: bool,
    /// The provider's item for the result.
    #[serde(default)]
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

fn flag<'de, D: Deserializer<'de>>(deserializer: D) -> Result<bool, D::Error> {
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}

fn text_of_json<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    let json = Box::<RawValue>::deserialize(deserializer)?;
    match json.get() {
        "null" => Ok(String::new()),
        text if text.starts_with('"') => serde_json::from_str(text).map_err(de::Error::custom),
        other => Ok(other.to_owned()),
    }
}

fn list<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_any(ListVisitor(PhantomData))
}

struct ListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> de::Visitor<'de> for ListVisitor<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list, or an object whose keys are numbers")
    }

    fn visit_unit<E>(self) -> Result<Vec<T>, E> {
        Ok(Vec::new())
    }

    fn visit_seq<A: de::SeqAccess<'de>>(self, mut items: A) -> Result<Vec<T>, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(list)
    }

    fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<Vec<T>, A::Error> {
        let mut keyed: Vec<(u64, T)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let number = key.parse().map_err(|_| {
                de::Error::invalid_value(de::Unexpected::Str(&key), &"a number as key")
            })?;
            keyed.push((number, map.next_value()?));
        }
        keyed.sort_by_key(|(number, _)| *number);
        Ok(keyed.into_iter().map(|(_, item)| item).collect())
    }
}
