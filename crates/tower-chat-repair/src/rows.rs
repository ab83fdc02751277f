//! Reads the rows of a store for a check. The functions return damage as a [`Finding`], and any
//! other failure of the store as an error.
//!
//! The messages of an *open run* are *staged*: the store contains these messages, but they are not
//! part of the history yet. The *record of tool calls* is a part of a store: one row for each call,
//! with its status, times and result.

use tower_chat_core::{
    ConversationKey,
    store::{
        ConversationRows, Directory, HistoryStore, Journal, Maintenance, StoreError,
        author::{OpenRunContent, RecordedResult},
    },
};

use crate::{
    Finding, RepairError, Target,
    error::chain,
    sealed::{is_damage, is_key_missing, is_sealed},
    target::StoreFile,
};

/// The maximum number of scopes, or of conversations, that one query to the store returns.
const PAGE: usize = 1000;

/// Returns a finding for each problem of the store's file.
pub(crate) async fn damage_of_file(file: &dyn StoreFile) -> Result<Vec<Finding>, RepairError> {
    let found = match file.damage().await {
        Ok(found) => found,
        Err(error @ StoreError::Corrupt { .. }) => vec![error.to_string()],
        Err(error) => return Err(RepairError::File(error)),
    };
    Ok(found.iter().map(|line| Finding::of_store(line.replace('\n', " "))).collect())
}

/// The conversations to check.
pub(crate) struct Keys {
    pub(crate) keys: Vec<ConversationKey>,
    /// The damage that prevents a list of the conversations, if any.
    pub(crate) damage: Option<Finding>,
}

/// Lists all conversations, ordered by id and then by scope. If the list is damaged, returns the
/// damage and no conversations.
pub(crate) async fn keys_of(target: &Target) -> Result<Keys, RepairError> {
    match listed(target, Listed::All).await {
        Ok(mut keys) => {
            keys.sort_by(|left, right| (left.id(), left.scope()).cmp(&(right.id(), right.scope())));
            Ok(Keys { keys, damage: None })
        }
        Err(
            error @ (RepairError::Scopes(StoreError::Corrupt { .. })
            | RepairError::List { source: StoreError::Corrupt { .. }, .. }),
        ) => Ok(Keys { keys: Vec::new(), damage: Some(Finding::of_store(chain(&error))) }),
        Err(error) => Err(error),
    }
}

/// The conversations to list.
#[derive(Debug, Clone, Copy)]
enum Listed {
    All,
    WithOpenRun,
}

async fn listed(target: &Target, which: Listed) -> Result<Vec<ConversationKey>, RepairError> {
    let mut keys: Vec<ConversationKey> = Vec::new();
    for scope in scopes(target).await? {
        let mut after: Option<String> = None;
        loop {
            let page = match which {
                Listed::All => target.history().list(&scope, after.as_deref(), PAGE).await,
                Listed::WithOpenRun => {
                    target.history().open_runs(&scope, after.as_deref(), PAGE).await
                }
            };
            let page = page.map_err(|source| RepairError::List { scope: scope.clone(), source })?;
            let Some(last) = page.last() else { break };
            after = Some(last.id().to_owned());
            keys.extend(page);
        }
    }
    Ok(keys)
}

async fn scopes(target: &Target) -> Result<Vec<String>, RepairError> {
    let mut scopes: Vec<String> = Vec::new();
    loop {
        let after = scopes.last().map(String::as_str);
        let page = target.history().scopes(after, PAGE).await.map_err(RepairError::Scopes)?;
        if page.is_empty() {
            return Ok(scopes);
        }
        scopes.extend(page);
    }
}

/// Returns the rows of a conversation, `None` if the conversation does not exist, or a finding if
/// the rows are damaged. A missing encryption key is an error and not damage.
pub(crate) async fn rows_of(
    target: &Target,
    key: &ConversationKey,
) -> Result<Result<Option<ConversationRows>, Finding>, RepairError> {
    let damage = |error: &StoreError| Ok(Err(Finding::of_conversation(key, chain(error))));
    match target.history().rows(key).await {
        Ok(Some(rows)) if is_sealed(&rows) => Err(RepairError::Sealed { key: key.clone() }),
        Ok(rows) => Ok(Ok(rows)),
        Err(error @ StoreError::Corrupt { .. }) => damage(&error),
        Err(source) if is_key_missing(&source) => {
            Err(RepairError::NoKey { key: key.clone(), source })
        }
        Err(source) if is_damage(&source) => damage(&source),
        Err(source) => Err(RepairError::Conversation { key: key.clone(), source }),
    }
}

/// Returns a finding for each open run whose staged messages are unreadable. The finding contains
/// the command that ends the run.
pub(crate) async fn damaged_open_runs(target: &Target) -> Result<Vec<Finding>, RepairError> {
    let mut found = Vec::new();
    let runs = match listed(target, Listed::WithOpenRun).await {
        Ok(runs) => runs,
        // `keys_of` lists conversations but not open runs, and therefore does not report this
        // damage.
        Err(RepairError::List { scope, source }) if source.is_damage() => {
            let what =
                format!("the open runs of scope {scope} cannot be listed: {}", chain(&source));
            return Ok(vec![Finding::of_store(what)]);
        }
        Err(RepairError::Scopes(source)) if source.is_damage() => return Ok(found),
        Err(error) => return Err(error),
    };
    for key in runs {
        let open = match target.history().head(&key).await {
            Ok(head) => head.open_run,
            // The damage was reported when the rows of this conversation were checked.
            Err(error) if error.is_damage() => continue,
            Err(source) => return Err(RepairError::OpenRun { key, source }),
        };
        let Some(open) = open else { continue };
        let damage = match target.history().open_run(&key).await {
            Ok(content) => content.and_then(|content| damage_of_run(&content)),
            Err(error) if error.is_damage() => Some(chain(&error)),
            Err(source) => return Err(RepairError::OpenRun { key, source }),
        };
        if let Some(damage) = damage {
            let what = format!(
                "the staged messages of open run {} cannot be read: {damage}: end it with recover --end \
                 discard",
                open.run
            );
            found.push(Finding::of_conversation(&key, what));
        }
    }
    Ok(found)
}

/// Returns the problem of the first damaged row in the record of tool calls of an open run. Only
/// calls in staged messages are checked.
fn damage_of_run(content: &OpenRunContent) -> Option<String> {
    let staged = |sequence: u64| {
        let position = sequence.checked_sub(content.open.visible)?.checked_sub(1)?;
        content.messages.get(usize::try_from(position).ok()?).cloned()
    };
    // A row is not checked if its call or its result is in a visible message, because `content`
    // contains only the staged messages.
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

/// Returns a finding with the numbers of rows that belong to no conversation, or `None` if there
/// are no such rows.
pub(crate) async fn stray_rows(file: &dyn StoreFile) -> Result<Option<Finding>, RepairError> {
    let stray = match file.stray_rows().await {
        Ok(stray) => stray,
        // `damage_of_file` has reported this damage.
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(RepairError::File(error)),
    };
    let counts: Vec<String> = [
        (stray.messages, "message", "messages"),
        (stray.tools, "record of tool calls", "records of tool calls"),
    ]
    .into_iter()
    .filter(|(count, ..)| *count > 0)
    .map(|(count, one, several)| format!("{count} {}", if count == 1 { one } else { several }))
    .collect();
    let what = || format!("rows that belong to no conversation: {}", counts.join(" and "));
    Ok((!counts.is_empty()).then(|| Finding::of_store(what())))
}
