//! Applies the decisions of [`persist`](crate::Tool::persist) hooks to the calls and results in
//! messages, and marks the messages from which hooks have removed content.

use std::sync::Arc;

use serde_json::Value;
use tower_chat_core::{Message, Part, ToolResult};

use super::last_answer::response_at_end;
use crate::replay::{forgotten_ids, has_results_not_kept};

/// The metadata key for the calls of a stored message whose arguments a hook has changed. The value
/// contains the indices of these calls, which do not count provider-executed calls. An attempt that
/// resumes the run must not run these calls.
const ARGUMENTS_NOT_KEPT: &str = "arguments_not_kept";

/// The metadata key that marks a response from which hooks have removed all calls. The response
/// would otherwise look like a final answer.
const CALLS_NOT_KEPT: &str = "calls_not_kept";

/// Removes calls (`None`) or replaces their arguments (`Some`). Each change begins with the index
/// of a call in the unchanged message, which does not count provider-executed calls. The indices
/// ascend.
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

/// Marks the response (all assistant messages at the end of `stored`) if hooks have removed all its
/// calls. `forgotten` is the index of the last message from which hooks have removed calls.
pub(super) fn mark_without_calls(stored: &mut [Arc<Message>], forgotten: usize) {
    let first = stored.len() - response_at_end(stored).len();
    let response = stored.get_mut(first..).unwrap_or_default();
    if forgotten < first || response.iter().any(|message| message.asked_calls().next().is_some()) {
        return;
    }
    for message in response {
        let metadata = &mut Arc::make_mut(message).metadata;
        metadata.insert(CALLS_NOT_KEPT.to_owned(), Value::Bool(true));
    }
}

/// Returns whether a message is part of a response from which hooks have removed all calls.
pub(crate) fn is_without_calls(message: &Message) -> bool {
    message.metadata.get(CALLS_NOT_KEPT) == Some(&Value::Bool(true))
}

/// Returns the indices of the calls of a stored message whose arguments a hook has changed.
/// Provider-executed calls are not counted.
pub(crate) fn calls_without_arguments(message: &Message) -> impl Iterator<Item = usize> {
    indices_in(message, ARGUMENTS_NOT_KEPT)
}

/// Returns the indices in a metadata value of a message.
pub(super) fn indices_in<'m>(
    message: &'m Message,
    key: &str,
) -> impl Iterator<Item = usize> + use<'m> {
    let indices = message.metadata.get(key).and_then(Value::as_array);
    let indices = indices.map(Vec::as_slice).unwrap_or_default();
    indices.iter().filter_map(|index| usize::try_from(index.as_u64()?).ok())
}

/// Removes results (`None`) or replaces them (`Some`). Each change begins with the index of a
/// result. The indices ascend.
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

/// The content that was removed from a message before the message was stored, because the hooks of
/// the tools ([`Tool::persist`](crate::Tool::persist)) did not allow the content to be stored.
///
/// ```
/// use tower_chat::{Message, run::NotKept};
/// assert_eq!(NotKept::in_message(&Message::user("hi")), NotKept::default());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotKept {
    /// Whether the message belongs to an answer whose tool calls were all removed.
    pub calls: bool,
    /// The indices, among the stored calls of the message, of the calls whose stored arguments
    /// differ from the arguments in the model's answer.
    pub arguments: Vec<usize>,
    /// The ids of the calls whose results are not stored. `None` if all results are stored.
    pub results: Option<Vec<String>>,
}

impl NotKept {
    /// Reads the removed content from the marks in a stored message.
    pub fn in_message(message: &Message) -> Self {
        Self {
            calls: is_without_calls(message),
            arguments: calls_without_arguments(message).collect(),
            results: has_results_not_kept(message)
                .then(|| forgotten_ids(message).map(str::to_owned).collect()),
        }
    }
}
