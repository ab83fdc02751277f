//! When and how a run is persisted, and what happens where that fails.

mod journal;
mod prices;

use std::sync::Arc;

pub use self::{
    journal::{
        JournalPolicy, OnDisconnect, OnOpenRun, OnRefusal, RunEnd, UnknownAnswer, UnknownCall,
        UnknownCalls,
    },
    prices::{Price, PriceList},
};
use crate::{
    PersistenceMode,
    replay::{DanglingCalls, ReplayPolicy, Truncation},
    transcript::RepeatedTranscript,
};

/// What happens when a service keeps the history itself, under a service id, although a history store is
/// configured: everything would be kept twice.
///
/// All three are on by default and looked at in this order. With `throw` off and `clear` off the
/// store is kept as a record that is only written, and the service's id is adopted.
///
/// What is not read cannot say that a run is complete: a request that is sent again in a
/// conversation which the service keeps goes to the service again, which has its first answer in the
/// history, and such a record then holds both.
///
/// The answer of each service call is compared before a tool that it asks for runs and before the
/// next service call is made, in every mode, by the tool loop and by `PerServiceCallPersistence`. An
/// id in one answer and none in a later one of the same run is
/// [`ServiceIdMissing`](crate::PersistenceError::ServiceIdMissing). Under a foreign tool loop
/// with no layer of this crate below it, per-run persistence sees the run's last answer alone: an id
/// that only an earlier answer had is not noticed there.
///
/// A conversation that is already kept by the service (the request or the store names its id)
/// is no conflict; whether its messages are recorded too follows `clear` alone.
///
/// ```
/// use tower_chat::{ConflictPolicy, PersistencePolicy};
///
/// // The service keeps the conversation, and the store records it for people to read.
/// let record = ConflictPolicy { warn: false, throw: false, clear: false };
/// let policy = PersistencePolicy::default().on_conflict(record);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConflictPolicy {
    /// Log a warning.
    pub warn: bool,
    /// Fail the call, before anything of it is written.
    pub throw: bool,
    /// Stop recording this conversation, and adopt the service's id.
    ///
    /// A journaled run has staged its input before the service names an id. The run in which the
    /// first id comes is recorded whole; later runs are not.
    pub clear: bool,
}

impl Default for ConflictPolicy {
    fn default() -> Self {
        Self { warn: true, throw: true, clear: true }
    }
}

/// What happens when a service that keeps the history no longer has it: the response or the conversation
/// that the store refers to was deleted there, or has expired.
///
/// It is looked at by `PerRunPersistence`, when the first service call of a run fails with
/// [`HistoryLost`](tower_chat_core::HistoryLost).
///
/// ```
/// use tower_chat::{LostHistory, PersistencePolicy};
/// let policy = PersistencePolicy::default().on_lost_history(LostHistory::Fail);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostHistory {
    /// The recorded history is sent instead, in one more service call. If the answer names a new service
    /// id, the service keeps the history under that id, else the store keeps it. If nothing was recorded
    /// ([`ConflictPolicy::clear`]), the run fails as with [`Fail`](Self::Fail).
    #[default]
    SendRecord,
    /// The run fails with
    /// [`ServiceHistoryLost`](crate::PersistenceError::ServiceHistoryLost).
    Fail,
}

/// What happens when a service refuses a request for good, with the status 400, 413 or 422, and the content
/// of its messages may be why: an image that the service cannot read, a text that a filter has refused.
///
/// Without a mark, every later request of the conversation has the same content, and is refused. A
/// [mark](tower_chat_core::RefusalMark) is stored with the messages. Later requests to that service have a
/// sentence in the place of the content; requests to other services have the content.
/// [`lift_refusals`](crate::lift_refusals) removes marks.
///
/// It is looked at by `PerServiceCallPersistence`, in every mode, when a service call fails with
/// [`ContentRefused`](tower_chat_core::ContentRefused). Text and media that the user adds with the request
/// itself are never left out of that request: it fails.
///
/// ```
/// use tower_chat::{PersistencePolicy, RefusedContent};
/// // No service call is made that was not asked for.
/// let policy = PersistencePolicy::default().on_refused_content(RefusedContent::MarkNamed);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedContent {
    /// The same request is sent once more, without the content that may be refused. If the service accepts
    /// it, the content is marked and the run goes on with the answer. Content that the error names is
    /// marked in any case.
    #[default]
    AskAgain,
    /// Content that the error names is marked, and the run fails.
    MarkNamed,
    /// Nothing is marked, and the run fails.
    Fail,
}

/// What happens when the store fails to take a write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFailure {
    /// Log it, keep the write in the store handle's outbox, submit it again with the next write
    /// to its conversation, and report it in [`Finish::saved`](crate::Finish::saved).
    #[default]
    Continue,
    /// Fail the call with [`PersistenceError::NotStored`](crate::PersistenceError::NotStored),
    /// which carries the answer.
    FailCall,
}

/// What happens when the mode is [`PersistenceMode::PerServiceCall`] and no
/// `PerServiceCallPersistence` stands below the tool loop.
///
/// Without a choice the run fails, except under
/// [`use_client_as_is`](crate::ChatPipelineBuilder::use_client_as_is), where it is warned of. In
/// journaled mode it fails always, and so does a run that approves calls: their results would be
/// sent to a model that is not shown the calls.
///
/// The tool loop knows it before the model is called and before any tool runs. Without that loop,
/// or with a foreign one, it is known after the first service call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingPersister {
    /// Log a warning; nothing of the run is stored.
    Warn,
    /// Fail the run.
    #[default]
    Fail,
}

/// What happens to a run on a conversation on which another is under way.
///
/// Runs in other processes are seen where they are journaled; otherwise the revision of the
/// conversation tells at the first write, which is then a
/// [`Conflict`](crate::store::Conflict). Two runs are never mixed in one history.
///
/// ```
/// use tower_chat::{ConcurrentRuns, PersistencePolicy};
///
/// let patient = PersistencePolicy::default().with_concurrent_runs(ConcurrentRuns::Queue { most: 8 });
/// let branching = PersistencePolicy::default().with_concurrent_runs(ConcurrentRuns::Branch);
/// # let _ = (patient, branching);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConcurrentRuns {
    /// It fails with [`PersistenceError::RunUnderWay`](crate::PersistenceError::RunUnderWay) before
    /// the model is called.
    #[default]
    Reject,
    /// It waits for its turn, in the order in which runs came to this process. A journaled run
    /// that another process holds is waited for too, for
    /// [so long](crate::recovery::JournalPolicy::with_max_lease_wait) at most. So is a run of another
    /// process that runs an approved call, by a request that answers approvals, in every mode.
    Queue {
        /// How many may wait on one conversation; one more is rejected.
        most: usize,
    },
    /// It goes on in a copy of the conversation as it is now, under the same scope and an id made
    /// of the conversation's and the run's. The answer's
    /// [`Finish::branch`](crate::Finish::branch) says which.
    Branch,
}

/// What is stored of the inputs of a service call that came to no answer, in per-service-call mode:
/// the messages of the user, approvals, and the results of tools. What is not stored is the caller's
/// to send again; the same request sent again goes on in either case.
///
/// In per-run mode nothing is stored of a run that has no answer, and in journaled mode everything
/// is staged before the service is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnansweredInputs {
    /// All of them.
    All,
    /// The results of tools that have run, and what stands before them, such as their approvals.
    Results,
    /// None of them.
    None,
}

/// All choices about persistence apart from its mode. The defaults suit most users.
///
/// ```
/// use tower_chat::{ConcurrentRuns, PersistencePolicy, StoreFailure};
/// let policy = PersistencePolicy::default()
///     .on_store_failure(StoreFailure::FailCall) // an answer that is not stored is an error
///     .with_concurrent_runs(ConcurrentRuns::Queue { most: 8 }) // a second request waits
///     .with_partial_text(true); // the text of an answer that is cut off is stored
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PersistencePolicy {
    pub(crate) conflict: ConflictPolicy,
    pub(crate) lost_history: LostHistory,
    pub(crate) refused_content: RefusedContent,
    pub(crate) store_failure: StoreFailure,
    /// `None`, if nothing was chosen.
    pub(crate) missing_persister: Option<MissingPersister>,
    pub(crate) journal: JournalPolicy,
    pub(crate) concurrent_runs: ConcurrentRuns,
    pub(crate) repeated_transcript: RepeatedTranscript,
    pub(crate) replay: Arc<ReplayPolicy>,
    pub(crate) truncation: Truncation,
    pub(crate) keep_trailing_results: bool,
    pub(crate) keep_partial_text: bool,
    pub(crate) inputs_of_failed_call: UnansweredInputs,
    pub(crate) inputs_of_dropped_call: UnansweredInputs,
    pub(crate) prices: Option<PriceList>,
}

impl Default for PersistencePolicy {
    fn default() -> Self {
        Self {
            conflict: ConflictPolicy::default(),
            lost_history: LostHistory::default(),
            refused_content: RefusedContent::default(),
            store_failure: StoreFailure::default(),
            missing_persister: None,
            journal: JournalPolicy::default(),
            concurrent_runs: ConcurrentRuns::default(),
            repeated_transcript: RepeatedTranscript::default(),
            replay: Arc::default(),
            truncation: Truncation::default(),
            keep_trailing_results: false,
            keep_partial_text: false,
            inputs_of_failed_call: UnansweredInputs::All,
            inputs_of_dropped_call: UnansweredInputs::All,
            prices: None,
        }
    }
}

impl PersistencePolicy {
    /// What to do when the service keeps the history itself.
    #[must_use]
    pub fn on_conflict(mut self, policy: ConflictPolicy) -> Self {
        self.conflict = policy;
        self
    }

    /// What to do when the service that keeps the history no longer has it.
    #[must_use]
    pub fn on_lost_history(mut self, policy: LostHistory) -> Self {
        self.lost_history = policy;
        self
    }

    /// What to do when a service refuses content of the messages for good.
    #[must_use]
    pub fn on_refused_content(mut self, policy: RefusedContent) -> Self {
        self.refused_content = policy;
        self
    }

    /// What models cost: with it the cost of each answer is stored, and read by `HistoryStore::usage`.
    #[must_use]
    pub fn with_prices(mut self, prices: PriceList) -> Self {
        self.prices = Some(prices);
        self
    }

    /// What to do when a write fails.
    #[must_use]
    pub fn on_store_failure(mut self, policy: StoreFailure) -> Self {
        self.store_failure = policy;
        self
    }

    /// How journaled runs are written and taken up again.
    #[must_use]
    pub fn with_journal(mut self, policy: JournalPolicy) -> Self {
        self.journal = policy;
        self
    }

    /// What to do with a run on a conversation on which another is under way.
    #[must_use]
    pub fn with_concurrent_runs(mut self, policy: ConcurrentRuns) -> Self {
        self.concurrent_runs = policy;
        self
    }

    /// What to do with a request that brings messages which are stored already.
    ///
    /// ```
    /// use tower_chat::{PersistencePolicy, RepeatedTranscript};
    /// let policy =
    ///     PersistencePolicy::default().with_repeated_transcript(RepeatedTranscript::Recognise);
    /// ```
    #[must_use]
    pub fn with_repeated_transcript(mut self, choice: RepeatedTranscript) -> Self {
        self.repeated_transcript = choice;
        self
    }

    /// What to do when the layer that should write is not there.
    #[must_use]
    pub fn on_missing_persister(mut self, policy: MissingPersister) -> Self {
        self.missing_persister = Some(policy);
        self
    }

    /// Whether a run of this mode fails where no layer below the tool loop stores it.
    pub(crate) fn fails_without_persister(&self, mode: PersistenceMode) -> bool {
        match mode {
            PersistenceMode::PerRun => false,
            PersistenceMode::PerServiceCall => {
                self.missing_persister.unwrap_or_default() == MissingPersister::Fail
            }
            PersistenceMode::Journaled => true,
        }
    }

    /// What to do with stored calls that have no stored result.
    #[must_use]
    pub fn with_dangling_calls(mut self, policy: DanglingCalls) -> Self {
        Arc::make_mut(&mut self.replay).dangling_calls = policy;
        self
    }

    /// What the model is shown of the stored history. It replaces what
    /// [`with_dangling_calls`](Self::with_dangling_calls) has said.
    #[must_use]
    pub fn with_replay(mut self, policy: ReplayPolicy) -> Self {
        self.replay = Arc::new(policy);
        self
    }

    /// How long a stored tool result may be. The run under way sees all of it.
    #[must_use]
    pub fn with_truncation(mut self, truncation: Truncation) -> Self {
        self.truncation = truncation;
        self
    }

    /// Per-run mode: also store tool results at the end of a run that no service call has seen.
    /// Off by default, so that both modes store the same.
    #[must_use]
    pub fn with_trailing_results(mut self, keep: bool) -> Self {
        self.keep_trailing_results = keep;
        self
    }

    /// Whether the text that was streamed of an answer is kept when the answer is cut off, because
    /// its caller went away or its service failed. Off by default.
    ///
    /// - Per-service-call mode: once the run is gone, an assistant message with
    ///   `"interrupted": true` in its metadata follows what the model was asked. The same request
    ///   sent again goes on without it, as if it had not been said, and has another answer after
    ///   it; to later runs it is history like any other message. A layer below the tool loop that
    ///   asks again has its way first. Without `PerRunPersistence` above, nothing is kept.
    /// - Journaled mode: it is the open run's
    ///   [`partial_text`](tower_chat_core::store::OpenRun::partial_text). The answer of a run that
    ///   is resumed takes its place; where the run is committed as it is, such a message is its
    ///   last.
    /// - Per-run mode: nothing is kept of a run that has no answer.
    ///
    /// A process that is killed keeps none.
    #[must_use]
    pub fn with_partial_text(mut self, keep: bool) -> Self {
        self.keep_partial_text = keep;
        self
    }

    /// Per-service-call mode: what is stored of the inputs of a service call that fails.
    /// [`All`](UnansweredInputs::All) unless said otherwise: a retry need not run the tools again, and a
    /// reader sees the question as after a disconnect. A question that the service refuses is
    /// [marked](RefusedContent), so that it does not stop the conversation.
    ///
    /// ```
    /// use tower_chat::{PersistencePolicy, UnansweredInputs};
    /// // A message of the user that the provider has not answered is the caller's to send again.
    /// let policy = PersistencePolicy::default().with_inputs_of_failed_call(UnansweredInputs::Results);
    /// ```
    #[must_use]
    pub fn with_inputs_of_failed_call(mut self, inputs: UnansweredInputs) -> Self {
        self.inputs_of_failed_call = inputs;
        self
    }

    /// Per-service-call mode: what is stored of the inputs of a service call that is dropped, by a
    /// caller who disconnects, a timeout above or an aborted task. [`All`](UnansweredInputs::All)
    /// unless said otherwise.
    #[must_use]
    pub fn with_inputs_of_dropped_call(mut self, inputs: UnansweredInputs) -> Self {
        self.inputs_of_dropped_call = inputs;
        self
    }
}
