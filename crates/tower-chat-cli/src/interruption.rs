//! Handles Ctrl-C.

/// Waits for Ctrl-C. If listening for the signal fails, the future never completes.
pub(crate) async fn interruption() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Awaits a future. On Ctrl-C, drops the future and returns `None`.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = interruption() => None,
        done = work => Some(done),
    }
}
