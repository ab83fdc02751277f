//! Maps errors of the server to the errors of a store.

use std::fmt;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;
use tower_chat_core::{BoxError, Classified, Retryability, store::StoreError};

use crate::OpenError;

/// A failed request to the server.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) meaning: Meaning,
    source: BoxError,
}

/// The class of a failure, which determines the error that the store reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing was changed: the server could not be reached, or chose the transaction as a deadlock
    /// or serialization victim.
    NotApplied,
    /// The connection was lost after the request was sent, so the change may be applied or not.
    Unknown,
    /// Nothing was changed: the statement exceeded its timeout.
    TooSlow,
    /// Nothing was changed: the server has temporarily no disk space, memory or connections
    /// available.
    ResourceExhausted,
    /// The server is read-only, such as a standby.
    ReadOnly,
    /// The server reports damaged data.
    Damaged,
    /// Nothing was changed: a pooler has sent the name of a prepared statement to a connection on
    /// which no statement, or a different one, has this name.
    NotPrepared,
    /// Nothing was changed, and a retry would fail too.
    Permanent,
}

impl Failure {
    /// Creates the failure of a statement that was sent.
    pub(crate) fn of_statement(error: tokio_postgres::Error) -> Self {
        let meaning = match error.code() {
            Some(code) => meaning(code),
            // The client library created this error: the server sends a code with every error.
            None if error.is_closed() || is_io(&error) => Meaning::Unknown,
            None => Meaning::Permanent,
        };
        Self { meaning, source: error.into() }
    }

    /// Converts the failure of a statement that precedes the change, so that nothing was changed.
    pub(crate) fn before_statement(mut self) -> Self {
        if self.meaning == Meaning::Unknown {
            self.meaning = Meaning::NotApplied;
        }
        self
    }

    /// Creates the failure of getting a connection from the pool.
    pub(crate) fn of_pool(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => {
                let has_code = error.code().is_some();
                let mut failure = Self::of_statement(error).before_statement();
                // An error without a code means that no connection was opened.
                if !has_code {
                    failure.meaning = Meaning::NotApplied;
                }
                failure
            }
            PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => {
                Self { meaning: Meaning::NotApplied, source: error.into() }
            }
        }
    }

    /// Creates the failure for a statement that has returned no row, although it always returns
    /// one.
    pub(crate) fn no_row() -> Self {
        Self { meaning: Meaning::Permanent, source: NoRow.into() }
    }

    /// Creates the failure for a request that was not answered in time.
    pub(crate) fn no_answer() -> Self {
        Self { meaning: Meaning::Unknown, source: NoAnswer.into() }
    }

    /// Returns whether the server does not answer or has become read-only, so that all idle
    /// connections should be closed.
    pub(crate) fn closes_idle_connections(&self) -> bool {
        self.meaning == Meaning::ReadOnly || self.source.is::<NoAnswer>()
    }

    /// Returns whether the store may repeat the request. `is_repeatable` means that a second
    /// execution has no effect.
    pub(crate) fn may_repeat(&self, is_repeatable: bool) -> bool {
        match self.meaning {
            Meaning::NotApplied => true,
            Meaning::Unknown => is_repeatable,
            Meaning::TooSlow
            | Meaning::ResourceExhausted
            | Meaning::ReadOnly
            | Meaning::Damaged
            | Meaning::NotPrepared
            | Meaning::Permanent => false,
        }
    }

    /// Returns the error of a store that cannot be opened because it gets no connection.
    pub(crate) fn open_error(self) -> OpenError {
        if is_untrusted(&*self.source) {
            return OpenError::Untrusted { source: Classified::permanent(self.source) };
        }
        OpenError::Connect { source: self.classified() }
    }

    /// Returns the failure as the cause of an [`OpenError`].
    pub(crate) fn classified(self) -> Classified {
        let is_retryable = self.meaning == Meaning::NotApplied;
        Classified::new(Retryability::from_retryable(is_retryable), self)
    }

    /// Returns the error of an open store.
    pub(crate) fn store_error(self, action: &'static str, is_repeatable: bool) -> StoreError {
        match self.meaning {
            Meaning::ReadOnly => StoreError::ReadOnly,
            Meaning::Damaged => StoreError::Corrupt { reason: self.source.to_string() },
            Meaning::NotApplied | Meaning::TooSlow | Meaning::ResourceExhausted => {
                StoreError::backend(action, true, self)
            }
            Meaning::Unknown => StoreError::backend(action, is_repeatable, self),
            Meaning::NotPrepared | Meaning::Permanent => StoreError::backend(action, false, self),
        }
    }
}

fn meaning(code: &SqlState) -> Meaning {
    match *code {
        // The server has rolled the transaction back, or has accepted no connection.
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS => Meaning::NotApplied,
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::IDLE_SESSION_TIMEOUT
        | SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        | SqlState::TRANSACTION_RESOLUTION_UNKNOWN => Meaning::Unknown,
        SqlState::QUERY_CANCELED | SqlState::LOCK_NOT_AVAILABLE => Meaning::TooSlow,
        SqlState::READ_ONLY_SQL_TRANSACTION => Meaning::ReadOnly,
        SqlState::DUPLICATE_PSTATEMENT | SqlState::INVALID_SQL_STATEMENT_NAME => {
            Meaning::NotPrepared
        }
        // Only a damaged row can cause these errors: the store never sends numbers out of range,
        // and never inserts a message at the position of an existing one.
        SqlState::DATA_CORRUPTED
        | SqlState::INDEX_CORRUPTED
        | SqlState::NUMERIC_VALUE_OUT_OF_RANGE
        | SqlState::UNIQUE_VIOLATION => Meaning::Damaged,
        _ => match code.code().get(..2) {
            Some("08") => Meaning::Unknown,
            Some("53" | "58") => Meaning::ResourceExhausted,
            Some(_) | None => Meaning::Permanent,
        },
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

/// Returns whether the client refused the certificate of the server.
fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // `io::Error::source` returns the source of the wrapped error, not the wrapped error.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let tls = error
            .downcast_ref::<rustls::Error>()
            .or_else(|| inner.and_then(|inner| inner.downcast_ref()));
        if let Some(rustls::Error::InvalidCertificate(_)) = tls {
            return true;
        }
        cause = error.source();
    }
    false
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.meaning {
            Meaning::NotApplied => {
                "PostgreSQL cannot be reached: check that it runs, and try again"
            }
            Meaning::Unknown => {
                "the connection to PostgreSQL was lost before the response, so the outcome is unknown: to check it, \
                 load the conversation, or read the state of the run if an update log reports this"
            }
            Meaning::TooSlow => {
                "PostgreSQL exceeded the time limit of a statement: try again, or raise \
                 PostgresOptions::with_statement_timeout"
            }
            Meaning::ResourceExhausted => {
                "PostgreSQL lacks disk space, memory or connections: free what is missing, and try again"
            }
            Meaning::NotPrepared => {
                "a pooler sent a prepared statement to a connection that has not prepared it: turn off \
                 PostgresOptions::with_prepared_statements"
            }
            Meaning::ReadOnly | Meaning::Damaged | Meaning::Permanent => "PostgreSQL refused the statement",
        })
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no response within the time of PostgresOptions::with_statement_timeout")]
struct NoAnswer;

#[derive(Debug, thiserror::Error)]
#[error("the statement returned no row")]
struct NoRow;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_of_the_server_have_their_documented_meanings() {
        // https://www.postgresql.org/docs/current/errcodes-appendix.html
        for (code, expected) in [
            ("40001", Meaning::NotApplied),
            ("40P01", Meaning::NotApplied),
            ("57P03", Meaning::NotApplied),
            ("57P01", Meaning::Unknown),
            ("57P02", Meaning::Unknown),
            ("08006", Meaning::Unknown),
            ("57014", Meaning::TooSlow),
            ("53100", Meaning::ResourceExhausted),
            ("25006", Meaning::ReadOnly),
            ("26000", Meaning::NotPrepared),
            ("42P05", Meaning::NotPrepared),
            ("XX001", Meaning::Damaged),
            ("42P01", Meaning::Permanent),
            ("23505", Meaning::Damaged),
            ("22003", Meaning::Damaged),
            ("23502", Meaning::Permanent),
        ] {
            assert_eq!(meaning(&SqlState::from_code(code)), expected, "{code}");
        }
    }

    #[test]
    fn a_request_with_an_unknown_outcome_is_repeated_only_if_idempotent() {
        let failure = Failure::no_answer();
        assert!(failure.may_repeat(true));
        assert!(!failure.may_repeat(false));
        assert!(!failure.store_error("append", false).is_retryable());
        assert!(Failure::no_answer().store_error("append", true).is_retryable());
    }
}
