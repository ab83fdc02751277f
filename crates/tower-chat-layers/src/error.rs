//! What the persistence layers report.

use std::{error::Error, fmt, sync::Arc, time::SystemTime};

use tower_chat_core::{
    Answer, BoxError, Classified, ConversationKey, Message, Retryability, RunId, is_retryable,
    store::{Conflict, StoreError},
};

use crate::{
    PersistenceMode, replay::DanglingCallError, transcript::TranscriptDifference, utc::Utc,
    validate::InvalidMessages,
};

/// A persistence layer could not do its work.
///
/// Layers report it as a boxed error; find it again with `downcast_ref`. Where the model had
/// already answered, the error carries the answer.
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
    /// The request does not say which conversation it belongs to.
    NoConversation {
        /// The layer that needs one.
        layer: &'static str,
    },
    /// The stored history could not be read. The model was not called.
    NotLoaded {
        /// The conversation.
        key: ConversationKey,
        /// Why.
        source: StoreError,
    },
    /// Something could not be stored.
    NotStored(Box<NotStored>),
    /// The service keeps the history itself, and so does a store.
    ServiceKeepsHistory {
        /// The conversation.
        key: ConversationKey,
        /// The id the service returned.
        service_id: Arc<str>,
        /// What the service answered; nothing of it was stored. In per-run mode, where nothing of
        /// the run is stored, what the run had added before comes first, results of tools included;
        /// in the other modes those are stored, or in the record of tool calls.
        answer: Box<Answer>,
    },
    /// The request names another service conversation than the one that is remembered.
    ServiceIdMismatch {
        /// The conversation.
        key: ConversationKey,
        /// The id in the store.
        remembered: Arc<str>,
        /// The id on the request.
        requested: Arc<str>,
    },
    /// The service returned no id for a conversation that it keeps.
    ServiceIdMissing {
        /// The conversation.
        key: ConversationKey,
        /// The id the request carried.
        service_id: Arc<str>,
        /// What the service answered; nothing of it was stored. In per-run mode, where nothing of
        /// the run is stored, what the run had added before comes first, results of tools included;
        /// in the other modes those are stored, or in the record of tool calls.
        answer: Box<Answer>,
    },
    /// The service no longer has the history that the store refers to, and the record was not sent instead.
    ServiceHistoryLost {
        /// The conversation.
        key: ConversationKey,
        /// The id under which the service kept it.
        service_id: Arc<str>,
        /// Whether the store has a record of the history.
        is_recorded: bool,
        /// How the service refused the request.
        source: BoxError,
    },
    /// A service refuses a request for good, and content of its messages is likely at fault.
    ContentRefused {
        /// The conversation.
        key: ConversationKey,
        /// The service, the message and its content.
        mark: tower_chat_core::RefusalMark,
        /// Whether the content is marked: later requests to the service have a sentence in its place.
        is_marked: bool,
        /// How the service refused the request.
        source: BoxError,
    },
    /// The mode needs a layer that is not in the stack.
    PersisterMissing {
        /// The conversation.
        key: ConversationKey,
    },
    /// The model asked for a call that needs approval, and of which the tool's
    /// [`persist`](crate::Tool::persist) hook keeps nothing, or of a call that waits with it: it
    /// could not be run when it is approved. Approval was not asked for, nothing of the answer is
    /// stored, and no tool of it was run.
    PendingCallNotKept {
        /// The conversation.
        key: ConversationKey,
        /// The tool.
        tool: String,
        /// The call's id, as the model is shown it.
        call_id: String,
        /// What the hook did: it forgot the call, or failed, with the failure.
        reason: String,
        /// What the service answered, with its calls as calls.
        answer: Box<Answer>,
    },
    /// The layer stands below the tool loop, where each service call would be a run. The model was
    /// not called.
    BelowToolLoop {
        /// The conversation.
        key: ConversationKey,
        /// The layer.
        layer: &'static str,
    },
    /// The mode needs the layer above the tool loop.
    RunMissing {
        /// The conversation.
        key: ConversationKey,
        /// The mode that was asked for.
        mode: &'static str,
    },
    /// Sources that were not cited are to be left out when a run is saved, and the run is saved bit
    /// by bit. The model was not called.
    CitationsAtSave {
        /// The conversation.
        key: ConversationKey,
        /// The mode of the run.
        mode: PersistenceMode,
    },
    /// Two layers of one kind are in the stack; both would store everything.
    LayerTwice {
        /// The layer.
        layer: &'static str,
    },
    /// The layers above and below the tool loop were given different stores.
    DifferentStores {
        /// The conversation.
        key: ConversationKey,
    },
    /// The tool loop sent stored messages again, but not as they are stored. The model was not called.
    HistorySentAgain {
        /// The conversation.
        key: ConversationKey,
        /// Where the request differs from what is stored, and in what.
        difference: TranscriptDifference,
    },
    /// The request brings an answer that is stored already. The model was not called.
    TranscriptRepeated {
        /// The conversation.
        key: ConversationKey,
        /// The position of the message among the request's own, from 0.
        position: usize,
    },
    /// The request repeats its conversation, and it goes another way than the stored one. The model
    /// was not called.
    TranscriptDiverged {
        /// The conversation.
        key: ConversationKey,
        /// The position of the first message, among the request's own and from 0, that is not in
        /// the conversation after those before it.
        position: usize,
    },
    /// The request repeats its conversation and adds nothing. The model was not called.
    NothingNew {
        /// The conversation.
        key: ConversationKey,
    },
    /// The request belongs to a run that is stored in part, and another run has added to the
    /// conversation since. The model was not called.
    RunOvertaken {
        /// The conversation.
        key: ConversationKey,
        /// The run that was sent again.
        run: RunId,
    },
    /// A request goes on with a background answer and brings messages too.
    MessagesWithContinuation {
        /// How many it has.
        messages: usize,
    },
    /// Another run is under way on the conversation, in this process. The model was not called.
    RunUnderWay {
        /// The conversation.
        key: ConversationKey,
        /// The run under way.
        run: RunId,
    },
    /// The conversation has an open run that another process holds: it is at work on the run, or
    /// has died. The model was not called.
    RunHeld {
        /// The conversation.
        key: ConversationKey,
        /// The run.
        run: RunId,
        /// The [`StoreHandle::holder`](tower_chat_core::store::StoreHandle::holder) through which
        /// it is written.
        holder: u64,
        /// Until when it is held, by its process's clock, unless that renews it.
        until: SystemTime,
    },
    /// The conversation has an open run, and the policy is to leave it alone.
    OpenRun {
        /// The conversation.
        key: ConversationKey,
        /// The open run.
        run: RunId,
    },
    /// The request resumes a run that is open no more, and of which nothing is stored: it was
    /// discarded meanwhile. The model was not called.
    RunGone {
        /// The conversation.
        key: ConversationKey,
        /// The run that was to be resumed.
        run: RunId,
    },
    /// The open run of the conversation could not be ended.
    NotRecovered {
        /// The conversation.
        key: ConversationKey,
        /// The open run.
        run: RunId,
        /// Why.
        source: StoreError,
    },
    /// The request says nothing that a model could answer to: neither it nor the history before it has
    /// messages, or one of its messages has no content. The model was not called, and nothing is stored.
    EmptyRequest {
        /// The conversation.
        key: ConversationKey,
        /// What is empty.
        source: InvalidMessages,
    },
    /// The run is stored with other input than the request has: its id is an idempotency key, and
    /// was used again. The model was not called, and nothing is stored.
    RunIdReused {
        /// The conversation.
        key: ConversationKey,
        /// The run.
        run: RunId,
    },
    /// A stored call has no result, and the policy is to fail.
    Dangling {
        /// The conversation.
        key: ConversationKey,
        /// The call.
        source: DanglingCallError,
    },
}

impl fmt::Display for PersistenceError {
    #[allow(clippy::too_many_lines, reason = "it is one text for each variant")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoConversation { layer } => write!(
                f,
                "{layer} got a request without a conversation: \
                 give it one with ChatRequest::in_conversation"
            ),
            Self::NotLoaded { key, .. } => {
                write!(f, "the history of conversation {key} could not be loaded")
            }
            Self::NotStored(error) => fmt::Display::fmt(error, f),
            Self::ServiceKeepsHistory { key, service_id, .. } => write!(
                f,
                "the service keeps conversation {key} itself, under id {service_id:?}, but a history \
                 store is configured too: remove one of them, or choose another ConflictPolicy"
            ),
            Self::ServiceIdMismatch { key, remembered, requested } => write!(
                f,
                "conversation {key} is kept by the service under id {remembered:?}, \
                 but the request names {requested:?}"
            ),
            Self::ServiceIdMissing { key, service_id, .. } => write!(
                f,
                "conversation {key} is kept by the service under id {service_id:?}, \
                 but its answer names no conversation"
            ),
            Self::ServiceHistoryLost { key, service_id, is_recorded, .. } => {
                let then = match is_recorded {
                    true => {
                        "and the policy is not to send what is recorded of it: choose \
                         LostHistory::SendRecord"
                    }
                    false => "and nothing of it is recorded: go on in a new conversation",
                };
                write!(
                    f,
                    "the service no longer has the history of conversation {key}, which it kept under id \
                     {service_id:?}, {then}"
                )
            }
            Self::ContentRefused { key, mark, is_marked, .. } => {
                let (kind, message) = (mark.content.name(), mark.message);
                let then = match is_marked {
                    true => ", which later requests to this service leave out",
                    false => "",
                };
                write!(
                    f,
                    "{} refuses a request of conversation {key} for good, and the {kind} in message \
                     {message} is likely at fault{then}",
                    mark.issuer
                )
            }
            Self::PersisterMissing { key } => write!(
                f,
                "PerServiceCallPersistence is missing below the tool loop (conversation {key}), so that nothing \
                 of this run would be stored: put it right below the tool loop; where a layer in between, such \
                 as a Buffer, hides it, declare it with ToolLoop::assume_persister_below"
            ),
            Self::PendingCallNotKept { key, tool, call_id, reason, .. } => write!(
                f,
                "call {call_id} of tool {tool:?} in conversation {key} cannot wait for approval, because \
                 the tool's persist hook {reason}: let the hook keep the call, with other arguments where \
                 these must not be stored"
            ),
            Self::BelowToolLoop { key, layer } => write!(
                f,
                "{layer} stands below the tool loop (conversation {key}), where it would take each service \
                 call for a run: put it above the tool loop"
            ),
            Self::RunMissing { key, mode } => write!(
                f,
                "PerRunPersistence is missing above the tool loop (conversation {key}), which {mode} \
                 persistence needs: put it above the tool loop"
            ),
            Self::CitationsAtSave { key, mode } => write!(
                f,
                "uncited sources of conversation {key} cannot be left out when its run is saved, because \
                 {mode:?} mode stores results before the answer cites them: choose \
                 CompactionTime::AtReplay, or another mode"
            ),
            Self::LayerTwice { layer } => write!(f, "the stack holds {layer} twice: remove one"),
            Self::DifferentStores { key } => {
                write!(f, "the layers of one stack use different stores for conversation {key}")
            }
            Self::HistorySentAgain { key, difference } => write!(
                f,
                "{difference}, where the tool loop repeats conversation {key}: a loop over \
                 PerServiceCallPersistence repeats stored messages as they are, or sends only new ones"
            ),
            Self::TranscriptRepeated { key, position } => write!(
                f,
                "message {position} of the request repeats an answer that conversation {key} holds \
                 already: send only what is new, or choose RepeatedTranscript::Recognise or Append"
            ),
            Self::TranscriptDiverged { key, position } => write!(
                f,
                "from message {position} on the request is not how conversation {key} goes: send only what \
                 is new, or begin another conversation with the whole transcript"
            ),
            Self::NothingNew { key } => write!(
                f,
                "the request adds nothing to conversation {key}, which is answered: add a message"
            ),
            Self::RunOvertaken { key, run } => write!(
                f,
                "run {run} of conversation {key} is stored in part, and another run has gone on after it: \
                 to go on, give the request a run of its own with ChatRequest::in_conversation"
            ),
            Self::MessagesWithContinuation { messages } => write!(
                f,
                "a request with a continuation token takes no messages, but has {messages}"
            ),
            Self::RunUnderWay { key, run } => write!(
                f,
                "run {run} is under way on conversation {key} in this process: wait for its end, or queue \
                 runs (ConcurrentRuns::Queue)"
            ),
            Self::RunHeld { key, run, holder, until } => write!(
                f,
                "run {run} of conversation {key} is held by another process (holder {holder:016x}) until \
                 {}: a process that is alive renews this time, and a run whose process died can be taken \
                 over from then on. Try again then, or let runs wait for it (ConcurrentRuns::Queue, \
                 RecoveryPolicy::with_max_wait); a store that only one process opens can be opened as exclusive",
                Utc(*until)
            ),
            Self::OpenRun { key, run } => write!(
                f,
                "conversation {key} has an open run, {run}: resume, commit or discard it first \
                 (tower_chat::recovery)"
            ),
            Self::RunGone { key, run } => write!(
                f,
                "run {run} of conversation {key} cannot be resumed, it was discarded meanwhile: \
                 to ask again, send its input as a new run"
            ),
            Self::NotRecovered { key, run, .. } => {
                write!(f, "run {run} of conversation {key}, which is open, could not be ended")
            }
            Self::EmptyRequest { key, .. } => write!(
                f,
                "the request to conversation {key} says nothing: send a message with content"
            ),
            Self::RunIdReused { key, run } => write!(
                f,
                "run {run} of conversation {key} is stored with another input: send the same messages to \
                 repeat it, or give the request a run id of its own"
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
            Self::ServiceHistoryLost { source, .. } | Self::ContentRefused { source, .. } => {
                Some(&**source)
            }
            Self::EmptyRequest { source, .. } => Some(source),
            Self::Dangling { source, .. } => Some(source),
            _ => Some(Retryability::from_retryable(self.is_retryable()).as_source()),
        }
    }
}

/// The error of a service as the cause of one that is for good, whatever it says of retries itself.
pub(crate) fn for_good(source: BoxError) -> BoxError {
    match is_retryable(&*source) {
        Some(false) => source,
        Some(true) | None => Classified::permanent(source).into(),
    }
}

/// A write failed, and the policy is not to go on; or another run changed the conversation.
#[derive(Debug, thiserror::Error)]
#[error("{}", self.what_happened())]
#[non_exhaustive]
pub struct NotStored {
    /// The conversation.
    pub key: ConversationKey,
    /// Why.
    pub source: StoreError,
    /// The messages that are neither in the store nor in its outbox: those of the failed write
    /// and, at a conflict, those that were waiting in the outbox before it.
    pub unsaved: Vec<Arc<Message>>,
    /// The answer that the caller would have got.
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

    /// The conflict with another run, if that is why.
    pub fn conflict(&self) -> Option<&Conflict> {
        match &self.source {
            StoreError::Conflict(conflict) => Some(conflict),
            _ => None,
        }
    }
}

impl PersistenceError {
    /// Whether sending the same request again may succeed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::NotLoaded { source, .. } | Self::NotRecovered { source, .. } => {
                source.is_retryable()
            }
            Self::NotStored(not_stored) => not_stored.source.is_retryable(),
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

    /// What the model had answered, where it had.
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
