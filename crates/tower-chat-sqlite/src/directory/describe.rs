//! The description of a conversation.

use rusqlite::{Connection, OptionalExtension, params};
use tower_chat_core::{
    ConversationKey,
    store::{Description, StoreError},
};

use crate::{append::NotStored, conversation};

/// Sets the description of a conversation if the stored one has the version `expected`, and returns
/// the new version.
pub(crate) fn describe(
    connection: &Connection,
    key: &ConversationKey,
    description: &Description,
    expected: u64,
) -> Result<u64, NotStored> {
    let refused = |error| Err(NotStored::Refused(error));
    let Some(number) = conversation::number(connection, key)? else {
        return refused(StoreError::NoConversation { key: key.clone() });
    };
    let found: Option<i64> = connection
        .prepare_cached("SELECT description_version FROM conversations WHERE id = ?1")?
        .query_row([number], |row| row.get(0))
        .optional()?;
    let found = found.unwrap_or_default().cast_unsigned();
    if found != expected {
        return refused(StoreError::DescriptionChanged { key: key.clone(), expected, found });
    }
    let version = expected.saturating_add(1);
    let metadata = match description.metadata() {
        metadata if metadata.is_empty() => None,
        metadata => match serde_json::to_string(metadata) {
            Ok(metadata) => Some(metadata),
            Err(error) => {
                return refused(StoreError::backend("describe a conversation", false, error));
            }
        },
    };
    connection
        .prepare_cached(
            "UPDATE conversations SET title = ?2, metadata = ?3, description_version = ?4
             WHERE id = ?1",
        )?
        .execute(params![number, description.title(), metadata, version.cast_signed()])?;
    Ok(version)
}
