//! The state that all requests to the server share.

use std::time::Duration;

use redis::cmd;
use tower_chat_core::{
    RunId,
    store::{
        StoreError,
        author::{SealMark, SealedChange},
    },
};

use crate::{answer, connections::Connections, names::Names, sealed_data::has_sealed_data};

/// The connections of a store, and the settings of its requests.
#[derive(Debug)]
pub(crate) struct Settings {
    pub(crate) connections: Connections,
    pub(crate) names: Names,
    pub(crate) time_to_live: Option<Duration>,
    /// The cached mark that the store contains sealed (encrypted) data.
    pub(crate) seal_mark: SealMark,
}

const SEAL_MARK: &str = "use the mark of sealed data";

/// The mark of a store that contains sealed data.
const SEALED: &[u8] = b"1";

/// The mark of a store in which no sealed data were found.
const PLAIN: &[u8] = b"0";

impl Settings {
    /// Checks whether a change is permitted: refuses a change that is not sealed if the store
    /// contains sealed data.
    pub(crate) async fn admit(&self, change: SealedChange) -> Result<(), StoreError> {
        let read = async {
            let mut get = cmd("GET");
            get.arg(self.names.seal_mark());
            match answer::bytes(self.connections.ask(SEAL_MARK, &get).await?)? {
                Some(mark) => Ok(mark == SEALED),
                None => self.search().await,
            }
        };
        let set = async {
            let mut set = cmd("SET");
            set.arg(self.names.seal_mark()).arg(SEALED);
            self.connections.ask(SEAL_MARK, &set).await.map(drop)
        };
        self.seal_mark.admit(change, read, set).await
    }

    /// Searches the store for sealed data, which an older release may have stored without a mark,
    /// and stores the result as the mark.
    async fn search(&self) -> Result<bool, StoreError> {
        let is_found = has_sealed_data(self).await?;
        let mut set = cmd("SET");
        set.arg(self.names.seal_mark()).arg(if is_found { SEALED } else { PLAIN }).arg("NX");
        // If the server has no memory left, the next process searches again.
        drop(self.connections.ask(SEAL_MARK, &set).await);
        Ok(is_found)
    }

    /// Returns the time to live as the scripts expect it: in milliseconds, or empty.
    pub(crate) fn lifetime(&self) -> String {
        self.time_to_live.map(|time| time.as_millis().to_string()).unwrap_or_default()
    }
}

/// Returns sixteen random hexadecimal digits.
pub(crate) fn random() -> String {
    format!("{:016x}", RunId::new().random_half())
}
