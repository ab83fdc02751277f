//! The usage of one model in one run, in a field of a hash whose name consists of the run and the
//! model.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, PersistenceMode, RunId,
    store::{ModelUsage, RunSummary, UsageSum, author::UsageReport},
};

use super::{
    entry::{mode, read_counts, write_counts},
    time,
};

/// The usage of one model in one run.
#[derive(Debug)]
pub(super) struct RunRow {
    run: RunId,
    model: Option<Arc<str>>,
    mode: Option<PersistenceMode>,
    began_at: i64,
    last_written_at: i64,
    sum: UsageSum,
}

impl RunRow {
    pub(super) fn read(name: &[u8], row: &[u8]) -> Result<Self, String> {
        let (run, model) = name.split_first_chunk::<16>().ok_or("a run id is not 16 bytes")?;
        let run = RunId::from_bytes(*run);
        let damaged = || format!("the row of run {run} cannot be read");
        let model = std::str::from_utf8(model).map_err(|_| damaged())?;
        let row = std::str::from_utf8(row).map_err(|_| damaged())?;
        let mut words = row.splitn(4, ' ');
        let mut word = || words.next().ok_or_else(damaged);
        let [began, last, of_mode, counts] = [word()?, word()?, word()?, word()?];
        let row = Self {
            run,
            model: (!model.is_empty()).then(|| model.into()),
            mode: mode(of_mode)?,
            began_at: began.parse().map_err(|_| damaged())?,
            last_written_at: last.parse().map_err(|_| damaged())?,
            sum: read_counts(counts)?,
        };
        time(row.began_at)?;
        time(row.last_written_at)?;
        Ok(row)
    }

    pub(super) fn order(&self) -> (RunId, Option<&str>) {
        (self.run, self.model.as_deref())
    }

    pub(super) fn report(&self, key: &ConversationKey, report: &mut UsageReport<'_>) {
        report.add(key, self.run, self.began_at, self.model.as_deref(), &self.sum);
    }
}

/// Returns the name and the value of the field for a run of which only the creation time is known.
pub(super) fn unknown_run(run: RunId, at: i64) -> (Vec<u8>, Vec<u8>) {
    let counts = write_counts(&UsageSum::default()).join(" ");
    (run.to_bytes().to_vec(), format!("{at} {at} - {counts}").into_bytes())
}

/// Combines the rows of each run. Returns up to `limit` runs, in the descending byte order of their
/// ids, beginning with the first id less than `after`.
pub(super) fn run_summaries(
    rows: &[RunRow],
    after: Option<RunId>,
    limit: usize,
    open: Option<RunId>,
) -> Vec<RunSummary> {
    let runs = rows.chunk_by(|left, right| left.run == right.run).rev();
    let asked = runs.filter_map(|rows| summary(rows, open));
    asked.filter(|run| after.is_none_or(|after| run.run < after)).take(limit).collect()
}

fn summary(rows: &[RunRow], open: Option<RunId>) -> Option<RunSummary> {
    let first = rows.iter().min_by_key(|row| row.began_at)?;
    let last = rows.iter().max_by_key(|row| row.last_written_at)?;
    let mut summary = RunSummary::new(first.run, time(first.began_at).ok()?);
    summary.last_written_at = time(last.last_written_at).ok()?;
    summary.mode = last.mode;
    let used = rows.iter().filter(|row| !row.sum.is_zero());
    summary.usage = used.map(|row| ModelUsage::new(row.model.clone(), row.sum)).collect();
    summary.is_open = open == Some(first.run);
    Some(summary)
}
