//! Searches a store for sealed (encrypted) data. An older release has written sealed data without
//! recording that the store contains such data.

use futures_util::future::try_join_all;
use redis::{Value, cmd};
use tower_chat_core::{
    ConversationKey,
    store::{
        StoreError,
        author::{SealMark, is_sealed_message},
    },
};

use crate::{
    answer::{self, Pairs},
    conversation::{Fields, visible},
    directory,
    list::Listed,
    message,
    settings::Settings,
};

const ACTION: &str = "check for sealed data";

/// The number of conversations that are read concurrently.
const PAGE: usize = 256;

/// Returns whether the store contains a sealed conversation. The search reads only the head, the
/// first message and the last message of each conversation, because the store wrapper seals all
/// messages that it appends, even after messages in plaintext.
pub(crate) async fn has_sealed_data(settings: &Settings) -> Result<bool, StoreError> {
    for scope in directory::all_scopes(settings).await? {
        let mut listed = Listed::new(settings, &scope, None);
        while let Some(keys) = listed.next(PAGE).await? {
            let sealed = keys.iter().map(|key| is_sealed(settings, key));
            if try_join_all(sealed).await?.contains(&true) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

async fn is_sealed(settings: &Settings, key: &ConversationKey) -> Result<bool, StoreError> {
    const FIELDS: [&str; 6] =
        ["format", "incarnation", "sequence", "visible", "pruned", "service_id"];
    let names = settings.names.conversation(key);
    let mut fields = cmd("HMGET");
    fields.arg(names.head()).arg(&FIELDS);
    let values = answer::list(settings.connections.ask(ACTION, &fields).await?)?;
    let values = values.into_iter().map(answer::bytes).collect::<Result<Vec<_>, _>>()?;
    let pairs: Pairs = FIELDS.iter().map(|name| (*name).to_owned()).zip(values).collect();
    // A conversation that is damaged or was deleted counts as not sealed.
    let Ok(head) = Fields::new(pairs).head(key) else { return Ok(false) };
    if SealMark::is_sealed_head(&head) {
        return Ok(true);
    }
    let mut messages = cmd("HMGET");
    messages.arg(names.messages()).arg(head.pruned.saturating_add(1)).arg(visible(&head));
    let stored = answer::list(settings.connections.ask(ACTION, &messages).await?)?;
    Ok(stored.into_iter().any(is_sealed_content))
}

fn is_sealed_content(stored: Value) -> bool {
    let stored = answer::bytes(stored).ok().flatten();
    let message = stored.and_then(|stored| message::read(&stored).ok());
    message.is_some_and(|message| is_sealed_message(&message))
}
