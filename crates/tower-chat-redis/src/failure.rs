//! What the errors of Redis mean, in one place.

use std::{fmt, sync::Arc};

use redis::{ErrorKind, RedisError, ServerErrorKind};
use tower_chat_core::store::StoreError;

/// Something that was asked of the server and not answered as it should be.
#[derive(Debug, Clone)]
pub(crate) struct Failure {
    pub(crate) meaning: Meaning,
    source: Arc<dyn std::error::Error + Send + Sync>,
}

/// What an error means for whoever asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Nothing was done: the server could not be reached, or does not serve yet.
    NotDone,
    /// The connection was lost after the question was sent: it may have been done.
    Open,
    /// It was done, and is not yet where it should be safe.
    NotSafe,
    /// Nothing was done; the server lacks something that it may have again.
    Short,
    /// Nothing was done: the server only reads, as a replica does.
    ReadOnly,
    /// Something else lies under the names of the store.
    Foreign,
    /// The server does not know the script.
    Unknown,
    /// Nothing was done, and will not be.
    Lasting,
}

impl Failure {
    /// Of a command that was sent.
    pub(crate) fn of_command(error: RedisError) -> Self {
        let meaning = match error.kind() {
            ErrorKind::Server(kind) => match kind {
                ServerErrorKind::NoScript => Meaning::Unknown,
                ServerErrorKind::ReadOnly => Meaning::ReadOnly,
                ServerErrorKind::BusyLoading
                | ServerErrorKind::TryAgain
                | ServerErrorKind::ClusterDown
                | ServerErrorKind::MasterDown
                | ServerErrorKind::Moved
                | ServerErrorKind::Ask => Meaning::NotDone,
                // An error in a script carries the code of what the script did.
                _ => code_in(&error).map_or(Meaning::Lasting, meaning_of_code),
            },
            ErrorKind::Extension => error.code().map_or(Meaning::Lasting, meaning_of_code),
            ErrorKind::Io | ErrorKind::Parse => Meaning::Open,
            ErrorKind::ClusterConnectionNotFound => Meaning::NotDone,
            _ => Meaning::Lasting,
        };
        Self { meaning, source: Arc::new(error) }
    }

    /// Of making a connection: nothing was done.
    pub(crate) fn of_connecting(error: RedisError) -> Self {
        let mut failure = Self::of_command(error);
        if failure.meaning == Meaning::Open {
            failure.meaning = Meaning::NotDone;
        }
        failure
    }

    /// Of waiting for what was done to be safe.
    pub(crate) fn of_waiting(error: RedisError) -> Self {
        Self { meaning: Meaning::NotSafe, source: Arc::new(error) }
    }

    /// No answer came for longer than the server may take.
    pub(crate) fn no_answer() -> Self {
        Self { meaning: Meaning::Open, source: Arc::new(NoAnswer) }
    }

    /// Not as many as were asked for have what was written.
    pub(crate) fn not_safe(disks: i64, replicas: i64) -> Self {
        Self { meaning: Meaning::NotSafe, source: Arc::new(NotSafe { disks, replicas }) }
    }

    /// Whether the same may be sent again at once. `is_repeatable`: doing it twice does it once.
    pub(crate) fn may_repeat(&self, is_repeatable: bool) -> bool {
        match self.meaning {
            Meaning::NotDone | Meaning::ReadOnly => true,
            Meaning::Open | Meaning::NotSafe => is_repeatable,
            Meaning::Short | Meaning::Foreign | Meaning::Unknown | Meaning::Lasting => false,
        }
    }

    /// Whether another connection may do better.
    pub(crate) fn ends_connection(&self) -> bool {
        match self.meaning {
            Meaning::NotDone | Meaning::Open | Meaning::ReadOnly => true,
            Meaning::NotSafe
            | Meaning::Short
            | Meaning::Foreign
            | Meaning::Unknown
            | Meaning::Lasting => false,
        }
    }

    /// The error of a store that is open.
    pub(crate) fn store_error(self, action: &'static str, is_repeatable: bool) -> StoreError {
        match self.meaning {
            Meaning::ReadOnly => StoreError::ReadOnly,
            Meaning::Foreign => foreign(&self.source.to_string()),
            Meaning::NotDone | Meaning::Short => StoreError::backend(action, true, self),
            Meaning::Open | Meaning::NotSafe => StoreError::backend(action, is_repeatable, self),
            Meaning::Unknown | Meaning::Lasting => StoreError::backend(action, false, self),
        }
    }
}

/// Something else lies under the names of the store.
pub(crate) fn foreign(what: &str) -> StoreError {
    let reason = format!(
        "what lies under the names of the conversation was not put there by this store, or is not \
         all there ({what}): give the store a prefix of its own, or delete it"
    );
    StoreError::Corrupt { reason }
}

/// The code that an error in a script begins with.
fn code_in(error: &RedisError) -> Option<&str> {
    let detail = error.detail()?;
    [detail.split([' ', ':']).next()?, error.code()?].into_iter().find(|code| is_known(code))
}

fn is_known(code: &str) -> bool {
    meaning_of_code(code) != Meaning::Lasting
}

fn meaning_of_code(code: &str) -> Meaning {
    match code {
        "WRONGTYPE" => Meaning::Foreign,
        "OOM" | "MISCONF" | "NOREPLICAS" => Meaning::Short,
        "BUSY" | "LOADING" | "MASTERDOWN" | "CLUSTERDOWN" | "TRYAGAIN" => Meaning::NotDone,
        "READONLY" => Meaning::ReadOnly,
        _ => Meaning::Lasting,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.meaning {
            Meaning::NotDone => "Redis could not be reached: see that it runs, and try again",
            Meaning::Open => {
                "the connection to Redis was lost before the answer came, so it may have been done \
                 or not: load the conversation to see"
            }
            Meaning::NotSafe => {
                "Redis has done it, and not as many disks and replicas as were asked for have it \
                 yet: try again"
            }
            Meaning::Short => "Redis lacks memory, disk or replicas: make room, try again",
            Meaning::ReadOnly | Meaning::Foreign | Meaning::Unknown | Meaning::Lasting => {
                "Redis refused it"
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
#[error("no answer came")]
struct NoAnswer;

#[derive(Debug, thiserror::Error)]
#[error("the disks of {disks} servers and {replicas} replicas have it")]
struct NotSafe {
    disks: i64,
    replicas: i64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_mean_what_the_documentation_says() {
        for (code, expected) in [
            ("WRONGTYPE", Meaning::Foreign),
            ("OOM", Meaning::Short),
            ("MISCONF", Meaning::Short),
            ("NOREPLICAS", Meaning::Short),
            ("BUSY", Meaning::NotDone),
            ("READONLY", Meaning::ReadOnly),
            ("NOAUTH", Meaning::Lasting),
            ("WRONGPASS", Meaning::Lasting),
        ] {
            let error = redis::make_extension_error(code.to_owned(), None);
            assert_eq!(Failure::of_command(error).meaning, expected, "{code}");
        }
    }

    #[test]
    fn what_may_have_been_done_is_repeated_only_where_that_does_it_once() {
        for failure in [Failure::no_answer, || Failure::not_safe(0, 1)] {
            assert!(failure().may_repeat(true));
            assert!(!failure().may_repeat(false));
            assert!(!failure().store_error("append", false).is_retryable());
            assert!(failure().store_error("append", true).is_retryable());
        }
    }
}
