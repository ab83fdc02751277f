//! Removes results from the parts of a message, and inserts others.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use tower_chat_core::{Message, Part, Role, ToolResult};

use super::REMOVED_RESULTS;

/// The changes to the results of one message.
#[derive(Debug, Default)]
pub(super) struct Edit {
    /// The indices of the removed results among the results of the message.
    removed: BTreeSet<u32>,
    /// The inserted results, by the index of the stored part before which they are inserted. Results at the
    /// end have the number of parts as their index.
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
            // The message contained only results, and all of them were removed. Replay omits an empty
            // message of a tool; with another role, a provider would receive a message without content.
            edited.role = Role::Tool;
        }
        edited
    }
}

/// Moves the removed results to the metadata of the message, which is not sent to a model.
fn keep(message: &mut Message, removed: &[&ToolResult]) {
    // The results are stored as texts, because texts preserve each byte of a provider's native item.
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
            // A value that another program has stored under this key becomes the first entry of the list.
            texts.splice(0..0, message.metadata.remove(REMOVED_RESULTS));
            message.metadata.insert(REMOVED_RESULTS.to_owned(), texts.into());
        }
    }
}
