//! Ending an open run in one call.

use std::{sync::Arc, time::Duration};

use tower::ServiceExt;
use tower_chat_core::{
    Answer, BoxError, ChatOptions, ChatRequest, ChatResponse, ConversationKey, store::HistoryStore,
};
use tower_service::Service;

use super::{ResumesRun, RunEnd, UnknownCalls, close, open_run};

/// What [`recover`] does with an open run.
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

/// What became of the open run of a conversation.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum Recovered {
    /// There was none.
    NothingOpen,
    /// It was resumed to its end: the whole answer, with what earlier attempts had added.
    Resumed(Box<Answer>),
    /// It was ended without going on.
    Ended(RunEnd),
}

impl RecoveryPolicy {
    /// Goes on with the run, to its end.
    pub fn resume() -> Self {
        Self::default()
    }

    /// Ends the run where it is.
    pub fn end(end: RunEnd) -> Self {
        Self { end: Some(end), ..Self::default() }
    }

    /// What becomes of calls that may or may not have run, in place of what the stack's
    /// [`JournalPolicy`](super::JournalPolicy) says.
    #[must_use]
    pub fn with_unknown_calls(mut self, unknown_calls: UnknownCalls) -> Self {
        self.unknown_calls = Some(unknown_calls);
        self
    }

    /// How long to wait for the lease of another process to end, where the run is resumed; not at
    /// all by default. Where the lease does not end in this time,
    /// [`PersistenceError::RunHeld`](crate::PersistenceError::RunHeld) says who holds the run and
    /// until when.
    #[must_use]
    pub fn with_max_wait(mut self, most: Duration) -> Self {
        self.wait = most;
        self
    }

    /// The options with which the run goes on: the journal does not keep those it was begun with.
    #[must_use]
    pub fn with_options(mut self, options: impl Into<Arc<ChatOptions>>) -> Self {
        self.options = options.into();
        self
    }
}

/// Recovers the open run of a conversation: resumes it through a stack over the same store, or ends
/// it where it is. If the future is dropped while the run is resumed, it is left open again.
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
/// If the store cannot be read or written; those of the stack, where the run is resumed: it stays
/// open then.
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
