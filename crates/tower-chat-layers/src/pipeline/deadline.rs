//! A deadline for the whole answer, which includes the stream of a streamed answer.

use std::{
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use futures_core::Stream;
use futures_util::stream;
use tokio::{
    task::AbortHandle,
    time::{Instant, sleep_until},
};
use tower_chat_core::{BoxError, ChatRequest, ChatResponse, ChatUpdate};
use tower_service::Service;
use tracing::Instrument;

use crate::ResponseFuture;

/// The error for an answer that was not complete at the deadline.
///
/// The store contains the same messages as after a run whose caller disconnected. The persistence
/// mode defines which messages these are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer was not complete after {after:?}")]
#[non_exhaustive]
pub struct DeadlineExceeded {
    /// The time limit.
    pub after: Duration,
}

/// Limits the time of a whole answer. `tower::timeout` limits only the time until the call returns
/// a response, and not the stream of the response. `IdleTimeoutLayer` limits the pauses of one
/// service call.
///
/// The time begins at the first poll of the call. At the deadline, a task drops the call or the
/// response, even if the caller does not poll again.
#[derive(Debug, Clone)]
pub(super) struct Deadline<S> {
    inner: S,
    after: Duration,
}

impl<S> Deadline<S> {
    pub(super) fn new(inner: S, after: Duration) -> Self {
        Self { inner, after }
    }
}

impl<S> Service<ChatRequest> for Deadline<S>
where
    S: Service<ChatRequest, Response = ChatResponse, Error = BoxError>,
    S::Future: Send + Unpin + 'static,
{
    type Response = ChatResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: ChatRequest) -> ResponseFuture {
        let after = self.after;
        let head = self.inner.call(request);
        ResponseFuture::new(async move {
            let deadline = Instant::now() + after;
            let head = UntilDeadline::new(head, deadline);
            let response = poll_fn(|cx| head.poll(cx, |head, cx| Pin::new(head).poll(cx))).await;
            let response = response.ok_or(DeadlineExceeded { after })??;
            match response.try_into_answer() {
                Ok(answer) => Ok(answer.into()),
                Err(response) => Ok(bounded(UntilDeadline::new(response, deadline), after)),
            }
        })
    }
}

fn bounded(response: UntilDeadline<ChatResponse>, after: Duration) -> ChatResponse {
    let mut response = Some(response);
    let mut is_complete = false;
    ChatResponse::forward(stream::poll_fn(move |cx| {
        let Some(unread) = &response else { return Poll::Ready(None) };
        let next = ready!(unread.poll(cx, |response, cx| Pin::new(response).poll_next(cx)));
        match next {
            Some(Some(update)) => {
                is_complete |= matches!(update, Ok(ChatUpdate::Finish(_)));
                Poll::Ready(Some(update))
            }
            Some(None) => {
                response = None;
                Poll::Ready(None)
            }
            None => {
                response = None;
                Poll::Ready((!is_complete).then(|| Err(DeadlineExceeded { after }.into())))
            }
        }
    }))
}

/// A future or a stream that a task drops at the deadline.
struct UntilDeadline<T> {
    polled: Arc<Mutex<Polled<T>>>,
    timer: AbortHandle,
}

/// The value, which is `None` after it was dropped, and the waker of its last poll.
type Polled<T> = (Option<T>, Option<Waker>);

impl<T: Send + 'static> UntilDeadline<T> {
    fn new(value: T, deadline: Instant) -> Self {
        let polled = Arc::new(Mutex::new((Some(value), None)));
        let dropped_by_timer = Arc::clone(&polled);
        let timer = async move {
            sleep_until(deadline).await;
            let (value, waker) = take(&dropped_by_timer);
            drop(value);
            if let Some(waker) = waker {
                waker.wake();
            }
        };
        // Events that are logged during the drop belong to the span of the run.
        let timer = tokio::spawn(timer.in_current_span()).abort_handle();
        Self { polled, timer }
    }

    fn poll<R>(
        &self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut T, &mut Context<'_>) -> Poll<R>,
    ) -> Poll<Option<R>> {
        let mut polled = lock(&self.polled);
        let (Some(value), waker) = &mut *polled else { return Poll::Ready(None) };
        let result = poll(value, cx);
        if result.is_pending() {
            *waker = Some(cx.waker().clone());
        }
        result.map(Some)
    }
}

impl<T> Drop for UntilDeadline<T> {
    fn drop(&mut self) {
        self.timer.abort();
        drop(take(&self.polled));
    }
}

/// Removes the value and the waker. The caller drops the value after the lock is released, because
/// the drop runs code of other layers.
fn take<T>(polled: &Mutex<Polled<T>>) -> Polled<T> {
    std::mem::take(&mut *lock(polled))
}

fn lock<T>(polled: &Mutex<Polled<T>>) -> MutexGuard<'_, Polled<T>> {
    polled.lock().unwrap_or_else(PoisonError::into_inner)
}
