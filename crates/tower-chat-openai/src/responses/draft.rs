//! The items of a streamed response as far as they have come.

use tower_chat_core::{RawJson, ToolCallDelta};

use crate::merge::{Object, as_text, raw};

/// The items so far, in the order in which they began.
#[derive(Debug, Default)]
pub(super) struct Draft {
    items: Vec<DraftItem>,
}

#[derive(Debug)]
struct DraftItem {
    /// Its place in the output, as the service says it.
    place: Option<RawJson>,
    /// As it began, and whole once it is done.
    fields: Object,
    /// It as it came, once it is done.
    done: Option<RawJson>,
    /// What its pieces have added up to.
    text: String,
}

impl Draft {
    /// An item begins; gives the call that it is, if it is one of the caller's tools.
    pub(super) fn begin(&mut self, event: &Object) -> Option<ToolCallDelta> {
        let fields: Object = event.get("item")?.parse().ok()?;
        let call = is_call(&fields).then(|| {
            let mut call = ToolCallDelta::new(self.items.len(), "");
            let text = |name| fields.get(name).and_then(as_text).filter(|text| !text.is_empty());
            call.id = text("call_id");
            call.name = text("name");
            call
        });
        let place = event.get("output_index").cloned();
        self.items.push(DraftItem { place, fields, done: None, text: String::new() });
        call
    }

    /// An item is done.
    pub(super) fn end(&mut self, event: &Object) {
        let Some(item) = event.get("item") else { return };
        let fields: Object = item.parse().unwrap_or_default();
        let begun = self.index_of(event, fields.get("id"));
        match begun.and_then(|index| self.items.get_mut(index)) {
            Some(begun) => begun.done = Some(item.clone()),
            None => {
                let place = event.get("output_index").cloned();
                let (done, text) = (Some(item.clone()), String::new());
                self.items.push(DraftItem { place, fields, done, text });
            }
        }
    }

    /// An item goes on; gives its index.
    pub(super) fn extend(&mut self, event: &Object, more: &str) -> usize {
        let index = self.index_of(event, event.get("item_id"));
        let index = index.unwrap_or_else(|| self.items.len().saturating_sub(1));
        if let Some(item) = self.items.get_mut(index) {
            item.text.push_str(more);
        }
        index
    }

    /// The items: those that are done as they came, and of the others as much as came, with the
    /// status of the response.
    pub(super) fn into_items(self, status: &str) -> Vec<RawJson> {
        self.items.into_iter().filter_map(|item| item.into_json(status)).collect()
    }

    fn index_of(&self, event: &Object, id: Option<&RawJson>) -> Option<usize> {
        let place = event.get("output_index");
        let by_place = || self.items.iter().rposition(|item| item.place.as_ref() == place);
        let by_id = || self.items.iter().rposition(|item| item.fields.get("id") == id);
        match (place, id) {
            (Some(_), _) => by_place(),
            (None, Some(_)) => by_id(),
            (None, None) => None,
        }
    }
}

impl DraftItem {
    /// The item; `None` of reasoning that was cut off, since no service takes it back.
    fn into_json(self, status: &str) -> Option<RawJson> {
        if self.done.is_some() {
            return self.done;
        }
        let mut fields = self.fields;
        let kind = fields.get("type").and_then(as_text).unwrap_or_default();
        match kind.as_str() {
            "reasoning" => return None,
            // It may have begun whole.
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

fn is_call(item: &Object) -> bool {
    let kind = item.get("type").map(RawJson::get);
    matches!(kind, Some(r#""function_call""# | r#""custom_tool_call""#))
}
