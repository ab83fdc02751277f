//! A conversation as another system has stored it, in our messages.

use std::{fmt, time::SystemTime};

use tower_chat_core::{Message, Messages};
use tower_chat_layers::replay::repair::{Mismatch, mismatches};

/// A conversation that was read, to be stored with [`store`](crate::store).
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct ImportedConversation {
    /// Its id in the other system; of a file that has none, the name of the file without its extension.
    pub id: String,
    /// Its title, where the other system has one.
    pub title: Option<String>,
    /// When it was begun, where the other system says so.
    pub created_at: Option<SystemTime>,
    /// Its messages, oldest first, with [their times](Message::added_at) where those are known.
    pub messages: Vec<Message>,
    /// What could not be kept, and what models will not be sent.
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

    /// Says that something is not stored.
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

    /// Also says which calls models will be told of as interrupted, and which results a replay will leave out.
    pub(crate) fn checked(mut self) -> Self {
        let messages: Messages = self.messages.iter().cloned().collect();
        for mismatch in mismatches(&messages, 1) {
            let (effect, reason) = match mismatch {
                Mismatch::DanglingCall { .. } => {
                    (Effect::SentAsInterrupted, "nobody knows whether the tool has run")
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

    /// Whether everything that the other system had will be stored.
    pub fn is_whole(&self) -> bool {
        self.losses.iter().all(|loss| loss.effect != Effect::NotStored)
    }
}

/// Something of a conversation that does not reach the store, or that models are not sent as it is stored.
///
/// As a text it is a sentence for people.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Loss {
    /// Where it is: in the file, such as `message 3`, or in what is stored.
    pub position: String,
    /// What it is.
    pub what: String,
    /// Why.
    pub reason: String,
    /// What becomes of it.
    pub effect: Effect,
}

/// What becomes of something that an import reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Effect {
    /// It is not stored.
    NotStored,
    /// It is stored, and replay leaves it out of what models are sent.
    NotSent,
    /// It is a call that is stored without a result; models are sent the call, with a result that says that it
    /// was interrupted.
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
