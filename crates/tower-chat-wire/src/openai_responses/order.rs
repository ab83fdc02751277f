//! The order that servers demand of items.

use tower_chat_core::RawJson;

use super::item::{Item, ItemKind};
use crate::fields::{Fields, raw};

/// Puts outputs before any message between them and their call, leaves out reasoning that nothing of
/// the model follows, and takes the id from reasoning whose item has none.
pub(super) fn in_order(items: Vec<Item>) -> Vec<Item> {
    without_broken_links(without_lone_reasoning(with_outputs_at_calls(items)))
}

/// How the ids of reasoning begin that OpenAI looks for together with the item after it.
const LINKED: &str = "rs_";

/// By the id of reasoning, OpenAI finds the item that has to follow it, and refuses the input if that
/// item does not follow under its own id. So reasoning before a message without an id, and before
/// other reasoning, is written without its id; what the model thought is in its encrypted content.
/// Reasoning that has nothing but its id is left out. Calls without ids are accepted.
fn without_broken_links(items: Vec<Item>) -> Vec<Item> {
    let mut kept: Vec<Item> = Vec::with_capacity(items.len());
    for mut item in items.into_iter().rev() {
        if item.kind == ItemKind::Reasoning && kept.last().is_some_and(breaks_link) {
            match unlinked(&item.json) {
                Some(json) => item.json = json,
                None => continue,
            }
        }
        kept.push(item);
    }
    kept.reverse();
    kept
}

/// Whether the item cannot be the one that reasoning before it is linked to.
fn breaks_link(next: &Item) -> bool {
    match next.kind {
        ItemKind::Reasoning => true,
        ItemKind::AssistantMessage => {
            let id = next.json.parse::<Fields>().ok().and_then(|fields| fields.text("id"));
            id.is_none_or(|id| id.is_empty())
        }
        ItemKind::OtherMessage | ItemKind::ModelOutput | ItemKind::Output { .. } => false,
    }
}

/// Reasoning without a link; `None` if nothing is left of it.
fn unlinked(json: &RawJson) -> Option<RawJson> {
    let Ok(mut fields) = json.parse::<Fields>() else { return Some(json.clone()) };
    if !fields.text("id").is_some_and(|id| id.starts_with(LINKED)) {
        return Some(json.clone());
    }
    fields.take("id");
    let has_content = fields.text("encrypted_content").is_some_and(|content| !content.is_empty());
    has_content.then(|| raw(&fields))
}

fn with_outputs_at_calls(items: Vec<Item>) -> Vec<Item> {
    let mut next_message = vec![None; items.len()];
    let mut next = None;
    for (slot, (index, item)) in next_message.iter_mut().zip(items.iter().enumerate()).rev() {
        *slot = next;
        if item.kind.is_message() {
            next = Some(index);
        }
    }
    let reasoning = reasoning_before(&items);
    let target = |index: usize, kind: ItemKind| {
        let ItemKind::Output { call: Some(call) } = kind else { return None };
        let message = next_message.get(call).copied().flatten()?;
        // Where the reasoning begins that leads to the message; after the call in any case.
        let reasoning = reasoning.get(message).copied().unwrap_or_default();
        (message < index).then(|| (message - reasoning).max(call + 1))
    };
    let targets: Vec<Option<usize>> =
        items.iter().enumerate().map(|(index, item)| target(index, item.kind)).collect();
    if targets.iter().all(Option::is_none) {
        return items;
    }
    // The sort is stable: an output comes to stand before what was at its target, behind the
    // outputs that came there before it.
    let mut placed: Vec<((usize, bool), Item)> = items
        .into_iter()
        .zip(targets)
        .enumerate()
        .map(|(index, (item, target))| match target {
            Some(target) => ((target, false), item),
            None => ((index, true), item),
        })
        .collect();
    placed.sort_by_key(|(position, _)| *position);
    placed.into_iter().map(|(_, item)| item).collect()
}

/// How many items of reasoning stand right before each item.
fn reasoning_before(items: &[Item]) -> Vec<usize> {
    let mut count = 0;
    let before = items.iter().map(|item| {
        let before = count;
        count = if item.kind == ItemKind::Reasoning { count + 1 } else { 0 };
        before
    });
    before.collect()
}

fn without_lone_reasoning(items: Vec<Item>) -> Vec<Item> {
    let mut is_followed = false;
    let mut kept: Vec<Item> = Vec::with_capacity(items.len());
    for item in items.into_iter().rev() {
        match item.kind {
            ItemKind::Reasoning if !is_followed => continue,
            ItemKind::Reasoning => {}
            ItemKind::AssistantMessage | ItemKind::ModelOutput => is_followed = true,
            ItemKind::OtherMessage | ItemKind::Output { .. } => is_followed = false,
        }
        kept.push(item);
    }
    kept.reverse();
    kept
}
