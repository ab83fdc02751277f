//! The migration that creates the directory (description, times, counts and usage of each
//! conversation) for conversations that older releases have written.

use std::time::SystemTime;

use rusqlite::{Connection, params};
use tower_chat_core::{RunId, store::author::milliseconds};

use super::HOUR;
use crate::row_key;

/// Fills the directory, inside the transaction that has created its tables. Derives the times from
/// the ids of the runs, and the counts from the messages and from the record of tool calls (one row
/// for each call).
pub(crate) fn fill(connection: &Connection) -> rusqlite::Result<()> {
    let now = milliseconds::of(SystemTime::now());
    let mut statement = connection.prepare("SELECT place, run FROM messages ORDER BY place")?;
    let mut rows = statement.query([])?;
    let mut found: Option<Found> = None;
    while let Some(row) = rows.next()? {
        let row_key: i64 = row.get(0)?;
        // A message with a damaged run id is skipped.
        let Ok(run) = row.get(1).map(RunId::from_bytes) else { continue };
        let number = row_key::conversation(row_key);
        if found.as_ref().is_none_or(|found| found.number != number) {
            if let Some(done) = found.take() {
                done.store(connection)?;
            }
            found = Some(Found::new(connection, number)?);
        }
        if let Some(found) = &mut found {
            found.see(connection, row_key::sequence(row_key), run, now)?;
        }
    }
    if let Some(done) = found {
        done.store(connection)?;
    }
    // A conversation without messages gets the current time.
    connection.execute(
        "UPDATE conversations SET created = ?1, last_active = ?1, active_hour = ?2
         WHERE created IS NULL",
        [now, now.div_euclid(HOUR)],
    )?;
    connection.execute_batch(TOOL_CALLS)
}

/// The directory data of one conversation. Times are in milliseconds since 1970.
struct Found {
    /// The number of the conversation.
    number: i64,
    /// The sequence number up to which messages are visible.
    visible: i64,
    created: Option<i64>,
    last_active: i64,
    runs: i64,
    last_run: Option<RunId>,
    /// The number of runs without the open run, which is not committed yet.
    runs_without_open: i64,
    last_run_without_open: Option<RunId>,
}

impl Found {
    fn new(connection: &Connection, number: i64) -> rusqlite::Result<Self> {
        let visible = connection
            .prepare_cached(
                "SELECT ifnull((SELECT visible FROM open_runs WHERE number = ?1), 4294967295)",
            )?
            .query_row([number], |row| row.get(0))?;
        Ok(Self {
            number,
            visible,
            created: None,
            last_active: i64::MIN,
            runs: 0,
            last_run: None,
            runs_without_open: 0,
            last_run_without_open: None,
        })
    }

    /// Adds a message to the data. `now` is used as the time of a run whose id contains no time.
    fn see(
        &mut self,
        connection: &Connection,
        sequence: u64,
        run: RunId,
        now: i64,
    ) -> rusqlite::Result<()> {
        if self.last_run == Some(run) {
            return Ok(());
        }
        let at = run.made_at().map_or(now, milliseconds::of);
        self.created.get_or_insert(at);
        self.last_active = self.last_active.max(at);
        self.runs += 1;
        self.last_run = Some(run);
        if sequence.cast_signed() <= self.visible {
            (self.runs_without_open, self.last_run_without_open) = (self.runs, self.last_run);
        }
        connection
            .prepare_cached(
                "INSERT OR IGNORE INTO run_usage
                 VALUES (?1, ?2, '', NULL, ?3, ?3, 0, 0, 0, 0, 0, 0, NULL)",
            )?
            .execute(params![self.number, run.to_bytes(), at])?;
        Ok(())
    }

    fn store(self, connection: &Connection) -> rusqlite::Result<()> {
        connection
            .prepare_cached(
                "UPDATE conversations SET created = ?2, last_active = ?3, active_hour = ?4,
                     runs = ?5, last_run = ?6, runs_without_open = ?7, last_run_without_open = ?8
                 WHERE id = ?1",
            )?
            .execute(params![
                self.number,
                self.created,
                self.last_active,
                self.last_active.div_euclid(HOUR),
                self.runs,
                self.last_run.map(RunId::to_bytes),
                self.runs_without_open,
                self.last_run_without_open.map(RunId::to_bytes),
            ])?;
        Ok(())
    }
}

/// Sets the number of tool calls of each run, as counted in the record of tool calls.
const TOOL_CALLS: &str = "
    UPDATE run_usage SET tool_calls = called.calls
    FROM (
        SELECT m.place >> 32 AS number, m.run, count(*) AS calls
        FROM tool_invocations t CROSS JOIN messages m ON m.place = t.place
        GROUP BY 1, 2
    ) AS called
    WHERE run_usage.number = called.number AND run_usage.run = called.run AND model = '';
";
