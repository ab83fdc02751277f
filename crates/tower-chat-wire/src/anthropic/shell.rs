//! What is kept of a message, or of the field `system`, beside its blocks.

use tower_chat_core::{Message, Native, Part};

use super::WIRE;
use crate::fields::Fields;

/// The field of a request body that holds the system instructions.
pub(super) const SYSTEM: &str = "system";

/// The fields of a message, if a part keeps them; only such an item has a role.
pub(super) fn of_message(message: &Message) -> Option<Fields> {
    message.parts.iter().filter_map(fields_of).find(|fields| fields.contains("role"))
}

/// The field `system`, if a part keeps it because it had no block.
pub(super) fn of_system(message: &Message) -> Option<Fields> {
    message.parts.iter().filter_map(fields_of).find(is_of_system)
}

/// Whether the native item is a content block.
pub(super) fn is_block(native: &Native) -> bool {
    Fields::of_native(Some(native), WIRE)
        .is_some_and(|fields| !fields.contains("role") && !is_of_system(&fields))
}

fn is_of_system(fields: &Fields) -> bool {
    fields.contains(SYSTEM) && !fields.contains("type")
}

fn fields_of(part: &Part) -> Option<Fields> {
    let Part::Native(native) = part else { return None };
    Fields::of_native(Some(native), WIRE)
}
