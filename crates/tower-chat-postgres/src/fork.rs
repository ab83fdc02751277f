//! Copies of conversations. A turn, the unit of a copy, consists of the messages of a run and of
//! the later runs that answer calls of this run.
//!
//! The original and the copy may be on different servers, so that one transaction cannot access
//! both. Therefore the store reads the visible data from one snapshot, and then writes the copy in
//! a second transaction.

use std::time::SystemTime;

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        Fork, Parent, Revision, StoreError,
        author::{Forking, ToolRecord, milliseconds},
    },
};

use crate::{
    connections::{Connections, Query},
    conversation::{self, column, corrupt},
    failure::Failure,
    parameter::{Parameter, Values},
    read,
    stored_key::StoredKey,
    tool_row::{ToolRow, ToolRows, number},
};

const ACTION: &str = "copy a conversation";

/// The maximum number of messages or of rows that one statement writes.
const MAX_ROWS: usize = 10_000;
/// The maximum number of bytes of the messages in one statement, unless a single message is larger.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// Copies the visible turns that end before a message, or all visible turns. Returns
/// [`Fork::ABSENT`] if there is nothing to copy.
pub(crate) async fn fork(
    connections: &Connections,
    from: &ConversationKey,
    before: Option<u64>,
    to: &ConversationKey,
) -> Result<Fork, StoreError> {
    let stored = StoredKey::new(from);
    let values: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let statements = &connections.statements;
    let described = &statements.directory.described;
    let queries = [&statements.conversation, &statements.messages, &statements.tools, described]
        .map(|sql| Query { sql, values: &values });
    let [found, messages, tools, described] =
        connections.read(ACTION, &stored.scope, queries).await?;
    let head = conversation::head(from, &found)?;
    let visible = head.open_run.as_ref().map_or(head.revision.sequence, |open| open.visible);
    if visible == 0 && head.service_id.is_none() {
        return if read::head(connections, to).await?.revision == Revision::ABSENT {
            Ok(Fork::ABSENT)
        } else {
            Err(StoreError::Exists { key: to.clone() })
        };
    }
    // All data are decoded before anything is written, so that damaged data are not copied.
    let mut forking = Forking::new(&head, before);
    for (sequence, message) in
        (head.pruned.saturating_add(1)..).zip(read::messages(from, &messages, head.pruned))
    {
        if let Some(id) = message?.id {
            forking.see_message(sequence, id.run);
        }
    }
    read::check_whole(from, head.pruned, messages.len(), visible)?;
    let tools = tools.iter().map(|row| read::tool(from, row)).collect::<Result<Vec<_>, _>>()?;
    tools.iter().for_each(|row| forking.see_record(row));
    let end = forking.end();
    let tools = tools.into_iter().filter(|row| row.call.sequence <= end.position);
    let tools = tools.map(ToolRecord::in_copy).collect();
    let count = usize::try_from(end.position.saturating_sub(head.pruned)).unwrap_or(usize::MAX);
    // If the copy has no messages, its first message will get the sequence number 1.
    let (pruned, sequence) = if count == 0 { (0, 0) } else { (head.pruned, end.position) };
    let mut described = described.first().map(Described::read).transpose()?.unwrap_or_default();
    let last_run = end.last_run.map(RunId::to_bytes);
    if end.runs_after > 0 {
        described.runs = described.runs.saturating_sub(number(end.runs_after)).max(0);
        described.last_run = last_run.as_ref().map(<[u8; 16]>::as_slice);
    }
    let copy = Copy {
        key: StoredKey::new(to),
        revision: Revision { incarnation: RunId::new().random_half().max(1), sequence },
        pruned,
        created_at: milliseconds::of(SystemTime::now()),
        described,
        parent: Parent::new(from.clone(), end.position),
        messages: messages.iter().take(count).map(message).collect::<Result<_, _>>()?,
        tools,
    };
    // After a lost acknowledgement, the next attempt recognises the copy by its incarnation (random
    // number).
    let is_made = connections.persist(ACTION, true, || copy.write(connections)).await?;
    if !is_made {
        return Err(StoreError::Exists { key: to.clone() });
    }
    Ok(Fork::new(copy.revision, end.position))
}

struct Copy<'a> {
    key: StoredKey,
    revision: Revision,
    pruned: u64,
    /// The creation time, in milliseconds since 1970.
    created_at: i64,
    described: Described<'a>,
    parent: Parent,
    messages: Vec<StoredMessage<'a>>,
    tools: Vec<ToolRecord>,
}

/// The description and the counts that are copied from the original.
#[derive(Debug, Default)]
struct Described<'a> {
    mode: Option<&'a str>,
    title: Option<&'a [u8]>,
    metadata: Option<&'a str>,
    version: i64,
    runs: i64,
    last_run: Option<&'a [u8]>,
}

impl<'a> Described<'a> {
    fn read(row: &'a Row) -> Result<Self, StoreError> {
        let read = || {
            Ok(Self {
                mode: column(row, 0)?,
                title: column(row, 1)?,
                metadata: column(row, 2)?,
                version: column(row, 3)?,
                runs: column(row, 4)?,
                last_run: column(row, 5)?,
            })
        };
        read().map_err(|reason: String| corrupt(&reason))
    }
}

/// The columns of a message's row.
#[derive(Clone, Copy)]
struct StoredMessage<'a> {
    sequence: i64,
    run: &'a [u8],
    index: i64,
    body: &'a str,
}

fn message(row: &Row) -> Result<StoredMessage<'_>, StoreError> {
    let read = || {
        Ok(StoredMessage {
            sequence: column(row, 0)?,
            run: column(row, 1)?,
            index: column(row, 2)?,
            body: column(row, 3)?,
        })
    };
    read().map_err(|reason: String| corrupt(&reason))
}

impl Copy<'_> {
    /// Writes the copy. Returns false if another conversation with this key exists.
    async fn write(&self, connections: &Connections) -> Result<bool, Failure> {
        let mut client = connections.get().await?;
        let is_made = self.write_over(connections, &mut client).await;
        connections.return_to_pool(client, is_made)
    }

    async fn write_over(
        &self,
        connections: &Connections,
        client: &mut Object,
    ) -> Result<bool, Failure> {
        let transaction = connections.before(client.transaction()).await?;
        if let Some(begin) = connections.begin_writing(&self.key.scope) {
            connections.before(transaction.batch_execute(&begin)).await?;
        }
        let is_made = self.fill(connections, &transaction).await?;
        connections.in_time(transaction.commit()).await?;
        Ok(is_made)
    }

    async fn fill(
        &self,
        connections: &Connections,
        transaction: &Transaction<'_>,
    ) -> Result<bool, Failure> {
        let execute = async |sql: &str, values: Values<'_>| {
            connections.execute_within(transaction, sql, values).await
        };
        let StoredKey { scope, conversation, long_scope, long_conversation } = &self.key;
        let incarnation = self.revision.incarnation.cast_signed();
        let statements = &connections.statements;
        let Described { mode, title, metadata, version, runs, last_run } = &self.described;
        let values: [&dyn Parameter; 17] = [
            scope,
            conversation,
            long_scope,
            long_conversation,
            &incarnation,
            &number(self.revision.sequence),
            &number(self.pruned),
            &self.created_at,
            mode,
            title,
            metadata,
            version,
            runs,
            last_run,
            &self.parent.key.scope().as_bytes(),
            &self.parent.key.id().as_bytes(),
            &number(self.parent.position),
        ];
        if execute(&statements.copy_conversation, &values).await? == 0 {
            let sql = &statements.conversation;
            let found = connections.rows_within(transaction, sql, &[scope, conversation]).await?;
            let found = found.first().and_then(|row| row.try_get(0).ok());
            return Ok(found == Some(incarnation));
        }
        let mut rest = self.messages.as_slice();
        while !rest.is_empty() {
            let (batch, others) = rest.split_at(batch(rest));
            rest = others;
            let sequences: Vec<_> = batch.iter().map(|message| message.sequence).collect();
            let runs: Vec<_> = batch.iter().map(|message| message.run).collect();
            let indexes: Vec<_> = batch.iter().map(|message| message.index).collect();
            let bodies: Vec<_> = batch.iter().map(|message| message.body).collect();
            let values: [&dyn Parameter; 6] =
                [scope, conversation, &sequences, &runs, &indexes, &bodies];
            execute(&statements.copy_messages, &values).await?;
        }
        for records in self.tools.chunks(MAX_ROWS) {
            let rows: ToolRows = records.iter().map(ToolRow::new).collect();
            execute(&statements.copy_tools, &rows.values(scope, conversation)).await?;
        }
        Ok(true)
    }
}

/// Returns the number of messages, from the first on, that one statement writes; at least one.
fn batch(messages: &[StoredMessage<'_>]) -> usize {
    let mut bytes = 0;
    let fit = messages.iter().take(MAX_ROWS).take_while(|message| {
        bytes += message.body.len();
        bytes <= MAX_BYTES
    });
    fit.count().max(1)
}
