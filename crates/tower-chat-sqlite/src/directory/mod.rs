//! The directory: the descriptions and the activity of conversations, and the usage of their runs.
//!
//! An append writes one row of `run_usage`, for its run and its model, usually in the same leaf
//! page as the previous append. The append writes the row of the conversation only when the run,
//! the mode or the hour of the last activity changes. Therefore the column `last_active` of this
//! row may be up to an hour too early, and readers take the exact time from the rows of the last
//! run in `run_usage`. The index for lists of conversations contains only the hour, so that it
//! changes at most once an hour.
//!
//! The directory adds one page per append to the log. The case `directory` of the benches compares
//! appends with and without these rows.

mod describe;
mod fill;
mod list;
mod usage;

use rusqlite::{Connection, named_params, params};
use tower_chat_core::{
    PersistenceMode, RunId,
    store::{
        ModelUsage, RunActivity, UsageSum,
        author::{Close, Write, milliseconds},
    },
};

pub(crate) use self::{
    describe::describe,
    fill::fill,
    list::{conversations, messages_before, summary},
    usage::{runs, usage},
};

/// The number of milliseconds in an hour, the unit of the index of conversations.
const HOUR: i64 = 3_600_000;

/// The SQL expression for the exact last activity of a conversation. The table `conversations` has
/// the alias `c`.
pub(crate) const LAST_ACTIVE: &str = "max(c.last_active, ifnull((
    SELECT max(last) FROM run_usage WHERE number = c.id AND run = c.last_run), c.last_active))";

/// The activity of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Activity {
    /// The exact time of the last activity in milliseconds since 1970, unlike the column of this
    /// name.
    pub(crate) last_active: i64,
    pub(crate) runs: RunCount,
    /// The persistence mode of the last write that names a mode.
    pub(crate) mode: Option<PersistenceMode>,
    /// The value of `runs` before the open run (the run that is not yet committed) began. A discard
    /// restores this value.
    pub(crate) without_open_run: RunCount,
}

/// The number of runs, and the last run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct RunCount {
    pub(crate) count: u64,
    pub(crate) last: Option<RunId>,
}

impl Activity {
    /// Creates the activity of a conversation that the write will create.
    pub(crate) fn before(write: &Write) -> Self {
        let at = write.activity().map_or_else(std::time::SystemTime::now, RunActivity::began_at);
        let (runs, without_open_run) = (RunCount::default(), RunCount::default());
        Self { last_active: milliseconds::of(at), runs, mode: None, without_open_run }
    }

    /// Returns the activity after a write. `was_open` is true if a run was open (not yet committed)
    /// before the write.
    #[must_use]
    pub(crate) fn after(mut self, write: &Write, was_open: bool) -> Self {
        if write.as_staged().is_some() && !was_open {
            self.without_open_run = self.runs;
        }
        if let Some(activity) = write.activity() {
            if self.runs.last != Some(write.run()) {
                let count = self.runs.count.saturating_add(1);
                self.runs = RunCount { count, last: Some(write.run()) };
            }
            self.last_active = self.last_active.max(milliseconds::of(activity.at()));
            self.mode = activity.mode().or(self.mode);
        }
        if let Some(Close::Discard { .. }) = write.close() {
            self.runs = self.without_open_run;
        }
        self
    }

    /// Returns the hour of the last activity, counted from 1970, as the index contains it.
    pub(crate) fn hour(&self) -> i64 {
        self.last_active.div_euclid(HOUR)
    }

    /// Writes the activity into the row of the conversation. Writes nothing if the activity differs
    /// from `before` at most in a time within the same hour.
    pub(crate) fn store(
        &self,
        connection: &Connection,
        number: i64,
        before: &Self,
    ) -> rusqlite::Result<()> {
        let by_hour = |it: &Self| Self { last_active: it.hour(), ..*it };
        if by_hour(self) == by_hour(before) {
            return Ok(());
        }
        let blob = |run: Option<RunId>| run.map(RunId::to_bytes);
        connection
            .prepare_cached(
                "UPDATE conversations SET last_active = :last_active, runs = :runs,
                     last_run = :last_run, mode = :mode, runs_without_open = :runs_without_open,
                     last_run_without_open = :last_run_without_open
                 WHERE id = :number",
            )?
            .execute(named_params! {
                ":number": number,
                ":last_active": self.last_active,
                ":runs": self.runs.count.cast_signed(),
                ":last_run": blob(self.runs.last),
                ":mode": self.mode.map(PersistenceMode::as_str),
                ":runs_without_open": self.without_open_run.count.cast_signed(),
                ":last_run_without_open": blob(self.without_open_run.last),
            })?;
        if self.hour() != before.hour() {
            set_hour(connection, number, self.hour())?;
        }
        Ok(())
    }
}

/// Sets the hour with a separate statement, because SQLite writes to an index whenever a statement
/// sets its column.
fn set_hour(connection: &Connection, number: i64, hour: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached("UPDATE conversations SET active_hour = ?2 WHERE id = ?1")?
        .execute([number, hour])?;
    Ok(())
}

/// Adds the usage of a write to the row of its run and model.
pub(crate) fn add_usage(
    connection: &Connection,
    number: i64,
    write: &Write,
) -> rusqlite::Result<()> {
    let Some(activity) = write.activity() else { return Ok(()) };
    let nothing = [ModelUsage::new(None, UsageSum::default())];
    let usage = if write.usage().is_empty() { &nothing } else { write.usage() };
    let mode = activity.mode().map(PersistenceMode::as_str);
    let (began, at) = (milliseconds::of(activity.began_at()), milliseconds::of(activity.at()));
    let mut statement = connection.prepare_cached(ADD_USAGE)?;
    for ModelUsage { model, sum, .. } in usage {
        statement.execute(params![
            number,
            write.run().to_bytes(),
            model.as_deref().unwrap_or_default(),
            mode,
            began,
            at,
            sum.service_calls.cast_signed(),
            sum.tool_calls.cast_signed(),
            sum.tokens.input_tokens.cast_signed(),
            sum.tokens.cached_input_tokens.cast_signed(),
            sum.tokens.output_tokens.cast_signed(),
            sum.tokens.reasoning_tokens.cast_signed(),
            sum.cost_nanos.map(u64::cast_signed),
        ])?;
    }
    Ok(())
}

/// Adds the counts of a write to a row. Every count is at most 2^53 - 1 ([`UsageSum::LARGEST`]), so
/// that the sum of two counts does not overflow.
const ADD_USAGE: &str = "
    INSERT INTO run_usage VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
    ON CONFLICT (number, run, model) DO UPDATE SET
        mode = ifnull(excluded.mode, mode),
        last = max(last, excluded.last),
        service_calls = min(service_calls + excluded.service_calls, 9007199254740991),
        tool_calls = min(tool_calls + excluded.tool_calls, 9007199254740991),
        input_tokens = min(input_tokens + excluded.input_tokens, 9007199254740991),
        cached_input_tokens =
            min(cached_input_tokens + excluded.cached_input_tokens, 9007199254740991),
        output_tokens = min(output_tokens + excluded.output_tokens, 9007199254740991),
        reasoning_tokens = min(reasoning_tokens + excluded.reasoning_tokens, 9007199254740991),
        cost_nanos = CASE
            WHEN cost_nanos IS NULL THEN excluded.cost_nanos
            WHEN excluded.cost_nanos IS NULL THEN cost_nanos
            ELSE min(cost_nanos + excluded.cost_nanos, 9007199254740991)
        END";
