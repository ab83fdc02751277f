//! [`ImportedConversation`]: a conversation of another system, converted to messages of tower-chat.
//!
//! A *replay* converts stored messages to the messages of a request to a model.

use std::{fmt, time::SystemTime};

use tower_chat_core::{Message, Messages};
use tower_chat_repair::{Mismatch, mismatches};

/// A conversation that was read from a file of another system. [`store`](crate::store) writes the
/// conversation to a history store.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImportedConversation {
    /// The id in the other system. If the file contains no id, the name of the file without its
    /// extension.
    pub id: String,
    /// The title in the other system, if any.
    pub title: Option<String>,
    /// The time at which the conversation began, if the file contains this time.
    pub created_at: Option<SystemTime>,
    /// The messages, oldest first. [`Message::added_at`] is set if the file contains the time of
    /// the message.
    pub messages: Vec<Message>,
    /// The content that cannot be stored, and the content that will be stored but not sent to
    /// models.
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

    /// Adds a loss for content that is not stored.
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

    /// Adds a loss for each call without a result, for which models receive a report of an
    /// interruption, and for each result without a call, which replay omits.
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

    /// Returns whether storing the conversation stores all content of the file.
    pub fn is_whole(&self) -> bool {
        self.losses.iter().all(|loss| loss.effect != Effect::NotStored)
    }
}

/// Content of a conversation that is not stored, or that models do not receive in its stored form.
///
/// The `Display` implementation formats the loss as a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// The position of the content in the file, such as `message 3`, or in the stored messages,
    /// such as `stored message 2`.
    pub position: String,
    /// A description of the content.
    pub what: String,
    /// The reason for the loss.
    pub reason: String,
    /// The consequence for the content.
    pub effect: Effect,
}

/// What happens to the content that a [`Loss`] reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// The content is not stored.
    NotStored,
    /// The content is stored, but a replay does not send the content to models.
    NotSent,
    /// The content is a call without a result. The call is stored, and models receive it with a
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
