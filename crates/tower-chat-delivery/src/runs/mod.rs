//! A layer that executes each run in a task of its own.
//!
//! [`DetachedRunsLayer`] belongs above `PerRunPersistence` and the pipeline. Below them, the layer
//! would detach single service calls. It therefore refuses requests that come from
//! `PerRunPersistence`.
//!
//! If a layer above `DetachedRunsLayer`, such as a timeout, drops a response, the delivery to the
//! caller ends and the run continues. A deadline that ends the run therefore belongs below
//! `DetachedRunsLayer`.

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

use tokio::sync::watch;
use tower_chat_layers::{Messages, Retryability, RunHandle, SharedError};
use tower_layer::Layer;

pub use self::{
    error::DeliveryError,
    reader::{RunEvent, RunReader},
    service::DetachedRuns,
};
use self::{hub::Hub, reader::Follower, settings::Settings, update::LoggedUpdate};
use crate::{PositionedUpdate, RunKey, RunState, UpdateLog, UpdateLogError, UpdatePosition};

/// A layer that executes each run in a task of its own. The run continues if its caller
/// disconnects, and other readers can [attach](Self::attach) to it.
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
/// Clones share their runs. The layer only concerns requests with a conversation; other requests
/// pass unchanged.
///
/// # Positions in a stack
///
/// ```text
/// DetachedRuns                   above everything that belongs to the run
///   timeout, deadline            end the run
///     PerRunPersistence, ...     or a ChatPipeline
/// ```
///
/// A timeout above this layer ends the delivery to its caller, and not the run. Below
/// `PerRunPersistence` the layer would receive the service calls of a run, and refuses them with
/// [`DeliveryError::BelowPersistence`].
///
/// # Delivery
///
/// A reader in the process that executes the run receives deltas immediately. The log receives
/// deltas in batches, by default once a second or when a batch has 16 KiB. Complete messages and
/// the end of the response are stored in the log before readers receive them. Appends to the log
/// use no permit of the history store and never delay the run.
///
/// If the process dies, the log lacks at most the deltas since the last batch. Readers may have
/// received these deltas, which belong to an unfinished message. A later attempt sends this message
/// from its beginning ([`RunEvent::Restarted`]). With [`durable_delivery`](Self::durable_delivery)
/// readers receive only what the log contains.
///
/// If the log fails, readers in the process that executes the run still receive all updates. The
/// task of the run retries an append after a transient failure. If the log refuses the updates of a
/// run, for example because of a limit, the run continues, and its readers elsewhere receive
/// [`RunEnd::Truncated`](crate::RunEnd::Truncated) at its end.
///
/// Each run has its own lease. If the process that executes the run cannot renew the lease in time,
/// any process may begin the next attempt. When the former owner reads in the log that it has lost
/// the run, it stops its attempt, and its readers follow the log.
///
/// # The same request again
///
/// If the run of a request is in progress, in any process, the caller receives the response of that
/// run from its beginning, and the service is not called. If the run is in this process and the
/// request has another input, it fails with [`DeliveryError::OtherInput`]. If the run has ended or
/// its process died, the request is the next attempt: the layers below return the stored answer, or
/// resume the run.
///
/// # Stop
///
/// [`stop`](Self::stop) ends a run from any process. If the caller drops its response, the run
/// continues. Without a tool loop, the service may not end its response to a stopped run. If this
/// response has not ended after the duration of a lease, the task of the run drops it, and the run
/// fails.
#[derive(Clone)]
pub struct DetachedRunsLayer {
    log: Arc<dyn UpdateLog>,
    settings: Settings,
    registry: Arc<Registry>,
}

/// The runs in progress in this process.
#[derive(Debug)]
struct Registry {
    /// The hub of each run of which readers in this process receive the updates without the log.
    hubs: Mutex<HashMap<RunKey, Arc<Hub>>>,
    /// The number of tasks. It includes attempts that have lost their lease and have not ended.
    tasks: watch::Sender<usize>,
}

/// The state that a service shares with its tasks.
struct Shared {
    log: Arc<dyn UpdateLog>,
    settings: Settings,
    registry: Arc<Registry>,
}

impl DetachedRunsLayer {
    /// Creates the layer with a log.
    pub fn new(log: impl UpdateLog) -> Self {
        let registry = Registry { hubs: Mutex::default(), tasks: watch::Sender::new(0) };
        Self { log: Arc::new(log), settings: Settings::default(), registry: Arc::new(registry) }
    }

    /// Sets the limits at which deltas are appended to the log: when this time has passed since the
    /// first of them, or when they have this size in bytes. The default is 1 second and 16 KiB.
    #[must_use]
    pub fn with_batches(mut self, interval: Duration, max_bytes: usize) -> Self {
        self.settings.batch_interval = interval.max(Duration::from_millis(1));
        self.settings.max_batch_bytes = max_bytes;
        self
    }

    /// Delivers updates only after they are stored in the log, in batches of 250 ms. Readers then
    /// receive no delta that a killed process would lose, unless the log refuses the updates of the
    /// run.
    #[must_use]
    pub fn durable_delivery(mut self) -> Self {
        self.settings.batch_interval = Duration::from_millis(250);
        self.settings.is_durable_first = true;
        self
    }

    /// Sets the duration of a lease in the log after its last renewal, 15 seconds by default. A
    /// process renews its leases three times in this period. Each renewal also reads whether
    /// another process has requested a stop of the run.
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

    /// Sets the largest size of the updates of a run, 16 MiB by default. A run that exceeds it is
    /// stopped. If its response continues to twice this size, the response is dropped, and the run
    /// fails.
    #[must_use]
    pub fn with_max_bytes_per_run(mut self, max: u64) -> Self {
        self.settings.max_bytes = max;
        self
    }

    /// Sets the time for which a run continues without a reader in its process, 1 hour by default.
    /// The run is then stopped. `None` removes the limit.
    #[must_use]
    pub fn with_max_time_without_reader(mut self, max: Option<Duration>) -> Self {
        self.settings.max_time_without_reader = max;
        self
    }

    /// Attaches a reader to a run, in this process or another one. The reader receives all updates
    /// after the position `after`: those that exist, and then those that the run adds. A reader of
    /// the whole run begins at [`UpdatePosition::START`].
    ///
    /// A position is valid while the log contains the run. A log in memory loses its runs when its
    /// process ends. If such a run begins again, its positions begin again too, and readers must
    /// attach at the beginning.
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

    /// Stops a run, in this process or another one, and returns its state. The answer so far is
    /// stored, as [`RunHandle::stop`] describes. A run in this process stops immediately, even if
    /// the log cannot be written. A run in another process stops when that process renews its
    /// lease. Stopping a run again, or stopping a run that has ended, has no effect.
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
        // lost its lease, or may not have begun its attempt. The stop is therefore requested in the
        // log too.
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

    /// Waits until no run is in progress in this process. A server that shuts down calls this after
    /// its last request, and then closes its stores.
    pub async fn drained(&self) {
        // The registry owns the sender, so the wait does not fail.
        let _ = self.registry.tasks.subscribe().wait_for(|count| *count == 0).await;
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

/// The run of a request in this process.
enum Entered {
    New(Arc<Hub>),
    InProgress(Arc<Hub>),
}

impl Shared {
    /// Adds a run to those in progress. If the run is already in progress, returns its hub.
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

    fn hub(&self, run: &RunKey) -> Option<Arc<Hub>> {
        self.hubs().get(run).cloned()
    }

    /// Removes the hub of a run. Readers of the run that attach later follow the log.
    fn remove(&self, run: &RunKey, hub: &Arc<Hub>) {
        let mut hubs = self.hubs();
        if hubs.get(run).is_some_and(|found| Arc::ptr_eq(found, hub)) {
            hubs.remove(run);
        }
    }

    /// Removes the hub of a run whose task ends.
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
