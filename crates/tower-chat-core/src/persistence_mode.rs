//! When the messages of a run become durable.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// When the messages of a run become durable.
///
/// Chosen for a stack by its layers or its builder, and for one request by a request extension of
/// this type.
///
/// | | a run that fails | a process that is killed |
/// |---|---|---|
/// | [`PerRun`](Self::PerRun) | leaves no trace | loses the run under way |
/// | [`PerServiceCall`](Self::PerServiceCall) | keeps the service calls that succeeded | keeps the same |
/// | [`Journaled`](Self::Journaled) | stays open, to be resumed | the same |
///
/// `docs/contract.md` of the project says what is stored in each mode after each event, with the
/// tests that show it.
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
    /// The run is buffered and appended at its end, at once or not at all. Tool results at its
    /// end that no service call has seen are left out.
    #[default]
    PerRun,
    /// Every service call that succeeds is appended, with what was new in it, before its caller
    /// sees the end of the response.
    PerServiceCall,
    /// Everything is made durable as it happens, every tool's start and outcome too, and becomes
    /// part of the history at the end of the run, at once or not at all. Until then the run is
    /// open: it can be resumed from where it stopped, committed as it is, or discarded (module
    /// `recovery` of `tower-chat`). A write that fails fails the call.
    Journaled,
}

impl PersistenceMode {
    /// All modes.
    pub const ALL: [Self; 3] = [Self::PerRun, Self::PerServiceCall, Self::Journaled];

    /// The name by which it is stored, such as `per_run`.
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

/// The text is the name of no [`PersistenceMode`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no persistence mode is called {text:?}: it is per_run, per_service_call or journaled")]
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
