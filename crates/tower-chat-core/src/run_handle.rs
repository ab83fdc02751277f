//! Talking to a run that is under way.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use crate::Message;

/// Queues messages for the next service call of a run that is under way.
///
/// A tool, or anyone who kept a clone, may push at any time; the tool loop takes them before its
/// next service call, and calls once more if some are pending when the model has given its final
/// answer. What is pushed after the run has ended stays in the handle.
///
/// ```
/// use tower_chat_core::{ChatRequest, Message};
/// let mut request = ChatRequest::user("Write the report.");
/// let run = request.run_handle();
/// run.queue(Message::user("In French, please."));
/// assert_eq!(run.take_queued().len(), 1);
/// ```
#[derive(Debug, Clone, Default)]
pub struct RunHandle {
    queue: Arc<Mutex<VecDeque<Message>>>,
}

impl RunHandle {
    /// A handle with nothing queued.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a message for the next service call.
    pub fn queue(&self, message: Message) {
        self.lock().push_back(message);
    }

    /// Takes everything queued, oldest first.
    pub fn take_queued(&self) -> Vec<Message> {
        let mut queue = self.lock();
        if queue.is_empty() {
            return Vec::new();
        }
        queue.drain(..).collect()
    }

    /// Puts messages that were taken, but reached nobody, back before everything queued since.
    pub fn put_back(&self, messages: Vec<Message>) {
        let mut queue = self.lock();
        messages.into_iter().rev().for_each(|message| queue.push_front(message));
    }

    /// Whether something is queued.
    pub fn has_queued(&self) -> bool {
        !self.lock().is_empty()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Message>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
