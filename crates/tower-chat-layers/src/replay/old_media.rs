//! Step 7 of the [replay](super): replaces old pictures and documents by sentences.

use std::{borrow::Cow, sync::Arc};

use serde::Deserialize;
use tower_chat_core::{Media, MediaSource, Message, Messages, Part, Role, RunId};

use super::{
    Turns,
    output::{MessageRef, after_step, changed},
};

/// The policy that decides which pictures, documents and other media of the stored messages are
/// sent again. Each of the other media is replaced by a sentence that contains its type, and its
/// size if the size is known. The stored messages do not change.
///
/// The policy applies to media in messages of the user and in results of tools, and only to media of
/// earlier runs. Media in answers of the model, and media of the run that sends the request, are
/// always sent, also if they are already stored when the run is sent again. When a medium is replaced for the
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
    /// Sends this number of media: the newest ones of earlier runs.
    pub fn keep_last(media: usize) -> Self {
        Self(MediaLimit::Last(media))
    }

    /// Sends the media of this number of turns, the newest ones of earlier runs. A turn is the
    /// messages of one run.
    pub fn keep_turns(turns: usize) -> Self {
        Self(MediaLimit::Turns(turns))
    }

    /// Returns the messages with each old medium replaced by a sentence. Unchanged messages are
    /// shared with the input.
    pub fn apply(&self, messages: &Messages) -> Messages {
        self.apply_before(messages, &NewMedia::default())
    }

    /// Like [`apply`](Self::apply), but `new` also counts.
    pub(super) fn apply_before(&self, messages: &Messages, new: &NewMedia) -> Messages {
        let all = count_in(messages.iter());
        let earlier = all.saturating_sub(new.of_run_before_open());
        let mut old = match self.0 {
            MediaLimit::Last(kept) => {
                earlier.saturating_sub(kept.saturating_sub(new.earlier_open()))
            }
            MediaLimit::Turns(kept) => match kept.checked_sub(new.open_turns.len()) {
                Some(kept) => {
                    let begins = new.turns_of_earlier_runs(messages.iter());
                    count_in(messages.iter().take(first_kept(&begins, kept)))
                }
                None => earlier,
            },
        };
        old = old.min(earlier);
        after_step(messages, |message| Some(without_old(message, &mut old)))
    }

    /// Replaces old media in the open round. `messages` are the messages of the round that are not
    /// answers of the model.
    pub(super) fn apply_to_open<'m>(
        &self,
        messages: impl Iterator<Item = &'m mut Arc<Message>>,
        new: &NewMedia,
    ) {
        let mut old = match self.0 {
            MediaLimit::Last(kept) => new.earlier_open().saturating_sub(kept),
            MediaLimit::Turns(kept) => {
                count_in(new.open.iter().take(first_kept(&new.open_turns, kept)))
            }
        };
        old = old.min(new.earlier_open());
        for message in messages {
            if let Cow::Owned(replaced) = without_old(message, &mut old) {
                *message = replaced;
            }
        }
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

/// The part of a replay that the policy treats differently: the messages of the run that sends the
/// request, whose media are not replaced or counted, and the open round, which follows the messages
/// of [`OldMedia::apply_before`].
#[derive(Debug, Clone, Default)]
pub(crate) struct NewMedia {
    run: Option<RunId>,
    /// The number of media in the stored messages of the run.
    of_run: usize,
    /// The messages of the open round.
    open: Messages,
    /// The positions in the open round at which turns of earlier runs begin.
    open_turns: Vec<usize>,
}

impl NewMedia {
    /// Counts the media of a run at the end of its history.
    pub(crate) fn of(history: &Messages, run: RunId) -> Self {
        let is_of_run = |message: &&Arc<Message>| message.id.is_some_and(|id| id.run == run);
        let of_run = count_in(history.iter().rev().take_while(is_of_run));
        Self { run: Some(run), of_run, ..Self::default() }
    }

    /// Adds the messages of the open round, which follow the messages `closed`.
    pub(super) fn with_open(mut self, closed: &Messages, open: Messages) -> Self {
        if !open.is_empty() {
            let begins = self.turns_of_earlier_runs(closed.iter().chain(open.iter()));
            let in_open = begins.iter().filter_map(|begin| begin.checked_sub(closed.len()));
            self.open_turns = in_open.collect();
            self.open = open;
        }
        self
    }

    /// Returns the number of media in the messages of the run before the open round.
    fn of_run_before_open(&self) -> usize {
        self.of_run.saturating_sub(count_in(self.open.iter()))
    }

    /// Returns the number of media of earlier runs in the open round.
    fn earlier_open(&self) -> usize {
        count_in(self.open.iter()).saturating_sub(self.of_run)
    }

    fn turns_of_earlier_runs<'m>(
        &self,
        messages: impl Iterator<Item = &'m Arc<Message>>,
    ) -> Vec<usize> {
        let mut turns = Turns::default();
        let is_earlier = |message: &&Arc<Message>| match (message.id, self.run) {
            (Some(id), Some(run)) => id.run != run,
            (None, _) | (_, None) => true,
        };
        let earlier = messages.take_while(is_earlier).enumerate();
        let begins = earlier.filter(|(_, message)| turns.begins_with(message));
        begins.map(|(position, _)| position).collect()
    }
}

fn count_in<'m>(messages: impl Iterator<Item = &'m Arc<Message>>) -> usize {
    messages.map(|message| count(message)).sum()
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
