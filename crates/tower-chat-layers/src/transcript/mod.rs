//! Transcripts that a client keeps itself, and sends again with each request.
//!
//! Many clients send the whole conversation each time, often without the ids under which it is
//! stored. [`RepeatedTranscript`] says what a persistence layer does with such a request.

mod entry;
mod observe;
mod overlap;
mod recognise;

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{ConversationKey, Message, Messages, Role, RunId};

pub(crate) use self::observe::{
    Observed, Step, StoredRun, StoredTranscript, leading_system, observe,
};
use self::{entry::Entry, recognise::recognise_after_cut};
pub use self::{
    observe::{DifferenceKind, TranscriptDifference},
    recognise::{recognise, recognise_in},
};
use crate::PersistenceError;

/// What happens to a request of a new run that brings messages which are stored already, without
/// their ids.
///
/// Set by [`PersistencePolicy::with_repeated_transcript`](crate::PersistencePolicy::with_repeated_transcript),
/// and for one request by a request extension of this type. Messages that carry the id of a stored
/// message of an earlier run are left out in every case, and the request of a run that is sent again
/// is compared with what was stored before that run. Nothing is compared where the service keeps the
/// history, since the store may not have it.
///
/// ```
/// use tower_chat::{PersistencePolicy, RepeatedTranscript};
///
/// // For a browser that sends the whole conversation with every request.
/// let policy = PersistencePolicy::default().with_repeated_transcript(RepeatedTranscript::Recognise);
/// # let _ = policy;
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RepeatedTranscript {
    /// All messages are new: what is stored already is stored, and shown to the model, again.
    Append,
    /// Only what follows the stored conversation is new, see [`recognise`]. A request that repeats
    /// all but the last answer is given the stored answer.
    ///
    /// A history that goes another way is
    /// [`PersistenceError::TranscriptDiverged`], and one that adds nothing
    /// [`PersistenceError::NothingNew`]; the model is not called.
    Recognise,
    /// A request with an assistant message that says what a stored one says is
    /// [`PersistenceError::TranscriptRepeated`]; the model is not called. Requests without assistant
    /// messages cost nothing.
    #[default]
    Refuse,
}

/// What of a transcript is new.
#[derive(Debug, Clone, PartialEq)]
pub enum Recognised {
    /// These messages, which are not stored yet, are to be answered. If there are none, the stored
    /// question that was never answered is.
    New(Messages),
    /// The stored answer is wanted, which the client did not get.
    LastAnswer,
}

/// A transcript that a conversation cannot go on from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TranscriptError {
    /// Everything in it is stored, and answered.
    #[error("the transcript holds no message that is new")]
    NothingNew,
    /// It has answers that are not how the stored conversation goes.
    #[error("from message {position} on the transcript is not how the stored conversation goes")]
    Diverged {
        /// The position of the first message, from 0, that is not.
        position: usize,
    },
}

/// What a run takes of its request.
pub(crate) enum NewInput {
    /// The request as it is.
    All,
    /// These messages, instead of the request's own.
    Only(Messages),
    /// Nothing: this stored answer is returned.
    LastAnswer(Vec<Arc<Message>>),
}

impl RepeatedTranscript {
    /// Whether the stored messages have to be looked at for a request with these messages.
    pub(crate) fn compares(self, own: &[Arc<Message>]) -> bool {
        match self {
            Self::Append => false,
            Self::Recognise => !own.is_empty(),
            Self::Refuse => own.iter().any(|message| message.role == Role::Assistant),
        }
    }

    /// What of a request's own messages a run takes, by what was stored before the run, of which
    /// so many older messages were pruned.
    ///
    /// # Errors
    ///
    /// By the choice.
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

/// The messages with their positions, without those that carry the id of a stored message of
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

/// What the last run of a conversation has answered.
fn last_answer(stored: &Messages) -> Vec<Arc<Message>> {
    let run = stored.last().and_then(|last| Some(last.id?.run));
    let is_of_run = |message: &&Arc<Message>| message.id.map(|id| id.run) == run;
    let mut of_run: Vec<_> = stored.iter().rev().take_while(is_of_run).cloned().collect();
    of_run.reverse();
    of_run.into_iter().skip_while(|message| message.role != Role::Assistant).collect()
}
