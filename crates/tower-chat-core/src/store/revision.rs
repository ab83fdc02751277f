//! The revision of a conversation, which identifies its state at one moment.

use crate::RunId;

/// The version of a conversation. Before every write, the store compares this version with the one
/// that the write expects.
///
/// `incarnation` distinguishes a conversation from a deleted one with the same key. `sequence` is
/// the sequence number of the conversation's last message. Neither number depends on a clock.
///
/// ```
/// use tower_chat_core::{RunId, store::Revision};
///
/// let run = RunId::new();
/// let first = Revision::ABSENT.after(run, 2);
/// assert_eq!((first.sequence, first.after(run, 2).sequence), (2, 4));
/// assert_eq!(first.incarnation, first.after(run, 2).incarnation);
/// // Another conversation with the same key has another incarnation.
/// assert_ne!(first, Revision::ABSENT.after(RunId::new(), 2));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision {
    /// A random number; 0 if there is no conversation. A new number is chosen when
    ///
    /// - the conversation is created;
    /// - messages of the conversation are deleted or rewritten;
    /// - an attempt (execution of a run) begins, and the store must distinguish its writes from
    ///   those of an earlier attempt;
    /// - a resumed run is committed, or an open run is discarded.
    pub incarnation: u64,
    /// The sequence number of the last message, from 1; 0 if there is no message.
    pub sequence: u64,
}

impl Revision {
    /// The revision of a conversation that does not exist.
    pub const ABSENT: Self = Self { incarnation: 0, sequence: 0 };

    /// Returns the revision after a run has appended `messages` more messages. The id of the run
    /// that creates a conversation determines the incarnation of the conversation. The sequence
    /// saturates at the largest number, and every store refuses a write with that number.
    #[must_use]
    pub fn after(self, run: RunId, messages: usize) -> Self {
        let incarnation = match self.incarnation {
            0 => run.random_half().max(1),
            incarnation => incarnation,
        };
        Self { incarnation, sequence: self.sequence.saturating_add(messages as u64) }
    }

    /// Returns the revision after a resumed run was committed, or a run was discarded. `visible` is
    /// the sequence number of the last message that is then visible. The incarnation changes, so
    /// that the store refuses late writes, which expect a revision of the conversation from before
    /// the commit or the discard.
    #[must_use]
    pub fn back_to(self, visible: u64, run: RunId) -> Self {
        Self { incarnation: self.other_incarnation(run.random_half()), sequence: visible }
    }

    /// Returns the revision after a holder has begun an attempt at a run. The incarnation is
    /// different for every holder. The store therefore refuses a late write of an earlier attempt,
    /// and a write of another holder that begins an attempt at the same time.
    #[must_use]
    pub fn taken_by(self, holder: u64) -> Self {
        Self { incarnation: self.other_incarnation(holder), ..self }
    }

    /// Returns the revision after messages were pruned: a new incarnation, with the same sequence
    /// number of the last message.
    #[must_use]
    pub fn pruned(self) -> Self {
        Self { incarnation: self.other_incarnation(RunId::new().random_half()), ..self }
    }

    /// Returns the revision after messages were rewritten in place: a new incarnation, with the
    /// same sequence number of the last message.
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
        // Each of the 64 bits of the holder yields a different incarnation, and none of them is the
        // previous incarnation.
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
