//! The write that most are: a few messages after the last, outside of an open run.
//!
//! It is one statement in which every row is spelled out, since that takes the server about half of
//! the time of its [function](crate::functions), which takes lists of any length. The function is
//! asked for all other writes, and for those that do not find the conversation as they expect it: it
//! alone says what is a conflict, and what is stored already.
//!
//! Its cost does not depend on the length of the conversation. PostgreSQL 15, without statistics of the
//! tables, took 34 us in a conversation without messages and 36 us in one of 100,000, by the same plan
//! (`EXPLAIN (ANALYZE, BUFFERS)`): an index scan of the row in `conversations`, and as many pages as the
//! rows need. What can grow is outside of the statement: where the tables are larger than
//! `shared_buffers`, a backend that needs a page for a new row writes a changed one out first.

use std::sync::atomic::{AtomicBool, Ordering};

use tower_chat_core::store::author::Write;

use crate::{
    activity::{self, Activity, UsageRow},
    parameter::Parameter,
    schema::Layout,
    stored_key::StoredKey,
    tool_row::{ToolRow, number},
};

/// The most messages and rows of the record of a write that has a statement of its own. Each
/// connection that uses a statement keeps its plan, so there must not be many.
const MOST_MESSAGES: usize = 4;
const MOST_TOOLS: usize = 8;

/// The parameters before those of the rows: both halves of the key, the incarnation, the last
/// sequence before and after, the run, the first message's position in it, and what is told of the
/// run: when, in which mode, the model in two columns, seven counts, and when it began.
const BEFORE_ROWS: usize = 19;

/// The columns of a row of the record after its key, in the order of [`ToolRow::values`], with their
/// types: a value in a list of rows has none but that which it is given.
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

/// How many of these columns are the row's key.
const POSITION_PARAMETERS: usize = 2;

/// The statements, one for each number of messages and rows of the record.
#[derive(Debug)]
pub(crate) struct PlainAppends(Vec<PlainAppend>);

/// One of them.
#[derive(Debug)]
pub(crate) struct PlainAppend {
    messages: usize,
    tools: usize,
    pub(crate) sql: String,
    /// A write of this shape has come before. Without it the first append of a process took a round
    /// trip more, for a prepared statement that a process with one short conversation never uses
    /// again; the tests in `lost_connections.rs` count the round trips.
    has_come: AtomicBool,
}

/// What a write says of its position.
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
}

impl PlainAppends {
    pub(crate) fn new(layout: &Layout) -> Self {
        let shapes = (1..=MOST_MESSAGES)
            .flat_map(|messages| (0..=MOST_TOOLS).map(move |tools| (messages, tools)));
        Self(shapes.map(|(messages, tools)| PlainAppend::new(layout, messages, tools)).collect())
    }

    /// The statement for a write, if there is one, and its like has come before: to prepare it takes
    /// a round trip, which is lost on what comes once.
    ///
    /// It tells of its run, and of one model at most.
    pub(crate) fn find(&self, write: &Write, tools: &[ToolRow<'_>]) -> Option<&PlainAppend> {
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
        self.0.iter().find(fits).filter(|found| found.has_come.swap(true, Ordering::Relaxed))
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
                     {counted}
                 WHERE c.scope = $1::bytea AND c.conversation = $2::bytea
                     AND c.incarnation = $3::bigint AND c.last_sequence = $4::bigint
                     AND c.visible IS NULL
                 RETURNING c.pruned
             ), used AS (
                 INSERT INTO {{schema}}.run_usage AS u {used}
                 SELECT $1, $2, $6, $10::bytea, $11::bytea, $9, $19::bigint, $8, $12::bigint, $13::bigint,
                     $14::bigint, $15::bigint, $16::bigint, $17::bigint, $18::bigint
                 FROM counted
                 {used_again}
             ){recorded}
             INSERT INTO {{schema}}.messages (scope, conversation, sequence, run, run_index, body)
             SELECT $1, $2, $4 + b.ordinal, $6::bytea, $7::bigint + b.ordinal - 1, b.body
             FROM counted, (VALUES {bodies}) AS b(ordinal, body)",
            counted = activity::counted("$8::bigint", "$6::bytea", "$9::text"),
            used = activity::USED,
            used_again = activity::used_again(),
            bodies = bodies.join(", "),
        );
        Self { messages, tools, sql: layout.with_schema(&sql), has_come: AtomicBool::new(false) }
    }

    /// The values of the parameters.
    pub(crate) fn values<'a>(
        key: &'a StoredKey,
        position: &'a WritePosition,
        usage: &'a UsageRow,
        bodies: &'a [String],
        tools: &'a [ToolRow<'_>],
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
            at: activity.at.unwrap_or(activity.made),
            began: activity.made,
            mode: activity.mode,
        }
    }
}

/// The part of a statement that brings the record up to date.
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
