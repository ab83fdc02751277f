//! Pruning: deleting the oldest runs of a conversation.

use deadpool_postgres::{Object, Transaction};
use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, RunId, ToolStatus,
    store::{Keep, Pruned, Revision, SequencePosition, StoreError, author::Pruning},
};

use crate::{
    connections::Connections,
    conversation::{self, column, corrupt, unsigned},
    failure::Failure,
    parameter::{Parameter, Values},
    stored_key::StoredKey,
    tool_row::number,
};

const ACTION: &str = "prune a conversation";

/// Deletes, in one transaction, the runs of a conversation before the first run that must remain: a
/// run that `keep` retains, or a run with a call that waits for a decision or a result. The request
/// is not sent again if it may have been executed, because a second execution would report that it
/// has deleted nothing.
pub(crate) async fn prune(
    connections: &Connections,
    key: &ConversationKey,
    keep: Keep,
) -> Result<Pruned, StoreError> {
    let work = Work { key, stored: StoredKey::new(key), keep };
    connections.persist(ACTION, false, || work.once(connections)).await?
}

struct Work<'a> {
    key: &'a ConversationKey,
    stored: StoredKey,
    keep: Keep,
}

impl Work<'_> {
    async fn once(&self, connections: &Connections) -> Result<Result<Pruned, StoreError>, Failure> {
        let mut client = connections.get().await?;
        let outcome = self.over(connections, &mut client).await;
        connections.return_to_pool(client, outcome)
    }

    async fn over(
        &self,
        connections: &Connections,
        client: &mut Object,
    ) -> Result<Result<Pruned, StoreError>, Failure> {
        let transaction = connections.before(client.transaction()).await?;
        if let Some(begin) = connections.begin_writing(&self.stored.scope) {
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
    ) -> Result<Result<Pruned, StoreError>, Failure> {
        let statements = &connections.statements;
        let key: [&dyn Parameter; 2] = [&self.stored.scope, &self.stored.conversation];
        let ask = async |sql: &str| connections.rows_within(transaction, sql, &key).await;
        let execute = async |sql: &str, values: Values<'_>| {
            connections.execute_within(transaction, sql, values).await
        };
        // This lock makes all other writers to the conversation wait.
        if ask(&statements.lock_conversation).await?.is_empty() {
            return Ok(Ok(Pruned::default()));
        }
        let found = ask(&statements.conversation).await?;
        let runs = ask(&statements.runs).await?;
        let calls = ask(&statements.calls).await?;
        let (revision, cut) = match self.cut(&found, &runs, &calls) {
            Ok((revision, cut)) => (revision, cut),
            Err(refused) => return Ok(Err(refused)),
        };
        if cut.last_sequence == 0 {
            return Ok(Ok(cut.pruned));
        }
        let last = number(cut.last_sequence);
        let incarnation = revision.pruned().incarnation.cast_signed();
        let [scope, conversation] = key;
        for sql in
            [&statements.prune_messages, &statements.prune_tools, &statements.prune_summaries]
        {
            execute(sql, &[scope, conversation, &last]).await?;
        }
        let values: Values<'_> = &[scope, conversation, &last, &incarnation];
        execute(&statements.prune_conversation, values).await?;
        Ok(Ok(cut.pruned))
    }

    fn cut(
        &self,
        found: &[Row],
        runs: &[Row],
        calls: &[Row],
    ) -> Result<(Revision, tower_chat_core::store::author::Cut), StoreError> {
        let head = conversation::head(self.key, found)?;
        if let Some(open) = head.open_run {
            return Err(StoreError::UnderWay { key: self.key.clone(), run: open.run });
        }
        let mut pruning = Pruning::new(self.key, &head, self.keep);
        let read = || {
            for row in runs {
                let run: &[u8] = column(row, 1)?;
                let run = run.try_into().map_err(|_| "a run id is not 16 bytes".to_owned())?;
                let sequence = unsigned(row, 0)?;
                pruning.see_message(sequence, RunId::from_bytes(run));
            }
            for row in calls {
                let index = unsigned(row, 1)?;
                let index =
                    u32::try_from(index).map_err(|_| format!("there is no call {index}"))?;
                let call = SequencePosition { sequence: unsigned(row, 0)?, index };
                let status: &str = column(row, 2)?;
                // An unknown status is treated as `Pending`, so that the run of the call is not
                // deleted.
                let status = status.parse().unwrap_or(ToolStatus::Pending);
                let result = column::<Option<i64>>(row, 3)?;
                let result = result.map(|_| unsigned(row, 3)).transpose()?;
                pruning.see_call(call, status, result);
            }
            Ok(pruning.cut())
        };
        let cut = read().map_err(|reason: String| corrupt(&reason))??;
        Ok((head.revision, cut))
    }
}
