//! A layer that executes each run in a separate task.

mod erasing_store;
mod error;
mod hub;
mod reader;
mod service;
mod settings;
mod task;
mod update;

use std::{
    collections::{HashMap, hash_map},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use tower_chat_layers::{HistoryStore, Messages, Retryability, RunHandle, SharedError};
use tower_layer::Layer;

use self::{
    erasing_store::ErasingStore, hub::Hub, reader::Follower, settings::Settings,
    update::LoggedUpdate,
};
pub use self::{
    error::DeliveryError,
    reader::{RunEvent, RunReader},
    service::DetachedRuns,
};
use crate::{PositionedUpdate, RunKey, RunState, UpdateLog, UpdateLogError, UpdatePosition};

/// The time between two reads of the state of a run that another process executes.
const STATE_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// A layer that executes each run in a separate task. The run continues if its caller disconnects,
/// and other readers can [attach](Self::attach) to the run.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
/// use tower::{Layer, Service, ServiceExt};
/// use tower_chat::{
///     BoxError, ChatPipeline, ChatRequest, ConversationKey, MemoryStore,
///     delivery::{DetachedRunsLayer, MemoryUpdateLog, RunEvent, RunKey, UpdatePosition},
/// };
/// # use tower_chat_testkit::{ScriptedModel, Step};
/// # let model = ScriptedModel::new([Step::text("Take a coat.")]);
///
/// let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
/// let pipeline = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
/// let mut stack = runs.layer(pipeline);
///
/// let key = ConversationKey::new("alice", "wardrobe");
/// let request = ChatRequest::user("What should I wear?").in_conversation(key).streamed();
/// let run = request.conversation().map(RunKey::from).ok_or("no conversation")?;
/// let response = stack.ready().await?.call(request).await?;
/// drop(response); // the caller disconnects, and the run continues
///
/// let mut reader = runs.attach(&run, UpdatePosition::START).await?;
/// let mut text = String::new();
/// while let Some(event) = reader.next().await {
///     if let RunEvent::Update { update: tower_chat::ChatUpdate::Message(message), .. } = event? {
///         text.push_str(&message.text());
///     }
/// }
/// assert_eq!(text, "Take a coat.");
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
///
/// Clones share their runs. The layer forwards requests without a conversation unchanged.
///
/// # Positions in a stack
///
/// ```text
/// DetachedRuns                   above everything that belongs to the run
///   timeout, deadline            end the run
///     PerRunPersistence, ...     or a ChatPipeline
/// ```
///
/// A timeout above this layer ends the delivery to its caller, but not the run. Below
/// `PerRunPersistence`, the layer would execute each service call (request to the model), instead
/// of each run, in a separate task. The layer refuses requests in this position with
/// [`DeliveryError::BelowPersistence`].
///
/// # Delivery
///
/// A reader in the process that executes the run receives deltas immediately. The task of the run
/// appends deltas to the log in batches, by default once a second, or earlier if a batch has 16
/// KiB. Readers receive complete messages and the end of the response only after these are stored
/// in the log. Appends to the log are independent of the writes to the history store, and never
/// delay the run.
///
/// If the process dies, the log lacks at most the deltas since the last batch, which belong to an
/// unfinished message. Readers may have received these deltas. If the request is sent again, the
/// next execution of the run (the next *attempt*) sends this message again from its beginning
/// ([`RunEvent::Restarted`]). With [`durable_delivery`](Self::durable_delivery), readers receive
/// only updates that the log contains.
///
/// If the log fails, readers in the process that executes the run still receive all updates. After
/// a transient failure, the task of the run repeats the append. If the log refuses the updates of a
/// run, for example because of a limit, the run continues, and readers in other processes receive
/// [`RunEnd::Truncated`](crate::RunEnd::Truncated) at its end.
///
/// Each run has a lease in the log: the time for which its process owns the run without a renewal.
/// If the process that executes the run does not renew the lease in time, any process may begin the
/// next attempt. When the former owner learns from the log that it has lost the run, the former
/// owner stops its attempt, and the readers of this attempt then read the updates from the log.
///
/// # The same request again
///
/// The state of the run of a request determines what happens:
///
/// - The run is in progress, in any process: the caller receives the response of this run from its
///   beginning, and the service is not called. If this process executes the run, and the request
///   has other messages than the run, the request fails with [`DeliveryError::OtherInput`].
/// - The run has failed, or its process died: the request begins the next attempt. The layers below
///   return the stored answer, or resume the run.
/// - The run is complete, or was stopped: the caller receives the stored answer. The log does not
///   change, and no other reader receives the answer. If the run was stopped before its first
///   answer, the response has no messages.
///
/// A request without messages, such as a request of `recovery::recover`, only resumes a run. While
/// another process executes the run, the layer waits, for at most the duration of a lease. If the
/// run is then still in progress, the caller receives the response of this run.
///
/// The store may not contain a complete run, for example because the process died before a failed
/// write of the answer was repeated. The layers below then execute the run again for the caller.
///
/// # Stop
///
/// [`stop`](Self::stop) stops a run from any process. Dropping the response does not stop the run.
/// A tool loop ends the response of a stopped run. In a stack without a tool loop, the service may
/// continue its response. If the response has not ended after the duration of a lease, the task of
/// the run drops the response, and the run fails.
#[derive(Clone)]
pub struct DetachedRunsLayer {
    log: Arc<dyn UpdateLog>,
    settings: Settings,
    registry: Arc<Registry>,
}

/// The runs in progress in this process.
#[derive(Debug)]
struct Registry {
    /// The hubs of the runs that this process executes.
    hubs: Mutex<HashMap<RunKey, Arc<Hub>>>,
    /// The number of tasks of runs, including tasks that have lost their lease.
    tasks: watch::Sender<usize>,
}

/// The state that the services of the layer and the tasks of runs share.
struct Shared {
    log: Arc<dyn UpdateLog>,
    settings: Settings,
    registry: Arc<Registry>,
}

impl DetachedRunsLayer {
    /// Creates a layer with an update log.
    pub fn new(log: impl UpdateLog) -> Self {
        let registry = Registry { hubs: Mutex::default(), tasks: watch::Sender::new(0) };
        Self { log: Arc::new(log), settings: Settings::default(), registry: Arc::new(registry) }
    }

    /// Sets the limits of a batch of deltas. The task of a run appends a batch to the log when
    /// `interval` has passed since the first delta of the batch, or when the batch has `max_bytes`
    /// bytes. The defaults are 1 second and 16 KiB.
    #[must_use]
    pub fn with_batches(mut self, interval: Duration, max_bytes: usize) -> Self {
        self.settings.batch_interval = interval.max(Duration::from_millis(1));
        self.settings.max_batch_bytes = max_bytes;
        self
    }

    /// Delivers updates to readers only after the log has stored them, and sets the batch interval
    /// to 250 ms. If the process is then killed, the log contains each delta that a reader has
    /// received. There is an exception: if the log refuses the updates of the run, readers receive
    /// updates that the log does not contain.
    #[must_use]
    pub fn durable_delivery(mut self) -> Self {
        self.settings.batch_interval = Duration::from_millis(250);
        self.settings.is_durable_first = true;
        self
    }

    /// Sets the duration of a lease in the log after its last renewal, 15 seconds by default. A
    /// process renews its leases three times in this period, and with each renewal receives
    /// requests of other processes to stop the run.
    #[must_use]
    pub fn with_lease(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets the largest number of runs in progress in this process, 10,000 by default. A request
    /// above the limit fails with [`DeliveryError::TooManyRuns`].
    #[must_use]
    pub fn with_max_runs(mut self, max: usize) -> Self {
        self.settings.max_runs = max;
        self
    }

    /// Sets the largest size of the updates of a run, 16 MiB by default. If the updates of a run
    /// exceed this size, the run is stopped. If the updates reach twice this size, the task of the
    /// run drops the response, and the run fails.
    #[must_use]
    pub fn with_max_bytes_per_run(mut self, max: u64) -> Self {
        self.settings.max_bytes = max;
        self
    }

    /// Sets the time after which a run is stopped if it has no reader in its process, 1 hour by
    /// default. `None` removes the limit. The run may be stopped later, by up to a third of the
    /// duration of the lease, because the task of the run counts the readers when it renews the
    /// lease.
    #[must_use]
    pub fn with_max_time_without_reader(mut self, max: Option<Duration>) -> Self {
        self.settings.max_time_without_reader = max;
        self
    }

    /// Attaches a reader to a run, which this or another process may execute. The reader receives
    /// all updates after the position `after`: first the existing updates, and then each new
    /// update. To receive all updates of a run, pass [`UpdatePosition::START`].
    ///
    /// A position is valid while the log contains the run. A log in memory loses its runs when its
    /// process ends. If such a run is executed again, its positions are counted from the beginning
    /// again, and readers must attach at [`UpdatePosition::START`].
    ///
    /// # Errors
    ///
    /// [`DeliveryError::UnknownRun`] if the log does not contain the run; [`DeliveryError::Log`] if
    /// the log cannot be read.
    pub async fn attach(
        &self,
        run: &RunKey,
        after: UpdatePosition,
    ) -> Result<RunReader, DeliveryError> {
        let shared = self.shared();
        let hub = shared.hub(run).map(|hub| hub.reader());
        if hub.is_none() && self.state(run).await? == RunState::Unknown {
            return Err(DeliveryError::UnknownRun { run: run.clone() });
        }
        Ok(RunReader::new(Follower::new(shared, run.clone(), after, hub)))
    }

    /// Stops a run, which this or another process may execute, and returns the state of the run.
    /// The text that the model has sent before the stop is stored, as [`RunHandle::stop`]
    /// describes. If this process executes the run, the run stops immediately, even if the log
    /// cannot be written. A run in another process stops when that process next renews the lease.
    /// Stopping a run again, or stopping a run that has ended, has no effect.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tower_chat::{
    ///     ConversationKey,
    ///     delivery::{DetachedRunsLayer, MemoryUpdateLog, RunKey, RunState},
    ///     run::RunId,
    /// };
    /// let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    /// let run = RunKey::new(ConversationKey::new("alice", "wardrobe"), RunId::new());
    /// assert_eq!(runs.stop(&run).await?, RunState::Unknown);
    /// # Ok::<(), tower_chat::delivery::DeliveryError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeliveryError::Log`] if the log cannot be written.
    pub async fn stop(&self, run: &RunKey) -> Result<RunState, DeliveryError> {
        if let Some(hub) = self.shared().hub(run) {
            hub.handle.stop();
        }
        // Another process may execute the run even if this process has a hub: this process may have
        // lost the lease of the run, or may not have begun its attempt yet.
        Ok(self.log.request_stop(run).await?)
    }

    /// Returns the state of a run in the log.
    ///
    /// # Errors
    ///
    /// [`DeliveryError::Log`] if the log cannot be read.
    pub async fn state(&self, run: &RunKey) -> Result<RunState, DeliveryError> {
        Ok(self.log.read(run, UpdatePosition::START, 0).await?.state)
    }

    /// Returns the number of runs in progress in this process.
    pub fn in_progress(&self) -> usize {
        *self.registry.tasks.borrow()
    }

    /// Waits until no run is in progress in this process. A server that shuts down calls this
    /// function after it has stopped accepting requests, and before it closes its stores.
    pub async fn drained(&self) {
        // The wait cannot fail, because the registry owns the sender.
        let _ = self.registry.tasks.subscribe().wait_for(|count| *count == 0).await;
    }

    /// Returns a store that wraps `store`. If a conversation is deleted through the returned store,
    /// the updates of its runs are erased too. A run of this conversation that is in progress is
    /// stopped when its process next writes to the log.
    ///
    /// `transfer::delete_scope` deletes each conversation of a scope through the store. The updates
    /// of a run that has stored no message remain until they expire, or until
    /// [`UpdateLog::erase`](crate::UpdateLog::erase) erases the updates of the scope.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
    /// use tower_chat::{
    ///     ConversationKey, HistoryStore, MemoryStore,
    ///     delivery::{DetachedRunsLayer, MemoryUpdateLog},
    /// };
    /// let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    /// let store = runs.erasing_store(MemoryStore::new());
    /// store.delete(&ConversationKey::new("alice", "wardrobe")).await?;
    /// # Ok::<(), tower_chat::store::StoreError>(())
    /// # }).unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the updates cannot be erased, the deletion fails although the conversation is deleted. Delete
    /// the conversation again.
    pub fn erasing_store(&self, store: impl HistoryStore) -> Arc<dyn HistoryStore> {
        Arc::new(ErasingStore::new(store, self.log.clone()))
    }

    fn shared(&self) -> Arc<Shared> {
        Arc::new(Shared {
            log: self.log.clone(),
            settings: self.settings.clone(),
            registry: self.registry.clone(),
        })
    }
}

impl<S> Layer<S> for DetachedRunsLayer {
    type Service = DetachedRuns<S>;

    fn layer(&self, inner: S) -> Self::Service {
        DetachedRuns::new(inner, self.shared())
    }
}

impl fmt::Debug for DetachedRunsLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DetachedRunsLayer")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shared").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The state of a request's run in this process.
enum Entered {
    New(Arc<Hub>),
    InProgress(Arc<Hub>),
}

impl Shared {
    /// Registers a run, or returns its hub if the run is in progress in this process.
    fn enter(
        &self,
        run: &RunKey,
        handle: RunHandle,
        input: &Messages,
    ) -> Result<Entered, DeliveryError> {
        let mut hubs = self.hubs();
        match hubs.entry(run.clone()) {
            hash_map::Entry::Occupied(hub) => Ok(Entered::InProgress(hub.get().clone())),
            hash_map::Entry::Vacant(vacant) => {
                let max_runs = self.settings.max_runs;
                if *self.registry.tasks.borrow() >= max_runs {
                    let source = Retryability::Retryable;
                    return Err(DeliveryError::TooManyRuns { max_runs, source });
                }
                let hub = Arc::new(Hub::new(handle, input.clone(), self.settings.is_durable_first));
                vacant.insert(hub.clone());
                self.registry.tasks.send_modify(|tasks| *tasks += 1);
                Ok(Entered::New(hub))
            }
        }
    }

    /// Waits while another process executes the run, for at most the duration of a lease. If the
    /// run is then still in progress, the other process has renewed the lease, and is alive.
    async fn wait_for_other_process(&self, run: &RunKey) -> Result<(), DeliveryError> {
        let deadline = Instant::now() + self.settings.lease + STATE_POLL_INTERVAL;
        while self.hub(run).is_none() && Instant::now() < deadline {
            let state = self.log.read(run, UpdatePosition::START, 0).await?.state;
            if !matches!(state, RunState::Open { .. }) {
                break;
            }
            sleep(STATE_POLL_INTERVAL).await;
        }
        Ok(())
    }

    fn hub(&self, run: &RunKey) -> Option<Arc<Hub>> {
        self.hubs().get(run).cloned()
    }

    /// Removes the hub of a run. Readers that attach later read the log.
    fn remove(&self, run: &RunKey, hub: &Arc<Hub>) {
        let mut hubs = self.hubs();
        if hubs.get(run).is_some_and(|found| Arc::ptr_eq(found, hub)) {
            hubs.remove(run);
        }
    }

    /// Removes the hub of a run whose task ends, and decrements the number of tasks.
    fn task_ended(&self, run: &RunKey, hub: &Arc<Hub>) {
        self.remove(run, hub);
        self.registry.tasks.send_modify(|tasks| *tasks -= 1);
    }

    fn hubs(&self) -> MutexGuard<'_, HashMap<RunKey, Arc<Hub>>> {
        self.registry.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn decode(
        &self,
        run: &RunKey,
        positioned: &PositionedUpdate,
    ) -> Result<LoggedUpdate, UpdateLogError> {
        LoggedUpdate::decode(&positioned.update).map_err(|source| UpdateLogError::Undecodable {
            run: run.clone(),
            position: positioned.position,
            source: SharedError::new(source),
        })
    }
}
