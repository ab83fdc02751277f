//! The [refusal marks](RefusalMark) of a run's conversation, for content that services have
//! refused.

use std::sync::Arc;

use tower_chat_core::{ChatRequest, Message, RefusalMark, RefusalMarks, Role};

/// The refusal marks of a conversation: the loaded ones, then those that this run has added.
#[derive(Debug, Default)]
pub(super) struct RefusedSoFar {
    pub(super) marks: Vec<RefusalMark>,
    /// The number of marks at the beginning of `marks` that are stored or submitted.
    stored: usize,
}

impl RefusedSoFar {
    pub(super) fn stored(marks: &[RefusalMark]) -> Self {
        Self { marks: marks.to_vec(), stored: marks.len() }
    }

    /// Adds the unstored marks to a message that is about to be stored.
    pub(super) fn store_in(&mut self, message: &mut Arc<Message>) {
        let new = self.marks.get(self.stored..).unwrap_or_default();
        if !new.is_empty() {
            RefusalMark::store_in(Arc::make_mut(message), new.iter().cloned());
            self.stored = self.marks.len();
        }
    }

    /// Returns a message without parts with the unstored marks, for a write that has no other
    /// message. Replays omit it.
    pub(super) fn as_message(&mut self) -> Option<Message> {
        let mut message = Arc::new(Message::new(Role::Tool, Vec::new()));
        self.store_in(&mut message);
        RefusalMark::is_stored_in(&message).then(|| Arc::unwrap_or_clone(message))
    }

    pub(super) fn mark(&self, request: &mut ChatRequest) {
        if !self.marks.is_empty() {
            request.extensions.insert(RefusalMarks::new(self.marks.iter().cloned()));
        }
    }

    pub(super) fn add_marks(&mut self, marks: &[RefusalMark]) {
        let new = marks.iter().filter(|mark| !self.marks.contains(mark));
        let new: Vec<_> = new.cloned().collect();
        self.marks.extend(new);
    }
}
