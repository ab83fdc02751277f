//! Applies the decisions of [`persist`](crate::Tool::persist) hooks to the calls and results in
//! messages, and marks the messages from which hooks have removed content.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{Message, Part, Role, ToolResult};

/// The metadata key under which a stored message lists those of its calls whose arguments a hook
/// has changed. The value contains the index, from 0, of each such call among the stored calls of
/// the message. The index counts calls in approval requests, but no provider-executed calls. An
/// attempt that resumes the run must not run these calls.
const ARGUMENTS_NOT_KEPT: &str = "arguments_not_kept";

/// The metadata key that marks the stored messages of a response from which hooks have removed all
/// calls. Without the mark, such a response would look like a final answer.
const CALLS_NOT_KEPT: &str = "calls_not_kept";

/// Removes calls (`None`) or replaces their arguments (`Some`), as the hooks have decided. Other
/// calls do not change.
///
/// Each change begins with the index of a call in the unchanged `message`, counted without
/// provider-executed calls. The changes must be in ascending order of this index.
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

/// Marks the response at the end of `stored` if hooks have removed all its calls. The response
/// consists of all assistant messages at the end of `stored`.
///
/// `forgotten` is the index in `stored` of the last message from which hooks have removed calls. If
/// this message is not part of the response, does nothing.
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

/// Returns whether a stored message is part of a response that contains no calls because hooks have
/// removed them.
pub(crate) fn is_without_calls(message: &Message) -> bool {
    message.metadata.get(CALLS_NOT_KEPT) == Some(&Value::Bool(true))
}

/// Returns the indices of those calls of a stored message whose arguments a hook has changed. The
/// indices count the stored calls that the provider did not execute.
pub(crate) fn calls_without_arguments(message: &Message) -> impl Iterator<Item = usize> {
    let positions = message.metadata.get(ARGUMENTS_NOT_KEPT).and_then(Value::as_array);
    let positions = positions.map(Vec::as_slice).unwrap_or_default();
    positions.iter().filter_map(|position| usize::try_from(position.as_u64()?).ok())
}

/// Removes results (`None`) or replaces results (`Some`). Other results do not change. Each change
/// begins with the index of a result among the results of `message`. The changes must be in
/// ascending order of this index.
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
