//! The ticket of a submission: a future that resolves with the outcome of the submission.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use futures_core::future::BoxFuture;
use tokio::sync::oneshot;

use super::{Revision, StoreError, author::AppendError};

/// Resolves when the writes of one submission are durable, or one of them has failed.
///
/// The store owns the writes whether or not the ticket is awaited. Dropping the ticket does not
/// cancel the writes.
pub struct Ticket(State);

enum State {
    /// The outcome was known when the ticket was created.
    Done(Option<Result<Revision, AppendError>>),
    /// A task or thread sends the outcome.
    Waiting(oneshot::Receiver<Result<Revision, AppendError>>),
    /// A future returns the outcome.
    Watching(BoxFuture<'static, Result<Revision, AppendError>>),
}

impl Ticket {
    /// Creates a ticket for writes whose outcome is already known.
    pub fn done(outcome: Result<Revision, AppendError>) -> Self {
        Self(State::Done(Some(outcome)))
    }

    /// Creates a ticket for writes that a task or thread executes, and the sender for its outcome.
    /// If the sender is dropped without an outcome, the ticket resolves to [`StoreError::Closed`].
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use tower_chat_core::store::{Revision, author::Ticket};
    /// let (outcome, ticket) = Ticket::channel();
    /// std::thread::spawn(move || outcome.send(Ok(Revision::ABSENT))); // once the writes are durable
    /// assert_eq!(ticket.await?, Revision::ABSENT);
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap();
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn channel() -> (TicketSender, Self) {
        let (sender, receiver) = oneshot::channel();
        (TicketSender(sender), Self(State::Waiting(receiver)))
    }

    /// Creates a ticket that resolves with the output of a future. A store that wraps another store
    /// passes a future that awaits the inner store's ticket.
    ///
    /// The future only observes the writes, which are executed even if the ticket is never polled.
    pub fn watching(
        outcome: impl Future<Output = Result<Revision, AppendError>> + Send + 'static,
    ) -> Self {
        Self(State::Watching(Box::pin(outcome)))
    }

    /// Returns whether the writes are already known to be durable. If so, the caller need not await
    /// the ticket.
    ///
    /// ```
    /// use tower_chat_core::store::{Revision, author::Ticket};
    /// assert!(Ticket::done(Ok(Revision::ABSENT)).is_durable());
    /// ```
    pub fn is_durable(&self) -> bool {
        matches!(self.0, State::Done(Some(Ok(_))))
    }
}

/// Sends the outcome of a submission to its [`Ticket`], from the task or thread that executes the
/// submission.
#[derive(Debug)]
pub struct TicketSender(oneshot::Sender<Result<Revision, AppendError>>);

impl TicketSender {
    /// Resolves the ticket. If the ticket was dropped, this has no effect.
    pub fn send(self, outcome: Result<Revision, AppendError>) {
        drop(self.0.send(outcome));
    }
}

impl Future for Ticket {
    type Output = Result<Revision, AppendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let gone = || Err(AppendError { completed: 0, source: StoreError::Closed });
        match &mut self.0 {
            State::Done(outcome) => Poll::Ready(outcome.take().unwrap_or_else(gone)),
            State::Waiting(receiver) => {
                Pin::new(receiver).poll(cx).map(|outcome| outcome.unwrap_or_else(|_| gone()))
            }
            State::Watching(outcome) => outcome.as_mut().poll(cx),
        }
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            State::Done(outcome) => f.debug_tuple("Ticket").field(outcome).finish(),
            State::Waiting(_) | State::Watching(_) => f.write_str("Ticket(waiting)"),
        }
    }
}
