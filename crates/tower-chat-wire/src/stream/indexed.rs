//! Finds the items of a stream by the index that the service assigns to each item.

use std::collections::HashMap;

use tower_chat_core::RawJson;

/// A list of items in the order in which they began. Finds the newest item with the index that the
/// service assigns to its items, or the newest item without an index, in constant time. With a
/// linear search, a stream that begins a new item with each event would take quadratic time.
#[derive(Debug)]
pub struct Indexed<T> {
    items: Vec<T>,
    /// For each index: the position of the newest item with this index.
    newest: HashMap<Option<String>, usize>,
}

impl<T> Default for Indexed<T> {
    fn default() -> Self {
        Self { items: Vec::new(), newest: HashMap::new() }
    }
}

impl<T> Indexed<T> {
    /// Adds an item, and returns its position.
    pub fn begin(&mut self, index: Option<&RawJson>, item: T) -> usize {
        let position = self.items.len();
        self.newest.insert(key(index), position);
        self.items.push(item);
        position
    }

    /// Returns the position of the newest item with this index.
    pub fn position(&self, index: Option<&RawJson>) -> Option<usize> {
        self.newest.get(&key(index)).copied()
    }

    /// Returns the newest item with this index.
    pub fn newest(&mut self, index: Option<&RawJson>) -> Option<&mut T> {
        let position = self.position(index)?;
        self.items.get_mut(position)
    }

    /// Returns the item at a position.
    pub fn get_mut(&mut self, position: usize) -> Option<&mut T> {
        self.items.get_mut(position)
    }

    /// Returns the items, in the order in which they began.
    pub fn as_slice(&self) -> &[T] {
        &self.items
    }

    /// Returns the items, in the order in which they began.
    pub fn into_items(self) -> Vec<T> {
        self.items
    }
}

fn key(index: Option<&RawJson>) -> Option<String> {
    index.map(|index| index.get().to_owned())
}
