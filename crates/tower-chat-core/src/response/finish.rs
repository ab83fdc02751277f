//! The end of an answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Answer, Change};
use crate::{ConversationKey, ExactNumbers, HistoryOwner, RunId};

/// The end of an answer: its reason, its tokens, and the number of stored messages.
///
/// The example reads the end of an answer:
///
/// ```
/// use tower_chat_core::{Finish, FinishReason, Usage};
///
/// let finish = Finish::stop().with_usage(Usage::new(1_200, 80)); // `answer.finish`
/// if finish.reason == Some(FinishReason::Length) {
///     println!("cut off: raise max_output_tokens");
/// }
/// match &finish.saved {
///     Some(saved) if saved.unsaved > 0 => println!("{} messages wait", saved.unsaved),
///     Some(saved) => println!("{} messages are stored", saved.messages),
///     None => println!("no layer stores a history"),
/// }
/// assert_eq!(finish.usage.total_tokens(), 1_280);
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Finish {
    /// The reason why the model stopped, from the provider. This reason is unreliable: some
    /// providers report `stop`, or nothing, for an answer with tool calls.
    pub reason: Option<FinishReason>,
    /// The tokens of the answer, summed over the service calls of a run.
    pub usage: Usage,
    /// The owner of the history; `None` if neither the service nor a layer stores it.
    pub history_owner: Option<HistoryOwner>,
    /// The id of a background answer (continuation token). A later request with this id fetches the
    /// answer.
    pub continuation: Option<String>,
    /// The model that returned the answer.
    pub model: Option<String>,
    /// The number of messages that were stored; `None` if no layer stores them.
    pub saved: Option<Saved>,
    /// The branch (copy of the conversation) in which this run took place, because another run was
    /// in progress on the original.
    pub branch: Option<ConversationKey>,
    /// The open run (a run that was interrupted before its end) that was resumed and completed
    /// before the run of this answer began.
    pub recovered: Option<Box<RecoveredRun>>,
    /// The cause of the run's end, if it is not the model's final answer.
    pub ended_by: Option<EndedBy>,
    /// The differences between the stored messages and the request, which exist because the service
    /// does not accept the stored form. For a run, these are the differences of its final service
    /// call.
    pub changes: Vec<Change>,
    /// Further data of the provider about the answer as a whole.
    pub metadata: Map<String, Value>,
    pub(crate) exact_numbers: ExactNumbers,
}

impl Finish {
    /// Creates an end with only a reason.
    pub fn new(reason: FinishReason) -> Self {
        Self { reason: Some(reason), ..Self::default() }
    }

    /// Creates an end with the reason [`FinishReason::Stop`].
    pub fn stop() -> Self {
        Self::new(FinishReason::Stop)
    }

    /// Returns the integers in `metadata` that a [`Value`] rounds, with all digits. The reader of a
    /// wire (JSON format of a provider) collects these integers from the body of a whole answer,
    /// and the writer of the same wire writes them with all digits. From a streamed answer, no
    /// integers are collected.
    pub fn exact_numbers(&self) -> &ExactNumbers {
        &self.exact_numbers
    }

    /// Sets the [exact numbers](Self::exact_numbers).
    #[must_use]
    pub fn with_exact_numbers(mut self, exact_numbers: ExactNumbers) -> Self {
        self.exact_numbers = exact_numbers;
        self
    }

    /// Sets the tokens of the answer.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Sets the id under which the service stores the history.
    #[must_use]
    pub fn with_service_id(mut self, id: impl Into<std::sync::Arc<str>>) -> Self {
        self.history_owner = Some(HistoryOwner::Service(id.into()));
        self
    }
}

/// An open run of the conversation, which was interrupted before its end. A later request resumed
/// and completed this open run before the request's own run began.
///
/// The [`usage`](Finish::usage) in [`answer`](Self::answer) is the usage of the resumed attempt
/// (execution), and is not part of the usage of the later run. If several runs were resumed, this
/// value is the newest of these runs, and [`Finish::recovered`] of its answer contains the run that
/// was resumed before this one.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RecoveredRun {
    /// The run.
    pub run: RunId,
    /// The whole answer of the run, including the messages of earlier attempts.
    pub answer: Answer,
}

impl RecoveredRun {
    /// Creates a recovered run with its answer.
    pub fn new(run: RunId, answer: Answer) -> Self {
        Self { run, answer }
    }
}

/// The reason why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// The model completed its answer.
    Stop,
    /// The answer reached a token limit. A tool call may be cut off.
    Length,
    /// The answer contains tool calls.
    ToolCalls,
    /// A content filter stopped the answer.
    ContentFilter,
    /// Any other reason, with the provider's name for the reason.
    Other(String),
}

/// The cause of a run's end, other than the model's final answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndedBy {
    /// The run reached its limit of rounds (an answer with tool calls, and their results), so that
    /// its last request to the model contained no tools. The final answer may be empty, or may
    /// contain tool calls nevertheless. These tool calls are returned to the caller and not run.
    RoundLimit,
    /// A tool ended the run. No service call has received the results of the last round.
    Tool,
    /// [`RunHandle::stop`](crate::RunHandle::stop) was called.
    Stop,
}

/// Numbers of tokens, as counted by the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// The number of input tokens.
    pub input_tokens: u64,
    /// The number of input tokens from the provider's cache. `input_tokens` includes these tokens.
    pub cached_input_tokens: u64,
    /// The number of output tokens.
    pub output_tokens: u64,
    /// The number of reasoning tokens. `output_tokens` includes these tokens.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Creates a usage of input and output tokens.
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, ..Self::default() }
    }

    /// Returns the sum of input and output tokens, which saturates at the largest number.
    ///
    /// ```
    /// use tower_chat_core::Usage;
    /// assert_eq!(Usage::new(3, 4).total_tokens(), 7);
    /// assert_eq!(Usage::new(u64::MAX, 4).total_tokens(), u64::MAX);
    /// ```
    pub fn total_tokens(&self) -> u64 {
        self.input_tokens.saturating_add(self.output_tokens)
    }
}

/// Sums saturate at the largest number, because the counts come from a provider.
impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.cached_input_tokens, other.cached_input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        add(&mut self.reasoning_tokens, other.reasoning_tokens);
    }
}

/// The number of messages of a run that the history store has stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// The number of messages of the run that are durable.
    pub messages: usize,
    /// The number of messages in the store's outbox, which contains writes that failed and are
    /// submitted again later. There are such messages only if the policy is to continue the run
    /// after a failed write.
    pub unsaved: usize,
}

impl Saved {
    /// Creates counts of durable and unsaved messages.
    pub fn new(messages: usize, unsaved: usize) -> Self {
        Self { messages, unsaved }
    }
}
