//! Talking to a run that is under way, and ending it.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::Message;

/// Queues messages for the next service call of a run that is under way, and ends the run.
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
    is_stopped: Arc<watch::Sender<bool>>,
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

    /// Ends the run where it stands, from any task; the tool loop does it. Calling it again changes
    /// nothing.
    ///
    /// No further service call is made and no further tool is started. The service call under way
    /// is dropped, and so are the tools that run. The answer so far is kept, in every persistence
    /// mode: what the model has said, the results of tools that have finished, a result that says
    /// what is known of every other call of their round, and the text that was streamed of an
    /// answer, as a message with `"interrupted": true` in its metadata. Calls of an answer that was
    /// cut off are returned. The response ends without an error, and its
    /// [`Finish::ended_by`](crate::Finish::ended_by) is [`EndedBy::Stop`](crate::EndedBy::Stop),
    /// unless the run's last answer has come already. An answer that a persistence layer has begun to
    /// store is waited for, so that a failure of that write is reported. Once there is an answer and
    /// it is stored, the same request, sent again, gets it without a service call.
    ///
    /// A run that waits for its turn is stopped when its turn comes; its input is kept then. A run
    /// without a tool loop is not stopped: drop its response.
    ///
    /// ```
    /// let mut request = tower_chat_core::ChatRequest::user("Write the report.");
    /// let run = request.run_handle();
    /// run.stop();
    /// assert!(run.is_stopped());
    /// ```
    pub fn stop(&self) {
        self.is_stopped.send_replace(true);
    }

    /// Whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        *self.is_stopped.borrow()
    }

    /// Waits until [`stop`](Self::stop) is called; for ever, if it never is.
    pub async fn stopped(&self) {
        // It cannot fail: the sender is part of the handle, so the channel stays open.
        drop(self.is_stopped.subscribe().wait_for(|is_stopped| *is_stopped).await);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Message>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
