//! The run: the only writer of the messages that a request adds to its conversation.
//!
//! `PerRunPersistence` begins a [`Run`] and puts it in the request's extensions. The tool loop and
//! `PerServiceCallPersistence` read the run from the extensions. A run contains the loaded history,
//! the messages that the run has added, and the revision that the next write expects. The history
//! is therefore loaded only once per run. If no layer above the tool loop has begun a run, the tool
//! loop creates a run without a store. Events of this run have no effect until
//! `PerServiceCallPersistence` begins the run. The persister of a run is the layer that stores its
//! service calls: `PerServiceCallPersistence`, or the tool loop itself if the run is stored at its
//! end.

mod added_messages;
mod approvals;
mod approved_calls;
mod begin;
mod call_records;
mod calls;
mod claims;
mod complete;
mod compose;
mod conversation;
mod effect;
mod events;
mod fenced_attempt;
mod history;
mod history_in_request;
mod hooks;
mod incomplete_commit;
mod input_digest;
mod journaled;
mod last_answer;
mod load_range;
mod loaded;
mod log;
mod lookup;
mod lost_history;
mod model_request;
mod of_loop;
mod partial_text;
mod persisted;
mod prior_attempts;
mod prior_call_results;
mod recording;
mod records;
mod redact;
pub(crate) mod refused_content;
mod repeated;
mod repeated_input;
mod retained;
mod run_end;
mod service_call;
mod service_id;
mod start_call;
mod stored_messages;
mod submission;
mod summary;
mod tool_events;
mod unanswered_calls;
mod usage;
mod write;

use std::{
    fmt,
    sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use tokio::sync::OnceCell;
use tower_chat_core::{
    ChatRequest, Conversation, ConversationKey, Messages, RunId, store::HistoryStore,
};

pub(crate) use self::{
    approvals::{UnseenResult, keep_pending_calls, waiting_of},
    approved_calls::{submit_unstored_outcomes, withdraw_claims},
    begin::{
        RunParameters, Settings, begin_lone_run, begin_run,
        request::{open_request, put_history_for_loop},
        shared,
        stored_answer::{answered_before, repeated_answer, stored_answer},
    },
    events::{Event, LeaveCause},
    history::head_of,
    hooks::hooks_were_called,
    incomplete_commit::{IncompleteCommit, incomplete_commit, of_prior_calls},
    journaled::{InterruptedRun, end_unanswered, position_across_attempts},
    log::Persister,
    lost_history::check_recorded,
    model_request::strip_sentinel,
    of_loop::{number_after, number_message, restart_run, run_without_store, store_run},
    partial_text::{is_marked_interrupted, partial_message},
    persisted::persisted,
    prior_attempts::{CallOutcome, Waiting},
    redact::is_without_calls,
    repeated::last_answer,
    summary::summarize_before,
    tool_events::{tool_finished, tools_started, write_beside},
    unanswered_calls::unanswered_calls,
    usage::usage_of,
    write::{complete_run, discard_input},
};
pub use self::{fenced_attempt::FencedAttempt, redact::NotKept};
use self::{
    load_range::next_source_after_skipped, loaded::Loaded, log::RunLog, submission::Submission,
};
use crate::{Clock, PersistenceError, PersistenceMode, PersistencePolicy};

/// An active run, as a request extension that the layers of one stack share.
///
/// All clones refer to the same run.
///
/// This layer below the tool loop records the size of each service call of a run:
///
/// ```
/// use tower::ServiceBuilder;
/// use tower_chat::{layer::PerServiceCallPersistence, prelude::*, run::{Run, ServiceCall}};
/// # use tower_chat_testkit::{ScriptedModel, Step};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new([Step::text("Hello.")]);
/// let log = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
/// let shared = log.clone();
/// let model = ServiceBuilder::new()
///     .map_request(move |request: ChatRequest| {
///         let run = request.extensions.get::<Run>().map(|run| run.key().to_string());
///         let call = request.extensions.get::<ServiceCall>().map(|call| call.ordinal);
///         shared.lock().unwrap().push((run, call, request.messages().len()));
///         request
///     })
///     .service(model);
///
/// let agent = ChatPipeline::builder(model).history(MemoryStore::new()).build()?;
/// let key = ConversationKey::new("alice", "chat");
/// agent.oneshot(ChatRequest::user("Hi.").in_conversation(key.clone())).await?.collect().await?;
/// assert_eq!(*log.lock().unwrap(), [(Some(key.to_string()), Some(0), 1)]);
/// # let _ = PerServiceCallPersistence::new(MemoryStore::new());
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Run {
    shared: Arc<Shared>,
    /// Whether a persister has handled the request that contains this value.
    is_below_persister: bool,
}

/// The state that all clones of a run share.
struct Shared {
    conversation: Conversation,
    begun_by: BegunBy,
    log: Mutex<RunLog>,
    /// Empty until a persister begins the run. Until then, events of the run have no effect. Must
    /// be the last field: fields are dropped in order, and all other references to the loaded
    /// messages must be dropped before [`Loaded`].
    stored: OnceCell<Arc<Storage>>,
}

/// The mode and the store of a run.
struct Storage {
    conversation: Conversation,
    mode: PersistenceMode,
    policy: PersistencePolicy,
    store: Arc<dyn HistoryStore>,
    clock: Clock,
    /// The mode in which this run is stored. The table in `docs/contract.md` has one column for
    /// each mode. Differs from `mode` only if the service makes the answer in the background.
    stored_as: PersistenceMode,
    /// Whether a tool of another run has sent the request of this run.
    is_nested: bool,
    arrived_at: SystemTime,
    _loaded: Loaded,
}

/// The layer that has begun a run. `LayerAbove` and `ToolLoop` also end the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BegunBy {
    /// `PerRunPersistence`, above the tool loop.
    LayerAbove,
    /// The tool loop of this crate. The persister below loads the history with the first service
    /// call.
    ToolLoop,
    /// The persister, below a tool loop of another crate, without a tool loop, or if a layer in
    /// between has removed the request extensions. Each service call begins the run again. No layer
    /// ends the run, because none knows which call is the last.
    OtherLoop,
}

impl BegunBy {
    /// Returns which tool loop has made a service call of a run that no layer above has begun.
    pub(crate) fn of_service_call(request: &ChatRequest) -> Self {
        match request.extensions.get::<ServiceCall>() {
            Some(_) => Self::ToolLoop,
            None => Self::OtherLoop,
        }
    }
}

/// When a run is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WritePoint {
    /// A write at each service call stores the inputs of the call and its answer.
    EachCall,
    /// One write at the end of the run stores the whole run.
    End,
}

/// A request extension with the number of a service call within its run, counted from 0. The tool
/// loop inserts the extension.
///
/// A retry layer between the tool loop and the persister sends the same number again. The persister
/// then recognises the retry, and does not store the messages of the service call twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServiceCall {
    /// The number of service calls of the run before this one.
    pub ordinal: u32,
}

impl Run {
    pub(crate) fn begun_by(&self) -> BegunBy {
        self.shared.begun_by
    }

    /// Returns the id of the run.
    pub fn id(&self) -> RunId {
        self.conversation().run
    }

    /// Returns the key of the conversation that the run extends.
    pub fn key(&self) -> &ConversationKey {
        &self.conversation().key
    }

    pub(crate) fn conversation(&self) -> &Conversation {
        self.stored().map_or(&self.shared.conversation, |stored| &stored.conversation)
    }

    /// Returns the mode of the run, which decides when its messages become durable.
    pub fn mode(&self) -> PersistenceMode {
        self.stored().map_or(PersistenceMode::PerServiceCall, |stored| stored.mode)
    }

    /// Returns whether a layer below the tool loop adds the history to each service call. The tool loop
    /// then sends only new messages.
    pub fn persists_below(&self) -> bool {
        match self.mode() {
            PersistenceMode::PerRun => false,
            PersistenceMode::PerServiceCall | PersistenceMode::Journaled => true,
        }
    }

    /// Returns the mode and the store of the run, or `None` if no persister has begun the run.
    fn stored(&self) -> Option<&Storage> {
        self.shared.stored.get().map(|stored| &**stored)
    }

    /// Returns when the run is written: at its end in per-run mode, or if the service makes the
    /// answer in the background. Otherwise at each service call.
    pub(crate) fn write_point(&self) -> WritePoint {
        match self.stored().map(|stored| stored.stored_as) {
            Some(PersistenceMode::PerRun) => WritePoint::End,
            Some(PersistenceMode::PerServiceCall | PersistenceMode::Journaled) | None => {
                WritePoint::EachCall
            }
        }
    }

    /// Returns whether the outcome of each tool is stored before the next service call, so that
    /// results of tools need not be submitted when the run ends before this call.
    pub(crate) fn records_each_outcome(&self) -> bool {
        self.stored().is_some_and(|stored| stored.stored_as == PersistenceMode::Journaled)
    }

    /// Checks, after a service call, that a persister below the tool loop has handled the call.
    ///
    /// # Errors
    ///
    /// Returns [`PersistenceError::PersisterMissing`] in journaled mode and under
    /// [`MissingPersister::Fail`](crate::MissingPersister::Fail). Otherwise, a missing persister is
    /// logged once per run.
    pub fn check_persister(&self) -> Result<(), PersistenceError> {
        let mut log = self.log();
        if self.stored().is_none() || !self.persists_below() || log.persister.is_found() {
            return Ok(());
        }
        self.policy().without_persister(self.key(), self.mode())?;
        if std::mem::replace(&mut log.persister, Persister::Missing) != Persister::Missing {
            let missing = PersistenceError::PersisterMissing { key: self.key().clone() };
            tracing::warn!(conversation = %self.key(), "{missing}");
        }
        Ok(())
    }

    pub(crate) fn clock(&self) -> &Clock {
        static SYSTEM: LazyLock<Clock> = LazyLock::new(Clock::default);
        self.stored().map_or(&SYSTEM, |stored| &stored.clock)
    }

    pub(crate) fn store(&self) -> Option<&Arc<dyn HistoryStore>> {
        self.stored().map(|stored| &stored.store)
    }

    pub(crate) fn policy(&self) -> &PersistencePolicy {
        static DEFAULT: LazyLock<PersistencePolicy> = LazyLock::new(PersistencePolicy::default);
        self.stored().map_or(&DEFAULT, |stored| &stored.policy)
    }

    pub(crate) fn log(&self) -> MutexGuard<'_, RunLog> {
        self.shared.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl From<Arc<Shared>> for Run {
    fn from(shared: Arc<Shared>) -> Self {
        Self { shared, is_below_persister: false }
    }
}

/// Returns the run of a request, if a layer above the tool loop has begun it.
pub(crate) fn run_of_layer_above(request: &ChatRequest) -> Option<&Run> {
    request.extensions.get::<Run>().filter(|run| run.begun_by() == BegunBy::LayerAbove)
}

/// Returns the run of a request, if a persister has already handled the request.
pub(crate) fn run_of_persister_above(request: &ChatRequest) -> Option<&Run> {
    request.extensions.get::<Run>().filter(|run| run.is_below_persister)
}

/// Returns the source number that follows the highest source number in the loaded history, in the
/// messages that the run has added, and in the messages `own`.
pub(crate) fn next_source_number(run: &Run, own: &Messages) -> u64 {
    let citations = run.policy().replay.citations.clone().unwrap_or_default();
    let log = run.log();
    let history = log.conversation.history.messages.clone();
    let skipped = next_source_after_skipped(&log.conversation.history);
    let added = log.conversation.added.as_slice().iter().cloned().collect();
    drop(log);
    let next = [&history, &added, own].map(|messages| citations.next_number(messages));
    next.into_iter().fold(skipped, u64::max)
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("conversation", self.conversation())
            .field("mode", &self.mode())
            .finish_non_exhaustive()
    }
}
