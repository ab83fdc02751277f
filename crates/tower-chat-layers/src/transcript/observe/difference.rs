//! The difference between a request and the stored messages that it repeats.

use std::fmt;

use super::atom::{Atom, Content, is_same_text, texts_of};

/// The position and kind of the difference between a request and the stored messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranscriptDifference {
    /// The position of the message among the request's own messages, from 0.
    pub position: usize,
    /// The kind of the difference.
    pub kind: DifferenceKind,
}

/// The part of a message that differs from the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// The role differs from the role of the stored message at this position.
    Role,
    /// The text or the media differ.
    Text,
    /// The ids, the names or the number of the tool calls differ.
    Calls,
    /// The result answers a different call.
    Result,
    /// The message is not stored.
    NotStored,
}

impl TranscriptDifference {
    pub(super) fn between(position: usize, sent: &Atom<'_>, stored: Option<&Atom<'_>>) -> Self {
        let kind = match stored {
            None => DifferenceKind::NotStored,
            Some(stored) => match (&stored.content, &sent.content) {
                (Content::Answer(stored), Content::Answer(sent))
                    if is_same_text(texts_of(stored), texts_of(sent)) =>
                {
                    DifferenceKind::Calls
                }
                (Content::Answer(_), Content::Answer(_))
                | (Content::User { .. }, Content::User { .. })
                | (Content::System(_), Content::System(_))
                | (Content::Approvals(_), Content::Approvals(_)) => DifferenceKind::Text,
                (Content::Result(_), Content::Result(_)) => DifferenceKind::Result,
                _ => DifferenceKind::Role,
            },
        };
        Self { position, kind }
    }
}

impl fmt::Display for TranscriptDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, kind } = self;
        write!(f, "message {position} of the request {kind}")
    }
}

impl fmt::Display for DifferenceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Role => "has another role than the stored message at its position",
            Self::Text => "has another text or other media than the stored message",
            Self::Calls => "has other tool calls than the stored message",
            Self::Result => "answers another tool call than the stored result",
            Self::NotStored => "is not stored",
        })
    }
}
