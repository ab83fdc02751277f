//! The ranges of stored numbers. A store reports a stored number that is out of its range as
//! damage, and refuses to write such a number. Arithmetic with stored numbers therefore cannot
//! overflow.

use super::{Head, StoreError, author::Write};
use crate::{ConversationKey, MessageId, RunId};

/// The largest sequence number of a message in any store. Databases that compute in floating point,
/// such as Redis in its scripts, represent all integers up to this number exactly.
pub const LAST_SEQUENCE: u64 = (1 << 53) - 1;

/// A write needs a sequence number or a message index that is larger than the maximum.
///
/// This error is the source of a [`StoreError::Backend`] that is not retryable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NumbersUsedUp {
    /// The conversation would have more messages than the store can number.
    #[error(
        "conversation {key} has reached the largest sequence number: continue in a new conversation"
    )]
    OfConversation {
        /// The conversation.
        key: ConversationKey,
    },
    /// The run would have more messages than [`MessageId::LAST_INDEX`] allows.
    #[error("run {run} has reached the largest message index: continue in a new run")]
    OfRun {
        /// The run.
        run: RunId,
    },
}

impl Head {
    /// Checks the numbers in a head that a store has read:
    ///
    /// - The sequence number of the last message is at most `last` and at most [`LAST_SEQUENCE`].
    /// - The last visible message is not after the last message.
    /// - The last pruned message, and the last message that the summary in force covers, are not
    ///   after the last visible message.
    /// - The number of rewrites is at most [`LAST_SEQUENCE`].
    /// - The attempt number of an open run is less than `u32::MAX`.
    ///
    /// ```
    /// use tower_chat_core::{ConversationKey, store::{Head, Revision, author::LAST_SEQUENCE}};
    /// let key = ConversationKey::new("alice", "support");
    /// let head = |sequence| Head::new(Revision { incarnation: 7, sequence });
    /// assert!(head(3).with_pruned(2).check_range(&key, LAST_SEQUENCE).is_ok());
    /// assert!(head(3).with_pruned(4).check_range(&key, LAST_SEQUENCE).is_err());
    /// assert!(head(u64::MAX).check_range(&key, LAST_SEQUENCE).is_err());
    /// ```
    ///
    /// # Errors
    ///
    /// [`StoreError::Corrupt`], whose text names the number that is out of range.
    pub fn check_range(&self, key: &ConversationKey, last: u64) -> Result<(), StoreError> {
        let sequence = self.revision.sequence;
        let visible = self.open_run.as_ref().map_or(sequence, |open| open.visible);
        let attempt = self.open_run.as_ref().map_or(1, |open| open.lease.attempt);
        let last = last.min(LAST_SEQUENCE);
        let damage = if sequence > last {
            format!("its last sequence number is {sequence}, which is out of range")
        } else if visible > sequence {
            format!("its visible messages end at {visible}, after its last message {sequence}")
        } else if self.pruned > visible {
            format!(
                "its pruned messages end at {}, after its last visible message {visible}",
                self.pruned
            )
        } else if let Some(summary) = self.summary.filter(|summary| summary.covers_to > visible) {
            let covered = summary.covers_to;
            format!("its summary ends at {covered}, after its last visible message {visible}")
        } else if self.rewrites > LAST_SEQUENCE {
            format!("its number of rewrites is {}, which is out of range", self.rewrites)
        } else if attempt == u32::MAX {
            format!("its open run has attempt number {attempt}, which is out of range")
        } else {
            return Ok(());
        };
        let reason = format!("conversation {key}: {damage}: restore it from a backup");
        Err(StoreError::Corrupt { reason })
    }
}

impl Write {
    /// Checks that the numbers of the write's messages are in their ranges: each sequence number is
    /// at most `last` and at most [`LAST_SEQUENCE`], and each index in the run is at most
    /// [`MessageId::LAST_INDEX`]. Every store calls this method before it stores a write.
    ///
    /// # Errors
    ///
    /// [`StoreError::Backend`], not retryable, with [`NumbersUsedUp`] as its source.
    pub fn check_range(&self, last: u64) -> Result<(), StoreError> {
        let refused = |why| StoreError::backend("append to a conversation", false, why);
        let count = self.messages().len() as u64;
        let end = self.expected().sequence.checked_add(count);
        if end.is_none_or(|end| end > last.min(LAST_SEQUENCE)) {
            return Err(refused(NumbersUsedUp::OfConversation { key: self.key().clone() }));
        }
        let end = count.checked_add(u64::from(self.id().index));
        if count > 0 && end.is_none_or(|end| end > u64::from(MessageId::LAST_INDEX) + 1) {
            return Err(refused(NumbersUsedUp::OfRun { run: self.run() }));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Message, store::Revision};

    fn key() -> ConversationKey {
        ConversationKey::new("tests", "range")
    }

    fn write(sequence: u64, index: u32, texts: &[&str]) -> Write {
        let id = MessageId { run: RunId::new(), index };
        let messages = texts.iter().map(|text| Message::user(*text).into());
        Write::new(key(), id, Revision { incarnation: 1, sequence }, messages)
    }

    #[test]
    fn a_write_whose_messages_have_no_numbers_keeps_them_all_and_is_refused() {
        for (sequence, index) in [
            (u64::MAX, 0),
            (u64::MAX - 1, 0),
            (LAST_SEQUENCE, 0),
            (LAST_SEQUENCE - 1, 0),
            (0, u32::MAX),
            (0, MessageId::LAST_INDEX),
        ] {
            let write = write(sequence, index, &["first", "second"]);
            assert_eq!(write.messages().len(), 2);
            let error = write.check_range(LAST_SEQUENCE).unwrap_err();
            let StoreError::Backend { source, retryable: false, .. } = error else {
                panic!("{error:?}")
            };
            assert!(source.is::<NumbersUsedUp>(), "{source}");
        }
        assert!(write(LAST_SEQUENCE - 2, 0, &["a", "b"]).check_range(LAST_SEQUENCE).is_ok());
        assert!(write(0, MessageId::LAST_INDEX - 1, &["c", "d"]).check_range(9).is_ok());
        assert!(write(8, 0, &["e", "f"]).check_range(9).is_err());
        assert!(write(9, u32::MAX, &[]).check_range(9).is_ok(), "nothing needs a number");
    }
}
