//! Resumes or ends the open run of a conversation. An open run is a journaled run that was neither
//! committed nor discarded. Its lease is the time until which no other process may take over the
//! run.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures_core::Stream;
use futures_util::{StreamExt, stream};
use tokio::time::sleep;
use tower::ServiceExt;
use tower_chat_core::{
    Answer, BoxError, ChatOptions, ChatRequest, ChatResponse, ConversationKey,
    store::{Capability, HistoryStore, Lease, OpenRun, StoreError},
};
use tower_service::Service;

use super::{ResumesRun, RunEnd, UnknownCalls, close, open_run};

/// The maximum number of runs that [`recover_all`] processes at the same time.
const MAX_CONCURRENT: usize = 64;
/// The number of scopes or open runs that [`recover_all`] reads at a time.
const PAGE: usize = 100;

/// The policy by which [`recover`] resumes or ends an open run.
///
/// ```
/// use tower_chat::recovery::{RecoveryPolicy, RunEnd, UnknownCalls};
/// let resume = RecoveryPolicy::resume().with_unknown_calls(UnknownCalls::Fail);
/// let discard = RecoveryPolicy::end(RunEnd::Discard);
/// ```
#[derive(Debug, Clone, Default)]
pub struct RecoveryPolicy {
    end: Option<RunEnd>,
    unknown_calls: Option<UnknownCalls>,
    options: Arc<ChatOptions>,
    wait: Duration,
}

/// The outcome of a recovery.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Recovered {
    /// The conversation had no open run.
    NothingOpen,
    /// The run was resumed, and is complete. The answer contains all messages of the run, also
    /// those that were stored before the recovery.
    Resumed(Box<Answer>),
    /// The run was ended without being resumed.
    Ended(RunEnd),
    /// The run was not recovered, because this process is executing it, or another process has
    /// renewed its lease. Only [`recover_all`] returns this outcome.
    InProgress,
}

impl RecoveryPolicy {
    /// Creates a policy that resumes the run until it is complete.
    pub fn resume() -> Self {
        Self::default()
    }

    /// Creates a policy that ends the run in its current state.
    pub fn end(end: RunEnd) -> Self {
        Self { end: Some(end), ..Self::default() }
    }

    /// Sets the policy for calls that may or may not have run. The policy overrides the setting of
    /// the stack's [`JournalPolicy`](super::JournalPolicy).
    #[must_use]
    pub fn with_unknown_calls(mut self, unknown_calls: UnknownCalls) -> Self {
        self.unknown_calls = Some(unknown_calls);
        self
    }

    /// Sets the maximum time for which a resumed run waits for the end of another process's lease.
    /// If the lease does not end in this time, the run fails with
    /// [`PersistenceError::RunHeld`](crate::PersistenceError::RunHeld), which identifies the
    /// process and contains the end of its lease. By default, the policies of the stack apply, such
    /// as [`JournalPolicy::with_max_lease_wait`](super::JournalPolicy::with_max_lease_wait).
    #[must_use]
    pub fn with_max_wait(mut self, max: Duration) -> Self {
        self.wait = max;
        self
    }

    /// Sets the options with which the run is resumed, because the journal does not store the original
    /// options.
    #[must_use]
    pub fn with_options(mut self, options: impl Into<Arc<ChatOptions>>) -> Self {
        self.options = options.into();
        self
    }
}

/// Recovers the open run of a conversation. The policy decides whether the run is resumed through
/// `client`, which must be a stack over the same store, or ended in its current state. If the
/// future is dropped while the run is resumed, the run remains open.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat::{ChatPipeline, *, recovery::{Recovered, RecoveryPolicy, recover}};
/// # let model = tower::service_fn(|_: ChatRequest| async {
/// #     Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("hello")], Finish::stop()))
/// # });
/// let store = MemoryStore::new();
/// let mut client = ChatPipeline::builder(model).history(store.clone()).build()?;
/// let key = ConversationKey::new("alice", "support");
/// let recovered = recover(&mut client, &store, &key, RecoveryPolicy::resume()).await?;
/// assert_eq!(recovered, Recovered::NothingOpen);
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// Returns an error if the store cannot be read or written. If the run is resumed, also returns the
/// errors of the stack. After an error of the stack, the run remains open unless
/// [`OnRefusal`](super::OnRefusal) ends it.
pub async fn recover<S>(
    client: &mut S,
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    policy: RecoveryPolicy,
) -> Result<Recovered, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    let RecoveryPolicy { end, unknown_calls, options, wait } = policy;
    if let Some(end) = end {
        let was_open = close(store, key, end).await?;
        return Ok(if was_open { Recovered::Ended(end) } else { Recovered::NothingOpen });
    }
    let Some(open) = open_run(store, key).await? else { return Ok(Recovered::NothingOpen) };
    let mut request = open.resume().with_options(options);
    if let Some(unknown_calls) = unknown_calls {
        request.extensions.insert(unknown_calls);
    }
    if !wait.is_zero() {
        request.extensions.insert(ResumesRun { lease_wait: Some(wait) });
    }
    let ready = client.ready().await.map_err(Into::into)?;
    let response = ready.call(request).await.map_err(Into::into)?;
    Ok(Recovered::Resumed(Box::new(response.collect().await?)))
}

/// Recovers the open runs of all conversations in all scopes of a store, as [`recover`] does. A
/// service calls this function when it starts, and usually in a task of its own.
///
/// Returns a stream with the outcome of each run that was open when this function listed the runs,
/// in the order in which the recoveries end. The stream recovers at most 64 runs at the same time,
/// and only while it is polled. An error of one run does not end the recovery of the others. If the
/// stream is dropped, the runs that have not been recovered remain open.
///
/// Runs on which another process has a lease are recovered last: each of them at the end of its
/// lease, or after the time of [`RecoveryPolicy::with_max_wait`]. The other process may have died,
/// because a dead process does not end its leases. If the lease was renewed in the meantime, the
/// other process is executing the run, and the outcome is [`Recovered::InProgress`].
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use futures_util::StreamExt;
/// use tower_chat::{ChatPipeline, *, recovery::{RecoveryPolicy, recover_all}};
/// # let model = tower::service_fn(|_: ChatRequest| async {
/// #     Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("hello")], Finish::stop()))
/// # });
/// let store = MemoryStore::new();
/// let pipeline = ChatPipeline::builder(model).history(store.clone()).build()?;
/// tokio::spawn(async move {
///     let mut outcomes = recover_all(pipeline, &store, RecoveryPolicy::resume()).await?;
///     while let Some((key, recovered)) = outcomes.next().await {
///         if let Err(error) = recovered {
///             eprintln!("the open run of {key} was not resumed: {error}");
///         }
///     }
///     Ok::<(), BoxError>(())
/// });
/// # Ok::<(), BoxError>(())
/// # }).unwrap();
/// ```
///
/// # Errors
///
/// Returns an error if the scopes or the open runs cannot be listed, or if the store lacks the
/// capabilities [`Journal`](Capability::Journal) or [`Maintenance`](Capability::Maintenance).
pub async fn recover_all<S>(
    client: S,
    store: &(impl HistoryStore + ?Sized),
    policy: RecoveryPolicy,
) -> Result<impl Stream<Item = (ConversationKey, Result<Recovered, BoxError>)> + Unpin, StoreError>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone,
    S::Error: Into<BoxError>,
{
    let keys = all_open_runs(store).await?;
    let with_leases = stream::iter(keys).map(async |key| {
        // If the head cannot be read, the recovery of the run returns the error.
        let open = store.head(&key).await.ok().and_then(|head| head.open_run);
        let lease = open.filter(|open| is_held_elsewhere(store, open)).map(|open| open.lease);
        (key, lease)
    });
    let mut listed: Vec<_> = with_leases.buffered(MAX_CONCURRENT).collect().await;
    listed.sort_by_key(|(_, lease)| lease.and_then(|lease| lease.until.time()));
    let recoveries = stream::iter(listed).map(move |(key, lease)| {
        let (client, policy) = (client.clone(), policy.clone());
        async move {
            let recovered = recover_listed(client, store, &key, lease, policy).await;
            (key, recovered)
        }
    });
    Ok(Box::pin(recoveries.buffer_unordered(MAX_CONCURRENT)))
}

/// Recovers a run, unless an attempt is executing it. `lease` is the lease of another process when
/// the run was listed.
async fn recover_listed<S>(
    mut client: S,
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    lease: Option<Lease>,
    mut policy: RecoveryPolicy,
) -> Result<Recovered, BoxError>
where
    S: Service<ChatRequest, Response = ChatResponse>,
    S::Error: Into<BoxError>,
{
    if let Some(until) = lease.and_then(|lease| lease.until.time()) {
        let mut wait = until.duration_since(SystemTime::now()).unwrap_or_default();
        if !policy.wait.is_zero() {
            wait = wait.min(policy.wait);
            policy.wait -= wait;
        }
        sleep(wait).await;
    }
    let Some(open) = store.head(key).await?.open_run else { return Ok(Recovered::NothingOpen) };
    let is_renewed = lease != Some(open.lease) && is_held_elsewhere(store, &open);
    if is_renewed || store.handle().run_under_way(key) == Some(open.run) {
        return Ok(Recovered::InProgress);
    }
    recover(&mut client, store, key, policy).await
}

fn is_held_elsewhere(store: &(impl HistoryStore + ?Sized), open: &OpenRun) -> bool {
    let handle = store.handle();
    let is_elsewhere = open.lease.holder != handle.holder() && !handle.is_exclusive();
    is_elsewhere && open.is_held_at(SystemTime::now())
}

async fn all_open_runs(
    store: &(impl HistoryStore + ?Sized),
) -> Result<Vec<ConversationKey>, StoreError> {
    let maintenance = store.maintenance().ok_or(Capability::Maintenance)?;
    let journal = store.journal().ok_or(Capability::Journal)?;
    let mut keys = Vec::new();
    let mut scopes = Vec::new();
    loop {
        scopes = maintenance.scopes(scopes.last().map(String::as_str), PAGE).await?;
        if scopes.is_empty() {
            return Ok(keys);
        }
        for scope in &scopes {
            let mut page: Vec<ConversationKey> = Vec::new();
            loop {
                page = journal.open_runs(scope, page.last().map(ConversationKey::id), PAGE).await?;
                if page.is_empty() {
                    break;
                }
                keys.extend_from_slice(&page);
            }
        }
    }
}
