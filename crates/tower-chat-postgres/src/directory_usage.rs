//! Queries of the usage of runs.

use std::sync::Arc;

use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        ModelUsage, RunSummary, StoreError, UsageGroup, UsageGrouping, UsageQuery, UsageTotals,
        UtcDay, author::milliseconds,
    },
};

use crate::{
    connections::{Connections, Query},
    conversation::{column, corrupt},
    directory::{counts, mode, text, time},
    directory_statements::{Grouping, QueryExtent},
    parameter::Parameter,
    stored_key,
    stored_key::StoredKey,
};

/// Returns the usage of runs. The server computes the sums.
pub(crate) async fn usage(
    connections: &Connections,
    query: &UsageQuery,
) -> Result<Vec<UsageTotals>, StoreError> {
    let grouping = match query.grouping {
        UsageGrouping::Run => Grouping::Run,
        UsageGrouping::Conversation => Grouping::Conversation,
        UsageGrouping::Scope => Grouping::Scope,
        UsageGrouping::Model => Grouping::Model,
        UsageGrouping::Day => Grouping::Day,
    };
    let scope = query.scope.as_deref().map(stored_key::key_part);
    let id = query.scope.as_ref().and(query.conversation.as_deref()).map(stored_key::key_part);
    let extent = match (&scope, &id) {
        (None, _) => QueryExtent::All,
        (Some(_), None) => QueryExtent::Scope,
        (Some(_), Some(_)) => QueryExtent::Conversation,
    };
    let since = query.since.map_or(i64::MIN, milliseconds::bound);
    let before = query.before.map(milliseconds::bound);
    let sql = connections.statements.directory.usage(extent, grouping);
    let values: [&dyn Parameter; 4] = [&scope, &id, &since, &before];
    let query = Query { sql: &sql, values: &values };
    let action = "add up usage";
    let [rows] = match &scope {
        Some(scope) => connections.read(action, scope, [query]).await?,
        None => connections.read_all_scopes(action, [query]).await?,
    };
    let totals = rows.iter().map(|row| totals(row, grouping));
    let totals: Result<Vec<_>, String> = totals.collect();
    let mut totals = totals.map_err(|reason| corrupt(&reason))?;
    totals.sort_by(|left, right| left.group.cmp(&right.group));
    Ok(totals)
}

fn totals(row: &Row, grouping: Grouping) -> Result<UsageTotals, String> {
    let scope = || text(row, 0, "a scope");
    let key = || Ok::<_, String>(ConversationKey::new(scope()?, text(row, 1, "an id")?));
    let group = match grouping {
        Grouping::Run => UsageGroup::Run(key()?, run(row, 2)?),
        Grouping::Conversation => UsageGroup::Conversation(key()?),
        Grouping::Scope => UsageGroup::Scope(scope()?.into()),
        Grouping::Model => UsageGroup::Model(model(row, 3)?),
        Grouping::Day => UsageGroup::Day(UtcDay::from_days(column(row, 4)?)),
    };
    Ok(UsageTotals::new(group, column::<i64>(row, 5)?.cast_unsigned(), counts(row, 6)?))
}

fn run(row: &Row, index: usize) -> Result<RunId, String> {
    let run: &[u8] = column(row, index)?;
    let run = run.try_into().map_err(|_| "a run id is not 16 bytes".to_owned())?;
    Ok(RunId::from_bytes(run))
}

/// Reads the name of a model. Invalid bytes are replaced, so that the usage is still returned.
fn model(row: &Row, index: usize) -> Result<Option<Arc<str>>, String> {
    let model = String::from_utf8_lossy(column(row, index)?);
    Ok((!model.is_empty()).then(|| model.into()))
}

/// Returns the runs of a conversation, newest first, from one snapshot.
pub(crate) async fn runs(
    connections: &Connections,
    key: &ConversationKey,
    after: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunSummary>, StoreError> {
    let stored = StoredKey::new(key);
    let after = after.map(|run| run.to_bytes().to_vec());
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let values: [&dyn Parameter; 4] = [&stored.scope, &stored.conversation, &after, &limit];
    let query = Query { sql: &connections.statements.directory.runs, values: &values };
    let [rows] = connections.read("list runs", &stored.scope, [query]).await?;
    let mut runs = Vec::new();
    let read = rows.iter().try_for_each(|row| see(row, &mut runs));
    read.map_err(|reason: String| corrupt(&format!("conversation {key}: {reason}")))?;
    Ok(runs)
}

/// Reads the usage of one model in one run, and adds it to the last run of the list, or to a new
/// run.
fn see(row: &Row, runs: &mut Vec<RunSummary>) -> Result<(), String> {
    let run = run(row, 0)?;
    let (began, last) = (time(row, 2)?, time(row, 3)?);
    if runs.last().is_none_or(|summary| summary.run != run) {
        let mut summary = RunSummary::new(run, began);
        summary.is_open = column(row, 5)?;
        runs.push(summary);
    }
    let Some(summary) = runs.last_mut() else { return Ok(()) };
    summary.began_at = summary.began_at.min(began);
    if last >= summary.last_written_at {
        (summary.last_written_at, summary.mode) = (last, mode(row, 1)?);
    }
    let sum = counts(row, 6)?;
    if !sum.is_zero() {
        summary.usage.push(ModelUsage::new(model(row, 4)?, sum));
    }
    Ok(())
}
