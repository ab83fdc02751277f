//! Observes the service calls of a run that is stored at its end.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatRequest, Messages};

use super::{
    Run, RunLog, ServiceCall, model_request::joined, run_end::response_at_end,
    service_id::adopt_service_id,
};
use crate::{
    PersistenceError,
    replay::Replay,
    transcript::{Observed, Step, StoredRun, StoredTranscript, observe},
};

/// Records the messages that a service call adds to a run that is stored at its end, and completes the
/// request: it then contains the run's request and all recorded messages before the new ones.
///
/// Only for a tool loop of another crate, whose answer may contain only the last message. Does nothing
/// for the tool loop of this crate, which numbers its service calls. If the messages do not continue
/// those of the earlier calls, the request remains unchanged and the recorded rounds count as incomplete.
pub(crate) fn observe_round(run: &Run, request: &mut ChatRequest) {
    if request.extensions.get::<ServiceCall>().is_some() {
        return;
    }
    let id = run.id();
    let mut log = run.log();
    let RunLog { conversation, whole_run, calls, .. } = &mut *log;
    let ((given, given_history), rounds) = (&whole_run.given, &mut whole_run.rounds);
    if conversation.service_id.is_some() || given.is_empty() {
        return;
    }
    let has_answered = calls.is_answered;
    if !has_answered && is_same(request.messages(), given) {
        return;
    }
    let own: Vec<_> = request.messages().iter().cloned().collect();
    let run = StoredRun::Known { run: id, has_answered };
    let after = |before| {
        let added = &rounds.messages;
        observe(&StoredTranscript { before, added, is_pruned: false, run }, &own)
    };
    // The loop may have stored the conversation itself, without the changes of the replay.
    let observed = after(given.clone())
        .or_else(|_| after(joined(conversation.history.clone(), given.skip(*given_history))));
    let Ok(Observed { instructions, new, step }) = observed else {
        rounds.is_broken = true;
        return;
    };
    if step == Step::Repeat {
        // The loop continues with the answer of this service call.
        let before = rounds.messages.len() - response_at_end(&rounds.messages).len();
        rounds.messages.truncate(before);
    }
    let first = instructions.len();
    let mut messages: Messages = instructions.into_iter().collect();
    messages.append(given);
    messages.extend(rounds.messages.iter().cloned());
    let history_len = match has_answered {
        true => messages.len(),
        false => first + given_history,
    };
    messages.extend(new.iter().cloned());
    request.set_messages(messages, history_len);
    rounds.messages.extend(new);
}

/// Records the answer of a service call in a run that is stored at its end, and compares the service id
/// in the answer with that of the run. The layer next to the service calls this function. A conflict ends
/// the run before a tool of the answer runs and before the next service call is paid for.
///
/// With a tool loop of another crate and no layer below it, only the last answer is compared, at
/// the end of the run.
///
/// # Errors
///
/// Returns an error if the policy does not allow the service id. The error contains the answer.
pub(crate) fn observe_answer(run: &Run, answer: &Answer) -> Result<(), PersistenceError> {
    let mut log = run.log();
    log.whole_run.rounds.messages.extend(answer.messages.iter().cloned());
    log.calls.is_answered = true;
    log.calls.unreported_usage.note(answer, run.policy().prices.as_ref());
    let adopted = adopt_service_id(run, &log, answer)?;
    log.conversation.service_id = adopted.service_id;
    log.conversation.recording = adopted.recording;
    Ok(())
}

/// Returns whether two lists have the same length and the same last message in memory, as clones of one
/// list have.
fn is_same(one: &Messages, other: &Messages) -> bool {
    let is_last = |(one, other)| Arc::ptr_eq(one, other);
    one.len() == other.len() && one.last().zip(other.last()).is_some_and(is_last)
}

impl RunLog {
    /// Returns whether layers have seen every service call of the run.
    pub(crate) fn has_seen_rounds(&self) -> bool {
        self.calls.is_answered && !self.whole_run.rounds.is_broken
    }

    /// Returns the replay of the open end of the stored history. `None` unless the input answers approval
    /// requests in this end. A tool loop adds its own messages to this replay and sends the resulting
    /// view.
    pub(crate) fn open_replay(&self) -> Option<Replay> {
        self.whole_run.open_replay.clone()
    }

    /// Returns the index of the first message that the tool loop adds to a run that is stored at its
    /// end. The request does not contain this index, because its messages may include stored messages
    /// that the input answers.
    pub(crate) fn answer_from(&self) -> usize {
        self.whole_run.answer_from
    }
}
