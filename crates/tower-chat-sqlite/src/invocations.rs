//! Queries of the record of tool calls, which has one row for each call. Staged messages belong to
//! a run that is not committed yet, and readers do not see them.

use std::{collections::HashMap, sync::Arc};

use rusqlite::{Connection, Row, types::Value};
use tower_chat_core::{
    ConversationKey, Message,
    store::{
        InvocationQuery, Invocations, SequencePosition, UnreadableInvocation,
        author::{RecordedResult, ToolRecord, milliseconds},
    },
};

use crate::{
    read::{self, NotRead, VISIBLE},
    removal::NOT_DELETED,
    row_key, tool_row,
};

/// Returns the conversation that a query names; `None` if the query names no conversation.
pub(crate) fn conversation(query: &InvocationQuery) -> Option<ConversationKey> {
    let id = query.conversation.as_deref()?;
    Some(ConversationKey::new(&*query.scope, id))
}

/// The clauses `FROM` and `WHERE`, with their parameters, of a statement that selects the rows that
/// match a query. The alias of the rows is `t`, and that of their conversations is `c`. Rows of
/// staged messages do not match.
pub(crate) struct Filter {
    pub(crate) sql: String,
    pub(crate) values: Vec<Value>,
}

impl Filter {
    pub(crate) fn new(query: &InvocationQuery) -> Self {
        let mut filter = Self { sql: String::new(), values: Vec::new() };
        // `CROSS JOIN` makes SQLite read the conversations first, and find their rows by the row
        // keys.
        match &query.sequences {
            None => filter.add(
                &format!(
                    "FROM conversations c CROSS JOIN tool_invocations t
                     ON t.place BETWEEN c.id << 32 AND (c.id << 32) + {VISIBLE}"
                ),
                [],
            ),
            Some(sequences) => filter.add(
                &format!(
                    "FROM conversations c CROSS JOIN json_each(?) message
                     CROSS JOIN tool_invocations t
                     ON t.place = (c.id << 32) + message.value AND message.value <= {VISIBLE}"
                ),
                [list(sequences).into()],
            ),
        }
        filter.add(" WHERE c.scope = ?", [query.scope.clone().into()]);
        // Conversations whose deletion has begun are in the empty scope. A query of any other scope
        // needs no condition that excludes them, so that SQLite reads only the index.
        if query.scope.is_empty() {
            filter.add(&format!(" AND {NOT_DELETED}"), []);
        }
        if let Some(conversation) = &query.conversation {
            filter.add(" AND c.conversation = ?", [conversation.clone().into()]);
        }
        if let Some(tool) = &query.tool {
            filter.add(" AND t.name = ?", [tool.clone().into()]);
        }
        if let Some(status) = query.status {
            filter.add(" AND t.status = ?", [status.as_str().to_owned().into()]);
        }
        if let Some(range) = &query.started {
            let bounds = [range.start, range.end].map(milliseconds::bound).map(Value::from);
            filter.add(" AND t.started >= ? AND t.started < ?", bounds);
        }
        filter
    }

    fn add<const COUNT: usize>(&mut self, sql: &str, values: [Value; COUNT]) {
        self.sql.push_str(sql);
        self.values.extend(values);
    }
}

/// Returns the valid sequence numbers without duplicates, as a JSON array.
fn list(sequences: &[u64]) -> String {
    let mut numbers: Vec<u64> = sequences
        .iter()
        .copied()
        .filter(|sequence| (1..=row_key::LAST_SEQUENCE).contains(sequence))
        .collect();
    numbers.sort_unstable();
    numbers.dedup();
    let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
    format!("[{}]", numbers.join(","))
}

/// Returns the calls that match a query. One statement reads the rows and the messages to which the
/// rows refer.
pub(crate) fn invocations(
    connection: &Connection,
    query: &InvocationQuery,
) -> Result<Invocations, NotRead> {
    let Filter { sql, mut values } = Filter::new(query);
    let sql = format!(
        "WITH asked AS MATERIALIZED (
             SELECT c.conversation, t.*,
                 CASE WHEN t.result_sequence BETWEEN 1 AND 4294967295
                 THEN (t.place >> 32 << 32) + t.result_sequence END AS result_place
             {sql}
             ORDER BY c.conversation, t.place, t.call_index LIMIT ?
         )
         SELECT place, NULL, NULL, NULL, NULL, conversation, {columns} FROM asked
         UNION ALL
         SELECT place, run, run_index, body, checksum, NULL, {nothing} FROM messages
         WHERE place IN (SELECT place FROM asked UNION SELECT result_place FROM asked)",
        columns = tool_row::COLUMNS,
        nothing = ["NULL"; 11].join(", "),
    );
    let limit = query.limit.map_or(-1, |limit| i64::try_from(limit).unwrap_or(i64::MAX));
    values.push(limit.into());
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(rusqlite::params_from_iter(values))?;
    let mut messages = Messages::default();
    let mut asked = Vec::new();
    while let Some(row) = rows.next()? {
        match row.get::<_, Option<Arc<str>>>(CONVERSATION)? {
            None => messages.take(row)?,
            Some(conversation) => asked.push(Asked::read(row, &query.scope, conversation)?),
        }
    }
    // The rows are sorted here, because SQL guarantees no order of the rows of a union.
    asked.sort_by(|left, right| left.order().cmp(&right.order()));
    let mut invocations = Invocations::default();
    for Asked { key, row_key, index, record } in asked {
        let found = record.and_then(|record| {
            messages.check(row_key, &record)?;
            let found = record.resolve(|sequence| messages.find(row_key, sequence));
            found.map_err(|error| error.to_string())
        });
        match found {
            Ok(invocation) => invocations.found.push((key, invocation)),
            Err(reason) => {
                let sequence = row_key::sequence(row_key);
                let unreadable = UnreadableInvocation::new(key, sequence, index, reason);
                invocations.unreadable.push(unreadable);
            }
        }
    }
    Ok(invocations)
}

/// The index of the column with the conversation's id, which is NULL in rows of messages.
const CONVERSATION: usize = 5;

/// A row that matches a query.
struct Asked {
    key: ConversationKey,
    row_key: i64,
    /// The index of the call in its message, from 0.
    index: u32,
    /// The row, or a description of its damage.
    record: Result<ToolRecord, String>,
}

impl Asked {
    fn read(row: &Row<'_>, scope: &str, conversation: Arc<str>) -> rusqlite::Result<Self> {
        let row_key = row.get(0)?;
        let first = CONVERSATION + 1;
        Ok(Self {
            key: ConversationKey::new(scope, conversation),
            row_key,
            // If the index is out of range, `tool_row::read` returns an error.
            index: row.get(first).unwrap_or(u32::MAX),
            record: tool_row::read(row, first, row_key::sequence(row_key)),
        })
    }

    fn order(&self) -> (&str, i64, u32) {
        (self.key.id(), self.row_key, self.index)
    }
}

/// The messages to which rows refer, by row key.
#[derive(Default)]
struct Messages(HashMap<i64, Result<Arc<Message>, String>>);

impl Messages {
    fn take(&mut self, row: &Row<'_>) -> rusqlite::Result<()> {
        let message = read::message(row)?.map(Arc::new).map_err(|error| error.to_string());
        self.0.insert(row.get(0)?, message);
        Ok(())
    }

    /// Returns a message in the conversation of `row_key`; `None` if it is missing or cannot be
    /// decoded.
    fn find(&self, row_key: i64, sequence: u64) -> Option<Arc<Message>> {
        self.0.get(&in_conversation_of(row_key, sequence)?)?.as_ref().ok().cloned()
    }

    /// Returns an error if a message that a row refers to cannot be decoded.
    fn check(&self, row_key: i64, record: &ToolRecord) -> Result<(), String> {
        let in_message = match record.result {
            RecordedResult::InMessage(SequencePosition { sequence, .. }) => Some(sequence),
            RecordedResult::None | RecordedResult::Apart(_) => None,
        };
        for sequence in [Some(record.call.sequence), in_message].into_iter().flatten() {
            let message =
                in_conversation_of(row_key, sequence).and_then(|row_key| self.0.get(&row_key));
            if let Some(Err(reason)) = message {
                return Err(format!("message {sequence}: {reason}"));
            }
        }
        Ok(())
    }
}

/// Returns the row key of a message in the conversation of another row key.
fn in_conversation_of(row_key: i64, sequence: u64) -> Option<i64> {
    row_key::of_message(row_key::conversation(row_key), sequence)
}
