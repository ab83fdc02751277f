//! Content that a service refuses to receive, and the marks for this content in stored messages.

use std::{error::Error, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Media, Message, MessageId, Part, Role};

/// The metadata key of the marks in a stored message.
const MARKS: &str = "refused_content";

/// A kind of content that a service may refuse.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ContentKind {
    /// Images.
    Image,
    /// Sounds.
    Audio,
    /// Videos.
    Video,
    /// Files of all other types.
    Document,
    /// Texts of the user, and texts of tool results.
    Text,
}

impl ContentKind {
    /// Returns the content kind of media, according to the media type.
    pub fn of_media(media: &Media) -> Self {
        let is = |kind: &str| {
            media.media_type.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind))
        };
        if is("image/") {
            Self::Image
        } else if is("audio/") {
            Self::Audio
        } else if is("video/") {
            Self::Video
        } else {
            Self::Document
        }
    }

    /// Returns the content kind of a part of a message, or of a part of a result in the message.
    /// Returns `None` for a part that is not content from outside, such as a call or text of the
    /// model.
    pub fn of_part(role: Role, part: &Part) -> Option<Self> {
        match part {
            Part::Media(media) => Some(Self::of_media(media)),
            Part::Text(_) if matches!(role, Role::User | Role::Tool) => Some(Self::Text),
            _ => None,
        }
    }

    /// Returns the kinds of content in a message, without duplicates.
    pub fn all_in(message: &Message) -> Vec<Self> {
        let mut kinds = Vec::new();
        let parts = message.parts.iter().flat_map(|part| match part {
            Part::ToolResult(result) => {
                result.content.iter().map(|part| (Role::Tool, part)).collect()
            }
            part => vec![(message.role, part)],
        });
        for kind in parts.filter_map(|(role, part)| Self::of_part(role, part)) {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        kinds
    }

    /// Returns the name of the kind as it is used in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Self::Image => "image",
            Self::Audio => "sound",
            Self::Video => "video",
            Self::Document => "file",
            Self::Text => "text",
        }
    }
}

/// The error of a service that refuses a request permanently (status 400, 413 or 422), possibly
/// because of the content of its messages. A model client does not use this error if the reason is
/// an unknown model, an option, or the schema of a tool.
///
/// Layers receive the errors of a service as [`BoxError`](crate::BoxError)s of unknown types. A
/// model client therefore adds this error to the [`source`](Error::source) chain of its own error.
///
/// ```
/// use tower_chat_core::{ContentKind, ContentRefused, content_refused, is_retryable};
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the service refused the request: {message}")]
/// struct Refused {
///     message: &'static str,
///     source: ContentRefused,
/// }
///
/// let source = ContentRefused::by("openai").naming(ContentKind::Image);
/// let refused = Refused { message: "Could not process image", source };
/// let found = content_refused(&refused).ok_or("the chain has it")?;
/// assert_eq!((&*found.issuer, found.named), ("openai", Some(ContentKind::Image)));
/// assert_eq!(is_retryable(&refused), Some(false));
/// # Ok::<(), &str>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{issuer} rejected the {} in the request: send the request without it",
    .named.map_or("content", ContentKind::name)
)]
#[non_exhaustive]
pub struct ContentRefused {
    /// The name of the service, as in [`Native::issuer`](crate::Native::issuer).
    pub issuer: Arc<str>,
    /// The kind of content that the service's error names; `None` if the error names no kind.
    pub named: Option<ContentKind>,
}

impl ContentRefused {
    /// Creates a refusal by this service that names no content.
    pub fn by(issuer: impl Into<Arc<str>>) -> Self {
        Self { issuer: issuer.into(), named: None }
    }

    /// Sets the kind of content that the refusal names.
    #[must_use]
    pub fn naming(self, kind: ContentKind) -> Self {
        Self { named: Some(kind), ..self }
    }
}

/// Finds a refusal of content in the source chain of an error.
pub fn content_refused<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e ContentRefused> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(refused) = error.downcast_ref() {
            return Some(refused);
        }
        next = error.source();
    }
    None
}

/// A mark, in a stored message, for content that a service refuses. Later requests to that service
/// contain a sentence instead of the content.
///
/// The run whose request was refused stores the mark in the metadata of one of its messages: the
/// message with the content, or a later one. Because the mark is part of a message, every store,
/// copy, export and encryption includes the mark.
///
/// ```
/// use tower_chat_core::{ContentKind, Message, MessageId, RefusalMark, RunId};
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let mark = RefusalMark::new("openai", id, ContentKind::Image);
/// let mut message = Message::user("What is in the picture?");
/// RefusalMark::store_in(&mut message, [mark.clone()]);
/// assert_eq!(RefusalMark::stored_in(&message), [mark]);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub struct RefusalMark {
    /// The service that refuses the content.
    pub issuer: Arc<str>,
    /// The message that contains the content.
    pub message: MessageId,
    /// The marked content: all content of this kind in the message.
    pub content: ContentKind,
}

impl RefusalMark {
    /// Creates a mark for all content of a kind in a message.
    pub fn new(issuer: impl Into<Arc<str>>, message: MessageId, content: ContentKind) -> Self {
        Self { issuer: issuer.into(), message, content }
    }

    /// Returns whether a stored message contains marks, for itself or for other messages.
    pub fn is_stored_in(message: &Message) -> bool {
        message.metadata.contains_key(MARKS)
    }

    /// Returns the marks that a stored message contains, for itself or for other messages. Marks
    /// that this release cannot parse are skipped.
    pub fn stored_in(message: &Message) -> Vec<Self> {
        let marks = message.metadata.get(MARKS).and_then(Value::as_array);
        let marks = marks.into_iter().flatten();
        marks.filter_map(|mark| serde_json::from_value(mark.clone()).ok()).collect()
    }

    /// Adds marks to a message.
    pub fn store_in(message: &mut Message, marks: impl IntoIterator<Item = Self>) {
        let new = marks.into_iter().filter_map(|mark| serde_json::to_value(mark).ok());
        let mut new = new.peekable();
        if new.peek().is_none() {
            return;
        }
        let mut all = match message.metadata.remove(MARKS) {
            Some(Value::Array(marks)) => marks,
            _ => Vec::new(),
        };
        all.extend(new);
        message.metadata.insert(MARKS.to_owned(), Value::Array(all));
    }

    /// Removes all marks from a message and returns them.
    pub fn remove_from(message: &mut Message) -> Vec<Self> {
        let marks = Self::stored_in(message);
        message.metadata.remove(MARKS);
        marks
    }
}

/// A request extension with the marks for the messages of the request. A model client sends a
/// sentence instead of content that is marked for its service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RefusalMarks(Arc<[RefusalMark]>);

impl RefusalMarks {
    /// Creates an extension with these marks.
    pub fn new(marks: impl IntoIterator<Item = RefusalMark>) -> Self {
        Self(marks.into_iter().collect())
    }

    /// Returns the marks of one service.
    pub fn of_issuer(&self, issuer: &str) -> impl Iterator<Item = &RefusalMark> {
        self.0.iter().filter(move |mark| &*mark.issuer == issuer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MediaSource, RunId, ToolCall, ToolResult};

    fn media(media_type: &str) -> Part {
        Part::Media(Media::new(media_type, MediaSource::Base64("aGk=".to_owned())))
    }

    #[test]
    fn the_content_kinds_of_a_message_exclude_text_of_the_model_and_of_system_messages() {
        use ContentKind::{Audio, Document, Image, Text, Video};
        let mut result = ToolResult::new("c1", "found");
        result.content.push(media("IMAGE/png"));
        let user = vec![Part::text("see"), media("application/pdf"), media("video/mp4")];
        for (message, expected) in [
            (Message::user("hi"), vec![Text]),
            (Message::new(Role::User, user), vec![Text, Document, Video]),
            (Message::tool_results([result]), vec![Text, Image]),
            (Message::assistant("hi"), vec![]),
            (Message::system("be brief"), vec![]),
            (Message::tool_calls([ToolCall::new("c1", "look", "{}")]), vec![]),
            (Message::new(Role::Assistant, vec![media("audio/wav")]), vec![Audio]),
        ] {
            assert_eq!(ContentKind::all_in(&message), expected, "{message:?}");
        }
    }

    #[test]
    fn refusal_marks_are_stored_and_removed_and_marks_with_unknown_content_are_ignored() {
        let id = MessageId { run: RunId::new(), index: 7 };
        let [one, two] = [ContentKind::Image, ContentKind::Text]
            .map(|content| RefusalMark::new("anthropic", id, content));
        let mut message = Message::user("hi");
        RefusalMark::store_in(&mut message, []);
        assert!(message.metadata.is_empty());
        RefusalMark::store_in(&mut message, [one.clone()]);
        RefusalMark::store_in(&mut message, [two.clone()]);
        if let Some(Value::Array(marks)) = message.metadata.get_mut(MARKS) {
            marks.push(serde_json::json!({"issuer": "x", "content": "hologram"}));
        }
        assert!(RefusalMark::is_stored_in(&message));
        assert_eq!(RefusalMark::remove_from(&mut message), [one, two]);
        assert!(message.metadata.is_empty());
    }
}
