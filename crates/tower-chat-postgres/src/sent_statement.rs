//! A statement as it is sent: by the name under which its connection has prepared it, or whole.

use deadpool_postgres::{ClientWrapper, Transaction};
use futures_util::TryStreamExt;
use tokio_postgres::{
    Client, Error, Row, Statement,
    types::{ToSql, Type},
};

use crate::{connections::Connections, failure::Failure, parameter::Values};

/// What a statement is sent over.
#[derive(Clone, Copy)]
pub(crate) enum Over<'a> {
    /// The statement is a transaction of its own.
    Connection(&'a ClientWrapper),
    /// It is one of several statements of a transaction.
    Transaction(&'a Transaction<'a>),
}

/// A statement that is ready to be sent.
#[derive(Debug)]
pub(crate) enum SentStatement<'sql> {
    Prepared(Statement),
    Whole(&'sql str),
}

impl Over<'_> {
    fn client(&self) -> &Client {
        match self {
            Self::Connection(client) => client,
            Self::Transaction(transaction) => transaction.client(),
        }
    }

    async fn prepare(self, sql: &str) -> Result<Statement, Error> {
        match self {
            Self::Connection(client) => client.prepare_cached(sql).await,
            Self::Transaction(transaction) => transaction.prepare_cached(sql).await,
        }
    }
}

impl SentStatement<'_> {
    /// Sends it, and waits for its rows. What is polled first is sent first.
    pub(crate) async fn rows(&self, over: Over<'_>, values: Values<'_>) -> Result<Vec<Row>, Error> {
        match self {
            Self::Prepared(statement) => {
                let values = values.iter().map(|value| value.value());
                over.client().query_raw(statement, values).await?.try_collect().await
            }
            Self::Whole(sql) => over.client().query_typed(sql, &typed(values)).await,
        }
    }

    /// The same of a statement without rows; gives the number of those that it changed.
    pub(crate) async fn execute(&self, over: Over<'_>, values: Values<'_>) -> Result<u64, Error> {
        match self {
            Self::Prepared(statement) => {
                let values = values.iter().map(|value| value.value());
                over.client().execute_raw(statement, values).await
            }
            Self::Whole(sql) => over.client().execute_typed(sql, &typed(values)).await,
        }
    }
}

impl Connections {
    /// Prepares a statement, if statements are prepared and its connection has not done so. Nothing
    /// is done if that fails.
    pub(crate) async fn statement<'sql>(
        &self,
        over: Over<'_>,
        sql: &'sql str,
    ) -> Result<SentStatement<'sql>, Failure> {
        if self.prepares_statements {
            Ok(SentStatement::Prepared(self.before(over.prepare(sql)).await?))
        } else {
            Ok(SentStatement::Whole(sql))
        }
    }

    /// The rows of a statement within a transaction that is not committed yet.
    pub(crate) async fn rows_within(
        &self,
        transaction: &Transaction<'_>,
        sql: &str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Failure> {
        let over = Over::Transaction(transaction);
        let statement = self.statement(over, sql).await?;
        self.before(statement.rows(over, values)).await
    }

    /// The same of a statement without rows; gives the number of those that it changed.
    pub(crate) async fn execute_within(
        &self,
        transaction: &Transaction<'_>,
        sql: &str,
        values: Values<'_>,
    ) -> Result<u64, Failure> {
        let over = Over::Transaction(transaction);
        let statement = self.statement(over, sql).await?;
        self.before(statement.execute(over, values)).await
    }
}

fn typed<'a>(values: Values<'a>) -> Vec<(&'a (dyn ToSql + Sync), Type)> {
    values.iter().map(|value| (value.value(), value.kind())).collect()
}
