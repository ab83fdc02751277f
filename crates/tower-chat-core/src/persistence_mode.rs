//! The persistence modes: when the messages of a run become durable. A run is the service calls and
//! tool calls for one request.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The persistence mode of a run: when its messages become durable.
///
/// The layers or the builder of a stack set the mode. A request extension of this type sets the
/// mode for one request.
///
/// | | after a run that fails | after a process is killed |
/// |---|---|---|
/// | [`PerRun`](Self::PerRun) | nothing is stored | nothing of the unfinished run is stored |
/// | [`PerServiceCall`](Self::PerServiceCall) | the successful service calls and the inputs of the failed one are stored | the successful service calls are stored |
/// | [`Journaled`](Self::Journaled) | the run stays open and can be resumed | the run stays open and can be resumed |
///
/// `docs/contract.md` of the project lists what each mode stores after each event, with the tests
/// of each entry.
///
/// ```
/// use tower_chat_core::PersistenceMode;
/// let mode = PersistenceMode::PerServiceCall;
/// assert_eq!(mode.to_string(), "per_service_call");
/// assert_eq!(mode.as_str().parse(), Ok(mode));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PersistenceMode {
    /// The messages of the run are buffered and appended together at its end. By default, the last
    /// tool results are not stored if no service call has received them.
    #[default]
    PerRun,
    /// Every successful service call is appended with its new inputs, before the caller receives
    /// the end of the response.
    PerServiceCall,
    /// Every message and the start and outcome of every tool are made durable immediately. Until
    /// its end, the run is open, and readers do not see its messages. A later attempt (execution)
    /// can resume an open run. An operator can end an open run (module `recovery` of `tower-chat`):
    /// a commit makes all messages of the run part of the history, and a discard deletes all of
    /// them. If a write fails, the run fails.
    Journaled,
}

impl PersistenceMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::PerRun, Self::PerServiceCall, Self::Journaled];

    /// Returns the name under which the mode is stored, such as `per_run`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PerRun => "per_run",
            Self::PerServiceCall => "per_service_call",
            Self::Journaled => "journaled",
        }
    }
}

impl fmt::Display for PersistenceMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The error of parsing a text that is not the name of a [`PersistenceMode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text:?} is not a persistence mode: use per_run, per_service_call or journaled")]
pub struct ParsePersistenceModeError {
    text: String,
}

impl FromStr for PersistenceMode {
    type Err = ParsePersistenceModeError;

    fn from_str(text: &str) -> Result<Self, ParsePersistenceModeError> {
        let found = Self::ALL.into_iter().find(|mode| mode.as_str() == text);
        found.ok_or_else(|| ParsePersistenceModeError { text: text.to_owned() })
    }
}
