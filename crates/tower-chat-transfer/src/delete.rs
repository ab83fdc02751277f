//! Deleting conversations from a store.

use tower_chat_core::{
    ConversationKey,
    store::{
        CallSelection, ConversationQuery, ConversationSummary, Directory, HistoryStore,
        InvocationQuery, StoreError,
    },
};

use crate::{
    Counts, Event, Operation, Progress, Receipt, Selection, TransferError, TransferOutcome,
    TransferStep, progress::report,
};

/// The maximum number of conversations that one query returns.
const PAGE: usize = 100;

/// Deletes all conversations of a scope, one after the other. Conversations without visible
/// messages are deleted too. In such a conversation, all messages belong to a run that is still
/// open, or were discarded with their run.
///
/// If the deletion fails, or if its future is dropped before it completes, call the function again
/// to continue the deletion. Before each deletion, [`Event::Begins`] reports the counts of the
/// conversation. Therefore a callback that stores the events, such as a
/// [`ReceiptLog`](crate::ReceiptLog), has a record of every deleted conversation, even if the
/// process ends in the middle of the deletion.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::{MemoryStore, transfer::{OutcomeKind, delete_scope}};
/// # use tower_chat::{ConversationKey, Message, message::MessageId, run::RunId};
/// # use tower_chat::{HistoryStore, store::{Revision, author::Write}};
/// # let store = MemoryStore::new();
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let key = ConversationKey::new("alice", "support");
/// # let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
/// # store.append(store.reserve().await?, vec![write]).await?;
/// let receipt = delete_scope(&store, "alice", &mut |_event| Ok(())).await?;
/// assert_eq!(receipt.total(OutcomeKind::Deleted).messages, 1);
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
///
/// # Errors
///
/// Returns an error if the store or the callback fails.
pub async fn delete_scope(
    store: &dyn HistoryStore,
    scope: &str,
    progress: Progress<'_>,
) -> Result<Receipt, TransferError> {
    let mut receipt = Receipt::begin(Operation::Delete, Selection::scope(scope));
    let mut total = count(store, scope).await?;
    report(progress, &Event::Total { conversations: total })?;
    let mut after = None;
    while let Some(keys) = listed_after(store, scope, &mut after).await? {
        for key in keys {
            let summary = if_readable(store.summary(&key).await)?;
            receipt.add(&delete(store, &key, summary.as_ref(), progress).await?);
        }
    }
    // The directory (descriptions, times and counts of conversations) also lists the remaining
    // conversations: those without visible messages, and those that were written during the
    // deletion. It is queried only now, because a store without an index of the directory reads the
    // whole scope for each page. A write moves its conversation to another page, so the first page
    // is read until it is empty.
    loop {
        let query = ConversationQuery::in_scope(scope).with_limit(PAGE);
        let found = store.conversations(&query).await?;
        let damaged = found.unreadable.into_iter().map(|damaged| (damaged.key, None));
        let whole = found.conversations.into_iter().map(|it| (it.key.clone(), Some(it)));
        let conversations: Vec<_> = damaged.chain(whole).collect();
        if conversations.is_empty() {
            return Ok(receipt.end());
        }
        total += conversations.len() as u64;
        report(progress, &Event::Total { conversations: total })?;
        for (key, summary) in conversations {
            let step = delete(store, &key, summary.as_ref(), progress).await?;
            receipt.add(&step);
        }
    }
}

/// Deletes one conversation, and reports it as [`delete_scope`] does. If the conversation does not
/// exist, the receipt is empty.
///
/// # Errors
///
/// Returns an error if the store or the callback fails.
pub async fn delete_conversation(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    progress: Progress<'_>,
) -> Result<Receipt, TransferError> {
    let mut receipt = Receipt::begin(Operation::Delete, Selection::conversation(key.clone()));
    let summary = match store.summary(key).await {
        Ok(None) => return Ok(receipt.end()),
        summary => if_readable(summary)?,
    };
    report(progress, &Event::Total { conversations: 1 })?;
    receipt.add(&delete(store, key, summary.as_ref(), progress).await?);
    Ok(receipt.end())
}

/// Returns `None` if the data in the directory are damaged, which a deletion does not need.
fn if_readable(
    summary: Result<Option<ConversationSummary>, StoreError>,
) -> Result<Option<ConversationSummary>, StoreError> {
    match summary {
        Err(error) if error.is_damage() => Ok(None),
        summary => summary,
    }
}

async fn delete(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    summary: Option<&ConversationSummary>,
    progress: Progress<'_>,
) -> Result<TransferStep, TransferError> {
    let mut counts = Counts::one();
    if let Some(summary) = summary {
        counts.messages = summary.messages;
        counts.tool_calls = match count_calls(store, key).await {
            Err(error) if error.is_damage() => 0,
            calls => calls?,
        };
        counts.runs = summary.runs;
    }
    report(progress, &Event::Begins { key: key.clone(), counts })?;
    let was_there = store.delete(key).await?;
    let outcome = if was_there { TransferOutcome::Deleted } else { TransferOutcome::Gone };
    let step = TransferStep::new(key, outcome, counts);
    report(progress, &Event::Done(step.clone()))?;
    Ok(step)
}

/// Returns the number of tool calls of a conversation, even without queries of tool calls.
async fn count_calls(store: &dyn HistoryStore, key: &ConversationKey) -> Result<u64, StoreError> {
    match store.tool_calls() {
        Some(queries) => {
            let tools = queries.tool_totals(&InvocationQuery::of(key)).await?;
            Ok(tools.iter().map(|tool| tool.calls).sum())
        }
        None => Ok(store.calls(key, &CallSelection::All).await?.found.len() as u64),
    }
}

/// Returns the number of conversations with visible messages.
async fn count(store: &dyn HistoryStore, scope: &str) -> Result<u64, StoreError> {
    let (mut after, mut count) = (None, 0);
    while let Some(keys) = listed_after(store, scope, &mut after).await? {
        count += keys.len() as u64;
    }
    Ok(count)
}

/// Returns the next page of visible conversations after the id `after`, and advances `after`.
async fn listed_after(
    store: &dyn HistoryStore,
    scope: &str,
    after: &mut Option<String>,
) -> Result<Option<Vec<ConversationKey>>, StoreError> {
    let keys = store.list(scope, after.as_deref(), PAGE).await?;
    let Some(last) = keys.last() else { return Ok(None) };
    *after = Some(last.id().to_owned());
    Ok(Some(keys))
}
