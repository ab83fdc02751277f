//! Calls that wait for approval, and the decisions about them.

use serde::{Deserialize, Serialize};

use crate::ToolCall;

/// A tool call that waits for approval.
///
/// ```
/// use tower_chat_core::{ApprovalRequest, ChatRequest, Message, ToolCall};
///
/// // From `Answer::approval_requests`, or `Head::pending_approvals` of the store.
/// let waiting = ApprovalRequest::new("a1", ToolCall::new("call_1", "pay", r#"{"cents": 990}"#), true);
/// let decision = waiting.reject("Pay less than 500 cents."); // or `waiting.approve()`
/// let request = ChatRequest::new(Message::approvals([decision]));
/// # assert_eq!(request.messages.len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// Names the request; unique in its conversation, and what the response repeats.
    pub id: String,
    /// The call that waits.
    pub call: ToolCall,
    /// Whether it is this call's tool that needs approval.
    ///
    /// The calls of one answer run together, so where one of them needs approval, all wait. `true` marks
    /// a call that a person has to decide; `false` marks one that waits only for those. A program may
    /// approve the latter without asking: every request of the answer has to have a response before any
    /// call runs. Only where the caller executes some of the calls itself may those with `false` be left
    /// without a response: they run with the others unless they are rejected.
    pub required: bool,
}

impl ApprovalRequest {
    /// A request for approval to a call.
    pub fn new(id: impl Into<String>, call: ToolCall, required: bool) -> Self {
        Self { id: id.into(), call, required }
    }

    /// The answer that lets the call run.
    pub fn approve(&self) -> ApprovalResponse {
        ApprovalResponse { request_id: self.id.clone(), approved: true, reason: None }
    }

    /// The answer that refuses it. The model is told, with the reason.
    pub fn reject(&self, reason: impl Into<String>) -> ApprovalResponse {
        ApprovalResponse {
            request_id: self.id.clone(),
            approved: false,
            reason: Some(reason.into()),
        }
    }
}

/// Somebody's answer to an [`ApprovalRequest`].
///
/// It names the request and carries no call: what runs is always the call that was stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalResponse {
    /// The request it answers.
    pub request_id: String,
    /// Whether the call may run.
    pub approved: bool,
    /// Why not, in words for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
