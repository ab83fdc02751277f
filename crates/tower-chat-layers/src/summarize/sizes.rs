//! The sizes of conversations in tokens, as the provider has counted the tokens.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tower_chat_core::{ConversationKey, RunId, Usage};

/// The maximum number of conversations whose sizes are stored. All sizes are removed above it.
/// Without a size, the messages of a conversation are counted.
const MAX: usize = 10_000;

/// The number of tokens of each conversation at the end of its last service call in this process.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Mutex<HashMap<ConversationKey, Size>>);

/// The state of a conversation to which a size applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizedState {
    /// The run of the last service call.
    pub(crate) run: RunId,
    pub(crate) summary: Option<u64>,
    pub(crate) pruned: u64,
    pub(crate) rewrites: u64,
}

/// The size of a conversation at the end of a service call.
#[derive(Debug, Clone, Copy)]
struct Size {
    state: SizedState,
    /// The tokens of the request and of the answer.
    tokens: u64,
}

impl Sizes {
    pub(super) fn note(&self, key: &ConversationKey, state: SizedState, usage: &Usage) {
        if usage.input_tokens == 0 {
            return;
        }
        let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.len() >= MAX && !sizes.contains_key(key) {
            sizes.clear();
        }
        sizes.insert(key.clone(), Size { state, tokens: usage.total_tokens() });
    }

    pub(super) fn of(&self, key: &ConversationKey, state: SizedState) -> Option<usize> {
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let size = sizes.get(key).filter(|size| size.state == state)?;
        Some(usize::try_from(size.tokens).unwrap_or(usize::MAX))
    }
}
