//! What a conversation's history looked like at one moment.

use crate::RunId;

/// A conversation's version: compared for equality before every write.
///
/// `incarnation` tells a conversation from another of the same key that was deleted before it;
/// `sequence` is the number of its last message. Neither is a clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision {
    /// Random, chosen when the conversation is first written; 0 while there is none.
    pub incarnation: u64,
    /// How many messages were ever appended; messages are numbered from 1.
    pub sequence: u64,
}

impl Revision {
    /// The revision of a conversation that does not exist.
    pub const ABSENT: Self = Self { incarnation: 0, sequence: 0 };

    /// The revision after `messages` more were appended by a run. The run that creates a
    /// conversation names its incarnation.
    #[must_use]
    pub fn after(self, run: RunId, messages: usize) -> Self {
        let incarnation = match self.incarnation {
            0 => run.random_half().max(1),
            incarnation => incarnation,
        };
        Self { incarnation, sequence: self.sequence + messages as u64 }
    }
}
