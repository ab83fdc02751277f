//! What a native item of this wire, as a part of its own, stands for.

use tower_chat_core::{Native, RawJson};

use super::WIRE;
use crate::fields::{Fields, raw};

/// A native item of this wire.
#[derive(Debug)]
pub(super) enum NativeForm {
    /// A message item without its content, which follows.
    Message(Fields),
    /// Content parts.
    Content(Vec<RawJson>),
    /// A whole item.
    Item,
}

impl NativeForm {
    /// The form of a native item; `None` for one of another wire, and for what was never read here.
    pub(super) fn of(native: &Native) -> Option<Self> {
        let fields = Fields::of_native(Some(native), WIRE)?;
        if fields.text("type").is_some_and(|kind| kind != "message") {
            Some(Self::Item)
        } else if fields.contains("role") {
            Some(Self::Message(fields))
        } else {
            Some(Self::Content(fields.get("content")?.parse().ok()?))
        }
    }

    /// The native item of a content part that has no other part.
    pub(super) fn content(part: RawJson) -> Native {
        let mut fields = Fields::default();
        fields.set("content", raw(&[part]));
        fields.into_native(WIRE)
    }
}
