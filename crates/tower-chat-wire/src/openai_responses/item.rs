//! The items of an input under construction.

use tower_chat_core::RawJson;

/// An item of the list under construction.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) json: RawJson,
    pub(super) kind: ItemKind,
}

/// The kind of an item, as far as its order depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A message of the model.
    AssistantMessage,
    /// Any other message.
    OtherMessage,
    /// Reasoning, which belongs to the next item.
    Reasoning,
    /// A call, or any other output of the model.
    ModelOutput,
    /// The output of a call. `call` is the index of the call in the list of items, if the list has the call.
    Output { call: Option<usize> },
}

impl ItemKind {
    /// Returns whether the item is a message. A message is not allowed between a call and its
    /// output.
    pub(super) fn is_message(self) -> bool {
        matches!(self, Self::AssistantMessage | Self::OtherMessage)
    }
}
