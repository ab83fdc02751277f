//! A bare SQLite connection, whose writes are the floor of the SQLite benchmarks: the time of the
//! store is compared with the time in which this connection writes the same rows.
//!
//! The file has the same tables and indexes as the file of the store, and the connection sets the
//! same pragmas. An append uses prepared statements and already encoded messages. Unlike the store,
//! it does not check whether another writer has changed the conversation.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params, types::ValueRef};
use tower_chat::{BoxError, ConversationKey, Message, run::RunId, store::format};
use tower_chat_sqlite::Durability;

use crate::{
    rows::{BareAppend, BareRecord},
    workload,
};

#[derive(Debug)]
pub(crate) struct Bare {
    connection: Connection,
}

/// A conversation to which a bare connection appends a run. The connection reads the last sequence
/// number once, and not for each append.
#[derive(Debug)]
pub(crate) struct BareConversation {
    key: ConversationKey,
    run: [u8; 16],
    /// The number of the conversation in the file, if it exists.
    number: Option<i64>,
    last_sequence: i64,
    run_index: u32,
}

impl Bare {
    pub(crate) fn open(path: &Path, durability: Durability) -> Result<Self, BoxError> {
        let synchronous = match durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
            _ => return Err("this durability has no floor".into()),
        };
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
        Ok(Self { connection })
    }

    pub(crate) fn conversation(&self, key: &ConversationKey) -> Result<BareConversation, BoxError> {
        let number = self.find(key)?;
        let last: Option<i64> = self.connection.query_row(
            "SELECT max(place) FROM messages WHERE place BETWEEN ?1 << 32 AND (?1 << 32) + 4294967295",
            [number],
            |row| row.get(0),
        )?;
        let last_sequence = last.map_or(0, |row_key| row_key & i64::from(u32::MAX));
        let run = RunId::new().to_bytes();
        Ok(BareConversation { key: key.clone(), run, number, last_sequence, run_index: 0 })
    }

    /// Executes a transaction with one row for each encoded message and each tool call.
    pub(crate) fn append(
        &self,
        to: &mut BareConversation,
        BareAppend { bodies, records }: &BareAppend,
    ) -> Result<(), BoxError> {
        self.run("BEGIN IMMEDIATE")?;
        let number = match to.number {
            Some(number) => number,
            None => *to.number.insert(self.insert(&to.key)?),
        };
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO messages (place, run, run_index, body) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let first = to.last_sequence + 1;
        for body in bodies {
            to.last_sequence += 1;
            let row_key = (number << 32) | to.last_sequence;
            insert.execute(params![row_key, to.run, to.run_index, body])?;
            to.run_index += 1;
        }
        self.put(number, first, records)?;
        self.run("COMMIT")
    }

    fn put(&self, number: i64, first: i64, records: &[BareRecord]) -> Result<(), BoxError> {
        let mut put = self.connection.prepare_cached(
            "REPLACE INTO tool_invocations
             VALUES (?1, 0, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL, ?8, ?8)",
        )?;
        for record in records {
            let result = record.result.map(|position| first + position);
            let time = result.map(|_| 1_784_000_000_000_i64);
            put.execute(params![
                (number << 32) | (first + record.call),
                record.round,
                "call_00000000",
                workload::TOOL,
                if result.is_some() { "ok" } else { "pending" },
                result,
                result.map(|_| 0),
                time,
            ])?;
        }
        Ok(())
    }

    pub(crate) fn load(&self, key: &ConversationKey) -> Result<Vec<Message>, BoxError> {
        let Some(number) = self.find(key)? else { return Ok(Vec::new()) };
        let mut select = self.connection.prepare_cached(
            "SELECT place, run, run_index, body FROM messages
             WHERE place BETWEEN ?1 AND ?2 ORDER BY place",
        )?;
        let mut rows = select.query([number << 32, (number << 32) | i64::from(u32::MAX)])?;
        let mut messages = Vec::new();
        while let Some(row) = rows.next()? {
            std::hint::black_box((row.get::<_, i64>(0)?, row.get::<_, i64>(2)?));
            std::hint::black_box(row.get_ref(1)?.as_blob()?);
            messages.push(format::decode(row.get_ref(3)?.as_str()?)?);
        }
        Ok(messages)
    }

    /// Empties the write-ahead log.
    pub(crate) fn empty_log(&self) -> Result<(), BoxError> {
        let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
        let is_busy: bool = self.connection.query_row(sql, [], |row| row.get(0))?;
        if is_busy { Err("the log was in use".into()) } else { Ok(()) }
    }

    /// Returns the number of rows of each table, and the total size of its columns.
    pub(crate) fn content(&self) -> Result<Vec<i64>, BoxError> {
        let sql = "SELECT * FROM (
                SELECT count(*), total(length(scope) + length(conversation)) FROM conversations
            ), (
                SELECT count(*), total(length(run) + run_index), total(length(body)) FROM messages
            ), (
                SELECT count(*), total(call_index + round_index), total(length(call_id)),
                    total(length(name) + length(status)), total(result_sequence + result_index),
                    count(result), count(error), count(started), count(finished)
                FROM tool_invocations
            )";
        let mut statement = self.connection.prepare(sql)?;
        let columns = statement.column_count();
        let content = statement.query_row([], |row| {
            (0..columns)
                .map(|column| match row.get_ref(column)? {
                    ValueRef::Integer(count) => Ok(count),
                    _ => row.get::<_, f64>(column).map(|total| total as i64),
                })
                .collect()
        })?;
        Ok(content)
    }

    fn insert(&self, key: &ConversationKey) -> Result<i64, BoxError> {
        let sql =
            "INSERT INTO conversations (scope, conversation, incarnation) VALUES (?1, ?2, ?3)";
        let incarnation = RunId::new().random_half().cast_signed();
        let row = params![key.scope(), key.id(), incarnation];
        Ok(self.connection.prepare_cached(sql)?.insert(row)?)
    }

    fn find(&self, key: &ConversationKey) -> Result<Option<i64>, BoxError> {
        let sql = "SELECT id FROM conversations WHERE scope = ?1 AND conversation = ?2";
        let mut find = self.connection.prepare_cached(sql)?;
        Ok(find.query_row([key.scope(), key.id()], |row| row.get(0)).optional()?)
    }

    fn run(&self, sql: &str) -> Result<(), BoxError> {
        self.connection.prepare_cached(sql)?.execute([])?;
        Ok(())
    }
}
