//! Blocks of the types `thinking` and `redacted_thinking`.

use tower_chat_core::{RawJson, Reasoning};

use super::WIRE;
use crate::fields::{Fields, raw};

pub(super) const THINKING: &str = "thinking";
pub(super) const REDACTED: &str = "redacted_thinking";

/// The reasoning of a block, or `None` if it has not what its type demands.
pub(super) fn parse(block: &Fields) -> Option<Reasoning> {
    let mut fields = block.clone();
    let text =
        if fields.is_text("type", THINKING) { fields.take_text(THINKING)? } else { String::new() };
    let mut reasoning = Reasoning::new(text);
    reasoning.native = Some(fields.into_native(WIRE));
    Some(reasoning)
}

/// The block of reasoning, or `None` for reasoning that the service did not sign.
pub(super) fn render(reasoning: &Reasoning) -> Option<RawJson> {
    let native = reasoning.native.as_ref()?;
    let mut fields = Fields::of_native(Some(native), WIRE)?;
    match fields.text("type")?.as_str() {
        REDACTED => Some(native.item.clone()),
        THINKING if fields.text("signature").is_some_and(|signature| !signature.is_empty()) => {
            fields.set(THINKING, raw(&reasoning.text));
            Some(raw(&fields))
        }
        _ => None,
    }
}
