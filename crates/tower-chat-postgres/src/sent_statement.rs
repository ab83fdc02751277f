//! Statements that the client sends as the name of a prepared statement, or as text.

use deadpool_postgres::{ClientWrapper, Transaction};
use futures_util::TryStreamExt;
use tokio_postgres::{
    Client, Error, Row, Statement,
    types::{ToSql, Type},
};

use crate::{connections::Connections, failure::Failure, parameter::Values};

/// The connection or transaction through which a statement is sent.
#[derive(Clone, Copy)]
pub(crate) enum Over<'a> {
    /// The statement is a separate transaction.
    Connection(&'a ClientWrapper),
    /// The statement is one of several in a transaction.
    Transaction(&'a Transaction<'a>),
}

/// A statement that can be sent in one round trip.
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
    /// Sends the statement and waits for its rows. Statements are sent in the order in which their
    /// futures are first polled.
    pub(crate) async fn rows(&self, over: Over<'_>, values: Values<'_>) -> Result<Vec<Row>, Error> {
        match self {
            Self::Prepared(statement) => {
                let values = values.iter().map(|value| value.value());
                over.client().query_raw(statement, values).await?.try_collect().await
            }
            Self::Whole(sql) => over.client().query_typed(sql, &typed(values)).await,
        }
    }

    /// Sends a statement that returns no rows. Returns the number of affected rows.
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
    /// Prepares a statement if necessary. An error means that the statement was not executed.
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

    /// Executes a statement in an uncommitted transaction, so that an error means that nothing was
    /// committed.
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

    /// Executes a statement without rows in an uncommitted transaction. Returns the number of
    /// affected rows.
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
