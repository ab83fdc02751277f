//! Which messages of the model are one answer.

use serde_json::Value;

use crate::{ApprovalRequest, Message, Role, RunId};

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

/// Groups the approval requests that wait in stored messages: those of one answer together, in order. An
/// answer may be several messages. For stores, which make
/// [`Head::pending_approvals`](crate::store::Head::pending_approvals) of it.
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
    /// The answer of the last batch.
    answer: Option<AnswerKey>,
    batches: Vec<Vec<ApprovalRequest>>,
}

impl PendingBatches {
    /// Adds the next request, in the order of messages and calls, with its message. A run ends when
    /// approvals wait, so equal keys mean one answer, also where messages without a request stand
    /// between two.
    pub fn push(&mut self, message: &Message, request: ApprovalRequest) {
        let answer = AnswerKey::of(message);
        match self.batches.last_mut() {
            Some(batch) if answer.is_some() && answer == self.answer => batch.push(request),
            Some(_) | None => self.batches.push(vec![request]),
        }
        self.answer = answer;
    }

    /// The batches, in order.
    pub fn finish(self) -> Vec<Vec<ApprovalRequest>> {
        self.batches
    }
}
