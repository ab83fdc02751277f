//! The rules of one service.

use std::sync::Arc;

use tower_chat_core::{Media, MediaSource, Role};

use crate::body::BodyWire;

/// What one service takes, beyond the format of its wire.
///
/// [`ServiceRules::choose`] finds those of a service by its address; a client can be given others:
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
    /// The wire that the service speaks.
    pub wire: BodyWire,
    /// Which [native items](tower_chat_core::Native::issuer) the service receives: those with this issuer,
    /// and those without one.
    pub issuer: Arc<str>,
    /// The names of tools.
    pub tool_names: NameRule,
    /// The ids of calls.
    pub call_ids: IdRule,
    /// The arguments of calls in the history.
    pub arguments: ArgumentRule,
    /// Media in the results of tools.
    pub tool_media: MediaRule,
    /// Media in messages of the user.
    pub user_media: MediaRule,
    /// Whether messages of the assistant may have media.
    pub assistant_media: bool,
    /// The results of tools that failed.
    pub error_results: ResultRule,
    /// The service's own reasoning.
    pub own_reasoning: ReasoningRule,
    /// The fields in which the service accepts reasoning of Chat Completions; `None` where any field is
    /// accepted.
    pub reasoning_fields: Option<&'static [&'static str]>,
    /// What calls of other services need.
    pub foreign_calls: ForeignRule,
    /// How the ids of tools begin that the service runs itself, by the type of their call. A call with
    /// another id is of a service that copied the format, and is left out.
    pub hosted_ids: &'static [(&'static str, &'static str)],
    /// Whether a history with calls needs definitions of tools.
    pub definitions_with_calls: bool,
    /// An answer without a text and without calls.
    pub empty_assistant: EmptyRule,
    /// Whether the first message, but for those of the system, must be the user's.
    pub user_first: bool,
    /// Whether a message of the assistant must stand between the results of tools and the next message of
    /// the user.
    pub answer_after_results: bool,
    /// In which messages of Chat Completions the content may be a list of parts.
    pub content_lists: ListRule,
    /// The names of the authors of messages, which Chat Completions alone has; `None` where the service
    /// refuses them.
    pub author_names: Option<NameRule>,
}

/// The names of tools: ASCII letters and digits, `_`, `-`, and further characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct NameRule {
    /// Further characters.
    pub also: &'static str,
    /// Whether the first character must be a letter or `_`.
    pub begins_with_letter: bool,
    /// The most characters.
    pub longest: usize,
}

impl NameRule {
    /// Whether the service takes the name as it is.
    pub fn takes(&self, name: &str) -> bool {
        let begins_well = |first: char| first.is_ascii_alphabetic() || first == '_';
        let begins_well = !self.begins_with_letter || name.chars().next().is_some_and(begins_well);
        let is_taken = |it: char| is_word(it) || self.also.contains(it);
        begins_well && !name.is_empty() && name.len() <= self.longest && name.chars().all(is_taken)
    }
}

/// Whether it is one of the characters that names and ids have everywhere.
pub(super) fn is_word(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '_' | '-')
}

/// The ids of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct IdRule {
    /// Which characters they have.
    pub form: IdForm,
    /// The most characters.
    pub longest: usize,
    /// Where they have to differ.
    pub unique: Unique,
    /// Whether each call must have one.
    pub required: bool,
}

/// The characters of an id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdForm {
    /// Any.
    Any,
    /// ASCII letters and digits, `_` and `-`.
    Word,
    /// Nine ASCII letters and digits.
    Nine,
}

/// Where the ids of calls have to differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Unique {
    /// Within one answer.
    Answer,
    /// Within the whole request.
    Request,
}

/// The arguments of calls in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ArgumentRule {
    /// Any text.
    AsStored,
    /// A JSON object.
    Object,
}

/// Which media the service takes in one place, and what becomes of others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediaRule {
    /// The kinds that are taken.
    pub kinds: &'static [MediaKind],
    /// What becomes of other media in the result of a tool.
    pub otherwise: Otherwise,
    /// The most images in one message.
    pub most_images: Option<usize>,
    /// The most documents in one message.
    pub most_documents: Option<usize>,
    /// Whether a document has a name, which is different from those of all others, and needs a text beside
    /// it.
    pub named_documents: bool,
}

impl MediaRule {
    /// No media.
    pub(super) const NONE: Self = Self {
        kinds: &[],
        otherwise: Otherwise::Sentence,
        most_images: None,
        most_documents: None,
        named_documents: false,
    };

    /// These kinds, and a sentence in the place of others.
    pub(super) const fn of(kinds: &'static [MediaKind]) -> Self {
        Self { kinds, ..Self::NONE }
    }

    /// Whether the service takes the media.
    pub fn takes(&self, media: &Media) -> bool {
        self.kinds.iter().any(|kind| kind.takes(media))
    }
}

/// A kind of media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct MediaKind {
    /// The IANA media type, or a range such as `image/*`.
    pub media_type: &'static str,
    /// Where the bytes may be.
    pub sources: Sources,
}

/// Where the bytes of media may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sources {
    /// In the request.
    Bytes,
    /// In the request, or behind an address.
    BytesOrUrl,
    /// In the request, or in a file of the service.
    BytesOrFile,
    /// In the request, behind an address, or in a file of the service.
    Any,
    /// In a file of the service.
    File,
}

impl MediaKind {
    fn takes(&self, media: &Media) -> bool {
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

/// The media type without parameters, in lower case.
pub(super) fn essence(media_type: &str) -> String {
    media_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether a type lies in a range. Of an address alone the kind is known, such as `image/*`.
fn is_of_type(range: &str, media_type: &str) -> bool {
    let (kind, subtype) = range.split_once('/').unwrap_or((range, "*"));
    let (found, found_subtype) = media_type.split_once('/').unwrap_or((media_type, ""));
    (kind == "*" || kind == found)
        && (subtype == "*" || subtype == found_subtype || found_subtype == "*")
}

/// What becomes of media in the result of a tool that are not taken there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Otherwise {
    /// A message of the user behind the results has them, if it can have them; else a sentence.
    Behind,
    /// A sentence names their type and size.
    Sentence,
}

/// The results of tools that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ResultRule {
    /// Text alone, and not an empty one.
    TextOnly,
    /// What other results may have.
    Any,
}

/// The service's own reasoning in the history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReasoningRule {
    /// The service refuses calls that it made without it.
    Required,
    /// The service takes it.
    Sent,
    /// The service refuses it.
    LeftOut,
}

/// What calls of other services need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ForeignRule {
    /// Nothing.
    Nothing,
    /// This text of reasoning in this field of a message, or in a block of this type.
    Reasoning {
        /// The field, or the type of the block.
        field: &'static str,
        /// The text, which is as short as the service accepts.
        text: &'static str,
    },
    /// This signature, on the first call of each answer.
    Signature(&'static str),
}

/// In which messages the content may be a list of parts. In the others it is one text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ListRule {
    /// In all messages.
    Any,
    /// In messages of the user.
    OfUser,
    /// In messages of the user and of the system, and in no answers and results.
    OfUserAndSystem,
    /// In none.
    None,
}

impl ListRule {
    /// Whether the content of a message of this role may be a list.
    pub(super) fn allows(self, role: Role) -> bool {
        match self {
            Self::Any => true,
            Self::OfUser => role == Role::User,
            Self::OfUserAndSystem => !matches!(role, Role::Assistant | Role::Tool),
            Self::None => false,
        }
    }
}

/// An answer without a text and without calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum EmptyRule {
    /// The service takes it.
    AsStored,
    /// The service refuses it.
    LeaveOut,
}
