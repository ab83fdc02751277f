//! Queries of the record of tool calls.

use std::{collections::HashMap, sync::Arc, time::Duration};

use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, Message,
    store::{
        DayTotals, InvocationQuery, Invocations, SequencePosition, StoreError, ToolTotals,
        UnreadableInvocation, UtcDay,
        author::{RecordedResult, ToolRecord, milliseconds},
    },
};

use crate::{
    connections::{Connections, Query},
    conversation::{column, corrupt, unsigned},
    list, message,
    parameter::Parameter,
    statements::RecordExtent,
    stored_key, tool_row,
};

/// Returns the conversation that a query names; `None` if the query names no conversation.
pub(crate) fn conversation(query: &InvocationQuery) -> Option<ConversationKey> {
    let id = query.conversation.as_deref()?;
    Some(ConversationKey::new(&*query.scope, id))
}

/// The parameters of a query.
struct QueryParameters<'a> {
    scope: Vec<u8>,
    conversation: Option<Vec<u8>>,
    tool: Option<&'a [u8]>,
    status: Option<&'static str>,
    from: Option<i64>,
    to: Option<i64>,
    sequences: Option<Vec<i64>>,
    limit: Option<i64>,
}

impl<'a> QueryParameters<'a> {
    fn new(query: &'a InvocationQuery) -> Self {
        let sequences = query.sequences.as_ref().map(|sequences| {
            let numbers = sequences.iter().filter_map(|sequence| i64::try_from(*sequence).ok());
            numbers.collect()
        });
        Self {
            scope: stored_key::key_part(&query.scope),
            conversation: query.conversation.as_deref().map(stored_key::key_part),
            tool: query.tool.as_deref().map(str::as_bytes),
            status: query.status.map(|status| status.as_str()),
            from: query.started.as_ref().map(|range| milliseconds::bound(range.start)),
            to: query.started.as_ref().map(|range| milliseconds::bound(range.end)),
            sequences,
            limit: query.limit.map(|limit| i64::try_from(limit).unwrap_or(i64::MAX)),
        }
    }

    fn extent(&self) -> RecordExtent {
        RecordExtent {
            of_conversation: self.conversation.is_some(),
            of_messages: self.sequences.is_some(),
        }
    }

    fn values(&self) -> Vec<&dyn Parameter> {
        let mut values: Vec<&dyn Parameter> =
            vec![&self.scope, &self.conversation, &self.tool, &self.status, &self.from, &self.to];
        if let Some(sequences) = &self.sequences {
            values.push(sequences);
        }
        values
    }
}

/// Returns the calls that match a query.
pub(crate) async fn invocations(
    connections: &Connections,
    query: &InvocationQuery,
) -> Result<Invocations, StoreError> {
    let parameters = QueryParameters::new(query);
    let sql = connections.statements.invocations(parameters.extent());
    let mut values = parameters.values();
    values.push(&parameters.limit);
    let statement = Query { sql: &sql, values: &values };
    let action = "read the record of tool calls";
    let [answer] = connections.read(action, &parameters.scope, [statement]).await?;
    let damaged = |reason: String| corrupt(&reason);
    let mut messages = MessagesByPosition::default();
    let mut rows = Vec::new();
    for row in &answer {
        if column(row, 0).map_err(damaged)? {
            rows.push(MatchingRow::read(row, &query.scope).map_err(damaged)?);
        } else {
            messages.take(row).map_err(damaged)?;
        }
    }
    // The rows are sorted here, because SQL guarantees no order of the rows of a union.
    rows.sort_by(|left, right| left.order().cmp(&right.order()));
    let mut invocations = Invocations::default();
    for MatchingRow { key, stored, sequence, index, record } in rows {
        let found = record.and_then(|record| {
            messages.check(&stored, &record)?;
            let found = record.resolve(|sequence| messages.find(&stored, sequence));
            found.map_err(|error| error.to_string())
        });
        match found {
            Ok(invocation) => invocations.found.push((key, invocation)),
            Err(reason) => {
                let unreadable = UnreadableInvocation::new(key, sequence, index, reason);
                invocations.unreadable.push(unreadable);
            }
        }
    }
    Ok(invocations)
}

/// Counts the calls that match a query, per tool.
pub(crate) async fn tool_totals(
    connections: &Connections,
    query: &InvocationQuery,
) -> Result<Vec<ToolTotals>, StoreError> {
    let parameters = QueryParameters::new(query);
    let sql = connections.statements.tool_totals(parameters.extent());
    let statement = Query { sql: &sql, values: &parameters.values() };
    let [rows] = connections.read("count tool calls", &parameters.scope, [statement]).await?;
    let mut totals = Vec::new();
    for row in &rows {
        add(row, &mut totals).map_err(|reason| corrupt(&reason))?;
    }
    Ok(totals)
}

/// Adds the calls of a tool that started on one day and took the same time.
fn add(row: &Row, totals: &mut Vec<ToolTotals>) -> Result<(), String> {
    let count = |index| column::<i64>(row, index).map(i64::cast_unsigned);
    // Invalid bytes in a damaged name are replaced, so that the calls of the tool are counted.
    let name = String::from_utf8_lossy(column(row, 0)?);
    if totals.last().is_none_or(|last| last.name != name) {
        totals.push(ToolTotals::new(name));
    }
    let Some(tool) = totals.last_mut() else { return Ok(()) };
    let of_day = DayTotals { calls: count(1)?, errors: count(2)? };
    tool.calls += of_day.calls;
    tool.errors += of_day.errors;
    tool.open += count(3)?;
    let milliseconds: f64 = column(row, 4)?;
    tool.duration = tool.duration.saturating_add(Duration::from_millis(milliseconds as u64));
    if let Some(taken) = column::<Option<f64>>(row, 5)? {
        tool.times.add(Duration::from_millis(taken as u64), of_day.calls);
    }
    if let Some(day) = column::<Option<f64>>(row, 6)? {
        tool.count_on(UtcDay::from_days(day as i64), of_day);
    }
    Ok(())
}

/// A row that matches a query.
struct MatchingRow {
    key: ConversationKey,
    /// The id of the conversation, as the tables contain it.
    stored: Vec<u8>,
    sequence: u64,
    index: u32,
    record: Result<ToolRecord, String>,
}

const CALL_INDEX: usize = 7;

impl MatchingRow {
    fn read(row: &Row, scope: &str) -> Result<Self, String> {
        let sequence = unsigned(row, 3)?;
        let index = column::<i64>(row, CALL_INDEX)?;
        Ok(Self {
            key: ConversationKey::new(scope, list::id(row, 1, 2)?),
            stored: column(row, 1)?,
            sequence,
            // If the index is out of range, `tool_row::read` returns an error.
            index: u32::try_from(index).unwrap_or(u32::MAX),
            record: tool_row::read(row, CALL_INDEX, sequence),
        })
    }

    fn order(&self) -> (&str, u64, u32) {
        (self.key.id(), self.sequence, self.index)
    }
}

/// The messages to which rows refer, by conversation and sequence number.
#[derive(Default)]
struct MessagesByPosition(HashMap<Vec<u8>, HashMap<u64, Readable>>);

/// A message, or the reason why it cannot be read.
type Readable = Result<Arc<Message>, String>;

impl MessagesByPosition {
    fn take(&mut self, row: &Row) -> Result<(), String> {
        let message = message::read(row, 4).map(Arc::new).map_err(|error| error.to_string());
        let (conversation, sequence): (Vec<u8>, i64) = (column(row, 1)?, column(row, 3)?);
        self.0.entry(conversation).or_default().insert(sequence.cast_unsigned(), message);
        Ok(())
    }

    fn get(&self, conversation: &[u8], sequence: u64) -> Option<&Readable> {
        self.0.get(conversation)?.get(&sequence)
    }

    fn find(&self, conversation: &[u8], sequence: u64) -> Option<Arc<Message>> {
        self.get(conversation, sequence)?.as_ref().ok().cloned()
    }

    /// Returns an error if a message that a row refers to cannot be decoded.
    fn check(&self, conversation: &[u8], record: &ToolRecord) -> Result<(), String> {
        let in_message = match record.result {
            RecordedResult::InMessage(SequencePosition { sequence, .. }) => Some(sequence),
            RecordedResult::None | RecordedResult::Apart(_) => None,
        };
        for sequence in [Some(record.call.sequence), in_message].into_iter().flatten() {
            if let Some(Err(reason)) = self.get(conversation, sequence) {
                return Err(format!("message {sequence}: {reason}"));
            }
        }
        Ok(())
    }
}
