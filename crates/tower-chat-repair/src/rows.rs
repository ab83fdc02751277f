//! What is read of a store to check it. Damage is something to report; any other failure of the store is an
//! error.

use tower_chat_core::{
    ConversationKey,
    store::{
        ConversationRows, HistoryStore, StoreError,
        author::{OpenRunContent, RecordedResult},
    },
};

use crate::{
    Finding, RepairError, Target,
    error::chain,
    sealed::{Unopened, is_sealed, unopened},
    target::StoreFile,
};

/// How many scopes or conversations are listed at once.
const PAGE: usize = 1000;

/// What is wrong with the file of the store.
pub(crate) async fn damage_of_file(file: &dyn StoreFile) -> Result<Vec<Finding>, RepairError> {
    let found = match file.damage().await {
        Ok(found) => found,
        Err(error @ StoreError::Corrupt { .. }) => vec![error.to_string()],
        Err(error) => return Err(RepairError::File(error)),
    };
    Ok(found.iter().map(|line| Finding::of_store(line.replace('\n', " "))).collect())
}

/// The conversations that are to be looked at.
pub(crate) struct Keys {
    pub(crate) keys: Vec<ConversationKey>,
    /// Why they are not all.
    pub(crate) damage: Option<Finding>,
}

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

/// Which conversations of all scopes are listed.
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

/// The rows of a conversation, or why they cannot be read. That they are sealed, and the key is missing, is
/// no damage.
pub(crate) async fn rows_of(
    target: &Target,
    key: &ConversationKey,
) -> Result<Result<Option<ConversationRows>, Finding>, RepairError> {
    let damage = |error: &StoreError| Ok(Err(Finding::of_conversation(key, chain(error))));
    match target.history().rows(key).await {
        Ok(Some(rows)) if is_sealed(&rows) => Err(RepairError::Sealed { key: key.clone() }),
        Ok(rows) => Ok(Ok(rows)),
        Err(error @ StoreError::Corrupt { .. }) => damage(&error),
        Err(source) => match unopened(&source) {
            Some(Unopened::NoKey) => Err(RepairError::NoKey { key: key.clone(), source }),
            Some(Unopened::Damaged) => damage(&source),
            None => Err(RepairError::Conversation { key: key.clone(), source }),
        },
    }
}

/// The open runs of which something cannot be read, with how to end them.
pub(crate) async fn damaged_open_runs(target: &Target) -> Result<Vec<Finding>, RepairError> {
    let mut found = Vec::new();
    let runs = match listed(target, Listed::WithOpenRun).await {
        Ok(runs) => runs,
        // What cannot be listed is reported with the conversations.
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
            // It is reported with the conversations.
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

/// What is to be said of rows that belong to no conversation.
pub(crate) async fn stray_rows(file: &dyn StoreFile) -> Result<Option<Finding>, RepairError> {
    let stray = match file.stray_rows().await {
        Ok(stray) => stray,
        // Reported already, with the file.
        Err(StoreError::Corrupt { .. }) => return Ok(None),
        Err(error) => return Err(RepairError::File(error)),
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
