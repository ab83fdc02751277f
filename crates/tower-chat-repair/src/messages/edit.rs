//! Removes results from the parts of a message, and inserts other results.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tower_chat_core::{Message, Part, Role, ToolResult};

use super::REMOVED_RESULTS;

/// The changes to the results of one message.
#[derive(Debug, Default)]
pub(super) struct Edit {
    /// The indices of the results to remove, counted over the results of the message only.
    removed: BTreeSet<u32>,
    /// The results to insert. The key is the index of the part before which the results are
    /// inserted, or the number of parts if the results are appended to the message.
    inserted: BTreeMap<usize, Vec<ToolResult>>,
}

impl Edit {
    pub(super) fn remove(&mut self, result: u32) {
        self.removed.insert(result);
    }

    pub(super) fn insert(&mut self, part: usize, result: ToolResult) {
        self.inserted.entry(part).or_default().push(result);
    }

    pub(super) fn apply(&self, message: &Message) -> Message {
        let mut removed = Vec::new();
        let mut parts = Vec::new();
        let mut results = 0..;
        let inserted = |position| {
            let here = self.inserted.get(&position).into_iter().flatten();
            here.cloned().map(Part::ToolResult)
        };
        for (position, part) in message.parts.iter().enumerate() {
            parts.extend(inserted(position));
            match part {
                Part::ToolResult(result)
                    if results.next().is_some_and(|it| self.removed.contains(&it)) =>
                {
                    removed.push(result);
                }
                part => parts.push(part.clone()),
            }
        }
        parts.extend(inserted(message.parts.len()));
        let mut edited = message.with_parts(parts);
        keep(&mut edited, &removed);
        if edited.parts.is_empty() && edited.role != Role::Assistant {
            // All parts of the message were results, and all of them were removed. The role is set
            // to `Tool`, because a replay (the conversion to the messages of a request) omits an
            // empty message only if the message has this role. With another role, the provider
            // would receive a message without content.
            edited.role = Role::Tool;
        }
        edited
    }
}

/// Adds the removed results to the metadata of the message. Metadata is not sent to a model.
fn keep(message: &mut Message, removed: &[&ToolResult]) {
    // Each result is stored as its JSON text instead of a JSON object, because the text preserves
    // every byte of an item in the provider's own format.
    #[allow(clippy::expect_used, reason = "all map keys in a result are strings")]
    let texts = removed.iter().map(|result| {
        Value::from(serde_json::to_string(result).expect("a result has a JSON form"))
    });
    let mut texts: Vec<Value> = texts.collect();
    if texts.is_empty() {
        return;
    }
    match message.metadata.get_mut(REMOVED_RESULTS) {
        Some(Value::Array(earlier)) => earlier.append(&mut texts),
        Some(_) | None => {
            // If another program has stored a value under this key, that value becomes the first
            // entry of the list.
            texts.splice(0..0, message.metadata.remove(REMOVED_RESULTS));
            message.metadata.insert(REMOVED_RESULTS.to_owned(), texts.into());
        }
    }
}
