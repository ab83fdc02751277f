//! The directory entry of one conversation.

use std::{sync::Arc, time::SystemTime};

use serde::{Deserialize, Serialize};

use super::{
    ConversationSummary, Description, ModelUsage, Parent, RunActivity, RunSummary, UsageReport,
    UsageSum,
};
use crate::{
    ConversationKey, PersistenceMode, RunId,
    store::{
        DirectoryCounts, Head, StoreError,
        author::{Close, ForkEnd, Staged, Write, milliseconds},
    },
};

/// The directory entry of one conversation, for a store without tables for the directory. The store
/// writes the entry next to the messages, [applies](Self::apply) each stored write to the entry,
/// and answers queries from the entry. An entry can be serialized.
///
/// ```
/// use tower_chat_core::{
///     ConversationKey, Message, MessageId, RunId,
///     store::{Head, Revision, author::{DirectoryEntry, Write}},
/// };
/// let key = ConversationKey::new("alice", "support");
/// let id = MessageId { run: RunId::new(), index: 0 };
/// let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
/// let mut entry = DirectoryEntry::before(&write);
/// entry.apply(&write);
/// let summary = entry.summary(key, &Head::new(write.result()));
/// assert_eq!((summary.runs, summary.messages), (1, 1));
/// ```
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    description: Description,
    description_version: u64,
    /// The creation time, in milliseconds since 1970. All times in this file have this unit.
    created_at: i64,
    last_active_at: i64,
    last_mode: Option<PersistenceMode>,
    runs: RunCount,
    /// The number of runs before the open run began, which a discard restores; `None` if no run is
    /// open.
    without_open_run: Option<RunCount>,
    /// The usage, ordered by run and model.
    usage: Vec<UsageRow>,
    parent: Option<Parent>,
}

/// The number of runs of a conversation, and its last run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RunCount {
    count: u64,
    last: Option<RunId>,
}

/// The usage of one model by a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct UsageRow {
    run: RunId,
    model: Option<Arc<str>>,
    mode: Option<PersistenceMode>,
    began_at: i64,
    last_written_at: i64,
    sum: UsageSum,
}

impl DirectoryEntry {
    /// Creates the entry of a conversation that does not exist yet and whose first write is
    /// `write`. The entry does not include the write. The store [applies](Self::apply) the write to
    /// the entry afterwards.
    pub fn before(write: &Write) -> Self {
        let at = write.activity().map_or_else(SystemTime::now, RunActivity::began_at);
        Self { parent: write.parent().cloned(), ..Self::created_at_time(at) }
    }

    fn created_at_time(at: SystemTime) -> Self {
        let at = milliseconds::of(at);
        Self {
            description: Description::new(),
            description_version: 0,
            created_at: at,
            last_active_at: at,
            last_mode: None,
            runs: RunCount::default(),
            without_open_run: None,
            usage: Vec::new(),
            parent: None,
        }
    }

    /// Creates the entry of a copy of the conversation `key`. The copy is made at the time `at`,
    /// and has the messages up to `end`.
    #[must_use]
    pub fn fork(&self, key: &ConversationKey, end: &ForkEnd, at: SystemTime) -> Self {
        let mut runs = self.without_open_run.unwrap_or(self.runs);
        if end.runs_after > 0 {
            let count = runs.count.saturating_sub(end.runs_after);
            runs = RunCount { count, last: end.last_run };
        }
        Self {
            description: self.description.clone(),
            description_version: self.description_version,
            last_mode: self.last_mode,
            runs,
            parent: Some(Parent::new(key.clone(), end.position)),
            ..Self::created_at_time(at)
        }
    }

    /// Updates the entry after a write was stored. The store applies a write with messages exactly
    /// once, when it stores the write for the first time.
    ///
    /// A write without messages may be applied again when its writer repeats it, because such a
    /// write adds no usage.
    pub fn apply(&mut self, write: &Write) {
        self.record(write.run(), write.activity(), write.usage(), write.as_staged());
    }

    fn record(
        &mut self,
        run: RunId,
        activity: Option<&RunActivity>,
        usage: &[ModelUsage],
        staged: Option<&Staged>,
    ) {
        if staged.is_some() {
            self.without_open_run.get_or_insert(self.runs);
        }
        if let Some(activity) = activity {
            if self.runs.last != Some(run) {
                let count = self.runs.count.saturating_add(1);
                self.runs = RunCount { count, last: Some(run) };
            }
            self.last_active_at = self.last_active_at.max(milliseconds::of(activity.at()));
            self.last_mode = activity.mode().or(self.last_mode);
            self.add_usage(run, activity, usage);
        }
        match staged.and_then(|staged| staged.close) {
            Some(Close::Commit) => self.without_open_run = None,
            Some(Close::Discard { .. }) => {
                self.runs = self.without_open_run.take().unwrap_or(self.runs);
            }
            None => {}
        }
    }

    /// Adds usage to the row of each model. If the usage is empty, updates the times and the mode
    /// of the row without a model.
    fn add_usage(&mut self, run: RunId, activity: &RunActivity, usage: &[ModelUsage]) {
        let nothing = [ModelUsage::new(None, UsageSum::default())];
        let usage = if usage.is_empty() { &nothing } else { usage };
        let (at, began_at) =
            (milliseconds::of(activity.at()), milliseconds::of(activity.began_at()));
        for ModelUsage { model, sum } in usage {
            let row = self.row(run, model.as_ref(), began_at);
            row.sum += sum;
            row.last_written_at = row.last_written_at.max(at);
            row.mode = activity.mode().or(row.mode);
        }
    }

    /// Returns the row of a run and a model, and creates it if necessary.
    fn row(&mut self, run: RunId, model: Option<&Arc<str>>, at: i64) -> &mut UsageRow {
        let found =
            self.usage.binary_search_by(|row| (row.run, row.model.as_ref()).cmp(&(run, model)));
        let position = found.unwrap_or_else(|position| {
            let row = UsageRow {
                run,
                model: model.cloned(),
                mode: None,
                began_at: at,
                last_written_at: at,
                sum: UsageSum::default(),
            };
            self.usage.insert(position, row);
            position
        });
        #[allow(clippy::indexing_slicing, reason = "the row was found, or inserted just now")]
        &mut self.usage[position]
    }

    /// Sets the description, if the current one has the version `expected_version`, and returns the
    /// new version.
    ///
    /// # Errors
    ///
    /// [`StoreError::DescriptionChanged`], if the current description has another version.
    pub fn set_description(
        &mut self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        if self.description_version != expected_version {
            return Err(StoreError::DescriptionChanged {
                key: key.clone(),
                expected: expected_version,
                found: self.description_version,
            });
        }
        self.description = description.clone();
        self.description_version = expected_version.saturating_add(1);
        Ok(self.description_version)
    }

    /// Replaces the numbers of runs and of tool calls. A run has one row for each model. Because
    /// the messages do not show which model made a call, the first row gets all tool calls of the
    /// run.
    pub fn recount(&mut self, counts: &DirectoryCounts) {
        self.runs.count = counts.runs;
        for (run, calls) in &counts.tool_calls {
            let rows = self.usage.iter_mut().filter(|row| row.run == *run);
            for (position, row) in rows.enumerate() {
                row.sum.tool_calls =
                    if position == 0 { (*calls).min(UsageSum::LARGEST) } else { 0 };
            }
        }
    }

    /// Returns the summary of the conversation with this head. The head must include the pending
    /// approvals.
    pub fn summary(&self, key: ConversationKey, head: &Head) -> ConversationSummary {
        let mut summary = ConversationSummary::new(key, head, time(self.created_at));
        summary.description = self.description.clone();
        summary.description_version = self.description_version;
        summary.last_active_at = time(self.last_active_at);
        summary.runs = self.runs.count;
        summary.last_mode = self.last_mode;
        summary.parent = self.parent.clone();
        self.usage.iter().for_each(|row| summary.usage += &row.sum);
        summary
    }

    /// Returns up to `limit` runs, in the descending byte order of their ids, beginning with the
    /// first id less than `after`. The summary of the run `open` is marked as open.
    pub fn runs(&self, after: Option<RunId>, limit: usize, open: Option<RunId>) -> Vec<RunSummary> {
        let runs = self.usage.chunk_by(|left, right| left.run == right.run).rev();
        let asked = runs.filter_map(|rows| {
            let first = rows.first()?;
            let is_asked_for = after.is_none_or(|after| first.run < after);
            is_asked_for.then(|| run_summary(first, rows, open))
        });
        asked.take(limit).collect()
    }

    /// Adds the usage of the conversation to a report.
    pub fn report(&self, key: &ConversationKey, report: &mut UsageReport<'_>) {
        for row in &self.usage {
            report.add(key, row.run, row.began_at, row.model.as_deref(), &row.sum);
        }
    }
}

fn run_summary(first: &UsageRow, rows: &[UsageRow], open: Option<RunId>) -> RunSummary {
    let began_at = rows.iter().map(|row| row.began_at).min().unwrap_or(first.began_at);
    let last = rows.iter().max_by_key(|row| row.last_written_at).unwrap_or(first);
    let mut summary = RunSummary::new(first.run, time(began_at));
    summary.mode = last.mode;
    summary.last_written_at = time(last.last_written_at);
    let used = rows.iter().filter(|row| !row.sum.is_zero());
    summary.usage = used.map(|row| ModelUsage::new(row.model.clone(), row.sum)).collect();
    summary.is_open = open == Some(first.run);
    summary
}

/// Returns the time of a stored millisecond. For a time out of range, which no store writes,
/// returns the Unix epoch.
fn time(milliseconds: i64) -> SystemTime {
    milliseconds::time(milliseconds).unwrap_or(SystemTime::UNIX_EPOCH)
}
