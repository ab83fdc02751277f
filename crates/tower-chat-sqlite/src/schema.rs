//! The tables, and how older files are brought up to date.

use rusqlite::{Connection, Result, TransactionBehavior};

/// Marks a file as ours, in its header: `twch`.
pub(crate) const APPLICATION_ID: i64 = 0x7477_6368;

/// One step each, from the version of its place in the list to the next. A step that was released
/// is never changed.
const MIGRATIONS: &[&str] = &["
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
"];

/// The version of the schema that this release writes.
pub(crate) const VERSION: i64 = MIGRATIONS.len() as i64;

/// What a file is, as its header and schema say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// A database with nothing in it.
    Empty,
    /// A store with this schema version.
    Store { version: i64 },
    /// Some other program's database.
    Foreign,
}

/// Looks at what a file is, without changing it, as it is at one moment: another process may just
/// be making it.
pub(crate) fn content(connection: &Connection) -> Result<Content> {
    content_at_this_moment(&*connection.unchecked_transaction()?)
}

/// The same inside a transaction that somebody else began.
fn content_at_this_moment(connection: &Connection) -> Result<Content> {
    let pragma = |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
    let version = pragma("user_version")?;
    match pragma("application_id")? {
        APPLICATION_ID => Ok(Content::Store { version }),
        0 if version == 0 => {
            let tables: i64 =
                connection.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0))?;
            Ok(if tables == 0 { Content::Empty } else { Content::Foreign })
        }
        _ => Ok(Content::Foreign),
    }
}

/// Makes the tables of an empty database, or brings those of an older store up to date, in one
/// transaction. Other content is left as it is. Returns what the file is afterwards.
pub(crate) fn migrate(connection: &mut Connection) -> Result<Content> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let content = content_at_this_moment(&transaction)?;
    let version = match content {
        Content::Empty => {
            transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
            0
        }
        Content::Store { version } => version,
        Content::Foreign => return Ok(content),
    };
    let done = usize::try_from(version).unwrap_or(usize::MAX);
    let Some(missing) = MIGRATIONS.get(done..).filter(|missing| !missing.is_empty()) else {
        return Ok(content);
    };
    for step in missing {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(Content::Store { version: VERSION })
}
