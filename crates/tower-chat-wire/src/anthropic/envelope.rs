//! Envelopes: native parts with the fields of a message besides its blocks.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use tower_chat_core::{Message, Native, Part, RawJson};

use super::WIRE;
use crate::fields::Fields;

/// The name of the field of a request body that contains the system instructions.
pub(super) const SYSTEM: &str = "system";

/// The meaning of a native part of this wire.
#[derive(Debug)]
pub(super) enum Item {
    /// The envelope at the beginning of a message. Only an envelope has the field `role`.
    Message(Fields),
    /// The value of a field `system` that is `null`, blank or an empty list.
    System(RawJson),
    /// A content block.
    Block,
}

impl Item {
    /// Returns the meaning of a native part of this wire.
    pub(super) fn of_native(native: &Native) -> Option<Self> {
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

/// Returns whether the message begins with the envelope of a message in the list `messages`.
pub(super) fn is_at_beginning(message: &Message) -> bool {
    let Some(Part::Native(native)) = message.parts.first() else { return false };
    matches!(Item::of_native(native), Some(Item::Message(_)))
}
