//! Reads and writes blocks of the types `thinking` and `redacted_thinking`.
//!
//! Reasoning is stored with a native item, which contains the other fields of its block.

use tower_chat_core::{Native, RawJson, Reasoning};

use super::WIRE;
use crate::fields::{Fields, raw};

pub(super) const THINKING: &str = "thinking";
pub(super) const REDACTED: &str = "redacted_thinking";

/// Reads the reasoning of a block. Returns `None` for a `thinking` block without a text.
pub(super) fn parse(block: &Fields) -> Option<Reasoning> {
    let mut fields = block.clone();
    let text =
        if fields.is_text("type", THINKING) { fields.take_text(THINKING)? } else { String::new() };
    let mut reasoning = Reasoning::new(text);
    reasoning.native = Some(fields.into_native(WIRE));
    Some(reasoning)
}

/// Writes the block of reasoning. Returns `None` for reasoning that was read from another
/// provider's format, and for a `thinking` block of Anthropic without a signature. Other services
/// with this format accept thinking without a signature, and some require it.
pub(super) fn render(reasoning: &Reasoning) -> Option<RawJson> {
    let native = reasoning.native.as_ref()?;
    let mut fields = Fields::of_native(Some(native), WIRE)?;
    match fields.text("type")?.as_str() {
        REDACTED => Some(native.item.clone()),
        THINKING if is_signed(&fields) || is_of_other_service(native) => {
            fields.set(THINKING, raw(&reasoning.text));
            Some(raw(&fields))
        }
        _ => None,
    }
}

/// Returns whether [`render`] writes a block for the reasoning.
pub(crate) fn is_sent(reasoning: &Reasoning) -> bool {
    render(reasoning).is_some()
}

fn is_signed(block: &Fields) -> bool {
    block.text("signature").is_some_and(|signature| !signature.is_empty())
}

/// Returns whether another service than Anthropic issued the block.
fn is_of_other_service(native: &Native) -> bool {
    native.issuer.as_deref().is_some_and(|issuer| issuer != "anthropic")
}
