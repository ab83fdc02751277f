//! The policies for persisting a run, and for failures.

mod journal;
mod prices;

use std::sync::Arc;

use tower_chat_core::ConversationKey;

pub use self::{
    journal::{
        JournalPolicy, OnDisconnect, OnOpenRun, OnRefusal, RunEnd, UnknownAnswer, UnknownCall,
        UnknownCalls,
    },
    prices::{Price, PriceList},
};
use crate::{
    PersistenceError, PersistenceMode,
    replay::{DanglingCalls, ReplayPolicy, Truncation},
    transcript::RepeatedTranscript,
};

/// The policy for a conflict between two history owners: a service stores the history under a service id,
/// although a history store is configured. Everything would be stored twice.
///
/// In every mode, the tool loop and `PerServiceCallPersistence` compare the service id of each answer
/// before its tools run and before the next service call. If a later answer of the same run has no id,
/// the run fails with [`ServiceIdMissing`](crate::PersistenceError::ServiceIdMissing). Under a tool
/// loop of another crate without a layer of this crate below it, per-run persistence only sees the
/// run's last answer, and does not detect an id that only an earlier answer had.
///
/// A conversation whose history the service already stores (the request or the store names its id) is
/// not a conflict. Its messages are recorded under [`Record`](Self::Record) only.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::ConflictPolicy};
///
/// // The service keeps the conversation, and the store records it for people to read.
/// let policy = PersistencePolicy::default().on_conflict(ConflictPolicy::Record);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ConflictPolicy {
    /// Fails the call before anything of it is written, with
    /// [`ServiceKeepsHistory`](crate::PersistenceError::ServiceKeepsHistory).
    #[default]
    Fail,
    /// Uses the service's id, and stops recording the conversation, except for approval requests and
    /// their results.
    ///
    /// A journaled run stages its input before the service returns an id. The run in which the first id
    /// is returned is recorded completely. Later runs are not.
    StopRecording,
    /// Uses the service's id, and writes the store as a record.
    ///
    /// The record is not read, so it cannot show that a run is complete. If a caller sends a request
    /// again, the service receives it again, although its history contains the first answer. The record
    /// then contains both answers.
    Record,
}

/// The policy for the loss of a history in the service: the response or the conversation that the store
/// refers to was deleted there, or has expired.
///
/// `PerRunPersistence` applies the policy when the first service call of a run fails with
/// [`HistoryLost`](tower_chat_core::HistoryLost). Without this layer, `PerServiceCallPersistence` does.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::LostHistory};
/// let policy = PersistencePolicy::default().on_lost_history(LostHistory::Fail);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostHistory {
    /// Sends the stored messages instead, in one more service call. If the answer names a new service
    /// id, the service stores the history under that id. Otherwise the store is the history owner. If
    /// nothing was recorded ([`ConflictPolicy::StopRecording`]), the run fails as with [`Fail`](Self::Fail).
    #[default]
    SendRecord,
    /// The run fails with
    /// [`ServiceHistoryLost`](crate::PersistenceError::ServiceHistoryLost).
    Fail,
}

/// The policy for a request that a service refuses permanently, if the content of its messages may be the
/// reason. The service reports the status 400, 413 or 422, for example for an image that it cannot read,
/// or for a text that a filter has refused.
///
/// Without a mark, every later request of the conversation contains the same content, and is refused. A
/// [mark](tower_chat_core::RefusalMark) is stored with the messages. Later requests to that service
/// contain a sentence in place of the content, and requests to other services contain the content.
/// [`lift_refusals`](crate::lift_refusals) removes marks.
///
/// `PerServiceCallPersistence` applies the policy in every mode, when a service call fails with
/// [`ContentRefused`](tower_chat_core::ContentRefused). Text and media of the user in the request
/// itself are never removed. Such a request fails.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::RefusedContent};
/// // The layer does not repeat a refused service call.
/// let policy = PersistencePolicy::default().on_refused_content(RefusedContent::MarkNamed);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RefusedContent {
    /// Sends the same request once more, without the content that may be refused. If the service
    /// accepts it, the content is marked and the run continues with the answer. Content that the error
    /// names is always marked.
    #[default]
    AskAgain,
    /// Marks the content that the error names, and fails the run.
    MarkNamed,
    /// Marks nothing, and fails the run.
    Fail,
}

/// The policy for a failed write.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreFailure {
    /// Logs the failure, adds the write to the store handle's outbox, submits it again with the next
    /// write to its conversation, and reports it in [`Finish::saved`](crate::Finish::saved).
    #[default]
    Continue,
    /// Fails the call with [`PersistenceError::NotStored`](crate::PersistenceError::NotStored), which
    /// contains the answer.
    FailCall,
}

/// The policy for a run in [`PersistenceMode::PerServiceCall`] if no `PerServiceCallPersistence` is below
/// the tool loop.
///
/// By default the run fails. In a pipeline that was built with
/// [`use_client_as_is`](crate::ChatPipelineBuilder::use_client_as_is), the default is a warning in the log.
/// Two kinds of runs fail under every policy: journaled runs, and runs that approve calls, because the model
/// would receive results without their calls.
///
/// The tool loop detects the missing layer before the model is called and before any tool runs. Without
/// that loop, or with a loop of another crate, the missing layer is detected after the first service
/// call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingPersister {
    /// Logs a warning. Nothing of the run is stored.
    Warn,
    /// Fails the run.
    #[default]
    Fail,
}

/// The policy for a run in a conversation with another active run.
///
/// The policy applies to other runs of this process, and to journaled runs of other processes, which the
/// store shows before the run begins. A run of another process that is not journaled is detected only at
/// the first write of this run: the conversation has another revision, and the write fails with a
/// [`Conflict`](crate::store::Conflict). The messages of two runs are never mixed in one history.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::ConcurrentRuns};
///
/// let queue = ConcurrentRuns::Queue { max_waiting: 8 };
/// let patient = PersistencePolicy::default().with_concurrent_runs(queue);
/// let branching = PersistencePolicy::default().with_concurrent_runs(ConcurrentRuns::Branch);
/// # let _ = (patient, branching);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConcurrentRuns {
    /// The run fails with [`PersistenceError::RunUnderWay`](crate::PersistenceError::RunUnderWay)
    /// before the model is called.
    #[default]
    Reject,
    /// The run waits in a queue, in the order in which runs arrived in this process. The run also waits
    /// for a journaled run whose lease another process has, for [a limited
    /// time](crate::recovery::JournalPolicy::with_max_lease_wait). A request that answers approvals also
    /// waits, in every mode, for a run of another process that executes an approved call.
    Queue {
        /// The maximum number of runs that wait on one conversation. Further runs are rejected.
        max_waiting: usize,
    },
    /// The run continues in a copy of the conversation in its current state, under the same scope and
    /// an id that is generated from the ids of the conversation and the run. The answer's
    /// [`Finish::branch`](crate::Finish::branch) contains the key of the copy.
    Branch,
}

/// The stored inputs of a failed service call, in per-service-call mode: user messages, approvals, and
/// results of tools. The caller must send the inputs that are not stored again. If the caller sends the
/// same request again, the run continues under every policy.
///
/// In per-run mode nothing of a run without an answer is stored, and in journaled mode everything is
/// staged before the service is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnansweredInputs {
    /// All inputs.
    All,
    /// The results of tools that have run, and the inputs before them, such as their approvals.
    Results,
    /// No inputs.
    None,
}

/// All settings of persistence except its mode. The defaults suit most users.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::{ConcurrentRuns, StoreFailure}};
/// let policy = PersistencePolicy::default()
///     .on_store_failure(StoreFailure::FailCall) // an answer that is not stored is an error
///     .with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 8 }) // a second request waits
///     .with_partial_text(true); // the text of an answer that is cut off is stored
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct PersistencePolicy {
    pub(crate) conflict: ConflictPolicy,
    pub(crate) lost_history: LostHistory,
    pub(crate) refused_content: RefusedContent,
    pub(crate) store_failure: StoreFailure,
    /// `None` if it was not set.
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
    /// Sets the policy for a conflict with a service that stores the history.
    #[must_use]
    pub fn on_conflict(mut self, policy: ConflictPolicy) -> Self {
        self.conflict = policy;
        self
    }

    /// Sets the policy for the loss of the history in the service.
    #[must_use]
    pub fn on_lost_history(mut self, policy: LostHistory) -> Self {
        self.lost_history = policy;
        self
    }

    /// Sets the policy for content that a service refuses permanently.
    #[must_use]
    pub fn on_refused_content(mut self, policy: RefusedContent) -> Self {
        self.refused_content = policy;
        self
    }

    /// Sets the prices of models. The cost of each answer is then stored, and `Directory::usage`
    /// returns it.
    #[must_use]
    pub fn with_prices(mut self, prices: PriceList) -> Self {
        self.prices = Some(prices);
        self
    }

    /// Sets the policy for a failed write.
    #[must_use]
    pub fn on_store_failure(mut self, policy: StoreFailure) -> Self {
        self.store_failure = policy;
        self
    }

    /// Sets the policy for writing and resuming journaled runs.
    #[must_use]
    pub fn with_journal(mut self, policy: JournalPolicy) -> Self {
        self.journal = policy;
        self
    }

    /// Sets the policy for a run in a conversation with another active run.
    #[must_use]
    pub fn with_concurrent_runs(mut self, policy: ConcurrentRuns) -> Self {
        self.concurrent_runs = policy;
        self
    }

    /// Sets the policy for a request that contains messages which are already stored.
    ///
    /// ```
    /// use tower_chat::{PersistencePolicy, transcript::RepeatedTranscript};
    /// let policy =
    ///     PersistencePolicy::default().with_repeated_transcript(RepeatedTranscript::Recognise);
    /// ```
    #[must_use]
    pub fn with_repeated_transcript(mut self, choice: RepeatedTranscript) -> Self {
        self.repeated_transcript = choice;
        self
    }

    /// Sets the policy for a run if the layer that should store the run is missing.
    #[must_use]
    pub fn on_missing_persister(mut self, policy: MissingPersister) -> Self {
        self.missing_persister = Some(policy);
        self
    }

    /// Decides whether a run of this mode may continue although no layer below the tool loop stores it.
    ///
    /// # Errors
    ///
    /// Returns [`PersistenceError::PersisterMissing`] if it may not.
    pub(crate) fn without_persister(
        &self,
        key: &ConversationKey,
        mode: PersistenceMode,
    ) -> Result<(), PersistenceError> {
        let fails = match mode {
            PersistenceMode::PerRun => false,
            PersistenceMode::PerServiceCall => {
                self.missing_persister.unwrap_or_default() == MissingPersister::Fail
            }
            PersistenceMode::Journaled => true,
        };
        if fails { Err(PersistenceError::PersisterMissing { key: key.clone() }) } else { Ok(()) }
    }

    /// Sets the policy for stored calls without a stored result.
    #[must_use]
    pub fn with_dangling_calls(mut self, policy: DanglingCalls) -> Self {
        Arc::make_mut(&mut self.replay).dangling_calls = policy;
        self
    }

    /// Sets the policy that decides which part of the stored history the model receives. Overrides an
    /// earlier call of [`with_dangling_calls`](Self::with_dangling_calls).
    #[must_use]
    pub fn with_replay(mut self, policy: ReplayPolicy) -> Self {
        self.replay = Arc::new(policy);
        self
    }

    /// Sets the maximum length of a stored tool result. The active run uses the whole result.
    #[must_use]
    pub fn with_truncation(mut self, truncation: Truncation) -> Self {
        self.truncation = truncation;
        self
    }

    /// Sets whether per-run mode also stores the tool results at the end of a run if no service call
    /// has sent them. Off by default, because per-service-call mode does not store them either.
    #[must_use]
    pub fn with_trailing_results(mut self, keep: bool) -> Self {
        self.keep_trailing_results = keep;
        self
    }

    /// Sets whether the streamed text of an answer is stored if the answer is cut off, because its
    /// caller disconnected or its service failed. Off by default.
    ///
    /// - Per-service-call mode: when the run is dropped, an assistant message with `"interrupted":
    ///   true` in its metadata is stored after the inputs. The same request sent again ignores this
    ///   message, and its answer is stored after it. Later runs use it like any other message. If a
    ///   layer below the tool loop retries the call, the answer of the retry is stored instead. Without
    ///   `PerRunPersistence` above, nothing is stored.
    /// - Journaled mode: the text is the open run's
    ///   [`partial_text`](tower_chat_core::store::OpenRun::partial_text). The answer of a resumed run
    ///   replaces it. If the run is committed in its current state, the final message of the run is
    ///   such an assistant message.
    /// - Per-run mode: nothing of a run without an answer is stored.
    ///
    /// If the process is killed, the text is lost.
    #[must_use]
    pub fn with_partial_text(mut self, keep: bool) -> Self {
        self.keep_partial_text = keep;
        self
    }

    /// Sets the inputs of a failed service call that are stored in per-service-call mode. The default is
    /// [`All`](UnansweredInputs::All). A retry then does not run the tools again, and a reader of the history
    /// sees the user's message. If the service refuses the content of the message, the content is
    /// [marked](RefusedContent), and does not block the conversation.
    ///
    /// ```
    /// use tower_chat::{PersistencePolicy, policy::UnansweredInputs};
    /// // If the provider has not answered a message of the user, the caller sends the message again.
    /// let policy = PersistencePolicy::default().with_inputs_of_failed_call(UnansweredInputs::Results);
    /// ```
    #[must_use]
    pub fn with_inputs_of_failed_call(mut self, inputs: UnansweredInputs) -> Self {
        self.inputs_of_failed_call = inputs;
        self
    }

    /// Sets the inputs of a dropped service call that are stored in per-service-call mode. A call is
    /// dropped by a caller that disconnects, by a timeout above or by an aborted task. The default is
    /// [`All`](UnansweredInputs::All).
    #[must_use]
    pub fn with_inputs_of_dropped_call(mut self, inputs: UnansweredInputs) -> Self {
        self.inputs_of_dropped_call = inputs;
        self
    }
}
