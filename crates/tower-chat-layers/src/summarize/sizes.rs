//! The sizes of conversations in tokens, as the provider has counted the tokens.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tower_chat_core::{ConversationKey, RunId, Usage};

/// The maximum number of conversations whose sizes are stored. All sizes are removed above it.
/// Without a size, the messages of a conversation are counted.
const MAX: usize = 10_000;

/// The number of tokens of each conversation at the end of its last service call in this process,
/// which are the tokens of the request and of the answer.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Mutex<HashMap<ConversationKey, (SizedState, u64)>>);

/// The state of a conversation to which a size applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SizedState {
    /// The run of the last service call.
    pub(crate) run: RunId,
    pub(crate) summary: Option<u64>,
    pub(crate) pruned: u64,
    pub(crate) rewrites: u64,
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
        sizes.insert(key.clone(), (state, usage.total_tokens()));
    }

    pub(super) fn of(&self, key: &ConversationKey, state: SizedState) -> Option<usize> {
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, tokens) = sizes.get(key).filter(|(of, _)| *of == state)?;
        Some(usize::try_from(*tokens).unwrap_or(usize::MAX))
    }
}
