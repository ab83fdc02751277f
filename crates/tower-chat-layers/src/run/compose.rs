//! Builds the stored form of a write's messages, and the rows that the write adds to the record of
//! tool calls for the calls and results in these messages.

use std::{borrow::Cow, sync::Arc};

use serde_json::Value;
use tower_chat_core::{
    CallPosition, Message, MessageId, Part, ToolResult, ToolStatus,
    pairing::{AnswerIds, AnswerKey},
    store::{
        SequencePosition,
        author::{RecordedResult, ToolRecord},
    },
};

use super::{
    call_records::{Asking, CallRecords, StoredPosition, asked_call},
    conversation::LoadedConversation,
    last_answer::response_at_end,
    prior_call_results::{mark_statuses, must_be_marked},
    records::Records,
    redact::{mark_without_calls, redact_calls, redact_results},
    retained::{WITHHELD, withheld},
};
use crate::{
    replay::{AskedCall, Citations, Truncation, mark_not_kept},
    tool::{Redaction, Retained, ToolReport},
};

pub(super) struct Composed {
    pub(super) messages: Vec<Arc<Message>>,
    pub(super) records: Records,
}

impl CallRecords {
    /// Builds the contents of a write: first applies the [`persist`](crate::Tool::persist) hooks of
    /// the tools, then compacts citations, then truncates results.
    ///
    /// `citations` is `None` unless the messages are a whole run. The messages in `left_out`, at
    /// the end of the run, are stored only as results in the record.
    pub(super) fn compose(
        &mut self,
        conversation: &LoadedConversation,
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
        let all: Vec<Arc<Message>> = messages.iter().chain(left_out).cloned().collect();
        if !all.iter().any(has_tools) {
            return Composed { messages: messages.to_vec(), records: Records::default() };
        }
        self.hooks.refresh_from_source();
        let mut records = Records::default();
        let added = last_answer(conversation.added.as_slice());
        let mut ids = AnswerIds::default();
        added.iter().rev().for_each(|message| drop(ids.next(message)));
        let answered = match all.iter().any(|message| message.results().next().is_some()) {
            true => conversation.replay.clone().push_answering(&all),
            false => Vec::new(),
        };
        let mut stored = Vec::with_capacity(messages.len());
        let mut last_forgotten = None;
        for (position, message) in all.iter().enumerate() {
            let sequence = (position < messages.len())
                .then(|| conversation.revision.sequence + 1 + position as u64);
            let before = || {
                let of_write = all.get(..position).unwrap_or_default().iter().rev();
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
                let asked = answered.get(position).map_or(&[][..], Vec::as_slice);
                self.store_results(conversation, &mut retained, asked, sequence, &mut records);
            }
            if sequence.is_some() {
                stored.push(retained);
            }
        }
        if let Some(position) = last_forgotten {
            mark_without_calls(&mut stored, position);
        }
        shorten(&mut stored, &mut records, citations, truncation);
        Composed { messages: stored, records }
    }

    /// Adds the rows of a message's calls, and changes the calls as the hooks have decided. Returns
    /// whether all calls are stored.
    fn store_calls(
        &mut self,
        message: &mut Arc<Message>,
        (id, sequence): (MessageId, u64),
        (ids, begins_round): (Vec<Cow<'_, str>>, bool),
        records: &mut Records,
    ) -> bool {
        let round_index = self.round_index(begins_round);
        let mut positions = Vec::new();
        let mut changes = Vec::new();
        let mut hooked = Vec::new();
        let mut next = 0;
        self.hooks.pin_calls(message);
        let parts = message.parts.iter().filter_map(asked_call);
        for (index, ((call, is_waiting), call_id)) in parts.zip(ids).enumerate() {
            let decided = self.pending.remove(&(id, index));
            let retained = decided.unwrap_or_else(|| self.retained_call((id, index), call));
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
            records.insert(row);
            next += 1;
            let arguments = redaction.and_then(|redaction| redaction.arguments);
            changes.extend(arguments.map(|arguments| (index, Some(arguments))));
        }
        let keeps_all = positions.iter().all(Option::is_some);
        self.asking.insert(id, Asking { sequence, round_index, stored: positions });
        redact_calls(message, changes);
        if !hooked.is_empty() || !keeps_all {
            self.hooks.mark_hooked(message, hooked);
        }
        keeps_all
    }

    /// Adds the rows of a message's results, and changes the results as the hooks have decided.
    /// `asked` contains the call that each result answers. `sequence` is `None` if the message is
    /// not stored.
    fn store_results(
        &mut self,
        conversation: &LoadedConversation,
        message: &mut Arc<Message>,
        asked: &[Option<AskedCall>],
        sequence: Option<u64>,
        records: &mut Records,
    ) {
        let reports = message.id.and_then(|id| self.reports.remove(&id));
        let mut reports = reports.unwrap_or_default().into_iter();
        let mut changes = Vec::new();
        let mut not_kept = Vec::new();
        let mut statuses = Vec::new();
        let mut next = 0;
        for (index, (result, asked)) in message.results().zip(asked).enumerate() {
            let report = reports.next();
            let Some(asked) = asked else {
                if self.hooks.may_have_removed_calls(&conversation.history.messages) {
                    changes.push((index, Some(withheld(result, WITHHELD))));
                }
                next += 1;
                continue;
            };
            let of_run = asked.call_position;
            let retained =
                self.retained_outcome(conversation, of_run, &asked.call, result, report.as_ref());
            let Some(position) = self.stored_position(conversation, of_run) else {
                changes.push((index, None));
                continue;
            };
            let Some(Redaction { result: mut changed, error: changed_error, .. }) = retained else {
                not_kept.extend(result.call_id.clone().map(Value::from));
                changes.push((index, None));
                continue;
            };
            let named = self.stored_name(asked, result, &position);
            if named != result.call {
                changed.get_or_insert_with(|| Box::new(result.clone())).call = named;
            }
            let report = report.unwrap_or_else(|| ToolReport::of_result(result));
            let mut row = position.row(asked, report, changed_error);
            row.result = match sequence {
                Some(sequence) => {
                    RecordedResult::InMessage(SequencePosition { sequence, index: next })
                }
                None => {
                    let stored = changed.clone();
                    RecordedResult::Apart(stored.unwrap_or_else(|| Box::new(result.clone())))
                }
            };
            if message.id.is_some_and(|id| id.run != of_run.0.run) && must_be_marked(row.status) {
                statuses.push((next, row.status));
            }
            records.insert(row);
            changes.extend(changed.map(|changed| (index, Some(changed))));
            next += 1;
        }
        redact_results(message, changes);
        mark_not_kept(message, not_kept);
        mark_statuses(message, statuses);
    }

    /// Returns the position of the call that the stored result must contain, because call ids and
    /// the order do not identify the call. This is the case if some calls of the message are not
    /// stored.
    fn stored_name(
        &self,
        asked: &AskedCall,
        result: &ToolResult,
        stored: &StoredPosition,
    ) -> Option<CallPosition> {
        let (message, _) = asked.call_position;
        let must_be_named =
            asked.must_be_named || result.call.is_some() || self.lacks_calls_of(message);
        must_be_named.then_some(CallPosition { message, index: stored.call.index })
    }
}

impl StoredPosition {
    /// Returns the row of a call without the result.
    fn row(
        &self,
        asked: &AskedCall,
        report: ToolReport,
        error: Option<Option<String>>,
    ) -> ToolRecord {
        let call_id = asked.call.id.clone().unwrap_or_default();
        let mut row = ToolRecord::pending(self.call, self.round_index, call_id, &asked.call.name);
        row.error = error.unwrap_or(report.error);
        row.status = report.status;
        row.started_at = report.started_at;
        row.finished_at = report.finished_at;
        row
    }
}

fn shorten(
    stored: &mut Vec<Arc<Message>>,
    records: &mut Records,
    citations: Option<&Citations>,
    truncation: Truncation,
) {
    if let Some(citations) = citations {
        let compacted = citations.apply(&stored.iter().cloned().collect());
        *stored = compacted.iter().cloned().collect();
    }
    stored.iter_mut().for_each(|message| truncation.apply_within(message));
    for record in records.rows_mut() {
        if let RecordedResult::Apart(result) = &mut record.result {
            truncation.apply(result);
        }
    }
}

/// Returns the last message, or all messages of the answer at the end, in reverse order.
fn last_answer(messages: &[Arc<Message>]) -> Vec<Arc<Message>> {
    let of_answer = response_at_end(messages).len();
    messages.iter().rev().take(of_answer.max(1)).cloned().collect()
}

/// Returns whether an earlier message of the same answer contains a call. `before` is in reverse
/// order.
fn continues_round<'m>(before: impl Iterator<Item = &'m Message>, message: &Message) -> bool {
    before
        .take_while(|earlier| AnswerKey::is_shared(earlier, message))
        .any(|earlier| earlier.asked_calls().next().is_some())
}
