//! The shared state of all requests to the server.

use std::time::Duration;

use redis::{Value, cmd};
use tower_chat_core::{
    RunId,
    store::{
        StoreError,
        author::{SealMark, SealedChange},
    },
};

use crate::{connections::Connections, names::Names};

/// The connections of a store, and the settings of its requests.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) connections: Connections,
    pub(crate) names: Names,
    pub(crate) time_to_live: Option<Duration>,
    /// The cached mark of sealed data.
    pub(crate) seal_mark: SealMark,
}

const SEAL_MARK: &str = "use the mark of sealed data";

impl Settings {
    /// Admits a change or refuses it, because the store contains sealed data.
    pub(crate) async fn admit(&self, change: SealedChange) -> Result<(), StoreError> {
        let read = async {
            let mut exists = cmd("EXISTS");
            exists.arg(self.names.seal_mark());
            let found = self.connections.ask(SEAL_MARK, &exists).await?;
            Ok(found != Value::Int(0))
        };
        let set = async {
            let mut set = cmd("SET");
            set.arg(self.names.seal_mark()).arg("1");
            self.connections.ask(SEAL_MARK, &set).await.map(drop)
        };
        self.seal_mark.admit(change, read, set).await
    }

    /// Returns the time to live as an argument of scripts.
    pub(crate) fn lifetime(&self) -> String {
        self.time_to_live.map(|time| time.as_millis().to_string()).unwrap_or_default()
    }
}

/// Returns sixteen random digits.
pub(crate) fn random() -> String {
    format!("{:016x}", RunId::new().random_half())
}
