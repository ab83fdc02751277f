//! Reads and writes reasoning items.
//!
//! A native item contains a provider's own JSON fields of a message or part, which the common types
//! do not have. It belongs to one wire (a provider's JSON format), and is written only on this
//! wire.

use tower_chat_core::{Native, RawJson, Reasoning};

use super::WIRE;
use crate::fields::{Fields, raw};

/// The type of the item.
pub(super) const ITEM: &str = "reasoning";

/// The separator between the pieces of readable reasoning.
const SEPARATOR: &str = "\n\n";

/// Reads the reasoning of an item. The native item contains the whole item.
pub(super) fn parse(item: RawJson, fields: &Fields) -> Reasoning {
    let mut reasoning = Reasoning::new(readable_text(fields));
    reasoning.native = Some(Native::new(WIRE, item));
    reasoning
}

/// Writes the item of reasoning. A text that the application has changed replaces the summary and
/// the content of the item. Returns `None` for reasoning that was read from another wire.
pub(super) fn render(reasoning: &Reasoning) -> Option<RawJson> {
    let native = reasoning.native.as_ref()?;
    let mut fields = Fields::of_native(Some(native), WIRE)?;
    if !fields.is_text("type", ITEM) {
        return None;
    }
    if readable_text(&fields) == reasoning.text {
        return Some(native.item.clone());
    }
    fields.take("content");
    let mut summary = Vec::new();
    if !reasoning.text.is_empty() {
        let mut piece = Fields::default();
        piece.set("type", raw("summary_text"));
        piece.set("text", raw(&reasoning.text));
        summary.push(piece);
    }
    fields.set("summary", raw(&summary));
    Some(raw(&fields))
}

fn readable_text(fields: &Fields) -> String {
    let pieces = ["summary", "content"].into_iter().filter_map(|field| fields.get(field));
    let pieces = pieces.filter_map(|pieces| pieces.parse::<Vec<Fields>>().ok()).flatten();
    let texts: Vec<String> = pieces.filter_map(|piece| piece.text("text")).collect();
    texts.join(SEPARATOR)
}
