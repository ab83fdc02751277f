//! The description of a conversation.

use tower_chat_core::{
    ConversationKey,
    store::{Description, StoreError},
};

use super::{ATTEMPTS, adopt::adopt};
use crate::{
    answer::{Answer, damaged, number},
    conversation::newer,
    failure::foreign,
    read::keeps_changing,
    script::DESCRIBE,
    settings::{Settings, random},
};

const ACTION: &str = "describe a conversation";

/// Sets the description of a conversation if the stored one has the expected version, and returns
/// the new version.
pub(crate) async fn set_description(
    settings: &Settings,
    key: &ConversationKey,
    description: &Description,
    expected: u64,
) -> Result<u64, StoreError> {
    let json = serde_json::to_vec(description)
        .map_err(|error| StoreError::backend(ACTION, false, error))?;
    let names = settings.names.conversation(key);
    // The script recognises a repeated request by this random id.
    let request = random();
    for _ in 0..ATTEMPTS {
        let call = DESCRIBE
            .on([names.head(), names.directory()])
            .with(expected)
            .with(&request)
            .with(json.as_slice());
        let mut answer = Answer::new(settings.connections.change(ACTION, true, &call).await?)?;
        match answer.text()?.as_str() {
            "set" => return number(&answer.text()?),
            "changed" => {
                let found = number(&answer.text()?)?;
                return Err(StoreError::DescriptionChanged { key: key.clone(), expected, found });
            }
            "absent" => return Err(StoreError::NoConversation { key: key.clone() }),
            "undescribed" => adopt(settings, key).await?,
            "damaged" => return Err(damaged(key)),
            "newer" => return Err(newer(key, &answer.text()?)),
            other => return Err(foreign(other)),
        }
    }
    Err(keeps_changing(ACTION))
}
