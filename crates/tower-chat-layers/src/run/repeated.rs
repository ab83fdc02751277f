//! Removes stored messages from a request that repeats them.

use std::sync::Arc;

use tower_chat_core::{
    Answer, ChatRequest, Conversation, Finish, Message, Messages, RunId,
    store::{History, Revision},
};

use super::{
    BegunBy, Run, Settings,
    log::RunLog,
    model_request::own_messages,
    stored_messages::{RunInStore, stored_of_run},
};
use crate::{
    PersistenceError, RepeatedTranscript,
    replay::{is_end_marker, without_mark},
    transcript::{NewInput, Observed, Step, StoredRun, StoredTranscript, leading_system, observe},
};

/// Compares a service call of a tool loop of another crate with the stored messages. Returns `None`
/// if the call repeats no stored message, or if the comparison by [`RepeatedTranscript`] must
/// decide. Returns an error if the call repeats stored messages with differences.
///
/// The returned run is usually the run of the request. If no message of that run is stored, and the
/// call continues or repeats stored messages, it is the last stored run, because the types of the
/// loop may have lost the run id.
pub(super) fn observe_alone(
    settings: &Settings,
    conversation: &Conversation,
    request: &ChatRequest,
    history: &History,
) -> Result<Option<(Observed, RunId)>, PersistenceError> {
    let Conversation { key, run } = conversation;
    let choice = request.extensions.get::<RepeatedTranscript>().copied();
    let choice = choice.unwrap_or(settings.policy.repeated_transcript);
    let RunInStore { added, is_overtaken, .. } = stored_of_run(history, *run);
    let is_known = !added.is_empty();
    if history.messages.is_empty() || (!is_known && choice == RepeatedTranscript::Append) {
        return Ok(None);
    }
    let own = own_messages(request);
    let end = history.end_of_run(*run).unwrap_or(history.messages.len());
    let before = history.messages.take(end);
    let last_run = before.last().and_then(|last| Some(last.id?.run));
    let stored = StoredTranscript {
        before,
        added: &[],
        is_pruned: history.skipped() > 0,
        run: match is_known {
            true => StoredRun::Known { run: *run, has_answered: false },
            false => StoredRun::Unknown,
        },
    };
    let mut observed = match observe(&stored, &own) {
        Ok(observed) => observed,
        // The comparison by the policy may recognise messages that a client has changed.
        Err(_) if !is_known && choice == RepeatedTranscript::Recognise => return Ok(None),
        Err(difference) => {
            return Err(PersistenceError::HistorySentAgain { key: key.clone(), difference });
        }
    };
    let run = match (observed.step, is_known, last_run) {
        (Step::Continue | Step::Repeat, false, Some(last)) => last,
        (Step::Continue | Step::Repeat, false, None) => {
            observed.step = Step::Begin;
            *run
        }
        (Step::Continue, true, _) if is_overtaken => {
            return Err(PersistenceError::RunOvertaken { key: key.clone(), run: *run });
        }
        (Step::Begin | Step::Continue | Step::Repeat, ..) => *run,
    };
    if observed.step == Step::Begin {
        // Instructions are stored as part of the new messages.
        let instructions = std::mem::take(&mut observed.instructions);
        observed.new.splice(..0, instructions);
        if observed.new.len() == own.len() {
            return Ok(None);
        }
        if observed.new.is_empty() {
            return Err(PersistenceError::NothingNew { key: key.clone() });
        }
    }
    Ok(Some((observed, run)))
}

/// Replaces the messages of a request by those that a layer above has put before the input, the
/// instructions and the new messages.
pub(super) fn take_observed(request: &mut ChatRequest, observed: &Observed) {
    let mut messages = request.history();
    messages.extend(observed.instructions.iter().cloned());
    let history_len = messages.len();
    messages.extend(observed.new.iter().cloned());
    request.set_messages(messages, history_len);
}

impl RunLog {
    /// Compares a service call of a tool loop of another crate with the loaded history and the
    /// messages of the run. Returns an error if the call repeats them with differences.
    pub(super) fn observe_call(
        &self,
        conversation: &Conversation,
        request: &ChatRequest,
    ) -> Result<Observed, PersistenceError> {
        let mut own = own_messages(request);
        if request.history_len() == 0 {
            // Skips the messages that a layer above has put before the input.
            let is_above = |(own, above): &(&Arc<Message>, &Arc<Message>)| {
                own.role == above.role && own.parts == above.parts
            };
            let above = own.iter().zip(self.calls.prepended.iter()).take_while(is_above).count();
            own.drain(..above);
        }
        let added = self.conversation.added.as_slice();
        let Conversation { key, run } = conversation;
        let after = |before| {
            let stored = StoredTranscript {
                before,
                added,
                is_pruned: self.conversation.history.skipped() > 0,
                run: match added.is_empty() {
                    true => StoredRun::Unknown,
                    false => StoredRun::Known { run: *run, has_answered: self.calls.is_answered },
                },
            };
            observe(&stored, &own)
        };
        let mut observed = after(messages_before_run(&self.conversation.history.messages, added));
        if observed.is_err() && !self.history_in_request.history.is_empty() {
            // The loop may send the history in the form in which the layer above has put it before
            // the input, which can differ from the stored form.
            observed = after(self.history_in_request.history.clone());
        }
        let observed = observed.map_err(|difference| PersistenceError::HistorySentAgain {
            key: key.clone(),
            difference,
        })?;
        // This first service call must contain the input of the run. If the comparison finds no new
        // messages, all messages after the instructions are treated as new.
        let lacks_input = added.is_empty() && observed.new.is_empty();
        Ok(match lacks_input {
            true => {
                Observed { new: own.split_off(leading_system(&own)), step: Step::Begin, ..observed }
            }
            false => observed,
        })
    }
}

fn messages_before_run(history: &Messages, added: &[Arc<Message>]) -> Messages {
    let first = added.first().and_then(|first| first.id);
    let is_first = |message: &Arc<Message>| message.id == first;
    let position = first.and_then(|_| history.iter().position(is_first));
    history.take(position.unwrap_or(history.len()))
}

/// Removes stored messages from a request, as [`RepeatedTranscript`] requires. Returns the answer
/// of the previous run if the request repeats all messages before this answer, and nothing else.
pub(super) async fn take_new(
    settings: &Settings,
    conversation: &Conversation,
    request: &mut ChatRequest,
    history: &History,
    (added, is_read): (&[Arc<Message>], bool),
    begun_by: BegunBy,
) -> Result<Option<Vec<Arc<Message>>>, PersistenceError> {
    let Conversation { key, run } = conversation;
    // The extension must not apply to nested runs.
    let choice = request.extensions.remove::<RepeatedTranscript>();
    let choice = choice.unwrap_or(settings.policy.repeated_transcript);
    let own = own_messages(request);
    let is_later_call = begun_by == BegunBy::OtherLoop && !added.is_empty();
    if is_later_call || !choice.compares(&own) {
        return Ok(None);
    }
    let is_background = request.options.is_background();
    let before = match !is_read && is_background {
        // A run whose answer the service makes in the background has not loaded the history.
        true if history.head.revision != Revision::ABSENT && history.head.service_id.is_none() => {
            let read = settings.store.load(key).await;
            let source = |source| PersistenceError::NotLoaded { key: key.clone(), source };
            read.map_err(source)?.messages
        }
        _ => messages_before_run(&history.messages, added),
    };
    let pruned = history.skipped();
    match choice.new_input(key, *run, (&before, pruned), &own)? {
        NewInput::All => Ok(None),
        NewInput::Only(new) => {
            request.set_new_messages(new);
            Ok(None)
        }
        NewInput::LastAnswer(answer) => Ok(Some(answer)),
    }
}

/// Takes the answer of the previous run, if the client did not receive it and repeats all messages
/// before it.
pub(crate) fn last_answer(run: &Run) -> Option<Answer> {
    let messages = run.log().stored_before.last_answer.take()?;
    let visible = messages.iter().filter(|message| !is_end_marker(message));
    let messages = visible.map(without_mark).collect();
    let mut finish = Finish::stop();
    finish.saved = Some(run.log().saved());
    Some(Answer::new(messages, finish))
}
