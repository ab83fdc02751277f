//! The sizes of conversations, as the provider has counted them.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
};

use tower_chat_core::{ConversationKey, RunId, Usage};

/// The number of conversations whose size is known. If there are more, all sizes are forgotten, and
/// the messages of these conversations are counted until their next service call.
const MAX: usize = 10_000;

/// The number of tokens of each conversation at the end of its last service call in this process.
#[derive(Debug, Default)]
pub(crate) struct Sizes(Mutex<HashMap<ConversationKey, Size>>);

/// The size of a conversation at the end of a service call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Size {
    /// The run of the service call.
    pub(crate) run: RunId,
    /// The id of the summary in the request of the service call.
    pub(crate) summary: Option<u64>,
    /// The tokens of the request and of the answer.
    pub(crate) tokens: u64,
}

impl Sizes {
    /// Notes the size of a conversation after a service call, if the service has reported it.
    pub(crate) fn note(
        &self,
        key: &ConversationKey,
        run: RunId,
        summary: Option<u64>,
        usage: &Usage,
    ) {
        if usage.input_tokens == 0 {
            return;
        }
        let mut sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if sizes.len() >= MAX && !sizes.contains_key(key) {
            sizes.clear();
        }
        sizes.insert(key.clone(), Size { run, summary, tokens: usage.total_tokens() });
    }

    /// Returns the size of a conversation that ends with a message of this run, and whose requests
    /// contain this summary. Returns `None` if the size is not known.
    pub(super) fn of(
        &self,
        key: &ConversationKey,
        last_run: RunId,
        summary: Option<u64>,
    ) -> Option<usize> {
        let sizes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let size = sizes.get(key).filter(|size| size.run == last_run && size.summary == summary)?;
        Some(usize::try_from(size.tokens).unwrap_or(usize::MAX))
    }
}
