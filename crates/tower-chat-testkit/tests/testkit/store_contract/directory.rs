//! The capability `Directory` of the faulty stores.

use tower_chat_core::{
    ConversationKey, RunId,
    store::{
        ConversationPage, ConversationQuery, ConversationSummary, Description, Directory,
        MessagePage, RunActivity, RunSummary, StoreError, UsageGrouping, UsageQuery, UsageTotals,
        author::Write,
    },
};

use super::{Broken, Fault};

/// Adds the `RunActivity` of `write` to `made`.
pub(super) fn with_activity(fault: Fault, made: Write, write: &Write) -> Write {
    let made = made.with_parent(write.parent().cloned());
    let Some(activity) = write.activity() else { return made.without_activity() };
    let activity_alone = RunActivity::new(activity.at()).with_mode(activity.mode());
    match fault {
        Fault::LosesUsage => made.with_activity(activity_alone),
        Fault::LosesModes => {
            let activity_alone = RunActivity::new(activity.at());
            made.with_activity(activity_alone.with_usage(activity.usage().iter().cloned()))
        }
        Fault::MixesModels => {
            let mut usage = activity.usage().to_vec();
            usage.iter_mut().for_each(|usage| usage.model = None);
            made.with_activity(activity_alone.with_usage(usage))
        }
        _ => made.with_activity(activity.clone()),
    }
}

pub(super) async fn summary(
    store: &Broken,
    key: &ConversationKey,
) -> Result<Option<ConversationSummary>, StoreError> {
    let mut summary = store.inner.summary(key).await?;
    if store.fault == Fault::HidesStagedConversations {
        summary = summary.filter(|summary| summary.messages > 0);
    }
    Ok(summary.map(|summary| altered(store.fault, summary)))
}

fn altered(fault: Fault, mut summary: ConversationSummary) -> ConversationSummary {
    match fault {
        Fault::ForgetsWhenItBegan => summary.created_at = summary.last_active_at,
        Fault::ForgetsParents => summary.parent = None,
        Fault::CountsTheRunsOfMessages => summary.runs = summary.runs.min(summary.messages),
        _ => {}
    }
    summary
}

pub(super) async fn conversations(
    store: &Broken,
    query: &ConversationQuery,
) -> Result<ConversationPage, StoreError> {
    let mut query = query.clone();
    match store.fault {
        Fault::ListsEveryScope => query.scope = None,
        Fault::IgnoresMetadata => query.metadata.clear(),
        Fault::IgnoresActivity => query.active_since = None,
        Fault::IgnoresStates => query.state = None,
        Fault::IgnoresParents => query.parent = None,
        _ => {}
    }
    let mut page = store.inner.conversations(&query).await?;
    if store.fault == Fault::HidesStagedConversations {
        page.conversations.retain(|summary| summary.messages > 0);
    }
    let listed = std::mem::take(&mut page.conversations).into_iter();
    page.conversations = listed.map(|summary| altered(store.fault, summary)).collect();
    match store.fault {
        Fault::ListsByKey => page.conversations.sort_by(|left, right| left.key.cmp(&right.key)),
        Fault::EndsAfterAPage => page.next = None,
        _ => {}
    }
    Ok(page)
}

pub(super) async fn usage(
    store: &Broken,
    query: &UsageQuery,
) -> Result<Vec<UsageTotals>, StoreError> {
    let mut query = query.clone();
    match store.fault {
        Fault::GroupsByScope => query.grouping = UsageGrouping::Scope,
        Fault::CountsUsageOfAnyTime => query.since = None,
        _ => {}
    }
    store.inner.usage(&query).await
}

pub(super) async fn runs(
    store: &Broken,
    key: &ConversationKey,
    after: Option<RunId>,
    limit: usize,
) -> Result<Vec<RunSummary>, StoreError> {
    let mut runs = store.inner.runs(key, after, limit).await?;
    if store.fault == Fault::ListsRunsOldestFirst {
        runs.reverse();
    }
    Ok(runs)
}

pub(super) async fn messages_before(
    store: &Broken,
    key: &ConversationKey,
    before: Option<u64>,
    limit: usize,
) -> Result<MessagePage, StoreError> {
    let mut page = store.inner.messages_before(key, before, limit).await?;
    match store.fault {
        Fault::PagesBackwards => page.messages.reverse(),
        Fault::PagesInclusively => page.earlier = page.earlier.map(|earlier| earlier + 1),
        _ => {}
    }
    Ok(page)
}

pub(super) async fn set_description(
    store: &Broken,
    key: &ConversationKey,
    description: &Description,
    expected_version: u64,
) -> Result<u64, StoreError> {
    match store.fault {
        Fault::IgnoresVersions => {
            let found = store.inner.summary(key).await?.map(|found| found.description_version);
            store.inner.set_description(key, description, found.unwrap_or_default()).await
        }
        Fault::ForgetsMetadata => {
            let title = description.title().map(Into::into);
            let title = Description::from_stored(title, serde_json::Map::new());
            store.inner.set_description(key, &title, expected_version).await
        }
        _ => store.inner.set_description(key, description, expected_version).await,
    }
}
