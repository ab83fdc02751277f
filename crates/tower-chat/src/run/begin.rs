//! How a run begins: what is loaded, and what the request's own messages are.

use std::{
    any::Any,
    collections::HashSet,
    sync::{Arc, Mutex, atomic::AtomicBool},
    time::Duration,
};

use tower_chat_core::{
    Answer, ChatRequest, Conversation, ConversationId, ConversationKey, Finish, Message, MessageId,
    Messages, Role, RunId, ToolInvocation, ToolStatus,
    store::{
        Conflict, Head, History, HistoryStore, InvocationQuery, Lease, OpenRun, OpenRunContent,
        Revision, ServiceIdChange, StoreError,
    },
};

use super::{
    Run, ServiceCall, Shared, State,
    added_before::added_before,
    answers_approvals,
    history::{is_incomplete_response, load_head, load_history},
    hooks::Hooks,
    journal::{Journal, input_of},
    leaf_request::{joined, own_messages},
    loaded::Loaded,
    partial_text::is_partial_response,
    prior_call_results::reports_of_recorded_results,
    record::Recorder,
    repeated::{Caller, Stored, take_new},
    rows_of_prior_calls,
    run_end::{as_answered, is_complete, recorded_end},
    service_id::{Recording, agreed_service_id},
    tool_events::PriorAttempts,
};
use crate::{
    Clock, PersistenceError, PersistenceMode, PersistencePolicy, ToolSource,
    replay::{DanglingCall, Replay},
    tool::RunAncestry,
    yielding::yield_if_large,
};

/// What a persistence layer was configured with, and gives each of its runs.
#[derive(Clone)]
pub(crate) struct Settings {
    pub(crate) store: Arc<dyn HistoryStore>,
    pub(crate) policy: PersistencePolicy,
    pub(crate) clock: Clock,
    /// The tools that are registered, where a replay policy has to know.
    pub(crate) tools: Option<Arc<dyn ToolSource>>,
}

impl Settings {
    pub(crate) fn new(store: impl HistoryStore) -> Self {
        Self {
            store: shared(store),
            policy: PersistencePolicy::default(),
            clock: Clock::default(),
            tools: None,
        }
    }

    /// The error that names another process which may be at work on an open run, and until when it
    /// holds the run; `None` if there is no such process.
    pub(crate) fn held_elsewhere(
        &self,
        key: &ConversationKey,
        open: &OpenRun,
    ) -> Option<PersistenceError> {
        let handle = self.store.handle();
        let Lease { holder, until, .. } = open.lease;
        let until = until.filter(|until| self.clock.now() < *until)?;
        let is_elsewhere = holder != handle.holder() && !handle.is_exclusive();
        is_elsewhere.then(|| PersistenceError::RunHeld {
            key: key.clone(),
            run: open.run,
            holder,
            until,
        })
    }

    /// For how long a run of the store is held after its last sign of life.
    fn lease_length(&self) -> Duration {
        match self.store.handle().is_exclusive() {
            true => Duration::ZERO,
            false => self.policy.journal.lease,
        }
    }
}

impl Run {
    /// Loads what the run needs and makes the run. The model has not been called yet, so a store
    /// that cannot be read costs nothing.
    pub(crate) async fn begin(
        settings: &Settings,
        mode: PersistenceMode,
        conversation: Conversation,
        request: &mut ChatRequest,
        head: Head,
        caller: Caller,
    ) -> Result<Self, PersistenceError> {
        let Settings { store, policy, clock, .. } = settings;
        let own = own_messages(request);
        if request.options.continuation.is_some() && !own.is_empty() {
            return Err(PersistenceError::MessagesWithContinuation { messages: own.len() });
        }
        let key = &conversation.key;
        let is_written_at_end = mode == PersistenceMode::PerRun || request.options.is_background();
        let knows_answer = is_written_at_end || mode == PersistenceMode::Journaled;
        if !knows_answer && policy.replay.citations_at_save().is_some() {
            return Err(PersistenceError::CitationsAtSave { key: key.clone(), mode });
        }
        let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
        let resumed = match &head.open_run {
            Some(_) => store.open_run(key).await.map_err(not_loaded)?,
            None => None,
        };
        // It may have ended since the head was read, and another one be open.
        let resumed = resumed.filter(|content| content.open.run == conversation.run);
        // Another process may have taken the run over since the head was read.
        let open = resumed.as_ref().map(|content| &content.open);
        if let Some(held) = open.and_then(|open| settings.held_elsewhere(key, open)) {
            return Err(held);
        }
        let head = resumed.as_ref().map_or(head, |content| content.head.clone());
        let head = match &resumed {
            Some(content) => head.with_service_id(service_id_within(content)),
            None => head,
        };
        let requested = request.conversation_id.as_ref().and_then(ConversationId::service_id);
        let service_id = agreed_service_id(key, head.service_id.clone(), requested)?;

        // An answer in the background is made without the history, but where the history is kept
        // here, a run that is sent again is looked for in it.
        let is_kept_here = service_id.is_none();
        let mut needs_history = (is_kept_here && !request.options.is_background())
            || answers_approvals(&own)
            || resumed.is_some();
        let empty = || {
            let history = History::new(head.clone(), Messages::new());
            (history, Replay::new(policy.replay.dangling_calls))
        };
        let is_stored = head.revision != Revision::ABSENT;
        let (mut history, mut replay) = match is_stored && (needs_history || is_kept_here) {
            true => load_history(settings, &conversation, request).await.map_err(not_loaded)?,
            false => empty(),
        };
        if !needs_history && history.end_of_run(conversation.run).is_none() {
            (history, replay) = empty();
        } else {
            needs_history = true;
        }
        let loaded = Loaded::of(&history);
        let mut prior_call_results = Vec::new();
        if let Some(content) = &resumed {
            if history.head.revision != content.head.revision {
                let found = history.head.revision;
                let conflict = Conflict::new(key.clone(), content.head.revision, found);
                return Err(not_loaded(Box::new(conflict).into()));
            }
            let (visible, staged) = (&history, &content.messages);
            let rows = rows_of_prior_calls(store.as_ref(), key, visible, staged);
            prior_call_results = rows.await.map_err(not_loaded)?;
            let shown =
                staged.iter().filter(|message| !is_incomplete_response(message, conversation.run));
            shown.for_each(|message| replay.push(message));
            history.extend(content.messages.iter().cloned());
        }
        yield_if_large(&own).await;
        let (added, is_overtaken) = added_before(&history, conversation.run);
        let stored = Stored { history: &history, added: &added, is_read: needs_history };
        let last_answer = take_new(settings, &conversation, request, &stored, caller).await?;
        let own = own_messages(request);
        let staged = resumed.iter().flat_map(|content| &content.messages);
        let approves = answers_approvals(own.iter().chain(staged));
        let prior_attempts = match approves {
            true => prior_attempts(store, key, &history, &replay).await.map_err(not_loaded)?,
            false => PriorAttempts::default(),
        };
        let staged = resumed.as_ref().map_or(0, |content| content.messages.len());
        let visible = added.len().saturating_sub(staged);
        let now = clock.now();
        let is_journaled = mode == PersistenceMode::Journaled && !request.options.is_background();
        let journal = is_journaled.then(|| {
            let (holder, length) = (store.handle().holder(), settings.lease_length());
            match &resumed {
                Some(content) => Journal::resuming(holder, length, now, content, &own, visible)
                    .with_deferred(prior_call_results),
                None => Journal::new(holder, length, now, history.head.revision.sequence),
            }
        });

        let recording = match service_id {
            Some(_) => Recording::of_service_kept(policy.conflict),
            None => Recording::History,
        };
        let recorded_end = match &resumed {
            Some(_) => None,
            None => {
                let end = recorded_end(store.as_ref(), key, &history, &added);
                end.await.map_err(not_loaded)?
            }
        };
        let calls_before = tool_calls_before(store, key, &history, added.get(..visible));
        let tool_calls_before = calls_before.await.map_err(not_loaded)?;
        if needs_history {
            warn_of_dangling(key, &replay, &own);
        }
        let positions = added.iter().filter_map(|message| message.id);
        let taken = positions.map(|id| id.index as usize + 1).max().unwrap_or(0);
        let hooks = Hooks::of_source(settings.tools.clone());
        let mut recorder = Recorder::after(&added, hooks);
        if added.is_empty() {
            let reports = reports_of_recorded_results(store.as_ref(), key, &history, &own);
            for (position, reports) in reports.await.map_err(not_loaded)? {
                let index = u32::try_from(position).unwrap_or(u32::MAX);
                recorder.report(MessageId { run: conversation.run, index }, reports);
            }
        }
        let state = State {
            added,
            taken,
            answer_from: taken,
            recorded_end,
            tool_calls_before,
            is_end_stored: false,
            is_overtaken,
            unsettled: Vec::new(),
            pruned: history.head.pruned,
            history: history.messages,
            replay,
            revision: history.head.revision,
            stored_service_id: head.service_id,
            service_id,
            recording,
            checks_each_answer: false,
            unsaved: store.handle().unsaved(key).iter().map(|it| it.messages().len()).sum(),
            last_call: None,
            refused: None,
            partial_response: None,
            journal,
            prior_attempts,
            open_replay: None,
            recorder,
            above: Messages::new(),
            last_answer,
        };
        let run = Self(Arc::new(Shared {
            conversation,
            mode,
            policy: policy.clone(),
            store: store.clone(),
            persister_reported: AtomicBool::new(false),
            persister_missed: AtomicBool::new(false),
            clock: clock.clone(),
            is_alone: caller == Caller::ServiceCall,
            is_background: request.options.is_background(),
            is_nested: RunAncestry::is_nested(request),
            state: Mutex::new(state),
            _loaded: loaded,
        }));
        if let Some(content) = &resumed {
            let taken = run.take_over().await?;
            tracing::warn!(
                conversation = %run.key(),
                attempt = content.open.lease.attempt.saturating_add(1),
                left_by = content.open.lease.holder,
                "open run {} is taken over, and goes on where it stopped",
                run.id()
            );
            match run.read_calls_again(approves).await {
                Ok(()) => taken.go_on(),
                Err(source) => {
                    taken.fail();
                    return Err(PersistenceError::NotLoaded { key: run.key().clone(), source });
                }
            }
        }
        Ok(run)
    }

    /// Reads what is known of the calls of a run that was taken over: until then somebody else may
    /// have been at work on them, and what comes out of a call changes no revision.
    async fn read_calls_again(&self, approves: bool) -> Result<(), StoreError> {
        let content = self.store().open_run(self.key()).await?;
        let (history, replay) = {
            let state = self.state();
            let head = Head::new(state.revision).with_pruned(state.pruned);
            (History::new(head, state.history.clone()), state.replay.clone())
        };
        let prior_attempts = match approves {
            true => Some(prior_attempts(self.store(), self.key(), &history, &replay).await?),
            false => None,
        };
        let mut state = self.state();
        if let Some(prior_attempts) = prior_attempts {
            state.prior_attempts = prior_attempts;
        }
        if let (Some(journal), Some(content)) = (&mut state.journal, content) {
            journal.read_again(&content);
        }
        Ok(())
    }

    /// A run of one service call, for a persister with no layer above the tool loop.
    pub(crate) async fn begin_alone(
        settings: &Settings,
        conversation: Conversation,
        request: &mut ChatRequest,
    ) -> Result<Self, PersistenceError> {
        let mode = PersistenceMode::PerServiceCall;
        let head = head_of(settings, &conversation.key).await?;
        if let Some(open) = head.open_run {
            return Err(PersistenceError::OpenRun { key: conversation.key, run: open.run });
        }
        Self::begin(settings, mode, conversation, request, head, Caller::ServiceCall).await
    }

    /// What the run had answered, if it is stored whole already: a request that is sent again
    /// after its answer was lost gets the same one.
    ///
    /// # Errors
    ///
    /// If the run is stored in part and another run has gone on after it.
    pub(crate) fn stored_answer(
        &self,
        request: &ChatRequest,
    ) -> Result<Option<Answer>, PersistenceError> {
        let state = self.state();
        let input = state.input_len(self.id(), request);
        let answer = state.added.get(input..).unwrap_or_default();
        let recorded = state.recorded_end.as_deref().filter(|_| !answer.is_empty());
        if recorded.is_none() && !is_complete(answer) {
            if state.is_overtaken {
                let (key, run) = (self.key().clone(), self.id());
                return Err(PersistenceError::RunOvertaken { key, run });
            }
            return Ok(None);
        }
        let next =
            MessageId { run: self.id(), index: u32::try_from(state.taken).unwrap_or(u32::MAX) };
        let messages = as_answered(answer, recorded, next);
        drop(state);
        let mut finish = Finish::default();
        finish.saved = Some(self.saved());
        Ok(Some(Answer::new(messages, finish)))
    }

    /// The stored answer, for a request that a persister without a run above it sees again. A tool
    /// foreign tool loop numbers no service calls, so the whole input must be the same.
    ///
    /// # Errors
    ///
    /// If the run is stored in part and another run has gone on after it.
    pub(crate) fn repeated_answer(
        &self,
        request: &ChatRequest,
    ) -> Result<Option<Answer>, PersistenceError> {
        if let Some(answer) = self.last_answer() {
            return Ok(Some(answer));
        }
        let own = own_messages(request);
        let ordinal = request.extensions.get::<ServiceCall>().map(|call| call.ordinal);
        let state = self.state();
        let is_same = |(own, added): (&Arc<Message>, &Arc<Message>)| {
            own.role == added.role && own.parts == added.parts && own.role != Role::Tool
        };
        let is_repeated = match ordinal {
            Some(ordinal) => ordinal == 0,
            None => {
                !own.is_empty()
                    && own.len() < state.added.len()
                    && own.iter().zip(&state.added).all(is_same)
            }
        };
        let is_overtaken = state.is_overtaken;
        drop(state);
        if is_repeated || is_overtaken { self.stored_answer(request) } else { Ok(None) }
    }

    /// What the run had added after its input before it was interrupted: part of its answer.
    pub(crate) fn answered_before(&self, request: &ChatRequest) -> Vec<Arc<Message>> {
        let state = self.state();
        let input = state.input_len(self.id(), request);
        let added = state.added.get(input..).unwrap_or_default();
        added.iter().filter(|message| !is_partial_response(message, self.id())).cloned().collect()
    }

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
        let mut state = self.state();
        let mut own = self.number(0, state.input(self.id(), &request));
        // What is stored of a run that is resumed begins with its input. Where the service keeps the
        // history, results of approved calls are stored without it.
        let stored: HashSet<_> = state.added.iter().map(|added| added.id).collect();
        let is_stored = |own: &&Arc<Message>| stored.contains(&own.id);
        own.drain(..own.iter().take_while(is_stored).count());
        state.answer_from = state.taken + own.len();
        // Staged, and no answer has come to it yet: the tool loop has it all to do.
        let unanswered = match &state.journal {
            Some(journal) if state.added.len() <= journal.input() + journal.visible_before() => {
                state.added.iter().skip(journal.visible_before()).cloned().collect()
            }
            Some(_) | None => Vec::new(),
        };
        let mut messages = request.messages.take(request.new_from);
        request.new_from = messages.len();
        request.conversation_id = state.service_id.clone().map(ConversationId::Service);
        let approves = answers_approvals(unanswered.iter().chain(&own));
        if !self.is_written_at_end() {
            state.above = messages.clone();
            if approves && state.service_id.is_none() {
                request.conversation_id = Some(ConversationId::LocalHistory);
            }
            let mut sent: Vec<_> = match state.service_id {
                Some(_) => state.unanswered_by_service().to_vec(),
                None => unanswered,
            };
            sent.extend(own.iter().cloned());
            sent.sort_by_key(|message| message.id);
            messages.extend(sent);
        } else if state.service_id.is_some() {
            messages.extend(own.iter().cloned());
        } else {
            self.replay_with(&state, &own)?;
            let mut closed = state.replay.clone();
            closed.retract_answered_by_open_round();
            closed.retract_answered_by(&own);
            let mut open = closed.split_open_round();
            let history = closed.view();
            request.new_from += history.len();
            // What a layer above put first stays first.
            messages = joined(messages, history);
            if approves {
                messages.extend(own.iter().cloned());
                state.open_replay = Some(open);
            } else {
                // As in per-service-call mode, so that both send the same: a result that answers
                // nothing is refused by providers.
                own.iter().for_each(|message| open.push(message));
                messages.append(&open.view());
            }
        }
        request.messages = messages;
        request.extensions.insert(self.clone());
        drop(state);
        Ok((request, own))
    }

    /// The replay of everything up to and with these inputs.
    ///
    /// # Errors
    ///
    /// If a dangling call may not be replayed; one that an input answers is not dangling.
    pub(super) fn replay_with(
        &self,
        state: &State,
        inputs: &[Arc<Message>],
    ) -> Result<Replay, PersistenceError> {
        let mut replay = state.replay.clone();
        inputs.iter().for_each(|message| replay.push(message));
        let dangling = |source| PersistenceError::Dangling { key: self.key().clone(), source };
        replay.check().map_err(dangling)?;
        Ok(replay)
    }
}

impl State {
    /// What the run adds before its first service call: the request's own messages, but for those
    /// that a caller took from the stored history and sends again.
    fn input(&self, run: RunId, request: &ChatRequest) -> Vec<Arc<Message>> {
        let mut own = own_messages(request);
        let is_of_other_run = |message: &Arc<Message>| message.id.is_some_and(|id| id.run != run);
        if own.iter().any(is_of_other_run) {
            let stored: HashSet<MessageId> =
                self.history.iter().filter_map(|message| message.id).collect();
            own.retain(|message| {
                !(is_of_other_run(message) && message.id.is_some_and(|id| stored.contains(&id)))
            });
        }
        own
    }

    /// What is stored of the run since the model spoke last. A service that keeps the history has
    /// not been sent it, or has not answered to it.
    fn unanswered_by_service(&self) -> &[Arc<Message>] {
        let last = self.added.iter().rposition(|message| message.role == Role::Assistant);
        self.added.get(last.map_or(0, |last| last + 1)..).unwrap_or_default()
    }

    /// How many of the messages that the run has added are its input.
    fn input_len(&self, run: RunId, request: &ChatRequest) -> usize {
        match &self.journal {
            Some(journal) if journal.visible_before() == 0 && journal.input() > 0 => {
                journal.input()
            }
            // The request only names the run.
            Some(_) if request.new_from >= request.messages.len() => input_of(&self.added, &[]),
            Some(_) | None => self.input(run, request).len(),
        }
    }
}

/// A store behind one pointer, also if it is behind one already: each more would put the future of
/// each operation into a box more.
pub(crate) fn shared(store: impl HistoryStore) -> Arc<dyn HistoryStore> {
    let any: &dyn Any = &store;
    match any.downcast_ref::<Arc<dyn HistoryStore>>() {
        Some(shared) => shared.clone(),
        None => Arc::new(store),
    }
}

/// The conversation's head as it will be once the outbox is empty.
///
/// # Errors
///
/// [`PersistenceError::NotLoaded`].
pub(crate) async fn head_of(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Head, PersistenceError> {
    let not_loaded = |source| PersistenceError::NotLoaded { key: key.clone(), source };
    load_head(&settings.store, key).await.map_err(not_loaded)
}

/// The service id as the open run knows it.
fn service_id_within(content: &OpenRunContent) -> Option<Arc<str>> {
    match &content.open.service_id {
        Some(ServiceIdChange::Set(id)) => Some(id.clone()),
        Some(ServiceIdChange::Clear) => None,
        None => content.head.service_id.clone(),
    }
}

/// How many tool calls of these messages, which a run has stored before it was sent again, were
/// started.
async fn tool_calls_before(
    store: &Arc<dyn HistoryStore>,
    key: &ConversationKey,
    history: &History,
    added: Option<&[Arc<Message>]>,
) -> Result<usize, StoreError> {
    let asking: HashSet<MessageId> = added
        .unwrap_or_default()
        .iter()
        .filter(|message| message.calls().next().is_some())
        .filter_map(|message| message.id)
        .collect();
    if asking.is_empty() {
        return Ok(0);
    }
    let is_it = |message: &Arc<Message>| message.id.is_some_and(|id| asking.contains(&id));
    let sequences = history.numbered().filter(|(_, message)| is_it(message));
    let query = InvocationQuery::of(key).in_messages(sequences.map(|(sequence, _)| sequence));
    let rows = store.invocations(&query).await?.found;
    let has_run = |call: &ToolInvocation| {
        call.started_at.is_some() || call.status == ToolStatus::RejectedArguments
    };
    Ok(rows.iter().filter(|(_, call)| has_run(call)).count())
}

/// What the record knows of the calls that wait for approval: those that somebody has begun, and
/// those that have a result which no message holds.
async fn prior_attempts(
    store: &Arc<dyn HistoryStore>,
    key: &ConversationKey,
    history: &History,
    replay: &Replay,
) -> Result<PriorAttempts, StoreError> {
    let query = InvocationQuery::of(key).with_status(ToolStatus::PendingApproval);
    let mut known = store.invocations(&query).await?.found;
    let waiting: HashSet<MessageId> = replay
        .approvals_in_order()
        .iter()
        .flatten()
        .filter_map(|call| Some(call.call_position?.0))
        .collect();
    let is_waiting = |message: &Arc<Message>| message.id.is_some_and(|id| waiting.contains(&id));
    let asking = history.numbered().filter(|(_, message)| is_waiting(message));
    let asking: Vec<u64> = asking.map(|(sequence, _)| sequence).collect();
    if !asking.is_empty() {
        let closed = store.invocations(&InvocationQuery::of(key).in_messages(asking)).await?.found;
        known.extend(closed.into_iter().filter(|(_, call)| !call.status.is_open()));
    }
    // What came out of one may wait in the outbox.
    let message = |sequence| history.message(sequence).cloned();
    let unsaved = store.handle().unsaved(key);
    let unsaved = unsaved.iter().flat_map(|write| write.tools());
    let unsaved = unsaved.filter(|row| row.status == ToolStatus::PendingApproval);
    let known = known.into_iter().map(|(_, call)| call);
    Ok(known.chain(unsaved.filter_map(|row| row.resolve(message).ok())).collect())
}

/// Logs what the model is shown, or not shown, of stored calls that neither the history nor the
/// run's own input answers.
fn warn_of_dangling(key: &ConversationKey, replay: &Replay, own: &[Arc<Message>]) {
    if replay.dangling_calls().is_empty() {
        return;
    }
    let mut replay = replay.clone();
    own.iter().for_each(|message| replay.push(message));
    let (shown, left_out): (Vec<_>, Vec<_>) =
        replay.dangling().into_iter().partition(|call| call.is_shown);
    let names = |calls: &[DanglingCall]| {
        let names = calls.iter().map(|call| format!("{} ({})", call.tool, call.call_id));
        names.collect::<Vec<_>>().join(", ")
    };
    if !shown.is_empty() {
        tracing::warn!(
            conversation = %key,
            calls = names(&shown),
            "stored tool calls have no result, since their runs were interrupted: the model is \
             told that they may or may not have taken effect"
        );
    }
    if !left_out.is_empty() {
        tracing::warn!(
            conversation = %key,
            calls = names(&left_out),
            "stored tool calls have no result, and are not shown to the model"
        );
    }
}
