//! Step 3 of the [replay](super): replaces the oldest messages by a summary. The store may contain
//! several summaries of a conversation. The last one is in force.

use std::{collections::HashSet, sync::Arc};

use serde_json::Value;
use tower_chat_core::{
    ConversationKey, Message, MessageId, Messages, Part, Role,
    store::{History, HistoryStore, HistorySummary, StoreError},
};

use super::broken_links;

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

    /// Returns whether the summary covers all messages of the history.
    pub(super) fn covers_all(&self) -> bool {
        self.covered.is_all()
    }

    /// Returns whether a message contains this summary.
    fn is_message(&self, message: &Message) -> bool {
        message.metadata.get(SUMMARY).and_then(Value::as_u64) == Some(self.summary.id)
    }

    /// Returns the output of the step, and the number of messages up to and including the message
    /// of the summary.
    pub(super) fn apply(&self, messages: &Messages) -> (Messages, usize) {
        let is_head =
            |message: &&Arc<Message>| matches!(message.role, Role::System | Role::Developer);
        let head = messages.iter().take_while(is_head).count();
        if messages.get(head).is_some_and(|message| self.is_message(message)) {
            return (messages.clone(), head + 1);
        }
        let mut replaced = messages.take(head);
        replaced.push(self.message.clone());
        let mut end = self.covered.end_in(messages).max(head);
        if let Some(covered) = messages.get(end).filter(|first| self.covered.contains(first)) {
            // A later result answers a call of this message.
            let calls = covered.parts.iter().filter_map(|part| match part {
                Part::ToolCall(call) => Some(call.clone()),
                _ => None,
            });
            let unlinked = calls.map(|mut call| {
                broken_links::unlink_call(&mut call);
                Part::ToolCall(call)
            });
            replaced.push(covered.with_parts(unlinked.collect()));
            end += 1;
        }
        replaced.append(&messages.skip(end));
        (replaced, head + 1)
    }
}

/// The messages at the beginning of a history that a summary covers, represented by the ids of the
/// messages after them. These ids also occur in the output of the earlier replay steps.
#[derive(Debug, Clone)]
pub(crate) struct Covered {
    next: Option<MessageId>,
    later: HashSet<MessageId>,
}

impl Covered {
    pub(crate) fn of(history: &Messages, covered: usize) -> Self {
        let next = history.get(covered).and_then(|message| message.id);
        let later = history.iter_from(covered).filter_map(|message| message.id).collect();
        Self { next, later }
    }

    fn is_all(&self) -> bool {
        self.next.is_none() && self.later.is_empty()
    }

    fn contains(&self, message: &Message) -> bool {
        message.id.is_some_and(|id| !self.later.contains(&id))
    }

    /// Returns the number of messages at the beginning of `messages` that are covered. `messages` is
    /// the output of the earlier replay steps for the history.
    ///
    /// The earlier steps move messages only within a turn, or to the result that answers their
    /// call. The messages that they create have no id, and are covered if they precede the first
    /// message that is not covered.
    pub(crate) fn end_in(&self, messages: &Messages) -> usize {
        if self.is_all() {
            return messages.len();
        }
        let is_covered = |message: &Arc<Message>| self.contains(message);
        let after_last = messages.iter().rposition(is_covered).map_or(0, |last| last + 1);
        let mut rest = messages.iter_from(after_last);
        let next = rest.position(|message| message.id.is_some() && message.id == self.next);
        let mut end = after_last + next.unwrap_or(0);
        // A result must not be sent without its call, which directly precedes it.
        while messages.get(end).is_some_and(|message| message.role == Role::Tool) && end > 0 {
            end -= 1;
        }
        end
    }
}

#[cfg(test)]
mod tests;
