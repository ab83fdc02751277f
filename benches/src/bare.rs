//! The floor of the SQLite cases: one reused connection on the calling thread.
//!
//! It has the pragmas, tables, indexes and rows of the store, prepared statements, and messages
//! that are in their stored form already; it checks no revision.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, params};
use tower_chat::core::{BoxError, ConversationKey, Message, RunId, format};
use tower_chat_sqlite::Durability;

use crate::workload;

/// A connection to a store's file.
#[derive(Debug)]
pub(crate) struct Bare {
    connection: Connection,
}

/// A conversation that a bare connection appends to.
#[derive(Debug)]
pub(crate) struct BareConversation {
    key: ConversationKey,
    run: [u8; 16],
    /// Its number in the file, once it is known.
    number: Option<i64>,
    last_sequence: i64,
    run_index: u32,
}

/// A row of the record of tool calls. Messages are numbered from the first of the append, which is
/// 0; the message before it is -1.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BareRecord {
    /// The message that asks.
    pub(crate) call: i64,
    /// The message that answers, if the call was answered.
    pub(crate) result: Option<i64>,
}

impl BareConversation {
    /// A conversation with so many stored messages.
    pub(crate) fn new(key: ConversationKey, history: usize) -> Result<Self, BoxError> {
        let last_sequence = i64::try_from(history)?;
        let run = RunId::new().to_bytes();
        Ok(Self { key, run, number: None, last_sequence, run_index: 0 })
    }

    /// Whether nothing was appended to it yet.
    pub(crate) fn is_new(&self) -> bool {
        self.run_index == 0
    }
}

impl Bare {
    pub(crate) fn open(path: &Path, durability: Durability) -> Result<Self, BoxError> {
        let synchronous = match durability {
            Durability::Full => "FULL",
            Durability::Normal => "NORMAL",
            _ => return Err("a durability without a floor".into()),
        };
        let connection = Connection::open(path)?;
        connection.pragma_update(None, "synchronous", synchronous)?;
        connection.query_row("PRAGMA secure_delete = ON", [], |_| Ok(()))?;
        Ok(Self { connection })
    }

    /// One transaction with one row for each body and each record.
    pub(crate) fn append(
        &self,
        to: &mut BareConversation,
        bodies: &[String],
        records: &[BareRecord],
    ) -> Result<(), BoxError> {
        self.run("BEGIN IMMEDIATE")?;
        let number = match to.number {
            Some(number) => number,
            None => *to.number.insert(self.find_or_insert(&to.key)?),
        };
        let mut insert = self.connection.prepare_cached(
            "INSERT INTO messages (place, run, run_index, body) VALUES (?1, ?2, ?3, ?4)",
        )?;
        let first = to.last_sequence + 1;
        for body in bodies {
            to.last_sequence += 1;
            let place = (number << 32) | to.last_sequence;
            insert.execute(params![place, to.run, to.run_index, body])?;
            to.run_index += 1;
        }
        for record in records {
            self.put(number, first, record)?;
        }
        self.run("COMMIT")
    }

    fn put(&self, number: i64, first: i64, record: &BareRecord) -> Result<(), BoxError> {
        let result = record.result.map(|place| first + place);
        let time = result.map(|_| 1_784_000_000_000_i64);
        self.connection
            .prepare_cached(
                "REPLACE INTO tool_invocations
                 VALUES (?1, 0, ?2, ?3, ?4, ?5, ?6, ?7, NULL, NULL, ?8, ?8)",
            )?
            .execute(params![
                (number << 32) | (first + record.call),
                record.call.max(0) / 2,
                "call_00000000",
                workload::TOOL,
                if result.is_some() { "ok" } else { "pending" },
                result,
                result.map(|_| 0),
                time,
            ])?;
        Ok(())
    }

    /// All messages of a conversation, parsed.
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

    fn find_or_insert(&self, key: &ConversationKey) -> Result<i64, BoxError> {
        if let Some(number) = self.find(key)? {
            return Ok(number);
        }
        let sql = "INSERT INTO conversations (scope, conversation, incarnation) VALUES (?1, ?2, 1)";
        Ok(self.connection.prepare_cached(sql)?.insert([key.scope(), key.id()])?)
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
