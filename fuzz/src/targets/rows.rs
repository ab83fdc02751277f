//! Fuzz targets for rows of a store that another program has changed.

use std::sync::Arc;

use rusqlite::{
    Connection, params,
    types::{Value, ValueRef},
};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tower_chat::{
    HistoryStore,
    store::{Directory, InvocationQuery, Journal, ToolCallQueries},
};
use tower_chat_encrypted::{EncryptedStore, MasterKeys, SecretKey};
use tower_chat_sqlite::{Durability, SqliteStore};
use tower_chat_testkit::Rng;

use super::{
    Entry, Made,
    filled::{conversation, fill},
    rules::replayed,
};

/// Numbers that do not occur in most columns of a store.
const INTEGERS: [i64; 8] = [-1, 0, 1, 9, u32::MAX as i64, 1 << 40, i64::MAX, i64::MIN];

/// Returns the targets for the rows of a `SqliteStore`, and of one behind an `EncryptedStore`.
pub(crate) fn targets() -> [Entry; 2] {
    let sealed = || {
        let keys = MasterKeys::new("master", SecretKey::from_bytes([7; 32])).expect("a key");
        target(Rows::new(|store| Arc::new(EncryptedStore::new(store, keys))))
    };
    [
        Entry::new("sqlite-rows", "the rows of a SqliteStore", || {
            target(Rows::new(|store| Arc::new(store)))
        })
        .slow(),
        Entry::new("sealed-rows", "the rows of an EncryptedStore", sealed).slow(),
    ]
}

fn target(rows: Rows) -> Made {
    let seeds = rows.cells.iter().filter_map(Cell::text).collect();
    (seeds, Box::new(move |bytes: &[u8], rng: &mut Rng| rows.accepts(bytes, rng)))
}

struct Rows {
    runtime: Runtime,
    store: Arc<dyn HistoryStore>,
    /// The connection that damages the rows.
    other: Connection,
    cells: Vec<Cell>,
    _folder: TempDir,
}

/// One value of a row.
struct Cell {
    table: &'static str,
    column: String,
    /// The value of [`key`] for the row.
    row: i64,
    /// The original value.
    value: Value,
}

impl Rows {
    fn new(wrap: impl FnOnce(SqliteStore) -> Arc<dyn HistoryStore>) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
        let runtime = runtime.expect("a runtime");
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("rows.db");
        let options = SqliteStore::options().with_durability(Durability::Normal);
        let store = wrap(runtime.block_on(options.open(&path)).expect("a store"));
        runtime.block_on(fill(&*store));
        let other = Connection::open(&path).expect("a connection");
        other.pragma_update(None, "ignore_check_constraints", true).expect("a setting");
        other.pragma_update(None, "synchronous", "OFF").expect("a setting");
        let cells = cells(&other).expect("rows");
        Self { runtime, store, other, cells, _folder: folder }
    }

    /// Writes a damaged value into a random cell, reads the store, and restores the cell. The
    /// damaged value is a random number if the cell contains a number, and otherwise the bytes of
    /// the input. Returns whether the whole store could be read.
    fn accepts(&self, bytes: &[u8], rng: &mut Rng) -> bool {
        let cell = rng.one_of(&self.cells).expect("a cell");
        let damaged = match cell.value {
            Value::Integer(_) => rng.one_of(&INTEGERS).copied().map(Value::Integer),
            _ => Some(Value::Blob(bytes.to_vec())),
        };
        if self.put(cell, &damaged.expect("a number")).is_err() {
            return false;
        }
        let is_read = self.runtime.block_on(read(&*self.store));
        self.put(cell, &cell.value).expect("the original value is written");
        is_read
    }

    fn put(&self, cell: &Cell, value: &Value) -> rusqlite::Result<()> {
        let Cell { table, column, row, .. } = cell;
        // The text of a column may be invalid UTF-8.
        let kind = match (&cell.value, value) {
            (Value::Text(_), Value::Blob(_)) => "CAST(?1 AS TEXT)",
            _ => "?1",
        };
        let sql = format!("UPDATE {table} SET {column} = {kind} WHERE {} = ?2", key(table));
        self.other.prepare_cached(&sql)?.execute(params![value, row]).map(drop)
    }
}

impl Cell {
    fn text(&self) -> Option<Vec<u8>> {
        match &self.value {
            Value::Text(text) => Some(text.clone().into_bytes()),
            _ => None,
        }
    }
}

/// Returns the SQL expression that identifies a row of a table.
fn key(table: &str) -> &'static str {
    match table {
        "tool_invocations" => "place * 16 + call_index",
        _ => "rowid",
    }
}

fn cells(connection: &Connection) -> rusqlite::Result<Vec<Cell>> {
    let mut cells = Vec::new();
    for table in ["messages", "tool_invocations", "conversations", "open_runs"] {
        let mut statement =
            connection.prepare(&format!("SELECT {}, * FROM {table}", key(table)))?;
        let names: Vec<String> = statement.column_names().map(str::to_owned).collect();
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            for (index, column) in names.iter().enumerate().skip(1) {
                // The key columns remain unchanged, so that the row can be found and restored.
                let is_key = matches!(&**column, "place" | "call_index" | "id" | "number");
                if is_key || matches!(row.get_ref(index)?, ValueRef::Null) {
                    continue;
                }
                let (row, value) = (row.get(0)?, row.get(index)?);
                cells.push(Cell { table, column: column.clone(), row, value });
            }
        }
    }
    Ok(cells)
}

async fn read(store: &dyn HistoryStore) -> bool {
    let key = conversation();
    let mut is_read = store.head(&key).await.is_ok();
    is_read &= match store.load(&key).await {
        Ok(history) => replayed(&history.messages).len() > 1,
        Err(error) => error.to_string().is_empty(),
    };
    is_read &= store.open_run(&key).await.is_ok();
    is_read &= store.open_runs("fuzz", None, 9).await.is_ok();
    is_read &= store.list("fuzz", None, 9).await.is_ok();
    let query = InvocationQuery::in_scope("fuzz");
    is_read &= store.invocations(&query).await.is_ok_and(|found| found.unreadable.is_empty());
    is_read & store.tool_totals(&query).await.is_ok()
}
