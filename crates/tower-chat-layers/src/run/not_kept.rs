//! The content of a message that the hooks of tools have removed before the message was stored.

use tower_chat_core::Message;

use super::redact::{calls_without_arguments, is_without_calls};
use crate::replay::{forgotten_ids, has_results_not_kept};

/// The content of a message that was removed before the message was stored, because the hooks of its
/// tools ([`Tool::persist`](crate::Tool::persist)) did not allow the content to be stored.
///
/// ```
/// use tower_chat::{Message, run::NotKept};
/// assert_eq!(NotKept::in_message(&Message::user("hi")), NotKept::default());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotKept {
    /// Whether the message belongs to an answer with tool calls, none of which is stored.
    pub calls: bool,
    /// The calls of the message whose stored arguments differ from those of the model, as indices among
    /// its stored calls.
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
