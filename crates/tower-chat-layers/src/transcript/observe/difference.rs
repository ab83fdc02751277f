//! What is different in a request that should repeat what is stored.

use std::fmt;

use super::atom::{Atom, Content};

/// Where a request differs from what is stored, and in what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct TranscriptDifference {
    /// The position of the message among the request's own, from 0.
    pub position: usize,
    /// What of it differs.
    pub kind: DifferenceKind,
}

/// What of a message differs from the stored one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum DifferenceKind {
    /// Another role than that of the stored message has its place.
    Role,
    /// The text, or the media beside it.
    Text,
    /// The ids or names of the tool calls, or how many there are.
    Calls,
    /// The call that a result answers.
    Result,
    /// It is a message that is not stored.
    NotStored,
}

impl TranscriptDifference {
    pub(super) fn between(position: usize, sent: &Atom<'_>, stored: Option<&Atom<'_>>) -> Self {
        let kind = match stored {
            None => DifferenceKind::NotStored,
            Some(stored) => match (&stored.content, &sent.content) {
                (Content::Answer(_), Content::Answer(_)) if stored.has_same_text(sent) => {
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
            Self::Role => "has another role than the stored message in its place",
            Self::Text => "has another text or other media than the stored message",
            Self::Calls => "has other tool calls than the stored message",
            Self::Result => "answers another tool call than the stored result",
            Self::NotStored => "is not stored where the request repeats the conversation",
        })
    }
}
