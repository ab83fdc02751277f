//! What is wrong with a file as a whole. Damage is something to report; any other failure of the
//! store is an error.

use tower_chat::{ConversationKey, store::StoreError};
use tower_chat_sqlite::{ConversationRows, SqliteStore};

use crate::{
    error::{CliError, chain},
    store::{self, OpenedStore},
};

/// What SQLite finds wrong with the file.
pub(crate) async fn damage_of_file(store: &SqliteStore) -> Result<Vec<String>, CliError> {
    let found = match store.check_integrity().await {
        Ok(found) => found,
        Err(error @ StoreError::Corrupt { .. }) => vec![error.to_string()],
        Err(error) => return Err(CliError::Check(error)),
    };
    Ok(found.iter().map(|line| format!("database: {}", line.replace('\n', " "))).collect())
}

/// The conversations that are to be looked at.
pub(crate) struct Keys {
    pub(crate) keys: Vec<ConversationKey>,
    /// Why they are not all.
    pub(crate) damage: Option<String>,
}

pub(crate) async fn keys_of(store: &OpenedStore) -> Result<Keys, CliError> {
    match store::keys(store, None, None).await {
        Ok(keys) => Ok(Keys { keys, damage: None }),
        Err(
            error @ (CliError::Scopes(StoreError::Corrupt { .. })
            | CliError::List { source: StoreError::Corrupt { .. }, .. }),
        ) => Ok(Keys { keys: Vec::new(), damage: Some(format!("database: {}", chain(&error))) }),
        Err(error) => Err(error),
    }
}

/// The rows of a conversation, or why they cannot be read.
pub(crate) async fn rows_of(
    store: &SqliteStore,
    key: &ConversationKey,
) -> Result<Result<Option<ConversationRows>, String>, CliError> {
    match store.rows(key).await {
        Ok(rows) => Ok(Ok(rows)),
        Err(error @ StoreError::Corrupt { .. }) => {
            Ok(Err(format!("conversation {key}: {}", chain(&error))))
        }
        Err(source) => Err(CliError::CheckConversation { key: key.clone(), source }),
    }
}

/// What is to be said of rows that belong to no conversation.
pub(crate) async fn stray_rows(store: &SqliteStore) -> Result<Option<String>, CliError> {
    let stray = match store.stray_rows().await {
        Ok(stray) => stray,
        // Said already, of the file.
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(CliError::Check(error)),
    };
    let counts: Vec<String> =
        [(stray.messages, "messages"), (stray.tools, "records of tool calls")]
            .into_iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {what}"))
            .collect();
    Ok((!counts.is_empty())
        .then(|| format!("database: {} belong to no conversation", counts.join(" and "))))
}
