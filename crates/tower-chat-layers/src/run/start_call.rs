//! Starts a service call: determines which of its messages are new, and builds the request for the
//! model client.

use std::sync::Arc;

use tower_chat_core::{Answer, ChatRequest, Finish, HistoryOwner, Message, PersistenceMode, Role};

use super::{
    BegunBy, Run, ServiceCall, WritePoint,
    begin::request::replay_with,
    calls::Attempt,
    complete::is_complete,
    hooks::hooks_were_called,
    last_answer::{after_last_answer, response_at_end},
    log::RunLog,
    model_request::{joined, own_messages},
    repeated::take_observed,
    repeated_input::repeated_len,
    service_call::{OpenCall, StoredCall, submit_again},
};
use crate::{
    PersistenceError,
    replay::{Replay, without_mark},
    transcript::Step,
};

/// The start of a service call: whether the service must be called.
pub(crate) enum StartedCall {
    Call(Box<OpenCall>),
    /// An earlier attempt at the same service call was answered. If the write of its answer may not
    /// be durable, it is submitted again, and the store recognises a repetition.
    Answered(Box<StoredCall>),
}

/// Determines the new messages of a service call, and builds the request for the model client.
///
/// Returns an error if the tool loop has sent stored messages again that cannot be distinguished
/// from new ones, or if the policy does not allow a dangling call in the history.
pub(crate) fn start_call(
    run: &Run,
    request: &mut ChatRequest,
) -> Result<StartedCall, PersistenceError> {
    let ordinal = request.extensions.get::<ServiceCall>().map(|call| call.ordinal);
    let mut log = run.log();
    log.history_in_request.remove_from(request);
    if run.begun_by() != BegunBy::LayerAbove && request.history_len() > 0 {
        // The tool loop sends these messages only with its first service call.
        log.calls.prepended = request.history();
    }
    let sent = match ordinal {
        Some(_) => 0,
        None => after_last_answer(&own_messages(request)).len(),
    };
    let own = match log.calls.attempt(ordinal) {
        Some(Attempt::Answered { answer, write, .. }) => {
            let (answer, write) = (answer.clone(), write.clone());
            let again = submit_again(run, &log, ordinal, answer, write);
            return Ok(StartedCall::Answered(Box::new(again)));
        }
        Some(Attempt::Unanswered { unsubmitted }) => unsubmitted.clone(),
        // The first request of a resumed run begins with the stored messages.
        None if ordinal == Some(0) && run.begun_by() != BegunBy::LayerAbove => {
            let mut own = own_messages(request);
            own.drain(..repeated_len(log.conversation.added.as_slice(), &own).unwrap_or(0));
            own
        }
        None => match unsubmitted(run, &mut log, request)? {
            NewOfCall::Messages(own) => own,
            NewOfCall::Unknown => {
                // The layer above has put the history into the request.
                drop(log);
                let options = request.options.clone();
                let call = OpenCall::new(run.clone(), ordinal, Vec::new(), options, None);
                return Ok(StartedCall::Call(Box::new(call)));
            }
            NewOfCall::Nothing if is_complete(log.conversation.added.as_slice()) => {
                let again = last_response(run, &log);
                return Ok(StartedCall::Answered(Box::new(again)));
            }
            NewOfCall::Nothing => {
                log.conversation.drop_last_answer();
                Vec::new()
            }
        },
    };
    let inputs =
        log.conversation.added.number(log.assigned_ids(), own, run.clock().whole_milliseconds());
    let replay = replay_with(run, &log, &inputs)?;
    let is_first = match ordinal {
        Some(ordinal) => ordinal == 0,
        None => !log.calls.is_answered,
    };
    let new_to_model = match log.mode {
        // The input is already staged, but the model has not received it.
        PersistenceMode::Journaled if is_first && ordinal.is_none() => sent.max(inputs.len()),
        PersistenceMode::Journaled if is_first => own_messages(request).len(),
        _ => inputs.len(),
    };
    log.address_model(request, &replay, new_to_model);
    let loop_policy = log.loop_policy.clone().filter(|_| ordinal.is_some());
    drop(log);
    let options = request.options.clone();
    let call = OpenCall::new(run.clone(), ordinal, inputs, options, loop_policy);
    Ok(StartedCall::Call(Box::new(call)))
}

fn unsubmitted(
    run: &Run,
    log: &mut RunLog,
    request: &mut ChatRequest,
) -> Result<NewOfCall, PersistenceError> {
    if log.stored_before.is_observed {
        return Ok(NewOfCall::Messages(own_messages(request)));
    }
    let is_of_own_loop = request.extensions.get::<ServiceCall>().is_some();
    let is_kept_here = log.conversation.service_id.is_none();
    if is_of_own_loop || !is_kept_here || run.begun_by() != BegunBy::LayerAbove {
        let own = log.not_stored_of(own_messages(request));
        let is_later_call = !log.conversation.added.is_empty();
        let is_answer = |message: &Arc<Message>| message.role == Role::Assistant;
        let is_unnamed = |message: &Arc<Message>| is_answer(message) && message.id.is_none();
        if !is_later_call || !own.iter().any(is_unnamed) {
            return Ok(NewOfCall::Messages(own));
        }
    }
    log.conversation.needs_all_later = true;
    if log.conversation.added.is_discontinuous {
        return Ok(NewOfCall::Unknown);
    }
    let observed = match log.observe_call(run.conversation(), request) {
        // The run no longer has messages of service calls, because the loop may return all rounds
        // of the run in its answer.
        Err(_) if log.mode == PersistenceMode::PerRun => {
            log.conversation.added.is_discontinuous = true;
            return Ok(NewOfCall::Unknown);
        }
        observed => observed?,
    };
    if request.history_len() == 0 && !observed.instructions.is_empty() {
        request.prepend(&log.calls.prepended);
    }
    take_observed(request, &observed);
    Ok(match observed.step {
        Step::Repeat => NewOfCall::Nothing,
        Step::Begin | Step::Continue => NewOfCall::Messages(observed.new),
    })
}

/// Returns the last response of a complete run, for a request that repeats its final service call.
fn last_response(run: &Run, log: &RunLog) -> StoredCall {
    let response = response_at_end(log.conversation.added.as_slice()).iter().map(without_mark);
    let mut finish = Finish::stop();
    finish.history_owner =
        (run.write_point() == WritePoint::EachCall).then_some(HistoryOwner::Local);
    let answer = Answer::new(response.collect(), finish);
    submit_again(run, log, None, answer, None)
}

/// The messages in the request of a service call that are not stored yet.
enum NewOfCall {
    Messages(Vec<Arc<Message>>),
    /// The same service call was made before.
    Nothing,
    /// The run is stored at its end, and the request does not continue the run's earlier service
    /// calls.
    Unknown,
}

impl RunLog {
    /// Returns the tool loop's messages `own`, in order, that are not stored yet.
    pub(super) fn not_stored_of(&self, mut own: Vec<Arc<Message>>) -> Vec<Arc<Message>> {
        if let Some(last) = own.iter().rposition(|message| self.is_stored(message)) {
            own.drain(..=last);
        }
        if !self.calls.is_answered {
            // The input may be stored before the first service call is answered: in journaled mode,
            // or by an earlier attempt. A layer between may have removed the ids of the messages, so
            // contents are compared.
            let is_same = |(own, added): &(&Arc<Message>, &Arc<Message>)| {
                own.id.is_none() && own.role == added.role && own.parts == added.parts
            };
            let added = self.conversation.added.as_slice();
            let staged = own.iter().zip(added).take_while(is_same).count();
            own.drain(..staged);
        }
        own
    }

    /// Returns whether the history or the run contains a message with the same id and, unless hooks
    /// may have changed it, the same content.
    fn is_stored(&self, message: &Arc<Message>) -> bool {
        let Some(id) = message.id else { return false };
        if id.run != self.conversation.added.run {
            return self.conversation.position_in_history(id).is_some();
        }
        let added = &self.conversation.added;
        let messages = added.as_slice();
        let position = messages.partition_point(|added| added.id < message.id);
        added.has_assigned_id(message)
            && messages.get(position).is_some_and(|added| {
                let is_stored_form = || hooks_were_called(added) && added.role == message.role;
                Arc::ptr_eq(added, message) || added == message || is_stored_form()
            })
    }
}

impl RunLog {
    /// Builds the request for the model client. `unsent` is the number of the run's messages,
    /// stored or not, that no service call has sent yet.
    pub(super) fn address_model(&self, request: &mut ChatRequest, replay: &Replay, unsent: usize) {
        let mut prefix = request.history();
        if prefix.is_empty() && self.conversation.service_id.is_none() {
            prefix = self.calls.prepended.clone();
        }
        let (messages, history_len) = if self.conversation.service_id.is_some() {
            // The service has the history. A retry sends all own messages again, even if some of
            // them are stored.
            let mut own = Replay::lenient();
            own_messages(request).iter().for_each(|message| own.push(message));
            (own.view(), prefix.len())
        } else {
            let view = replay.view();
            let history_len = (prefix.len() + view.len()).saturating_sub(unsent);
            (view, history_len)
        };
        request.set_messages(joined(prefix, messages), history_len);
        request.history_owner = self.conversation.service_id.clone().map(HistoryOwner::Service);
    }
}
