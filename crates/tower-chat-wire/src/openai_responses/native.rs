//! Distinguishes the native parts of this wire.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire. A native part consists only of a native item.

use tower_chat_core::{Native, RawJson};

use super::WIRE;
use crate::fields::{Fields, raw};

/// The meaning of a native part of this wire.
#[derive(Debug)]
pub(super) enum NativeForm {
    /// A message item without its content. The parts after the native part are the content.
    Message(Fields),
    /// Content parts.
    Content(Vec<RawJson>),
    /// An item of an unknown type.
    Item,
}

impl NativeForm {
    /// Returns the meaning of a native part of this wire.
    pub(super) fn of_native(native: &Native) -> Option<Self> {
        let fields = Fields::of_native(Some(native), WIRE)?;
        if fields.text("type").is_some_and(|kind| kind != "message") {
            Some(Self::Item)
        } else if fields.contains("role") {
            Some(Self::Message(fields))
        } else {
            Some(Self::Content(fields.get("content")?.parse().ok()?))
        }
    }

    /// Creates the native item for a content part of an unknown type.
    pub(super) fn content(part: RawJson) -> Native {
        let mut fields = Fields::default();
        fields.set("content", raw(&[part]));
        fields.into_native(WIRE)
    }
}
