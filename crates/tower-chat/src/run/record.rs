//! What of a run's messages is stored, and what the record of tool calls says of them.

use std::{collections::HashMap, sync::Arc, time::SystemTime};

use serde_json::Value;
use tower_chat_core::{
    Message, MessageId, Part, ToolCall, ToolResult, ToolStatus,
    store::{CallPlace, RecordedResult, ToolRecord},
};

use super::State;
use crate::{
    replay::{AskedCall, Citations, Replay, Truncation, effective_call_ids},
    tool::{Redaction, Tools, redaction},
};

/// The key of a stored message's metadata under which the places of those of its calls are kept
/// whose arguments a hook has changed: who takes the run up must not run them.
const ARGUMENTS_NOT_KEPT: &str = "arguments_not_kept";

/// What a tool loop knows of a result and the result does not say.
#[derive(Debug, Clone)]
pub(crate) struct ToolReport {
    pub(crate) status: ToolStatus,
    pub(crate) error: Option<String>,
    pub(crate) started_at: Option<SystemTime>,
    pub(crate) finished_at: Option<SystemTime>,
}

impl ToolReport {
    /// The report of a call whose tool was not run, or of which nothing more is known.
    pub(crate) fn not_run(status: ToolStatus) -> Self {
        Self { status, error: None, started_at: None, finished_at: None }
    }
}

/// What the record needs to know between the writes of a run.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    /// The tools of the run, for their hooks.
    pub(super) tools: Option<Tools>,
    /// By the message that holds the results, in their order.
    pub(super) reports: HashMap<MessageId, Vec<ToolReport>>,
    /// The messages of this run that ask for tools, as they were stored.
    asking: Vec<Asking>,
    /// How many rounds of the run were stored before it was sent again.
    rounds_before: usize,
}

#[derive(Debug)]
struct Asking {
    message: MessageId,
    sequence: u64,
    round_index: u32,
    /// For each call of the message its place in what is stored of it; `None` if it is not stored.
    stored: Vec<Option<u32>>,
}

/// A write's messages in the form in which they are stored, and its rows of the record.
pub(super) struct Composed {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) records: Vec<ToolRecord>,
}

/// Where a call was stored, and what is known of it.
pub(super) struct StoredPlace {
    pub(super) call: CallPlace,
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
        if !messages.iter().chain(left_out).any(has_tools) {
            return Composed { messages: messages.to_vec(), records: Vec::new() };
        }
        let mut records = Vec::new();
        let all = || messages.iter().chain(left_out);
        let mut replay = self.replay.clone();
        let mut pushed = 0;
        let mut stored = Vec::with_capacity(messages.len());
        for (place, message) in all().enumerate() {
            if message.results().next().is_some() {
                // Nothing else needs to know what stands before it.
                all().skip(pushed).take(place - pushed).for_each(|earlier| replay.push(earlier));
                pushed = place;
            }
            let sequence =
                (place < messages.len()).then(|| self.revision.sequence + 1 + place as u64);
            let message = self.store(message, sequence, &replay, &mut records);
            if sequence.is_some() {
                stored.push(message);
            }
        }
        if let Some(citations) = citations {
            let compacted = citations.apply(&stored.iter().cloned().collect());
            stored = compacted.iter().cloned().collect();
        }
        stored = stored.into_iter().map(|message| truncation.apply_to(message)).collect();
        for record in &mut records {
            if let RecordedResult::Apart(result) = &mut record.result {
                truncation.apply(result);
            }
        }
        Composed { messages: stored, records }
    }

    /// One message in its stored form; with no sequence it is not stored itself.
    fn store(
        &mut self,
        message: &Arc<Message>,
        sequence: Option<u64>,
        replay: &Replay,
        records: &mut Vec<ToolRecord>,
    ) -> Arc<Message> {
        let mut stored = message.clone();
        if let (Some(sequence), Some(id)) = (sequence, message.id)
            && message.asked_calls().next().is_some()
        {
            self.store_calls(&mut stored, id, sequence, records);
        }
        if message.results().next().is_some() {
            let asked = replay.calls_answered_by(message);
            self.store_results(&mut stored, asked, sequence, records);
        }
        stored
    }

    fn store_calls(
        &mut self,
        message: &mut Arc<Message>,
        id: MessageId,
        sequence: u64,
        records: &mut Vec<ToolRecord>,
    ) {
        let rounds = self.recorder.rounds_before + self.recorder.asking.len();
        let round_index = u32::try_from(rounds).unwrap_or(u32::MAX);
        let ids = effective_call_ids(message);
        let mut places = Vec::with_capacity(ids.len());
        let mut redactions: Vec<Option<Redaction>> = Vec::with_capacity(ids.len());
        let mut next = 0;
        let parts = message.parts.iter().filter_map(asked_call);
        for ((call, is_waiting), call_id) in parts.zip(ids) {
            let redaction = redaction(self.recorder.tool(&call.name), call, None, None);
            places.push(redaction.is_some().then_some(next));
            if redaction.is_some() {
                let place = CallPlace { sequence, index: next };
                let mut row = ToolRecord::pending(place, round_index, call_id, &call.name);
                if is_waiting {
                    row.status = ToolStatus::PendingApproval;
                }
                records.push(row);
                next += 1;
            }
            redactions.push(redaction);
        }
        self.recorder.asking.push(Asking { message: id, sequence, round_index, stored: places });
        redact_calls(message, redactions);
    }

    fn store_results(
        &mut self,
        message: &mut Arc<Message>,
        asked: Vec<Option<AskedCall>>,
        sequence: Option<u64>,
        records: &mut Vec<ToolRecord>,
    ) {
        let reports = message.id.and_then(|id| self.recorder.reports.remove(&id));
        let mut reports = reports.unwrap_or_default().into_iter().map(Some);
        let mut kept = Vec::new();
        let mut next = 0;
        for (result, asked) in message.results().zip(asked) {
            let report = reports.next().flatten();
            let Some(asked) = asked else {
                kept.push(Some(None));
                next += 1;
                continue;
            };
            let error = report.as_ref().and_then(|report| report.error.as_deref());
            let tool = self.recorder.tool(&asked.call.name);
            let redaction = redaction(tool, &asked.call, Some(result), error);
            let place = self.stored_place(asked.place);
            let (Some(redaction), Some(place)) = (redaction, place) else {
                kept.push(None);
                continue;
            };
            let changed = redaction.result;
            let recorded = match sequence {
                Some(sequence) => RecordedResult::InMessage(CallPlace { sequence, index: next }),
                None => RecordedResult::Apart(Box::new(
                    changed.clone().unwrap_or_else(|| result.clone()),
                )),
            };
            let call_id = asked.call.id.clone().unwrap_or_default();
            let mut row =
                ToolRecord::pending(place.call, place.round_index, call_id, &asked.call.name);
            let report = report.unwrap_or_else(|| {
                ToolReport::not_run(if result.is_error {
                    ToolStatus::Error
                } else {
                    ToolStatus::Ok
                })
            });
            row.result = recorded;
            row.error = redaction.error.unwrap_or(report.error);
            row.status = report.status;
            row.started_at = report.started_at;
            row.finished_at = report.finished_at;
            put(records, row);
            kept.push(Some(changed));
            next += 1;
        }
        redact_results(message, kept);
    }

    /// Where a call stands in the store: a call of this run, or of the loaded history.
    pub(super) fn stored_place(&self, (message, index): (MessageId, usize)) -> Option<StoredPlace> {
        let asking = self.recorder.asking.iter().rev().find(|asking| asking.message == message);
        if let Some(asking) = asking {
            let index = (*asking.stored.get(index)?)?;
            let call = CallPlace { sequence: asking.sequence, index };
            return Some(StoredPlace { call, round_index: asking.round_index });
        }
        let position = self.history.iter().rposition(|stored| stored.id == Some(message))?;
        let is_earlier_round = |stored: &&Arc<Message>| {
            stored.id.is_some_and(|id| id.run == message.run)
                && stored.asked_calls().next().is_some()
        };
        let before = self.history.take(position);
        let of_run = |stored: &&Arc<Message>| stored.id.is_some_and(|id| id.run == message.run);
        let rounds = before.iter().rev().take_while(of_run).filter(is_earlier_round).count();
        let call = CallPlace {
            sequence: self.pruned + position as u64 + 1,
            index: u32::try_from(index).ok()?,
        };
        Some(StoredPlace { call, round_index: u32::try_from(rounds).unwrap_or(u32::MAX) })
    }
}

impl Recorder {
    /// The recorder of a run of which these messages are stored already.
    pub(super) fn after(added: &[Arc<Message>]) -> Self {
        let is_round = |message: &&Arc<Message>| message.asked_calls().next().is_some();
        Self { rounds_before: added.iter().filter(is_round).count(), ..Self::default() }
    }

    pub(super) fn tool(&self, name: &str) -> Option<&dyn crate::Tool> {
        self.tools.as_ref()?.tool(name).map(|tool| &**tool)
    }
}

/// Adds a row, in place of the one of the same call if the write has one.
pub(super) fn put(records: &mut Vec<ToolRecord>, row: ToolRecord) {
    match records.iter_mut().rev().find(|known| known.call == row.call) {
        Some(known) => *known = row,
        None => records.push(row),
    }
}

/// A call that owes or will owe a result, and whether it waits for approval.
fn asked_call(part: &Part) -> Option<(&ToolCall, bool)> {
    match part {
        Part::ToolCall(call) if !call.provider_executed => Some((call, false)),
        Part::ApprovalRequest(request) => Some((&request.call, true)),
        _ => None,
    }
}

/// Leaves calls out, or changes their arguments, as the hooks said.
fn redact_calls(message: &mut Arc<Message>, redactions: Vec<Option<Redaction>>) {
    let is_untouched = |redaction: &Option<Redaction>| {
        redaction.as_ref().is_some_and(|redaction| redaction.arguments.is_none())
    };
    if redactions.iter().all(is_untouched) {
        return;
    }
    let mut redactions = redactions.into_iter();
    let mut not_kept = Vec::new();
    let mut kept = 0_u32;
    let message = Arc::make_mut(message);
    message.parts.retain_mut(|part| {
        let call = match part {
            Part::ToolCall(call) if !call.provider_executed => call,
            Part::ApprovalRequest(request) => &mut request.call,
            _ => return true,
        };
        let Some(redaction) = redactions.next().flatten() else { return false };
        if let Some(arguments) = redaction.arguments {
            if call.arguments != arguments {
                not_kept.push(Value::from(kept));
            }
            call.arguments = arguments;
            call.native = None;
        }
        kept += 1;
        true
    });
    if !not_kept.is_empty() {
        message.metadata.insert(ARGUMENTS_NOT_KEPT.to_owned(), Value::Array(not_kept));
    }
}

/// The places of the calls in a stored message whose arguments are not those the model gave.
pub(super) fn calls_without_arguments(message: &Message) -> impl Iterator<Item = usize> {
    let places = message.metadata.get(ARGUMENTS_NOT_KEPT).and_then(Value::as_array);
    let places = places.map(Vec::as_slice).unwrap_or_default();
    places.iter().filter_map(|place| usize::try_from(place.as_u64()?).ok())
}

/// Leaves results out (`None`), or puts others in their place.
fn redact_results(message: &mut Arc<Message>, kept: Vec<Option<Option<ToolResult>>>) {
    if kept.iter().all(|kept| matches!(kept, Some(None))) {
        return;
    }
    let mut kept = kept.into_iter();
    Arc::make_mut(message).parts.retain_mut(|part| {
        let Part::ToolResult(result) = part else { return true };
        match kept.next().flatten() {
            None => false,
            Some(changed) => {
                if let Some(changed) = changed {
                    *result = changed;
                }
                true
            }
        }
    });
}
