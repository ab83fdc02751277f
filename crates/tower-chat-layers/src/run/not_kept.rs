//! What the write that stored a message has left out of it.

use tower_chat_core::Message;

use super::redact::{calls_without_arguments, is_without_calls};
use crate::replay::{forgotten_ids, has_results_not_kept};

/// What the write that stored a message has left out of it, because hooks of tools
/// ([`Tool::persist`](crate::Tool::persist)) did not let it be stored.
///
/// ```
/// use tower_chat::{Message, run::NotKept};
/// assert_eq!(NotKept::in_message(&Message::user("hi")), NotKept::default());
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NotKept {
    /// Whether the model's answer asked for tools, and none of its calls is stored.
    pub calls: bool,
    /// The positions of the message's calls whose arguments are not those that the model gave.
    pub arguments: Vec<usize>,
    /// The ids of the calls whose results are not stored, if a result is not.
    pub results: Option<Vec<String>>,
}

impl NotKept {
    /// What a stored message says of it.
    pub fn in_message(message: &Message) -> Self {
        Self {
            calls: is_without_calls(message),
            arguments: calls_without_arguments(message).collect(),
            results: has_results_not_kept(message)
                .then(|| forgotten_ids(message).map(str::to_owned).collect()),
        }
    }
}
