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
    summarize::Summarize,
    transcript::RepeatedTranscript,
};

/// The policy for a conflict between two history owners: a service stores the history under a
/// service id, although a history store is configured. The history would then be stored twice.
///
/// In every mode, the tool loop and `PerServiceCallPersistence` check the service id of each answer
/// before the tools of this answer run and before the next service call. If a later answer of the
/// same run has no id, the run fails with
/// [`ServiceIdMissing`](crate::PersistenceError::ServiceIdMissing). If the tool loop belongs to
/// another crate, and no layer of this crate is below it, per-run persistence receives only the
/// last answer of the run. The layer then does not detect an id that only an earlier answer had.
///
/// There is no conflict if the request or the store contains a service id, because the service then
/// already stores the history of the conversation. The store records the messages of such a
/// conversation only under [`Record`](Self::Record).
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::ConflictPolicy};
///
/// // The service stores the history. The store only records the messages for people to read.
/// let policy = PersistencePolicy::default().on_conflict(ConflictPolicy::Record);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum ConflictPolicy {
    /// Fails the call with [`ServiceKeepsHistory`](crate::PersistenceError::ServiceKeepsHistory),
    /// before any message of the call is written.
    #[default]
    Fail,
    /// Uses the service's id, and stops recording the conversation, except for approval requests and
    /// their results.
    ///
    /// A journaled run stages its input (stores it for a later commit) before the service returns
    /// an id. Such a run is therefore recorded completely if the service returns the first id
    /// during the run. Later runs are not recorded.
    StopRecording,
    /// Uses the service's id, and writes all messages to the store as a record.
    ///
    /// Runs do not read these messages, and therefore do not detect that a run is already complete.
    /// If a caller sends a request again, the service receives the request again and answers it
    /// again. The store then contains both answers.
    Record,
}

/// The policy for a service that has lost the history of a conversation. The stored service id
/// refers to a response or a conversation that the service has deleted, or that has expired.
///
/// `PerRunPersistence` applies the policy when the first service call of a run fails with
/// [`HistoryLost`](tower_chat_core::HistoryLost). Without `PerRunPersistence`,
/// `PerServiceCallPersistence` applies the policy.
///
/// ```
/// use tower_chat::{PersistencePolicy, policy::LostHistory};
/// let policy = PersistencePolicy::default().on_lost_history(LostHistory::Fail);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LostHistory {
    /// Sends the stored messages instead, in one more service call. If the answer contains a new
    /// service id, the service is the history owner under that id. Otherwise, the store is the
    /// history owner. If the store does not contain the messages because of
    /// [`ConflictPolicy::StopRecording`], the run fails as with [`Fail`](Self::Fail).
    #[default]
    SendRecord,
    /// The run fails with
    /// [`ServiceHistoryLost`](crate::PersistenceError::ServiceHistoryLost).
    Fail,
}

/// The policy for a request that a service refuses permanently, if the content of the request's
/// messages may be the reason. In this case the service reports the status 400, 413 or 422, for
/// example because the service cannot read an image, or because a filter has refused a text.
///
/// The layer can store a [mark](tower_chat_core::RefusalMark) for the refused content. Later
/// requests to the same service then contain a sentence instead of the marked content. Requests to
/// other services still contain the content. Without a mark, the service would refuse every later
/// request of the conversation, because all of them contain the content.
/// [`lift_refusals`](crate::lift_refusals) removes marks.
///
/// `PerServiceCallPersistence` applies the policy in every mode, when a service call fails with
/// [`ContentRefused`](tower_chat_core::ContentRefused). Text and media that the user sends in the
/// current request are never removed. If the service refuses them, the request fails.
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
    /// Sends the request again, once, without the content that the service may have refused. If the
    /// service accepts the second request, that content is marked, and the run continues with the
    /// answer. Content that the error names is marked in any case.
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
    /// Logs the failure, reports it in [`Finish::saved`](crate::Finish::saved), and adds the write
    /// to the outbox of the store handle. The next write to the conversation submits the failed
    /// write again.
    #[default]
    Continue,
    /// Fails the call with [`PersistenceError::NotStored`](crate::PersistenceError::NotStored). The
    /// error contains the answer.
    FailCall,
}

/// The policy for a run in [`PersistenceMode::PerServiceCall`] if no `PerServiceCallPersistence` is below
/// the tool loop.
///
/// The default is [`Fail`](Self::Fail). In a pipeline that was built with
/// [`use_client_as_is`](crate::ChatPipelineBuilder::use_client_as_is), the default is
/// [`Warn`](Self::Warn). Journaled runs fail under every policy. Runs that approve calls also fail
/// under every policy, because the model would receive results without their calls.
///
/// The tool loop of this crate detects the missing layer before the model is called and before any
/// tool runs. Without this tool loop, the missing layer is detected after the first service call.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum MissingPersister {
    /// Logs a warning. No message of the run is stored.
    Warn,
    /// Fails the run.
    #[default]
    Fail,
}

/// The policy for a run that begins while another run in the same conversation is active.
///
/// The policy applies to runs of this process, and to journaled runs of other processes, which the
/// store reports before a new run begins. Other runs of another process are not detected in
/// advance: if they write to the conversation first, the first write of the new run fails with a
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
    /// The runs of this process wait in a queue, in the order of their arrival. A run also waits,
    /// for [a limited time](crate::recovery::JournalPolicy::with_max_lease_wait), while another
    /// process has the lease of a journaled run of the conversation. In every mode, a request that
    /// answers approvals also waits while another process executes an approved call.
    Queue {
        /// The maximum number of waiting runs of one conversation. Further runs are rejected.
        max_waiting: usize,
    },
    /// The conversation is copied in its current state, and the run continues in the copy. The key
    /// of the copy has the same scope, and an id that is generated from the ids of the conversation
    /// and the run. [`Finish::branch`](crate::Finish::branch) of the answer contains this key.
    Branch,
}

/// The inputs that per-service-call mode stores if the service call fails. Inputs are user
/// messages, approvals, and results of tools. The caller must send again all inputs that are not
/// stored. If the caller sends the same request again, the run continues under every policy.
///
/// The policy has no effect in the other modes. Per-run mode stores nothing of a run without an
/// answer. Journaled mode stages all inputs before the service is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnansweredInputs {
    /// All inputs.
    All,
    /// The results of tools that have run, and all inputs before these results, such as approvals.
    Results,
    /// No inputs.
    None,
}

/// All settings of persistence except the mode. The defaults suit most users.
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
    /// `None` if the application has not set this policy.
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
    pub(crate) summarize: Option<Summarize>,
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
            summarize: None,
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

    /// Makes summaries of long conversations. By default, no summaries are made. The store must have
    /// the capability [`Summaries`](tower_chat_core::store::Summaries).
    #[must_use]
    pub fn with_summarize(mut self, summarize: Summarize) -> Self {
        self.summarize = Some(summarize);
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

    /// Sets the policy for a run that begins while another run in the same conversation is active.
    #[must_use]
    pub fn with_concurrent_runs(mut self, policy: ConcurrentRuns) -> Self {
        self.concurrent_runs = policy;
        self
    }

    /// Sets the policy for a request that contains messages that are already stored.
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

    /// Sets the policy for a run in a stack without the layer that stores the run's messages.
    #[must_use]
    pub fn on_missing_persister(mut self, policy: MissingPersister) -> Self {
        self.missing_persister = Some(policy);
        self
    }

    /// Returns an error if a run in this mode must not continue without a layer below the tool loop
    /// that stores its messages.
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

    /// Sets the maximum length of a stored tool result. The run in which the tool was called uses
    /// the whole result.
    #[must_use]
    pub fn with_truncation(mut self, truncation: Truncation) -> Self {
        self.truncation = truncation;
        self
    }

    /// Sets whether per-run mode also stores the last tool results of a run if no service call has
    /// sent them, for example because a tool ended the run. By default, these results are not
    /// stored, as in per-service-call mode.
    #[must_use]
    pub fn with_trailing_results(mut self, keep: bool) -> Self {
        self.keep_trailing_results = keep;
        self
    }

    /// Sets whether the text of a partial response is stored: the streamed text of an answer that
    /// was cut off because the caller disconnected or the service failed. Off by default.
    ///
    /// - Per-service-call mode: when the run is dropped, an assistant message with `"interrupted":
    ///   true` in its metadata is stored after all inputs of the service call, regardless of the
    ///   policy for these inputs. If the caller sends the same request again, the run ignores this
    ///   message, and stores its answer after this message. Later runs use the message like any
    ///   other message. If a layer below the tool loop retries the call, the answer of the retry is
    ///   stored instead. If the run has neither `PerRunPersistence` nor a tool loop of this crate,
    ///   no partial response is stored.
    /// - Journaled mode: the text is stored in the open run's
    ///   [`partial_text`](tower_chat_core::store::OpenRun::partial_text). The answer of the resumed
    ///   run replaces the text. If the run is committed in its current state instead, the final
    ///   message of the run is an assistant message with the text and the same metadata.
    /// - Per-run mode: nothing of a run without an answer is stored.
    ///
    /// If the process is killed, the text of the partial response is lost.
    #[must_use]
    pub fn with_partial_text(mut self, keep: bool) -> Self {
        self.keep_partial_text = keep;
        self
    }

    /// Sets the inputs of a failed service call that are stored in per-service-call mode. The
    /// default is [`All`](UnansweredInputs::All): a retry does not run the tools again, and the
    /// history contains the user's message. If the service refuses the content of this message, the
    /// content is [marked](RefusedContent), so that later requests of the conversation do not fail
    /// because of it.
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

    /// Sets the inputs of a dropped service call that are stored in per-service-call mode. A
    /// service call is dropped when the caller disconnects, when a timeout above the layer expires,
    /// or when the task is aborted. The default is [`All`](UnansweredInputs::All).
    #[must_use]
    pub fn with_inputs_of_dropped_call(mut self, inputs: UnansweredInputs) -> Self {
        self.inputs_of_dropped_call = inputs;
        self
    }
}
