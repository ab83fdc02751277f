//! What is wrong with a store as a whole. Damage is something to report; any other failure of the
//! store is an error.

use tower_chat::{
    ConversationKey,
    store::{
        ConversationRows, HistoryStore, StoreError,
        author::{OpenRunContent, RecordedResult},
    },
};
use tower_chat_encrypted::{EncryptionError, is_sealed_message};
use tower_chat_sqlite::SqliteStore;

use super::Finding;
use crate::{
    error::{CliError, chain},
    runs::open_runs,
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

/// The open runs of which something cannot be read, with how to end them.
pub(crate) async fn damaged_open_runs(store: &OpenedStore) -> Result<Vec<Finding>, CliError> {
    let mut found = Vec::new();
    let runs = match open_runs(store, None, None).await {
        Ok(runs) => runs,
        // What cannot be listed is reported with the conversations.
        Err(CliError::List { scope, source }) if source.is_damage() => {
            let what =
                format!("the open runs of scope {scope} cannot be listed: {}", chain(&source));
            return Ok(vec![Finding::of_store(what)]);
        }
        Err(CliError::Scopes(source)) if source.is_damage() => return Ok(found),
        Err(error) => return Err(error),
    };
    for key in runs {
        let open = match store.history().head(&key).await {
            Ok(head) => head.open_run,
            // It is reported with the conversations.
            Err(error) if error.is_damage() => continue,
            Err(source) => return Err(CliError::OpenRun { key, source }),
        };
        let Some(open) = open else { continue };
        let damage = match store.history().open_run(&key).await {
            Ok(content) => content.and_then(|content| damage_of_run(&content)),
            Err(error) if error.is_damage() => Some(chain(&error)),
            Err(source) => return Err(CliError::OpenRun { key, source }),
        };
        if let Some(damage) = damage {
            let what = format!(
                "what open run {} has staged cannot be read: {damage}: end it with recover --end \
                 discard",
                open.run
            );
            found.push(Finding::of_conversation(&key, what));
        }
    }
    Ok(found)
}

/// What is wrong with the rows of calls that a run has staged.
fn damage_of_run(content: &OpenRunContent) -> Option<String> {
    let staged = |sequence: u64| {
        let position = sequence.checked_sub(content.open.visible)?.checked_sub(1)?;
        content.messages.get(usize::try_from(position).ok()?).cloned()
    };
    // A result may be in a message that readers see.
    let is_staged = |sequence: u64| sequence > content.open.visible;
    content.tools.iter().find_map(|row| {
        let concerns = match &row.result {
            RecordedResult::InMessage(at) => is_staged(at.sequence),
            RecordedResult::None | RecordedResult::Apart(_) => true,
        };
        let is_checked = concerns && is_staged(row.call.sequence);
        let error = row.resolve(staged).err().filter(|_| is_checked)?;
        Some(format!(
            "the record of call {} of message {}: {error}",
            row.call.index, row.call.sequence
        ))
    })
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
