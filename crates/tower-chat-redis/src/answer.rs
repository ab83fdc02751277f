//! Parsing of the server's replies.

use redis::Value;
use tower_chat_core::{ConversationKey, store::StoreError};

/// The items of a reply that is a list. Each method reads and removes the next item.
#[derive(Debug)]
pub(crate) struct Answer(std::vec::IntoIter<Value>);

/// Pairs of a name and the bytes of its value; `None` if the value is null.
pub(crate) type Pairs = Vec<(String, Option<Vec<u8>>)>;

/// Pairs of a name and its value, both as bytes, because the name may not be UTF-8.
pub(crate) type BytePairs = Vec<(Vec<u8>, Vec<u8>)>;

impl Answer {
    pub(crate) fn new(value: Value) -> Result<Self, StoreError> {
        list(value).map(|items| Self(items.into_iter()))
    }

    pub(crate) fn text(&mut self) -> Result<String, StoreError> {
        text(self.next()?)
    }

    /// Reads a text; `None` if the item is null.
    pub(crate) fn optional_text(&mut self) -> Result<Option<String>, StoreError> {
        match self.next()? {
            Value::Nil => Ok(None),
            value => text(value).map(Some),
        }
    }

    pub(crate) fn raw(&mut self) -> Result<Vec<u8>, StoreError> {
        bytes(self.next()?).map(Option::unwrap_or_default)
    }

    pub(crate) fn list(&mut self) -> Result<Vec<Value>, StoreError> {
        list(self.next()?)
    }

    /// Reads a list of byte strings. An item that is null is read as `None`.
    pub(crate) fn bytes(&mut self) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.list()?.into_iter().map(bytes).collect()
    }

    /// Reads a list in which each name is followed by its value.
    pub(crate) fn pairs(&mut self) -> Result<Pairs, StoreError> {
        let mut items = self.list()?.into_iter();
        let mut pairs = Vec::with_capacity(items.len() / 2);
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            pairs.push((text(name)?, bytes(value)?));
        }
        Ok(pairs)
    }

    /// Reads a list in which each name is followed by its value. A null is read as empty.
    pub(crate) fn byte_pairs(&mut self) -> Result<BytePairs, StoreError> {
        let mut items = self.list()?.into_iter();
        let mut pairs = Vec::with_capacity(items.len() / 2);
        while let (Some(name), Some(value)) = (items.next(), items.next()) {
            let (name, value) = (bytes(name)?, bytes(value)?);
            pairs.push((name.unwrap_or_default(), value.unwrap_or_default()));
        }
        Ok(pairs)
    }

    fn next(&mut self) -> Result<Value, StoreError> {
        self.0.next().ok_or_else(|| unexpected("a value is missing"))
    }
}

pub(crate) fn list(value: Value) -> Result<Vec<Value>, StoreError> {
    match value {
        Value::Array(items) => Ok(items),
        _ => Err(unexpected("a value is not a list")),
    }
}

pub(crate) fn bytes(value: Value) -> Result<Option<Vec<u8>>, StoreError> {
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(bytes) => Ok(Some(bytes)),
        Value::SimpleString(text) => Ok(Some(text.into_bytes())),
        _ => Err(unexpected("a value is not a string")),
    }
}

pub(crate) fn text(value: Value) -> Result<String, StoreError> {
    let bytes = bytes(value)?.ok_or_else(|| unexpected("a value is missing"))?;
    String::from_utf8(bytes).map_err(|_| unexpected("a value is not UTF-8"))
}

pub(crate) fn number(text: &str) -> Result<u64, StoreError> {
    text.parse().map_err(|_| unexpected("a value is not a number"))
}

/// Returns the error for a conversation whose numbers are out of range or do not match its
/// messages.
pub(crate) fn damaged(key: &ConversationKey) -> StoreError {
    corrupt(&format!(
        "the counters of conversation {key} are out of range, or differ from the number of its messages"
    ))
}

fn unexpected(what: &str) -> StoreError {
    corrupt(&format!("the response of the server cannot be read, because {what}"))
}

/// Returns the error for damaged data.
pub(crate) fn corrupt(reason: &str) -> StoreError {
    StoreError::Corrupt { reason: format!("{reason}: restore it from a backup") }
}
