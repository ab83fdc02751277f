//! Summaries that replace the beginning of a conversation in requests to the model.

use std::{sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::{Head, UsageSum, author::milliseconds};
use crate::{MessageId, RunId};

/// A text that the model receives in place of the messages of a conversation up to a sequence
/// number. The messages stay stored.
///
/// A summary is valid as long as the messages that it covers are unchanged. The summary with the
/// largest [`covers_to`](Self::covers_to) is *in force*: [`Head::summary`] names it. A later
/// summary covers the messages of an earlier one too.
///
/// This type is unrelated to [`ConversationSummary`](super::ConversationSummary), which is an entry
/// of the directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct HistorySummary {
    /// A random number, chosen by the creator of this value. Adding a summary whose id is already
    /// stored changes nothing, so that an addition whose outcome is unknown can be repeated.
    pub id: u64,
    /// The sequence number of the last message that the summary covers.
    pub covers_to: u64,
    /// The id of the last message that the summary covers.
    pub last: MessageId,
    /// The text of the summary.
    pub text: Arc<str>,
    /// The name of the model that wrote the text; `None` if it is unknown.
    pub made_by: Option<Arc<str>>,
    /// The time at which the text was written. Stores store this time to the millisecond.
    #[serde(with = "milliseconds::required")]
    pub at: SystemTime,
    /// The usage of the service calls that wrote the text. The directory does not count this usage
    /// by itself: the run that made the summary reports it.
    pub usage: UsageSum,
    /// Whether an encrypting wrapper has sealed the text, as
    /// [`Write::sealed`](super::author::Write::sealed) marks a write. This mark is not stored.
    #[serde(skip)]
    pub is_sealed: bool,
}

/// The id and the range of the summary that is in force, as a [head](Head) contains them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SummaryInForce {
    /// The [id](HistorySummary::id) of the summary.
    pub id: u64,
    /// The sequence number of the last message that the summary covers.
    pub covers_to: u64,
}

/// The outcome of [adding a summary](super::Summaries::add_summary).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum AddedSummary {
    /// The summary is stored. The summary is in force unless a later summary has been added since.
    Stored,
    /// Nothing changed: the last message that the summary covers is not a visible message of the
    /// conversation, or the message at this position is another one.
    NoSuchMessage,
    /// Nothing changed: messages were rewritten after the creator of the summary had read them.
    Rewritten,
    /// Nothing changed: the summary in force covers the same messages or more.
    Superseded,
}

impl HistorySummary {
    /// Creates a summary of the messages up to the one with the sequence number `covers_to` and the
    /// id `last`. The summary has a new random id, the current time and no usage.
    pub fn new(covers_to: u64, last: MessageId, text: impl Into<Arc<str>>) -> Self {
        Self {
            id: RunId::new().random_half().max(1),
            covers_to,
            last,
            text: text.into(),
            made_by: None,
            at: SystemTime::now(),
            usage: UsageSum::default(),
            is_sealed: false,
        }
    }

    /// Sets the name of the model that wrote the text.
    #[must_use]
    pub fn with_made_by(mut self, model: impl Into<Option<Arc<str>>>) -> Self {
        self.made_by = model.into();
        self
    }

    /// Sets the time at which the text was written.
    #[must_use]
    pub fn with_time(mut self, at: SystemTime) -> Self {
        self.at = at;
        self
    }

    /// Sets the usage of the service calls that wrote the text.
    #[must_use]
    pub fn with_usage(mut self, usage: UsageSum) -> Self {
        self.usage = usage;
        self
    }

    /// Returns the id and the range of the summary.
    pub fn in_force(&self) -> SummaryInForce {
        SummaryInForce { id: self.id, covers_to: self.covers_to }
    }

    /// Decides whether a store adds this summary to a conversation with this head. The store calls
    /// this method only if no summary with this id is stored. `message` is the id of the message at
    /// [`covers_to`](Self::covers_to), if that message exists. If several reasons prevent the
    /// addition, the outcome is the first of them in the order of [`AddedSummary`].
    ///
    /// A store that decides in its database, and therefore cannot call this method, follows the
    /// same rules.
    ///
    /// ```
    /// use tower_chat_core::{
    ///     MessageId, RunId,
    ///     store::{AddedSummary, Head, HistorySummary, Revision},
    /// };
    /// let last = MessageId { run: RunId::new(), index: 1 };
    /// let summary = HistorySummary::new(2, last, "Alice looks for a coat.");
    /// let head = Head::new(Revision { incarnation: 7, sequence: 4 });
    /// assert_eq!(summary.decide(&head, 0, Some(last)), AddedSummary::Stored);
    /// let rewritten = head.clone().with_rewrites(1);
    /// assert_eq!(summary.decide(&rewritten, 0, Some(last)), AddedSummary::Rewritten);
    /// let covered = head.with_summary(Some(summary.in_force()));
    /// assert_eq!(summary.decide(&covered, 0, Some(last)), AddedSummary::Superseded);
    /// ```
    pub fn decide(&self, head: &Head, rewrites: u64, message: Option<MessageId>) -> AddedSummary {
        let visible = head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible);
        let is_visible = head.pruned < self.covers_to && self.covers_to <= visible;
        if !is_visible || message != Some(self.last) {
            AddedSummary::NoSuchMessage
        } else if head.rewrites != rewrites {
            AddedSummary::Rewritten
        } else if head.summary.is_some_and(|summary| summary.covers_to >= self.covers_to) {
            AddedSummary::Superseded
        } else {
            AddedSummary::Stored
        }
    }
}

impl SummaryInForce {
    /// Creates the id and the range of a summary.
    pub fn new(id: u64, covers_to: u64) -> Self {
        Self { id, covers_to }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Lease, LeaseEnd, OpenRun, Revision};

    fn message(index: u32) -> MessageId {
        MessageId { run: RunId::from_bytes([1; 16]), index }
    }

    #[test]
    fn a_summary_is_added_to_the_messages_that_it_covers() {
        let at_5 = Head::new(Revision { incarnation: 7, sequence: 5 });
        let lease = Lease {
            attempt: 1,
            holder: 1,
            renewed_at: SystemTime::UNIX_EPOCH,
            until: LeaseEnd::NotHeld,
        };
        let open = OpenRun::new(RunId::from_bytes([2; 16]), lease, 2);
        let in_force = |covers_to| Some(SummaryInForce::new(9, covers_to));
        let last = Some(message(2));
        for (head, rewrites, found, expected) in [
            (at_5.clone(), 0, last, AddedSummary::Stored),
            (at_5.clone(), 0, None, AddedSummary::NoSuchMessage),
            (at_5.clone(), 0, Some(message(3)), AddedSummary::NoSuchMessage),
            (at_5.clone().with_pruned(2), 0, last, AddedSummary::Stored),
            (at_5.clone().with_pruned(3), 0, last, AddedSummary::NoSuchMessage),
            (at_5.clone().with_open_run(Some(open)), 0, last, AddedSummary::NoSuchMessage),
            (Head::new(Revision::ABSENT), 0, last, AddedSummary::NoSuchMessage),
            (at_5.clone().with_rewrites(1), 1, last, AddedSummary::Stored),
            (at_5.clone().with_rewrites(2), 1, last, AddedSummary::Rewritten),
            (at_5.clone().with_summary(in_force(2)), 0, last, AddedSummary::Stored),
            (at_5.clone().with_summary(in_force(3)), 0, last, AddedSummary::Superseded),
            (at_5.with_summary(in_force(4)), 0, last, AddedSummary::Superseded),
        ] {
            let summary = HistorySummary::new(3, message(2), "short");
            assert_eq!(summary.decide(&head, rewrites, found), expected, "{head:?}");
        }
    }

    #[test]
    fn a_summary_comes_back_from_its_json() {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_750_000_000_123);
        let summary = HistorySummary::new(3, message(2), "short\0")
            .with_made_by(Some("gpt-5-mini".into()))
            .with_time(at)
            .with_usage(UsageSum::of_calls(1, 0).with_cost_nanos(5));
        let json = serde_json::to_string(&summary).unwrap();
        assert_eq!(serde_json::from_str::<HistorySummary>(&json).unwrap(), summary);
    }
}
