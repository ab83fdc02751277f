//! What a conversation's history looked like at one moment.

use crate::RunId;

/// A conversation's version: compared for equality before every write.
///
/// `incarnation` tells a conversation from another of the same key that was deleted before it;
/// `sequence` is the number of its last message. Neither is a clock.
///
/// ```
/// use tower_chat_core::{RunId, store::Revision};
///
/// let run = RunId::new();
/// let first = Revision::ABSENT.after(run, 2);
/// assert_eq!((first.sequence, first.after(run, 2).sequence), (2, 4));
/// assert_eq!(first.incarnation, first.after(run, 2).incarnation);
/// // Another conversation under the same key is another incarnation.
/// assert_ne!(first, Revision::ABSENT.after(RunId::new(), 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision {
    /// Random, chosen when the conversation is first written, and again when something was taken out
    /// of it, and when somebody begins to write a journaled run; 0 while there is none.
    pub incarnation: u64,
    /// The number of the last message; they are numbered from 1.
    pub sequence: u64,
}

impl Revision {
    /// The revision of a conversation that does not exist.
    pub const ABSENT: Self = Self { incarnation: 0, sequence: 0 };

    /// The revision after `messages` more were appended by a run. The run that creates a
    /// conversation names its incarnation. A sequence stops at the largest number, which no store
    /// takes.
    #[must_use]
    pub fn after(self, run: RunId, messages: usize) -> Self {
        let incarnation = match self.incarnation {
            0 => run.random_half().max(1),
            incarnation => incarnation,
        };
        Self { incarnation, sequence: self.sequence.saturating_add(messages as u64) }
    }

    /// The revision once a run has ended that leaves `visible` messages. The
    /// incarnation is another one, so that what still expects messages that were discarded, or the
    /// revision before them, is refused.
    #[must_use]
    pub fn back_to(self, visible: u64, run: RunId) -> Self {
        Self { incarnation: self.other_incarnation(run.random_half()), sequence: visible }
    }

    /// The revision once a holder has begun an attempt at a journaled run. The incarnation is
    /// another one for every holder, so that what an earlier attempt still sends, or somebody who
    /// begins at the same time, expects a revision that never was.
    #[must_use]
    pub fn taken_by(self, holder: u64) -> Self {
        Self { incarnation: self.other_incarnation(holder), ..self }
    }

    /// The revision once messages were taken from the beginning: a new incarnation with the same
    /// last message.
    #[must_use]
    pub fn pruned(self) -> Self {
        Self { incarnation: self.other_incarnation(RunId::new().random_half()), ..self }
    }

    /// The revision once messages were rewritten in place: likewise.
    #[must_use]
    pub fn rewritten(self) -> Self {
        self.pruned()
    }

    fn other_incarnation(self, random: u64) -> u64 {
        let incarnation = self.incarnation.rotate_left(1) ^ random;
        let is_other = incarnation != 0 && incarnation != self.incarnation;
        if is_other { incarnation } else { !self.incarnation | 1 }
    }
}

#[cfg(test)]
mod tests {
    use super::Revision;

    #[test]
    fn every_holder_has_an_incarnation_of_its_own() {
        let revision = Revision { incarnation: 0b0110, sequence: 3 };
        // Of each bit of the holder another incarnation comes, whatever the one before it was.
        let mut incarnations: Vec<_> = (0..64)
            .map(|bit| revision.taken_by(1 << bit))
            .inspect(|taken| assert_eq!(taken.sequence, 3))
            .map(|taken| taken.incarnation)
            .collect();
        incarnations.push(revision.incarnation);
        incarnations.sort_unstable();
        incarnations.dedup();
        assert_eq!(incarnations.len(), 65);
        assert!(!incarnations.contains(&0));
    }
}
