//! What a message is made of.

use serde::{Deserialize, Deserializer, Serialize};

use crate::{ApprovalRequest, ApprovalResponse, CallPosition, Message, Native, check_unique_keys};

/// One piece of a message.
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
    /// What the model thought before it answered.
    Reasoning(Reasoning),
    /// What the model asked for.
    ToolCall(ToolCall),
    /// What a tool answered.
    ToolResult(ToolResult),
    /// A tool call that waits for approval; it is no [`ToolCall`] until it is answered.
    ApprovalRequest(ApprovalRequest),
    /// The decision on an [`ApprovalRequest`].
    ApprovalResponse(ApprovalResponse),
    /// An image, a sound or a file.
    Media(Media),
    /// An error that the provider reported inside its answer.
    Error(ErrorPart),
    /// A provider's item that has no other part.
    Native(Native),
}

impl Part {
    /// A text part.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text(Text::new(text))
    }

    /// The text of a text part.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(&text.text),
            _ => None,
        }
    }

    /// The tool call of a tool-call part.
    pub fn as_tool_call(&self) -> Option<&ToolCall> {
        match self {
            Self::ToolCall(call) => Some(call),
            _ => None,
        }
    }

    /// The tool result of a tool-result part.
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
    /// The text, as it came.
    pub text: String,
    /// The provider's item for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl Text {
    /// A text part with no native item.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), native: None }
    }
}

/// What the model thought: a readable summary where there is one, and the provider's item.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Reasoning {
    /// The readable part; empty where the provider shows none.
    pub text: String,
    /// The provider's item: ids, signatures, encrypted content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl Reasoning {
    /// Reasoning with no native item.
    pub fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), native: None }
    }
}

/// What the model asked for.
///
/// ```
/// use tower_chat_core::ToolCall;
/// let call = ToolCall::new("call_1", "weather", r#"{"city": "Pa"#);
/// assert_eq!(call.arguments, r#"{"city": "Pa"#); // kept, although it is cut off
/// assert!(call.parse_arguments::<serde_json::Value>().is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolCall {
    /// The provider's id, as it came: absent, empty and repeated ids all occur.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The tool's name.
    pub name: String,
    /// The arguments' text byte for byte, malformed or cut-off JSON included.
    pub arguments: String,
    /// The provider ran this tool itself; no result is owed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub provider_executed: bool,
    /// A token limit ended the answer inside of this call: its arguments may lack something, also where
    /// they look whole. It is never run. Never sent to a provider.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_cut_off: bool,
    /// The provider's item for the call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl ToolCall {
    /// A call with an id.
    pub fn new(
        id: impl Into<String>,
        name: impl Into<String>,
        arguments: impl Into<String>,
    ) -> Self {
        Self { id: Some(id.into()), ..Self::without_id(name, arguments) }
    }

    /// A call from a provider that sends no ids.
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

    /// The result that answers this call with a text: it has the call's id, or none, and its name.
    /// [`ToolResult`] has fields for everything else, such as an error.
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

    /// Parses the arguments; empty arguments parse as `{}`, as providers send them for tools
    /// without parameters.
    ///
    /// # Errors
    ///
    /// If the text is not JSON, has a key twice in one object at any level, or does not have the shape
    /// of `T`.
    pub fn parse_arguments<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        let text = self.arguments.as_str();
        let text = if text.trim().is_empty() { "{}" } else { text };
        check_unique_keys(text)?;
        serde_json::from_str(text)
    }
}

/// What a tool answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ToolResult {
    /// The id of the call it answers, where the call has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call_id: Option<String>,
    /// The tool's name, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The answer: [`Text`], [`Media`] or native parts.
    #[serde(deserialize_with = "deserialize_list")]
    pub content: Vec<Part>,
    /// The tool failed; the content says how.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
    /// The stored call that the result answers, where its position behind the call does not say so.
    /// It takes precedence over `call_id`. Never sent to a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallPosition>,
    /// The provider's item for the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
    /// The run ended with this result: no service call has seen it. A run that is sent again is so
    /// known to be complete, wherever the result is stored.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_run: bool,
    /// What the tool has queued for the next service call. In the record of tool calls alone, until
    /// the result is part of a message: from then on these messages follow it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub queued: Vec<Message>,
}

impl ToolResult {
    /// A text result for the call with this id.
    pub fn new(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self::of_parts(call_id, vec![Part::text(text)])
    }

    /// A result of these parts.
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

    /// A text result that says the tool failed.
    pub fn error(call_id: impl Into<String>, text: impl Into<String>) -> Self {
        Self { is_error: true, ..Self::new(call_id, text) }
    }

    /// The same result with other content, and without the provider's item, which holds what
    /// was there before.
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

    /// The same result as the answer to one stored call, whatever ids it and other calls have.
    ///
    /// A tool call that was returned to the caller comes in a message with an id, and a later run
    /// may have returned another call with the same provider id. A result that says which call it
    /// answers cannot be taken for the other's.
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

    /// The text of all text parts of the content.
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
    /// Where the bytes are.
    pub source: MediaSource,
    /// The provider's item for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Native>,
}

impl Media {
    /// Media with no native item.
    pub fn new(media_type: impl Into<String>, source: MediaSource) -> Self {
        Self { media_type: media_type.into(), source, native: None }
    }
}

/// Where the bytes of a [`Media`] part are.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum MediaSource {
    /// Behind an address.
    Url(String),
    /// Here, in base64 (RFC 4648), the form in which every provider takes them.
    Base64(String),
    /// With the provider, under this file id.
    File(String),
}

/// An error that the provider reported inside its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ErrorPart {
    /// What went wrong, in the provider's words.
    pub message: String,
    /// The provider's code for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
}

impl ErrorPart {
    /// An error with no code.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), code: None }
    }
}

/// Reads a list of parts and frees its unused capacity. Most lists have one part, for which serde
/// allocates four, and loaded messages stay in a cache for long.
pub(crate) fn deserialize_list<'de, D>(deserializer: D) -> Result<Vec<Part>, D::Error>
where
    D: Deserializer<'de>,
{
    let mut parts = Vec::deserialize(deserializer)?;
    parts.shrink_to_fit();
    Ok(parts)
}
