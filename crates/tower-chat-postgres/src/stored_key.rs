//! The key of a conversation in the tables.

use sha2::{Digest, Sha256};
use tower_chat_core::ConversationKey;

/// The maximum length in bytes of a scope or an id that the primary keys contain unchanged. A
/// PostgreSQL index entry has at most 2,704 bytes, and contains the scope, the id and the position
/// of a message.
pub(crate) const MAX_UNCHANGED_BYTES: usize = 512;

/// The scope and the id of a conversation, as the tables contain them. The columns have the type
/// `bytea`, because PostgreSQL's `text` cannot contain U+0000, and the order of `text` depends on
/// the collation.
///
/// A scope or id longer than [`MAX_UNCHANGED_BYTES`] is replaced with its beginning and its
/// SHA-256. Another column then contains the full text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StoredKey {
    pub(crate) scope: Vec<u8>,
    pub(crate) conversation: Vec<u8>,
    pub(crate) long_scope: Option<Vec<u8>>,
    pub(crate) long_conversation: Option<Vec<u8>>,
}

impl StoredKey {
    pub(crate) fn new(key: &ConversationKey) -> Self {
        Self {
            scope: key_part(key.scope()),
            conversation: key_part(key.id()),
            long_scope: long(key.scope()),
            long_conversation: long(key.id()),
        }
    }
}

/// Returns the form of a scope or an id that the primary keys contain.
pub(crate) fn key_part(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    match bytes.get(..MAX_UNCHANGED_BYTES) {
        Some(beginning) if bytes.len() > MAX_UNCHANGED_BYTES => {
            [beginning, Sha256::digest(bytes).as_slice()].concat()
        }
        Some(_) | None => bytes.to_vec(),
    }
}

/// Returns the full scope or id if the primary keys contain its shortened form; `None` otherwise.
pub(crate) fn long(text: &str) -> Option<Vec<u8>> {
    (text.len() > MAX_UNCHANGED_BYTES).then(|| text.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_scopes_and_ids_are_stored_unchanged() {
        for text in ["", "a", "a\0b", "\u{e9}", &"x".repeat(MAX_UNCHANGED_BYTES)] {
            assert_eq!(key_part(text), text.as_bytes());
            assert_eq!(long(text), None);
        }
    }

    #[test]
    fn long_scopes_and_ids_are_shortened_and_remain_different() {
        let [one, other] = ["1", "2"].map(|end| "x".repeat(MAX_UNCHANGED_BYTES) + end);
        assert_eq!(key_part(&one).len(), MAX_UNCHANGED_BYTES + 32);
        assert_ne!(key_part(&one), key_part(&other));
        assert_eq!(key_part(&one), key_part(&one));
        assert_eq!(long(&one), Some(one.into_bytes()));
    }

    #[test]
    fn shortening_keeps_the_order_of_scopes_and_ids_that_begin_differently() {
        let long = "b".repeat(2 * MAX_UNCHANGED_BYTES);
        assert!(key_part("a") < key_part(&long) && key_part(&long) < key_part("c"));
        assert!(key_part(&"b".repeat(MAX_UNCHANGED_BYTES)) < key_part(&long));
    }
}
