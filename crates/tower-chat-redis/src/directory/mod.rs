//! The directory of conversations.
//!
//! Each conversation has an entry with its description, times, counts and usage, which the scripts
//! of its writes update. There is no index of the entries by last activity: in a cluster, such an
//! index would be on another server than most conversations, so that each write would take an
//! additional round trip. A query of several conversations therefore reads the entries of all
//! conversations on the lists of their scopes. A query of the branches of a conversation reads only
//! the entries of the branches ([`crate::branches`]).

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
    entry::{Entry, write_counts, write_parent},
    scopes::{all as all_scopes, scopes_after},
};
use self::{
    entry::EntryFields,
    run_row::{RunRow, run_summaries},
};
use crate::{
    answer::{Answer, corrupt, number},
    branches,
    conversation::{Fields, newer},
    failure::foreign,
    list::{Listed, remove_from_list},
    read::keeps_changing,
    script::SUMMARY,
    settings::Settings,
};

const ACTION: &str = "read the directory";

/// The maximum number of attempts to read an entry. An attempt fails if another process writes the
/// conversation meanwhile.
const ATTEMPTS: usize = 64;

/// The number of entries that are read concurrently with the usage of their runs.
const CONCURRENT_READS: usize = 32;

/// The number of entries that are read concurrently without the usage of their runs.
const PAGE: usize = 256;

/// The directory data of a conversation.
struct Conversation {
    head: Fields,
    /// Whether the numbers of the conversation are in range and match its messages.
    is_whole: bool,
    /// Whether a call waits for approval.
    waits: bool,
    entry: EntryFields,
}

impl Conversation {
    fn summary(&self, key: &ConversationKey) -> Result<ConversationSummary, StoreError> {
        let entry = self.entry.read(key)?;
        // The entry may be readable even if the numbers of the conversation are out of range.
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

/// Returns the directory's summary of a conversation.
pub(crate) async fn summary(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<ConversationSummary>, StoreError> {
    match conversation(settings, key, false).await? {
        Some(conversation) => conversation.summary(key).map(Some),
        None => Ok(None),
    }
}

/// Returns the directory entry of a conversation.
pub(crate) async fn entry(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<Option<Entry>, StoreError> {
    match conversation(settings, key, false).await? {
        Some(conversation) => conversation.entry.read(key).map(Some),
        None => Ok(None),
    }
}

/// Adds an entry to a conversation that has none.
pub(crate) async fn ensure_entry(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<(), StoreError> {
    conversation(settings, key, false).await.map(drop)
}

/// Returns a page of the conversations that match a query. Reads every conversation that may match,
/// but retains only those of the page.
pub(crate) async fn conversations(
    settings: &Settings,
    query: &ConversationQuery,
) -> Result<ConversationPage, StoreError> {
    let mut found = Found::default();
    if let Some(parent) = &query.parent {
        let mut keys = branches::indexed(settings, parent).await?;
        keys.retain(|key| query.concerns(key));
        for keys in keys.chunks(PAGE) {
            let gone = found.read(settings, query, keys.to_vec()).await?;
            branches::remove_all(settings, parent, &gone).await;
        }
    } else {
        for scope in scopes(settings, query.scope.as_deref()).await? {
            let mut listed = Listed::new(settings, &scope, None);
            while let Some(keys) = listed.next(PAGE).await? {
                let gone = found.read(settings, query, keys).await?;
                join_all(gone.iter().map(|key| remove_from_list(settings, key, ""))).await;
            }
        }
    }
    let mut page = ConversationPage::of_all(query, found.summaries);
    // Unreadable conversations have no position in the order of the pages.
    page.unreadable = if query.after.is_none() { found.unreadable } else { Vec::new() };
    Ok(page)
}

/// The conversations that match a query, of those that were read.
#[derive(Default)]
struct Found {
    summaries: Vec<ConversationSummary>,
    unreadable: Vec<UnreadableConversation>,
}

impl Found {
    /// Reads conversations concurrently. Returns those that do not exist, and, for a query of
    /// branches, those that have another parent.
    async fn read(
        &mut self,
        settings: &Settings,
        query: &ConversationQuery,
        keys: Vec<ConversationKey>,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let summaries = join_all(keys.iter().map(|key| summary(settings, key))).await;
        let mut gone = Vec::new();
        for (key, summary) in keys.into_iter().zip(summaries) {
            match summary {
                Ok(Some(summary)) if query.fits(&summary) => self.summaries.push(summary),
                Ok(Some(summary)) => {
                    let parent = summary.parent.map(|parent| parent.key);
                    if query.parent.is_some() && parent != query.parent {
                        gone.push(key);
                    }
                }
                Ok(None) => gone.push(key),
                Err(StoreError::Corrupt { reason }) => {
                    self.unreadable.push(UnreadableConversation::new(key, reason));
                }
                Err(error) => return Err(error),
            }
        }
        self.summaries.sort_by_cached_key(DirectoryCursor::after);
        // One more conversation than the limit shows that there is a next page.
        self.summaries.truncate(query.limit.saturating_add(1));
        Ok(gone)
    }
}

/// Returns the usage of runs.
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
        while let Some(keys) = listed.next(CONCURRENT_READS).await? {
            let rows = try_join_all(keys.iter().map(|key| run_rows(settings, key))).await?;
            for (key, (_, rows)) in keys.iter().zip(rows) {
                rows.iter().for_each(|row| row.report(key, &mut report));
            }
        }
    }
    Ok(report.into_totals())
}

/// Returns the runs of a conversation, newest first.
pub(crate) async fn runs(
    settings: &Settings,
    key: &ConversationKey,
    after: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunSummary>, StoreError> {
    let (open, rows) = run_rows(settings, key).await?;
    Ok(run_summaries(&rows, after, limit, open))
}

/// Returns the id of the open run, if any, and the rows of all runs, ordered by run and model.
async fn run_rows(
    settings: &Settings,
    key: &ConversationKey,
) -> Result<(Option<RunId>, Vec<RunRow>), StoreError> {
    let Some(conversation) = conversation(settings, key, true).await? else {
        return Ok((None, Vec::new()));
    };
    Ok((conversation.head.run(), conversation.entry.runs(key)?))
}

/// Returns the scopes that a query includes.
async fn scopes(settings: &Settings, asked: Option<&str>) -> Result<BTreeSet<String>, StoreError> {
    match asked {
        Some(scope) => Ok(BTreeSet::from([scope.to_owned()])),
        None => scopes::all(settings).await,
    }
}

/// Returns the directory data of a conversation. If the conversation has no entry, because an older
/// release has created it, derives the entry and stores it. If storing fails, for example on a
/// replica, still returns the entry.
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
    Err(keeps_changing(ACTION))
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

/// Converts stored milliseconds since 1970 to a time.
fn time(at: i64) -> Result<std::time::SystemTime, String> {
    milliseconds::time(at).ok_or_else(|| format!("there is no time {at}"))
}

/// Returns the error for unreadable directory data.
fn unreadable(key: &ConversationKey, reason: &str) -> StoreError {
    corrupt(&format!("the directory entry of conversation {key}: {reason}"))
}
