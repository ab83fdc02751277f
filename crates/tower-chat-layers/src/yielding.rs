//! Long work between awaits lets the other tasks of its worker run.
//!
//! A future that yields also ends there when its caller drops it. Small requests never yield.

use std::sync::Arc;

use tokio::task::yield_now;
use tower_chat_core::Message;

/// From so many parts on, one look at each of them takes a good part of a millisecond.
pub(crate) const LARGE: usize = 512;

/// Yields once, if these messages have so many parts that the next step of a request with them is
/// long.
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
