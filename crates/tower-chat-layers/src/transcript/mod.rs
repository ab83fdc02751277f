//! Transcripts that a client stores itself, and sends again with each request.
//!
//! Many clients send the whole conversation each time, often without the ids under which it is stored.
//! [`RepeatedTranscript`] sets how a persistence layer handles such a request.

mod entry;
mod observe;
mod overlap;
mod recognise;

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{ConversationKey, MediaSource, Message, Messages, Part, Role, RunId};

pub(crate) use self::observe::{
    Observed, Step, StoredRun, StoredTranscript, leading_system, observe,
};
use self::{entry::Entry, recognise::recognise_after_cut};
pub use self::{
    observe::{DifferenceKind, TranscriptDifference},
    recognise::{recognise, recognise_in},
};
use crate::PersistenceError;

/// The policy of a persistence layer for a request that repeats stored messages without their ids.
///
/// The policy is set by
/// [`PersistencePolicy::with_repeated_transcript`](crate::PersistencePolicy::with_repeated_transcript),
/// and for one request by a request extension of this type. Messages with the id of a stored
/// message of an earlier run are always removed. If a request is sent again for the same run, it is
/// compared with the messages that were stored before this run. If the service stores the history,
/// no request is compared, because the store may not contain all messages.
///
/// ```
/// use tower_chat::{PersistencePolicy, transcript::RepeatedTranscript};
///
/// // For a browser that sends the whole conversation with every request.
/// let policy = PersistencePolicy::default().with_repeated_transcript(RepeatedTranscript::Recognise);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepeatedTranscript {
    /// All messages are new. Messages that are already stored are stored again, and sent to the model
    /// again.
    Append,
    /// Only the messages of the request that follow the stored conversation are new, see
    /// [`recognise`]. A request that repeats all messages except the final answer receives the
    /// stored answer.
    ///
    /// A request with a different history fails with [`PersistenceError::TranscriptDiverged`], and
    /// a request without a new message with [`PersistenceError::NothingNew`]. In both cases, the
    /// model is not called.
    Recognise,
    /// A request with an assistant message that has the content of a stored assistant message fails
    /// with [`PersistenceError::TranscriptRepeated`], and the model is not called. Requests without
    /// assistant messages are not compared.
    #[default]
    Refuse,
}

/// The new part of a transcript.
#[derive(Debug, Clone, PartialEq)]
pub enum Recognised {
    /// The messages that are not stored yet, and that the model must answer. If there are none, the
    /// model must answer the question at the end of the stored conversation.
    New(Messages),
    /// The request is already answered. The client must receive the stored answer.
    LastAnswer,
}

/// The error for a transcript that cannot continue the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError {
    /// All messages are stored and answered.
    #[error("the transcript contains no new message")]
    NothingNew,
    /// The transcript contains answers that differ from the stored conversation.
    #[error("the transcript differs from the stored conversation from message {position} on")]
    Diverged {
        /// The position of the first message that differs, from 0.
        position: usize,
    },
}

/// The part of a request that its run uses.
pub(crate) enum NewInput {
    All,
    Only(Messages),
    /// No message, because the layer returns this stored answer.
    LastAnswer(Vec<Arc<Message>>),
}

impl RepeatedTranscript {
    pub(crate) fn compares(self, own: &[Arc<Message>]) -> bool {
        match self {
            Self::Append => false,
            Self::Recognise => !own.is_empty(),
            Self::Refuse => own.iter().any(|message| message.role == Role::Assistant),
        }
    }

    /// Returns the messages of a request that a run uses. `stored` are the messages before the run,
    /// and `pruned` is the number of pruned messages before them.
    pub(crate) fn new_input(
        self,
        key: &ConversationKey,
        run: RunId,
        (stored, pruned): (&Messages, u64),
        own: &[Arc<Message>],
    ) -> Result<NewInput, PersistenceError> {
        if !self.compares(own) || stored.is_empty() {
            return Ok(NewInput::All);
        }
        let unknown = without_ids_of(stored, run, own);
        if unknown.is_empty() {
            return Ok(NewInput::All);
        }
        match self {
            Self::Append => Ok(NewInput::All),
            Self::Refuse => {
                let candidates =
                    unknown.iter().filter(|(_, message)| message.id.is_none_or(|id| id.run != run));
                let entries =
                    candidates.map(|(position, message)| (*position, Entry::verbatim(message)));
                match recognise::first_repeated_answer(stored, entries) {
                    None => Ok(NewInput::All),
                    Some(position) => {
                        Err(PersistenceError::TranscriptRepeated { key: key.clone(), position })
                    }
                }
            }
            Self::Recognise => {
                let sent = unknown.iter().map(|(_, message)| message.clone()).collect();
                match recognise_after_cut(stored, pruned, &sent, false) {
                    Ok(Recognised::New(new)) => Ok(NewInput::Only(new)),
                    Ok(Recognised::LastAnswer) => Ok(NewInput::LastAnswer(last_answer(stored))),
                    Err(TranscriptError::NothingNew) => {
                        Err(PersistenceError::NothingNew { key: key.clone() })
                    }
                    Err(TranscriptError::Diverged { position }) => {
                        let position =
                            unknown.get(position).map_or(own.len(), |(position, _)| *position);
                        Err(PersistenceError::TranscriptDiverged { key: key.clone(), position })
                    }
                }
            }
        }
    }
}

/// Returns the messages with their positions, except those with the id of a stored message of
/// another run.
fn without_ids_of(
    stored: &Messages,
    run: RunId,
    own: &[Arc<Message>],
) -> Vec<(usize, Arc<Message>)> {
    let of_other_run = |message: &Arc<Message>| message.id.filter(|id| id.run != run);
    let has_ids = own.iter().any(|message| of_other_run(message).is_some());
    let known: HashSet<_> = match has_ids {
        true => stored.iter().filter_map(|message| message.id).collect(),
        false => HashSet::new(),
    };
    let is_known =
        |message: &Arc<Message>| of_other_run(message).is_some_and(|id| known.contains(&id));
    own.iter().cloned().enumerate().filter(|(_, message)| !is_known(message)).collect()
}

/// Returns whether a message contains instructions of the application.
pub(crate) fn is_system(message: &Message) -> bool {
    matches!(message.role, Role::System | Role::Developer)
}

fn media_source(part: &Part) -> Option<&MediaSource> {
    match part {
        Part::Media(media) => Some(&media.source),
        _ => None,
    }
}

/// Returns the id of the approval request, whether it was approved, and the arguments.
fn approval(part: &Part) -> Option<(&str, bool, Option<&str>)> {
    match part {
        Part::ApprovalResponse(response) => {
            Some((&response.request_id, response.approved, response.arguments.as_deref()))
        }
        _ => None,
    }
}

fn last_answer(stored: &Messages) -> Vec<Arc<Message>> {
    let run = stored.last().and_then(|last| Some(last.id?.run));
    let is_of_run = |message: &&Arc<Message>| message.id.map(|id| id.run) == run;
    let mut of_run: Vec<_> = stored.iter().rev().take_while(is_of_run).cloned().collect();
    of_run.reverse();
    of_run.into_iter().skip_while(|message| message.role != Role::Assistant).collect()
}
