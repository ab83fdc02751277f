//! Questions to the record of tool calls.

use std::{
    collections::BTreeMap,
    ops::Range,
    time::{Duration, SystemTime},
};

use super::{UtcDay, author::ToolRecord};
use crate::{ConversationKey, ToolInvocation, ToolStatus};

/// Which tool calls are asked for: those of one scope that fit everything that is set.
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
    /// Only calls of this conversation.
    pub conversation: Option<String>,
    /// Only calls in these messages of the conversation, by their numbers from 1. An empty list
    /// asks for nothing, and is answered without looking.
    pub sequences: Option<Vec<u64>>,
    /// Only calls of this tool.
    pub tool: Option<String>,
    /// Only calls that went so.
    pub status: Option<ToolStatus>,
    /// Only calls started in this range of time; calls that were never started do not fit.
    pub started: Option<Range<SystemTime>>,
    /// At most so many, the first in order.
    pub limit: Option<usize>,
}

impl InvocationQuery {
    /// All calls of a scope.
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

    /// All calls of a conversation.
    pub fn of(key: &ConversationKey) -> Self {
        Self { conversation: Some(key.id().to_owned()), ..Self::in_scope(key.scope()) }
    }

    /// Only those in these messages, by their numbers from 1.
    #[must_use]
    pub fn in_messages(mut self, sequences: impl IntoIterator<Item = u64>) -> Self {
        self.sequences = Some(sequences.into_iter().collect());
        self
    }

    /// Only those of a tool.
    #[must_use]
    pub fn of_tool(mut self, name: impl Into<String>) -> Self {
        self.tool = Some(name.into());
        self
    }

    /// Only those that went so.
    #[must_use]
    pub fn with_status(mut self, status: ToolStatus) -> Self {
        self.status = Some(status);
        self
    }

    /// Only those started in a range of time.
    #[must_use]
    pub fn started_in(mut self, range: Range<SystemTime>) -> Self {
        self.started = Some(range);
        self
    }

    /// At most so many.
    #[must_use]
    pub fn with_limit(mut self, limit: usize) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Whether what is known of a call fits, apart from its conversation and the limit.
    pub fn fits(&self, record: &ToolRecord) -> bool {
        let is_in = |range: &Range<SystemTime>| {
            record.started_at.is_some_and(|started| range.contains(&started))
        };
        self.sequences.as_ref().is_none_or(|those| those.contains(&record.call.sequence))
            && self.tool.as_ref().is_none_or(|tool| *tool == record.name)
            && self.status.is_none_or(|status| status == record.status)
            && self.started.as_ref().is_none_or(is_in)
    }

    /// Whether nothing can fit, so that a store need not look.
    pub fn asks_for_nothing(&self) -> bool {
        self.limit == Some(0) || self.sequences.as_ref().is_some_and(Vec::is_empty)
    }
}

/// The tool calls that were asked for, in the order of conversation, message and position.
#[derive(Debug, Clone, Default, PartialEq)]
#[non_exhaustive]
pub struct Invocations {
    /// Those that could be read, with their conversations.
    pub found: Vec<(ConversationKey, ToolInvocation)>,
    /// Those that could not; the others are there all the same.
    pub unreadable: Vec<UnreadableInvocation>,
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
    /// The number of the message, from 1.
    pub sequence: u64,
    /// The call's position in it, from 0.
    pub index: u32,
    /// What is wrong with it.
    pub reason: String,
}

impl UnreadableInvocation {
    /// A row that cannot be read, and why.
    pub fn new(key: ConversationKey, sequence: u64, index: u32, reason: impl Into<String>) -> Self {
        Self { key, sequence, index, reason: reason.into() }
    }
}

/// What was counted of one tool.
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
    /// Its calls, however they went.
    pub calls: u64,
    /// Those whose tool failed.
    pub errors: u64,
    /// Those that were not answered yet.
    pub open: u64,
    /// The time the tool took, over all calls whose beginning and end are known.
    pub duration: Duration,
    /// How many of the calls took how long, if their beginning and end are known.
    pub times: CallTimes,
    /// How many of the calls were started on which day.
    pub days: BTreeMap<UtcDay, DayTotals>,
}

/// What was counted of one tool on one day.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DayTotals {
    /// The calls that were started on the day, however they went.
    pub calls: u64,
    /// Those whose tool failed.
    pub errors: u64,
}

impl ToolTotals {
    /// Nothing counted yet.
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

    /// Counts one call more.
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

    /// Counts calls that were started on a day in [`days`](Self::days), and nowhere else.
    pub fn count_on(&mut self, day: UtcDay, of_day: DayTotals) {
        let totals = self.days.entry(day).or_default();
        totals.calls = totals.calls.saturating_add(of_day.calls);
        totals.errors = totals.errors.saturating_add(of_day.errors);
    }
}

/// How many calls took how long. A time is rounded down to two significant digits of its milliseconds,
/// so that the number of different times has a bound however many calls are counted.
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
    /// Adds calls that took a time.
    pub fn add(&mut self, time: Duration, calls: u64) {
        let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let mut step = 1;
        while milliseconds / step >= 100 {
            step *= 10;
        }
        let of_time = self.0.entry(milliseconds / step * step).or_default();
        *of_time = of_time.saturating_add(calls);
    }

    /// The number of calls.
    pub fn calls(&self) -> u64 {
        self.0.values().fold(0, |sum, calls| sum.saturating_add(*calls))
    }

    /// The least time that so many calls of a hundred do not exceed; `None` if there are no calls.
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
