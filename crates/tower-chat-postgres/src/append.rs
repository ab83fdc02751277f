//! Appends: sends the statement or the function call of a write, and reads the outcome.

use tokio_postgres::Row;
use tower_chat_core::{
    RunId, format,
    store::{
        Conflict, Lease, Revision, SequencePosition, ServiceIdChange, StoreError,
        author::{Close, LAST_SEQUENCE, Staged, Write, milliseconds},
    },
};

use crate::{
    activity::Activity,
    connections::{Connections, Query},
    conversation::corrupt,
    parameter::Parameter,
    plain_append::{PlainAppend, WritePosition},
    stored_key::StoredKey,
    tool_row::{self, ToolRows, number},
};

const ACTION: &str = "append to a conversation";

/// Stores a write. If the write is already stored, returns its revision without storing it again.
/// After a lost connection, the write is sent again, unless it has no messages and
/// [claims](tower_chat_core::store::author::Claim) tool calls. Such a write would be refused if the
/// first execution has stored it.
pub(crate) async fn append(
    connections: &Connections,
    write: &Write,
) -> Result<Revision, StoreError> {
    let is_repeatable = !write.messages().is_empty() || write.claims().is_empty();
    write.check_range(LAST_SEQUENCE)?;
    let key = StoredKey::new(write.key());
    check_discard(connections, write, &key).await?;
    let (expected, result) = (write.expected(), write.result());
    let bodies: Vec<String> =
        write.messages().iter().map(|message| format::encode(message)).collect();
    let tools = tool_row::rows(write.tools());
    // With row-level security, a transaction must first execute a statement that sets its scope. A
    // plain append is only one statement, and is therefore not used.
    let plain_appends = &connections.statements.plain_appends;
    let activity = Activity::of(write);
    let plain = if connections.names_scope { None } else { plain_appends.find(write, &tools) };
    if let Some((plain, usage)) = plain.zip(activity.usage.first()) {
        let position = WritePosition::new(write, &activity);
        let values = PlainAppend::values(&key, &position, usage, &bodies, &tools);
        let query = Query { sql: &plain.sql, values: &values };
        if connections.execute(ACTION, true, query).await? > 0 {
            return Ok(write.result());
        }
    }
    let tools: ToolRows = tools.into_iter().collect();
    let claims = Claims::new(write);
    let staged = write.as_staged();
    let change = match staged {
        Some(staged) => staged.service_id.as_ref(),
        None => write.service_id(),
    };
    let (changes_service_id, service_id) = service_id(change);
    let run = write.run().to_bytes();
    let open = OpenRunValues::new(staged);
    let usage = activity.columns();
    let parent = write.parent();
    let load_from = write.load_from().map(|from| from.to_json());
    let values: [&dyn Parameter; 52] = [
        &key.scope,
        &key.conversation,
        &key.long_scope,
        &key.long_conversation,
        &expected.incarnation.cast_signed(),
        &number(expected.sequence),
        &result.incarnation.cast_signed(),
        &number(result.sequence),
        &run.as_slice(),
        &i64::from(write.id().index),
        &bodies,
        &tools.sequences,
        &tools.call_indexes,
        &tools.round_indexes,
        &tools.call_ids,
        &tools.names,
        &tools.statuses,
        &tools.result_sequences,
        &tools.result_indexes,
        &tools.results,
        &tools.errors,
        &tools.started,
        &tools.finished,
        &claims.sequences,
        &claims.indexes,
        &claims.started,
        &changes_service_id,
        &service_id,
        &staged.is_some(),
        &open.attempt,
        &open.holder,
        &open.renewed,
        &open.until,
        &open.close,
        &open.visible,
        &open.partial_text,
        &activity.at,
        &activity.began_at,
        &activity.mode,
        &usage.models,
        &usage.long_models,
        &usage.counts[0],
        &usage.counts[1],
        &usage.counts[2],
        &usage.counts[3],
        &usage.counts[4],
        &usage.counts[5],
        &usage.cost_nanos,
        &parent.map(|parent| parent.key.scope().as_bytes()),
        &parent.map(|parent| parent.key.id().as_bytes()),
        &parent.map(|parent| number(parent.position)),
        &load_from,
    ];
    let query = Query { sql: &connections.statements.append, values: &values };
    let row = connections.change(ACTION, is_repeatable, query).await?;
    let damaged = |error: tokio_postgres::Error| StoreError::backend(ACTION, false, error);
    outcome(write, &row).map_err(damaged)?
}

/// If the write discards the open run (the run that is not committed yet), checks that no message
/// of another run follows the last visible message. Such a message means that the stored number of
/// visible messages is damaged, because no other run can append while a run is open.
async fn check_discard(
    connections: &Connections,
    write: &Write,
    key: &StoredKey,
) -> Result<(), StoreError> {
    let Some(Close::Discard { visible }) = write.close() else { return Ok(()) };
    let (run, after) = (write.run().to_bytes(), number(visible));
    let values: [&dyn Parameter; 4] = [&key.scope, &key.conversation, &after, &run.as_slice()];
    let query = Query { sql: &connections.statements.others_after, values: &values };
    let [found] = connections.read(ACTION, &key.scope, [query]).await?;
    if found.is_empty() {
        return Ok(());
    }
    let (conversation, run) = (write.key(), write.run());
    Err(corrupt(&format!(
        "conversation {conversation}: messages of another run follow message {visible}, although the stored \
         beginning of open run {run} is there: nothing was discarded"
    )))
}

/// The claims of a write, as one list for each column.
#[derive(Default)]
struct Claims {
    sequences: Vec<i64>,
    indexes: Vec<i64>,
    started: Vec<Option<i64>>,
}

impl Claims {
    fn new(write: &Write) -> Self {
        let mut claims = Self::default();
        for claim in write.claims() {
            claims.sequences.push(number(claim.call.sequence));
            claims.indexes.push(claim.call.index.into());
            claims.started.push(claim.started_at.map(milliseconds::of));
        }
        claims
    }
}

/// The parameters of a write that concern an open run; all are `None` if there is no open run.
#[derive(Default)]
struct OpenRunValues<'a> {
    attempt: Option<i64>,
    holder: Option<i64>,
    renewed: Option<i64>,
    until: Option<i64>,
    close: Option<&'static str>,
    visible: Option<i64>,
    partial_text: Option<&'a [u8]>,
}

impl<'a> OpenRunValues<'a> {
    fn new(staged: Option<&'a Staged>) -> Self {
        let Some(staged) = staged else { return Self::default() };
        let Lease { attempt, holder, renewed_at, until } = staged.lease;
        let (close, visible) = match staged.close {
            Some(Close::Commit) => (Some("commit"), None),
            Some(Close::Discard { visible }) => (Some("discard"), Some(number(visible))),
            None => (None, None),
        };
        Self {
            attempt: Some(attempt.into()),
            holder: Some(holder.cast_signed()),
            renewed: Some(milliseconds::of(renewed_at)),
            until: until.to_stored().map(milliseconds::of),
            close,
            visible,
            partial_text: staged.partial_text.as_deref().map(str::as_bytes),
        }
    }
}

fn service_id(change: Option<&ServiceIdChange>) -> (bool, Option<&[u8]>) {
    match change {
        Some(ServiceIdChange::Set(id)) => (true, Some(id.as_bytes())),
        Some(ServiceIdChange::Clear) => (true, None),
        None => (false, None),
    }
}

/// Converts the row that the database function has returned to the outcome of the write.
fn outcome(
    write: &Write,
    row: &Row,
) -> Result<Result<Revision, StoreError>, tokio_postgres::Error> {
    let key = write.key().clone();
    let answer: &str = row.try_get(0)?;
    Ok(match answer {
        "stored" => Ok(write.result()),
        "claimed" => {
            let (sequence, index): (i64, i64) = (row.try_get(4)?, row.try_get(5)?);
            let index = u32::try_from(index).unwrap_or(u32::MAX);
            let call =
                SequencePosition { sequence: u64::try_from(sequence).unwrap_or(u64::MAX), index };
            Err(StoreError::Claimed { key, call })
        }
        _ => {
            let found = Revision {
                incarnation: row.try_get::<_, i64>(1)?.cast_unsigned(),
                sequence: u64::try_from(row.try_get::<_, i64>(2)?).unwrap_or(u64::MAX),
            };
            let run: Option<&[u8]> = row.try_get(3)?;
            let run = run.and_then(|run| run.try_into().ok()).map(RunId::from_bytes);
            let conflict = Conflict::new(key, write.expected(), found).with_open_run(run);
            Err(Box::new(conflict).into())
        }
    })
}
