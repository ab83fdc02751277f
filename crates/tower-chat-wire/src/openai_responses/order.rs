//! Puts items into the order that services require.

use tower_chat_core::RawJson;

use super::item::{Item, ItemKind};
use crate::fields::{Fields, raw};

/// Puts the items into the order that services require.
pub(super) fn ordered_items(items: Vec<Item>) -> Vec<Item> {
    without_broken_links(without_lone_reasoning(with_outputs_at_calls(items)))
}

/// The beginning of OpenAI's ids of reasoning items.
const REASONING_ID_PREFIX: &str = "rs_";

/// Removes OpenAI's id of reasoning that is directly before a message of the model without an id,
/// or before other reasoning.
///
/// With the id of reasoning, OpenAI stores the id of the next item of the answer, and refuses an
/// input in which a message without this id follows the reasoning. If the reasoning has no id,
/// OpenAI reads its encrypted content instead. Reasoning that would have neither is omitted.
fn without_broken_links(items: Vec<Item>) -> Vec<Item> {
    let mut kept: Vec<Item> = Vec::with_capacity(items.len());
    for mut item in items.into_iter().rev() {
        if item.kind == ItemKind::Reasoning && kept.last().is_some_and(breaks_link) {
            match without_id(&item.json) {
                Some(json) => item.json = json,
                None => continue,
            }
        }
        kept.push(item);
    }
    kept.reverse();
    kept
}

/// Returns whether OpenAI refuses reasoning with an id if this item follows the reasoning.
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

/// Returns reasoning without OpenAI's id, if it has one. Returns `None` if such reasoning has no
/// encrypted content.
fn without_id(json: &RawJson) -> Option<RawJson> {
    let Ok(mut fields) = json.parse::<Fields>() else { return Some(json.clone()) };
    if !fields.text("id").is_some_and(|id| id.starts_with(REASONING_ID_PREFIX)) {
        return Some(json.clone());
    }
    fields.take("id");
    let has_content = fields.text("encrypted_content").is_some_and(|content| !content.is_empty());
    has_content.then(|| raw(&fields))
}

/// Moves an output before the first message between its call and the output.
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
        // The output must follow its call, and reasoning must precede its message.
        let reasoning = reasoning.get(message).copied().unwrap_or_default();
        (message < index).then(|| (message - reasoning).max(call + 1))
    };
    let targets: Vec<Option<usize>> =
        items.iter().enumerate().map(|(index, item)| target(index, item.kind)).collect();
    if targets.iter().all(Option::is_none) {
        return items;
    }
    // The sort is stable, so that the order of outputs with the same target does not change.
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

/// Returns, for each item, the number of reasoning items directly before it.
fn reasoning_before(items: &[Item]) -> Vec<usize> {
    let mut count = 0;
    let before = items.iter().map(|item| {
        let before = count;
        count = if item.kind == ItemKind::Reasoning { count + 1 } else { 0 };
        before
    });
    before.collect()
}

/// Omits reasoning unless the next item that is not reasoning is from the model: a message, a call
/// or another output of the model.
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
