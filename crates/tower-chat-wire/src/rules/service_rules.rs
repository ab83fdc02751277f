//! The rules of one service, as data.

use std::sync::Arc;

use tower_chat_core::{Media, MediaSource, Role};

use crate::body::BodyWire;

/// The rules of one service for requests in the format of its wire.
///
/// [`ServiceRules::choose`] returns the rules of a service for its address. A client can also receive other
/// rules:
///
/// ```
/// use tower_chat_wire::{body::BodyWire, rules::{Otherwise, ServiceRules}};
/// // A gateway that reads pictures in the results of tools, which OpenAI does not.
/// let mut rules = ServiceRules::named(BodyWire::OpenAiChat, "openai").expect("a known service");
/// rules.tool_media = rules.user_media;
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServiceRules {
    /// The wire of the service.
    pub wire: BodyWire,
    /// The issuer of the [native items](tower_chat_core::Native::issuer) that the service receives. The
    /// service also receives native items without an issuer.
    pub issuer: Arc<str>,
    /// The rule for the names of tools.
    pub tool_names: NameRule,
    /// The rule for the ids of calls.
    pub call_ids: IdRule,
    /// The rule for the arguments of calls in the history.
    pub arguments: ArgumentRule,
    /// The rule for media in the results of tools.
    pub tool_media: MediaRule,
    /// The rule for media in messages of the user.
    pub user_media: MediaRule,
    /// Whether messages of the assistant may have media.
    pub assistant_media: bool,
    /// The rule for the results of tools that failed.
    pub error_results: ResultRule,
    /// The rule for reasoning that the service itself made.
    pub own_reasoning: ReasoningRule,
    /// The fields in which the service accepts reasoning of Chat Completions. `None` means every field.
    pub reasoning_fields: Option<&'static [&'static str]>,
    /// The addition that the service requires for calls of other services.
    pub foreign_calls: ForeignRule,
    /// Whether a request that enables thinking may continue a round only if the round begins with a thinking
    /// block.
    pub thinking_first: bool,
    /// The prefixes of the ids of the service's own provider-executed calls, by the type of the call. A call
    /// with another prefix was made by a service that copied the format, and is not sent.
    pub hosted_ids: &'static [(&'static str, &'static str)],
    /// The keywords that the service refuses at the top level of a tool's schema.
    pub refused_in_schemas: &'static [&'static str],
    /// Whether a request with calls in its history must define tools.
    pub definitions_with_calls: bool,
    /// The rule for an answer without text and without calls.
    pub empty_assistant: EmptyRule,
    /// Whether the first message after the system messages must be from the user.
    pub user_first: bool,
    /// Whether a message of the assistant must separate the results of tools from the next message of the
    /// user.
    pub answer_after_results: bool,
    /// The messages of Chat Completions whose content may be a list of parts.
    pub content_lists: ListRule,
    /// The rule for the names of authors, which only Chat Completions supports. `None` means that the
    /// service refuses names of authors.
    pub author_names: Option<NameRule>,
}

/// The rule for names of tools. Every service accepts ASCII letters and digits, `_` and `-`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameRule {
    /// The additional characters that the service accepts.
    pub also: &'static str,
    /// Whether the first character must be a letter or `_`.
    pub begins_with_letter: bool,
    /// The maximum number of characters.
    pub max_length: usize,
}

impl NameRule {
    /// Returns whether the service accepts the name.
    pub fn accepts(&self, name: &str) -> bool {
        let begins_well = |first: char| first.is_ascii_alphabetic() || first == '_';
        let begins_well = !self.begins_with_letter || name.chars().next().is_some_and(begins_well);
        let is_accepted = |it: char| is_word(it) || self.also.contains(it);
        begins_well
            && !name.is_empty()
            && name.len() <= self.max_length
            && name.chars().all(is_accepted)
    }
}

/// Returns whether every service accepts the character in names and ids.
pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// The rule for the ids of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdRule {
    /// The characters of an id.
    pub form: IdForm,
    /// The maximum number of characters.
    pub max_length: usize,
    /// The scope in which each id must be unique.
    pub unique: Unique,
    /// Whether each call must have an id.
    pub required: bool,
}

/// The characters of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdForm {
    /// Any characters.
    Any,
    /// ASCII letters and digits, `_` and `-`.
    Word,
    /// Nine ASCII letters and digits.
    Nine,
}

/// The scope in which the ids of calls must be unique.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unique {
    /// One answer.
    Answer,
    /// The whole request.
    Request,
}

/// The form of the arguments of calls in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentRule {
    /// Any text.
    AsStored,
    /// A JSON object.
    Object,
}

/// The media that the service accepts at one position, and the replacement of other media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediaRule {
    /// The kinds of media that the service accepts.
    pub kinds: &'static [MediaKind],
    /// The replacement of other media in the result of a tool.
    pub otherwise: Otherwise,
    /// The maximum number of images in one message; `None` if there is no maximum.
    pub max_images: Option<usize>,
    /// The maximum number of documents in one message; `None` if there is no maximum.
    pub max_documents: Option<usize>,
    /// Whether each document needs a unique name, and a text in the same message.
    pub named_documents: bool,
}

impl MediaRule {
    /// Accepts no media.
    pub(super) const NONE: Self = Self {
        kinds: &[],
        otherwise: Otherwise::Sentence,
        max_images: None,
        max_documents: None,
        named_documents: false,
    };

    /// Accepts these kinds, and replaces other media by a sentence.
    pub(super) const fn of(kinds: &'static [MediaKind]) -> Self {
        Self { kinds, ..Self::NONE }
    }

    /// Returns whether the service accepts the media.
    pub fn accepts(&self, media: &Media) -> bool {
        self.kinds.iter().any(|kind| kind.accepts(media))
    }
}

/// A kind of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediaKind {
    /// The IANA media type, or a range such as `image/*`.
    pub media_type: &'static str,
    /// The accepted locations of the bytes.
    pub sources: Sources,
}

/// The accepted locations of the bytes of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sources {
    /// In the request.
    Bytes,
    /// In the request, or at a URL.
    BytesOrUrl,
    /// In the request, or in a file of the service.
    BytesOrFile,
    /// In the request, at a URL, or in a file of the service.
    Any,
    /// In a file of the service.
    File,
}

impl MediaKind {
    fn accepts(&self, media: &Media) -> bool {
        let is_source = match (&media.source, self.sources) {
            (_, Sources::Any)
            | (
                MediaSource::Base64(_),
                Sources::Bytes | Sources::BytesOrUrl | Sources::BytesOrFile,
            )
            | (MediaSource::Url(_), Sources::BytesOrUrl)
            | (MediaSource::File(_), Sources::BytesOrFile | Sources::File) => true,
            (_, _) => false,
        };
        is_source && is_of_type(self.media_type, &essence(&media.media_type))
    }
}

/// Returns the media type without parameters, in lower case.
pub(super) fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Returns whether a media type is in a range. The type of media at a URL may be a range too, such as
/// `image/*`, because the exact type is not known.
fn is_of_type(range: &str, media_type: &str) -> bool {
    let (kind, subtype) = range.split_once('/').unwrap_or((range, "*"));
    let (found, found_subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
    (kind == "*" || kind == found)
        && (subtype == "*" || subtype == found_subtype || found_subtype == "*")
}

/// The replacement of media that the service does not accept in the result of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Otherwise {
    /// The media are sent in a message of the user after the results, if the service accepts them there.
    /// Otherwise a sentence replaces them.
    AfterResults,
    /// A sentence with their type and size replaces them.
    Sentence,
}

/// The content that the results of failed tools may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultRule {
    /// Only text, which must not be empty.
    TextOnly,
    /// The same content as other results.
    Any,
}

/// The rule for reasoning in the history that the service itself made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningRule {
    /// The service refuses its own calls without their reasoning.
    Required,
    /// The service accepts the reasoning.
    Sent,
    /// The service refuses the reasoning.
    LeftOut,
}

/// The addition that a service requires for calls of other services.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignRule {
    /// No addition.
    Nothing,
    /// Reasoning with this text, in this field of the message or in a block of this type.
    Reasoning {
        /// The field, or the type of the block.
        field: &'static str,
        /// The shortest text that the service accepts.
        text: &'static str,
    },
    /// This signature, on the first call of each answer.
    Signature(&'static str),
}

/// The messages whose content may be a list of parts. The content of other messages is one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListRule {
    /// All messages.
    Any,
    /// Messages of the user.
    OfUser,
    /// Messages of the user and of the system.
    OfUserAndSystem,
    /// No message.
    None,
}

impl ListRule {
    /// Returns whether the content of a message of this role may be a list.
    pub(super) fn allows(self, role: Role) -> bool {
        match self {
            Self::Any => true,
            Self::OfUser => role == Role::User,
            Self::OfUserAndSystem => !matches!(role, Role::Assistant | Role::Tool),
            Self::None => false,
        }
    }
}

/// The rule for an answer without text and without calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmptyRule {
    /// The service accepts the answer.
    AsStored,
    /// The service refuses the answer.
    LeaveOut,
}
