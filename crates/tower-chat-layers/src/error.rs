//! The errors of the persistence layers. An open run is a journaled run that was neither committed
//! nor discarded. Its lease is the time until which no other process may take over the run.

use std::{error::Error, fmt, sync::Arc, time::SystemTime};

use tower_chat_core::{
    Answer, BoxError, Classified, ConversationKey, Message, Retryability, RunId, is_retryable,
    store::{Capability, Conflict, StoreError},
};

use crate::{
    PersistenceMode, replay::DanglingCallError, transcript::TranscriptDifference, utc::Utc,
    validate::InvalidMessages,
};

/// The error of a persistence layer.
///
/// Layers return this error as a [`BoxError`](tower_chat_core::BoxError). `downcast_ref` of the
/// `BoxError` returns the `PersistenceError`. If the model answered before the error occurred, the
/// error contains the answer.
///
/// ```
/// use tower_chat::{BoxError, PersistenceError};
///
/// /// What a handler does with the error of a run.
/// fn advice(error: &BoxError) -> String {
///     match error.downcast_ref::<PersistenceError>() {
///         Some(PersistenceError::RunUnderWay { .. }) => "answer 409: another run is under way".into(),
///         Some(PersistenceError::NotStored(lost)) => match &lost.answer {
///             Some(answer) => format!("give the answer, which is not stored: {}", answer.text()),
///             None => format!("{} messages are not stored", lost.unsaved.len()),
///         },
///         Some(other) if other.is_retryable() => "send the same request again".into(),
///         Some(other) => format!("answer 500: {other}"),
///         None => "an error of the model, of a tool or of another layer".into(),
///     }
/// }
/// # assert!(advice(&"x".into()).starts_with("an error"));
/// ```
#[derive(Debug)]
#[non_exhaustive]
pub enum PersistenceError {
    /// The request contains no conversation.
    NoConversation {
        /// The layer that needs a conversation.
        layer: &'static str,
    },
    /// The stored history could not be read. The model was not called.
    NotLoaded {
        /// The conversation.
        key: ConversationKey,
        /// The error of the store.
        source: StoreError,
    },
    /// A write could not be stored.
    NotStored(Box<NotStored>),
    /// The service stores the history, although a history store is configured.
    ServiceKeepsHistory {
        /// The conversation.
        key: ConversationKey,
        /// The id that the service returned.
        service_id: Arc<str>,
        /// The answer of the service, which is not stored. In per-run mode, the answer begins with
        /// the earlier messages of the run, including the results of tools, because nothing of the
        /// run is stored. In the other modes, the earlier messages are stored: in the history, or
        /// as results in the record of tool calls.
        answer: Box<Answer>,
    },
    /// The service id in the request differs from the stored service id.
    ServiceIdMismatch {
        /// The conversation.
        key: ConversationKey,
        /// The id in the store.
        remembered: Arc<str>,
        /// The id in the request.
        requested: Arc<str>,
    },
    /// The service returned no id for a conversation whose history it stores.
    ServiceIdMissing {
        /// The conversation.
        key: ConversationKey,
        /// The id in the request.
        service_id: Arc<str>,
        /// The answer of the service, which is not stored. In per-run mode, the answer begins with
        /// the earlier messages of the run, including the results of tools, because nothing of the
        /// run is stored. In the other modes, the earlier messages are stored: in the history, or
        /// as results in the record of tool calls.
        answer: Box<Answer>,
    },
    /// The service has lost the history to which the stored service id refers, and the stored
    /// messages were not sent instead.
    ServiceHistoryLost {
        /// The conversation.
        key: ConversationKey,
        /// The service id of the lost history.
        service_id: Arc<str>,
        /// Whether the store contains the messages of the history.
        is_recorded: bool,
        /// The error with which the service refused the request.
        source: BoxError,
    },
    /// A service refuses a request permanently, probably because of content in its messages.
    ContentRefused {
        /// The conversation.
        key: ConversationKey,
        /// The service, the message and its content.
        mark: tower_chat_core::RefusalMark,
        /// Whether the content is marked. Later requests to the service contain a sentence instead
        /// of marked content.
        is_marked: bool,
        /// The error with which the service refused the request.
        source: BoxError,
    },
    /// The mode needs `PerServiceCallPersistence` below the tool loop, and the stack does not
    /// contain this layer.
    PersisterMissing {
        /// The conversation.
        key: ConversationKey,
    },
    /// The answer contains a call that needs approval, but a [`persist`](crate::Tool::persist) hook
    /// does not allow this call, or another call of the same answer, to be stored. A call that is
    /// not stored cannot be run after its approval. Therefore approval was not requested, nothing
    /// of the answer is stored, and no call of the answer was run.
    PendingCallNotKept {
        /// The conversation.
        key: ConversationKey,
        /// The name of the tool.
        tool: String,
        /// The id of the call, as the model receives it.
        call_id: String,
        /// The reason for which the call is not stored: the hook returned
        /// [`Retention::Forget`](crate::tool::Retention::Forget), or the hook failed.
        reason: String,
        /// The answer of the service, with the original calls instead of approval requests.
        answer: Box<Answer>,
    },
    /// The layer is below the tool loop, where the layer would treat each service call as a run.
    /// The model was not called.
    BelowToolLoop {
        /// The conversation.
        key: ConversationKey,
        /// The name of the layer.
        layer: &'static str,
    },
    /// The mode needs `PerRunPersistence` above the tool loop, and the stack does not contain this
    /// layer.
    RunMissing {
        /// The conversation.
        key: ConversationKey,
        /// The requested mode.
        mode: &'static str,
    },
    /// The policy removes uncited sources when a run is stored, but the mode stores the run in
    /// several writes. The model was not called.
    CitationsAtSave {
        /// The conversation.
        key: ConversationKey,
        /// The mode of the run.
        mode: PersistenceMode,
    },
    /// The store lacks a capability that the request needs. The model was not called.
    MissingCapability {
        /// The conversation.
        key: ConversationKey,
        /// The capability.
        capability: Capability,
    },
    /// A summary of a stored conversation could not be made. Only
    /// [`Summarize::now`](crate::Summarize::now) returns this error, because a run that cannot make
    /// a summary continues without it.
    NotSummarized {
        /// The conversation.
        key: ConversationKey,
        /// The error of the service or of the store, or the reason for which the summary was not
        /// used.
        source: BoxError,
    },
    /// The stack contains two layers of the same kind, which would store each message twice.
    LayerTwice {
        /// The name of the layer.
        layer: &'static str,
    },
    /// The persistence layers above and below the tool loop use different stores.
    DifferentStores {
        /// The conversation.
        key: ConversationKey,
    },
    /// The tool loop sent stored messages again, but the messages differ from the stored ones. The
    /// model was not called.
    HistorySentAgain {
        /// The conversation.
        key: ConversationKey,
        /// The position and kind of the difference between the request and the stored messages.
        difference: TranscriptDifference,
    },
    /// The request contains an answer that is already stored. The model was not called.
    TranscriptRepeated {
        /// The conversation.
        key: ConversationKey,
        /// The position of the message among the request's new messages, from 0.
        position: usize,
    },
    /// The request repeats messages of its conversation, but the messages differ from the stored
    /// ones. The model was not called.
    TranscriptDiverged {
        /// The conversation.
        key: ConversationKey,
        /// The position of the first message that differs, among the request's new messages, from
        /// 0.
        position: usize,
    },
    /// The request repeats messages of its conversation, and adds no message. The model was not
    /// called.
    NothingNew {
        /// The conversation.
        key: ConversationKey,
    },
    /// The request continues a run that is incomplete, but another run has added messages after the
    /// messages of this run. The model was not called.
    RunOvertaken {
        /// The conversation.
        key: ConversationKey,
        /// The run of the request.
        run: RunId,
    },
    /// The request continues a background answer, and must not contain messages.
    MessagesWithContinuation {
        /// The number of messages.
        messages: usize,
    },
    /// Another run of this process is active in the conversation. The model was not called.
    RunUnderWay {
        /// The conversation.
        key: ConversationKey,
        /// The active run.
        run: RunId,
    },
    /// The conversation has an open run whose lease belongs to another process. That process
    /// executes the run, or has died. The model was not called.
    RunHeld {
        /// The conversation.
        key: ConversationKey,
        /// The open run.
        run: RunId,
        /// The [`StoreHandle::holder`](tower_chat_core::store::StoreHandle::holder) of the process with
        /// the lease.
        holder: u64,
        /// The end of the lease by the clock of that process. The process may renew the lease
        /// before this time.
        until: SystemTime,
    },
    /// The conversation has an open run, and the policy rejects new runs.
    OpenRun {
        /// The conversation.
        key: ConversationKey,
        /// The open run.
        run: RunId,
    },
    /// The request resumes a run that is no longer open and has no stored messages, because it was
    /// discarded. The model was not called.
    RunGone {
        /// The conversation.
        key: ConversationKey,
        /// The run of the request.
        run: RunId,
    },
    /// The open run of the conversation could not be ended.
    NotRecovered {
        /// The conversation.
        key: ConversationKey,
        /// The open run.
        run: RunId,
        /// The error of the store.
        source: StoreError,
    },
    /// The request has no content that a model can answer. The request and the history contain no
    /// messages, or a message of the request has no content. The model was not called, and nothing
    /// is stored.
    EmptyRequest {
        /// The conversation.
        key: ConversationKey,
        /// The faults of the messages.
        source: InvalidMessages,
    },
    /// The stored run with the id in the request has a different input. The id of a run is an
    /// idempotency key, and must not be used for a second run. The model was not called, and
    /// nothing is stored.
    RunIdReused {
        /// The conversation.
        key: ConversationKey,
        /// The run.
        run: RunId,
    },
    /// A stored call has no result, and the policy is
    /// [`DanglingCalls::Fail`](crate::replay::DanglingCalls::Fail).
    Dangling {
        /// The conversation.
        key: ConversationKey,
        /// The call.
        source: DanglingCallError,
    },
}

impl fmt::Display for PersistenceError {
    #[allow(clippy::too_many_lines, reason = "each variant has one text")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConversation { layer } => write!(
                f,
                "{layer} received a request without a conversation: set one with ChatRequest::in_conversation"
            ),
            Self::NotLoaded { key, .. } => {
                write!(f, "the history of conversation {key} could not be loaded")
            }
            Self::NotStored(error) => fmt::Display::fmt(error, f),
            Self::ServiceKeepsHistory { key, service_id, .. } => write!(
                f,
                "the service stores conversation {key} itself, with id {service_id:?}, but a history store is \
                 configured too: use only one of the two, or choose another ConflictPolicy"
            ),
            Self::ServiceIdMismatch { key, remembered, requested } => write!(
                f,
                "the service stores conversation {key} with id {remembered:?}, but the request has id {requested:?}: \
                 send it with the stored id, or in another conversation"
            ),
            Self::ServiceIdMissing { key, service_id, .. } => write!(
                f,
                "the service stores conversation {key} with id {service_id:?}, but its answer has no conversation id"
            ),
            Self::ServiceHistoryLost { key, service_id, is_recorded, .. } => {
                let then = match is_recorded {
                    true => {
                        "and the policy does not allow sending the recorded messages: choose LostHistory::SendRecord"
                    }
                    false => "and no message of it is recorded: continue in a new conversation",
                };
                write!(
                    f,
                    "the service no longer has the history of conversation {key}, which it stored with id \
                     {service_id:?}, {then}"
                )
            }
            Self::ContentRefused { key, mark, is_marked, .. } => {
                let (kind, message) = (mark.content.name(), mark.message);
                let then = match is_marked {
                    true => ": later requests to this service omit it",
                    false => "",
                };
                write!(
                    f,
                    "{} refused a request of conversation {key}, probably because of the {kind} in message \
                     {message}{then}",
                    mark.issuer
                )
            }
            Self::PersisterMissing { key } => write!(
                f,
                "PerServiceCallPersistence is missing below the tool loop (conversation {key}), and without it no \
                 message of this run would be stored: add it directly below the tool loop; if a layer between them, \
                 such as a Buffer, hides it, declare it with ToolLoopLayer::assume_persister_below"
            ),
            Self::PendingCallNotKept { key, tool, call_id, reason, .. } => write!(
                f,
                "call {call_id} of tool {tool:?} in conversation {key} cannot wait for approval, because the tool's \
                 persist hook {reason}: let the hook store the call, with other arguments if these must not be stored"
            ),
            Self::BelowToolLoop { key, layer } => write!(
                f,
                "{layer} is below the tool loop (conversation {key}), where it would treat each service call as a \
                 run: put it above the tool loop"
            ),
            Self::RunMissing { key, mode } => write!(
                f,
                "PerRunPersistence is missing above the tool loop (conversation {key}), and {mode} persistence needs \
                 it: add it above the tool loop"
            ),
            Self::CitationsAtSave { key, mode } => write!(
                f,
                "uncited sources of conversation {key} cannot be left out when its run is saved, because \
                 {mode:?} mode stores results before the answer cites them: choose \
                 CompactionTime::AtReplay, or another mode"
            ),
            Self::MissingCapability { key, capability } => write!(
                f,
                "the history store of conversation {key} lacks the capability {capability}, which the \
                 request needs: use a store that has it, or another mode"
            ),
            Self::NotSummarized { key, .. } => {
                write!(f, "a summary of conversation {key} could not be made")
            }
            Self::LayerTwice { layer } => {
                write!(f, "the stack contains {layer} twice: remove one of them")
            }
            Self::DifferentStores { key } => {
                write!(
                    f,
                    "the layers of one stack use different stores for conversation {key}: configure \
                     them with the same store"
                )
            }
            Self::HistorySentAgain { key, difference } => write!(
                f,
                "the tool loop repeats the messages of conversation {key}, but {difference}: above \
                 PerServiceCallPersistence, a tool loop must repeat stored messages unchanged, or send only new \
                 messages"
            ),
            Self::TranscriptRepeated { key, position } => write!(
                f,
                "message {position} of the request repeats an answer that conversation {key} contains already: send \
                 only new messages, or choose RepeatedTranscript::Recognise or Append"
            ),
            Self::TranscriptDiverged { key, position } => write!(
                f,
                "the request differs from conversation {key} from message {position} on: send only new messages, or \
                 begin another conversation with the whole transcript"
            ),
            Self::NothingNew { key } => write!(
                f,
                "the request adds no message to conversation {key}, which ends with an answer: add a message"
            ),
            Self::RunOvertaken { key, run } => write!(
                f,
                "run {run} of conversation {key} cannot continue: it is stored in part, and another run was stored \
                 after it: send the request with a new run id, with ChatRequest::in_conversation"
            ),
            Self::MessagesWithContinuation { messages } => write!(
                f,
                "a request with a continuation token must have no messages, but this request has {messages}: send \
                 the token without messages"
            ),
            Self::RunUnderWay { key, run } => write!(
                f,
                "run {run} of conversation {key} is in progress in this process: wait for its end, or queue \
                 runs (ConcurrentRuns::Queue)"
            ),
            Self::RunHeld { key, run, holder, until } => write!(
                f,
                "another process (holder {holder:016x}) has the lease of run {run} of conversation {key} until {}: a \
                 live process renews the lease, and the run of a dead process can be taken over after its lease. Try \
                 again then, or let runs wait for it (ConcurrentRuns::Queue, RecoveryPolicy::with_max_wait); a store \
                 that only one process opens can be opened as exclusive",
                Utc(*until)
            ),
            Self::OpenRun { key, run } => write!(
                f,
                "conversation {key} has an open run, {run}: resume, commit or discard it first \
                 (tower_chat::recovery)"
            ),
            Self::RunGone { key, run } => write!(
                f,
                "run {run} of conversation {key} cannot be resumed, because it was discarded: to repeat it, send its \
                 input as a new run"
            ),
            Self::NotRecovered { key, run, .. } => {
                write!(f, "open run {run} of conversation {key} could not be ended")
            }
            Self::EmptyRequest { key, .. } => write!(
                f,
                "the request to conversation {key} has no content: send a message with content"
            ),
            Self::RunIdReused { key, run } => write!(
                f,
                "run {run} of conversation {key} is stored with another input: send the same messages to repeat it, \
                 or send the request with a new run id"
            ),
            Self::Dangling { key, .. } => {
                write!(f, "the history of conversation {key} cannot be replayed")
            }
        }
    }
}

impl Error for PersistenceError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::NotLoaded { source, .. } | Self::NotRecovered { source, .. } => Some(source),
            Self::NotStored(not_stored) => not_stored.source(),
            Self::ServiceHistoryLost { source, .. }
            | Self::ContentRefused { source, .. }
            | Self::NotSummarized { source, .. } => Some(&**source),
            Self::EmptyRequest { source, .. } => Some(source),
            Self::Dangling { source, .. } => Some(source),
            _ => Some(Retryability::from_retryable(self.is_retryable()).as_source()),
        }
    }
}

pub(crate) fn as_permanent(source: BoxError) -> BoxError {
    match is_retryable(&*source) {
        Some(false) => source,
        Some(true) | None => Classified::permanent(source).into(),
    }
}

/// The error for a write that was not stored. Either the write failed under
/// [`StoreFailure::FailCall`](crate::StoreFailure::FailCall), or another run has changed
/// the conversation.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.what_happened())]
#[non_exhaustive]
pub struct NotStored {
    /// The conversation.
    pub key: ConversationKey,
    /// The error of the store.
    pub source: StoreError,
    /// The messages of the failed write, which are neither stored nor in the store's outbox (the
    /// failed writes that are submitted again). After a conflict, the list also contains the
    /// messages that were in the outbox before the write.
    pub unsaved: Vec<Arc<Message>>,
    /// The answer of the model, if the model had answered.
    pub answer: Option<Answer>,
}

impl NotStored {
    fn what_happened(&self) -> String {
        let Self { key, unsaved, .. } = self;
        let lost = match unsaved.len() {
            0 => String::new(),
            1 => "; 1 message was not stored".to_owned(),
            messages => format!("; {messages} messages were not stored"),
        };
        match self.conflict() {
            Some(_) => format!("another run has written to conversation {key}{lost}"),
            None => format!("the store refused a write to conversation {key}{lost}"),
        }
    }

    /// Returns the conflict, if another run has changed the conversation.
    pub fn conflict(&self) -> Option<&Conflict> {
        match &self.source {
            StoreError::Conflict(conflict) => Some(conflict),
            _ => None,
        }
    }
}

impl PersistenceError {
    /// Returns whether the same request may succeed if it is sent again.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotLoaded { source, .. } | Self::NotRecovered { source, .. } => {
                source.is_retryable()
            }
            Self::NotStored(not_stored) => not_stored.source.is_retryable(),
            Self::NotSummarized { source, .. } => is_retryable(&**source) == Some(true),
            Self::RunUnderWay { .. } | Self::RunHeld { .. } => true,
            _ => false,
        }
    }

    pub(crate) fn answer_mut(&mut self) -> Option<&mut Answer> {
        match self {
            Self::NotStored(not_stored) => not_stored.answer.as_mut(),
            Self::ServiceKeepsHistory { answer, .. }
            | Self::ServiceIdMissing { answer, .. }
            | Self::PendingCallNotKept { answer, .. } => Some(answer),
            _ => None,
        }
    }

    /// Returns the answer of the model, if the error contains an answer.
    pub fn answer(&self) -> Option<&Answer> {
        match self {
            Self::NotStored(not_stored) => not_stored.answer.as_ref(),
            Self::ServiceKeepsHistory { answer, .. }
            | Self::ServiceIdMissing { answer, .. }
            | Self::PendingCallNotKept { answer, .. } => Some(answer),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
