//! Deleting a conversation in steps of a bounded size.
//!
//! SQLite overwrites deleted rows with zeros, and writes every changed page to the write-ahead log.
//! One transaction that deletes a large conversation would therefore enlarge the log by the size of
//! the conversation, which fails on a full disk. Instead, the first transaction renames the
//! conversation, so that no reader finds it. The next transactions delete the rows of the
//! conversation in steps, with a checkpoint after each step. The row of the conversation itself is
//! deleted last, so that no new conversation gets the same number while other rows with this number
//! remain. If a crash interrupts a deletion, the next process that opens the file for writing
//! continues the deletion.

use rusqlite::{Connection, OptionalExtension, params};

use crate::{history_summary, row_key};

/// The maximum number of bytes that one step deletes, unless a single row is larger.
pub(crate) const STEP: u64 = 1 << 20;
/// The maximum number of rows that one step deletes.
const ROWS: usize = 1000;

/// The SQL condition that excludes conversations whose deletion has begun, which have the
/// incarnation (random number) 0. The table `conversations` has the alias `c`.
pub(crate) const NOT_DELETED: &str = "c.incarnation <> 0";

/// Returns whether a conversation is small enough to be deleted in one transaction.
pub(crate) fn is_one_step(connection: &Connection, number: i64) -> rusqlite::Result<bool> {
    let (_, last) = row_key::range(number);
    let first_of = |table| end_of_step(connection, table, number, STEP);
    Ok(first_of(Table::Messages)?.is_none_or(|end| end == last)
        && first_of(Table::Tools)?.is_none_or(|end| end == last))
}

/// Begins a deletion: moves the conversation to the empty scope under a random name, so that
/// readers do not find it. Also deletes the open run (the run that is not committed yet), the
/// summaries and the description of the conversation.
pub(crate) fn begin(connection: &Connection, number: i64) -> rusqlite::Result<()> {
    connection
        .prepare_cached(
            "UPDATE conversations SET scope = '', incarnation = 0, service_id = NULL, title = NULL,
                 metadata = NULL, conversation = 'deleted ' || hex(randomblob(16))
             WHERE id = ?1",
        )?
        .execute([number])?;
    connection.prepare_cached("DELETE FROM open_runs WHERE number = ?1")?.execute([number])?;
    history_summary::delete(connection, row_key::range(number))?;
    Ok(())
}

/// Returns the number of any conversation whose deletion has begun.
pub(crate) fn find(connection: &Connection) -> rusqlite::Result<Option<i64>> {
    connection
        .prepare_cached(
            "SELECT id FROM conversations WHERE scope = '' AND incarnation = 0
                 AND conversation >= 'deleted ' AND conversation < 'deleted!' LIMIT 1",
        )?
        .query_row([], |row| row.get(0))
        .optional()
}

/// Deletes about `bytes` bytes of rows of a conversation from one table. If no rows remain, deletes
/// the row of the conversation itself and returns true.
pub(crate) fn step(connection: &Connection, number: i64, bytes: u64) -> rusqlite::Result<bool> {
    let (first, _) = row_key::range(number);
    for table in [Table::Messages, Table::Tools] {
        if let Some(end) = end_of_step(connection, table, number, bytes)? {
            connection.prepare_cached(table.delete())?.execute([first, end])?;
            return Ok(false);
        }
    }
    connection.prepare_cached("DELETE FROM conversations WHERE id = ?1")?.execute([number])?;
    Ok(true)
}

#[derive(Debug, Clone, Copy)]
enum Table {
    Messages,
    Tools,
}

impl Table {
    fn sizes(self) -> &'static str {
        match self {
            Self::Messages => {
                "SELECT place, length(body) FROM messages
                 WHERE place BETWEEN ?1 AND ?2 ORDER BY place"
            }
            Self::Tools => {
                "SELECT place, ifnull(length(result), 0) + ifnull(length(error), 0)
                 FROM tool_invocations WHERE place BETWEEN ?1 AND ?2 ORDER BY place"
            }
        }
    }

    fn delete(self) -> &'static str {
        match self {
            Self::Messages => "DELETE FROM messages WHERE place BETWEEN ?1 AND ?2",
            Self::Tools => "DELETE FROM tool_invocations WHERE place BETWEEN ?1 AND ?2",
        }
    }
}

/// Returns the last row key that the next step deletes from a table: the largest possible one if
/// the step deletes all remaining rows of the conversation. Returns `None` if there are no rows.
fn end_of_step(
    connection: &Connection,
    table: Table,
    number: i64,
    bytes: u64,
) -> rusqlite::Result<Option<i64>> {
    let (first, last) = row_key::range(number);
    let mut statement = connection.prepare_cached(table.sizes())?;
    let mut rows = statement.query(params![first, last])?;
    let (mut end, mut sum, mut count) = (None, 0_u64, 0_usize);
    while let Some(row) = rows.next()? {
        let size: i64 = row.get(1)?;
        sum = sum.saturating_add(size.unsigned_abs());
        count = count.saturating_add(1);
        if end.is_some() && (sum > bytes || count > ROWS) {
            return Ok(end);
        }
        end = Some(row.get(0)?);
    }
    Ok(end.map(|_| last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_within_the_limits_of_a_step_is_deleted_in_one_step() {
        let half = usize::try_from(STEP / 2).unwrap();
        // Each case contains the lengths of the messages, the lengths of the results, and whether
        // one step suffices. The next conversation in the file has a large message, which must not
        // be counted.
        let cases: [(&[usize], &[usize], bool); 6] = [
            (&[], &[], true),
            (&[10, 20], &[30], true),
            (&[half], &[half], true),
            (&[half, half, half], &[], false),
            (&[10], &[half, half, half], false),
            (&[1; ROWS + 1], &[], false),
        ];
        for (messages, results, fits) in cases {
            let connection = Connection::open_in_memory().unwrap();
            let tables = "CREATE TABLE messages (place INTEGER PRIMARY KEY, body BLOB);
                 CREATE TABLE tool_invocations (place INTEGER PRIMARY KEY, result TEXT, error TEXT);";
            connection.execute_batch(tables).unwrap();
            let insert = |sql, row: i64, length: usize| {
                connection.execute(sql, params![row, "x".repeat(length)]).unwrap();
            };
            let message = "INSERT INTO messages VALUES (?1, ?2)";
            let result = "INSERT INTO tool_invocations VALUES (?1, ?2, NULL)";
            let (first, _) = row_key::range(7);
            for (row, length) in (first..).zip(messages) {
                insert(message, row, *length);
            }
            for (row, length) in (first..).zip(results) {
                insert(result, row, *length);
            }
            insert(message, row_key::range(8).0, 4 * half);
            let found = is_one_step(&connection, 7).unwrap();
            assert_eq!(found, fits, "{} messages, {} results", messages.len(), results.len());
        }
    }
}
