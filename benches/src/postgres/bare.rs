//! A bare PostgreSQL connection, whose writes are the floor of the PostgreSQL benchmark: the time
//! of the store is compared with the time in which this connection writes the same rows.
//!
//! An append is one prepared statement with already encoded messages, and one round trip. Unlike
//! the store, the statement does not check whether another writer has changed the conversation.

use tokio_postgres::{Client, NoTls, Statement};
use tower_chat::{BoxError, ConversationKey, run::RunId, store::format};

use crate::workload;

/// A connection to the database of a store, which bypasses the store.
pub(super) struct Bare {
    client: Client,
    append: Statement,
}

#[derive(Debug)]
pub(super) struct BareConversation {
    key: ConversationKey,
    run: [u8; 16],
    run_index: i64,
    last_sequence: i64,
}

impl BareConversation {
    /// Creates a conversation with this number of stored messages.
    pub(super) fn new(key: ConversationKey, history: usize) -> Result<Self, BoxError> {
        let last_sequence = i64::try_from(history)?;
        Ok(Self { key, run: RunId::new().to_bytes(), run_index: 0, last_sequence })
    }

    pub(super) fn begin_run(&mut self) {
        self.run = RunId::new().to_bytes();
        self.run_index = 0;
    }
}

pub(super) fn bodies() -> [String; 2] {
    [workload::result_message(0), workload::call_message(1)]
        .map(|message| format::encode(&workload::added(message)))
}

impl Bare {
    pub(super) async fn connect(address: &str, schema: &str) -> Result<Self, BoxError> {
        let (client, connection) = tokio_postgres::connect(address, NoTls).await?;
        // The task ends when the client is dropped.
        tokio::spawn(connection);
        let append = client.prepare(&append(schema)).await?;
        Ok(Self { client, append })
    }

    /// Executes a statement with two messages, and a row for the tool call of each.
    pub(super) async fn append(
        &self,
        to: &mut BareConversation,
        bodies: &[String; 2],
    ) -> Result<(), BoxError> {
        let [result, call] = [to.last_sequence + 1, to.last_sequence + 2];
        let [result_body, call_body] = bodies;
        let (scope, conversation) = (to.key.scope().as_bytes(), to.key.id().as_bytes());
        let rows = self
            .client
            .execute(
                &self.append,
                &[
                    &scope,
                    &conversation,
                    &to.last_sequence,
                    &result,
                    &call,
                    &to.run.as_slice(),
                    &to.run_index,
                    &(to.run_index + 1),
                    result_body,
                    call_body,
                    &(to.run_index / 2),
                    &(to.run_index / 2 + 1),
                    &b"call_00000000".as_slice(),
                    &workload::TOOL.as_bytes(),
                    &1_784_000_000_000_i64,
                ],
            )
            .await?;
        to.last_sequence = call;
        to.run_index += 2;
        if rows == 2 { Ok(()) } else { Err("a row of the floor is missing".into()) }
    }
}

fn append(schema: &str) -> String {
    format!(
        "WITH stored AS (
             INSERT INTO \"{schema}\".messages
                 (scope, conversation, sequence, run, run_index, body)
             VALUES ($1, $2, $4, $6, $7, $9), ($1, $2, $5, $6, $8, $10)
         )
         INSERT INTO \"{schema}\".tool_invocations (scope, conversation, sequence, call_index,
             round_index, call_id, name, status, result_sequence, result_index, started, finished)
         VALUES ($1, $2, $3, 0, $11, $13, $14, 'ok', $4, 0, $15, $15),
             ($1, $2, $5, 0, $12, $13, $14, 'pending', NULL, NULL, NULL, NULL)
         ON CONFLICT (scope, conversation, sequence, call_index) DO UPDATE SET
             round_index = excluded.round_index, call_id = excluded.call_id, name = excluded.name,
             status = excluded.status, result_sequence = excluded.result_sequence,
             result_index = excluded.result_index, result = excluded.result,
             error = excluded.error, started = excluded.started, finished = excluded.finished"
    )
}
