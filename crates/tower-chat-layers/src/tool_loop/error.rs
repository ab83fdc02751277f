//! The errors of the tool loop. A round consists of the calls of one answer of the model and their
//! results. A batch is the calls of one round.

use std::{any::Any, error::Error, fmt, time::SystemTime};

use tower_chat_core::{BoxError, ConversationKey, Retryability, is_verdict};

use crate::{
    policy::UnknownCall,
    tool::{Effect, ToolError},
    utc::Utc,
};

/// The failure of a run in the tool loop. The loop's service returns this error as a [`BoxError`].
///
/// ```
/// use tower_chat::{BoxError, error::ToolLoopError};
///
/// /// Returns why a run failed in the tool loop.
/// fn whose(error: &BoxError) -> &'static str {
///     match error.downcast_ref::<ToolLoopError>() {
///         Some(ToolLoopError::ToolFailedRun { .. }) => "a tool has ended the run",
///         Some(ToolLoopError::ConsecutiveFailures { .. }) => "its tools failed again and again",
///         Some(ToolLoopError::ApprovalAnswered { .. } | ToolLoopError::ApprovalUnknown { .. }) => {
///             "the caller's: that request for approval does not wait"
///         }
///         Some(_) => "the caller's, or the stack's",
///         None => "not of the tool loop",
///     }
/// }
/// # assert_eq!(whose(&"x".into()), "not of the tool loop");
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum ToolLoopError {
    /// Too many consecutive rounds had a failing tool.
    ConsecutiveFailures {
        /// The number of consecutive failing rounds.
        rounds: usize,
        /// All failures of these rounds, the oldest first.
        failures: Vec<ToolFailure>,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// A tool failed the run with [`ToolError::fail_run`]. The results of tools that have finished
    /// are stored.
    ToolFailedRun {
        /// The call and its error.
        failure: ToolFailure,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// The request decides about some approval requests of a batch, but not about all of them. No
    /// call was run.
    ApprovalMissing {
        /// The approval requests without a decision.
        ids: Vec<String>,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// A request decides about a call that already has its result. No call was run.
    ApprovalAnswered {
        /// The id of the approval request.
        id: String,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// A decision names an approval request that is not pending in this conversation. Either the
    /// approval request is neither stored nor among the messages of the chat request, or this
    /// conversation is a copy and the approval request is pending in the original. No call was run.
    ApprovalUnknown {
        /// The id in the decision.
        id: String,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// Another run is executing the approved call. The other run has stored a claim: a mark that it
    /// has started the call, with an expiry time. No call was run, and the model was not called.
    ApprovalHeld {
        /// The id of the approval request.
        id: String,
        /// The time at which the claim expires. The other run renews the claim while the tool runs.
        /// If the claim expires, the other run has ended without a result.
        until: SystemTime,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// The chat request both approves and rejects the same approval request. No call was run.
    ApprovalContradicted {
        /// The id of the approval request.
        id: String,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// The request approves calls of an answer, but other calls of the same answer have no results.
    /// The caller must execute these other calls and send their results. No call was run.
    ResultsMissing {
        /// The calls without a result.
        calls: Vec<CallNotRun>,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// Approved calls cannot be run. The `persist` hooks of their tools have changed the stored
    /// arguments, so the approved arguments are not stored. No call of the batch was run, and the model
    /// was not called.
    ///
    /// The record of tool calls now contains an error result for each of these calls. If the same
    /// approvals are sent again, the other calls of the batch run, and the model receives the error
    /// results. The error is nevertheless not retryable, because no repetition runs the calls
    /// themselves.
    ArgumentsNotKept {
        /// The calls that cannot be run.
        calls: Vec<CallNotRun>,
        /// The conversation.
        conversation: Option<ConversationKey>,
    },
    /// An earlier attempt was interrupted, and may or may not have run these calls. The policy does
    /// not allow the run to continue while their outcomes are unknown. The run remains open.
    UnknownCalls {
        /// The calls with an unknown outcome.
        calls: Vec<UnknownCall>,
        /// The conversation.
        conversation: Option<ConversationKey>,
    },
    /// An answer of the model contains more calls than the loop allows. No call of the answer was
    /// run, and no message of the answer is stored.
    TooManyCalls {
        /// The number of calls that had arrived when the answer was refused.
        calls: usize,
        /// The allowed number of calls.
        limit: usize,
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// A `PerServiceCallPersistence` is above the loop.
    PersisterAbove {
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
    /// A `PerRunPersistence` is below the loop. The model was not called, and no tool was run.
    PerRunPersistenceBelow {
        /// The conversation, if the request had one.
        conversation: Option<ConversationKey>,
    },
}

impl fmt::Display for ToolLoopError {
    #[allow(clippy::too_many_lines, reason = "it is one text for each variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ConsecutiveFailures { rounds, failures, conversation } => {
                let failures: Vec<_> =
                    failures.iter().map(|failure| Chain(failure).to_string()).collect();
                write!(
                    f,
                    "a tool failed in each of {rounds} rounds in a row{}: {}",
                    of_conversation(conversation.as_ref()),
                    failures.join("; ")
                )
            }
            Self::ToolFailedRun { failure, conversation } => {
                write!(f, "{}{}", Chain(failure), of_conversation(conversation.as_ref()))
            }
            Self::ApprovalMissing { ids, conversation } => write!(
                f,
                "the approval requests {ids:?}{} have no answer, but other requests of their batch have one: answer \
                 all requests of a batch in one request",
                of_conversation(conversation.as_ref())
            ),
            Self::ApprovalAnswered { id, conversation } => write!(
                f,
                "the call of the approval request {id:?}{} has a result already: load the conversation to read it, \
                 and answer only pending requests",
                of_conversation(conversation.as_ref())
            ),
            Self::ApprovalUnknown { id, conversation } => write!(
                f,
                "there is no approval request {id:?}{}: answer a request by its id, in the conversation that it \
                 belongs to, or send the message that contains it",
                of_conversation(conversation.as_ref())
            ),
            Self::ApprovalHeld { id, until, conversation } => write!(
                f,
                "the call of the approval request {id:?}{} was claimed by another process, whose claim lasts until \
                 {} unless the process renews it: try again then",
                of_conversation(conversation.as_ref()),
                Utc(*until)
            ),
            Self::ApprovalContradicted { id, conversation } => write!(
                f,
                "the approval request {id:?}{} is both approved and rejected: send one decision",
                of_conversation(conversation.as_ref())
            ),
            Self::ResultsMissing { calls, conversation } => write!(
                f,
                "the caller's {} of an approved batch{} have no results: send the results in the same request as the \
                 approvals, or before",
                listed(calls.iter().map(|call| (&call.tool, &call.call_id))),
                of_conversation(conversation.as_ref())
            ),
            Self::ArgumentsNotKept { calls, conversation } => write!(
                f,
                "the approved {} cannot be run{}, because a persist hook has changed the stored arguments: send the \
                 approvals again to report this to the model, or declare accepts_stored_arguments on a tool that can \
                 run with the arguments that its hook stores",
                listed(calls.iter().map(|call| (&call.tool, &call.call_id))),
                of_conversation(conversation.as_ref())
            ),
            Self::UnknownCalls { calls, conversation } => write!(
                f,
                "the {} of an interrupted run{} may or may not have run: resume the run with another UnknownCalls \
                 policy, commit it, or discard it",
                listed(calls.iter().map(|call| (&call.tool, &call.call_id))),
                of_conversation(conversation.as_ref())
            ),
            Self::TooManyCalls { calls, limit, conversation } => write!(
                f,
                "the model's answer{} contains at least {calls} tool calls, and the limit is {limit}: raise \
                 ToolLoopLayer::max_calls_per_answer, or send the request again",
                of_conversation(conversation.as_ref())
            ),
            Self::PersisterAbove { conversation } => write!(
                f,
                "PerServiceCallPersistence is above the tool loop{}, where it would treat a whole run as one service \
                 call: put it directly below the tool loop",
                of_conversation(conversation.as_ref())
            ),
            Self::PerRunPersistenceBelow { conversation } => write!(
                f,
                "PerRunPersistence is below the tool loop{}, where it would treat each service call as a run: put it \
                 above the tool loop",
                of_conversation(conversation.as_ref())
            ),
        }
    }
}

impl Error for ToolLoopError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(Retryability::from_retryable(self.is_retryable()).as_source())
    }
}

impl ToolLoopError {
    /// Returns whether the same request may succeed if it is sent again, because the tools may
    /// behave differently the next time, or because another run may have finished the call by then.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::ConsecutiveFailures { .. }
            | Self::ToolFailedRun { .. }
            | Self::ApprovalHeld { .. } => true,
            Self::ApprovalMissing { .. }
            | Self::ApprovalAnswered { .. }
            | Self::ApprovalUnknown { .. }
            | Self::ApprovalContradicted { .. }
            | Self::ResultsMissing { .. }
            | Self::ArgumentsNotKept { .. }
            | Self::UnknownCalls { .. }
            | Self::TooManyCalls { .. }
            | Self::PersisterAbove { .. }
            | Self::PerRunPersistenceBelow { .. } => false,
        }
    }
}

/// A call that the loop did not run.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CallNotRun {
    /// The tool's name.
    pub tool: String,
    /// The id of the call, as it is sent to the model.
    pub call_id: String,
}

/// One failed execution of a tool.
#[derive(Debug, thiserror::Error)]
#[error("tool {tool:?} failed in round {round_index} (call {call_id})")]
#[non_exhaustive]
pub struct ToolFailure {
    /// The tool's name.
    pub tool: String,
    /// The id of the call, as it is sent to the model.
    pub call_id: String,
    /// The index of the round in the run, counted from 0.
    pub round_index: usize,
    /// The error that the tool returned, its panic as [`ToolPanicked`], or the text of its error
    /// result.
    #[source]
    pub source: BoxError,
}

impl ToolFailure {
    pub(super) fn fails_run(&self) -> bool {
        matches!(ToolError::effect_of(&*self.source), Some(Effect::FailRun(_)))
    }
}

/// A tool panicked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the tool panicked: {message}")]
#[non_exhaustive]
pub struct ToolPanicked {
    /// The panic's message.
    pub message: String,
}

impl ToolPanicked {
    pub(super) fn new(payload: &(dyn Any + Send)) -> Self {
        let text = payload.downcast_ref::<&str>().copied();
        let text = text.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
        Self { message: text.unwrap_or("no message").to_owned() }
    }
}

/// A tool loop was limited to 0 rounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tool loop needs at least one round: leave the loop out to run no tools")]
pub struct ZeroRounds;

/// Displays an error with its causes on one line, except causes without text (the effect of a
/// [`ToolError`], and a [`Retryability`]).
pub(super) struct Chain<'a>(pub(super) &'a (dyn std::error::Error + 'a));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut source = self.0.source();
        while let Some(error) = source {
            if !error.is::<Effect>() && !is_verdict(error) {
                write!(f, ": {error}")?;
            }
            source = error.source();
        }
        Ok(())
    }
}

/// Returns a text with the tools and ids of calls, such as "calls look (1), pay (2)".
fn listed<'a>(calls: impl Iterator<Item = (&'a String, &'a String)>) -> String {
    let calls: Vec<_> = calls.map(|(tool, call_id)| format!("{tool} ({call_id})")).collect();
    format!("calls {}", calls.join(", "))
}

fn of_conversation(conversation: Option<&ConversationKey>) -> String {
    conversation.map(|key| format!(" (conversation {key})")).unwrap_or_default()
}
