//! Handles results at the end of a run that no service call has sent.

use std::sync::Arc;

use tower_chat_core::{Message, Part, Role};

use super::{added_messages::AddedMessages, call_records::CallRecords};

/// Removes and returns the messages with results at the end of `messages`, if calls of this run
/// precede them. No service call has sent these results.
///
/// Results of approved calls of earlier runs are not removed, because the calls would otherwise
/// wait for approval again.
pub(super) fn take_trailing_results(messages: &mut Vec<Arc<Message>>) -> Vec<Arc<Message>> {
    let trailing = messages.iter().rev().take_while(|message| is_results(message)).count();
    let first = messages.len() - trailing;
    let is_answer = |message: &&Arc<Message>| message.role == Role::Assistant;
    let mut answer = messages.get(..first).unwrap_or_default().iter().rev().take_while(is_answer);
    if answer.any(|message| message.calls().next().is_some()) {
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
