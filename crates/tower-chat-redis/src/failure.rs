//! Maps errors of the server to the errors of a store.

use std::{fmt, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tower_chat_core::store::StoreError;

/// A failed request to the server.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) meaning: Meaning,
    source: Arc<dyn std::error::Error + Send + Sync>,
}

/// The class of a failure, which determines the error that the store reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing was changed: the server could not be reached, or is still starting.
    NotApplied,
    /// The connection was lost after the request was sent, so the change may be applied or not.
    Unknown,
    /// The change was applied, but not yet replicated or synced as the options require.
    NotSafe,
    /// Nothing was changed: the server has temporarily no memory, disk space or connections
    /// available.
    ResourceExhausted,
    /// Nothing was changed: the server is read-only, such as a replica.
    ReadOnly,
    /// A key has a value that the store did not write, for example of another type.
    Foreign,
    /// The server has not cached the script (`NOSCRIPT`).
    UnknownScript,
    /// Nothing was changed, and a retry would fail too.
    Permanent,
}

impl Failure {
    /// Creates the failure of a command that was sent.
    pub(crate) fn of_command(error: RedisError) -> Self {
        let meaning = match error.kind() {
            ErrorKind::Server(kind) => match kind {
                ServerErrorKind::NoScript => Meaning::UnknownScript,
                ServerErrorKind::ReadOnly => Meaning::ReadOnly,
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask => Meaning::NotApplied,
                // The error of a script begins with the code of the command that has failed.
                _ => code_in(&error).map_or(Meaning::Permanent, meaning_of_code),
            },
            ErrorKind::Extension => error.code().map_or(Meaning::Permanent, meaning_of_code),
            ErrorKind::Io | ErrorKind::Parse => Meaning::Unknown,
            ErrorKind::ClusterConnectionNotFound => Meaning::NotApplied,
            _ => Meaning::Permanent,
        };
        Self { meaning, source: Arc::new(error) }
    }

    /// Creates the failure for a connection that could not be opened, so that nothing was changed.
    pub(crate) fn of_connecting(error: RedisError) -> Self {
        let mut failure = Self::of_command(error);
        if failure.meaning == Meaning::Unknown {
            failure.meaning = Meaning::NotApplied;
        }
        failure
    }

    /// Creates the failure of a wait for replicas or disks. The write itself was applied.
    pub(crate) fn of_waiting(error: RedisError) -> Self {
        Self { meaning: Meaning::NotSafe, source: Arc::new(error) }
    }

    /// Creates the failure for a request that was not answered in time.
    pub(crate) fn no_answer() -> Self {
        Self { meaning: Meaning::Unknown, source: Arc::new(NoAnswer) }
    }

    /// Creates the failure for an applied write that fewer replicas or disks than required have
    /// confirmed.
    pub(crate) fn not_safe(disks: i64, replicas: i64) -> Self {
        Self { meaning: Meaning::NotSafe, source: Arc::new(NotSafe { disks, replicas }) }
    }

    /// Returns whether the store may repeat the request. `is_repeatable` means that a second
    /// execution has no effect.
    pub(crate) fn may_repeat(&self, is_repeatable: bool) -> bool {
        match self.meaning {
            Meaning::NotApplied | Meaning::ReadOnly => true,
            Meaning::Unknown | Meaning::NotSafe => is_repeatable,
            Meaning::ResourceExhausted
            | Meaning::Foreign
            | Meaning::UnknownScript
            | Meaning::Permanent => false,
        }
    }

    /// Returns whether a retry should use a new connection.
    pub(crate) fn ends_connection(&self) -> bool {
        match self.meaning {
            Meaning::NotApplied | Meaning::Unknown | Meaning::ReadOnly => true,
            Meaning::NotSafe
            | Meaning::ResourceExhausted
            | Meaning::Foreign
            | Meaning::UnknownScript
            | Meaning::Permanent => false,
        }
    }

    /// Returns the error of an open store.
    pub(crate) fn store_error(self, action: &'static str, is_repeatable: bool) -> StoreError {
        match self.meaning {
            Meaning::ReadOnly => StoreError::ReadOnly,
            Meaning::Foreign => foreign(&self.source.to_string()),
            Meaning::NotApplied | Meaning::ResourceExhausted => {
                StoreError::backend(action, true, self)
            }
            Meaning::Unknown | Meaning::NotSafe => StoreError::backend(action, is_repeatable, self),
            Meaning::UnknownScript | Meaning::Permanent => StoreError::backend(action, false, self),
        }
    }
}

/// Returns the error for a key with a value that this store did not write.
pub(crate) fn foreign(what: &str) -> StoreError {
    let reason = format!(
        "the keys of the conversation were not written by this store, or are incomplete ({what}): give the store a \
         prefix that no other program uses, or delete these keys"
    );
    StoreError::Corrupt { reason }
}

/// Returns the code at the beginning of an error in a script.
fn code_in(error: &RedisError) -> Option<&str> {
    let detail = error.detail()?;
    [detail.split([' ', ':']).next()?, error.code()?].into_iter().find(|code| is_known(code))
}

fn is_known(code: &str) -> bool {
    meaning_of_code(code) != Meaning::Permanent
}

fn meaning_of_code(code: &str) -> Meaning {
    match code {
        "WRONGTYPE" => Meaning::Foreign,
        "OOM" | "MISCONF" | "NOREPLICAS" => Meaning::ResourceExhausted,
        "BUSY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => Meaning::NotApplied,
        "READONLY" => Meaning::ReadOnly,
        _ => Meaning::Permanent,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.meaning {
            Meaning::NotApplied => "Redis cannot be reached: check that it runs, and try again",
            Meaning::Unknown => {
                "the connection to Redis was lost before the response, so the outcome is unknown: to check it, \
                 load the conversation, or read the state of the run if an update log reports this"
            }
            Meaning::NotSafe => {
                "Redis has applied the change, and fewer disks or replicas than required have confirmed it: try again"
            }
            Meaning::ResourceExhausted => {
                "Redis lacks memory, disk space or replicas: add what is missing, and try again"
            }
            Meaning::ReadOnly | Meaning::Foreign | Meaning::UnknownScript | Meaning::Permanent => {
                "Redis refused the command"
            }
        })
    }
}

impl std::error::Error for Failure {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.source)
    }
}

#[derive(Debug, thiserror::Error)]
#[error("no response within the time of RedisOptions::with_response_timeout")]
struct NoAnswer;

#[derive(Debug, thiserror::Error)]
#[error(
    "the number of disks that have confirmed the change is {disks}, and the number of replicas is {replicas}"
)]
struct NotSafe {
    disks: i64,
    replicas: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_codes_of_the_server_have_their_documented_meanings() {
        for (code, expected) in [
            ("WRONGTYPE", Meaning::Foreign),
            ("OOM", Meaning::ResourceExhausted),
            ("MISCONF", Meaning::ResourceExhausted),
            ("NOREPLICAS", Meaning::ResourceExhausted),
            ("BUSY", Meaning::NotApplied),
            ("READONLY", Meaning::ReadOnly),
            ("NOAUTH", Meaning::Permanent),
            ("WRONGPASS", Meaning::Permanent),
        ] {
            let error = redis::make_extension_error(code.to_owned(), None);
            assert_eq!(Failure::of_command(error).meaning, expected, "{code}");
        }
    }

    #[test]
    fn a_request_with_an_unknown_outcome_is_repeated_only_if_idempotent() {
        for failure in [Failure::no_answer, || Failure::not_safe(0, 1)] {
            assert!(failure().may_repeat(true));
            assert!(!failure().may_repeat(false));
            assert!(!failure().store_error("append", false).is_retryable());
            assert!(failure().store_error("append", true).is_retryable());
        }
    }
}
