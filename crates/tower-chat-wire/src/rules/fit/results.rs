//! Changes the results of tools.

use tower_chat_core::{ChangeKind, Media, Message, Part, Role, Text, ToolResult};

use super::{
    FittedParts, Fitter,
    parts::{join_texts, with_native},
};
use crate::rules::{
    media,
    natives::is_foreign,
    service_rules::{Otherwise, ResultRule},
};

impl Fitter<'_> {
    /// Returns the result to send. Adds the media that are sent in a message after the results to
    /// `fitted_parts`.
    pub(super) fn fit_result(
        &mut self,
        message: &Message,
        result: &ToolResult,
        fitted_parts: &mut FittedParts,
    ) -> ToolResult {
        let mut sent = result.clone();
        sent.native = self.own_native(message, result.native.as_ref(), fitted_parts);
        sent.call_id = self.ids.result(result.call_id.as_deref());
        if let Some(name) = result.name.as_deref().and_then(|name| self.sent_name(name)) {
            sent.name = Some(name);
        }
        let is_text_only = result.is_error && self.rules.error_results == ResultRule::TextOnly;
        let mut content = Vec::with_capacity(result.content.len());
        let mut has_moved = false;
        let mut has_changed = false;
        for part in &result.content {
            match part {
                Part::Media(media) => match self.media_target(media, is_text_only) {
                    MediaTarget::InResult(media) => {
                        has_changed |= media.is_some();
                        content.push(media.map_or_else(|| part.clone(), Part::Media));
                    }
                    MediaTarget::AfterResults(media) => {
                        (has_moved, has_changed) = (true, true);
                        let what =
                            format!("{} of a result is sent after the results", media.media_type);
                        self.record_change(message, ChangeKind::Media, what);
                        fitted_parts.moved_media.push(Part::Media(media));
                    }
                    MediaTarget::Sentence => {
                        has_changed = true;
                        content.push(self.sentence_for(message, media));
                    }
                },
                Part::Native(native) => {
                    let is_foreign = is_foreign(Some(native), self.rules);
                    if is_foreign || is_text_only {
                        has_changed = true;
                        self.record_omitted_native(message, native);
                    } else {
                        content.push(part.clone());
                    }
                }
                Part::Text(text) => {
                    let native = self.own_native(message, text.native.as_ref(), fitted_parts);
                    let text = Text::new(&text.text);
                    content.push(Part::Text(with_native(text, native, |text| &mut text.native)));
                }
                part => content.push(part.clone()),
            }
        }
        let is_blank = !content.iter().any(|part| match part {
            Part::Text(text) => !text.text.trim().is_empty(),
            Part::Media(_) | Part::Native(_) => true,
            _ => false,
        });
        if is_blank && (has_moved || is_text_only || has_changed && !result.content.is_empty()) {
            has_changed = true;
            let text = match (has_moved, result.is_error) {
                (true, false) => {
                    "[The attachments of this result are in the message after the results.]"
                }
                (true, true) => {
                    "[The tool failed. Its output is in the message after the results.]"
                }
                (false, true) => "The tool failed.",
                (false, false) => "[The content of this result cannot be shown to this model.]",
            };
            content.retain(|part| part.as_text().is_none());
            content.push(Part::text(text));
            self.record_change(
                message,
                ChangeKind::Result,
                "a text that describes the content is added to a result",
            );
        }
        if !self.rules.content_lists.allows(Role::Tool)
            && join_texts(&mut content, Role::Tool, self.rules)
        {
            has_changed = true;
            self.record_change(
                message,
                ChangeKind::Result,
                "the texts of a result are joined to one text",
            );
        }
        sent.content = content;
        fitted_parts.has_changed |=
            has_changed || sent.call_id != result.call_id || sent.name != result.name;
        sent
    }

    /// Decides where media of a result are sent.
    fn media_target(&mut self, media: &Media, is_text_only: bool) -> MediaTarget {
        let rules = self.rules;
        let native = media.native.clone().filter(|native| !is_foreign(Some(native), rules));
        let plain = media::normalized(media).or_else(|| {
            (native.is_none() && media.native.is_some())
                .then(|| Media::new(&*media.media_type, media.source.clone()))
        });
        let found = plain.as_ref().unwrap_or(media);
        if !is_text_only && media::is_accepted(found, &rules.tool_media, rules) {
            return match self.media_count.admit(found, &rules.tool_media) {
                true => MediaTarget::InResult(plain),
                false => MediaTarget::Sentence,
            };
        }
        let may_move = is_text_only || rules.tool_media.otherwise == Otherwise::AfterResults;
        let can_move = may_move && media::is_accepted_from(Role::User, found, rules);
        if can_move && self.media_count.admit(found, &rules.user_media) {
            MediaTarget::AfterResults(Media::new(&*found.media_type, found.source.clone()))
        } else {
            MediaTarget::Sentence
        }
    }
}

/// Where media of a result are sent.
#[derive(Debug)]
enum MediaTarget {
    /// In the result. The field contains the media in another form, or `None` if they are sent
    /// unchanged.
    InResult(Option<Media>),
    /// In a user message after the results.
    AfterResults(Media),
    /// The media are not sent: a sentence in the result replaces them.
    Sentence,
}
