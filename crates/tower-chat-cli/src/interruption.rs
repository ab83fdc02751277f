//! Handles Ctrl-C.

/// Waits for Ctrl-C. Never completes if the signal cannot be received.
pub(crate) async fn interruption() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Runs a future until it completes, or until Ctrl-C drops it.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = interruption() => None,
        done = work => Some(done),
    }
}
