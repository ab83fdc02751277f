//! Plain appends: writes that append a few messages to an existing conversation without an open run
//! (a run that is not committed yet). Most writes are plain appends.
//!
//! A plain append is one statement whose parameters are the values of all new rows. The server
//! executes this statement in about half of the time of the [database function](crate::functions),
//! which accepts lists of any length. The store calls the function for all other writes, and if the
//! conversation is not at the expected revision. The function then determines whether the write is
//! a conflict or is already stored.
//!
//! The cost of the statement does not depend on the length of the conversation. PostgreSQL 15,
//! without statistics of the tables, executed the statement in 34 us in a conversation without
//! messages, and in 36 us in a conversation of 100,000 messages. The plan was the same in both
//! conversations (`EXPLAIN (ANALYZE, BUFFERS)`): an index scan of `conversations`, and as many
//! pages as the new rows need.

use std::sync::atomic::{AtomicBool, Ordering};

use tower_chat_core::store::author::Write;

use crate::{
    activity::{self, Activity, UsageRow},
    parameter::Parameter,
    schema::Layout,
    stored_key::StoredKey,
    tool_row::{ToolRow, number},
};

/// The maximum number of messages in a plain append. It is small, because each combination of a
/// number of messages and a number of rows has a statement, whose plan each connection caches.
const MAX_MESSAGES: usize = 4;
/// The maximum number of rows of the record of tool calls in a plain append.
const MAX_TOOLS: usize = 8;

/// The number of parameters before those of the rows:
/// - 7 for the position: scope, id, incarnation, the last sequence number before and after the
///   write, run, and the first message's index in the run;
/// - 12 for the activity: time, mode, the model in two columns, six counts, cost, and the start of
///   the run;
/// - 1 for the part of the conversation that the next run needs to load.
const BEFORE_ROWS: usize = 20;

/// The columns of a row of the record after the conversation's key, in the order of
/// [`ToolRow::values`], with their types. The statement casts each value to its type, because
/// parameters in a `VALUES` list have no type.
const RECORD: [(&str, &str); 12] = [
    ("sequence", "bigint"),
    ("call_index", "bigint"),
    ("round_index", "bigint"),
    ("call_id", "bytea"),
    ("name", "bytea"),
    ("status", "text"),
    ("result_sequence", "bigint"),
    ("result_index", "bigint"),
    ("result", "text"),
    ("error", "bytea"),
    ("started", "bigint"),
    ("finished", "bigint"),
];

/// The number of columns in [`RECORD`] that belong to the primary key.
const POSITION_PARAMETERS: usize = 2;

/// The statements for the numbers of messages and rows.
#[derive(Debug)]
pub(crate) struct PlainAppends(Vec<PlainAppend>);

/// The statement for one combination of a number of messages and a number of rows.
#[derive(Debug)]
pub(crate) struct PlainAppend {
    messages: usize,
    tools: usize,
    pub(crate) sql: String,
    /// Whether the store has already stored a write with these numbers.
    was_seen_before: AtomicBool,
}

/// The parameters that describe the position of a write in its conversation and in its run.
#[derive(Debug)]
pub(crate) struct WritePosition {
    incarnation: i64,
    before: i64,
    after: i64,
    run: Vec<u8>,
    run_index: i64,
    at: i64,
    began: i64,
    mode: Option<&'static str>,
    load_from: Option<String>,
}

impl PlainAppends {
    pub(crate) fn new(layout: &Layout) -> Self {
        let shapes = (1..=MAX_MESSAGES)
            .flat_map(|messages| (0..=MAX_TOOLS).map(move |tools| (messages, tools)));
        Self(shapes.map(|(messages, tools)| PlainAppend::new(layout, messages, tools)).collect())
    }

    /// Returns the statement for a plain write. Returns `None` for the first write with these
    /// numbers of messages and rows, because preparing the statement takes a round trip, which does
    /// not pay off for a single use (`lost_connections.rs` counts the round trips).
    ///
    /// Also returns `None` for a write that is not plain. A plain write
    /// - appends to an existing conversation;
    /// - has an activity with at most one model;
    /// - claims no tool calls;
    /// - changes neither the service id (the id under which the model's service has the history)
    ///   nor an open run.
    pub(crate) fn find(&self, write: &Write, tools: &[ToolRow]) -> Option<&PlainAppend> {
        let (expected, result) = (write.expected(), write.result());
        let is_plain = write.as_staged().is_none()
            && write.claims().is_empty()
            && write.service_id().is_none()
            && write.activity().is_some()
            && write.usage().len() <= 1
            && expected.incarnation != 0
            && expected.incarnation == result.incarnation
            && tools.iter().all(|row| (1..=number(result.sequence)).contains(&row.sequence));
        if !is_plain {
            return None;
        }
        let fits = |statement: &&PlainAppend| {
            statement.messages == write.messages().len() && statement.tools == tools.len()
        };
        self.0.iter().find(fits).filter(|found| found.was_seen_before.swap(true, Ordering::Relaxed))
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|statement| statement.sql.as_str())
    }
}

impl PlainAppend {
    fn new(layout: &Layout, messages: usize, tools: usize) -> Self {
        let mut number = BEFORE_ROWS;
        let mut parameter = |kind: &str| {
            number += 1;
            format!("${number}::{kind}")
        };
        let bodies: Vec<_> =
            (1..=messages).map(|position| format!("({position}, {})", parameter("text"))).collect();
        let records: Vec<_> = (0..tools)
            .map(|_| {
                let values: Vec<_> = RECORD.iter().map(|(_, kind)| parameter(kind)).collect();
                format!("({})", values.join(", "))
            })
            .collect();
        let recorded = if tools == 0 { String::new() } else { recorded(&records.join(", ")) };
        let sql = format!(
            "WITH counted AS (
                 UPDATE {{schema}}.conversations AS c SET last_sequence = $5::bigint,
                     load_from = coalesce($20::text, c.load_from),
                     {counted}
                 WHERE c.scope = $1::bytea AND c.conversation = $2::bytea
                     AND c.incarnation = $3::bigint AND c.last_sequence = $4::bigint
                     AND c.visible IS NULL
                 RETURNING c.pruned
             ), used AS (
                 INSERT INTO {{schema}}.run_usage AS u {usage_columns}
                 SELECT $1, $2, $6, $10::bytea, $11::bytea, $9, $19::bigint, $8, $12::bigint, $13::bigint,
                     $14::bigint, $15::bigint, $16::bigint, $17::bigint, $18::bigint
                 FROM counted
                 {add_usage_on_conflict}
             ){recorded}
             INSERT INTO {{schema}}.messages (scope, conversation, sequence, run, run_index, body)
             SELECT $1, $2, $4 + b.ordinal, $6::bytea, $7::bigint + b.ordinal - 1, b.body
             FROM counted, (VALUES {bodies}) AS b(ordinal, body)",
            counted = activity::counted("$8::bigint", "$6::bytea", "$9::text"),
            usage_columns = activity::USAGE_COLUMNS,
            add_usage_on_conflict = activity::add_usage_on_conflict(),
            bodies = bodies.join(", "),
        );
        Self {
            messages,
            tools,
            sql: layout.with_schema(&sql),
            was_seen_before: AtomicBool::new(false),
        }
    }

    /// Returns the values of the statement's parameters, in order.
    pub(crate) fn values<'a>(
        key: &'a StoredKey,
        position: &'a WritePosition,
        usage: &'a UsageRow,
        bodies: &'a [String],
        tools: &'a [ToolRow],
    ) -> Vec<&'a dyn Parameter> {
        let mut values: Vec<&dyn Parameter> = vec![
            &key.scope,
            &key.conversation,
            &position.incarnation,
            &position.before,
            &position.after,
            &position.run,
            &position.run_index,
            &position.at,
            &position.mode,
            &usage.model,
            &usage.long_model,
        ];
        values.extend(usage.counts.iter().map(|count| count as &dyn Parameter));
        values.push(&usage.cost_nanos);
        values.push(&position.began);
        values.push(&position.load_from);
        values.extend(bodies.iter().map(|body| body as &dyn Parameter));
        values.extend(tools.iter().flat_map(ToolRow::values));
        values
    }
}

impl WritePosition {
    pub(crate) fn new(write: &Write, activity: &Activity) -> Self {
        Self {
            incarnation: write.expected().incarnation.cast_signed(),
            before: number(write.expected().sequence),
            after: number(write.result().sequence),
            run: write.run().to_bytes().to_vec(),
            run_index: write.id().index.into(),
            at: activity.at.unwrap_or(activity.began_at),
            began: activity.began_at,
            mode: activity.mode,
            load_from: write.load_from().map(|from| from.to_json()),
        }
    }
}

/// Returns the part of a statement that writes rows of the record of tool calls.
fn recorded(rows: &str) -> String {
    let columns: Vec<_> = RECORD.iter().map(|(column, _)| *column).collect();
    let new: Vec<_> = columns
        .iter()
        .skip(POSITION_PARAMETERS)
        .map(|column| format!("{column} = excluded.{column}"))
        .collect();
    format!(
        ", recorded AS (
             INSERT INTO {{schema}}.tool_invocations (scope, conversation, {columns})
             SELECT $1, $2, r.* FROM counted, (VALUES {rows}) AS r({columns})
             WHERE r.sequence > counted.pruned
             ON CONFLICT (scope, conversation, sequence, call_index) DO UPDATE SET {new}
         )",
        columns = columns.join(", "),
        new = new.join(", "),
    )
}
