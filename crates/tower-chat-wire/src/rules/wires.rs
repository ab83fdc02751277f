//! The rules of an unknown service, for each wire.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. The issuer of a native item is the service that created the item.

use super::service_rules::{
    ArgumentRule, EmptyRule, ForeignRule, IdForm, IdRule, ListRule, MediaKind, MediaRule, NameRule,
    Otherwise, ReasoningRule, ResultRule, ServiceRules, Sources, Unique,
};
use crate::body::BodyWire;

pub(super) const fn kind(media_type: &'static str, sources: Sources) -> MediaKind {
    MediaKind { media_type, sources }
}

/// All media, with every kind of source.
pub(super) const ANYTHING: &[MediaKind] = &[kind("*/*", Sources::Any)];
/// The types of images that every model with image input accepts.
pub(super) const IMAGES: &[MediaKind] = &[
    kind("image/png", Sources::BytesOrUrl),
    kind("image/jpeg", Sources::BytesOrUrl),
    kind("image/gif", Sources::BytesOrUrl),
    kind("image/webp", Sources::BytesOrUrl),
];
/// All images whose bytes are in the request.
pub(super) const IMAGE_BYTES: &[MediaKind] = &[kind("image/*", Sources::Bytes)];
/// The media that an unknown service with the wire Responses accepts in results.
pub(super) const RESPONSES_RESULTS: &[MediaKind] = &[
    kind("image/*", Sources::Any),
    kind("application/*", Sources::Any),
    kind("text/*", Sources::Any),
];
pub(super) const ANTHROPIC: &[MediaKind] = &[
    kind("image/png", Sources::Any),
    kind("image/jpeg", Sources::Any),
    kind("image/gif", Sources::Any),
    kind("image/webp", Sources::Any),
    kind("application/pdf", Sources::Any),
    kind("*/*", Sources::File),
];
pub(super) const BEDROCK: &[MediaKind] = &[
    kind("image/png", Sources::Bytes),
    kind("image/jpeg", Sources::Bytes),
    kind("image/gif", Sources::Bytes),
    kind("image/webp", Sources::Bytes),
    kind("application/pdf", Sources::Bytes),
    kind("text/csv", Sources::Bytes),
    kind("application/msword", Sources::Bytes),
    kind("application/vnd.openxmlformats-officedocument.wordprocessingml.document", Sources::Bytes),
    kind("application/vnd.ms-excel", Sources::Bytes),
    kind("application/vnd.openxmlformats-officedocument.spreadsheetml.sheet", Sources::Bytes),
    kind("text/html", Sources::Bytes),
    kind("text/plain", Sources::Bytes),
    kind("text/markdown", Sources::Bytes),
];
pub(super) const GEMINI: &[MediaKind] = &[
    kind("image/png", Sources::Any),
    kind("image/jpeg", Sources::Any),
    kind("image/webp", Sources::Any),
    kind("image/heic", Sources::Any),
    kind("image/heif", Sources::Any),
    kind("audio/*", Sources::Any),
    kind("video/*", Sources::Any),
    kind("text/*", Sources::Any),
    kind("application/pdf", Sources::Any),
    kind("application/octet-stream", Sources::File),
];

/// The rule for names of 1 to 64 ASCII letters, digits, `_` and `-`.
pub(super) const WORD_NAMES: NameRule =
    NameRule { also: "", begins_with_letter: false, max_length: 64 };
/// The rule for ids of 1 to 64 ASCII letters, digits, `_` and `-`. Each call must have an id, and
/// the ids in one answer must be unique.
pub(super) const WORD_IDS: IdRule =
    IdRule { form: IdForm::Word, max_length: 64, unique: Unique::Answer, required: true };
/// The rule for ids of any characters and any length. A call need not have an id.
pub(super) const ANY_IDS: IdRule =
    IdRule { form: IdForm::Any, max_length: usize::MAX, unique: Unique::Answer, required: false };
/// The rule for results that cannot contain media. The media are sent in a user message after the
/// results, if the service accepts media in a user message.
pub(super) const ATTACHMENTS_AFTER_RESULTS: MediaRule =
    MediaRule { otherwise: Otherwise::AfterResults, ..MediaRule::NONE };

impl ServiceRules {
    /// Returns the rules of an unknown service with this wire. Only native items with this issuer
    /// or without an issuer are sent to the service. The other rules are the rules that all
    /// services with this wire have in common. On Chat Completions, for example, names and ids
    /// consist of 1 to 64 ASCII letters, digits, `_` and `-`, and no message is added to a request.
    pub fn unknown(wire: BodyWire, issuer: &str) -> Self {
        let rules = Self {
            wire,
            issuer: issuer.into(),
            tool_names: WORD_NAMES,
            call_ids: WORD_IDS,
            arguments: ArgumentRule::Object,
            tool_media: ATTACHMENTS_AFTER_RESULTS,
            user_media: MediaRule::accepting(ANYTHING),
            assistant_media: false,
            error_results: ResultRule::Any,
            own_reasoning: ReasoningRule::Sent,
            reasoning_fields: None,
            foreign_calls: ForeignRule::Nothing,
            thinking_first: false,
            hosted_ids: &[],
            definitions_with_calls: false,
            empty_assistant: EmptyRule::AsStored,
            user_first: false,
            refused_in_schemas: &[],
            answer_after_results: false,
            content_lists: ListRule::Any,
            author_names: Some(WORD_NAMES),
        };
        match wire {
            BodyWire::OpenAiChat => rules,
            BodyWire::OpenAiResponses => {
                Self { tool_media: MediaRule::accepting(RESPONSES_RESULTS), ..rules }
            }
            BodyWire::Anthropic => Self {
                call_ids: IdRule { max_length: 256, ..WORD_IDS },
                tool_media: MediaRule::accepting(ANTHROPIC),
                user_media: MediaRule::accepting(ANTHROPIC),
                error_results: ResultRule::TextOnly,
                thinking_first: true,
                ..rules
            },
            BodyWire::Gemini => Self {
                tool_names: NameRule { also: ".:", begins_with_letter: true, ..WORD_NAMES },
                call_ids: ANY_IDS,
                tool_media: MediaRule::accepting(GEMINI),
                user_media: MediaRule::accepting(GEMINI),
                assistant_media: true,
                ..rules
            },
            BodyWire::BedrockConverse => {
                let media = MediaRule {
                    max_images: Some(20),
                    max_documents: Some(5),
                    named_documents: true,
                    ..MediaRule::accepting(BEDROCK)
                };
                Self {
                    tool_media: media,
                    user_media: media,
                    error_results: ResultRule::TextOnly,
                    definitions_with_calls: true,
                    user_first: true,
                    ..rules
                }
            }
            BodyWire::Cohere => Self {
                tool_names: NameRule { begins_with_letter: true, ..WORD_NAMES },
                call_ids: IdRule { required: true, ..ANY_IDS },
                tool_media: MediaRule::NONE,
                user_media: MediaRule::accepting(IMAGES),
                ..rules
            },
            BodyWire::Ollama => Self {
                call_ids: ANY_IDS,
                tool_media: MediaRule::accepting(IMAGE_BYTES),
                user_media: MediaRule::accepting(IMAGE_BYTES),
                assistant_media: true,
                ..rules
            },
        }
    }
}
