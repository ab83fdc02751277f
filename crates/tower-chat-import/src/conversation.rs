//! A conversation of another system, converted to messages of this crate.

use std::{fmt, time::SystemTime};

use tower_chat_core::{Message, Messages};
use tower_chat_repair::{Mismatch, mismatches};

/// A conversation that was read. [`store`](crate::store) stores it.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImportedConversation {
    /// The id in the other system, or the name of the file without its extension if it has no id.
    pub id: String,
    /// The title, if the other system has one.
    pub title: Option<String>,
    /// The time at which the conversation began, if the other system records it.
    pub created_at: Option<SystemTime>,
    /// The messages, oldest first, with [their times](Message::added_at) if they are known.
    pub messages: Vec<Message>,
    /// The content that cannot be stored, and the content that is not sent to models.
    pub losses: Vec<Loss>,
}

impl ImportedConversation {
    pub(crate) fn new(id: impl Into<String>) -> Self {
        Self {
            id: id.into(),
            title: None,
            created_at: None,
            messages: Vec::new(),
            losses: Vec::new(),
        }
    }

    /// Records that a content is not stored.
    pub(crate) fn lose(
        &mut self,
        position: impl fmt::Display,
        what: impl Into<String>,
        reason: impl Into<String>,
    ) {
        self.losses.push(Loss {
            position: position.to_string(),
            what: what.into(),
            reason: reason.into(),
            effect: Effect::NotStored,
        });
    }

    /// Adds losses for the calls without a result, which are sent to models as interrupted, and for
    /// the results without a call, which replay omits.
    pub(crate) fn checked(mut self) -> Self {
        let messages: Messages = self.messages.iter().cloned().collect();
        for mismatch in mismatches(&messages, 1) {
            let (effect, reason) = match mismatch {
                Mismatch::DanglingCall { .. } => {
                    (Effect::SentAsInterrupted, "it is unknown whether the tool has run")
                }
                _ => (Effect::NotSent, "no model accepts a result without its call"),
            };
            self.losses.push(Loss {
                position: format!("stored message {}", mismatch.sequence()),
                what: mismatch.to_string(),
                reason: reason.to_owned(),
                effect,
            });
        }
        self
    }

    /// Returns whether all content of the other system is stored.
    pub fn is_whole(&self) -> bool {
        self.losses.iter().all(|loss| loss.effect != Effect::NotStored)
    }
}

/// Content of a conversation that is not stored, or that is not sent to models as it is stored.
///
/// The `Display` text is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The position in the file, such as `message 3`, or in the stored messages.
    pub position: String,
    /// A description of the content.
    pub what: String,
    /// The reason.
    pub reason: String,
    /// The effect on the content.
    pub effect: Effect,
}

/// The effect of an import on a content that it reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// The content is not stored.
    NotStored,
    /// The content is stored, and replay does not send it to models.
    NotSent,
    /// The content is a call that is stored without a result. Models are sent the call with a
    /// result that reports an interruption.
    SentAsInterrupted,
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, what, reason, effect } = self;
        match effect {
            Effect::NotStored => write!(f, "{position}: {what} is not stored: {reason}"),
            Effect::NotSent => {
                write!(f, "{position}: {what}; it is stored and not sent to models: {reason}")
            }
            Effect::SentAsInterrupted => {
                write!(
                    f,
                    "{position}: {what}; it is stored, and sent to models as interrupted: {reason}"
                )
            }
        }
    }
}
