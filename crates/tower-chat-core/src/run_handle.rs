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
    queue: Arc<Mutex<VecDeque<Queued>>>,
    is_stopped: Arc<watch::Sender<bool>>,
    /// Marks what is queued by this handle and its clones, if it was made for one tool call.
    call: Option<Arc<()>>,
}

/// A message in the queue, and the mark of the handle by which it came.
#[derive(Debug)]
struct Queued {
    message: Message,
    call: Option<Arc<()>>,
}

impl RunHandle {
    /// A handle with nothing queued.
    pub fn new() -> Self {
        Self::default()
    }

    /// A handle of the same run for one tool call. The tool loop gives it to the tool, and takes
    /// what the tool has queued with the tool's outcome.
    #[must_use]
    pub fn for_call(&self) -> Self {
        Self { call: Some(Arc::new(())), ..self.clone() }
    }

    /// Adds a message for the next service call.
    pub fn queue(&self, message: Message) {
        self.lock().push_back(Queued { message, call: self.call.clone() });
    }

    /// Takes what was queued by this handle and its clones, oldest first. Nothing unless the handle
    /// was made by [`for_call`](Self::for_call).
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

    /// Takes everything queued, oldest first.
    pub fn take_queued(&self) -> Vec<Message> {
        let mut queue = self.lock();
        if queue.is_empty() {
            return Vec::new();
        }
        queue.drain(..).map(|queued| queued.message).collect()
    }

    /// Puts messages that were taken, but reached nobody, back before everything queued since.
    pub fn put_back(&self, messages: Vec<Message>) {
        let mut queue = self.lock();
        let back = messages.into_iter().map(|message| Queued { message, call: None });
        back.rev().for_each(|queued| queue.push_front(queued));
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

    fn lock(&self) -> std::sync::MutexGuard<'_, VecDeque<Queued>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
