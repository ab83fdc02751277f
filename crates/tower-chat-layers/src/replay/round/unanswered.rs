//! A call of a round, as results name it.

use tower_chat_core::{
    ApprovalRequest, CallPosition, Message, MessageId, Part, RunId, ToolCall, ToolResult,
};

use crate::replay::pairing::Asked;

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
    pub(in crate::replay) is_shown: bool,
    /// The id by which results name it.
    pub(super) id: String,
}

impl Unanswered {
    pub(in crate::replay) fn asked(&self, is_answered: bool) -> Asked<&str> {
        Asked::new(&self.call, Some(self.named_by), &self.id, is_answered)
    }

    /// The ids by which results may name it.
    pub(in crate::replay) fn ids(&self) -> impl Iterator<Item = &str> {
        self.asked(false).into_ids()
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

    /// The same call, not shown any more.
    pub(in crate::replay) fn hidden(&self) -> Self {
        Self { is_shown: false, ..self.clone() }
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

/// How results name a call. The run of a message without an id is one that no run has.
pub(in crate::replay) fn named_by(
    message: &Message,
    position: usize,
    index: usize,
) -> CallPosition {
    let small = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let of_position = || MessageId { run: RunId::from_bytes([0; 16]), index: small(position) };
    CallPosition { message: message.id.unwrap_or_else(of_position), index: small(index) }
}

/// What the model is told of a call whose outcome is unknown.
pub const INTERRUPTED: &str =
    "The call was interrupted. It may or may not have taken effect; its result is unknown.";

/// The id of the call of which a part says that it was interrupted.
pub(in crate::replay) fn interrupted_id(part: &Part) -> Option<&str> {
    let result = part.as_tool_result().filter(|it| it.is_error && it.text() == INTERRUPTED)?;
    result.call_id.as_deref().filter(|id| !id.is_empty())
}
