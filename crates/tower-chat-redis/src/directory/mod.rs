//! What the store knows of conversations besides their content.
//!
//! Each conversation has an entry beside its messages, which the scripts that write it bring up to
//! date. No index has the entries in the order of their last activity: it would lie on another
//! server of a cluster, and each write would take one round trip more. So a question to more than one
//! conversation reads the entries of all conversations on the lists.

mod adopt;
mod describe;
mod entry;
mod run_row;
mod scopes;

use std::collections::BTreeSet;

use futures_util::future::{join_all, try_join_all};
use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        ConversationPage, ConversationQuery, ConversationState, ConversationSummary,
        DirectoryCursor, Head, Revision, RunSummary, StoreError, UnreadableConversation,
        UsageQuery, UsageTotals,
        author::{UsageReport, milliseconds},
    },
};

pub(crate) use self::{
    adopt::adopt,
    describe::set_description,
    entry::{Entry, write_counts},
    scopes::scopes_after,
};
use self::{
    entry::EntryFields,
    run_row::{RunRow, run_summaries},
};
use crate::{
    answer::{Answer, corrupt, number},
    conversation::{Fields, newer},
    failure::foreign,
    list::{Listed, strike},
    read::restless,
    script::SUMMARY,
    settings::Settings,
};

const ACTION: &str = "read the directory";

/// How often an entry is read again because its conversation was written meanwhile.
const ATTEMPTS: usize = 64;

/// How many entries are read together, with what their runs have used.
const TOGETHER: usize = 32;

/// How many are read together without it.
const PAGE: usize = 256;

/// A conversation as the directory has it.
struct Conversation {
    head: Fields,
    /// Its numbers can be, and there are as many messages as they say.
    is_whole: bool,
    /// A call waits for approval.
    waits: bool,
    entry: EntryFields,
}

impl Conversation {
    fn summary(&self, key: &ConversationKey) -> Result<ConversationSummary, StoreError> {
        let entry = self.entry.read(key)?;
        // The entry can be read where the numbers of the conversation cannot.
        let head = self.head.unchecked_head(key);
        let is_damaged = head.is_err() || !self.is_whole;
        let head = head.unwrap_or_else(|_| Head::new(Revision::ABSENT));
        let mut summary = entry.summary(key, &head);
        summary.state = match summary.state {
            _ if is_damaged => ConversationState::Damaged,
            ConversationState::Idle if self.waits => ConversationState::WaitingForApproval,
            state => state,
        };
        Ok(summary)
    }
}

/// What the directory says of a conversation.
pub(crate) async fn summary(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<ConversationSummary>, StoreError> {
    match conversation(settings, key, false).await? {
        Some(conversation) => conversation.summary(key).map(Some),
        None => Ok(None),
    }
}

/// What the directory has of a conversation.
pub(crate) async fn entry(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<Entry>, StoreError> {
    match conversation(settings, key, false).await? {
        Some(conversation) => conversation.entry.read(key).map(Some),
        None => Ok(None),
    }
}

/// The conversations that fit a query. All that may fit are looked at, and as many as are asked for
/// are in memory, besides those that are read together.
pub(crate) async fn conversations(
    settings: &Settings,
    query: &ConversationQuery,
) -> Result<ConversationPage, StoreError> {
    let (mut found, mut unreadable) = (Vec::new(), Vec::new());
    for scope in scopes(settings, query.scope.as_deref()).await? {
        let mut listed = Listed::new(settings, &scope, None);
        while let Some(keys) = listed.next(PAGE).await? {
            let summaries = join_all(keys.iter().map(|key| summary(settings, key))).await;
            let mut gone = Vec::new();
            for (key, summary) in keys.into_iter().zip(summaries) {
                match summary {
                    Ok(Some(summary)) if query.fits(&summary) => found.push(summary),
                    Ok(Some(_)) => {}
                    Ok(None) => gone.push(key),
                    Err(StoreError::Corrupt { reason }) => {
                        unreadable.push(UnreadableConversation::new(key, reason));
                    }
                    Err(error) => return Err(error),
                }
            }
            found.sort_by_cached_key(DirectoryCursor::after);
            // One more shows that there is another page.
            found.truncate(query.limit.saturating_add(1));
            join_all(gone.iter().map(|key| strike(settings, key, ""))).await;
        }
    }
    let mut page = ConversationPage::of_all(query, found);
    // They have no position, so that the first page has them.
    page.unreadable = if query.after.is_none() { unreadable } else { Vec::new() };
    Ok(page)
}

/// What runs have used.
pub(crate) async fn usage(
    settings: &Settings,
    query: &UsageQuery,
) -> Result<Vec<UsageTotals>, StoreError> {
    let mut report = UsageReport::new(query);
    if let (Some(scope), Some(id)) = (&query.scope, &query.conversation) {
        let key = ConversationKey::new(scope.clone(), id.clone());
        let (_, rows) = run_rows(settings, &key).await?;
        rows.iter().for_each(|row| row.report(&key, &mut report));
        return Ok(report.into_totals());
    }
    for scope in scopes(settings, query.scope.as_deref()).await? {
        let mut listed = Listed::new(settings, &scope, None);
        while let Some(keys) = listed.next(TOGETHER).await? {
            let rows = try_join_all(keys.iter().map(|key| run_rows(settings, key))).await?;
            for (key, (_, rows)) in keys.iter().zip(rows) {
                rows.iter().for_each(|row| row.report(key, &mut report));
            }
        }
    }
    Ok(report.into_totals())
}

/// The runs that a conversation has had, newest first.
pub(crate) async fn runs(
    settings: &Settings,
    key: &ConversationKey,
    after: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunSummary>, StoreError> {
    let (open, rows) = run_rows(settings, key).await?;
    Ok(run_summaries(&rows, after, limit, open))
}

/// The open run of a conversation, and the rows of all runs, in the order of runs and models.
async fn run_rows(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<(Option<RunId>, Vec<RunRow>), StoreError> {
    let Some(conversation) = conversation(settings, key, true).await? else {
        return Ok((None, Vec::new()));
    };
    Ok((conversation.head.run(), conversation.entry.runs(key)?))
}

/// The scopes that a question is about.
async fn scopes(settings: &Settings, asked: Option<&str>) -> Result<BTreeSet<String>, StoreError> {
    match asked {
        Some(scope) => Ok(BTreeSet::from([scope.to_owned()])),
        None => scopes::all(settings).await,
    }
}

/// What the directory has of a conversation. One that an older release has made gets its entry now;
/// where that cannot be stored, as on a replica, it is answered all the same.
async fn conversation(
    settings: &Settings,
    key: &ConversationKey,
    with_runs: bool,
) -> Result<Option<Conversation>, StoreError> {
    for _ in 0..ATTEMPTS {
        let Some(mut conversation) = stored(settings, key, with_runs).await? else {
            return Ok(None);
        };
        if conversation.entry.is_of(&conversation.head) {
            return Ok(Some(conversation));
        }
        let Some(derived) = adopt::derive(settings, key).await? else { continue };
        if matches!(adopt::store(settings, key, &derived).await, Ok(false)) {
            continue;
        }
        conversation.entry = EntryFields::new(derived.entry);
        return Ok(Some(conversation));
    }
    Err(restless(ACTION))
}

async fn stored(
    settings: &Settings,
    key: &ConversationKey,
    with_runs: bool,
) -> Result<Option<Conversation>, StoreError> {
    let names = settings.names.conversation(key);
    let keys = [names.head(), names.messages(), names.pending(), names.directory()];
    let call = SUMMARY.on(keys).with(if with_runs { "1" } else { "" });
    let mut answer = Answer::new(settings.connections.read(ACTION, &call).await?)?;
    match answer.text()?.as_str() {
        "summary" => {}
        other => return Err(foreign(other)),
    }
    let head = Fields::new(answer.pairs()?);
    match head.format() {
        Some("1") => {}
        Some(format) => return Err(newer(key, format)),
        None if head.is_empty() => return Ok(None),
        None => return Err(foreign("there is no format")),
    }
    let is_whole = answer.text()? == "whole";
    let waits = number(&answer.text()?)? > 0;
    let entry = EntryFields::new(answer.byte_pairs()?);
    Ok(Some(Conversation { head, is_whole, waits, entry }))
}

/// The time of a stored millisecond.
fn time(at: i64) -> Result<std::time::SystemTime, String> {
    milliseconds::time(at).ok_or_else(|| format!("there is no time {at}"))
}

/// What the directory has of a conversation cannot be read.
fn unreadable(key: &ConversationKey, reason: &str) -> StoreError {
    corrupt(&format!("what the directory has of conversation {key}: {reason}"))
}
