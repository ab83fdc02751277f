//! The mark of a store that contains sealed data, and the check whether a change is allowed in such
//! a store.

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use super::{Head, StoreError, author::Write};
use crate::{Message, Part};

/// The name of the wire of sealed items in messages. No model client uses this name.
pub const SEALED_WIRE: &str = "tower-chat-encrypted";

/// The prefix of a sealed head, in every version of the format. An encrypting wrapper stores its
/// sealed head as the service id of the conversation.
const SEALED_HEAD: &str = "tower-chat-";

/// The time for which a process does not read the mark again before writes to existing
/// conversations.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Returns whether a message was sealed by an encrypting wrapper.
pub fn is_sealed_message(message: &Message) -> bool {
    matches!(message.parts.first(), Some(Part::Native(native)) if &*native.wire == SEALED_WIRE)
}

/// Caches the mark of a store on a server. The mark states whether the store contains sealed data.
///
/// The mark is one value for the whole store. The transaction of a write does not read the mark,
/// because that would make each write slower. Instead, a store calls [`admit`](Self::admit) before
/// each change. For a write to an existing conversation, `admit` reads the mark at most once a
/// second, and for any other change always. A process also learns from the [head](Self::see) of a
/// sealed conversation that the store contains sealed data.
#[derive(Debug, Default)]
pub struct SealMark {
    /// Whether this process has read or stored the mark, or has read a sealed head.
    holds_sealed: AtomicBool,
    /// Whether this process has stored the mark.
    is_stored: AtomicBool,
    /// The time of the last read of the mark.
    checked_at: Mutex<Option<Instant>>,
}

/// The properties of a change on which [`SealMark::admit`] depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealedChange {
    /// Whether an encrypting wrapper makes the change.
    is_sealed: bool,
    /// Whether the mark is always read before this change.
    is_checked: bool,
}

impl SealedChange {
    /// Creates the properties of a write.
    pub fn of_write(write: &Write) -> Self {
        Self { is_sealed: write.is_sealed(), is_checked: write.expected().incarnation == 0 }
    }

    /// Creates the properties of any other change.
    pub fn other(is_sealed: bool) -> Self {
        Self { is_sealed, is_checked: true }
    }
}

impl SealMark {
    /// Returns whether a head belongs to a conversation that an encrypting wrapper has sealed. A
    /// conversation in the first version of the format has an ordinary head. Only the
    /// [messages](is_sealed_message) of such a conversation show that the conversation is sealed.
    pub fn is_sealed_head(head: &Head) -> bool {
        head.service_id.as_deref().is_some_and(|id| id.starts_with(SEALED_HEAD))
    }

    /// Updates the cache from a head that was read.
    pub fn see(&self, head: &Head) {
        if Self::is_sealed_head(head) {
            self.holds_sealed.store(true, Ordering::Relaxed);
        }
    }

    /// Admits a change or refuses it. `read` reads the mark, and `set` stores it. Each of these
    /// futures is awaited only if necessary.
    ///
    /// # Errors
    ///
    /// [`StoreError::Sealed`], if the store contains sealed data and the change does not come from
    /// the wrapper that seals them; otherwise, if the mark cannot be read or stored.
    pub async fn admit(
        &self,
        change: SealedChange,
        read: impl Future<Output = Result<bool, StoreError>> + Send,
        set: impl Future<Output = Result<(), StoreError>> + Send,
    ) -> Result<(), StoreError> {
        if change.is_sealed {
            if !self.is_stored.load(Ordering::Relaxed) {
                set.await?;
                self.is_stored.store(true, Ordering::Relaxed);
                self.holds_sealed.store(true, Ordering::Relaxed);
            }
            return Ok(());
        }
        if self.holds_sealed.load(Ordering::Relaxed) {
            return Err(StoreError::Sealed);
        }
        if !change.is_checked && self.was_checked_just_now() {
            return Ok(());
        }
        let holds_sealed = read.await?;
        *self.checked_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        if holds_sealed {
            self.holds_sealed.store(true, Ordering::Relaxed);
            return Err(StoreError::Sealed);
        }
        Ok(())
    }

    fn was_checked_just_now(&self) -> bool {
        let checked_at = *self.checked_at.lock().unwrap_or_else(PoisonError::into_inner);
        checked_at.is_some_and(|checked| checked.elapsed() < CHECK_INTERVAL)
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::store::Revision;

    const PLAIN: SealedChange = SealedChange { is_sealed: false, is_checked: true };
    const APPEND: SealedChange = SealedChange { is_sealed: false, is_checked: false };
    const SEALED: SealedChange = SealedChange { is_sealed: true, is_checked: false };

    /// Returns whether a change is admitted if the store has this mark, whether `admit` read the
    /// mark, and whether it stored the mark.
    fn admitted(mark: &SealMark, change: SealedChange, stored: bool) -> (bool, bool, bool) {
        let (was_read, was_set) = (AtomicBool::new(false), AtomicBool::new(false));
        let read = async {
            was_read.store(true, Ordering::Relaxed);
            Ok(stored)
        };
        let set = async {
            was_set.store(true, Ordering::Relaxed);
            Ok(())
        };
        let admitted = mark.admit(change, read, set).now_or_never().unwrap();
        (admitted.is_ok(), was_read.into_inner(), was_set.into_inner())
    }

    #[test]
    fn a_plain_change_is_refused_once_the_store_holds_sealed_data() {
        let mark = SealMark::default();
        assert_eq!(admitted(&mark, APPEND, false), (true, true, false), "the first looks");
        assert_eq!(admitted(&mark, PLAIN, false), (true, true, false));
        assert_eq!(admitted(&mark, SEALED, false), (true, false, true), "the mark is stored");
        assert_eq!(admitted(&mark, SEALED, true), (true, false, false), "once");
        for change in [PLAIN, APPEND] {
            assert_eq!(admitted(&mark, change, true), (false, false, false));
        }
        let other = SealMark::default();
        assert_eq!(admitted(&other, APPEND, true), (false, true, false));
        assert_eq!(admitted(&other, SEALED, true), (true, false, true));
    }

    #[test]
    fn a_sealed_head_says_that_the_store_holds_sealed_data() {
        for (service_id, is_sealed) in
            [(None, false), (Some("resp_1"), false), (Some("tower-chat-2:a"), true)]
        {
            let mark = SealMark::default();
            let head = Head::new(Revision::ABSENT).with_service_id(service_id.map(Into::into));
            mark.see(&head);
            assert_eq!(admitted(&mark, PLAIN, false).0, !is_sealed, "{service_id:?}");
            assert_eq!(admitted(&mark, SEALED, false), (true, false, true), "{service_id:?}");
        }
    }
}
