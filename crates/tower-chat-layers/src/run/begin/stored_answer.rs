//! Returns the stored answer if a request sends a run again.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatRequest, EndedBy, Finish, Message, Role};

use crate::{
    PersistenceError,
    adapt::as_one_message,
    replay::ended_by,
    run::{
        Run, ServiceCall,
        complete::{as_answered, is_complete},
        conversation::LoadedConversation,
        last_answer::response_at_end,
        log::RunLog,
        partial_text::is_marked_interrupted,
        repeated::last_answer,
        repeated_input::input_len,
    },
};

/// Returns the answer of the run if the complete run is already stored. Returns an error if only a
/// part of the run is stored and another run has written after it.
pub(crate) fn stored_answer(
    run: &Run,
    request: &ChatRequest,
) -> Result<Option<Answer>, PersistenceError> {
    let log = run.log();
    let input = log.conversation.input_len(request);
    let answer = log.conversation.added.as_slice().get(input..).unwrap_or_default();
    let recorded = log.stored_before.recorded_end.as_deref().filter(|_| !answer.is_empty());
    if recorded.is_none() && !is_complete(answer) {
        if log.stored_before.is_overtaken {
            let (key, run) = (run.key().clone(), run.id());
            return Err(PersistenceError::RunOvertaken { key, run });
        }
        return Ok(None);
    }
    let is_of_tool = recorded.is_some_and(|results| results.iter().any(|it| it.ends_run));
    let ended_by = match is_of_tool {
        true => Some(EndedBy::Tool),
        false => answer.last().and_then(|last| ended_by(last)),
    };
    let next = log.conversation.added.next_id();
    let messages = as_answered(answer, recorded, next);
    drop(log);
    let mut finish = Finish::default();
    let last = messages.iter().rev().find(|message| message.role == Role::Assistant);
    finish.reason = last.and_then(|message| message.finish_reason.clone());
    finish.saved = Some(run.log().saved());
    finish.ended_by = ended_by;
    Ok(Some(Answer::new(messages, finish)))
}

/// Returns the stored answer if the request repeats an earlier one. Only for a run that no layer
/// above the tool loop has begun. Returns an error if only a part of the run is stored and another
/// run has written after it.
pub(crate) fn repeated_answer(
    run: &Run,
    request: &ChatRequest,
) -> Result<Option<Answer>, PersistenceError> {
    let ordinal = request.extensions.get::<ServiceCall>().map(|call| call.ordinal);
    if let Some(answer) = last_answer(run) {
        return Ok(Some(if ordinal.is_some() { answer } else { as_last_response(answer) }));
    }
    let log = run.log();
    let is_repeated = match ordinal {
        Some(ordinal) => ordinal == 0,
        None if log.stored_before.is_observed => log.stored_before.is_repeated,
        None => repeats_input(&log, request),
    };
    let is_overtaken = log.stored_before.is_overtaken;
    drop(log);
    if !is_repeated && !is_overtaken {
        return Ok(None);
    }
    let answer = stored_answer(run, request)?;
    Ok(if ordinal.is_some() { answer } else { answer.map(as_last_response) })
}

/// Returns whether the messages of a request equal the first messages of the run. Needed for a tool
/// loop of another crate that does not number its service calls, if the service stores the history:
/// `observe_alone` then has not compared the messages.
fn repeats_input(log: &RunLog, request: &ChatRequest) -> bool {
    let own = log.conversation.input(request);
    let is_same = |(own, added): (&Arc<Message>, &Arc<Message>)| {
        own.role == added.role && own.parts == added.parts && own.role != Role::Tool
    };
    !own.is_empty() && own.iter().zip(log.conversation.added.as_slice()).all(is_same)
}

/// Returns the messages of the answer that earlier attempts have added, except partial responses.
pub(crate) fn answered_before(run: &Run, request: &ChatRequest) -> Vec<Arc<Message>> {
    let log = run.log();
    let input = log.conversation.input_len(request);
    let added = log.conversation.added.as_slice().get(input..).unwrap_or_default();
    added.iter().filter(|message| !is_marked_interrupted(message)).cloned().collect()
}

/// Reduces a stored answer to the last response of the model. A tool loop would run the calls of
/// earlier responses again.
fn as_last_response(mut answer: Answer) -> Answer {
    let response = response_at_end(&answer.messages);
    let asks = |message: &Arc<Message>| message.asked_calls().next().is_some();
    // Calls before a message without calls belong to an answer that was interrupted.
    let interrupted = response.last().filter(|last| !asks(last));
    let interrupted = interrupted.and_then(|_| response.iter().rposition(asks));
    let response = response.iter().skip(interrupted.map_or(0, |asking| asking + 1));
    let response: Vec<_> = response.cloned().collect();
    answer.messages = match response.is_empty() {
        // The run ends with results, because a tool has ended it.
        true => vec![Arc::new(as_one_message(&answer))],
        false => response,
    };
    answer
}

impl LoadedConversation {
    /// Returns how many of the messages of the run belong to its input.
    fn input_len(&self, request: &ChatRequest) -> usize {
        input_len(self.added.as_slice(), &self.input(request))
    }
}
