//! Accumulates the items of a streamed response.

use std::collections::HashMap;

use tower_chat_core::{RawJson, ToolCallDelta};

use super::kind::CallKind;
use crate::{
    fields::Fields,
    object::{Object, as_text, raw},
    stream::Indexed,
};

/// The accumulated items, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// The items, which can be found by their `output_index`.
    items: Indexed<StreamedItem>,
    /// For each id: the position in `items` of the newest item with this id.
    by_id: HashMap<String, usize>,
}

#[derive(Debug)]
struct StreamedItem {
    /// The fields of the item in the first event with the item.
    fields: Object,
    /// The whole item, from the event that ended the item.
    done: Option<RawJson>,
    /// The accumulated deltas of the item.
    text: String,
}

impl Items {
    /// Begins an item. Returns an update if the item is a call of a client's tool.
    pub(super) fn begin(&mut self, event: &Object) -> Option<ToolCallDelta> {
        let fields: Object = event.get("item")?.parse().ok()?;
        let call = is_call(&fields).then(|| {
            let mut call = ToolCallDelta::new(self.items.as_slice().len(), "");
            let text = |name| fields.get(name).and_then(as_text).filter(|text| !text.is_empty());
            call.id = text("call_id");
            call.name = text("name");
            call
        });
        self.push(event, StreamedItem { fields, done: None, text: String::new() });
        call
    }

    /// Stores the whole item from the event that ends the item.
    pub(super) fn end(&mut self, event: &Object) {
        let Some(item) = event.get("item") else { return };
        let fields: Object = item.parse().unwrap_or_default();
        let begun = self.index_of(event, fields.get("id"));
        match begun.and_then(|index| self.items.get_mut(index)) {
            Some(begun) => begun.done = Some(item.clone()),
            None => {
                let (done, text) = (Some(item.clone()), String::new());
                self.push(event, StreamedItem { fields, done, text });
            }
        }
    }

    fn push(&mut self, event: &Object, item: StreamedItem) {
        let id = item.fields.get("id").map(|id| id.get().to_owned());
        let position = self.items.begin(event.get("output_index"), item);
        if let Some(id) = id {
            self.by_id.insert(id, position);
        }
    }

    /// Appends a delta to its item, or to the newest item, and returns the index of this item.
    pub(super) fn extend(&mut self, event: &Object, more: &str) -> usize {
        let index = self.index_of(event, event.get("item_id"));
        let index = index.unwrap_or_else(|| self.items.as_slice().len().saturating_sub(1));
        if let Some(item) = self.items.get_mut(index) {
            item.text.push_str(more);
        }
        index
    }

    /// Returns whether the item at an index is a call of a client's tool. Returns `true` if there
    /// is no such item.
    pub(super) fn is_callers_call(&self, index: usize) -> bool {
        self.items.as_slice().get(index).is_none_or(|item| is_call(&item.fields))
    }

    /// Returns the items. An item whose end was not received gets the deltas that were received,
    /// and `status`, the status of the response.
    pub(super) fn into_items(self, status: &str) -> Vec<RawJson> {
        self.items.into_items().into_iter().filter_map(|item| item.into_json(status)).collect()
    }

    fn index_of(&self, event: &Object, id: Option<&RawJson>) -> Option<usize> {
        match (event.get("output_index"), id) {
            (Some(index), _) => self.items.position(Some(index)),
            (None, Some(id)) => self.by_id.get(id.get()).copied(),
            (None, None) => None,
        }
    }
}

impl StreamedItem {
    /// Returns the item, or `None` for reasoning that was cut off, which no service accepts.
    fn into_json(self, status: &str) -> Option<RawJson> {
        if self.done.is_some() {
            return self.done;
        }
        let mut fields = self.fields;
        let kind = fields.get("type").and_then(as_text).unwrap_or_default();
        match kind.as_str() {
            "reasoning" => return None,
            // The event that began the item may have contained the whole item.
            _ if self.text.is_empty() => {}
            "function_call" => drop(fields.insert("arguments".to_owned(), raw(&self.text))),
            "custom_tool_call" => drop(fields.insert("input".to_owned(), raw(&self.text))),
            "message" => {
                let part = serde_json::json!(
                    {"type": "output_text", "text": self.text, "annotations": []}
                );
                fields.insert("content".to_owned(), raw(&[part]));
            }
            _ => {}
        }
        fields.insert("status".to_owned(), raw(status));
        Some(raw(&fields))
    }
}

/// Returns whether an item is a call of a client's tool.
fn is_call(item: &Object) -> bool {
    let kind = item.get("type").and_then(as_text).unwrap_or_default();
    let is_callers = || {
        let fields: Option<Fields> = raw(item).parse().ok();
        let kind = CallKind::of_item(&kind).zip(fields);
        kind.is_some_and(|(kind, fields)| !kind.runs_at_provider(&fields))
    };
    matches!(kind.as_str(), "function_call" | "custom_tool_call") && is_callers()
}
