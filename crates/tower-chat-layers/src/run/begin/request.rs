//! The request of a run as the tool loop gets it.

use std::{collections::HashSet, sync::Arc};

use tower_chat_core::{ChatRequest, HistoryOwner, Message, MessageId, Messages, Role, RunId};

use crate::{
    PersistenceError,
    replay::Replay,
    run::{
        HistoryBefore, Run, RunLog, answers_approvals,
        model_request::{joined, own_messages},
    },
};

impl Run {
    /// The request as the tool loop gets it, and the run's input as it will be stored: numbered,
    /// and empty if it is stored already.
    ///
    /// # Errors
    ///
    /// If the history goes before the input here, and a dangling call may not be replayed.
    pub(crate) fn open_request(
        &self,
        mut request: ChatRequest,
    ) -> Result<(ChatRequest, Vec<Arc<Message>>), PersistenceError> {
        let mut log = self.log();
        let mut own = log.number(0, log.input(&request), self.now());
        // What is stored of a run that is resumed begins with its input. Where the service keeps
        // the history, results of approved calls are stored without it.
        let stored: HashSet<_> = log.conversation.added.iter().map(|added| added.id).collect();
        let is_stored = |own: &&Arc<Message>| stored.contains(&own.id);
        own.drain(..own.iter().take_while(is_stored).count());
        request.history_owner = log.conversation.service_id.clone().map(HistoryOwner::Service);
        if self.is_written_at_end() {
            self.put_history_before(&mut log, &mut request, &own)?;
        } else {
            put_unanswered_before(&mut log, &mut request, &own);
        }
        request.extensions.insert(self.clone());
        log.refused.mark(&mut request);
        drop(log);
        Ok((request, own))
    }

    /// Puts the history before the input of a run whose service calls no layer below makes complete,
    /// unless the service keeps it.
    ///
    /// # Errors
    ///
    /// If a dangling call may not be replayed.
    pub(crate) fn put_history_for_loop(
        &self,
        request: &mut ChatRequest,
    ) -> Result<HistoryBefore, PersistenceError> {
        let mut log = self.log();
        let (own, first) = (own_messages(request), request.new_from);
        self.put_history_before(&mut log, request, &own)?;
        let count = request.new_from.saturating_sub(first);
        Ok(HistoryBefore { first, count })
    }

    /// Makes the messages of a request, for a run that is written at its end: all of the history
    /// first, unless the service keeps it.
    fn put_history_before(
        &self,
        log: &mut RunLog,
        request: &mut ChatRequest,
        own: &[Arc<Message>],
    ) -> Result<(), PersistenceError> {
        let answer_from = log.conversation.taken + own.len();
        let prefix = request.messages.take(request.new_from);
        let mut open_replay = None;
        if log.conversation.service_id.is_some() {
            request.new_from = prefix.len();
            request.messages = prefix;
            request.messages.extend(own.iter().cloned());
        } else {
            self.replay_with(log, own)?;
            let mut closed = log.conversation.replay.clone();
            closed.retract_answered_by(own);
            let mut open = closed.split_open_round();
            let history = closed.view();
            request.new_from = prefix.len() + history.len();
            // What a layer above put first stays first.
            request.messages = joined(prefix, history);
            if answers_approvals(own) {
                request.messages.extend(own.iter().cloned());
                open_replay = Some(open);
            } else {
                // As in per-service-call mode, so that both send the same: a result that answers
                // nothing is refused by providers.
                own.iter().for_each(|message| open.push(message));
                request.messages.append(&open.view());
            }
        }
        log.whole_run.answer_from = answer_from;
        log.whole_run.open_replay = open_replay;
        log.whole_run.given = (request.messages.clone(), request.new_from);
        Ok(())
    }

    /// The replay of everything up to and with these inputs.
    ///
    /// # Errors
    ///
    /// If a dangling call may not be replayed; one that an input answers is not dangling.
    pub(in crate::run) fn replay_with(
        &self,
        log: &RunLog,
        inputs: &[Arc<Message>],
    ) -> Result<Replay, PersistenceError> {
        let mut replay = log.conversation.replay.clone();
        inputs.iter().for_each(|message| replay.push(message));
        let dangling = |source| PersistenceError::Dangling { key: self.key().clone(), source };
        replay.check().map_err(dangling)?;
        Ok(replay)
    }
}

/// Makes the messages of a request whose history is put before each service call: what is stored
/// and not answered, and the input.
fn put_unanswered_before(log: &mut RunLog, request: &mut ChatRequest, own: &[Arc<Message>]) {
    let unanswered = log.unanswered_input();
    let prefix = request.messages.take(request.new_from);
    log.calls.above = prefix.clone();
    let has_service_id = log.conversation.service_id.is_some();
    if !has_service_id && answers_approvals(unanswered.iter().chain(own)) {
        request.history_owner = Some(HistoryOwner::Local);
    }
    let mut sent = match has_service_id {
        true => log.unanswered_by_service().to_vec(),
        false => unanswered,
    };
    sent.extend(own.iter().cloned());
    sent.sort_by_key(|message| message.id);
    request.new_from = prefix.len();
    request.messages = prefix;
    request.messages.extend(sent);
}

impl RunLog {
    /// The input that an earlier attempt has staged, if no answer has come to it yet: the tool loop
    /// has it all to do.
    fn unanswered_input(&self) -> Vec<Arc<Message>> {
        let Some(journal) = self.journal.as_deref() else { return Vec::new() };
        let added = &self.conversation.added;
        if added.len() > journal.input() + journal.visible_before() {
            return Vec::new();
        }
        added.iter().skip(journal.visible_before()).cloned().collect()
    }

    /// What the run adds before its first service call: the request's own messages, but for those
    /// that a caller took from the stored history and sends again.
    pub(super) fn input(&self, request: &ChatRequest) -> Vec<Arc<Message>> {
        not_stored_before(self.run, &self.conversation.history, own_messages(request))
    }

    /// What is stored of the run since the model spoke last. A service that keeps the history has
    /// not been sent it, or has not answered to it.
    fn unanswered_by_service(&self) -> &[Arc<Message>] {
        let last =
            self.conversation.added.iter().rposition(|message| message.role == Role::Assistant);
        self.conversation.added.get(last.map_or(0, |last| last + 1)..).unwrap_or_default()
    }
}

/// The messages of a request, but for those of earlier runs that are in the history.
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
