//! Defines [`ServiceRules`] and the types of its fields.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A provider-executed call is a call of a tool that the provider runs itself.

use std::sync::Arc;

use tower_chat_core::{Media, MediaSource, Role};

use crate::body::BodyWire;

/// The rules of one service for requests in the format of its wire.
///
/// [`ServiceRules::choose`] returns the rules for the URL of a service. A caller can also change
/// the rules, and pass them to a model client:
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
    /// The name of the service, as the [issuer](tower_chat_core::Native::issuer) of native items.
    /// Only native items with this issuer or without an issuer are sent to the service.
    pub issuer: Arc<str>,
    /// The rule for the names of tools.
    pub tool_names: NameRule,
    /// The rule for the ids of calls.
    pub call_ids: IdRule,
    /// The rule for the arguments of calls in the history.
    pub arguments: ArgumentRule,
    /// The rule for media in the results of tools.
    pub tool_media: MediaRule,
    /// The rule for media in user messages.
    pub user_media: MediaRule,
    /// Whether assistant and system messages may contain media.
    pub assistant_media: bool,
    /// The rule for the results of tools that failed.
    pub error_results: ResultRule,
    /// The rule for reasoning that this service has issued.
    pub own_reasoning: ReasoningRule,
    /// The fields of assistant messages in which the service accepts reasoning, on Chat
    /// Completions. If `None`, the service accepts reasoning in every field.
    pub reasoning_fields: Option<&'static [&'static str]>,
    /// What the service requires in messages with calls that another service has made.
    pub foreign_calls: ForeignRule,
    /// Whether a turn (the answers and results after the last user message) must begin with a
    /// thinking block. The service checks this in each request that enables thinking and ends with
    /// results.
    pub thinking_first: bool,
    /// Pairs of the type of a provider-executed call, and the prefix of the ids that this service
    /// gives to such calls. A call whose id has another prefix is not sent, because another service
    /// with the same wire has made the call.
    pub hosted_ids: &'static [(&'static str, &'static str)],
    /// The keywords that the service refuses at the top level of a tool's schema.
    pub refused_in_schemas: &'static [&'static str],
    /// Whether a request whose history contains calls or results must define tools.
    pub definitions_with_calls: bool,
    /// The rule for an answer without content, such as an answer that contains only reasoning.
    pub empty_assistant: EmptyRule,
    /// Whether the first message after the system messages must be a user message.
    pub user_first: bool,
    /// Whether there must be an assistant message between the results of tools and the next user
    /// message.
    pub answer_after_results: bool,
    /// The messages whose content may be a list of parts, on Chat Completions.
    pub content_lists: ListRule,
    /// The rule for the names of authors, which only Chat Completions has. If `None`, the service
    /// refuses names of authors.
    pub author_names: Option<NameRule>,
}

/// The rule for names, of tools or of authors. Every service accepts ASCII letters and digits, `_`
/// and `-` in names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameRule {
    /// The other characters that the service accepts.
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
    /// The characters that an id may contain.
    pub form: IdForm,
    /// The maximum number of characters.
    pub max_length: usize,
    /// The scope in which each id must be unique.
    pub unique: Unique,
    /// Whether each call must have an id.
    pub required: bool,
}

/// The characters that an id may contain.
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
    /// The ids in one answer must be unique.
    Answer,
    /// All ids in a request must be unique.
    Request,
}

/// The form in which the service accepts the arguments of calls in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentRule {
    /// Any text.
    AsStored,
    /// A JSON object.
    Object,
}

/// The media that the service accepts at one position in a request, and what replaces other media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediaRule {
    /// The kinds of media that the service accepts.
    pub kinds: &'static [MediaKind],
    /// What replaces other media in the result of a tool.
    pub otherwise: Otherwise,
    /// The maximum number of images in one message, or `None` if the number is not limited.
    pub max_images: Option<usize>,
    /// The maximum number of documents in one message, or `None` if the number is not limited.
    pub max_documents: Option<usize>,
    /// Whether each document must have a unique name, and a message with a document must also
    /// contain a text.
    pub named_documents: bool,
}

impl MediaRule {
    /// The rule of a service that accepts no media.
    pub(super) const NONE: Self = Self {
        kinds: &[],
        otherwise: Otherwise::Sentence,
        max_images: None,
        max_documents: None,
        named_documents: false,
    };

    /// Creates a rule that accepts these kinds of media, and replaces other media with a sentence.
    pub(super) const fn accepting(kinds: &'static [MediaKind]) -> Self {
        Self { kinds, ..Self::NONE }
    }

    /// Returns whether the service accepts the media.
    pub fn accepts(&self, media: &Media) -> bool {
        self.kinds.iter().any(|kind| kind.accepts(media))
    }
}

/// A kind of media that a service accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediaKind {
    /// The IANA media type, or a range such as `image/*`.
    pub media_type: &'static str,
    /// The kinds of sources that the service accepts for media of this type.
    pub sources: Sources,
}

/// The kinds of sources that a service accepts: bytes in the request, a URL, or a file that the
/// service stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sources {
    /// Only bytes in the request.
    Bytes,
    /// Bytes in the request, or a URL.
    BytesOrUrl,
    /// Bytes in the request, or a file that the service stores.
    BytesOrFile,
    /// Bytes in the request, a URL, or a file that the service stores.
    Any,
    /// Only a file that the service stores.
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

/// Returns whether a media type belongs to a range. `media_type` itself may be a range such as
/// `image/*`, if the exact type of media at a URL is unknown.
fn is_of_type(range: &str, media_type: &str) -> bool {
    let (kind, subtype) = range.split_once('/').unwrap_or((range, "*"));
    let (found, found_subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
    (kind == "*" || kind == found)
        && (subtype == "*" || subtype == found_subtype || found_subtype == "*")
}

/// What replaces media that the service does not accept in the result of a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Otherwise {
    /// The media are moved to a user message after the results. If the service does not accept the
    /// media in a user message either, a sentence replaces the media.
    AfterResults,
    /// A sentence with the type and the size of the media replaces the media.
    Sentence,
}

/// The content that the service accepts in the results of tools that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultRule {
    /// Only text that is not empty.
    TextOnly,
    /// The same content as in other results.
    Any,
}

/// The rule for reasoning in the history that the service itself has issued.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningRule {
    /// The service requires the reasoning in messages with calls.
    Required,
    /// The service accepts the reasoning, and does not require it.
    Sent,
    /// The service refuses the reasoning.
    LeftOut,
}

/// What a service requires in messages with calls that another service has made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignRule {
    /// The service requires nothing.
    Nothing,
    /// The service requires reasoning.
    Reasoning {
        /// The field of the message that contains the reasoning, or the type of its block.
        field: &'static str,
        /// The shortest text that the service accepts.
        text: &'static str,
    },
    /// The service requires this thought signature in the first call of each answer.
    Signature(&'static str),
}

/// The messages whose content may be a list of parts. The content of all other messages must be one
/// text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListRule {
    /// All messages.
    Any,
    /// User messages.
    OfUser,
    /// User and system messages.
    OfUserAndSystem,
    /// No messages.
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

/// The rule for an answer without content, such as an answer that contains only reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmptyRule {
    /// The service accepts the answer.
    AsStored,
    /// The service refuses the answer.
    LeaveOut,
}
