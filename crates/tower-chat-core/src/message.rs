//! One entry of a conversation.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::{
    ApprovalRequest, ApprovalResponse, FinishReason, MessageId, Part, ToolCall, ToolResult,
    pairing::asked_call, part, store::author::milliseconds,
};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Role {
    /// Whoever set the conversation up.
    System,
    /// The newer name for [`Role::System`] on some wires; kept apart so that nothing is lost.
    Developer,
    /// The person, or the program acting for one.
    User,
    /// The model.
    Assistant,
    /// The tools: a message of tool results.
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
/// Two messages are equal if they say the same under the same id. Why the answer of a message
/// [ended](Self::finish_reason) is not compared, since transcripts that clients send again do not have it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Message {
    /// Who speaks.
    pub role: Role,
    /// What is said, in order. A message without any part is one whose content was absent.
    #[serde(deserialize_with = "part::deserialize_list")]
    pub parts: Vec<Part>,
    /// The speaker's name, where several share a role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub author: Option<String>,
    /// Its name in the store; set by the run that adds the message, never by a provider.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<MessageId>,
    /// When it was added to its conversation, to the millisecond: set by the run that adds the
    /// message, unless it has a time already, as an imported one may. Messages that were stored by
    /// older releases have none; see [`time`](Self::time).
    #[serde(default, skip_serializing_if = "Option::is_none", with = "milliseconds::optional")]
    pub added_at: Option<SystemTime>,
    /// Why the answer of the model ended whose last message this is. It decides what follows the answer,
    /// also when the run goes on in another process. [`ChatResponse`](crate::ChatResponse) sets it from
    /// [`Finish::reason`](crate::Finish::reason). Messages that were stored by older releases have none.
    /// Not sent to models.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Anything else to keep with it. Not sent to models.
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
    /// A message of these parts.
    pub fn new(role: Role, parts: Vec<Part>) -> Self {
        let (author, id, added_at, finish_reason) = (None, None, None, None);
        Self { role, parts, author, id, added_at, finish_reason, metadata: Map::new() }
    }

    /// A system message with one text.
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(Role::System, vec![Part::text(text)])
    }

    /// A user message with one text.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(Role::User, vec![Part::text(text)])
    }

    /// An assistant message with one text.
    pub fn assistant(text: impl Into<String>) -> Self {
        Self::new(Role::Assistant, vec![Part::text(text)])
    }

    /// An assistant message that asks for tools.
    pub fn tool_calls(calls: impl IntoIterator<Item = ToolCall>) -> Self {
        Self::new(Role::Assistant, calls.into_iter().map(Part::ToolCall).collect())
    }

    /// A tool message that answers calls.
    pub fn tool_results(results: impl IntoIterator<Item = ToolResult>) -> Self {
        Self::new(Role::Tool, results.into_iter().map(Part::ToolResult).collect())
    }

    /// A user message with decisions about calls that wait for approval.
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
    /// # assert_eq!(request.messages.last().unwrap().parts.len(), 2);
    /// ```
    pub fn approvals(responses: impl IntoIterator<Item = ApprovalResponse>) -> Self {
        Self::new(Role::User, responses.into_iter().map(Part::ApprovalResponse).collect())
    }

    /// The same message with other parts. Its own are not copied.
    #[must_use]
    pub fn with_parts(&self, parts: Vec<Part>) -> Self {
        let Self { role, parts: _, author, id, added_at, finish_reason, metadata } = self;
        let (author, metadata) = (author.clone(), metadata.clone());
        let (id, added_at, finish_reason) = (*id, *added_at, finish_reason.clone());
        Self { role: *role, parts, author, id, added_at, finish_reason, metadata }
    }

    /// When it was added to its conversation, as far as that is known: [`added_at`](Self::added_at),
    /// else the time at which its run was begun, which its id tells.
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

    /// The text of all text parts, joined without a separator.
    pub fn text(&self) -> String {
        self.parts.iter().filter_map(Part::as_text).collect()
    }

    /// The tool calls that are owed a result: all but those the provider ran itself.
    pub fn calls(&self) -> impl Iterator<Item = &ToolCall> {
        self.parts.iter().filter_map(Part::as_tool_call).filter(|call| !call.provider_executed)
    }

    /// Every tool call that is, or will be, owed a result: those of [`calls`](Self::calls), and
    /// those that wait for approval. A call's position in its batch counts them all.
    pub fn asked_calls(&self) -> impl Iterator<Item = &ToolCall> + Clone {
        self.parts.iter().filter_map(asked_call)
    }

    /// The approval request of one of the [`asked_calls`](Self::asked_calls), by its position among
    /// them; `None` if the call waits for none.
    pub fn approval_request(&self, index: u32) -> Option<&ApprovalRequest> {
        let mut asked = self.parts.iter().filter_map(|part| match part {
            Part::ToolCall(call) if !call.provider_executed => Some(None),
            Part::ApprovalRequest(request) => Some(Some(request)),
            _ => None,
        });
        asked.nth(index as usize).flatten()
    }

    /// The tool results in it.
    pub fn results(&self) -> impl Iterator<Item = &ToolResult> {
        self.parts.iter().filter_map(Part::as_tool_result)
    }
}
