//! A wait that does not occupy the permit of a ready service, such as the permit of a concurrency
//! limit.

use std::{future::poll_fn, pin::Pin, task::Poll};

use tower_chat_core::BoxError;

use crate::{PersistenceError, chat_service::ChatService};

/// Waits for another run or service, which may need the permit of the ready service. Before the
/// wait, a clone therefore replaces the ready service, which releases the permit.
pub(crate) async fn wait_without_permit<S: ChatService, T>(
    service: &mut S,
    mut waited_for: Pin<&mut impl Future<Output = Result<T, PersistenceError>>>,
) -> Result<T, BoxError> {
    if let Poll::Ready(at_once) = poll_fn(|cx| Poll::Ready(waited_for.as_mut().poll(cx))).await {
        return Ok(at_once?);
    }
    *service = service.clone();
    let waited_for = waited_for.await?;
    poll_fn(|cx| service.poll_ready(cx)).await.map_err(Into::into)?;
    Ok(waited_for)
}
