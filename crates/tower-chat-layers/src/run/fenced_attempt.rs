//! Fenced attempts. In the modes without a lease, several attempts at one run may execute at the
//! same time. The store accepts the writes of only one attempt.

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
/// A layer that sends the request of a run again inserts the extension, unless it knows that no
/// earlier attempt is in progress. The first write of the attempt gives its conversation a new
/// [incarnation](tower_chat_core::store::Revision::incarnation), as in journaled mode. If the
/// attempt is stopped before its first write, the attempt makes such a write even if it has no
/// messages to store. After the first write of any attempt, the store refuses the writes of the
/// other attempts with a conflict. Without the extension, both attempts assign the same ids to
/// their messages, and the store may treat a write of one attempt as a repetition of a write of the
/// other attempt.
///
/// The extension has no effect in journaled mode, where the store fences each attempt. The
/// extension also has no effect if the store lacks the capability
/// [`Journal`](tower_chat_core::store::Journal).
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
    token: u64,
}

impl FencedAttempt {
    /// Creates the extension of one attempt.
    #[expect(clippy::new_without_default, reason = "each value is different")]
    pub fn new() -> Self {
        Self { token: RunId::new().random_half() }
    }

    /// Turns a write into the first write of this attempt. It both opens and commits the run,
    /// because only a write that opens a run changes the incarnation.
    pub(super) fn begin_with(self, write: Write, now: SystemTime) -> Write {
        let lease =
            Lease { attempt: 1, holder: self.token, renewed_at: now, until: LeaseEnd::NotHeld };
        let service_id = write.service_id().cloned();
        let close = Some(Close::Commit);
        write.staged(Staged { lease, close, service_id, partial_text: None }).beginning_attempt()
    }
}
