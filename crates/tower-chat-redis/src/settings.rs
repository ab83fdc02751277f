//! What everything that asks the server needs.

use std::time::Duration;

use tower_chat_core::RunId;

use crate::{connections::Connections, names::Names};

/// The connections of a store, and how it keeps what it is given.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) connections: Connections,
    pub(crate) names: Names,
    pub(crate) time_to_live: Option<Duration>,
}

impl Settings {
    /// How long a conversation lives after a write, as scripts take it.
    pub(crate) fn lifetime(&self) -> String {
        self.time_to_live.map(|time| time.as_millis().to_string()).unwrap_or_default()
    }
}

/// Sixteen digits that nobody else has.
pub(crate) fn random() -> String {
    format!("{:016x}", RunId::new().random_half())
}
