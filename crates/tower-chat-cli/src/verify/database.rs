//! What is wrong with a store as a whole. Damage is something to report; any other failure of the
//! store is an error.

use tower_chat::{
    ConversationKey,
    store::{ConversationRows, HistoryStore, StoreError},
};
use tower_chat_encrypted::{EncryptionError, is_sealed_message};
use tower_chat_sqlite::SqliteStore;

use super::Finding;
use crate::{
    error::{CliError, chain},
    store::{self, OpenedStore},
};

/// What SQLite finds wrong with the file.
pub(crate) async fn damage_of_file(store: &SqliteStore) -> Result<Vec<Finding>, CliError> {
    let found = match store.check_integrity().await {
        Ok(found) => found,
        Err(error @ StoreError::Corrupt { .. }) => vec![error.to_string()],
        Err(error) => return Err(CliError::Check(error)),
    };
    Ok(found.iter().map(|line| Finding::of_store(line.replace('\n', " "))).collect())
}

/// The conversations that are to be looked at.
pub(crate) struct Keys {
    pub(crate) keys: Vec<ConversationKey>,
    /// Why they are not all.
    pub(crate) damage: Option<Finding>,
}

pub(crate) async fn keys_of(store: &OpenedStore) -> Result<Keys, CliError> {
    match store::keys(store, None, None).await {
        Ok(keys) => Ok(Keys { keys, damage: None }),
        Err(
            error @ (CliError::Scopes(StoreError::Corrupt { .. })
            | CliError::List { source: StoreError::Corrupt { .. }, .. }),
        ) => Ok(Keys { keys: Vec::new(), damage: Some(Finding::of_store(chain(&error))) }),
        Err(error) => Err(error),
    }
}

/// The rows of a conversation, or why they cannot be read. That they are sealed, and the key is missing, is
/// no damage.
pub(crate) async fn rows_of(
    store: &OpenedStore,
    key: &ConversationKey,
) -> Result<Result<Option<ConversationRows>, Finding>, CliError> {
    let damage = |error: &StoreError| Ok(Err(Finding::of_conversation(key, chain(error))));
    match store.history().rows(key).await {
        Ok(Some(rows)) if is_sealed(&rows) => Err(CliError::Sealed { key: key.clone() }),
        Ok(rows) => Ok(Ok(rows)),
        Err(error @ StoreError::Corrupt { .. }) => damage(&error),
        Err(source) => match EncryptionError::in_store_error(&source) {
            Some(EncryptionError::Key(_)) => Err(CliError::NoKey { key: key.clone(), source }),
            Some(_) => damage(&source),
            None => Err(CliError::CheckConversation { key: key.clone(), source }),
        },
    }
}

/// Whether the rows are read without the keys of what is in them.
fn is_sealed(rows: &ConversationRows) -> bool {
    rows.messages
        .iter()
        .filter_map(|(_, message)| message.as_ref().ok())
        .any(|message| is_sealed_message(message))
}

/// What is to be said of rows that belong to no conversation.
pub(crate) async fn stray_rows(store: &SqliteStore) -> Result<Option<Finding>, CliError> {
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
    let what = || format!("{} belong to no conversation", counts.join(" and "));
    Ok((!counts.is_empty()).then(|| Finding::of_store(what())))
}
