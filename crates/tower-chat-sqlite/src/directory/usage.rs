//! Queries of the usage of runs: service calls, tool calls, tokens and cost.

use std::sync::Arc;

use rusqlite::{Connection, Row, params, types::Value};
use tower_chat_core::{
    ConversationKey, PersistenceMode, RunId, Usage,
    store::{
        ModelUsage, RunSummary, StoreError, UsageQuery, UsageSum, UsageTotals, author::UsageReport,
    },
};

use super::list::time;
use crate::{conversation, open_run, read::NotRead, removal::NOT_DELETED};

/// The columns with the counts of a row, in the order in which [`counts`] reads them.
const COUNTS: &str = "service_calls, tool_calls, input_tokens, cached_input_tokens, output_tokens,
    reasoning_tokens, cost_nanos";

/// Reads the counts of a row, from the column `first` on. A negative count, which only damage can
/// cause, is read as 0.
fn counts(row: &Row<'_>, first: usize) -> rusqlite::Result<UsageSum> {
    let count = |column: usize| {
        row.get::<_, i64>(first + column).map(|count| u64::try_from(count).unwrap_or_default())
    };
    let mut tokens = Usage::new(count(2)?, count(4)?);
    tokens.cached_input_tokens = count(3)?;
    tokens.reasoning_tokens = count(5)?;
    let cost: Option<i64> = row.get(first + 6)?;
    let cost = cost.map(|cost| u64::try_from(cost).unwrap_or_default());
    Ok(UsageSum::of_calls(count(0)?, count(1)?).with_tokens(tokens).with_cost_nanos(cost))
}

/// Returns the usage of all runs of a conversation.
pub(super) fn total(connection: &Connection, number: i64) -> rusqlite::Result<UsageSum> {
    let sql = format!("SELECT {COUNTS} FROM run_usage WHERE number = ?1");
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([number])?;
    let mut sum = UsageSum::default();
    while let Some(row) = rows.next()? {
        sum += &counts(row, 0)?;
    }
    Ok(sum)
}

/// Returns the sums of the usage of runs, for each group that the query defines.
pub(crate) fn usage(
    connection: &Connection,
    query: &UsageQuery,
) -> Result<Vec<UsageTotals>, NotRead> {
    let mut sql = format!(
        "SELECT c.scope, c.conversation, u.run, u.model, u.began, {COUNTS}
         FROM conversations c CROSS JOIN run_usage u ON u.number = c.id WHERE {NOT_DELETED}"
    );
    let mut values: Vec<Value> = Vec::new();
    if let Some(scope) = &query.scope {
        sql.push_str(" AND c.scope = ?");
        values.push(scope.to_string().into());
        if let Some(conversation) = &query.conversation {
            sql.push_str(" AND c.conversation = ?");
            values.push(conversation.to_string().into());
        }
    }
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut report = UsageReport::new(query);
    while let Some(row) = rows.next()? {
        let key = ConversationKey::new(row.get::<_, Arc<str>>(0)?, row.get::<_, Arc<str>>(1)?);
        let run = RunId::from_bytes(row.get(2)?);
        report.add(&key, run, row.get(4)?, model(row, 3)?.as_deref(), &counts(row, 5)?);
    }
    Ok(report.into_totals())
}

/// Reads the name of a model; `None` if the model is unknown.
fn model(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Arc<str>>> {
    let model: Arc<str> = row.get(column)?;
    Ok(Some(model).filter(|model| !model.is_empty()))
}

/// Returns up to `limit` runs of a conversation, in the descending byte order of their ids,
/// beginning with the first id less than `after`, from one snapshot.
pub(crate) fn runs(
    connection: &Connection,
    key: &ConversationKey,
    after: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunSummary>, NotRead> {
    let snapshot = connection.unchecked_transaction()?;
    let Some(number) = conversation::number(&snapshot, key)? else { return Ok(Vec::new()) };
    let open = open_run::find(&snapshot, number)?.map(|open| open.run);
    let sql = format!(
        "SELECT run, mode, began, last, model, {COUNTS} FROM run_usage
         WHERE number = ?1 AND (?2 IS NULL OR run < ?2) ORDER BY run DESC, model"
    );
    let mut statement = snapshot.prepare_cached(&sql)?;
    let mut rows = statement.query(params![number, after.map(RunId::to_bytes)])?;
    let mut runs: Vec<RunSummary> = Vec::new();
    while let Some(row) = rows.next()? {
        let damaged = || {
            let reason = format!("conversation {key}: the times of a run are out of range");
            NotRead::Damaged(StoreError::Corrupt { reason })
        };
        let run = RunId::from_bytes(row.get(0)?);
        let mode: Option<String> = row.get(1)?;
        let mode = mode.and_then(|mode| mode.parse::<PersistenceMode>().ok());
        let (began, last) = (time(row.get(2)?), time(row.get(3)?));
        let (began, last) = began.zip(last).ok_or_else(damaged)?;
        if runs.last().is_none_or(|summary| summary.run != run) {
            if runs.len() >= limit {
                break;
            }
            let mut summary = RunSummary::new(run, began);
            summary.is_open = open == Some(run);
            runs.push(summary);
        }
        let Some(summary) = runs.last_mut() else { break };
        summary.began_at = summary.began_at.min(began);
        if last >= summary.last_written_at {
            (summary.last_written_at, summary.mode) = (last, mode);
        }
        let sum = counts(row, 5)?;
        if !sum.is_zero() {
            summary.usage.push(ModelUsage::new(model(row, 4)?, sum));
        }
    }
    Ok(runs)
}
