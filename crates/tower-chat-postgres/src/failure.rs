//! What PostgreSQL's errors mean, in one place.

use std::fmt;

use deadpool_postgres::PoolError;
use tokio_postgres::error::SqlState;
use tower_chat_core::{BoxError, store::StoreError};

use crate::OpenError;

/// Something that was asked of the server and not answered as it should be.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) meaning: Meaning,
    source: BoxError,
}

/// What an error means for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing was done: the server could not be reached, or gave the work up for another's.
    NotDone,
    /// The connection was lost after the question was sent: it may have been done.
    Open,
    /// Nothing was done in the time that it may take.
    TooSlow,
    /// Nothing was done; the server lacks something that it may have again.
    Short,
    /// The server only reads, as a standby does.
    ReadOnly,
    /// The server says that its data are damaged.
    Damaged,
    /// Nothing was done, and will not be.
    Lasting,
}

impl Failure {
    /// Of a statement that was sent.
    pub(crate) fn of_statement(error: tokio_postgres::Error) -> Self {
        let meaning = match error.code() {
            Some(code) => meaning(code),
            // Without a code it does not come from the server.
            None if error.is_closed() || is_io(&error) => Meaning::Open,
            None => Meaning::Lasting,
        };
        Self { meaning, source: error.into() }
    }

    /// The same of what was sent before the statement: nothing was done.
    pub(crate) fn before_statement(mut self) -> Self {
        if self.meaning == Meaning::Open {
            self.meaning = Meaning::NotDone;
        }
        self
    }

    /// Of getting a connection.
    pub(crate) fn of_pool(error: PoolError) -> Self {
        match error {
            PoolError::Backend(error) => {
                let has_code = error.code().is_some();
                let mut failure = Self::of_statement(error).before_statement();
                // What keeps a client from connecting is told without a code too.
                if !has_code {
                    failure.meaning = Meaning::NotDone;
                }
                failure
            }
            PoolError::Timeout(_)
            | PoolError::Closed
            | PoolError::NoRuntimeSpecified
            | PoolError::PostCreateHook(_) => {
                Self { meaning: Meaning::NotDone, source: error.into() }
            }
        }
    }

    /// No answer came for longer than the server may take.
    pub(crate) fn no_answer() -> Self {
        Self { meaning: Meaning::Open, source: NoAnswer.into() }
    }

    /// Whether nothing better can be expected over the same connection, nor over others that were
    /// made before: the way to the server is dead, or it writes no more.
    pub(crate) fn spoils_connections(&self) -> bool {
        self.meaning == Meaning::ReadOnly || self.source.is::<NoAnswer>()
    }

    /// Whether the same may be sent again at once. `is_repeatable`: doing it twice does it once.
    pub(crate) fn may_repeat(&self, is_repeatable: bool) -> bool {
        match self.meaning {
            Meaning::NotDone => true,
            Meaning::Open => is_repeatable,
            Meaning::TooSlow
            | Meaning::Short
            | Meaning::ReadOnly
            | Meaning::Damaged
            | Meaning::Lasting => false,
        }
    }

    /// The error of a store that cannot be opened, for want of a connection.
    pub(crate) fn open_error(self) -> OpenError {
        if is_untrusted(&*self.source) {
            return OpenError::Untrusted { source: self.source };
        }
        let retryable = self.meaning == Meaning::NotDone;
        OpenError::Connect { source: self.into(), retryable }
    }

    /// The error of a store that is open.
    pub(crate) fn store_error(self, action: &'static str, is_repeatable: bool) -> StoreError {
        match self.meaning {
            Meaning::ReadOnly => StoreError::ReadOnly,
            Meaning::Damaged => StoreError::Corrupt { reason: self.source.to_string() },
            Meaning::NotDone | Meaning::TooSlow | Meaning::Short => {
                StoreError::backend(action, true, self)
            }
            Meaning::Open => StoreError::backend(action, is_repeatable, self),
            Meaning::Lasting => StoreError::backend(action, false, self),
        }
    }
}

fn meaning(code: &SqlState) -> Meaning {
    match *code {
        // The server rolls back what it did when it says so.
        SqlState::T_R_SERIALIZATION_FAILURE
        | SqlState::T_R_DEADLOCK_DETECTED
        | SqlState::CANNOT_CONNECT_NOW
        | SqlState::TOO_MANY_CONNECTIONS => Meaning::NotDone,
        SqlState::ADMIN_SHUTDOWN
        | SqlState::CRASH_SHUTDOWN
        | SqlState::IDLE_SESSION_TIMEOUT
        | SqlState::T_R_STATEMENT_COMPLETION_UNKNOWN
        | SqlState::TRANSACTION_RESOLUTION_UNKNOWN => Meaning::Open,
        SqlState::QUERY_CANCELED | SqlState::LOCK_NOT_AVAILABLE => Meaning::TooSlow,
        SqlState::READ_ONLY_SQL_TRANSACTION => Meaning::ReadOnly,
        // No store sends numbers out of range, or adds a message where one can be: a row that is
        // stored is out of its place.
        SqlState::DATA_CORRUPTED
        | SqlState::INDEX_CORRUPTED
        | SqlState::NUMERIC_VALUE_OUT_OF_RANGE
        | SqlState::UNIQUE_VIOLATION => Meaning::Damaged,
        _ => match code.code().get(..2) {
            Some("08") => Meaning::Open,
            Some("53" | "58") => Meaning::Short,
            Some(_) | None => Meaning::Lasting,
        },
    }
}

fn is_io(error: &tokio_postgres::Error) -> bool {
    std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
}

/// Whether the server was refused for its certificate.
fn is_untrusted(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(error) = cause {
        // What stands in an error of the operating system is not told as its source.
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
            Meaning::NotDone => "PostgreSQL could not be reached: see that it runs, and try again",
            Meaning::Open => {
                "the connection to PostgreSQL was lost before the answer came, so it may have been \
                 done or not: load the conversation to see"
            }
            Meaning::TooSlow => {
                "PostgreSQL took longer than it may: try again, or allow a longer statement timeout"
            }
            Meaning::Short => "PostgreSQL lacks disk, memory or connections: make room, try again",
            Meaning::ReadOnly | Meaning::Damaged | Meaning::Lasting => "PostgreSQL refused it",
        })
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no answer came")]
struct NoAnswer;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_documentation_says() {
        // https://www.postgresql.org/docs/current/errcodes-appendix.html
        for (code, expected) in [
            ("40001", Meaning::NotDone),
            ("40P01", Meaning::NotDone),
            ("57P03", Meaning::NotDone),
            ("57P01", Meaning::Open),
            ("57P02", Meaning::Open),
            ("08006", Meaning::Open),
            ("57014", Meaning::TooSlow),
            ("53100", Meaning::Short),
            ("25006", Meaning::ReadOnly),
            ("XX001", Meaning::Damaged),
            ("42P01", Meaning::Lasting),
            ("23505", Meaning::Damaged),
            ("22003", Meaning::Damaged),
            ("23502", Meaning::Lasting),
        ] {
            assert_eq!(meaning(&SqlState::from_code(code)), expected, "{code}");
        }
    }

    #[test]
    fn what_may_have_been_done_is_repeated_only_where_that_does_it_once() {
        let failure = Failure::no_answer();
        assert!(failure.may_repeat(true));
        assert!(!failure.may_repeat(false));
        assert!(!failure.store_error("append", false).is_retryable());
        assert!(Failure::no_answer().store_error("append", true).is_retryable());
    }
}
