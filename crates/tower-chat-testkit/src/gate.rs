//! A gate at which tasks wait until a test opens it.

use tokio::sync::watch;

/// Blocks tasks until the gate is opened, and counts how often the gate was reached.
///
/// Clones refer to the same gate. An open gate cannot be closed.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat_testkit::Gate;
/// let gate = Gate::closed();
/// let worker = tokio::spawn({
///     let gate = gate.clone();
///     async move { gate.pass().await }
/// });
/// gate.reached(1).await;
/// assert!(!worker.is_finished());
/// gate.open();
/// worker.await.unwrap();
/// # });
/// ```
#[derive(Debug, Clone)]
pub struct Gate(watch::Sender<State>);

#[derive(Debug, Default)]
struct State {
    open: bool,
    reached: usize,
}

impl Gate {
    /// Creates a closed gate.
    pub fn closed() -> Self {
        Self(watch::Sender::default())
    }

    /// Opens the gate for the waiting tasks and for all later tasks.
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Increments the number of arrivals, and waits until the gate is open.
    pub async fn pass(&self) {
        self.0.send_modify(|state| state.reached += 1);
        self.wait_for(|state| state.open).await;
    }

    /// Increments the number of arrivals without waiting.
    pub fn arrive(&self) {
        self.0.send_modify(|state| state.reached += 1);
    }

    /// Waits until the gate was reached `count` times. The gate may be open or closed.
    pub async fn reached(&self, count: usize) {
        self.wait_for(|state| state.reached >= count).await;
    }

    async fn wait_for(&self, condition: impl FnMut(&State) -> bool) {
        // `wait_for` fails only if the sender is dropped, and `self` owns the sender.
        let _ = self.0.subscribe().wait_for(condition).await;
    }
}
