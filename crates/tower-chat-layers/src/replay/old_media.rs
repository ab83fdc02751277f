//! Step 7 of the [replay](super): replaces old pictures and documents by sentences.

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;
use tower_chat_core::{Media, MediaSource, Message, Messages, Part, Role};

use super::{
    Turns,
    output::{MessageRef, after_step, changed},
};

/// The policy that decides which pictures, documents and other media of the stored messages are
/// sent again. Each of the other media is replaced by a sentence that contains its type, and its
/// size if the size is known. The stored messages do not change.
///
/// The policy applies to media in messages of the user and in results of tools. Media in answers of
/// the model, and media that are not stored yet, are always sent. When a medium is replaced for the
/// first time, its message differs from the same message in the previous request. The prompt cache
/// of the provider is then valid only for the messages before this message.
///
/// ```
/// use tower_chat::replay::{OldMedia, ReplayPolicy};
/// let policy = ReplayPolicy::default().with_old_media(OldMedia::keep_last(3));
/// assert!(!policy.is_off());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
pub struct OldMedia(MediaLimit);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum MediaLimit {
    Last(usize),
    Turns(usize),
}

impl OldMedia {
    /// Sends this number of media: the newest ones of the stored messages.
    pub fn keep_last(media: usize) -> Self {
        Self(MediaLimit::Last(media))
    }

    /// Sends the media of this number of turns, the newest stored ones. A turn is the messages of
    /// one run.
    pub fn keep_turns(turns: usize) -> Self {
        Self(MediaLimit::Turns(turns))
    }

    /// Returns the messages with each old medium replaced by a sentence. Unchanged messages are
    /// shared with the input.
    pub fn apply(&self, messages: &Messages) -> Messages {
        let mut old = match self.0 {
            MediaLimit::Last(kept) => {
                let all: usize = messages.iter().map(|message| count(message)).sum();
                all.saturating_sub(kept)
            }
            MediaLimit::Turns(kept) => {
                let mut turns = Turns::default();
                let begins = messages.iter().enumerate();
                let begins = begins.filter(|(_, message)| turns.begins_with(message));
                let begins: Vec<usize> = begins.map(|(position, _)| position).collect();
                let first = match begins.len().checked_sub(kept) {
                    Some(old) => begins.get(old).copied().unwrap_or(messages.len()),
                    None => 0,
                };
                messages.iter().take(first).map(|message| count(message)).sum()
            }
        };
        after_step(messages, |message| Some(without_old(message, &mut old)))
    }
}

/// Returns the number of media in a message, or 0 for an answer of the model.
fn count(message: &Message) -> usize {
    if message.role == Role::Assistant {
        return 0;
    }
    let of_part = |part: &Part| match part {
        Part::Media(_) => 1,
        Part::ToolResult(result) => {
            result.content.iter().filter(|part| matches!(part, Part::Media(_))).count()
        }
        _ => 0,
    };
    message.parts.iter().map(of_part).sum()
}

/// Replaces the first `old` media of a message, and subtracts their number from `old`.
fn without_old<'a>(message: &'a Arc<Message>, old: &mut usize) -> MessageRef<'a> {
    if *old == 0 || count(message) == 0 {
        return Cow::Borrowed(message);
    }
    let mut message = (**message).clone();
    for part in &mut message.parts {
        match part {
            Part::ToolResult(result) => {
                let before = *old;
                result.content.iter_mut().for_each(|part| replace(part, old));
                if *old < before {
                    // The native item contains the media too.
                    result.native = None;
                }
            }
            part => replace(part, old),
        }
    }
    changed(message)
}

fn replace(part: &mut Part, old: &mut usize) {
    if let Part::Media(media) = part
        && *old > 0
    {
        *old -= 1;
        *part = Part::text(sentence(media));
    }
}

fn sentence(media: &Media) -> String {
    let size = match &media.source {
        MediaSource::Base64(data) => {
            let padding = data.bytes().rev().take_while(|byte| *byte == b'=').count();
            format!(", {} bytes", (data.len() * 3 / 4).saturating_sub(padding))
        }
        _ => String::new(),
    };
    format!("[An earlier attachment ({}{size}) is not sent again.]", media.media_type)
}

#[cfg(test)]
mod tests;
