//! Resumes or ends the open run of a conversation. An open run is a journaled run that was neither
//! committed nor discarded. Its lease is the time until which no other process may take over the
//! run.

use std::{sync::Arc, time::Duration};

use futures_util::{StreamExt, stream};
use tower::ServiceExt;
use tower_chat_core::{
    Answer, BoxError, ChatOptions, ChatRequest, ChatResponse, ConversationKey,
    store::{Capability, HistoryStore, StoreError},
};
use tower_service::Service;

use super::{ResumesRun, RunEnd, UnknownCalls, close, open_run};

/// The maximum number of runs that [`recover_all`] recovers at the same time.
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
    /// The run was resumed, and is complete. The answer contains the messages of all attempts.
    Resumed(Box<Answer>),
    /// The run was ended without being resumed.
    Ended(RunEnd),
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
/// service calls this function when it starts, and usually in a task of its own, because a resumed
/// run may wait for the lease of the process that has died. At most 64 runs are recovered at the
/// same time. This number includes runs that other processes are still executing, because the
/// recovery waits for the leases of these runs.
///
/// Returns the outcome of each run that was open when this function listed the runs, in the order in
/// which the recoveries have ended. An error of one run does not end the recovery of the others. If
/// the future is dropped, the runs that have not been recovered remain open.
///
/// ```
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// use tower_chat::{ChatPipeline, *, recovery::{RecoveryPolicy, recover_all}};
/// # let model = tower::service_fn(|_: ChatRequest| async {
/// #     Ok::<_, BoxError>(ChatResponse::whole([Message::assistant("hello")], Finish::stop()))
/// # });
/// let store = MemoryStore::new();
/// let pipeline = ChatPipeline::builder(model).history(store.clone()).build()?;
/// tokio::spawn(async move {
///     for (key, recovered) in recover_all(pipeline, &store, RecoveryPolicy::resume()).await? {
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
) -> Result<Vec<(ConversationKey, Result<Recovered, BoxError>)>, StoreError>
where
    S: Service<ChatRequest, Response = ChatResponse> + Clone,
    S::Error: Into<BoxError>,
{
    let keys = all_open_runs(store).await?;
    let recoveries = stream::iter(keys).map(|key| {
        let (mut client, policy) = (client.clone(), policy.clone());
        async move {
            let recovered = recover(&mut client, store, &key, policy).await;
            (key, recovered)
        }
    });
    Ok(recoveries.buffer_unordered(MAX_CONCURRENT).collect().await)
}

/// Returns the conversations of all scopes that have an open run.
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
