//! Queries of the usage of runs.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::SystemTime,
};

use super::{UsageSum, UtcDay};
use crate::{ConversationKey, RunId, store::author::milliseconds};

/// A query that selects usage and groups it into sums.
///
/// All usage of a model by a run counts at the time at which the run
/// [began](super::RunActivity::began_at), to the millisecond. Stores take this time from the first
/// write of the run that has usage of the model.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::store::{UsageGrouping, UsageQuery};
/// let last_month = SystemTime::now() - Duration::from_secs(30 * 86_400);
/// let by_model = UsageQuery::in_scope("alice", UsageGrouping::Model).since(last_month);
/// let by_tenant = UsageQuery::in_all_scopes(UsageGrouping::Scope);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsageQuery {
    /// The grouping of the sums.
    pub grouping: UsageGrouping,
    /// Selects usage of this scope; of all scopes if it is `None`.
    pub scope: Option<Arc<str>>,
    /// Selects usage of this conversation. Ignored if `scope` is `None`.
    pub conversation: Option<Arc<str>>,
    /// Selects usage from this time on.
    pub since: Option<SystemTime>,
    /// Selects usage before this time.
    pub before: Option<SystemTime>,
}

/// The grouping of usage. No variant will be added, because every store has to implement every
/// variant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageGrouping {
    /// A sum for each run.
    Run,
    /// A sum for each conversation.
    Conversation,
    /// A sum for each scope.
    Scope,
    /// A sum for each model.
    Model,
    /// A sum for each day.
    Day,
}

/// The group of a sum. The results of a query are in the order of their groups.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum UsageGroup {
    /// A run of a conversation.
    Run(ConversationKey, RunId),
    /// A conversation.
    Conversation(ConversationKey),
    /// A scope.
    Scope(Arc<str>),
    /// A model; `None` for service calls of an unknown model.
    Model(Option<Arc<str>>),
    /// A day.
    Day(UtcDay),
}

/// The sum of usage of one group.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UsageTotals {
    /// The group.
    pub group: UsageGroup,
    /// The number of runs with usage in the group.
    pub runs: u64,
    /// The usage of these runs.
    pub sum: UsageSum,
}

impl UsageTotals {
    /// Creates the totals of a group.
    pub fn new(group: UsageGroup, runs: u64, sum: UsageSum) -> Self {
        Self { group, runs, sum }
    }
}

impl UsageQuery {
    /// Selects all usage.
    pub fn in_all_scopes(grouping: UsageGrouping) -> Self {
        Self { grouping, scope: None, conversation: None, since: None, before: None }
    }

    /// Selects the usage of a scope.
    pub fn in_scope(scope: impl Into<Arc<str>>, grouping: UsageGrouping) -> Self {
        Self { scope: Some(scope.into()), ..Self::in_all_scopes(grouping) }
    }

    /// Selects the usage of a conversation.
    pub fn of(key: &ConversationKey, grouping: UsageGrouping) -> Self {
        Self { conversation: Some(key.id().into()), ..Self::in_scope(key.scope(), grouping) }
    }

    /// Selects usage from this time on.
    #[must_use]
    pub fn since(mut self, time: SystemTime) -> Self {
        self.since = Some(time);
        self
    }

    /// Selects usage before this time.
    #[must_use]
    pub fn before(mut self, time: SystemTime) -> Self {
        self.before = Some(time);
        self
    }

    /// Returns whether usage of a conversation matches the query.
    pub fn concerns(&self, key: &ConversationKey) -> bool {
        match (self.scope.as_deref(), self.conversation.as_deref()) {
            (None, _) => true,
            (Some(scope), None) => scope == key.scope(),
            (Some(scope), Some(id)) => (scope, id) == (key.scope(), key.id()),
        }
    }

    /// Returns whether usage of a run that began in this millisecond since 1970 (UTC) matches the
    /// query.
    pub fn fits(&self, began_milliseconds: i64) -> bool {
        let bound = |time: SystemTime| milliseconds::bound(time);
        self.since.is_none_or(|since| began_milliseconds >= bound(since))
            && self.before.is_none_or(|before| began_milliseconds < bound(before))
    }
}

/// Sums up usage for a query. Stores that read usage row by row use this type.
///
/// ```
/// use std::time::SystemTime;
/// use tower_chat_core::{
///     ConversationKey, RunId,
///     store::{UsageGroup, UsageGrouping, UsageQuery, UsageSum, author::UsageReport},
/// };
/// let (alice, run) = (ConversationKey::new("alice", "support"), RunId::new());
/// let query = UsageQuery::in_scope("alice", UsageGrouping::Conversation);
/// let mut report = UsageReport::new(&query);
/// report.add(&alice, run, 1_750_000_000_000, Some("a model"), &UsageSum::of_calls(1, 0));
/// report.add(&alice, run, 1_750_000_000_123, None, &UsageSum::of_calls(2, 0));
/// let totals = report.into_totals();
/// assert_eq!(totals[0].group, UsageGroup::Conversation(alice));
/// assert_eq!((totals[0].runs, totals[0].sum.service_calls), (1, 3));
/// ```
#[derive(Debug)]
pub struct UsageReport<'q> {
    query: &'q UsageQuery,
    /// For each group, its runs and the sum of their usage.
    groups: BTreeMap<UsageGroup, (BTreeSet<(ConversationKey, RunId)>, UsageSum)>,
}

impl<'q> UsageReport<'q> {
    /// Creates a report without usage.
    pub fn new(query: &'q UsageQuery) -> Self {
        Self { query, groups: BTreeMap::new() }
    }

    /// Adds the usage of a model by a run that began at this millisecond since 1970 (UTC). Usage
    /// that does not match the query, and empty usage, is ignored.
    pub fn add(
        &mut self,
        key: &ConversationKey,
        run: RunId,
        began_milliseconds: i64,
        model: Option<&str>,
        sum: &UsageSum,
    ) {
        let is_asked_for = self.query.concerns(key) && self.query.fits(began_milliseconds);
        if !is_asked_for || sum.is_zero() {
            return;
        }
        let group = match self.query.grouping {
            UsageGrouping::Run => UsageGroup::Run(key.clone(), run),
            UsageGrouping::Conversation => UsageGroup::Conversation(key.clone()),
            UsageGrouping::Scope => UsageGroup::Scope(key.scope().into()),
            UsageGrouping::Model => UsageGroup::Model(model.map(Into::into)),
            UsageGrouping::Day => {
                UsageGroup::Day(UtcDay::from_days(began_milliseconds.div_euclid(86_400_000)))
            }
        };
        let (runs, total) = self.groups.entry(group).or_default();
        runs.insert((key.clone(), run));
        *total += sum;
    }

    /// Returns the sums, in the order of their groups.
    pub fn into_totals(self) -> Vec<UsageTotals> {
        let totals = self.groups.into_iter();
        totals.map(|(group, (runs, sum))| UsageTotals::new(group, runs.len() as u64, sum)).collect()
    }
}
