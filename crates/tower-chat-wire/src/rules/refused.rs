//! Replaces refused content with sentences. A refusal mark identifies content of a message that a
//! service has refused.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use std::{collections::HashMap, sync::Arc};

use tower_chat_core::{
    ChatRequest, ContentKind, Message, MessageId, Part, RefusalMark, RefusalMarks, Role, Text,
    ToolResult,
};

use super::{media, service_rules::ServiceRules};

/// For each message id: the kinds of content of this message that the service has refused.
#[derive(Debug, Default)]
pub(super) struct Refused(HashMap<MessageId, Vec<ContentKind>>);

/// A message in which sentences have replaced the refused content.
pub(super) struct Replaced {
    pub(super) message: Arc<Message>,
    /// A description of each replacement.
    pub(super) descriptions: Vec<String>,
}

impl Refused {
    /// Collects the content that this service has refused, from the [`RefusalMarks`] of a request.
    pub(super) fn of_request(request: &ChatRequest, rules: &ServiceRules) -> Self {
        let mut refused = Self::default();
        if let Some(marks) = request.extensions.get::<RefusalMarks>() {
            marks.of_issuer(&rules.issuer).for_each(|mark| refused.add(mark));
        }
        refused
    }

    fn add(&mut self, mark: &RefusalMark) {
        self.0.entry(mark.message).or_default().push(mark.content);
    }

    /// Returns the message with sentences instead of the refused content. Returns `None` if nothing
    /// was replaced.
    pub(super) fn replace(&self, message: &Message) -> Option<Replaced> {
        let kinds = self.0.get(&message.id?)?;
        let mut replacer = Replacer { kinds, descriptions: Vec::new() };
        let parts =
            message.parts.iter().map(|part| replacer.replace_in_part(message.role, part)).collect();
        let descriptions = replacer.descriptions;
        (!descriptions.is_empty())
            .then(|| Replaced { message: Arc::new(message.with_parts(parts)), descriptions })
    }
}

struct Replacer<'r> {
    kinds: &'r [ContentKind],
    descriptions: Vec<String>,
}

impl Replacer<'_> {
    fn replace_in_part(&mut self, role: Role, part: &Part) -> Part {
        if let Part::ToolResult(result) = part {
            return Part::ToolResult(self.replace_in_result(result));
        }
        let kind = ContentKind::of_part(role, part).filter(|kind| self.kinds.contains(kind));
        let Some(kind) = kind else { return part.clone() };
        let sentence = match part {
            Part::Media(media) => media::refused_sentence(media),
            Part::Text(Text { text, .. }) => media::refused_text_sentence(text),
            part => return part.clone(),
        };
        self.descriptions.push(format!(
            "{} {} that the service has refused is replaced by a sentence",
            article(kind),
            kind.name()
        ));
        Part::text(sentence)
    }

    /// Returns the result with sentences instead of the refused content. If content was replaced,
    /// also removes the native item, which may contain the same content.
    fn replace_in_result(&mut self, result: &ToolResult) -> ToolResult {
        let before = self.descriptions.len();
        let content =
            result.content.iter().map(|part| self.replace_in_part(Role::Tool, part)).collect();
        let mut sent = result.clone();
        sent.content = content;
        if self.descriptions.len() > before {
            sent.native = None;
        }
        sent
    }
}

fn article(kind: ContentKind) -> &'static str {
    match kind {
        ContentKind::Image => "an",
        _ => "a",
    }
}
