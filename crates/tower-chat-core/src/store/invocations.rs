//! Queries of the record of tool calls.

use std::{
    collections::BTreeMap,
    ops::Range,
    sync::Arc,
    time::{Duration, SystemTime},
};

use super::{SequencePosition, UtcDay, author::ToolRecord};
use crate::{ConversationKey, Message, ToolInvocation, ToolStatus};

/// A query that selects the tool calls of one scope that match all of its criteria.
///
/// ```
/// use tower_chat_core::{ToolStatus, store::InvocationQuery};
/// let failed = InvocationQuery::in_scope("alice").of_tool("weather").with_status(ToolStatus::Error);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct InvocationQuery {
    /// The scope.
    pub scope: String,
    /// Selects calls of this conversation.
    pub conversation: Option<String>,
    /// Selects calls in the messages with these sequence numbers, from 1. An empty list selects
    /// nothing, and the store returns without reading.
    pub sequences: Option<Vec<u64>>,
    /// Selects calls of this tool.
    pub tool: Option<String>,
    /// Selects calls with this status.
    pub status: Option<ToolStatus>,
    /// Selects calls that started in this range of time; calls that never started do not match.
    pub started: Option<Range<SystemTime>>,
    /// The maximum number of calls. If more calls match, the store returns the first ones in the
    /// order of conversation, message and index.
    pub limit: Option<usize>,
}

impl InvocationQuery {
    /// Selects all calls of a scope.
    pub fn in_scope(scope: impl Into<String>) -> Self {
        Self {
            scope: scope.into(),
            conversation: None,
            sequences: None,
            tool: None,
            status: None,
            started: None,
            limit: None,
        }
    }

    /// Selects all calls of a conversation.
    pub fn of(key: &ConversationKey) -> Self {
        Self { conversation: Some(key.id().to_owned()), ..Self::in_scope(key.scope()) }
    }

    /// Selects calls in the messages with these sequence numbers, from 1.
    #[must_use]
    pub fn in_messages(mut self, sequences: impl IntoIterator<Item = u64>) -> Self {
        self.sequences = Some(sequences.into_iter().collect());
        self
    }

    /// Selects calls of this tool.
    #[must_use]
    pub fn of_tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// Selects calls with this status.
    #[must_use]
    pub fn with_status(mut self, status: ToolStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Selects calls that started in this range of time.
    #[must_use]
    pub fn started_in(mut self, range: Range<SystemTime>) -> Self {
        self.started = Some(range);
        self
    }

    /// Sets the maximum number of calls.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Returns whether the query selects the message, tool, status and start time of a row of the
    /// record. The conversation and the limit are not checked.
    pub fn fits(&self, record: &ToolRecord) -> bool {
        let is_in = |range: &Range<SystemTime>| {
            record.started_at.is_some_and(|started| range.contains(&started))
        };
        self.sequences.as_ref().is_none_or(|those| those.contains(&record.call.sequence))
            && self.tool.as_ref().is_none_or(|tool| *tool == record.name)
            && self.status.is_none_or(|status| status == record.status)
            && self.started.as_ref().is_none_or(is_in)
    }

    /// Returns whether no call can match the query. If so, a store returns without reading.
    pub fn matches_nothing(&self) -> bool {
        self.limit == Some(0) || self.sequences.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The tool calls of one conversation that [`HistoryStore::calls`](super::HistoryStore::calls)
/// returns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallSelection {
    /// All calls of the conversation.
    All,
    /// The calls in the messages with these sequence numbers, from 1.
    InMessages(Vec<u64>),
    /// The calls with this status.
    WithStatus(ToolStatus),
}

impl CallSelection {
    /// Selects the calls in the messages with these sequence numbers, from 1.
    pub fn in_messages(sequences: impl IntoIterator<Item = u64>) -> Self {
        Self::InMessages(sequences.into_iter().collect())
    }

    /// Returns whether a row of the record is selected.
    pub fn fits(&self, record: &ToolRecord) -> bool {
        match self {
            Self::All => true,
            Self::InMessages(sequences) => sequences.contains(&record.call.sequence),
            Self::WithStatus(status) => record.status == *status,
        }
    }

    /// Returns the same selection as a query, for a store that implements queries.
    pub fn query(&self, key: &ConversationKey) -> InvocationQuery {
        let query = InvocationQuery::of(key);
        match self {
            Self::All => query,
            Self::InMessages(sequences) => query.in_messages(sequences.iter().copied()),
            Self::WithStatus(status) => query.with_status(*status),
        }
    }
}

/// The result of an [`InvocationQuery`] or of a [`CallSelection`], in the order of conversation,
/// message and index.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Invocations {
    /// The calls that could be read, with their conversations.
    pub found: Vec<(ConversationKey, ToolInvocation)>,
    /// The rows that could not be read. Unreadable rows do not hide the others.
    pub unreadable: Vec<UnreadableInvocation>,
}

impl Invocations {
    /// Resolves the rows of a conversation's record to tool calls with their content. `message`
    /// returns a message of the conversation by its sequence number.
    pub fn of_rows<'r>(
        key: &ConversationKey,
        rows: impl IntoIterator<Item = &'r ToolRecord>,
        message: impl Fn(u64) -> Option<Arc<Message>>,
    ) -> Self {
        let mut invocations = Self::default();
        for row in rows {
            invocations.push(key, row, &message);
        }
        invocations
    }

    /// Adds the call of a row, or the reason why it cannot be read.
    pub(crate) fn push(
        &mut self,
        key: &ConversationKey,
        row: &ToolRecord,
        message: impl Fn(u64) -> Option<Arc<Message>>,
    ) {
        let SequencePosition { sequence, index } = row.call;
        match row.resolve(message) {
            Ok(invocation) => self.found.push((key.clone(), invocation)),
            Err(error) => {
                let error =
                    UnreadableInvocation::new(key.clone(), sequence, index, error.to_string());
                self.unreadable.push(error);
            }
        }
    }
}

/// A row of the record that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the record of call {index} in message {sequence} of conversation {key} cannot be read: {reason}"
)]
#[non_exhaustive]
pub struct UnreadableInvocation {
    /// The conversation.
    pub key: ConversationKey,
    /// The sequence number of the message, from 1.
    pub sequence: u64,
    /// The index of the call in the message, from 0.
    pub index: u32,
    /// The reason why the row cannot be read.
    pub reason: String,
}

impl UnreadableInvocation {
    /// Creates an error for a row, with the reason.
    pub fn new(key: ConversationKey, sequence: u64, index: u32, reason: impl Into<String>) -> Self {
        Self { key, sequence, index, reason: reason.into() }
    }
}

/// The counts and times of the calls of one tool.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::{ToolStatus, store::{ToolTotals, UtcDay}};
///
/// let now = SystemTime::now();
/// let later = Some(now + Duration::from_millis(80));
/// let mut totals = ToolTotals::new("weather");
/// totals.count(ToolStatus::Ok, Some(now), later);
/// totals.count(ToolStatus::Error, Some(now), later);
/// totals.count(ToolStatus::PendingApproval, None, None);
/// assert_eq!((totals.calls, totals.errors, totals.open), (3, 1, 1));
/// assert_eq!(totals.days[&UtcDay::of(now)].calls, 2);
/// assert_eq!(totals.times.percentile(50), Some(Duration::from_millis(80)));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ToolTotals {
    /// The tool.
    pub name: String,
    /// The number of calls, with any status.
    pub calls: u64,
    /// The number of calls whose tool failed.
    pub errors: u64,
    /// The number of calls without a result.
    pub open: u64,
    /// The total time of all calls for which the record has both a start and an end.
    pub duration: Duration,
    /// The distribution of the times of all calls for which the record has both a start and an end.
    pub times: CallTimes,
    /// The counts by the day on which the calls started.
    pub days: BTreeMap<UtcDay, DayTotals>,
}

/// The counts of one tool on one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayTotals {
    /// The number of calls that started on the day, with any status.
    pub calls: u64,
    /// The number of calls whose tool failed.
    pub errors: u64,
}

impl ToolTotals {
    /// Creates totals without calls.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            calls: 0,
            errors: 0,
            open: 0,
            duration: Duration::ZERO,
            times: CallTimes::default(),
            days: BTreeMap::new(),
        }
    }

    /// Adds a call with this status to the totals. The times are `None` if the record does not have
    /// them.
    pub fn count(
        &mut self,
        status: ToolStatus,
        started_at: Option<SystemTime>,
        finished_at: Option<SystemTime>,
    ) {
        let is_error = u64::from(status == ToolStatus::Error);
        self.calls += 1;
        self.errors += is_error;
        self.open += u64::from(status.is_open());
        if let Some(started) = started_at {
            self.count_on(UtcDay::of(started), DayTotals { calls: 1, errors: is_error });
        }
        if let (Some(started), Some(finished)) = (started_at, finished_at) {
            let taken = finished.duration_since(started).unwrap_or_default();
            self.duration = self.duration.saturating_add(taken);
            self.times.add(taken, 1);
        }
    }

    /// Adds to the counts of a day in [`days`](Self::days). The other totals do not change.
    pub fn count_on(&mut self, day: UtcDay, of_day: DayTotals) {
        let totals = self.days.entry(day).or_default();
        totals.calls = totals.calls.saturating_add(of_day.calls);
        totals.errors = totals.errors.saturating_add(of_day.errors);
    }
}

/// The distribution of the times of calls. Each time is rounded down to whole milliseconds and then
/// to two significant digits. This bounds the number of different times.
///
/// ```
/// use std::time::Duration;
/// use tower_chat_core::store::CallTimes;
/// let mut times = CallTimes::default();
/// for milliseconds in 1..=2000 {
///     times.add(Duration::from_millis(milliseconds), 1);
/// }
/// assert_eq!((times.calls(), times.percentile(90)), (2000, Some(Duration::from_millis(1800))));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CallTimes(BTreeMap<u64, u64>);

impl CallTimes {
    /// Adds `calls` calls, each of which took this time.
    pub fn add(&mut self, time: Duration, calls: u64) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut step = 1;
        while milliseconds / step >= 100 {
            step *= 10;
        }
        let of_time = self.0.entry(milliseconds / step * step).or_default();
        *of_time = of_time.saturating_add(calls);
    }

    /// Returns the number of calls.
    pub fn calls(&self) -> u64 {
        self.0.values().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// Returns a percentile of the times: the smallest rounded time such that at least `percent`
    /// percent of the calls took this time or less. `None` if there are no calls.
    pub fn percentile(&self, percent: u64) -> Option<Duration> {
        let wanted = (u128::from(self.calls()) * u128::from(percent)).div_ceil(100);
        let mut counted = 0_u128;
        let mut found = self.0.iter().filter_map(|(milliseconds, calls)| {
            counted += u128::from(*calls);
            (counted >= wanted).then_some(Duration::from_millis(*milliseconds))
        });
        found.next()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(milliseconds: impl IntoIterator<Item = u64>) -> CallTimes {
        let mut times = CallTimes::default();
        milliseconds.into_iter().for_each(|it| times.add(Duration::from_millis(it), 1));
        times
    }

    #[test]
    fn percentiles_are_of_the_times_there_are() {
        let counted = times(1..=200);
        for (percent, milliseconds) in [(50, 100), (90, 180), (99, 190)] {
            assert_eq!(counted.percentile(percent), Some(Duration::from_millis(milliseconds)));
        }
        assert_eq!(times([1]).percentile(99), Some(Duration::from_millis(1)));
        assert_eq!(CallTimes::default().percentile(50), None);
    }

    #[test]
    fn times_have_two_digits_and_a_bound() {
        for (milliseconds, rounded) in [
            (0, 0),
            (99, 99),
            (100, 100),
            (109, 100),
            (12_345, 12_000),
            (u64::MAX, 18 * 10_u64.pow(18)),
        ] {
            let counted = times([milliseconds]).percentile(100);
            assert_eq!(counted, Some(Duration::from_millis(rounded)));
        }
        assert_eq!(times(0..200_000).0.len(), 100 + 3 * 90 + 10);
    }
}
