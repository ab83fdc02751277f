//! The database schema: the tables of the current version, and the migrations of older files.

use std::{collections::BTreeMap, sync::OnceLock};

use rusqlite::{Connection, Result, TransactionBehavior, types::ValueRef};

use tower_chat_core::{format, store::author::is_sealed_message};

use crate::{directory, seal_mark};

/// The application id in the header of a store's file: the ASCII text `twch`.
pub(crate) const APPLICATION_ID: i64 = 0x7477_6368;

/// The migrations. The migration with index `n` changes a file of version `n` to version `n + 1`. A
/// released migration must never be changed.
const MIGRATIONS: &[&str] =
    &[MESSAGES, TOOL_INVOCATIONS, OPEN_RUNS, PRUNED, DIRECTORY, CHECKSUMS, MARKS];

/// The conversations and their messages.
const MESSAGES: &str = "
    CREATE TABLE conversations (
        id INTEGER PRIMARY KEY CHECK (id BETWEEN 1 AND 2147483647),
        scope TEXT NOT NULL,
        conversation TEXT NOT NULL,
        incarnation INTEGER NOT NULL,
        service_id TEXT,
        UNIQUE (scope, conversation)
    ) STRICT;
    CREATE TABLE messages (
        place INTEGER PRIMARY KEY, -- conversations.id * 2^32 + sequence
        run BLOB NOT NULL,
        run_index INTEGER NOT NULL,
        body TEXT NOT NULL
    ) STRICT;
";

/// The record of tool calls, which has one row for each call: one B-tree (`WITHOUT ROWID`) without
/// further indexes, because nearly every append writes to it.
///
/// The record adds 1.3 to 1.6 pages to the log per append. With row ids and a unique index, the
/// record would add 2.2 to 3.2 pages, and each further index, by tool, status or time, would add
/// one to two pages (measured). Without these indexes, a query reads all rows of its conversation
/// or of its scope. The rows of a conversation are adjacent and short.
///
/// A process of an older release may have the file open during the migration. That process does not
/// delete the rows of this table when it deletes a conversation, and a later conversation may get
/// the same number. Therefore a trigger deletes the rows.
const TOOL_INVOCATIONS: &str = "
    CREATE TABLE tool_invocations (
        place INTEGER NOT NULL, -- of the message that holds the call
        call_index INTEGER NOT NULL,
        round_index INTEGER NOT NULL,
        call_id TEXT NOT NULL,
        name TEXT NOT NULL,
        status TEXT NOT NULL,
        result_sequence INTEGER, -- of the message that holds the result
        result_index INTEGER,
        result TEXT, -- JSON, where no message holds it
        error TEXT,
        started INTEGER, -- milliseconds since 1970
        finished INTEGER,
        PRIMARY KEY (place, call_index)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER conversation_deleted AFTER DELETE ON conversations BEGIN
        DELETE FROM tool_invocations
        WHERE place BETWEEN old.id << 32 AND (old.id << 32) + 4294967295;
    END;
";

/// The open runs, at most one per conversation. A run is open until its messages are committed to
/// the history or discarded.
///
/// The messages of an open run are in the table of messages, at their final positions. Readers read
/// only up to the sequence number in the column `visible`, until the commit or the discard deletes
/// the row.
///
/// The partial index makes the cost of reading pending approvals independent of the length of the
/// record.
const OPEN_RUNS: &str = "
    CREATE TABLE open_runs (
        number INTEGER PRIMARY KEY, -- conversations.id
        run BLOB NOT NULL,
        attempt INTEGER NOT NULL,
        holder INTEGER NOT NULL,
        opened INTEGER NOT NULL, -- milliseconds since 1970
        renewed INTEGER NOT NULL,
        until INTEGER,
        visible INTEGER NOT NULL, -- the sequence of the last message that readers see
        changes_service_id INTEGER NOT NULL,
        service_id TEXT,
        partial_text TEXT
    ) STRICT;
    CREATE TRIGGER conversation_with_an_open_run_deleted AFTER DELETE ON conversations BEGIN
        DELETE FROM open_runs WHERE number = old.id;
    END;
    CREATE INDEX pending_approvals ON tool_invocations (place)
    WHERE status = 'pending_approval';
";

/// The number of pruned messages (deleted with the oldest runs), by which a reader distinguishes a
/// pruned message from a missing one.
const PRUNED: &str = "
    ALTER TABLE conversations ADD COLUMN pruned INTEGER NOT NULL DEFAULT 0;
";

/// The directory: the descriptions, times, counts and usage of conversations and their runs; see
/// `crate::directory`.
///
/// The directory does not count the writes of a process of an older release that has the file open
/// during the migration.
const DIRECTORY: &str = "
    ALTER TABLE conversations ADD COLUMN created INTEGER; -- milliseconds since 1970, as all times
    ALTER TABLE conversations ADD COLUMN last_active INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversations ADD COLUMN active_hour INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversations ADD COLUMN runs INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversations ADD COLUMN last_run BLOB;
    ALTER TABLE conversations ADD COLUMN runs_without_open INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversations ADD COLUMN last_run_without_open BLOB;
    ALTER TABLE conversations ADD COLUMN mode TEXT;
    ALTER TABLE conversations ADD COLUMN title TEXT;
    ALTER TABLE conversations ADD COLUMN metadata TEXT; -- JSON
    ALTER TABLE conversations ADD COLUMN description_version INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX conversations_by_activity ON conversations (scope, active_hour);
    CREATE TABLE run_usage (
        number INTEGER NOT NULL, -- conversations.id
        run BLOB NOT NULL,
        model TEXT NOT NULL, -- '' if it is not known
        mode TEXT,
        began INTEGER NOT NULL,
        last INTEGER NOT NULL,
        service_calls INTEGER NOT NULL,
        tool_calls INTEGER NOT NULL,
        input_tokens INTEGER NOT NULL,
        cached_input_tokens INTEGER NOT NULL,
        output_tokens INTEGER NOT NULL,
        reasoning_tokens INTEGER NOT NULL,
        cost_nanos INTEGER,
        PRIMARY KEY (number, run, model)
    ) STRICT, WITHOUT ROWID;
    CREATE TRIGGER conversation_with_usage_deleted AFTER DELETE ON conversations BEGIN
        DELETE FROM run_usage WHERE number = old.id;
    END;
";

/// The checksum of a message ([`crate::checksum`]). Messages that exist before the migration get no
/// checksum.
///
/// A process of an older release that has the file open during the migration does not update the
/// checksum when it changes the body of a message. Therefore a trigger deletes the checksum.
const CHECKSUMS: &str = "
    ALTER TABLE messages ADD COLUMN checksum INTEGER;
    CREATE TRIGGER body_changed AFTER UPDATE OF body ON messages
    WHEN new.checksum IS old.checksum BEGIN
        UPDATE messages SET checksum = NULL WHERE place = new.place;
    END;
";

/// Adds these data:
/// - the table `store_marks` with one row, which records whether the file contains sealed
///   (encrypted) data ([`crate::seal_mark`]);
/// - the parent of a conversation that is a branch (a copy), with a partial index of branches;
/// - the number of rewrites of a conversation, and the part that the next run needs to load;
/// - the table `history_summaries` with the summaries of conversations
///   ([`crate::history_summary`]).
const MARKS: &str = "
    ALTER TABLE conversations ADD COLUMN parent_scope TEXT;
    ALTER TABLE conversations ADD COLUMN parent_conversation TEXT;
    ALTER TABLE conversations ADD COLUMN parent_position INTEGER;
    CREATE INDEX branches ON conversations (parent_scope, parent_conversation)
    WHERE parent_scope IS NOT NULL;
    CREATE TABLE store_marks (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        holds_sealed INTEGER NOT NULL
    ) STRICT;
    INSERT INTO store_marks VALUES (1, 0);
    ALTER TABLE conversations ADD COLUMN rewrites INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE conversations ADD COLUMN load_from TEXT; -- JSON
    CREATE TABLE history_summaries (
        place INTEGER PRIMARY KEY, -- of the last message that the summary covers
        id INTEGER NOT NULL,
        body TEXT NOT NULL, -- JSON
        checksum INTEGER NOT NULL
    ) STRICT;
    CREATE TRIGGER conversation_with_summaries_deleted AFTER DELETE ON conversations BEGIN
        DELETE FROM history_summaries
        WHERE place BETWEEN old.id << 32 AND (old.id << 32) + 4294967295;
    END;
";

/// The version of the schema that this release writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// The first version with a directory.
const DIRECTORY_VERSION: usize = 5;

/// The first version whose files record whether they contain sealed data.
const MARKS_VERSION: usize = 7;

/// The maximum number of virtual machine instructions of a check, in thousands. The check of a
/// store needs a few hundred instructions.
const MAX_STEPS: u32 = 1_000;

/// The statements that create the tables of `ANALYZE`.
const STATISTICS: [(&str, &str); 2] = [
    ("sqlite_stat1", "CREATE TABLE sqlite_stat1(tbl,idx,stat)"),
    ("sqlite_stat4", "CREATE TABLE sqlite_stat4(tbl,idx,neq,nlt,ndlt,sample)"),
];

/// The kind of a file, by its header and schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Content {
    /// An empty database.
    Empty,
    /// A store with this schema version.
    Store { version: i64 },
    /// The header identifies a store of a known version, and the schema differs from that version.
    Altered(Difference),
    /// A database of another program.
    Foreign,
}

/// Returns whether a file of an older version contains sealed messages or sealed service ids (ids
/// under which model services have the history). The `LIKE` pattern avoids decoding every message.
fn has_sealed_data(connection: &Connection) -> Result<bool> {
    let sealed_heads =
        "SELECT EXISTS (SELECT 1 FROM conversations WHERE service_id LIKE 'tower-chat-_:%')";
    if connection.query_row(sealed_heads, [], |row| row.get(0))? {
        return Ok(true);
    }
    let sql = "SELECT body FROM messages WHERE body LIKE '%tower-chat-encrypted%'";
    let mut statement = connection.prepare(sql)?;
    let mut bodies = statement.query([])?;
    while let Some(row) = bodies.next()? {
        // A damaged body is skipped.
        let Ok(body) = row.get::<_, String>(0) else { continue };
        if format::decode(&body).is_ok_and(|message| is_sealed_message(&message)) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The difference between the schema of a file and the schema that the migrations create.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Difference {
    /// An object is missing.
    Missing(String),
    /// An object is unknown, or was created by another statement.
    Unknown(String),
}

/// Determines the kind of a file without changing the file. The check fails after [`MAX_STEPS`], so
/// that a hostile schema cannot make it run for a long time.
pub(crate) fn content(connection: &mut Connection) -> Result<Content> {
    let mut steps = 0;
    let counts = move || {
        steps += 1;
        steps > MAX_STEPS
    };
    connection.progress_handler(1_000, Some(counts))?;
    let content = content_in_transaction(connection);
    connection.progress_handler(0, None::<fn() -> bool>)?;
    content
}

/// Determines the kind of a file in a new transaction.
fn content_in_transaction(connection: &Connection) -> Result<Content> {
    content_at_this_moment(&*connection.unchecked_transaction()?)
}

/// Determines the kind of a file inside a transaction that the caller has begun.
fn content_at_this_moment(connection: &Connection) -> Result<Content> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = pragma("user_version")?;
    match pragma("application_id")? {
        APPLICATION_ID => Ok(match difference(connection, version)? {
            None => Content::Store { version },
            Some(difference) => Content::Altered(difference),
        }),
        0 if version == 0 => {
            let tables: i64 =
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            Ok(if tables == 0 { Content::Empty } else { Content::Foreign })
        }
        _ => Ok(Content::Foreign),
    }
}

/// Creates the tables of an empty database, or migrates an older store, in one transaction. A file
/// of any other kind is not changed. Returns the kind of the file after the migration.
pub(crate) fn migrate(connection: &mut Connection) -> Result<Content> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let content = content_at_this_moment(&transaction)?;
    let version = match content {
        Content::Empty => {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            0
        }
        Content::Store { version } => version,
        Content::Altered(_) | Content::Foreign => return Ok(content),
    };
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(missing) = MIGRATIONS.get(done..).filter(|missing| !missing.is_empty()) else {
        return Ok(content);
    };
    for step in missing {
        transaction.execute_batch(step)?;
    }
    if done < DIRECTORY_VERSION && content != Content::Empty {
        directory::fill(&transaction)?;
    }
    if done < MARKS_VERSION && content != Content::Empty && has_sealed_data(&transaction)? {
        seal_mark::set(&transaction)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(Content::Store { version: VERSION })
}

/// The objects of a schema, by type and name, with their tables and `CREATE` statements.
type Objects = BTreeMap<(String, String), (String, String)>;

/// Returns the first difference between the schema of a file and the schema that the migrations
/// create; `None` if the two are equal, or if the version of the file is newer, because the schema
/// of that version is unknown.
fn difference(connection: &Connection, version: i64) -> Result<Option<Difference>> {
    let known = usize::try_from(version).ok().and_then(|version| known()?.get(version));
    let Some(mut missing) = known.cloned() else { return Ok(None) };
    for (object, made) in objects(connection)? {
        let (kind, name) = &object;
        let is_statistics =
            STATISTICS.iter().any(|known| kind == "table" && (&**name, &*made.1) == *known);
        if missing.remove(&object).as_ref() != Some(&made) && !is_statistics {
            return Ok(Some(Difference::Unknown(format!("the {kind} `{name}`"))));
        }
    }
    let missing = missing.into_keys().next();
    Ok(missing.map(|(kind, name)| Difference::Missing(format!("the {kind} `{name}`"))))
}

/// Returns the schemas of all versions by version; `None` if this process cannot create a database
/// in memory.
fn known() -> Option<&'static Vec<Objects>> {
    static KNOWN: OnceLock<Option<Vec<Objects>>> = OnceLock::new();
    KNOWN.get_or_init(|| made_by_migrations().ok()).as_ref()
}

fn made_by_migrations() -> Result<Vec<Objects>> {
    let connection = Connection::open_in_memory()?;
    let mut versions = vec![objects(&connection)?];
    for step in MIGRATIONS {
        connection.execute_batch(step)?;
        versions.push(objects(&connection)?);
    }
    Ok(versions)
}

/// Returns the objects of a schema. A value that is neither text nor NULL becomes a string that no
/// `CREATE` statement equals.
fn objects(connection: &Connection) -> Result<Objects> {
    let text = |value: ValueRef<'_>| match value {
        ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
        ValueRef::Null => String::new(),
        ValueRef::Integer(_) | ValueRef::Real(_) | ValueRef::Blob(_) => "\0".to_owned(),
    };
    let mut statement =
        connection.prepare("SELECT type, name, tbl_name, sql FROM sqlite_schema")?;
    let objects = statement.query_map([], |row| {
        let value = |index| row.get_ref(index).map(text);
        Ok(((value(0)?, value(1)?), (value(2)?, without_layout(&value(3)?))))
    })?;
    objects.collect()
}

/// Returns a statement with all white space replaced by single spaces.
fn without_layout(statement: &str) -> String {
    statement.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_schemas_of_consecutive_versions_differ() {
        let known = known().unwrap();
        assert_eq!(known.len(), MIGRATIONS.len() + 1);
        for (before, after) in known.iter().zip(known.iter().skip(1)) {
            assert_ne!(before, after);
        }
    }
}
