//! Renames documents with equal names, because the service accepts each name only once in a
//! request.

use std::collections::{HashMap, HashSet};

use tower_chat_core::RawJson;

use crate::object::{Object, as_text, raw};

const DOCUMENT: &str = "document";

/// Assigns unique names to the documents of a request. The name depends only on the document and on
/// earlier documents, so that it is the same in every request of the conversation.
#[derive(Debug, Default)]
pub(super) struct DocumentNames {
    /// The names that were written for earlier documents.
    used_names: HashSet<String>,
    /// For each name that several documents have: the number that is appended to the name of the
    /// next document with this name.
    next_number: HashMap<String, usize>,
}

impl DocumentNames {
    /// Renames each document of a message that has the name of an earlier document.
    pub(super) fn rename_in_message(&mut self, message: RawJson) -> RawJson {
        if !message.get().contains("\"document\"") {
            return message;
        }
        self.rename_in_list(&message, "content").unwrap_or(message)
    }

    /// Renames documents in the list of blocks in the field `name`. Returns `None` if none was
    /// renamed.
    fn rename_in_list(&mut self, object: &RawJson, name: &str) -> Option<RawJson> {
        let mut fields: Object = object.parse().ok()?;
        let mut blocks: Vec<RawJson> = fields.get(name)?.parse().ok()?;
        let mut has_changed = false;
        for block in &mut blocks {
            if let Some(changed) = self.rename_in_block(block) {
                *block = changed;
                has_changed = true;
            }
        }
        fields.insert(name.to_owned(), raw(&blocks));
        has_changed.then(|| raw(&fields))
    }

    fn rename_in_block(&mut self, block: &RawJson) -> Option<RawJson> {
        let mut fields: Object = block.parse().ok()?;
        let (kind, value) = fields.first_key_value()?;
        let (kind, changed) = match kind.as_str() {
            "toolResult" => ("toolResult", self.rename_in_list(value, "content")?),
            DOCUMENT => (DOCUMENT, self.rename_in_document(value)?),
            _ => return None,
        };
        fields.insert(kind.to_owned(), changed);
        Some(raw(&fields))
    }

    fn rename_in_document(&mut self, document: &RawJson) -> Option<RawJson> {
        let mut fields: Object = document.parse().ok()?;
        let name = fields.get("name").and_then(as_text)?;
        if self.used_names.insert(name.clone()) {
            return None;
        }
        let number = self.next_number.entry(name.clone()).or_insert(2);
        let free = loop {
            // The service accepts names of up to 200 characters.
            let beginning: String = name.chars().take(180).collect();
            let free = format!("{beginning} {number}");
            *number += 1;
            if self.used_names.insert(free.clone()) {
                break free;
            }
        };
        fields.insert("name".to_owned(), raw(&free));
        Some(raw(&fields))
    }
}
