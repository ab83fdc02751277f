//! The parts of a message.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{ApprovalRequest, ApprovalResponse, CallPosition, Message, Native, check_unique_keys};

/// One part of a message.
///
/// The serde form is externally tagged (`{"text":{"text":"hi"}}`) so that [`Native`] items keep
/// their bytes; see [`format`](crate::format) for the stored form.
///
/// ```
/// use tower_chat_core::{Media, MediaSource, Message, Part, Role};
/// let image = Media::new("image/png", MediaSource::Url("https://example.com/coat.png".to_owned()));
/// let message = Message::new(Role::User, vec![Part::text("Does this suit me?"), Part::Media(image)]);
/// assert_eq!(message.text(), "Does this suit me?");
/// assert_eq!(message.parts[0].as_text(), Some("Does this suit me?"));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Part {
    /// Plain text.
    Text(Text),
    /// The reasoning of the model before its answer.
    Reasoning(Reasoning),
    /// A tool call that the model requests.
    ToolCall(ToolCall),
    /// The result of a tool call.
    ToolResult(ToolResult),
    /// A tool call that waits for approval. An approval or a rejection converts the request to a
    /// [`ToolCall`].
    ApprovalRequest(ApprovalRequest),
    /// The decision on an [`ApprovalRequest`].
    ApprovalResponse(ApprovalResponse),
    /// An image, a sound or a file.
    Media(Media),
    /// An error that the provider reported inside its answer.
    Error(ErrorPart),
    /// A provider's item that no other part represents.
    Native(Native),
}

impl Part {
    /// Creates a text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text::new(text))
    }

    /// Returns the text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(&text.text),
            _ => None,
        }
    }

    /// Returns the tool call of a tool-call part.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match self {
            Self::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// Returns the tool result of a tool-result part.
    pub fn as_tool_result(&self) -> Option<&ToolResult> {
        match self {
            Self::ToolResult(result) => Some(result),
            _ => None,
        }
    }
}

macro_rules! into_part {
    ($($name:ident),*) => { $(
        impl From<$name> for Part {
            fn from(part: $name) -> Self {
                Self::$name(part)
            }
        }
    )* };
}
into_part!(Text, Reasoning, ToolCall, ToolResult, ApprovalRequest, ApprovalResponse, Media, Native);

impl From<ErrorPart> for Part {
    fn from(part: ErrorPart) -> Self {
        Self::Error(part)
    }
}

/// Plain text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Text {
    /// The text, as the provider or the user sent it.
    pub text: String,
    /// The provider's item for the text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl Text {
    /// Creates a text part without a native item.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), native: None }
    }
}

/// The reasoning of the model: a readable summary, if there is one, and the provider's item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reasoning {
    /// The readable summary; empty if the provider returns none.
    pub text: String,
    /// The provider's item: ids, signatures, encrypted content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl Reasoning {
    /// Creates reasoning without a native item.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), native: None }
    }
}

/// A tool call that the model requests.
///
/// ```
/// use tower_chat_core::ToolCall;
/// let call = ToolCall::new("call_1", "weather", r#"{"city": "Pa"#);
/// assert_eq!(call.arguments, r#"{"city": "Pa"#); // stored, although the JSON is cut off
/// assert!(call.parse_arguments::<serde_json::Value>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The provider's id, unchanged. The id may be missing, empty, or equal to the id of another
    /// call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The text of the arguments, byte for byte, even if the text is not valid JSON or is cut off.
    pub arguments: String,
    /// Whether the provider executed this call itself. Such a call needs no result.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provider_executed: bool,
    /// Whether a token limit or a filter ended the answer inside this call. If so, the arguments
    /// may be incomplete even if they are valid JSON, and the call is never run. This flag is never
    /// sent to a provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut_off: bool,
    /// The provider's item for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl ToolCall {
    /// Creates a call with an id.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self { id: Some(id.into()), ..Self::without_id(name, arguments) }
    }

    /// Creates a call of a provider that sends no ids.
    pub fn without_id(name: impl Into<String>, arguments: impl Into<String>) -> Self {
        Self {
            id: None,
            name: name.into(),
            arguments: arguments.into(),
            provider_executed: false,
            is_cut_off: false,
            native: None,
        }
    }

    /// Creates a text result with the id and the name of this call.
    /// For other results, such as an error, set the fields of [`ToolResult`] instead.
    ///
    /// ```
    /// use tower_chat_core::{Message, ToolCall};
    /// let call = ToolCall::new("call_1", "weather", r#"{"city": "Paris"}"#);
    /// let results = Message::tool_results([call.answer("rain")]);
    /// # assert_eq!(results.results().next().unwrap().call_id.as_deref(), Some("call_1"));
    /// ```
    pub fn answer(&self, text: impl Into<String>) -> ToolResult {
        ToolResult {
            call_id: self.id.clone(),
            name: Some(self.name.clone()),
            ..ToolResult::of_parts("", vec![Part::text(text)])
        }
    }

    /// Parses the arguments. Empty arguments parse as `{}`, because providers send an empty text
    /// for tools without parameters.
    ///
    /// # Errors
    ///
    /// Returns an error if the text is not JSON, if an object at any level has the same key twice,
    /// or if the JSON does not have the shape of `T`.
    pub fn parse_arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        let text = self.arguments.as_str();
        let text = if text.trim().is_empty() { "{}" } else { text };
        check_unique_keys(text)?;
        serde_json::from_str(text)
    }
}

/// The result of a tool call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the answered call, if the call has an id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The tool's name, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The content of the result: [`Text`], [`Media`] or native parts.
    #[serde(deserialize_with = "deserialize_list")]
    pub content: Vec<Part>,
    /// Whether the tool failed. The content then describes the failure.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The stored call that the result answers. `None` if the call is determined by its id and the
    /// order of the messages. This field takes precedence over `call_id` and is never sent to a
    /// provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallPosition>,
    /// The provider's item for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// Whether the tool ended the run with this result. Such a run is complete, although no service
    /// call has sent the result to the model.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_run: bool,
    /// The messages that the tool has queued for the next service call. This field is set only
    /// while the result is in the record of tool calls and not in a message. When the result
    /// becomes part of a message, the queued messages are added after that message.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued: Vec<Message>,
}

impl ToolResult {
    /// Creates a text result for the call with this id.
    pub fn new(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of_parts(call_id, vec![Part::text(text)])
    }

    /// Creates a result of these parts.
    pub fn of_parts(call_id: impl Into<String>, content: Vec<Part>) -> Self {
        Self {
            call_id: Some(call_id.into()),
            name: None,
            content,
            is_error: false,
            call: None,
            native: None,
            ends_run: false,
            queued: Vec::new(),
        }
    }

    /// Creates a text result which reports that the tool failed.
    pub fn error(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::new(call_id, text) }
    }

    /// Returns the same result with other content, and without the provider's item, because the
    /// item contains the old content.
    #[must_use]
    pub fn with_content(&self, content: Vec<Part>) -> Self {
        let Self { call_id, name, content: _, is_error, call, native: _, ends_run, queued } = self;
        Self {
            call_id: call_id.clone(),
            name: name.clone(),
            content,
            is_error: *is_error,
            call: *call,
            native: None,
            ends_run: *ends_run,
            queued: queued.clone(),
        }
    }

    /// Sets the stored call that the result answers. The result is then matched with this call,
    /// regardless of call ids.
    ///
    /// Providers may use the id of a call again in a later run. The position, which consists of the
    /// id of the stored message and the index of the call in it, still identifies the call.
    ///
    /// ```
    /// use tower_chat_core::{CallPosition, MessageId, RunId, ToolResult};
    /// let message = MessageId { run: RunId::new(), index: 1 };
    /// let result = ToolResult::new("call_1", "paid").answering(CallPosition { message, index: 0 });
    /// assert_eq!(result.call.map(|call| call.message), Some(message));
    /// ```
    #[must_use]
    pub fn answering(mut self, call: CallPosition) -> Self {
        self.call = Some(call);
        self
    }

    /// Returns the text of all text parts of the content.
    pub fn text(&self) -> String {
        self.content.iter().filter_map(Part::as_text).collect()
    }
}

/// An image, a sound or a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Media {
    /// The IANA media type, such as `image/png`.
    pub media_type: String,
    /// The location of the bytes.
    pub source: MediaSource,
    /// The provider's item for the media.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl Media {
    /// Creates media without a native item.
    pub fn new(media_type: impl Into<String>, source: MediaSource) -> Self {
        Self { media_type: media_type.into(), source, native: None }
    }
}

/// The location of the bytes of a [`Media`] part.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaSource {
    /// The bytes can be fetched from this address.
    Url(String),
    /// The bytes themselves, in base64 (RFC 4648). Every provider accepts this form.
    Base64(String),
    /// The provider has the bytes under this file id.
    File(String),
}

/// An error that the provider reported inside its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorPart {
    /// The provider's description of the error.
    pub message: String,
    /// The provider's code of the error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl ErrorPart {
    /// Creates an error without a code.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None }
    }
}

/// Deserializes a list of parts and frees its unused capacity. serde allocates at least four
/// elements, although most lists have one part, and a cache stores messages for a long time.
pub(crate) fn deserialize_list<'de, D>(deserializer: D) -> Result<Vec<Part>, D::Error>
where
    D: Deserializer<'de>,
{
    let mut parts = Vec::deserialize(deserializer)?;
    parts.shrink_to_fit();
    Ok(parts)
}
