//! Reads the recorded end of a run, marks the end of a run, and handles results at the end that no
//! service call has sent.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, EndedBy, Message, Part, Role, ToolResult, ToolStatus,
    store::{
        History, HistoryStore, StoreError,
        author::{RecordedResult, ToolRecord},
    },
};

use super::{
    added_messages::AddedMessages,
    call_records::CallRecords,
    complete::{is_complete, is_incomplete_response},
    conversation::LoadedConversation,
    effect::RunWrite,
    last_answer::response_at_end,
    log::RunLog,
    records::Records,
};
use crate::{
    next_step::{is_paused, pending_calls},
    pending_results::results_of_ended_run,
    replay::{end_marker, mark_ended},
    tool::CallOfRun,
};

/// Returns the recorded results of the calls without results at the end of a run. `None` unless a
/// tool has ended the run or the calls were returned to the caller.
pub(super) async fn recorded_end(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    history: &History,
    added: &[Arc<Message>],
) -> Result<Option<Vec<ToolResult>>, StoreError> {
    let calls: Vec<CallOfRun> =
        pending_calls(response_at_end(added)).iter().filter_map(|call| call.position()).collect();
    results_of_ended_run(store, key, history, &calls).await
}

/// Returns whether only a row contains the result that has ended the run.
fn ends_in_record(records: &[ToolRecord]) -> bool {
    records.iter().any(|row| match &row.result {
        RecordedResult::Apart(result) => result.ends_run,
        RecordedResult::None | RecordedResult::InMessage(_) => false,
    })
}

impl RunLog {
    /// Returns whether the end of the run must still be marked: the last answer has calls without
    /// results or is paused, and no submitted write contains a mark.
    pub(super) fn has_unmarked_end(&self) -> bool {
        let response = response_at_end(self.conversation.added.as_slice());
        !self.is_end_stored && (is_paused(response) || !pending_calls(response).is_empty())
    }

    /// Records that one of these rows contains the result that has ended the run. Later writes,
    /// which may contain results of concurrent calls, then do not mark the end again.
    pub(super) fn note_end(&mut self, records: &[ToolRecord]) {
        self.is_end_stored |= ends_in_record(records);
    }

    /// Marks the end of a run in its final write, unless the last answer is a final answer.
    /// `stored` is the stored form of `messages`. Returns an additional message with the mark if no
    /// message and no row of the write can contain it.
    pub(super) fn mark_end(
        &mut self,
        messages: &[Arc<Message>],
        write: &RunWrite,
        stored: &mut [Arc<Message>],
        records: &mut Records,
    ) -> Option<Message> {
        let was_stored = std::mem::replace(&mut self.is_end_stored, true);
        let written = response_at_end(messages);
        if !written.is_empty() {
            let before = match written.len() == messages.len() {
                true => self.conversation.added.as_slice(),
                false => &[],
            };
            let all = [before, written].concat();
            let is_partial_response = written
                .last()
                .is_some_and(|last| last.id.is_some_and(|id| is_incomplete_response(last, id.run)));
            let is_open = is_paused(written) || !pending_calls(response_at_end(&all)).is_empty();
            if is_partial_response || is_open {
                let first = messages.len() - written.len();
                let stored = stored.get_mut(first..).unwrap_or_default();
                stored.iter_mut().for_each(mark_ended);
                if !ends_in_record(records.rows()) {
                    self.call_records.return_calls(&self.conversation, written, records);
                }
            }
            return None;
        }
        let all: Vec<_> =
            self.conversation.added.as_slice().iter().chain(&*stored).cloned().collect();
        if was_stored || is_complete(&all) {
            return None;
        }
        let is_returned =
            self.call_records.return_calls(&self.conversation, &write.last_response, records);
        // A run has ended if it has an answer or results of approved calls, or was stopped. Any
        // other run continues if its request is sent again.
        let is_stopped = write.ended_by == Some(EndedBy::Stop) && !all.is_empty();
        let has_ended = is_stopped
            || all.iter().any(|message| matches!(message.role, Role::Assistant | Role::Tool));
        (has_ended && !is_returned).then(end_marker)
    }
}

impl CallRecords {
    /// Adds rows that record the calls of `response` without results as returned to the caller.
    /// Returns whether one of them is stored.
    fn return_calls(
        &self,
        conversation: &LoadedConversation,
        response: &[Arc<Message>],
        records: &mut Records,
    ) -> bool {
        let mut is_returned = false;
        for pending in pending_calls(response) {
            let Some(stored) = pending
                .position()
                .and_then(|position| self.stored_position(conversation, position))
            else {
                continue;
            };
            is_returned = true;
            let mut row =
                ToolRecord::pending(stored.call, stored.round_index, pending.id(), pending.name());
            row.status = ToolStatus::Returned;
            records.insert(row);
        }
        is_returned
    }
}

/// Removes and returns the messages with results at the end of `messages`, if calls of this run
/// precede them. No service call has sent these results.
///
/// Results of approved calls of earlier runs are not removed, because the calls would otherwise
/// wait for approval again.
pub(super) fn take_trailing_results(messages: &mut Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let trailing = messages.iter().rev().take_while(|message| is_results(message)).count();
    let first = messages.len() - trailing;
    let answer = response_at_end(messages.get(..first).unwrap_or_default());
    if answer.iter().any(|message| message.calls().next().is_some()) {
        messages.split_off(first)
    } else {
        Vec::new()
    }
}

/// Marks results as the end of their run. A tool loop of another crate does not set this mark.
pub(super) fn mark_results(messages: &mut [Arc<Message>]) {
    for message in messages {
        if message.results().any(|result| result.ends_run) {
            continue;
        }
        for part in &mut Arc::make_mut(message).parts {
            if let Part::ToolResult(result) = part {
                result.ends_run = true;
            }
        }
    }
}

fn is_results(message: &Arc<Message>) -> bool {
    message.role == Role::Tool
}

impl AddedMessages {
    /// Returns the messages with results at the end of an answer, which no service call has sent.
    pub(super) fn unsent_trailing_results(&self, answer: &[Arc<Message>]) -> Vec<Arc<Message>> {
        let is_unsent = |message: &&Arc<Message>| {
            message.id.is_some_and(|id| id.run == self.run) && !self.has_assigned_id(message)
        };
        let trailing = answer.iter().rev().take_while(|message| is_results(message));
        let mut results: Vec<_> = trailing.filter(is_unsent).cloned().collect();
        results.reverse();
        results
    }
}

impl CallRecords {
    /// Marks the results at the end of these messages as the end of the run, if they are results of
    /// the tool loop's tools.
    pub(super) fn mark_trailing_results(&self, messages: &mut [Arc<Message>]) {
        let is_of_tools =
            |message: &Arc<Message>| message.id.is_some_and(|id| self.reports.contains_key(&id));
        let last = messages.iter().rev();
        let count = last.take_while(|it| is_results(it) && is_of_tools(it)).count();
        let first = messages.len() - count;
        mark_results(messages.get_mut(first..).unwrap_or_default());
    }
}
