//! The summaries of a conversation ([`HistorySummary`]). The model receives the last summary, which
//! is the summary in force, instead of the messages that it covers.
//!
//! A hash contains one value for each summary: the id and the JSON of the summary. The fields of
//! the head contain the id and the range of the summary in force, so that a reader of the head
//! needs no other key.

use tower_chat_core::{
    ConversationKey,
    store::{AddedSummary, HistorySummary, StoreError},
};

use crate::{
    answer::{Answer, corrupt, damaged},
    conversation::newer,
    failure::foreign,
    message,
    script::{ADD_SUMMARY, HISTORY_SUMMARIES, REMOVE_SUMMARY},
    settings::Settings,
};

const ADD: &str = "add a summary";

/// Returns the summaries of a conversation, in the order of the messages that they cover.
pub(crate) async fn list(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Vec<HistorySummary>, StoreError> {
    read(settings, key, String::new()).await
}

/// Returns the summary with an id.
pub(crate) async fn find(
    settings: &Settings,
    key: &ConversationKey,
    id: u64,
) -> Result<Option<HistorySummary>, StoreError> {
    Ok(read(settings, key, id.to_string()).await?.pop())
}

/// Returns the summary with an id, or all summaries of the conversation if the id is empty.
async fn read(
    settings: &Settings,
    key: &ConversationKey,
    id: String,
) -> Result<Vec<HistorySummary>, StoreError> {
    let names = settings.names.conversation(key);
    let call = HISTORY_SUMMARIES.on([names.head(), names.summaries()]).with(id);
    let answer = settings.connections.read("read the summaries of a conversation", &call).await?;
    let mut answer = Answer::new(answer)?;
    match answer.text()?.as_str() {
        "summaries" => {}
        "newer" => return Err(newer(key, &answer.text()?)),
        other => return Err(foreign(other)),
    }
    let mut summaries = Vec::new();
    for (covers_to, stored) in answer.pairs()? {
        let summary = decode(&covers_to, &stored.unwrap_or_default()).map_err(|reason| {
            corrupt(&format!(
                "the summary of conversation {key} up to message {covers_to}: {reason}"
            ))
        });
        summaries.push(summary?);
    }
    summaries.sort_unstable_by_key(|summary| summary.covers_to);
    Ok(summaries)
}

fn decode(covers_to: &str, stored: &[u8]) -> Result<HistorySummary, String> {
    let stored = std::str::from_utf8(stored).map_err(|error| error.to_string())?;
    let (id, body) = stored.split_once(' ').ok_or("it has no id")?;
    let summary: HistorySummary = serde_json::from_str(body).map_err(|error| error.to_string())?;
    let is_its_own = summary.id.to_string() == id && summary.covers_to.to_string() == covers_to;
    if is_its_own { Ok(summary) } else { Err("its body belongs to another summary".to_owned()) }
}

/// Adds a summary. A second execution has no effect.
pub(crate) async fn add(
    settings: &Settings,
    key: &ConversationKey,
    summary: &HistorySummary,
    rewrites: u64,
) -> Result<AddedSummary, StoreError> {
    let body =
        serde_json::to_string(summary).map_err(|error| StoreError::backend(ADD, false, error))?;
    let names = settings.names.conversation(key);
    let call = ADD_SUMMARY
        .on([names.head(), names.messages(), names.summaries()])
        .with(summary.covers_to)
        .with(summary.id)
        .with(&message::name(summary.last))
        .with(body)
        .with(rewrites);
    let mut answer = Answer::new(settings.connections.change(ADD, true, &call).await?)?;
    match answer.text()?.as_str() {
        "stored" => Ok(AddedSummary::Stored),
        "no message" => Ok(AddedSummary::NoSuchMessage),
        "outdated" => Ok(AddedSummary::Rewritten),
        "superseded" => Ok(AddedSummary::Superseded),
        "damaged" => Err(damaged(key)),
        "newer" => Err(newer(key, &answer.text()?)),
        other => Err(foreign(other)),
    }
}

/// Removes the summary in force if it has this id. A request that may have been executed is not
/// sent again: the second execution would report that no summary was removed.
pub(crate) async fn remove(
    settings: &Settings,
    key: &ConversationKey,
    id: u64,
) -> Result<bool, StoreError> {
    let names = settings.names.conversation(key);
    let call = REMOVE_SUMMARY.on([names.head(), names.summaries()]).with(id);
    let answer = settings.connections.change("remove a summary", false, &call).await?;
    let mut answer = Answer::new(answer)?;
    match answer.text()?.as_str() {
        "deleted" => Ok(true),
        "absent" => Ok(false),
        "damaged" => Err(damaged(key)),
        "newer" => Err(newer(key, &answer.text()?)),
        other => Err(foreign(other)),
    }
}
