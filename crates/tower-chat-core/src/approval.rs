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
/// # let _ = &decision;
/// let decision = waiting.approve_with(r#"{"cents": 490}"#);
/// let request = ChatRequest::new(Message::approvals([decision]));
/// # assert_eq!(request.messages().len(), 1);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The id of the request, unique in its conversation. The response contains the same id.
    pub id: String,
    /// The call that waits for approval.
    pub call: ToolCall,
    /// Whether the tool of this call needs approval.
    ///
    /// The calls of one answer run together. If the tool of one call needs approval, all calls of
    /// the answer wait. `true` means that a person has to decide on the call; `false` means that
    /// the call only waits for the decisions on the others. A program may approve a call with
    /// `false` without asking a person.
    ///
    /// The calls run when every request of the answer has a response. There is one exception: if
    /// the caller executes some of the calls itself, a request with `false` needs no response. The
    /// call of such a request runs together with the approved calls, unless the caller rejects the
    /// call.
    pub required: bool,
}

impl ApprovalRequest {
    /// Creates a request for approval of a call.
    pub fn new(id: impl Into<String>, call: ToolCall, required: bool) -> Self {
        Self { id: id.into(), call, required }
    }

    /// Returns the response that approves the call.
    pub fn approve(&self) -> ApprovalResponse {
        ApprovalResponse {
            request_id: self.id.clone(),
            approved: true,
            arguments: None,
            reason: None,
        }
    }

    /// Returns the response that approves the call, but with other arguments, which are a JSON
    /// text. The stored call is unchanged and contains the arguments of the model. The model
    /// receives the other arguments with the result of the call.
    ///
    /// The arguments are stored with the decision, and the tool's `persist` hook (`Tool::persist`,
    /// which redacts what is stored) does not change them.
    pub fn approve_with(&self, arguments: impl Into<String>) -> ApprovalResponse {
        ApprovalResponse { arguments: Some(arguments.into()), ..self.approve() }
    }

    /// Returns the response that rejects the call. The model receives the reason.
    pub fn reject(&self, reason: impl Into<String>) -> ApprovalResponse {
        ApprovalResponse {
            request_id: self.id.clone(),
            approved: false,
            arguments: None,
            reason: Some(reason.into()),
        }
    }
}

/// The decision on an [`ApprovalRequest`].
///
/// The response does not contain the call, but the id of the request. An approved call runs with
/// the arguments of the response, or, if the response has none, with the arguments of the stored
/// call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ApprovalResponse {
    /// The id of the request that this response answers.
    pub request_id: String,
    /// Whether the call may run.
    pub approved: bool,
    /// The arguments with which an approved call runs, as a JSON text; `None` if the call runs with
    /// the arguments of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// The reason for a rejection, which the model receives.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
