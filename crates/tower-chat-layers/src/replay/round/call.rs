//! A call of a round, with the ids by which results refer to the call.
//!
//! A round consists of the calls of one answer of the model and their results.

use tower_chat_core::{
    ApprovalRequest, CallPosition, MessageId, Part, ToolCall, ToolResult, pairing::Candidate,
};

/// A call of a round. Outside of [`Round`](super::Round), the call has no result yet.
#[derive(Debug, Clone)]
pub(in crate::replay) struct RoundCall {
    /// The position of the round's first message, which is the same for all calls of the round.
    pub(in crate::replay) position: usize,
    /// `None` if the message has no id.
    pub(in crate::replay) call_position: Option<(MessageId, usize)>,
    /// The position by which results refer to the call. If the message has no id, this position
    /// contains a run id that no run has.
    pub(in crate::replay) named_by: CallPosition,
    pub(in crate::replay) call: ToolCall,
    /// Whether the answer also contains calls that need no approval.
    pub(in crate::replay) answer_has_calls_without_approval: bool,
    pub(in crate::replay) approval: Option<ApprovalRequest>,
    /// Whether the replay contains the call, with a result that reports an interruption.
    pub(in crate::replay) is_visible: bool,
    /// Whether the call waits for approval, or was returned to the caller.
    pub(in crate::replay) is_awaited: bool,
    /// The id by which results refer to the call.
    pub(in crate::replay) id: String,
}

impl RoundCall {
    pub(in crate::replay) fn candidate(&self) -> Candidate<&str> {
        Candidate::new(&self.call, Some(self.named_by), &self.id)
    }

    /// Returns the result with the id of the call in replays, and without a call position. The id
    /// is sufficient, because the result directly follows its call in the replay.
    pub(in crate::replay) fn answer(&self, mut result: ToolResult) -> ToolResult {
        result.call_id = Some(self.id.clone());
        result.call = None;
        result
    }

    pub(in crate::replay) fn into_call(self) -> ToolCall {
        let mut call = self.call;
        call.id = Some(self.id);
        call
    }

    /// Returns the tool and the id of the call, or `None` if the call is not dangling but waits for
    /// approval.
    pub(in crate::replay) fn dangling_tool_and_id(&self) -> Option<(String, String)> {
        (!self.is_pending_approval()).then(|| (self.call.name.clone(), self.id.clone()))
    }

    pub(super) fn is_pending_approval(&self) -> bool {
        self.approval.is_some()
    }

    pub(super) fn interrupted(&self) -> ToolResult {
        let mut result = ToolResult::error(&self.id, INTERRUPTED);
        result.name = Some(self.call.name.clone());
        result
    }
}

/// The result text of a call with an unknown outcome.
pub const INTERRUPTED: &str =
    "The call was interrupted. It may or may not have taken effect; its result is unknown.";

/// Returns the id of the call if a part is a result that reports an interruption.
pub(in crate::replay) fn interrupted_id(part: &Part) -> Option<&str> {
    let result = part.as_tool_result().filter(|it| it.is_error && it.text() == INTERRUPTED)?;
    result.call_id.as_deref().filter(|id| !id.is_empty())
}
