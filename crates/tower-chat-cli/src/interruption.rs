//! Ctrl-C.

/// Waits for Ctrl-C; for ever, where that cannot be noticed.
pub(crate) async fn interruption() {
    if tokio::signal::ctrl_c().await.is_err() {
        std::future::pending().await
    }
}

/// Does some work until it is done, or Ctrl-C drops it.
pub(crate) async fn until_interrupted<T>(work: impl Future<Output = T>) -> Option<T> {
    tokio::select! {
        biased;
        () = interruption() => None,
        done = work => Some(done),
    }
}
