//! Which messages of the model are one answer.

use serde_json::Value;

use crate::{Message, Role, RunId};

/// The key of the metadata of stored messages with which a run has ended on purpose, although
/// they ask for something or say nothing.
pub const RUN_ENDED: &str = "run_ended";

/// Whether a message says that its run ended with it.
pub fn is_marked_ended(message: &Message) -> bool {
    message.metadata.get(RUN_ENDED) == Some(&Value::Bool(true))
}

/// What consecutive messages of the model have in common if they are one answer: the same run has
/// added them, and ended with all of them or with none.
///
/// The last answer of a run that was interrupted and sent again is another one than the answer
/// before it, whose calls have no results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerKey {
    run: Option<RunId>,
    ends_run: bool,
}

impl AnswerKey {
    /// Of a message of the model; `None` for any other.
    pub fn of(message: &Message) -> Option<Self> {
        let run = message.id.map(|id| id.run);
        let ends_run = is_marked_ended(message);
        (message.role == Role::Assistant).then_some(Self { run, ends_run })
    }

    /// Of a stretch of a message of the model, which holds results of its own. Only the first has
    /// the message's id.
    pub(super) fn of_stretch(message: &Message, is_first: bool) -> Self {
        Self { run: message.id.filter(|_| is_first).map(|id| id.run), ends_run: false }
    }

    /// Whether a message of the model may belong to the same answer as another one right before it.
    pub fn is_shared(before: &Message, message: &Message) -> bool {
        let key = Self::of(message);
        key.is_some() && key == Self::of(before)
    }
}
