//! The items of an input that is being written.

use tower_chat_core::RawJson;

/// An item of an input that is being written.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) json: RawJson,
    pub(super) kind: ItemKind,
}

/// The kind of an item, on which its position in the input depends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A message of the model.
    AssistantMessage,
    /// Any other message.
    OtherMessage,
    /// Reasoning, which belongs to the next item of the model.
    Reasoning,
    /// A call, or any other output of the model.
    ModelOutput,
    /// The output of a call. `call` is the index of the call's item, if the input contains it.
    Output { call: Option<usize> },
}

impl ItemKind {
    /// Returns whether the item is a message, which must not separate a call from its output.
    pub(super) fn is_message(self) -> bool {
        matches!(self, Self::AssistantMessage | Self::OtherMessage)
    }
}
