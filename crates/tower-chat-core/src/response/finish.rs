//! The end of an answer.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Answer, Change};
use crate::{ConversationKey, ExactNumbers, HistoryOwner, RunId};

/// The end of an answer: why it ended, what it cost, and what became of it.
///
/// What a caller reads of an answer:
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
    /// Why the model stopped, as the provider said it. Not reliable: providers say `stop`, or
    /// nothing, although there are tool calls.
    pub reason: Option<FinishReason>,
    /// What the answer cost; summed over the service calls of a run.
    pub usage: Usage,
    /// Who keeps the history; `None` where neither the service nor a layer does.
    pub history_owner: Option<HistoryOwner>,
    /// The token by which a background answer goes on.
    pub continuation: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// What became of the messages in the history store; `None` where no layer keeps one.
    pub saved: Option<Saved>,
    /// The copy of the conversation in which the run went on, because another run was under way.
    pub branch: Option<ConversationKey>,
    /// The open run that was resumed to its end before the run of this answer could begin.
    pub recovered: Option<Box<RecoveredRun>>,
    /// What ended the run, where that was not an answer that the model gave of its own accord.
    pub ended_by: Option<EndedBy>,
    /// What the service call sent in another form than it is stored, because the service does not take
    /// that form. Of a run, the changes of its last service call.
    pub changes: Vec<Change>,
    /// Anything else the provider said about the answer as a whole.
    pub metadata: Map<String, Value>,
    /// The integers of the body from which a whole answer was read that `metadata` would round. A body
    /// of the same wire is written with all their digits.
    pub exact_numbers: ExactNumbers,
}

impl Finish {
    /// An end with a reason and nothing else.
    pub fn new(reason: FinishReason) -> Self {
        Self { reason: Some(reason), ..Self::default() }
    }

    /// An ordinary end.
    pub fn stop() -> Self {
        Self::new(FinishReason::Stop)
    }

    /// Adds what the answer cost.
    #[must_use]
    pub fn with_usage(mut self, usage: Usage) -> Self {
        self.usage = usage;
        self
    }

    /// Adds the id under which the service keeps the history.
    #[must_use]
    pub fn with_service_id(mut self, id: impl Into<std::sync::Arc<str>>) -> Self {
        self.history_owner = Some(HistoryOwner::Service(id.into()));
        self
    }
}

/// An open run of the conversation that a later request resumed to its end before its own run
/// began.
///
/// The [`usage`](Finish::usage) of its answer is what the resumption cost; it is not part of the
/// usage of the later run. Where several runs had to be resumed, this is the last of them, and its
/// [`Finish::recovered`] is the one before.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct RecoveredRun {
    /// The run.
    pub run: RunId,
    /// Its whole answer, with what earlier attempts had added.
    pub answer: Answer,
}

impl RecoveredRun {
    /// A run with its answer.
    pub fn new(run: RunId, answer: Answer) -> Self {
        Self { run, answer }
    }
}

/// Why a model stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum FinishReason {
    /// It was done.
    Stop,
    /// It reached a token limit; a tool call may be cut off.
    Length,
    /// It asks for tools.
    ToolCalls,
    /// A filter stopped it.
    ContentFilter,
    /// Anything else, in the provider's words.
    Other(String),
}

/// What ends a run of the tool loop, apart from the model's own last answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EndedBy {
    /// The limit of rounds: the last service call was made without tools. Its answer may be empty,
    /// or ask for tools all the same; such calls are returned and not run.
    RoundLimit,
    /// A tool, whose results no service call has seen.
    Tool,
    /// [`RunHandle::stop`](crate::RunHandle::stop).
    Stop,
}

/// Tokens counted by the provider.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Usage {
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens read that came from the provider's cache; part of `input_tokens`.
    pub cached_input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens written as reasoning; part of `output_tokens`.
    pub reasoning_tokens: u64,
}

impl Usage {
    /// Tokens read and written.
    pub fn new(input_tokens: u64, output_tokens: u64) -> Self {
        Self { input_tokens, output_tokens, ..Self::default() }
    }

    /// Tokens read and written together; the largest number where the sum would overflow.
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

/// A sum that would overflow stays at the largest number: the counts come from a provider.
impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        let add = |sum: &mut u64, count: u64| *sum = sum.saturating_add(count);
        add(&mut self.input_tokens, other.input_tokens);
        add(&mut self.cached_input_tokens, other.cached_input_tokens);
        add(&mut self.output_tokens, other.output_tokens);
        add(&mut self.reasoning_tokens, other.reasoning_tokens);
    }
}

/// What became of a run's messages in the history store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Saved {
    /// Messages of the run that are durable.
    pub messages: usize,
    /// Messages that wait in the store's outbox because a write failed and the policy is to go on.
    pub unsaved: usize,
}

impl Saved {
    /// Counts of durable and waiting messages.
    pub fn new(messages: usize, unsaved: usize) -> Self {
        Self { messages, unsaved }
    }
}
