//! What is kept of a message, or of the field `system`, beside its blocks.

use tower_chat_core::{Message, Native, Part, RawJson};

use super::WIRE;
use crate::fields::Fields;

/// The field of a request body that holds the system instructions.
pub(super) const SYSTEM: &str = "system";

/// What a native part of this wire is.
#[derive(Debug)]
pub(super) enum Item {
    /// Here a message begins, with these fields beside its content; only such an item has a role.
    Message(Fields),
    /// The field `system`, which had no block.
    System(RawJson),
    /// A content block.
    Block,
}

impl Item {
    /// What the item is, or `None` for one of another wire.
    pub(super) fn of(native: &Native) -> Option<Self> {
        let mut fields = Fields::of_native(Some(native), WIRE)?;
        if fields.contains("role") {
            return Some(Self::Message(fields));
        }
        if fields.contains("type") {
            return Some(Self::Block);
        }
        fields.take(SYSTEM).map(Self::System)
    }
}

/// Whether the message is one of the list `messages`, with a begin of its own.
pub(super) fn begins(message: &Message) -> bool {
    let Some(Part::Native(native)) = message.parts.first() else { return false };
    matches!(Item::of(native), Some(Item::Message(_)))
}
