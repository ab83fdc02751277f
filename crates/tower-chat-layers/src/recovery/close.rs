//! Ends open runs without resuming them. An open run is a journaled run that was neither committed
//! nor discarded. Its staged messages are stored, but are not yet part of the history. An attempt
//! is one execution of a run.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        Capability, HistoryStore, Journal, Lease, OpenRun, RunActivity, StoreError,
        author::{Close, OpenRunContent, Staged, Write},
    },
};

use crate::{
    PersistenceError, PersistenceMode,
    policy::RunEnd,
    run::{IncompleteCommit, Settings, incomplete_commit, of_prior_calls},
};

/// Ends the open run of a conversation. Returns whether there was an open run. If an attempt still
/// executes the run, the store refuses the later writes of this attempt. A run can be discarded
/// even if its staged messages are damaged.
///
/// ```
/// use tower_chat::{prelude::*, recovery::{self, RunEnd}};
/// # use tower_chat_testkit::{ScriptedModel, Step};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new([Step::error("the model is overloaded"), Step::text("Done.")]);
/// # let store = MemoryStore::new();
/// # let mut agent = ChatPipeline::builder(model)
/// #     .history(store.clone())
/// #     .persistence(PersistenceMode::Journaled)
/// #     .build()?;
/// # let key = ConversationKey::new("alice", "travel");
/// # let request = ChatRequest::user("Book seat 7.").in_conversation(key.clone());
/// # assert!(agent.ready().await?.call(request).await.is_err());
/// // A journaled run has failed, and remains open.
/// assert!(recovery::close(&store, &key, RunEnd::Commit).await?);
/// assert_eq!(store.load(&key).await?.messages.len(), 1); // the input of the run
/// assert!(!recovery::close(&store, &key, RunEnd::Commit).await?); // no run is open any more
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if the store cannot be read or written. Returns a conflict if another process
/// has ended the run, or taken it over, since this function read the run.
pub async fn close(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    end: RunEnd,
) -> Result<bool, StoreError> {
    let content = match journal(store)?.open_run(key).await {
        // A discard does not read the staged messages, and is possible although they are damaged.
        Err(error) if error.is_damage() && end == RunEnd::Discard => {
            let head = store.head(key).await?;
            let open = head.open_run.clone();
            open.map(|open| OpenRunContent::new(head, open, Vec::new(), Vec::new()))
        }
        content => content?,
    };
    let Some(content) = content else { return Ok(false) };
    let write = match end {
        RunEnd::Commit => committing(store, key, &content).await?,
        RunEnd::Discard => {
            let close = Close::Discard { visible: content.open.visible };
            last_write(store, key, &content, Vec::new(), close)
        }
    };
    let slot = store.reserve().await?;
    store.append(slot, vec![write]).await.map_err(|error| error.source)?;
    Ok(true)
}

pub(super) fn journal(store: &(impl HistoryStore + ?Sized)) -> Result<&dyn Journal, StoreError> {
    Ok(store.journal().ok_or(Capability::Journal)?)
}

/// Ends every open run of a scope that was opened at least `age` before `now`. Runs that a process
/// still executes are skipped. Returns the conversations of the ended runs.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat::{prelude::*, recovery::{self, RunEnd}};
/// # use tower_chat_testkit::{ScriptedModel, Step};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), BoxError> {
/// # let model = ScriptedModel::new([Step::error("the model is overloaded"), Step::text("Done.")]);
/// # let store = MemoryStore::new();
/// # let mut agent = ChatPipeline::builder(model)
/// #     .history(store.clone())
/// #     .persistence(PersistenceMode::Journaled)
/// #     .build()?;
/// # let key = ConversationKey::new("alice", "travel");
/// # let request = ChatRequest::user("Book seat 7.").in_conversation(key.clone());
/// # assert!(agent.ready().await?.call(request).await.is_err());
/// // Call this once an hour: runs that have been open for a day are committed in their current state.
/// let day = Duration::from_secs(24 * 3600);
/// let swept = recovery::sweep(&store, "alice", SystemTime::now(), day, RunEnd::Commit).await?;
/// assert!(swept.is_empty()); // the run was opened a moment ago
/// # let later = SystemTime::now() + 2 * day;
/// # assert_eq!(recovery::sweep(&store, "alice", later, day, RunEnd::Commit).await?, [key]);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// Returns an error if the store cannot be read or written. Further runs are then not ended. A run
/// that another process takes over at the same time is skipped.
pub async fn sweep(
    store: &(impl HistoryStore + ?Sized),
    scope: &str,
    now: SystemTime,
    age: Duration,
    end: RunEnd,
) -> Result<Vec<ConversationKey>, StoreError> {
    const AT_ONCE: usize = 100;
    let mut swept = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let page = journal(store)?.open_runs(scope, after.as_deref(), AT_ONCE).await?;
        let Some(last) = page.last() else { return Ok(swept) };
        after = Some(last.id().to_owned());
        for key in page {
            let Some(open) = store.head(&key).await?.open_run else { continue };
            let is_old = now.duration_since(open.opened_at).is_ok_and(|since| since >= age);
            let is_under_way = store.handle().run_under_way(&key) == Some(open.run);
            if !is_old || is_under_way || open.is_held_at(now) {
                continue;
            }
            match close(store, &key, end).await {
                Ok(true) => swept.push(key),
                Ok(false) | Err(StoreError::Conflict(_)) => {}
                Err(error) => return Err(error),
            }
        }
    }
}

pub(crate) async fn close_open_run(
    settings: &Settings,
    key: &ConversationKey,
    run: RunId,
    end: RunEnd,
) -> Result<(), PersistenceError> {
    let ended = close(settings.store.as_ref(), key, end).await;
    ended.map(drop).map_err(|source| PersistenceError::NotRecovered {
        key: key.clone(),
        run,
        source,
    })
}

async fn committing(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    content: &OpenRunContent,
) -> Result<Write, StoreError> {
    let sequence = content.head.revision.sequence + 1;
    let id_of = |sequence: u64| {
        let index = sequence.checked_sub(content.open.visible)?.checked_sub(1)?;
        content.messages.get(usize::try_from(index).ok()?)?.id
    };
    let of_prior_calls = of_prior_calls(store, key, &content.messages).await?;
    let text = content.open.partial_text.as_deref();
    let IncompleteCommit { messages, rows } =
        incomplete_commit((&content.tools, id_of), sequence, of_prior_calls, text);
    let write = last_write(store, key, content, messages, Close::Commit);
    Ok(write.with_tools(rows))
}

/// Returns the write that ends an open run. It is the first write of a new attempt, so that the
/// store refuses later writes of earlier attempts.
fn last_write(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    content: &OpenRunContent,
    messages: Vec<Arc<Message>>,
    close: Close,
) -> Write {
    let OpenRun { run, lease, .. } = &content.open;
    let of_run = content.messages.iter().filter_map(|message| message.id);
    let next = of_run.map(|id| id.index.saturating_add(1)).max().unwrap_or(0);
    let lease = Lease {
        attempt: lease.attempt.saturating_add(1),
        holder: store.handle().holder(),
        ..*lease
    };
    let id = MessageId { run: *run, index: next };
    let staged = Staged { lease, close: Some(close), service_id: None, partial_text: None };
    let activity = RunActivity::new(SystemTime::now()).with_mode(PersistenceMode::Journaled);
    Write::new(key.clone(), id, content.head.revision, messages)
        .with_activity(activity)
        .staged(staged)
        .beginning_attempt()
}
