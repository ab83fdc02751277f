//! The ways in which a conversation goes back to an earlier message.

use tower_chat_testkit::Rng;

/// A branch of the conversation, which begins before a run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BranchPlan {
    pub(crate) how: How,
    /// The message to which the conversation goes back: its index among the messages with content,
    /// modulo their number.
    pub(crate) message: usize,
    /// Whether the case continues in the branch, and not in the original.
    pub(crate) continues: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum How {
    /// The turns before the message are copied.
    Fork,
    /// All turns are copied.
    ForkAll,
    /// The message is replaced by the message of the next run.
    Edit,
    /// The branch ends before the turn of the message, and the next run sends the question of this
    /// turn again.
    Regenerate,
}

impl BranchPlan {
    pub(crate) fn random(rng: &mut Rng) -> Self {
        let how = [How::Fork, How::ForkAll, How::Edit, How::Regenerate][rng.below(4)];
        Self { how, message: rng.below(64), continues: rng.one_in(2) }
    }
}
