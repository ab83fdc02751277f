//! The handle that queues messages for a run in progress, and stops the run. A run is the service
//! calls and tool calls for one request.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;

use crate::Message;

/// Queues messages for the next service call of a run in progress, and stops the run.
///
/// A tool, or a task with a clone of the handle, may queue messages at any time. The tool loop adds
/// the queued messages to its next service call. If messages are queued when the model has returned
/// its final answer, the tool loop makes another service call. Messages that are queued after the
/// end of the run stay in the handle.
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
    queue: Arc<Mutex<VecDeque<Queued>>>,
    is_stopped: Arc<watch::Sender<bool>>,
    /// Identifies the tool call to which this handle and its clones belong. `None` unless
    /// [`for_call`](Self::for_call) created the handle.
    call: Option<Arc<()>>,
}

#[derive(Debug)]
struct Queued {
    message: Message,
    call: Option<Arc<()>>,
}

impl RunHandle {
    /// Creates a handle with an empty queue.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates a handle of the same run for one tool call. The tool loop passes this handle to the
    /// tool. When the tool has finished, the tool loop removes the messages that the tool has
    /// queued, with [`take_queued_of_call`](Self::take_queued_of_call).
    #[must_use]
    pub fn for_call(&self) -> Self {
        Self { call: Some(Arc::new(())), ..self.clone() }
    }

    /// Adds a message for the next service call.
    pub fn queue(&self, message: Message) {
        self.lock().push_back(Queued { message, call: self.call.clone() });
    }

    /// Removes and returns the messages that this handle and its clones have queued, oldest first.
    /// Returns nothing unless [`for_call`](Self::for_call) created the handle.
    ///
    /// ```
    /// use tower_chat_core::{Message, RunHandle};
    /// let run = RunHandle::new();
    /// let tool = run.for_call();
    /// run.queue(Message::user("In French, please."));
    /// tool.queue(Message::user("The page was in French."));
    /// assert_eq!(tool.take_queued_of_call(), [Message::user("The page was in French.")]);
    /// assert_eq!(run.take_queued(), [Message::user("In French, please.")]);
    /// ```
    pub fn take_queued_of_call(&self) -> Vec<Message> {
        let Some(call) = &self.call else { return Vec::new() };
        let mut queue = self.lock();
        if queue.is_empty() {
            return Vec::new();
        }
        let is_of_call =
            |queued: &Queued| queued.call.as_ref().is_some_and(|of| Arc::ptr_eq(of, call));
        let (of_call, others): (VecDeque<_>, VecDeque<_>) = queue.drain(..).partition(is_of_call);
        *queue = others;
        of_call.into_iter().map(|queued| queued.message).collect()
    }

    /// Removes and returns all queued messages, oldest first.
    pub fn take_queued(&self) -> Vec<Message> {
        let mut queue = self.lock();
        if queue.is_empty() {
            return Vec::new();
        }
        queue.drain(..).map(|queued| queued.message).collect()
    }

    /// Adds messages, in their order, at the front of the queue. The caller has removed these
    /// messages from the queue, but could not send them.
    /// [`take_queued_of_call`](Self::take_queued_of_call) does not return these messages.
    pub fn put_back(&self, messages: Vec<Message>) {
        let mut queue = self.lock();
        let back = messages.into_iter().map(|message| Queued { message, call: None });
        back.rev().for_each(|queued| queue.push_front(queued));
    }

    /// Returns whether messages are queued.
    pub fn has_queued(&self) -> bool {
        !self.lock().is_empty()
    }

    /// Stops the run, from any task. Calling this method again has no effect.
    ///
    /// The tool loop makes no further service call and starts no further tool. The loop drops the
    /// service call and the tools in progress. In every persistence mode, the answer so far is
    /// stored:
    ///
    /// - the messages of the model, and the results of tools that have finished;
    /// - for every other call of the same answer, an error result that reports whether the call may
    ///   have run;
    /// - the streamed text of an unfinished answer, as a message with `"interrupted": true` in its
    ///   metadata. The calls of an unfinished answer are returned to the caller, or wait for
    ///   approval.
    ///
    /// The response ends without an error. [`Finish::ended_by`](crate::Finish::ended_by) of the
    /// response is [`EndedBy::Stop`](crate::EndedBy::Stop), unless the run's final answer is
    /// already complete. If a persistence layer has begun to store an answer, the tool loop waits
    /// for the write, so that a failure of the write is reported. If the same request is sent again
    /// after the answer is stored, the stored answer is returned without a service call.
    ///
    /// A run that waits in the queue of its conversation is stopped when it leaves the queue, and
    /// its input is stored. This method does not stop a run without a tool loop. To stop such a
    /// run, drop its response.
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

    /// Returns whether [`stop`](Self::stop) was called.
    pub fn is_stopped(&self) -> bool {
        *self.is_stopped.borrow()
    }

    /// Waits until [`stop`](Self::stop) is called.
    pub async fn stopped(&self) {
        // `wait_for` does not fail, because the handle owns the sender, so that the channel is not
        // closed.
        drop(self.is_stopped.subscribe().wait_for(|is_stopped| *is_stopped).await);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
