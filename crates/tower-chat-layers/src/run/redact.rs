//! Applies the decisions of hooks to calls and results, and marks the messages whose content was
//! removed.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{Message, Part, Role, ToolResult};

/// The metadata key of a stored message for the positions of its calls whose arguments a hook has
/// changed. An attempt that resumes the run must not run these calls.
const ARGUMENTS_NOT_KEPT: &str = "arguments_not_kept";

/// The metadata key of stored messages of a response whose tool calls were all removed by hooks. Such
/// messages are not a final answer, although they contain no call.
const CALLS_NOT_KEPT: &str = "calls_not_kept";

/// Removes calls (`None`) or replaces their arguments, as the hooks have decided. Other calls remain
/// unchanged.
pub(super) fn redact_calls(message: &mut Arc<Message>, changes: Vec<(usize, Option<String>)>) {
    if changes.is_empty() {
        return;
    }
    let mut changes = changes.into_iter().peekable();
    let mut index = 0;
    let mut not_kept = Vec::new();
    let mut retained = 0_u32;
    let message = Arc::make_mut(message);
    message.parts.retain_mut(|part| {
        let call = match part {
            Part::ToolCall(call) if !call.provider_executed => call,
            Part::ApprovalRequest(request) => &mut request.call,
            _ => return true,
        };
        let change = changes.next_if(|(changed, _)| *changed == index);
        index += 1;
        match change {
            Some((_, None)) => return false,
            Some((_, Some(arguments))) => {
                if call.arguments != arguments {
                    not_kept.push(Value::from(retained));
                }
                call.arguments = arguments;
                call.native = None;
            }
            None => {}
        }
        retained += 1;
        true
    });
    if !not_kept.is_empty() {
        message.metadata.insert(ARGUMENTS_NOT_KEPT.to_owned(), Value::Array(not_kept));
    }
}

/// Marks the response at the end of a write if it contains no call any more and the message at
/// `forgotten` is part of it. `forgotten` is the index of the last message from which calls were
/// removed.
pub(super) fn mark_without_calls(stored: &mut [Arc<Message>], forgotten: usize) {
    let is_response = |message: &&Arc<Message>| message.role == Role::Assistant;
    let first = stored.len() - stored.iter().rev().take_while(is_response).count();
    let response = stored.get_mut(first..).unwrap_or_default();
    if forgotten < first || response.iter().any(|message| message.asked_calls().next().is_some()) {
        return;
    }
    for message in response {
        let metadata = &mut Arc::make_mut(message).metadata;
        metadata.insert(CALLS_NOT_KEPT.to_owned(), Value::Bool(true));
    }
}

/// Returns whether a stored message is part of a response whose calls were all removed.
pub(crate) fn is_without_calls(message: &Message) -> bool {
    message.metadata.get(CALLS_NOT_KEPT) == Some(&Value::Bool(true))
}

/// Returns the positions of the calls in a stored message whose arguments differ from those of the
/// model.
pub(crate) fn calls_without_arguments(message: &Message) -> impl Iterator<Item = usize> {
    let positions = message.metadata.get(ARGUMENTS_NOT_KEPT).and_then(Value::as_array);
    let positions = positions.map(Vec::as_slice).unwrap_or_default();
    positions.iter().filter_map(|position| usize::try_from(position.as_u64()?).ok())
}

/// Removes results (`None`) or replaces them. Other results remain unchanged.
pub(super) fn redact_results(
    message: &mut Arc<Message>,
    changes: Vec<(usize, Option<Box<ToolResult>>)>,
) {
    if changes.is_empty() {
        return;
    }
    let mut changes = changes.into_iter().peekable();
    let mut index = 0;
    Arc::make_mut(message).parts.retain_mut(|part| {
        let Part::ToolResult(result) = part else { return true };
        let change = changes.next_if(|(changed, _)| *changed == index);
        index += 1;
        match change {
            Some((_, None)) => return false,
            Some((_, Some(changed))) => *result = *changed,
            None => {}
        }
        true
    });
}
