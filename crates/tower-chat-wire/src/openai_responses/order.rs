//! The order that servers demand of items.

use super::item::{Item, ItemKind};

/// Puts outputs before any message between them and their call, and leaves out reasoning that
/// nothing of the model follows.
pub(super) fn in_order(items: Vec<Item>) -> Vec<Item> {
    without_lone_reasoning(with_outputs_at_calls(items))
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
    let target = |index: usize, kind: ItemKind| {
        let ItemKind::Output { call: Some(call) } = kind else { return None };
        let message = next_message.get(call).copied().flatten()?;
        (message < index).then(|| before_reasoning(&items, call, message))
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
    placed.sort_by_key(|(place, _)| *place);
    placed.into_iter().map(|(_, item)| item).collect()
}

/// Where the reasoning begins that leads to a message; after the call in any case.
fn before_reasoning(items: &[Item], call: usize, message: usize) -> usize {
    let between = items.get(call + 1..message).unwrap_or_default();
    let reasoning =
        between.iter().rev().take_while(|item| item.kind == ItemKind::Reasoning).count();
    message - reasoning
}

fn without_lone_reasoning(items: Vec<Item>) -> Vec<Item> {
    let mut is_followed = false;
    let mut kept: Vec<Item> = Vec::with_capacity(items.len());
    for item in items.into_iter().rev() {
        match item.kind {
            ItemKind::Reasoning if !is_followed => continue,
            ItemKind::Reasoning => {}
            ItemKind::Said | ItemKind::PutOut => is_followed = true,
            ItemKind::Told | ItemKind::Output { .. } => is_followed = false,
        }
        kept.push(item);
    }
    kept.reverse();
    kept
}
