//! Step 7 of the [replay](super): replaces old pictures and documents by sentences.

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;
use tower_chat_core::{Media, MediaSource, Message, Messages, Part, Role, RunId};

use super::{
    Turns,
    output::{after_step, changed},
};

/// The policy that decides which pictures, documents and other media of the stored messages are
/// sent again. Each of the other media is replaced by a sentence that contains its type, and its
/// size if the size is known. The stored messages do not change.
///
/// The policy replaces media in messages of the user and in results of tools, if an earlier run has
/// added them. Media in answers of the model are always sent. Media of the run that sends the
/// request are always sent, even if an earlier attempt has stored them. When a medium is replaced
/// for the first time, its message differs from the same message in the previous request. The prompt
/// cache of the provider is then valid only for the messages before this message.
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
    /// Sends this number of media: the newest ones of earlier runs.
    pub fn keep_last(media: usize) -> Self {
        Self(MediaLimit::Last(media))
    }

    /// Sends the media of this number of turns, the newest ones of earlier runs. A turn is the
    /// messages of one run.
    pub fn keep_turns(turns: usize) -> Self {
        Self(MediaLimit::Turns(turns))
    }

    /// Returns the messages with each old medium replaced by a sentence. All messages count as
    /// messages of earlier runs. Unchanged messages are shared with the input.
    pub fn apply(&self, messages: &Messages) -> Messages {
        self.apply_before(messages, &mut [], None)
    }

    /// Like [`apply`](Self::apply), but also replaces old media in `open`, the messages that follow
    /// `messages`. Media of `run`, which sends the request, are not counted and not replaced.
    ///
    /// A message without an id belongs to the run of the message before it: a piece of a split
    /// message follows the first piece, and a result from the record follows the answer with its
    /// call. A message with results that a later run has added has an id of that later run.
    pub(super) fn apply_before(
        &self,
        messages: &Messages,
        open: &mut [&mut Arc<Message>],
        run: Option<RunId>,
    ) -> Messages {
        let (mut counts, mut begins) = (Vec::new(), Vec::new());
        let (mut turns, mut of_message) = (Turns::default(), None);
        for message in messages.iter().chain(open.iter().map(|message| &**message)) {
            of_message = message.id.map(|id| id.run).or(of_message);
            let is_earlier = run.is_none() || of_message != run;
            if is_earlier && turns.begins_with(message) {
                begins.push(counts.len());
            }
            counts.push(if is_earlier { count(message) } else { 0 });
        }
        let mut old = match self.0 {
            MediaLimit::Last(kept) => counts.iter().sum::<usize>().saturating_sub(kept),
            MediaLimit::Turns(kept) => counts.iter().take(first_kept(&begins, kept)).sum(),
        };
        let mut counts = counts.into_iter();
        let mut replaced = |message: &Message| match counts.next() {
            Some(1..) if old > 0 => Some(without_old(message, &mut old)),
            _ => None,
        };
        let edited = after_step(messages, |message| {
            Some(replaced(message).map_or(Cow::Borrowed(message), changed))
        });
        for message in open {
            if let Some(replaced) = replaced(message) {
                **message = Arc::new(replaced);
            }
        }
        edited
    }
}

/// Returns the position at which the last `kept` turns begin. `begins` are the positions at which
/// turns begin.
fn first_kept(begins: &[usize], kept: usize) -> usize {
    match begins.len().checked_sub(kept) {
        Some(old) => begins.get(old).copied().unwrap_or(usize::MAX),
        None => 0,
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
fn without_old(message: &Message, old: &mut usize) -> Message {
    let mut message = message.clone();
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
    message
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
