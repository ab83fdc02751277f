//! What of a run's messages is stored, and what the record of tool calls says of them.

use std::{
    borrow::Cow,
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use serde_json::Value;
use smallvec::SmallVec;
use tower_chat_core::{
    CallPosition, Message, MessageId, Part, Role, ToolCall, ToolResult, ToolStatus,
    store::{RecordedResult, SequencePosition, ToolRecord},
};

use super::{
    State,
    answered_calls::AnsweredCalls,
    answered_in_order::{answered_in_order, continues_round},
    held_calls::HeldCalls,
    hooks::{Hooks, mark_hooked},
    prior_call_results::{mark_statuses, must_be_marked},
    records::Records,
    stored_messages::{Rounds, StoredMessages},
};
use crate::{
    replay::{AnswerIds, AskedCall, Citations, Truncation, mark_not_kept},
    tool::{CallOfRun, NotKept, Retained, ToolReport, ToolReports, retained},
};

/// The key of a stored message's metadata under which the positions of those of its calls are kept
/// whose arguments a hook has changed: who takes the run up must not run them.
const ARGUMENTS_NOT_KEPT: &str = "arguments_not_kept";

/// The key of the metadata of stored messages whose response asked for tools, and of whose calls
/// hooks have kept none: they are no answer, although they ask for nothing.
const CALLS_NOT_KEPT: &str = "calls_not_kept";

/// What the record needs to know between the writes of a run.
#[derive(Debug, Default)]
pub(super) struct CallRecords {
    pub(super) hooks: Hooks,
    /// By the message that holds the results, in their order. Few wait at a time, and mostly the
    /// first is asked for.
    reports: VecDeque<(MessageId, ToolReports)>,
    /// The messages of this run that ask for tools, as they were stored.
    asking: Vec<Asking>,
    /// Where each of them stands among them.
    asked: HashMap<MessageId, usize>,
    pub(super) stored: StoredMessages,
    pub(super) held: HeldCalls,
    /// How many rounds of the run were stored before it was sent again.
    pub(super) rounds_before: usize,
    /// What the hooks keep of calls that wait for approval, asked before approval is.
    pending: HashMap<CallOfRun, Retained>,
}

#[derive(Debug)]
struct Asking {
    sequence: u64,
    round_index: u32,
    /// For each call of the message its position in what is stored of it; `None` if it is not stored.
    stored: SmallVec<[Option<u32>; 1]>,
    /// Hooks have left out some of its calls.
    lacks_calls: bool,
}

/// A call that a result answers.
struct AnsweredCall<'c> {
    of_run: CallOfRun,
    call: &'c ToolCall,
    /// The stored result has to name the call by position.
    must_be_named: bool,
}

/// A write's messages in the form in which they are stored, and its rows of the record.
pub(super) struct Composed {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) records: Records,
}

/// Where a call was stored, and what is known of it.
pub(super) struct StoredPosition {
    pub(super) call: SequencePosition,
    pub(super) round_index: u32,
}

impl State {
    /// Puts a write together: hooks first, then the compaction of citations where the final text
    /// is known, then truncation.
    ///
    /// `citations` are given for a whole run alone; `left_out` are results at the end of the run
    /// that are in no message of the store, so that the record holds them itself.
    pub(super) fn compose(
        &mut self,
        messages: &[Arc<Message>],
        left_out: &[Arc<Message>],
        citations: Option<&Citations>,
        truncation: Truncation,
    ) -> Composed {
        let has_tools = |message: &Arc<Message>| {
            message.parts.iter().any(|part| {
                matches!(part, Part::ToolCall(_) | Part::ToolResult(_) | Part::ApprovalRequest(_))
            })
        };
        let all: Vec<&Arc<Message>> = messages.iter().chain(left_out).collect();
        if !all.iter().copied().any(has_tools) {
            return Composed { messages: messages.to_vec(), records: Records::default() };
        }
        self.call_records.hooks.ask_source();
        // Most messages have one call, or one result.
        let mut records = Records::with_capacity(all.len());
        let added = last_answer(&self.conversation.added);
        let mut ids = AnswerIds::default();
        added.iter().rev().for_each(|message| drop(ids.next(message)));
        let mut answered = AnsweredCalls::default();
        let mut stored = Vec::with_capacity(messages.len());
        let mut last_forgotten = None;
        for (position, &message) in all.iter().enumerate() {
            let sequence = (position < messages.len())
                .then(|| self.conversation.revision.sequence + 1 + position as u64);
            let before = || {
                let of_write = all.get(..position).unwrap_or_default().iter().rev().copied();
                of_write.chain(&added).map(|message| &**message)
            };
            let mut retained = message.clone();
            let ids = ids.next(message);
            if let (Some(sequence), Some(id)) = (sequence, message.id)
                && message.asked_calls().next().is_some()
            {
                let begins_round = !continues_round(before(), message);
                let keeps_all = self.store_calls(
                    &mut retained,
                    (id, sequence),
                    (ids, begins_round),
                    &mut records,
                );
                last_forgotten = if keeps_all { last_forgotten } else { Some(position) };
            }
            if message.results().next().is_some() {
                match answered_in_order(before(), message) {
                    Some((id, asking)) => {
                        let asked = (0..).zip(asking.calls());
                        let asked = asked.map(|(index, call)| {
                            Some(AnsweredCall { of_run: (id, index), call, must_be_named: false })
                        });
                        self.store_results(&mut retained, asked, sequence, &mut records);
                    }
                    None => {
                        let asked =
                            answered.by_message_at(position, &all, &self.conversation.replay);
                        let asked = asked.iter().map(|asked| {
                            let AskedCall { call_position, call, must_be_named, .. } =
                                asked.as_ref()?;
                            let must_be_named = *must_be_named;
                            Some(AnsweredCall { of_run: *call_position, call, must_be_named })
                        });
                        self.store_results(&mut retained, asked, sequence, &mut records);
                    }
                }
            }
            if sequence.is_some() {
                stored.push(retained);
            }
        }
        if let Some(position) = last_forgotten {
            mark_without_calls(&mut stored, position);
        }
        if let Some(citations) = citations {
            let compacted = citations.apply(&stored.iter().cloned().collect());
            stored = compacted.iter().cloned().collect();
        }
        stored.iter_mut().for_each(|message| truncation.apply_within(message));
        for record in records.rows_mut() {
            if let RecordedResult::Apart(result) = &mut record.result {
                truncation.apply(result);
            }
        }
        Composed { messages: stored, records }
    }

    /// Whether all calls are kept.
    fn store_calls(
        &mut self,
        message: &mut Arc<Message>,
        (id, sequence): (MessageId, u64),
        (ids, begins_round): (Vec<Cow<'_, str>>, bool),
        records: &mut Records,
    ) -> bool {
        let round_index = self.call_records.round_index(begins_round);
        let mut positions = SmallVec::new();
        let mut changes = Vec::new();
        let mut hooked = Vec::new();
        let mut next = 0;
        self.call_records.hooks.pin_calls(message);
        let parts = message.parts.iter().filter_map(asked_call);
        for (index, ((call, is_waiting), call_id)) in parts.zip(ids).enumerate() {
            let decided = self.call_records.pending.remove(&(id, index));
            let retained =
                decided.unwrap_or_else(|| self.call_records.retained_call((id, index), call));
            let redaction = match retained {
                Retained::Whole => None,
                Retained::Redacted(redaction) => {
                    hooked.push(next);
                    Some(redaction)
                }
                Retained::Nothing(_) => {
                    positions.push(None);
                    changes.push((index, None));
                    continue;
                }
            };
            positions.push(Some(next));
            let position = SequencePosition { sequence, index: next };
            let mut row =
                ToolRecord::pending(position, round_index, call_id.into_owned(), &call.name);
            if is_waiting {
                row.status = ToolStatus::PendingApproval;
            }
            records.put(row);
            next += 1;
            let arguments = redaction.and_then(|redaction| redaction.arguments);
            changes.extend(arguments.map(|arguments| (index, Some(arguments))));
        }
        let keeps_all = positions.iter().all(Option::is_some);
        self.call_records.asked.insert(id, self.call_records.asking.len());
        let lacks_calls = !keeps_all;
        let stored = positions;
        self.call_records.asking.push(Asking { sequence, round_index, stored, lacks_calls });
        redact_calls(message, changes);
        if !hooked.is_empty() || !keeps_all {
            mark_hooked(message, hooked);
        }
        keeps_all
    }

    /// `asked` are the calls that the results answer, result by result.
    fn store_results<'c>(
        &mut self,
        message: &mut Arc<Message>,
        asked: impl Iterator<Item = Option<AnsweredCall<'c>>>,
        sequence: Option<u64>,
        records: &mut Records,
    ) {
        let reports = message.id.and_then(|id| self.call_records.take_reports(id));
        let mut reports = reports.unwrap_or_default().into_iter();
        let mut changes = Vec::new();
        let mut not_kept = Vec::new();
        let mut statuses = Vec::new();
        let mut next = 0;
        for (index, (result, asked)) in message.results().zip(asked).enumerate() {
            let report = reports.next();
            let Some(AnsweredCall { of_run, call, must_be_named }) = asked else {
                changes
                    .extend(self.retained_orphan(result).map(|retained| (index, Some(retained))));
                next += 1;
                continue;
            };
            let retained = self.retained_outcome(of_run, call, result, report.as_ref());
            let (position, redaction) = match (self.stored_position(of_run), retained) {
                (Some(position), Retained::Whole) => (position, None),
                (Some(position), Retained::Redacted(redaction)) => (position, Some(*redaction)),
                (Some(_), Retained::Nothing(_)) => {
                    not_kept.extend(result.call_id.clone().map(Value::from));
                    changes.push((index, None));
                    continue;
                }
                (None, _) => {
                    changes.push((index, None));
                    continue;
                }
            };
            let (mut changed, changed_error) = match redaction {
                Some(redaction) => (redaction.result, redaction.error),
                None => (None, None),
            };
            // As the call is stored: siblings before it may not be, and then ids and order of those
            // that are left do not tell which of them the result answers.
            let stored_call = CallPosition { message: of_run.0, index: position.call.index };
            let must_be_named = must_be_named || self.call_records.lacks_calls_of(of_run.0);
            let named = (must_be_named || result.call.is_some()).then_some(stored_call);
            if named != result.call {
                changed.get_or_insert_with(|| Box::new(result.clone())).call = named;
            }
            let recorded = match sequence {
                Some(sequence) => {
                    RecordedResult::InMessage(SequencePosition { sequence, index: next })
                }
                None => RecordedResult::Apart(
                    changed.clone().unwrap_or_else(|| Box::new(result.clone())),
                ),
            };
            let call_id = call.id.clone().unwrap_or_default();
            let mut row =
                ToolRecord::pending(position.call, position.round_index, call_id, &call.name);
            let report = report.unwrap_or_else(|| ToolReport::of(result));
            row.result = recorded;
            row.error = changed_error.unwrap_or(report.error);
            row.status = report.status;
            row.started_at = report.started_at;
            row.finished_at = report.finished_at;
            if message.id.is_some_and(|id| id.run != of_run.0.run) && must_be_marked(row.status) {
                statuses.push((next, row.status));
            }
            records.put(row);
            changes.extend(changed.map(|changed| (index, Some(changed))));
            next += 1;
        }
        redact_results(message, changes);
        mark_not_kept(message, not_kept);
        mark_statuses(message, statuses);
    }

    /// Where a call stands in the store: a call of this run, or of the loaded history.
    pub(super) fn stored_position(
        &self,
        (message, index): (MessageId, usize),
    ) -> Option<StoredPosition> {
        if let Some(asking) = self.call_records.asking(message) {
            let index = (*asking.stored.get(index)?)?;
            let call = SequencePosition { sequence: asking.sequence, index };
            return Some(StoredPosition { call, round_index: asking.round_index });
        }
        let position = self.position_in_history(message)?;
        let round_index = self.round_in_history(position);
        let call = SequencePosition {
            sequence: self.conversation.pruned + position as u64 + 1,
            index: u32::try_from(index).ok()?,
        };
        Some(StoredPosition { call, round_index })
    }
}

/// A call that waits for approval, and of which nothing would be stored.
pub(super) struct PendingCallNotKept {
    pub(super) tool: String,
    pub(super) call_id: String,
    pub(super) reason: NotKept,
}

impl CallRecords {
    /// Asks the hooks what they keep of the calls in these messages that wait for approval. The
    /// decisions are used when the messages are stored.
    ///
    /// # Errors
    ///
    /// The first call of which a hook keeps nothing: it could not be run later. No decision is
    /// remembered then.
    pub(super) fn keep_pending_calls(
        &mut self,
        messages: &[Arc<Message>],
    ) -> Result<(), PendingCallNotKept> {
        let mut decided = Vec::new();
        let mut ids = AnswerIds::default();
        for message in messages {
            let ids = ids.next(message);
            let Some(id) = message.id else { continue };
            self.hooks.pin_calls(message);
            let calls = message.parts.iter().filter_map(asked_call);
            for (index, ((call, is_waiting), call_id)) in calls.zip(ids).enumerate() {
                if !is_waiting || self.pending.contains_key(&(id, index)) {
                    continue;
                }
                match self.retained_call((id, index), call) {
                    Retained::Nothing(reason) => {
                        let (tool, call_id) = (call.name.clone(), call_id.into_owned());
                        return Err(PendingCallNotKept { tool, call_id, reason });
                    }
                    retained => decided.push(((id, index), retained)),
                }
            }
        }
        self.pending.extend(decided);
        Ok(())
    }

    /// What the hook of a call's tool keeps of the call itself.
    fn retained_call(&self, of_run: CallOfRun, call: &ToolCall) -> Retained {
        let tool = self.hooks.tool(of_run, call).filter(|_| !self.hooks.had_no_tool(of_run));
        tool.map_or(Retained::Whole, |tool| retained(tool, call, None, None))
    }

    /// The call_records of a run of which these messages are stored already.
    pub(super) fn after(added: &[Arc<Message>], hooks: Hooks) -> Self {
        Self { hooks, rounds_before: rounds_in(added), ..Self::default() }
    }

    /// Whether a message is one of this run whose calls were stored by this attempt.
    pub(super) fn has_stored_calls_of(&self, message: MessageId) -> bool {
        self.asked.contains_key(&message)
    }

    /// Whether hooks have left out calls of a message of this run.
    fn lacks_calls_of(&self, message: MessageId) -> bool {
        self.asking(message).is_some_and(|asking| asking.lacks_calls)
    }

    /// The message with this sequence, if it asks for tools and this attempt has stored it.
    pub(super) fn id_at(&self, sequence: u64) -> Option<MessageId> {
        let is_it = |at: &usize| self.asking.get(*at).is_some_and(|it| it.sequence == sequence);
        self.asked.iter().find(|(_, at)| is_it(at)).map(|(message, _)| *message)
    }

    /// The message of this run that asks for tools, if it is stored.
    fn asking(&self, message: MessageId) -> Option<&Asking> {
        self.asking.get(*self.asked.get(&message)?)
    }

    /// The round of the next message that asks for tools.
    fn round_index(&self, begins_round: bool) -> u32 {
        let rounds_before = u32::try_from(self.rounds_before).unwrap_or(u32::MAX);
        let next = match self.asking.last() {
            Some(last) => last.round_index.saturating_add(1),
            None => rounds_before,
        };
        if begins_round { next } else { next.saturating_sub(1) }
    }

    /// Takes note of what a tool loop knows of the results in a message.
    pub(super) fn report(&mut self, message: MessageId, reports: ToolReports) {
        if self.reports.back().is_none_or(|(last, _)| *last < message) {
            return self.reports.push_back((message, reports));
        }
        match self.reports.binary_search_by_key(&message, |(known, _)| *known) {
            Ok(position) => {
                if let Some((_, known)) = self.reports.get_mut(position) {
                    *known = reports;
                }
            }
            Err(position) => self.reports.insert(position, (message, reports)),
        }
    }

    /// What a tool loop has said of the results in a message that was not stored yet.
    pub(super) fn reports(&self, message: MessageId) -> Option<&ToolReports> {
        let position = self.reports.binary_search_by_key(&message, |(known, _)| *known).ok()?;
        self.reports.get(position).map(|(_, reports)| reports)
    }

    fn take_reports(&mut self, message: MessageId) -> Option<ToolReports> {
        if self.reports.front().is_some_and(|(first, _)| *first == message) {
            return self.reports.pop_front().map(|(_, reports)| reports);
        }
        let position = self.reports.binary_search_by_key(&message, |(known, _)| *known).ok()?;
        self.reports.remove(position).map(|(_, reports)| reports)
    }
}

/// The last message, and if the model said it, those before it up to one that the model did not
/// say; the last one first.
fn last_answer(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let is_answer = |message: &&Arc<Message>| message.role == Role::Assistant;
    let of_answer = messages.iter().rev().take_while(is_answer).count();
    messages.iter().rev().take(of_answer.max(1)).cloned().collect()
}

/// How many rounds are in messages of one run, the oldest first.
fn rounds_in<'m>(messages: impl IntoIterator<Item = &'m Arc<Message>>) -> usize {
    let mut rounds = Rounds::default();
    messages.into_iter().for_each(|message| rounds.push(message));
    rounds.count
}

/// A call that owes or will owe a result, and whether it waits for approval.
fn asked_call(part: &Part) -> Option<(&ToolCall, bool)> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some((call, false)),
        Part::ApprovalRequest(request) => Some((&request.call, true)),
        _ => None,
    }
}

/// Leaves calls out (`None`), or changes their arguments, as the hooks said; the others stay as
/// they are.
fn redact_calls(message: &mut Arc<Message>, changes: Vec<(usize, Option<String>)>) {
    if changes.is_empty() {
        return;
    }
    let mut changes = changes.into_iter().peekable();
    let mut index = 0;
    let mut not_kept = Vec::new();
    let mut retained = 0_u32;
    let message = Arc::make_mut(message);
    message.parts.retain_mut(|part| {
        let call = match part {
            Part::ToolCall(call) if !call.provider_executed => call,
            Part::ApprovalRequest(request) => &mut request.call,
            _ => return true,
        };
        let change = changes.next_if(|(changed, _)| *changed == index);
        index += 1;
        match change {
            Some((_, None)) => return false,
            Some((_, Some(arguments))) => {
                if call.arguments != arguments {
                    not_kept.push(Value::from(retained));
                }
                call.arguments = arguments;
                call.native = None;
            }
            None => {}
        }
        retained += 1;
        true
    });
    if !not_kept.is_empty() {
        message.metadata.insert(ARGUMENTS_NOT_KEPT.to_owned(), Value::Array(not_kept));
    }
}

/// Marks the response at the end of a write, if the message at `forgotten`, the last that calls were
/// left out of, is part of it, and nothing of it asks for anything any more.
fn mark_without_calls(stored: &mut [Arc<Message>], forgotten: usize) {
    let is_response = |message: &&Arc<Message>| message.role == Role::Assistant;
    let first = stored.len() - stored.iter().rev().take_while(is_response).count();
    let response = stored.get_mut(first..).unwrap_or_default();
    if forgotten < first || response.iter().any(|message| message.asked_calls().next().is_some()) {
        return;
    }
    for message in response {
        let metadata = &mut Arc::make_mut(message).metadata;
        metadata.insert(CALLS_NOT_KEPT.to_owned(), Value::Bool(true));
    }
}

/// Whether a stored message is all that is left of a response whose calls were not kept.
pub(crate) fn is_without_calls(message: &Message) -> bool {
    message.metadata.get(CALLS_NOT_KEPT) == Some(&Value::Bool(true))
}

/// The positions of the calls in a stored message whose arguments are not those the model gave.
pub(super) fn calls_without_arguments(message: &Message) -> impl Iterator<Item = usize> {
    let positions = message.metadata.get(ARGUMENTS_NOT_KEPT).and_then(Value::as_array);
    let positions = positions.map(Vec::as_slice).unwrap_or_default();
    positions.iter().filter_map(|position| usize::try_from(position.as_u64()?).ok())
}

/// Leaves results out (`None`), or replaces them; those that are not named stay.
fn redact_results(message: &mut Arc<Message>, changes: Vec<(usize, Option<Box<ToolResult>>)>) {
    if changes.is_empty() {
        return;
    }
    let mut changes = changes.into_iter().peekable();
    let mut index = 0;
    Arc::make_mut(message).parts.retain_mut(|part| {
        let Part::ToolResult(result) = part else { return true };
        let change = changes.next_if(|(changed, _)| *changed == index);
        index += 1;
        match change {
            Some((_, None)) => return false,
            Some((_, Some(changed))) => *result = *changed,
            None => {}
        }
        true
    });
}
