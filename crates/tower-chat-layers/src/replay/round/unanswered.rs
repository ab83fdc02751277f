//! A call of a round, as results name it.

use tower_chat_core::{
    ApprovalRequest, CallPosition, MessageId, Part, ToolCall, ToolResult, pairing::Candidate,
};

/// A call that was left out because nothing answered it.
#[derive(Debug, Clone)]
pub(in crate::replay) struct Unanswered {
    /// Where the first message of its answer stood; the same for all calls of a batch.
    pub(in crate::replay) position: usize,
    /// The message that holds the call, and the call's place in it.
    pub(in crate::replay) call_position: Option<(MessageId, usize)>,
    /// The same for results that name the call, also where its message has no id.
    pub(in crate::replay) named_by: CallPosition,
    pub(in crate::replay) call: ToolCall,
    /// Its answer holds calls too that need no approval.
    pub(in crate::replay) is_beside_calls: bool,
    /// The request for approval that it waits for, if it does.
    pub(in crate::replay) approval: Option<ApprovalRequest>,
    /// The call is shown, with a result that says it was interrupted.
    pub(in crate::replay) is_visible: bool,
    /// The id by which results name it.
    pub(super) id: String,
}

impl Unanswered {
    pub(in crate::replay) fn candidate(&self) -> Candidate<&str> {
        Candidate::new(&self.call, Some(self.named_by), &self.id)
    }

    /// The id by which results name it, as replays show it.
    pub(in crate::replay) fn id(&self) -> &str {
        &self.id
    }

    /// The result, naming the call as the replay shows it: it stands right behind the call, which
    /// no position has to say.
    pub(in crate::replay) fn answer(&self, mut result: ToolResult) -> ToolResult {
        result.call_id = Some(self.id.clone());
        result.call = None;
        result
    }

    /// The call, named as its result names it.
    pub(in crate::replay) fn into_call(self) -> ToolCall {
        let mut call = self.call;
        call.id = Some(self.id);
        call
    }

    /// The tool and the id of a call that is dangling: not one that waits for approval.
    pub(in crate::replay) fn dangling(&self) -> Option<(String, String)> {
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

/// What the model is told of a call whose outcome is unknown.
pub const INTERRUPTED: &str =
    "The call was interrupted. It may or may not have taken effect; its result is unknown.";

/// The id of the call of which a part says that it was interrupted.
pub(in crate::replay) fn interrupted_id(part: &Part) -> Option<&str> {
    let result = part.as_tool_result().filter(|it| it.is_error && it.text() == INTERRUPTED)?;
    result.call_id.as_deref().filter(|id| !id.is_empty())
}
