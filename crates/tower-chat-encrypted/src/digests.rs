//! The digests of some messages of a conversation. A digest covers a message and all messages
//! before it. A later [range](crate::range::SealedRange), which is the part of a conversation that
//! the next run loads, begins after one of these messages.

use crate::chain::Digest;

/// The store keeps the digest of each message up to this sequence number. A range may include leading messages (the
/// first messages of the conversation). The stored value of such a range contains the digest of the
/// last leading message.
const FIRST: u64 = 16;

/// Bounds the gaps between kept digests: the distance between two of them is at most their distance
/// to the last message, divided by `2^FRACTION`. A range near the end of a long conversation
/// therefore begins soon after a message with a kept digest.
const FRACTION: u32 = 3;

/// The number of messages after which unneeded digests are removed.
const REMOVE_AFTER: u64 = 64;

/// The digests of some messages of one incarnation (random number) of a conversation, ordered by
/// sequence number.
#[derive(Debug, Clone, Default)]
pub(crate) struct Digests {
    /// The digests of the first messages, of the last messages, and of some messages between them.
    spaced: Vec<(u64, Digest)>,
    /// The digests at both ends of the gap in the range that was loaded: the digest of the last
    /// leading message, and that of the last message that was not loaded.
    ends: Vec<(u64, Digest)>,
}

impl Digests {
    /// Creates the digests that are known before the messages of a range are opened.
    pub(crate) fn of_range(ends: impl IntoIterator<Item = (u64, Digest)>) -> Self {
        Self { ends: ends.into_iter().collect(), ..Self::default() }
    }

    /// Adds the digest of a message. First removes all digests with this or a later sequence
    /// number, because their messages were not stored.
    pub(crate) fn push(&mut self, sequence: u64, digest: Digest) {
        self.truncate(sequence.saturating_sub(1));
        self.spaced.push((sequence, digest));
        if sequence.is_multiple_of(REMOVE_AFTER) {
            self.spaced.retain(|(kept, _)| is_kept(*kept, sequence));
        }
    }

    /// Removes the digests of all messages after this one.
    pub(crate) fn truncate(&mut self, last: u64) {
        while self.spaced.last().is_some_and(|(sequence, _)| *sequence > last) {
            self.spaced.pop();
        }
        self.ends.retain(|(sequence, _)| *sequence <= last);
    }

    /// Returns the digest of a message, if it is known.
    pub(crate) fn of(&self, sequence: u64) -> Option<Digest> {
        self.up_to(sequence).filter(|(found, _)| *found == sequence).map(|(_, digest)| digest)
    }

    /// Returns the last message up to a sequence number whose digest is known, with its digest.
    pub(crate) fn up_to(&self, sequence: u64) -> Option<(u64, Digest)> {
        let all = self.spaced.iter().chain(&self.ends);
        all.filter(|(found, _)| *found <= sequence).max_by_key(|(found, _)| *found).copied()
    }
}

/// Returns whether the store keeps the digest of the message `sequence` of a conversation that ends
/// with the message `last`. The farther a message is from the end, the higher is the power of two by which its
/// sequence number must be divisible.
fn is_kept(sequence: u64, last: u64) -> bool {
    let distance = last.saturating_sub(sequence).max(1);
    let exponent = distance.ilog2().saturating_sub(FRACTION);
    sequence <= FIRST || sequence.trailing_zeros() >= exponent
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(sequence: u64) -> Digest {
        Digest::START.after(None, &[sequence.to_string()])
    }

    #[test]
    fn a_few_digests_are_close_to_the_end_of_a_long_conversation() {
        let mut digests = Digests::default();
        let last = 100_000;
        for sequence in 1..=last {
            digests.push(sequence, digest(sequence));
        }
        assert!(digests.spaced.len() < 250, "{} digests", digests.spaced.len());
        for sequence in 1..=FIRST {
            assert_eq!(digests.of(sequence), Some(digest(sequence)));
        }
        for distance in (0..last - FIRST).step_by(77) {
            let sequence = last - distance;
            let (found, of) = digests.up_to(sequence).unwrap();
            assert_eq!(of, digest(found));
            let most = (distance / 4).max(REMOVE_AFTER / 4);
            assert!(found <= sequence && sequence - found <= most, "{found} up to {sequence}");
        }
        assert_eq!(digests.up_to(0), None);
    }

    #[test]
    fn a_new_digest_replaces_the_digest_at_its_number_and_removes_later_digests() {
        let mut digests = Digests::of_range([(1, digest(1)), (4, digest(4))]);
        assert_eq!(digests.up_to(3), Some((1, digest(1))));
        for sequence in 5..=7 {
            digests.push(sequence, digest(0));
        }
        digests.push(5, digest(5));
        assert_eq!((digests.of(5), digests.of(6)), (Some(digest(5)), None));
        assert_eq!(digests.up_to(9), Some((5, digest(5))));
        digests.truncate(3);
        assert_eq!(digests.up_to(9), Some((1, digest(1))));
    }
}
