//! Sources that the answer of a journaled run has not cited: its commit leaves them out.

use std::sync::Arc;

use tower_chat_core::{Message, store::author::Close};

use super::journal::Journal;
use crate::replay::Citations;

impl Journal {
    /// Takes note of messages that are about to be staged, as they are stored. With the commit the
    /// answer is known: takes the sources that it has not cited out of them, and returns the messages
    /// staged before that change by it, by their sequences.
    ///
    /// A result that was truncated when it was staged is no whole list of sources any more, and
    /// stays as it is.
    pub(in crate::run) fn leave_out_uncited(
        &mut self,
        citations: &Citations,
        close: Option<Close>,
        stored: &mut Vec<Arc<Message>>,
    ) -> Vec<(u64, Arc<Message>)> {
        let before = self.staged.len();
        self.staged.extend(stored.iter().cloned());
        if close != Some(Close::Commit) {
            return Vec::new();
        }
        let staged = std::mem::take(&mut self.staged);
        let compacted = citations.apply(&staged.iter().cloned().collect());
        let mut compacted: Vec<_> = compacted.iter().cloned().collect();
        *stored = compacted.split_off(before.min(compacted.len()));
        let sequences = self.visible + 1..;
        let pairs = sequences.zip(compacted).zip(staged);
        let changed = pairs.filter(|((_, compacted), staged)| compacted != staged);
        changed.map(|(replaced, _)| replaced).collect()
    }
}
