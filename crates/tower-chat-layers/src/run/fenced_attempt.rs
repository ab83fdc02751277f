//! Fenced attempts: attempts at a run without a lease whose writes exclude each other.

use std::time::SystemTime;

use tower_chat_core::{
    RunId,
    store::{
        Lease, LeaseEnd,
        author::{Close, Staged, Write},
    },
};

/// A request extension: another process may still execute an earlier attempt at the run of the request.
///
/// A layer that sends the request of a run again inserts the extension, unless it knows that no earlier
/// attempt is in progress. The first write of the attempt then gives its conversation a new incarnation, as in
/// journaled mode. An attempt that is stopped before it has written makes such a write too, even if it has
/// nothing to store. Whichever attempt writes first, the store refuses the writes of the others with a
/// conflict. Without the extension, both attempts give the same ids to their messages, and the store may take
/// a write of one for a repetition of a write of the other.
///
/// The extension has no effect in journaled mode, where the store fences each attempt, and over a store
/// without the capability [`Journal`](tower_chat_core::store::Journal).
///
/// ```
/// use tower_chat_core::{ChatRequest, ConversationKey};
/// use tower_chat_layers::run::FencedAttempt;
///
/// let request = ChatRequest::user("Hello.").in_conversation(ConversationKey::new("alice", "support"));
/// let mut again = request.clone();
/// again.extensions.insert(FencedAttempt::new());
/// ```
#[derive(Debug, Clone, Copy)]
pub struct FencedAttempt {
    /// Distinguishes the attempt from all others.
    token: u64,
}

impl FencedAttempt {
    /// Creates the extension of one attempt.
    #[expect(clippy::new_without_default, reason = "each value is different")]
    pub fn new() -> Self {
        Self { token: RunId::new().random_half() }
    }

    /// Makes a write the first of this attempt. The write opens the run and commits it at once, because only
    /// the write that opens a run changes the incarnation.
    pub(super) fn begin_with(self, write: Write, now: SystemTime) -> Write {
        let lease =
            Lease { attempt: 1, holder: self.token, renewed_at: now, until: LeaseEnd::NotHeld };
        let service_id = write.service_id().cloned();
        let close = Some(Close::Commit);
        write.staged(Staged { lease, close, service_id, partial_text: None }).beginning_attempt()
    }
}
