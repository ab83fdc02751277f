//! Changes the parts of a message.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A provider-executed call is a call of a tool that the provider runs itself.

use std::collections::HashSet;

use tower_chat_core::{ChangeKind, Media, Message, Native, Part, Reasoning, Role, Text};

use super::{FittedParts, Fitter};
use crate::rules::{
    hosted, media,
    natives::{
        has_id_of_other_service, is_foreign, is_in_refused_field, is_result_of_other_service,
        wire_name,
    },
    service_rules::{ReasoningRule, ServiceRules},
};

impl Fitter<'_> {
    /// Changes one part of a message so that it complies with the rules, and adds it to the fitted
    /// parts. Omits the part if the service accepts it in no form. `provider_call_ids` contains the
    /// ids of the message's provider-executed calls.
    pub(super) fn fit_part(
        &mut self,
        message: &Message,
        part: &Part,
        fitted_parts: &mut FittedParts,
        provider_call_ids: &HashSet<Option<&str>>,
    ) {
        if self.is_unanswered(part) {
            fitted_parts.has_changed = true;
            let what =
                "a call of a tool that the service runs is omitted, because the call has no result";
            return self.record_change(message, ChangeKind::Native, what);
        }
        match part {
            Part::Text(text) => {
                let mut native = self.own_native(message, text.native.as_ref(), fitted_parts);
                // The native item may contain a citation of a result that was omitted.
                if !fitted_parts.omitted_calls.is_empty() && native.take().is_some() {
                    fitted_parts.has_changed = true;
                }
                let text = Text::new(&text.text);
                fitted_parts
                    .parts
                    .push(Part::Text(with_native(text, native, |text| &mut text.native)));
            }
            Part::Reasoning(reasoning) => {
                if self.omits_reasoning(message, reasoning) {
                    fitted_parts.has_changed = true;
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            Part::ToolCall(call) if call.provider_executed => {
                if is_foreign(call.native.as_ref(), self.rules)
                    || has_id_of_other_service(call, self.rules)
                {
                    fitted_parts.omitted_calls.insert(call.id.clone());
                    fitted_parts.has_changed = true;
                    let what =
                        format!("a call of {:?} that another service ran is omitted", call.name);
                    self.record_change(message, ChangeKind::Native, what);
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            Part::ToolCall(call) => {
                let call = self.fit_call(message, call, fitted_parts);
                fitted_parts.has_call = true;
                fitted_parts.parts.push(Part::ToolCall(call));
            }
            Part::ToolResult(result) if provider_call_ids.contains(&result.call_id.as_deref()) => {
                if fitted_parts.omitted_calls.contains(&result.call_id)
                    || is_foreign(result.native.as_ref(), self.rules)
                {
                    fitted_parts.has_changed = true;
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            Part::ToolResult(result) => {
                self.has_results = true;
                let result = self.fit_result(message, result, fitted_parts);
                fitted_parts.parts.push(Part::ToolResult(result));
            }
            Part::Media(media) => {
                let part = self.fit_media(message, media, fitted_parts);
                fitted_parts.parts.push(part);
            }
            Part::Native(native) => {
                if is_foreign(Some(native), self.rules)
                    || is_result_of_other_service(native, self.rules)
                {
                    fitted_parts.has_changed = true;
                    self.record_omitted_native(message, native);
                } else {
                    fitted_parts.parts.push(part.clone());
                }
            }
            part => fitted_parts.parts.push(part.clone()),
        }
    }

    fn is_unanswered(&self, part: &Part) -> bool {
        !self.unanswered_calls.is_empty()
            && hosted::provider_call_id(part, self.rules.wire)
                .is_some_and(|id| self.unanswered_calls.contains(&id))
    }

    /// Returns the native item of a part, unless another service has issued it.
    pub(super) fn own_native(
        &mut self,
        message: &Message,
        native: Option<&Native>,
        fitted_parts: &mut FittedParts,
    ) -> Option<Native> {
        if !is_foreign(native, self.rules) {
            return native.cloned();
        }
        fitted_parts.has_changed = true;
        if let Some(native) = native {
            self.record_omitted_native(message, native);
        }
        None
    }

    pub(super) fn record_omitted_native(&mut self, message: &Message, native: &Native) {
        let issuer = native.issuer.as_deref().unwrap_or("another service");
        self.record_change(message, ChangeKind::Native, format!("an item of {issuer} is left out"));
    }

    fn omits_reasoning(&mut self, message: &Message, reasoning: &Reasoning) -> bool {
        let is_foreign = is_foreign(reasoning.native.as_ref(), self.rules);
        let is_refused = self.rules.own_reasoning == ReasoningRule::LeftOut
            || is_in_refused_field(reasoning, self.rules);
        if is_foreign || is_refused {
            let issuer = reasoning.native.as_ref().and_then(|native| native.issuer.as_deref());
            let what = format!("reasoning of {} is left out", issuer.unwrap_or("another service"));
            self.record_change(message, ChangeKind::Native, what);
        }
        is_foreign || is_refused
    }

    /// Returns the part to send for media outside of results: the media, or a sentence.
    fn fit_media(
        &mut self,
        message: &Message,
        media: &Media,
        fitted_parts: &mut FittedParts,
    ) -> Part {
        let native = self.own_native(message, media.native.as_ref(), fitted_parts);
        let mut sent = media.clone();
        sent.native = native;
        if let Some(normal) = media::normalized(&sent) {
            fitted_parts.has_changed = true;
            sent = normal;
        }
        let is_accepted = media::is_accepted_from(message.role, &sent, self.rules);
        if is_accepted && self.media_count.admit(&sent, &self.rules.user_media) {
            return Part::Media(sent);
        }
        fitted_parts.has_changed = true;
        self.sentence_for(message, media)
    }

    pub(super) fn sentence_for(&mut self, message: &Message, media: &Media) -> Part {
        let what = format!("a sentence replaces media of the type {}", media.media_type);
        self.record_change(message, ChangeKind::Media, what);
        Part::text(media::unsupported_sentence(media))
    }
}

pub(super) fn with_native<P>(
    mut part: P,
    native: Option<Native>,
    field: impl FnOnce(&mut P) -> &mut Option<Native>,
) -> P {
    *field(&mut part) = native;
    part
}

/// Adds a text to a message that contains a document and no text, because the service requires one.
pub(super) fn add_text_to_document(fitted_parts: &mut FittedParts) {
    let is_document = |part: &Part| matches!(part, Part::Media(media) if !media::is_image(media));
    let has_text = fitted_parts
        .parts
        .iter()
        .any(|part| part.as_text().is_some_and(|text| !text.trim().is_empty()));
    if !has_text && fitted_parts.parts.iter().any(is_document) {
        fitted_parts.has_changed = true;
        fitted_parts.parts.push(Part::text("The attached document:"));
    }
}

/// Joins all texts among the parts into one text, at the position of the first text, so that the
/// content of the message is not sent as a list. The joined text has no native item, because a text
/// with a native item is sent as a list too. Returns whether the parts were changed.
///
/// The texts of an answer are joined without a separator, because citations can divide one sentence
/// into several texts. The texts of other messages are joined with a line break.
pub(super) fn join_texts(parts: &mut Vec<Part>, role: Role, rules: &ServiceRules) -> bool {
    let is_of_wire = |text: &Text| {
        text.native.as_ref().is_some_and(|native| &*native.wire == wire_name(rules.wire))
    };
    let texts: Vec<&Text> = parts
        .iter()
        .filter_map(|part| match part {
            Part::Text(text) => Some(text),
            _ => None,
        })
        .collect();
    if texts.len() < 2 && !texts.iter().any(|text| is_of_wire(text)) {
        return false;
    }
    let separator = if role == Role::Assistant { "" } else { "\n" };
    let filled = texts.iter().map(|text| &*text.text).filter(|text| !text.is_empty());
    let mut joined = Some(Part::text(filled.collect::<Vec<_>>().join(separator)));
    let with_joined = |part: Part| match part {
        Part::Text(_) => joined.take(),
        part => Some(part),
    };
    *parts = std::mem::take(parts).into_iter().filter_map(with_joined).collect();
    true
}
