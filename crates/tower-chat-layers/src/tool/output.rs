//! The outputs of tools.

use serde::Serialize;
use serde_json::Value;
use tower_chat_core::{BoxError, Media, Native, Part, ToolResult};

/// The output of a tool for one call.
///
/// A `String` is converted without changes. A JSON string is converted to its text, and any other
/// JSON value to compact JSON. `()` is converted to a short text which reports that the tool is
/// done, because some providers refuse an empty result.
///
/// ```
/// use serde_json::json;
/// use tower_chat::tool::ToolOutput;
/// assert_eq!(ToolOutput::from(json!("plain")).text(), "plain");
/// assert_eq!(ToolOutput::from(json!({"a": [1, 2]})).text(), r#"{"a":[1,2]}"#);
/// ```
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ToolOutput {
    /// The content of the result: text, media or native parts.
    pub content: Vec<Part>,
    /// Whether the tool failed. The model then receives the content as the description of the failure.
    pub is_error: bool,
    /// Whether the run ends after the calls of this answer. If the run ends, the caller receives
    /// the results, and the model does not.
    pub terminate: bool,
    /// The provider's item for the result.
    pub native: Option<Native>,
    pub(crate) name: ResultName,
    /// Whether the tool was not run because it does not accept the arguments.
    pub(crate) rejects_arguments: bool,
}

/// The source of the tool name in a result.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) enum ResultName {
    #[default]
    OfTool,
    As(Option<String>),
}

impl ToolOutput {
    /// Creates an output with these parts.
    pub fn new(content: Vec<Part>) -> Self {
        Self {
            content,
            is_error: false,
            terminate: false,
            native: None,
            name: ResultName::default(),
            rejects_arguments: false,
        }
    }

    /// Creates an error result with exactly this text.
    pub fn error(text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::new(vec![Part::text(text)]) }
    }

    /// Creates an error result that reports that the tool does not accept the arguments. The call is
    /// recorded as not run.
    pub fn rejected_arguments(text: impl Into<String>) -> Self {
        Self { rejects_arguments: true, ..Self::error(text) }
    }

    /// Ends the run after the calls of this answer. If the calls run one after another, the calls
    /// after this call do not run, and get no result.
    #[must_use]
    pub fn terminate(mut self) -> Self {
        self.terminate = true;
        self
    }

    /// Returns the concatenated text of all text parts.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Part::as_text).collect()
    }
}

/// Implemented by the types that a tool function can return: every type that converts into a
/// [`ToolOutput`], and [`Json`].
///
/// ```
/// use tower_chat::{Part, tool::ToolOutput};
///
/// /// The output of your search tool.
/// struct Hits(Vec<String>);
///
/// impl From<Hits> for ToolOutput {
///     fn from(Hits(hits): Hits) -> Self {
///         match hits.is_empty() {
///             true => Self::error("nothing found"),
///             false => Self::new(hits.into_iter().map(Part::text).collect()),
///         }
///     }
/// }
/// assert!(ToolOutput::from(Hits(Vec::new())).is_error);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the result of a tool",
    note = "a result is text, a `ToolOutput`, a `Part`, `Vec<Part>`, a `Media`, a JSON `Value`, `()`, or \
            `Json` of a type that derives `serde::Serialize`, of the version that \
            `tower_chat::serde` is; `#[tool]` puts `Json` around other types by itself"
)]
pub trait IntoToolOutput {
    /// Converts the value into an output.
    ///
    /// # Errors
    ///
    /// Returns an error if the value cannot be serialized as JSON.
    fn into_tool_output(self) -> Result<ToolOutput, BoxError>;
}

impl<T: Into<ToolOutput>> IntoToolOutput for T {
    fn into_tool_output(self) -> Result<ToolOutput, BoxError> {
        Ok(self.into())
    }
}

/// A value that the model receives as JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> Result<ToolOutput, BoxError> {
        Ok(serde_json::to_value(self.0)?.into())
    }
}

/// Converts the result of another system. The output has the content, the error flag, the name and
/// the native item of the result. The id of the result is replaced by the id of the call.
impl From<ToolResult> for ToolOutput {
    fn from(result: ToolResult) -> Self {
        Self {
            is_error: result.is_error,
            native: result.native,
            name: ResultName::As(result.name),
            ..Self::new(result.content)
        }
    }
}

impl From<String> for ToolOutput {
    fn from(text: String) -> Self {
        Self::new(vec![Part::text(text)])
    }
}

impl From<&str> for ToolOutput {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl From<Value> for ToolOutput {
    fn from(value: Value) -> Self {
        match value {
            Value::String(text) => text.into(),
            value => value.to_string().into(),
        }
    }
}

impl From<()> for ToolOutput {
    fn from((): ()) -> Self {
        "Done.".into()
    }
}

impl From<Part> for ToolOutput {
    fn from(part: Part) -> Self {
        Self::new(vec![part])
    }
}

impl From<Media> for ToolOutput {
    fn from(media: Media) -> Self {
        Part::Media(media).into()
    }
}

impl From<Vec<Part>> for ToolOutput {
    fn from(content: Vec<Part>) -> Self {
        Self::new(content)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn texts_become_tool_output_unchanged_even_if_they_are_empty() {
        assert_eq!(ToolOutput::from("").content, [Part::text("")]);
        assert_eq!(ToolOutput::from("a \"b\"\n").text(), "a \"b\"\n");
        assert_eq!(ToolOutput::from(json!("a \"b\"\n")).text(), "a \"b\"\n");
    }

    #[test]
    fn values_become_compact_json() {
        assert_eq!(ToolOutput::from(json!([1, null, "x"])).text(), r#"[1,null,"x"]"#);
        assert_eq!(ToolOutput::from(json!(null)).text(), "null");
    }

    #[test]
    fn an_output_from_a_tool_result_keeps_the_name_of_the_result_even_if_there_is_none() {
        let mut result = ToolResult::error("call_1", "no");
        let output = ToolOutput::from(result.clone());
        assert_eq!((output.is_error, output.name), (true, ResultName::As(None)));
        result.name = Some("look".to_owned());
        let output = ToolOutput::from(result.clone());
        assert_eq!((output.content, output.name), (result.content, ResultName::As(result.name)));
        assert_eq!(ToolOutput::from("no").name, ResultName::OfTool);
    }

    #[test]
    fn the_unit_output_has_a_nonempty_text() {
        assert!(!ToolOutput::from(()).text().is_empty());
    }
}
