//! Yields to the runtime during long work, so that the worker thread can run other tasks.
//!
//! The caller can drop the future at each yield. Messages with fewer than [`LARGE`] parts in total
//! never cause a yield.

use std::sync::Arc;

use tokio::task::yield_now;
use tower_chat_core::Message;

/// The number of parts for which one pass over all parts takes a considerable fraction of a
/// millisecond.
pub(crate) const LARGE: usize = 512;

/// Yields once if these messages have at least [`LARGE`] parts in total.
pub(crate) async fn yield_if_large<'m>(messages: impl IntoIterator<Item = &'m Arc<Message>>) {
    if is_large(messages) {
        yield_now().await;
    }
}

fn is_large<'m>(messages: impl IntoIterator<Item = &'m Arc<Message>>) -> bool {
    let mut parts = 0;
    messages.into_iter().any(|message| {
        parts += message.parts.len().max(1);
        parts >= LARGE
    })
}
