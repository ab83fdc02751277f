//! Reads a conversation row by row and rewrites rows in place, for checks and repairs.

use std::sync::Arc;

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, Message,
    format::{self, FormatError},
    store::{
        ConversationRows, Revision, Rewrite, SequencePosition, StoreError, UsageSum,
        author::ToolRecord,
    },
};

use crate::{
    connections::{Connections, Query},
    conversation::{self, column, unsigned},
    failure::Failure,
    message,
    parameter::{Parameter, Values},
    stored_key::StoredKey,
    tool_row::{self, ToolRows, number},
};

const REWRITE: &str = "rewrite a conversation";

/// Returns the visible rows of a conversation, from one snapshot.
pub(crate) async fn rows(
    connections: &Connections,
    key: &ConversationKey,
) -> Result<Option<ConversationRows>, StoreError> {
    let stored = StoredKey::new(key);
    let values: [&dyn Parameter; 2] = [&stored.scope, &stored.conversation];
    let statements = &connections.statements;
    let queries = [&statements.conversation, &statements.messages, &statements.tools]
        .map(|sql| Query { sql, values: &values });
    let action = "read the rows of a conversation";
    let [found, messages, tools] = connections.read(action, &stored.scope, queries).await?;
    if found.is_empty() {
        return Ok(None);
    }
    let head = conversation::head(key, &found)?;
    let messages = messages.iter().map(read_message).collect();
    Ok(Some(ConversationRows::new(head, messages, tools.iter().map(read_tool).collect())))
}

/// Reads a message with its sequence number. If the number is out of range, returns 0 and an error.
fn read_message(row: &Row) -> (u64, Result<Arc<Message>, FormatError>) {
    match unsigned(row, 0) {
        Ok(sequence) => (sequence, message::read(row, 1).map(Arc::new)),
        Err(reason) => (0, Err(FormatError::malformed(reason))),
    }
}

fn read_tool(row: &Row) -> (SequencePosition, Result<ToolRecord, String>) {
    let index = column::<i64>(row, 1).ok().and_then(|index| u32::try_from(index).ok());
    let index = index.unwrap_or(u32::MAX);
    match unsigned(row, 0) {
        Ok(sequence) => (SequencePosition { sequence, index }, tool_row::read(row, 1, sequence)),
        Err(reason) => (SequencePosition { sequence: 0, index }, Err(reason)),
    }
}

/// Executes a rewrite in one transaction. After a lost acknowledgement, the next attempt recognises
/// the rewrite by the new incarnation (random number).
pub(crate) async fn rewrite(
    connections: &Connections,
    rewrite: &Rewrite,
) -> Result<Revision, StoreError> {
    let revision = rewrite.expected.rewritten();
    let work = Work { rewrite, revision, key: StoredKey::new(&rewrite.key) };
    connections.persist(REWRITE, true, || work.once(connections)).await?
}

struct Work<'a> {
    rewrite: &'a Rewrite,
    /// The revision of the conversation after the rewrite.
    revision: Revision,
    key: StoredKey,
}

impl Work<'_> {
    async fn once(
        &self,
        connections: &Connections,
    ) -> Result<Result<Revision, StoreError>, Failure> {
        let mut client = connections.get().await?;
        let outcome = self.over(connections, &mut client).await;
        connections.return_to_pool(client, outcome)
    }

    async fn over(
        &self,
        connections: &Connections,
        client: &mut Object,
    ) -> Result<Result<Revision, StoreError>, Failure> {
        let transaction = connections.before(client.transaction()).await?;
        if let Some(begin) = connections.begin_writing(&self.key.scope) {
            connections.before(transaction.batch_execute(&begin)).await?;
        }
        let outcome = self.within(connections, &transaction).await?;
        match outcome {
            Ok(_) => connections.in_time(transaction.commit()).await?,
            // Unlike dropping the transaction, the explicit rollback waits for the server.
            Err(_) => connections.before(transaction.rollback()).await?,
        }
        Ok(outcome)
    }

    async fn within(
        &self,
        connections: &Connections,
        transaction: &Transaction<'_>,
    ) -> Result<Result<Revision, StoreError>, Failure> {
        let Self { rewrite, revision, key } = self;
        let statements = &connections.statements;
        let execute = async |sql: &str, values: Values<'_>| {
            connections.execute_within(transaction, sql, values).await
        };
        let (scope, id) = (&key.scope, &key.conversation);
        // This lock makes all other writers to the conversation wait.
        execute(&statements.lock_conversation, &[scope, id]).await?;
        let sql = &statements.conversation;
        let found = connections.rows_within(transaction, sql, &[scope, id]).await?;
        let head = match conversation::head(&rewrite.key, &found) {
            Ok(head) => head,
            Err(damaged) => return Ok(Err(damaged)),
        };
        if head.revision == *revision {
            return Ok(Ok(*revision));
        }
        if let Err(conflict) = rewrite.check(&head) {
            return Ok(Err(conflict));
        }
        for (sequence, message) in &rewrite.messages {
            let (at, body) = (i64::try_from(*sequence).unwrap_or(-1), format::encode(message));
            if execute(&statements.maintenance.rewrite_message, &[scope, id, &at, &body]).await?
                != 1
            {
                return Ok(Err(rewrite.missing(*sequence)));
            }
        }
        if let Some(first) = rewrite.first_message() {
            let summaries = &statements.maintenance;
            execute(&summaries.rewrite_summaries, &[scope, id, &number(first)]).await?;
            execute(&summaries.count_rewrite, &[scope, id]).await?;
        }
        let rows: Vec<ToolRecord> = rewrite.tools_of(&head).cloned().collect();
        let replaced = rows.iter().map(|row| row.call);
        for call in replaced.chain(rewrite.removed_tools.iter().copied()) {
            let (sequence, index) = (number(call.sequence), i64::from(call.index));
            execute(&statements.maintenance.remove_tool, &[scope, id, &sequence, &index]).await?;
        }
        let tools: ToolRows = tool_row::rows(&rows).into_iter().collect();
        execute(&statements.copy_tools, &tools.values(scope, id)).await?;
        if let Some(counts) = &rewrite.counts {
            let recount = &statements.maintenance;
            execute(&recount.recount_runs, &[scope, id, &number(counts.runs)]).await?;
            execute(&recount.recount_usage, &[scope, id]).await?;
            for (run, calls) in &counts.tool_calls {
                let (run, calls) =
                    (run.to_bytes().to_vec(), number((*calls).min(UsageSum::LARGEST)));
                execute(&recount.recount_tool_calls, &[scope, id, &run, &calls]).await?;
            }
        }
        let incarnation = revision.incarnation.cast_signed();
        execute(&statements.maintenance.set_incarnation, &[scope, id, &incarnation]).await?;
        Ok(Ok(*revision))
    }
}
