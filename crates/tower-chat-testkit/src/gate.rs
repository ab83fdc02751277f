//! A place where work waits until a test lets it go on.

use tokio::sync::watch;

/// Holds up whatever comes to it until it is opened, and says how many have come.
///
/// Clones are the same gate. Once open it stays open.
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
    /// A closed gate that nobody has come to.
    pub fn closed() -> Self {
        Self(watch::Sender::default())
    }

    /// Lets everyone through, now and later.
    pub fn open(&self) {
        self.0.send_modify(|state| state.open = true);
    }

    /// Comes to the gate and waits until it is open.
    pub async fn pass(&self) {
        self.0.send_modify(|state| state.reached += 1);
        self.wait_for(|state| state.open).await;
    }

    /// Comes to the gate without waiting at it.
    pub fn arrive(&self) {
        self.0.send_modify(|state| state.reached += 1);
    }

    /// Waits until `count` have come to the gate, whether or not they got through.
    pub async fn reached(&self, count: usize) {
        self.wait_for(|state| state.reached >= count).await;
    }

    async fn wait_for(&self, condition: impl FnMut(&State) -> bool) {
        // The gate itself keeps the channel open, so waiting cannot fail.
        let _ = self.0.subscribe().wait_for(condition).await;
    }
}
