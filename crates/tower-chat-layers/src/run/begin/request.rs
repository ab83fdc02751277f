//! Builds the request of a run for the tool loop.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{ChatRequest, HistoryOwner, Message, MessageId, Messages, RunId};

use crate::{
    PersistenceError,
    approval::answers_approvals,
    replay::Replay,
    run::{
        Run, WritePoint,
        conversation::LoadedConversation,
        history_in_request::HistoryInRequest,
        last_answer::after_last_answer,
        log::RunLog,
        model_request::{joined, own_messages},
        repeated_input::repeated_len,
        run_of_persister_above,
    },
};

/// Returns the request for the layers below, and the unstored input messages of the run, with their
/// ids.
///
/// If the run is stored at its end, returns an error if the policy does not allow a dangling call
/// in the history.
pub(crate) fn open_request(
    run: &Run,
    mut request: ChatRequest,
) -> Result<(ChatRequest, Vec<Arc<Message>>), PersistenceError> {
    let mut log = run.log();
    let mut own = log.conversation.input(&request);
    let repeated = repeated_len(log.conversation.added.as_slice(), &own);
    own.drain(..repeated.unwrap_or(0));
    let first = repeated.map_or(0, |_| log.assigned_ids());
    let own = log.conversation.added.number(first, own, run.clock().whole_milliseconds());
    request.history_owner = log.conversation.service_id.clone().map(HistoryOwner::Service);
    log.calls.prepended = request.history();
    match run.write_point() {
        WritePoint::EachCall => put_unanswered_before(&log, &mut request, &own),
        WritePoint::End => put_history_before(run, &mut log, &mut request, &own)?,
    }
    // A persister above remains visible.
    let is_below_persister = run_of_persister_above(&request).is_some();
    request.extensions.insert(Run { is_below_persister, ..run.clone() });
    log.refused.mark(&mut request);
    drop(log);
    Ok((request, own))
}

/// Puts the history before the input of a run, for a tool loop without a persister below. Returns
/// an error if the policy does not allow a dangling call in the history.
pub(crate) fn put_history_for_loop(
    run: &Run,
    request: &mut ChatRequest,
) -> Result<(), PersistenceError> {
    let own = own_messages(request);
    put_history_before(run, &mut run.log(), request, &own)
}

/// Puts the history before the input of a run, unless the service stores the history.
fn put_history_before(
    run: &Run,
    log: &mut RunLog,
    request: &mut ChatRequest,
    own: &[Arc<Message>],
) -> Result<(), PersistenceError> {
    log.history_in_request = HistoryInRequest::default();
    if log.conversation.service_id.is_some() {
        request.set_new_messages(own.to_vec());
        return Ok(());
    }
    replay_with(run, log, own)?;
    let mut closed = log.conversation.replay.clone();
    closed.retract_answered_by(own);
    let mut open = closed.split_open_round();
    let history = closed.view();
    let input: Messages = own.iter().cloned().collect();
    let new = if answers_approvals(own) {
        // Only the tool loop of this crate accepts decisions about approval requests, and removes
        // the history.
        input.clone()
    } else {
        // The input is joined with the open round, because providers refuse a result without its
        // call, and per-service-call mode sends the messages in this form.
        own.iter().for_each(|message| open.push(message));
        open.view()
    };
    // The messages that a layer above has put before the input stay at the beginning.
    let before = joined(request.history(), history.clone());
    let history_len = before.len();
    request.set_messages(joined(before, new.clone()), history_len);
    log.history_in_request = HistoryInRequest { history, new, input };
    Ok(())
}

/// Returns the replay of the conversation, followed by `inputs`. Returns an error if the policy
/// does not allow a dangling call. A call whose result is in `inputs` is not dangling.
pub(in crate::run) fn replay_with(
    run: &Run,
    log: &RunLog,
    inputs: &[Arc<Message>],
) -> Result<Replay, PersistenceError> {
    let mut replay = log.conversation.replay.clone();
    inputs.iter().for_each(|message| replay.push(message));
    let dangling = |source| PersistenceError::Dangling { key: run.key().clone(), source };
    replay.check().map_err(dangling)?;
    Ok(replay)
}

/// Sets the messages of a request whose history a layer below adds: the unanswered stored messages
/// of the run, and the new input.
fn put_unanswered_before(log: &RunLog, request: &mut ChatRequest, own: &[Arc<Message>]) {
    let unanswered = log.unanswered_input();
    let has_service_id = log.conversation.service_id.is_some();
    if !has_service_id && answers_approvals(unanswered.iter().chain(own)) {
        request.history_owner = Some(HistoryOwner::Local);
    }
    let mut sent = match has_service_id {
        // A service that stores the history has not received or not answered these messages.
        true => after_last_answer(log.conversation.added.as_slice()).to_vec(),
        false => unanswered,
    };
    sent.extend(own.iter().cloned());
    sent.sort_by_key(|message| message.id);
    request.set_new_messages(sent);
}

impl RunLog {
    /// Returns the staged input of an earlier attempt that the model has not answered, and that the
    /// tool loop must process again.
    fn unanswered_input(&self) -> Vec<Arc<Message>> {
        let Some(journal) = self.journal.as_deref() else { return Vec::new() };
        let added = self.conversation.added.as_slice();
        if added.len() > journal.input + journal.visible_before {
            return Vec::new();
        }
        added.iter().skip(journal.visible_before).cloned().collect()
    }
}

impl LoadedConversation {
    /// Returns the input of the run: the request's own messages, without messages that the caller
    /// repeats from the history.
    pub(crate) fn input(&self, request: &ChatRequest) -> Vec<Arc<Message>> {
        not_stored_before(self.added.run, &self.history.messages, own_messages(request))
    }
}

/// Returns the messages `own` without stored messages of other runs.
pub(super) fn not_stored_before(
    run: RunId,
    history: &Messages,
    mut own: Vec<Arc<Message>>,
) -> Vec<Arc<Message>> {
    let of_other_run = |message: &Arc<Message>| message.id.filter(|id| id.run != run);
    if own.iter().any(|message| of_other_run(message).is_some()) {
        let stored: HashSet<MessageId> = history.iter().filter_map(|message| message.id).collect();
        own.retain(|message| !of_other_run(message).is_some_and(|id| stored.contains(&id)));
    }
    own
}
