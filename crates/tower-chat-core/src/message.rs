//! One entry of a conversation.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ApprovalRequest, ApprovalResponse, FinishReason, MessageId, Part, ToolCall, ToolResult,
    pairing::asked_call, part, store::author::milliseconds,
};

/// The role of the author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// The operator who set up the conversation.
    System,
    /// The role that newer wires (JSON formats of providers) use instead of [`Role::System`].
    /// `Developer` is a separate variant, so that a message is sent again with the same role.
    Developer,
    /// The person, or the program that acts for the person.
    User,
    /// The model.
    Assistant,
    /// The tools. A message of this role contains tool results.
    Tool,
}

/// One entry of a conversation.
///
/// ```
/// use tower_chat_core::{Message, Role};
/// let message = Message::user("Where is my order?");
/// assert_eq!((message.role, message.text().as_str()), (Role::User, "Where is my order?"));
/// ```
///
/// Two messages are equal if all their fields except the [`finish_reason`](Self::finish_reason) are
/// equal. The finish reason is not compared, because a client that sends a conversation again does
/// not send the finish reasons.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// The role of the message's author.
    pub role: Role,
    /// The content, in order. A message without content has no parts.
    #[serde(deserialize_with = "part::deserialize_list")]
    pub parts: Vec<Part>,
    /// The author's name, if several authors have the same role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// The id of the message in the store. The run that adds the message sets the id. A provider
    /// never sets the id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    /// The time at which the message was added to its conversation, to the millisecond. The run
    /// that adds the message sets the time, unless it is set already, for example by an import.
    /// Messages from older releases have no such time; see [`time`](Self::time).
    #[serde(default, skip_serializing_if = "Option::is_none", with = "milliseconds::optional")]
    pub added_at: Option<SystemTime>,
    /// The reason why the model's answer ended, from [`Finish::reason`](crate::Finish::reason).
    /// [`ChatResponse`](crate::ChatResponse) sets this field only on the final message of the
    /// answer. The reason is stored, because a process that resumes the run determines the next
    /// step from the reason. Messages from older releases have no finish reason. This field is not
    /// sent to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Application data that is stored with the message, and not sent to models.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub metadata: Map<String, Value>,
}

impl PartialEq for Message {
    fn eq(&self, other: &Self) -> bool {
        let Self { role, parts, author, id, added_at, finish_reason: _, metadata } = self;
        *role == other.role
            && *id == other.id
            && *added_at == other.added_at
            && *author == other.author
            && *parts == other.parts
            && *metadata == other.metadata
    }
}

impl Message {
    /// Creates a message of these parts.
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        let (author, id, added_at, finish_reason) = (None, None, None, None);
        Self { role, parts, author, id, added_at, finish_reason, metadata: Map::new() }
    }

    /// Creates a system message with one text.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, vec![Part::text(text)])
    }

    /// Creates a user message with one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::text(text)])
    }

    /// Creates an assistant message with one text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![Part::text(text)])
    }

    /// Creates an assistant message with these tool calls.
    pub fn tool_calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self::new(Role::Assistant, calls.into_iter().map(Part::ToolCall).collect())
    }

    /// Creates a tool message with these results.
    pub fn tool_results(results: impl IntoIterator<Item = ToolResult>) -> Self {
        Self::new(Role::Tool, results.into_iter().map(Part::ToolResult).collect())
    }

    /// Creates a user message with decisions about calls that wait for approval.
    ///
    /// ```
    /// use tower_chat_core::{ApprovalRequest, ChatRequest, Message, ToolCall};
    /// // From `Answer::approval_requests`, or `Head::pending_approvals` of the store.
    /// let waiting = [
    ///     ApprovalRequest::new("a1", ToolCall::new("call_1", "pay", r#"{"cents": 990}"#), true),
    ///     ApprovalRequest::new("a2", ToolCall::new("call_2", "pay", r#"{"cents": 1}"#), true),
    /// ];
    /// let decisions = [waiting[0].reject("Pay less than 500 cents."), waiting[1].approve()];
    /// let request = ChatRequest::new(Message::approvals(decisions));
    /// # assert_eq!(request.messages().last().unwrap().parts.len(), 2);
    /// ```
    pub fn approvals(responses: impl IntoIterator<Item = ApprovalResponse>) -> Self {
        Self::new(Role::User, responses.into_iter().map(Part::ApprovalResponse).collect())
    }

    /// Returns a copy of the message with other parts. The parts of this message are not cloned.
    #[must_use]
    pub fn with_parts(&self, parts: Vec<Part>) -> Self {
        let Self { role, parts: _, author, id, added_at, finish_reason, metadata } = self;
        let (author, metadata) = (author.clone(), metadata.clone());
        let (id, added_at, finish_reason) = (*id, *added_at, finish_reason.clone());
        Self { role: *role, parts, author, id, added_at, finish_reason, metadata }
    }

    /// Returns the time at which the message was added to its conversation:
    /// [`added_at`](Self::added_at), or, if that is `None`, the creation time of its run's id.
    /// Returns `None` if the message has neither.
    ///
    /// ```
    /// use std::time::SystemTime;
    /// use tower_chat_core::{Message, MessageId, RunId};
    /// let mut message = Message::user("hi");
    /// assert_eq!(message.time(), None);
    /// let run = RunId::new();
    /// message.id = Some(MessageId { run, index: 0 });
    /// assert_eq!(message.time(), run.made_at());
    /// message.added_at = Some(SystemTime::UNIX_EPOCH);
    /// assert_eq!(message.time(), Some(SystemTime::UNIX_EPOCH));
    /// ```
    pub fn time(&self) -> Option<SystemTime> {
        self.added_at.or_else(|| self.id?.run.made_at())
    }

    /// Returns the text of all text parts, joined without a separator.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }

    /// Returns the tool calls that need a result: all calls except those that the provider executed
    /// itself.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(Part::as_tool_call).filter(|call| !call.provider_executed)
    }

    /// Returns the tool calls that need a result now or after their approval: the
    /// [`calls`](Self::calls), and the calls that wait for approval. The index in a
    /// [`CallPosition`](crate::CallPosition) is the index of the call among these calls.
    pub fn asked_calls(&self) -> impl Iterator<Item = &ToolCall> + Clone {
        self.parts.iter().filter_map(asked_call)
    }

    /// Returns the approval request of one of the [`asked_calls`](Self::asked_calls), by its index
    /// among them; `None` if the call does not wait for approval.
    pub fn approval_request(&self, index: u32) -> Option<&ApprovalRequest> {
        let mut asked = self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) if !call.provider_executed => Some(None),
            Part::ApprovalRequest(request) => Some(Some(request)),
            _ => None,
        });
        asked.nth(index as usize).flatten()
    }

    /// Returns the tool results of the message.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(Part::as_tool_result)
    }
}
