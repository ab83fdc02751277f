//! The faults for which every provider refuses a sequence of messages.

use std::{error::Error, fmt};

use tower_chat_core::{ConversationKey, Retryability};

/// A fault for which every provider would refuse a sequence of messages.
///
/// The fields `message` are positions in the checked sequence, from 0.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// A call has no result in the tool messages that directly follow the message of the call.
    #[error(
        "the call of tool {tool:?} in message {message} ({}) has no result directly after it",
        named(call_id.as_deref())
    )]
    Unanswered {
        /// The position of the message with the call.
        message: usize,
        /// The name of the tool.
        tool: String,
        /// The call's id, if it has one.
        call_id: Option<String>,
    },
    /// A call has a second result.
    #[error("the result in message {message} answers call {call_id:?}, which has a result already")]
    AnsweredTwice {
        /// The position of the message with the second result.
        message: usize,
        /// The call's id.
        call_id: String,
    },
    /// A result answers no call of the preceding assistant message.
    #[error(
        "the result in message {message} ({}) answers no call of the assistant message before it",
        named(call_id.as_deref())
    )]
    Orphan {
        /// The position of the message with the result.
        message: usize,
        /// The id in the result, if it has one.
        call_id: Option<String>,
    },
    /// A call has no id or an empty id, so that no result can refer to the call.
    #[error("the call of tool {tool:?} in message {message} has no id")]
    CallWithoutId {
        /// The position of the message with the call.
        message: usize,
        /// The name of the tool.
        tool: String,
    },
    /// Two calls of one message have the same id.
    #[error(
        "the call of tool {tool:?} in message {message} has an id of another call: {call_id:?}"
    )]
    RepeatedCallId {
        /// The position of the message with both calls.
        message: usize,
        /// The tool of the second call.
        tool: String,
        /// The id.
        call_id: String,
    },
    /// A message contains an approval request or an approval response, which no provider accepts.
    #[error("message {message} contains a part about approval request {request_id:?}")]
    Approval {
        /// The position of the message.
        message: usize,
        /// The id of the approval request.
        request_id: String,
    },
    /// An assistant message has no content.
    #[error("assistant message {message} is empty")]
    EmptyAssistant {
        /// The position of the message.
        message: usize,
    },
    /// The sequence has no messages.
    #[error("there are no messages")]
    NoMessages,
    /// A message whose role is not assistant has no content.
    #[error("message {message} has no content")]
    EmptyMessage {
        /// The position of the message.
        message: usize,
    },
    /// A message whose role is not assistant contains a call.
    #[error("message {message} calls tool {tool:?}, but is not an assistant message")]
    MisplacedCall {
        /// The position of the message.
        message: usize,
        /// The name of the tool.
        tool: String,
    },
    /// A message that is not a tool message contains a result.
    #[error(
        "message {message} contains a result ({}), but is not a tool message",
        named(call_id.as_deref())
    )]
    MisplacedResult {
        /// The position of the message.
        message: usize,
        /// The id in the result, if it has one.
        call_id: Option<String>,
    },
}

impl Fault {
    /// Returns the position of the message with the fault, or 0 if there are no messages.
    pub fn message(&self) -> usize {
        match self {
            Self::Unanswered { message, .. }
            | Self::AnsweredTwice { message, .. }
            | Self::Orphan { message, .. }
            | Self::CallWithoutId { message, .. }
            | Self::RepeatedCallId { message, .. }
            | Self::Approval { message, .. }
            | Self::EmptyAssistant { message }
            | Self::EmptyMessage { message }
            | Self::MisplacedCall { message, .. }
            | Self::MisplacedResult { message, .. } => *message,
            Self::NoMessages => 0,
        }
    }
}

/// The error for messages that every provider would refuse.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidMessages {
    first: Box<Fault>,
    more: Vec<Fault>,
}

impl fmt::Display for InvalidMessages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, more } = self;
        write!(f, "{first}{}", and_more(more))
    }
}

impl Error for InvalidMessages {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(Retryability::Permanent.as_source())
    }
}

impl InvalidMessages {
    pub(crate) fn of(faults: Vec<Fault>) -> Result<(), Self> {
        let mut faults = faults.into_iter();
        match faults.next() {
            None => Ok(()),
            Some(first) => Err(Self { first: Box::new(first), more: faults.collect() }),
        }
    }

    /// Returns the first fault.
    pub fn first(&self) -> &Fault {
        &self.first
    }

    /// Returns all faults, in the order in which they were found.
    pub fn faults(&self) -> impl Iterator<Item = &Fault> {
        std::iter::once(&*self.first).chain(&self.more)
    }
}

/// The error for a request that was not sent, because every provider would refuse it.
///
/// [`ValidateTranscriptLayer`](super::ValidateTranscriptLayer) returns this error as a
/// [`BoxError`](tower_chat_core::BoxError).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the request{} was not sent, because every provider would refuse it: check the input, and the layers between the \
     history and the model",
    of_conversation(conversation.as_ref())
)]
#[non_exhaustive]
pub struct InvalidRequest {
    /// The conversation of the request, or `None` if the request contains no conversation.
    pub conversation: Option<ConversationKey>,
    /// The faults of the request's messages.
    pub source: InvalidMessages,
}

impl InvalidRequest {
    /// Returns `false`, because the same request fails again.
    pub fn is_retryable(&self) -> bool {
        false
    }
}

fn named(call_id: Option<&str>) -> String {
    call_id.map_or_else(|| "no call id".to_owned(), |id| format!("call id {id:?}"))
}

fn and_more(more: &[Fault]) -> String {
    if more.is_empty() { String::new() } else { format!(" (and {} more)", more.len()) }
}

fn of_conversation(conversation: Option<&ConversationKey>) -> String {
    conversation.map(|key| format!(" of conversation {key}")).unwrap_or_default()
}
