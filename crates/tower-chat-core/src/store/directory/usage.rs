//! The usage of runs: service calls, tool calls, tokens and cost.

use std::{sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};

use crate::{Message, PersistenceMode, Usage};

/// A sum of usage. All counts saturate at [`UsageSum::LARGEST`], so that every store can store and
/// add them.
///
/// ```
/// use tower_chat_core::{Usage, store::UsageSum};
/// let mut sum = UsageSum::of_calls(1, 2).with_tokens(Usage::new(100, 20));
/// sum += &UsageSum::of_calls(1, 0).with_tokens(Usage::new(150, 10)).with_cost_nanos(7);
/// assert_eq!((sum.service_calls, sum.tool_calls), (2, 2));
/// assert_eq!((sum.tokens.total_tokens(), sum.cost_nanos), (280, Some(7)));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct UsageSum {
    /// The number of requests to a model that were answered.
    pub service_calls: u64,
    /// The number of tool calls in the answers.
    pub tool_calls: u64,
    /// The tokens, as counted by the providers.
    pub tokens: Usage,
    /// The cost of all service calls with a known price, in billionths of the currency of the price
    /// list; `None` if no price was known.
    pub cost_nanos: Option<u64>,
}

impl UsageSum {
    /// The largest count. Databases that compute in floating point represent this number exactly.
    pub const LARGEST: u64 = crate::store::author::LAST_SEQUENCE;

    /// Creates a sum of these numbers of service calls and tool calls.
    pub fn of_calls(service_calls: u64, tool_calls: u64) -> Self {
        Self { service_calls, tool_calls, ..Self::default() }.within_bounds()
    }

    /// Sets the tokens.
    #[must_use]
    pub fn with_tokens(mut self, tokens: Usage) -> Self {
        self.tokens = tokens;
        self.within_bounds()
    }

    /// Sets the cost in billionths of a currency.
    #[must_use]
    pub fn with_cost_nanos(mut self, cost_nanos: impl Into<Option<u64>>) -> Self {
        self.cost_nanos = cost_nanos.into();
        self.within_bounds()
    }

    /// Returns whether the sum is zero.
    pub fn is_zero(&self) -> bool {
        let Self { service_calls, tool_calls, tokens, cost_nanos } = *self;
        let is_free = cost_nanos.unwrap_or_default() == 0;
        service_calls == 0 && tool_calls == 0 && tokens == Usage::default() && is_free
    }

    fn within_bounds(mut self) -> Self {
        let Self { service_calls, tool_calls, tokens, cost_nanos } = &mut self;
        let Usage { input_tokens, cached_input_tokens, output_tokens, reasoning_tokens } = tokens;
        let counts = [service_calls, tool_calls, input_tokens, cached_input_tokens];
        let counts = counts.into_iter().chain([output_tokens, reasoning_tokens]);
        for count in counts.chain(cost_nanos) {
            *count = (*count).min(Self::LARGEST);
        }
        self
    }
}

impl std::ops::AddAssign<&Self> for UsageSum {
    fn add_assign(&mut self, other: &Self) {
        self.service_calls = self.service_calls.saturating_add(other.service_calls);
        self.tool_calls = self.tool_calls.saturating_add(other.tool_calls);
        self.tokens += other.tokens;
        self.cost_nanos = match (self.cost_nanos, other.cost_nanos) {
            (Some(left), Some(right)) => Some(left.saturating_add(right)),
            (left, right) => left.or(right),
        };
        *self = self.within_bounds();
    }
}

/// The usage of one model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ModelUsage {
    /// The model's name, as returned by its service; `None` if it is unknown.
    pub model: Option<Arc<str>>,
    /// The usage.
    pub sum: UsageSum,
}

impl ModelUsage {
    /// Creates the usage of a model. An empty name is treated as an unknown model.
    pub fn new(model: Option<Arc<str>>, sum: UsageSum) -> Self {
        Self { model: model.filter(|model| !model.is_empty()), sum }
    }
}

/// The activity of a run that a write reports: the time of the write, the mode of the run, and the
/// usage that the write adds.
///
/// ```
/// use std::time::SystemTime;
/// use tower_chat_core::{PersistenceMode, Usage, store::{ModelUsage, RunActivity, UsageSum}};
/// let sum = UsageSum::of_calls(1, 0).with_tokens(Usage::new(100, 20));
/// let activity = RunActivity::new(SystemTime::now())
///     .with_mode(PersistenceMode::PerServiceCall)
///     .with_usage([ModelUsage::new(Some("gpt-5-mini".into()), sum)]);
/// assert_eq!(activity.usage()[0].sum, sum);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunActivity {
    at: SystemTime,
    started_at: Option<SystemTime>,
    mode: Option<PersistenceMode>,
    usage: Vec<ModelUsage>,
}

impl RunActivity {
    /// Creates an activity at this time, without usage.
    pub fn new(at: SystemTime) -> Self {
        Self { at, started_at: None, mode: None, usage: Vec::new() }
    }

    /// Creates the default activity of a write with these messages: at the current time, with the
    /// number of tool calls in the messages as its usage.
    pub(in crate::store) fn of_messages(messages: &[Arc<Message>]) -> Self {
        let calls = messages.iter().map(|message| message.asked_calls().count() as u64).sum();
        let usage = ModelUsage::new(None, UsageSum::of_calls(0, calls));
        Self::new(SystemTime::now()).with_usage([usage])
    }

    /// Sets the time at which the first request of the run arrived.
    ///
    /// ```
    /// use std::time::{Duration, SystemTime};
    /// use tower_chat_core::store::RunActivity;
    /// let written = SystemTime::now();
    /// let arrived = written - Duration::from_secs(4);
    /// assert_eq!(RunActivity::new(written).began_at(), written);
    /// assert_eq!(RunActivity::new(written).with_start(arrived).began_at(), arrived);
    /// ```
    #[must_use]
    pub fn with_start(mut self, started_at: SystemTime) -> Self {
        self.started_at = Some(started_at);
        self
    }

    /// Sets the mode of the run.
    #[must_use]
    pub fn with_mode(mut self, mode: impl Into<Option<PersistenceMode>>) -> Self {
        self.mode = mode.into();
        self
    }

    /// Adds usage. Entries for the same model are summed.
    #[must_use]
    pub fn with_usage(mut self, usage: impl IntoIterator<Item = ModelUsage>) -> Self {
        for ModelUsage { model, sum } in usage.into_iter().filter(|usage| !usage.sum.is_zero()) {
            let model = model.filter(|model| !model.is_empty());
            match self.usage.iter_mut().find(|known| known.model == model) {
                Some(known) => known.sum += &sum,
                None => self.usage.push(ModelUsage { model, sum: sum.within_bounds() }),
            }
        }
        self
    }

    /// Returns the time of the write, by the writer's clock. Stores store this time to the
    /// millisecond.
    pub fn at(&self) -> SystemTime {
        self.at
    }

    /// Returns the time at which the run began, according to this write: the time at which the
    /// first request of the run arrived. If that time is unknown or later than the write, returns
    /// the time of the write. A store uses the value from the first write of the run.
    pub fn began_at(&self) -> SystemTime {
        self.started_at.map_or(self.at, |started_at| started_at.min(self.at))
    }

    /// Returns the mode of the run.
    pub fn mode(&self) -> Option<PersistenceMode> {
        self.mode
    }

    /// Returns the usage, with one entry for each model.
    pub fn usage(&self) -> &[ModelUsage] {
        &self.usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_sums_stop_at_the_largest() {
        let largest = Usage::new(u64::MAX, 1);
        let mut sum =
            UsageSum::of_calls(u64::MAX, 0).with_tokens(largest).with_cost_nanos(u64::MAX);
        assert_eq!(sum.tokens.input_tokens, UsageSum::LARGEST);
        sum += &sum.clone();
        assert_eq!((sum.service_calls, sum.tool_calls), (UsageSum::LARGEST, 0));
        assert_eq!((sum.tokens.input_tokens, sum.tokens.output_tokens), (UsageSum::LARGEST, 2));
        assert_eq!(sum.cost_nanos, Some(UsageSum::LARGEST));
    }

    #[test]
    fn usage_of_one_model_is_added_up_and_nothing_is_reported_of_no_usage() {
        let usage = |model: Option<&str>, calls| {
            ModelUsage::new(model.map(Into::into), UsageSum::of_calls(calls, 0))
        };
        let activity = RunActivity::new(SystemTime::UNIX_EPOCH)
            .with_usage([usage(Some("a"), 1), usage(Some(""), 2)])
            .with_usage([usage(None, 4), usage(Some("a"), 8), usage(Some("b"), 0)]);
        assert_eq!(activity.usage(), [usage(Some("a"), 9), usage(None, 6)]);
    }
}
