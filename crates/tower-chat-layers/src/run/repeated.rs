//! What a run takes of a request that repeats stored messages.

use std::sync::Arc;

use tower_chat_core::{
    Answer, ChatRequest, Conversation, Finish, Message, Messages,
    store::{History, Revision},
};

use super::{
    Run, ServiceCall, Settings,
    model_request::{joined, own_messages},
};
use crate::{
    PersistenceError, RepeatedTranscript,
    replay::{is_end_marker, without_mark},
    transcript::NewInput,
};

/// Which layer begins a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Caller {
    /// The one above the tool loop, with the caller's request.
    Request,
    /// The one below the tool loop, with the request of one service call.
    ServiceCall,
}

/// What is stored of a conversation when a run begins.
pub(super) struct Stored<'a> {
    pub(super) history: &'a History,
    /// What an earlier attempt at the run has stored.
    pub(super) added: &'a [Arc<Message>],
    /// Whether the history was read.
    pub(super) is_read: bool,
}

impl Stored<'_> {
    /// The messages that were stored before the first attempt at the run.
    fn before_run(&self) -> Messages {
        let messages = &self.history.messages;
        let first = self.added.first().and_then(|first| first.id);
        let position =
            first.and_then(|first| messages.iter().position(|message| message.id == Some(first)));
        messages.take(position.unwrap_or(messages.len()))
    }
}

/// Leaves what is stored already out of a request, by the policy; returns the stored answer where
/// that is all that the request asks for.
///
/// # Errors
///
/// If the policy is not to take such a request, or the history cannot be read.
pub(super) async fn take_new(
    settings: &Settings,
    conversation: &Conversation,
    request: &mut ChatRequest,
    stored: &Stored<'_>,
    caller: Caller,
) -> Result<Option<Vec<Arc<Message>>>, PersistenceError> {
    let Conversation { key, run } = conversation;
    // Removed, so that it holds for this run and for none that a tool of it begins.
    let choice = request.extensions.remove::<RepeatedTranscript>();
    let choice = choice.unwrap_or(settings.policy.repeated_transcript);
    let own = own_messages(request);
    let is_later_call_of_foreign_loop = caller == Caller::ServiceCall
        && request.extensions.get::<ServiceCall>().is_none()
        && !stored.added.is_empty();
    if is_later_call_of_foreign_loop || !choice.compares(&own) {
        return Ok(None);
    }
    let is_background = request.options.is_background();
    let before = match !stored.is_read && is_background {
        // The answer is made without the history, and stored in it all the same.
        true if stored.history.head.revision != Revision::ABSENT
            && stored.history.head.service_id.is_none() =>
        {
            let read = settings.store.load(key).await;
            let source = |source| PersistenceError::NotLoaded { key: key.clone(), source };
            read.map_err(source)?.messages
        }
        _ => stored.before_run(),
    };
    match choice.new_input(key, *run, &before, &own)? {
        NewInput::All => Ok(None),
        NewInput::Only(new) => {
            request.messages = joined(request.messages.take(request.new_from), new);
            Ok(None)
        }
        NewInput::LastAnswer(answer) => Ok(Some(answer)),
    }
}

impl Run {
    /// The answer of the last run, where the request repeats everything up to it: its client did
    /// not get it.
    pub(crate) fn last_answer(&self) -> Option<Answer> {
        let messages = self.state().stored_before.last_answer.take()?;
        let visible = messages.iter().filter(|message| !is_end_marker(message));
        let messages = visible.map(without_mark).collect();
        let mut finish = Finish::stop();
        finish.saved = Some(self.saved());
        Some(Answer::new(messages, finish))
    }
}
