//! Handles Ctrl-C.

use std::io;

#[cfg(unix)]
type Signal = tokio::signal::unix::Signal;
#[cfg(windows)]
type Signal = tokio::signal::windows::CtrlC;

/// Receives the interrupt signals that Ctrl-C sends. After [`listen`](Self::listen), such a signal
/// no longer ends the process.
#[derive(Debug)]
pub(crate) struct Interrupts(Signal);

impl Interrupts {
    pub(crate) fn listen() -> io::Result<Self> {
        #[cfg(unix)]
        let signal = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::interrupt());
        #[cfg(windows)]
        let signal = tokio::signal::windows::ctrl_c();
        Ok(Self(signal?))
    }

    /// Waits for the next interrupt signal. Cancel safe.
    pub(crate) async fn next(&mut self) {
        if self.0.recv().await.is_none() {
            std::future::pending::<()>().await;
        }
    }
}
