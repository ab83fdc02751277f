//! Step 3 of the [replay](super): replaces the oldest messages by a summary. The store may contain
//! several summaries of a conversation. The last one is in force.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;
use tower_chat_core::{
    ConversationKey, Message, MessageId, Messages, Part, Role, ToolCall,
    store::{History, HistoryStore, HistorySummary, StoreError},
};

use super::broken_links;
use crate::transcript::is_system;

/// The metadata key in a message that contains a summary. The value is the id of the summary.
const SUMMARY: &str = "history_summary";

/// The beginning of each message that contains a summary.
const HEADING: &str = "[Summary of the earlier conversation, whose messages are not sent again:]";

/// The summary in force of a history, as a step of the replay.
///
/// The step replaces the messages that the summary covers by one message of the user, which
/// contains the text of the summary. System and developer messages at the beginning of the
/// conversation are still sent. If a later message contains the result of a covered call, the call
/// is sent with its result, without the other parts of its message and without the id by which
/// OpenAI Responses links the call with them.
#[derive(Debug, Clone)]
pub struct ReplaySummary {
    summary: HistorySummary,
    message: Arc<Message>,
    covered: Covered,
}

impl ReplaySummary {
    /// Creates the step for a summary of a history. Returns `None` if the summary does not belong to
    /// the history: the last covered message is missing, or is another message.
    pub fn of(history: &History, summary: HistorySummary) -> Option<Self> {
        let covered = summary.covers_to.saturating_sub(history.skipped());
        let covered = usize::try_from(covered).ok()?;
        if let Some(last) = covered.checked_sub(1)
            && history.messages.get(last)?.id != Some(summary.last)
        {
            return None;
        }
        let covered = Covered::of(&history.messages, covered);
        let mut message = Message::user(format!("{HEADING}\n\n{}", summary.text));
        message.metadata.insert(SUMMARY.to_owned(), Value::from(summary.id));
        Some(Self { summary, message: Arc::new(message), covered })
    }

    /// Reads the summary in force of a history that was loaded from this store. Returns `None` if
    /// there is none.
    ///
    /// # Errors
    ///
    /// Returns an error if the store cannot be read.
    pub async fn in_force(
        store: &(impl HistoryStore + ?Sized),
        key: &ConversationKey,
        history: &History,
    ) -> Result<Option<Self>, StoreError> {
        let (Some(in_force), Some(summaries)) = (history.head.summary, store.summaries()) else {
            return Ok(None);
        };
        let summary = match summaries.history_summary(key, in_force.id).await? {
            Some(summary) => Some(summary),
            // The summary was removed after the history was loaded.
            None => summaries.history_summaries(key).await?.pop(),
        };
        Ok(summary.and_then(|summary| Self::of(history, summary)))
    }

    /// Returns the summary.
    pub fn summary(&self) -> &HistorySummary {
        &self.summary
    }

    /// Returns the message that the model receives in place of the covered messages.
    pub fn message(&self) -> &Arc<Message> {
        &self.message
    }

    /// Returns whether the summary covers a stored message.
    pub(super) fn covers(&self, message: &Message) -> bool {
        self.covered.contains(message)
    }

    /// Returns whether a message contains this summary.
    fn is_message(&self, message: &Message) -> bool {
        message.metadata.get(SUMMARY).and_then(Value::as_u64) == Some(self.summary.id)
    }

    /// Returns the output of the step, and the number of messages up to and including the message
    /// of the summary.
    pub(super) fn apply(&self, messages: &Messages) -> (Messages, usize) {
        let is_head = |message: &&Arc<Message>| is_system(message);
        let head = messages.iter().take_while(is_head).count();
        if messages.get(head).is_some_and(|message| self.is_message(message)) {
            return (messages.clone(), head + 1);
        }
        let mut replaced = messages.take(head);
        replaced.push(self.message.clone());
        replaced.append(&self.covered.split(&messages.skip(head)).1);
        (replaced, head + 1)
    }
}

/// The messages at the beginning of a history that a summary covers, represented by the ids of the
/// messages after them. These ids also occur in the output of the earlier replay steps.
#[derive(Debug, Clone)]
pub(crate) struct Covered {
    later: HashSet<MessageId>,
}

impl Covered {
    pub(crate) fn of(history: &Messages, covered: usize) -> Self {
        Self { later: history.iter_from(covered).filter_map(|message| message.id).collect() }
    }

    fn contains(&self, message: &Message) -> bool {
        message.id.is_some_and(|id| !self.later.contains(&id))
    }

    fn is_later(&self, message: &Message) -> bool {
        message.id.is_some_and(|id| self.later.contains(&id))
    }

    /// Splits `messages`, the output of the earlier replay steps for the history, into the covered
    /// ones and the others. A covered call whose result is not covered is part of the others. It
    /// loses the id by which OpenAI Responses links it with other parts of its message.
    ///
    /// The earlier steps move messages only within a turn, or to the result that answers their
    /// call. The messages that they create have no id, and are covered if they precede the first
    /// message that is not covered.
    pub(crate) fn split(&self, messages: &Messages) -> (Messages, Messages) {
        let is_result = |message: &&Arc<Message>| message.role == Role::Tool;
        let is_of_run =
            |message: &&Arc<Message>| matches!(message.role, Role::Assistant | Role::Tool);
        let mut end = self.end_in(messages);
        end += messages.iter_from(end).take_while(is_result).count();
        // A result that is not covered directly follows the message with its call, so only the last
        // answers and results are searched.
        let begin = end - messages.take(end).iter().rev().take_while(is_of_run).count();
        let (mut covered, mut others) = (messages.take(begin), Messages::new());
        let mut searched = messages.iter_from(begin).take(end - begin).peekable();
        while let Some(asking) = searched.next() {
            let results = std::iter::from_fn(|| searched.next_if(is_result));
            let (late, own): (Vec<_>, Vec<_>) = results.partition(|result| self.is_later(result));
            let mut rest = asking.clone();
            for results in late {
                others.extend(take_calls(&mut rest, results));
                others.push(results.clone());
            }
            if !rest.parts.is_empty() {
                covered.push(rest);
            }
            covered.extend(own.into_iter().cloned());
        }
        others.append(&messages.skip(end));
        (covered, others)
    }

    /// Returns the number of messages before the first one that is not covered.
    fn end_in(&self, messages: &Messages) -> usize {
        let is_covered = |message: &Arc<Message>| self.contains(message);
        let after_last = messages.iter().rposition(is_covered).map_or(0, |last| last + 1);
        let later = messages.iter_from(after_last).position(|message| self.is_later(message));
        later.map_or(messages.len(), |later| after_last + later)
    }
}

/// Removes the calls that these results answer from their message, and returns a message with the
/// calls. `None` if there are none.
fn take_calls(asking: &mut Arc<Message>, results: &Message) -> Option<Message> {
    let ids: HashSet<&str> = results.results().filter_map(|it| it.call_id.as_deref()).collect();
    let is_answered = |call: &ToolCall| call.id.as_deref().is_some_and(|id| ids.contains(id));
    let answered = asking.asked_calls().filter(|call| is_answered(call)).cloned();
    let mut answered: Vec<ToolCall> = answered.collect();
    answered.iter_mut().for_each(broken_links::unlink_call);
    let is_kept = |part: &Part| !matches!(part, Part::ToolCall(call) if is_answered(call));
    broken_links::retain(&mut Arc::make_mut(asking).parts, is_kept);
    (!answered.is_empty()).then(|| Message::tool_calls(answered))
}

#[cfg(test)]
mod tests;
