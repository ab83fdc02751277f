//! The key that shows which messages of the model belong to one answer.

use serde_json::Value;

use crate::{ApprovalRequest, Message, Role, RunId};

/// The metadata key of a mark on stored messages. The mark states that the run ended with the
/// message, although the message contains calls without results or has no content.
pub const RUN_ENDED: &str = "run_ended";

/// Returns whether a message has the mark [`RUN_ENDED`].
pub fn is_marked_ended(message: &Message) -> bool {
    message.metadata.get(RUN_ENDED) == Some(&Value::Bool(true))
}

/// A key that is equal for consecutive messages of the model that may belong to one answer. Such
/// messages were added by the same run, and all or none of them have the mark [`RUN_ENDED`].
///
/// A run that was interrupted and sent again may store its next answer directly after an answer
/// whose calls have no results. The keys of the two answers are then equal, unless one of them has
/// the mark. If the keys are equal, [`RoundMatcher`](super::RoundMatcher) matches results with the
/// calls of the second answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AnswerKey {
    run: Option<RunId>,
    ends_run: bool,
}

impl AnswerKey {
    /// Returns the key of a message of the model; `None` for any other message.
    pub fn of(message: &Message) -> Option<Self> {
        let run = message.id.map(|id| id.run);
        let ends_run = is_marked_ended(message);
        (message.role == Role::Assistant).then_some(Self { run, ends_run })
    }

    /// Returns the key of a piece of a model message that also contains results. Such a message is
    /// split at the results, and only the first piece has the id of the message.
    pub(super) fn of_piece(message: &Message, is_first: bool) -> Self {
        Self { run: message.id.filter(|_| is_first).map(|id| id.run), ends_run: false }
    }

    /// Returns whether a message of the model may belong to the same answer as the message directly
    /// before it.
    pub fn is_shared(before: &Message, message: &Message) -> bool {
        let key = Self::of(message);
        key.is_some() && key == Self::of(before)
    }
}

/// Groups the pending approval requests in stored messages by answer, in order. An answer may
/// consist of several messages. Stores use this type to compute
/// [`Head::pending_approvals`](crate::store::Head::pending_approvals).
///
/// ```
/// use tower_chat_core::{ApprovalRequest, Message, MessageId, Part, Role, RunId, ToolCall};
/// use tower_chat_core::pairing::PendingBatches;
///
/// let run = RunId::new();
/// let mut batches = PendingBatches::default();
/// for (index, id) in [(1, "r1"), (2, "r2")] {
///     let request = ApprovalRequest::new(id, ToolCall::new(id, "pay", "{}"), true);
///     let mut message = Message::new(Role::Assistant, vec![Part::ApprovalRequest(request.clone())]);
///     message.id = Some(MessageId { run, index });
///     batches.push(&message, request);
/// }
/// assert_eq!(batches.finish().len(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct PendingBatches {
    /// The key of the answer that contains the newest requests.
    answer: Option<AnswerKey>,
    batches: Vec<Vec<ApprovalRequest>>,
}

impl PendingBatches {
    /// Adds the next request, in the order of messages and calls, with its message. A run ends when
    /// an answer waits for approval. All requests with the same key therefore belong to one answer,
    /// even if messages without a request are between them.
    pub fn push(&mut self, message: &Message, request: ApprovalRequest) {
        let answer = AnswerKey::of(message);
        match self.batches.last_mut() {
            Some(batch) if answer.is_some() && answer == self.answer => batch.push(request),
            Some(_) | None => self.batches.push(vec![request]),
        }
        self.answer = answer;
    }

    /// Returns the groups of requests (batches), in order.
    pub fn finish(self) -> Vec<Vec<ApprovalRequest>> {
        self.batches
    }
}
