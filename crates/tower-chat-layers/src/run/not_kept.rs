//! The content that hooks of tools have removed from a message before the message was stored.

use tower_chat_core::Message;

use super::redact::{calls_without_arguments, is_without_calls};
use crate::replay::{forgotten_ids, has_results_not_kept};

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
