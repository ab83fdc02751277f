//! Tool calls that wait for somebody's consent.

use std::sync::Arc;

use tower_chat_core::{ApprovalRequest, Message, Part, ToolDefinition};

/// The message with all its calls turned into approval requests, if any of the called tools needs
/// consent; else the message as it is.
///
/// The whole batch waits together, because its results go back together. The id of a request is
/// made of the message's id, so it is unique in the conversation. A message that was turned
/// already comes back unchanged.
///
/// ```
/// use tower_chat::{approval::request_approvals, core::{Message, ToolCall, ToolDefinition}};
/// let tools = [ToolDefinition::new("pay", "Pays.", serde_json::json!({})).needs_approval()];
/// let message = Message::tool_calls([ToolCall::new("c1", "pay", "{}")]);
/// let waiting = request_approvals(message.into(), &tools);
/// assert_eq!(waiting.calls().count(), 0);
/// ```
pub fn request_approvals(message: Arc<Message>, tools: &[ToolDefinition]) -> Arc<Message> {
    let needs_approval =
        |name: &str| tools.iter().any(|tool| tool.needs_approval && tool.name == name);
    if !message.calls().any(|call| needs_approval(&call.name)) {
        return message;
    }
    let prefix = match message.id {
        Some(id) => format!("approval_{:016x}_{}", id.run.random_half(), id.index),
        None => "approval".to_owned(),
    };
    let mut message = Arc::unwrap_or_clone(message);
    let mut index = 0;
    for part in &mut message.parts {
        if let Part::ToolCall(call) = part
            && !call.provider_executed
        {
            let required = needs_approval(&call.name);
            let request = ApprovalRequest::new(format!("{prefix}_{index}"), call.clone(), required);
            *part = Part::ApprovalRequest(request);
            index += 1;
        }
    }
    Arc::new(message)
}
