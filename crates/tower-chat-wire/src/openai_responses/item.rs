//! Items that are written, and what each is to those around it.

use tower_chat_core::RawJson;

/// An item of the list that is written.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) json: RawJson,
    pub(super) kind: ItemKind,
}

/// What an item is to those around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ItemKind {
    /// A message of the model.
    AssistantMessage,
    /// Any other message.
    OtherMessage,
    /// Reasoning, which belongs to what follows it.
    Reasoning,
    /// A call, or anything else that the model puts out.
    ModelOutput,
    /// The answer to the call at an index, if the list has that call.
    Output { call: Option<usize> },
}

impl ItemKind {
    /// Whether it is a message, which may not stand between a call and its output.
    pub(super) fn is_message(self) -> bool {
        matches!(self, Self::AssistantMessage | Self::OtherMessage)
    }
}
