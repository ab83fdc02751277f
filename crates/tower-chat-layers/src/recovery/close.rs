//! Ending open runs without going on with them.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, SystemTime},
};

use tower_chat_core::{
    ApprovalResponse, CallPosition, ConversationKey, Message, MessageId, Part, ToolResult,
    ToolStatus,
    store::{
        History, HistoryStore, InvocationQuery, Lease, OpenRun, RunActivity, StoreError,
        author::{Close, OpenRunContent, Staged, ToolRecord, Write},
    },
};

use crate::{
    PersistenceError, PersistenceMode,
    policy::RunEnd,
    replay::{DanglingCalls, INTERRUPTED, PendingApproval, Replay},
    run::{
        Settings, answers_approvals, by_call, mark_statuses, missing_results, partial_message,
        rows_of_prior_calls,
    },
    tool::CallOfRun,
    tool_loop::rejection,
};

/// Ends the open run of a conversation; says whether there was one. Whoever still works on it can
/// write no more. A run whose staged messages cannot be read can be discarded.
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
/// // A journaled run has failed, and is open.
/// assert!(recovery::close(&store, &key, RunEnd::Commit).await?);
/// assert_eq!(store.load(&key).await?.messages.len(), 1); // its input
/// assert!(!recovery::close(&store, &key, RunEnd::Commit).await?); // there is none any more
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// If the store cannot be read or written, or somebody else has ended or taken up the run
/// meanwhile.
pub async fn close(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    end: RunEnd,
) -> Result<bool, StoreError> {
    let content = match store.open_run(key).await {
        // A discard needs nothing of what is staged.
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
        RunEnd::Discard => discarding(store, key, &content),
    };
    let slot = store.reserve().await?;
    store.append(slot, vec![write]).await.map_err(|error| error.source)?;
    Ok(true)
}

/// Ends every open run of a scope that nobody works on and that was opened at least `age` before
/// `now`; returns their conversations.
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
/// // Once an hour: what has been open for a day is ended as it is.
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
/// At the first run that could not be ended, because the store could not be read or written. A run
/// that somebody took up meanwhile is left alone.
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
        let page = store.open_runs(scope, after.as_deref(), AT_ONCE).await?;
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

/// The same for a run that another one finds in its way.
pub(crate) async fn close_open_run(
    settings: &Settings,
    key: &ConversationKey,
    open: Box<OpenRun>,
    end: RunEnd,
) -> Result<(), PersistenceError> {
    let ended = close(settings.store.as_ref(), key, end).await;
    let not_ended =
        |source| PersistenceError::NotRecovered { key: key.clone(), run: open.run, source };
    ended.map(drop).map_err(not_ended)
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
    let (missing, mut rows) = missing_results(&content.tools, sequence, id_of);
    let mut messages: Vec<Arc<Message>> = missing.into_iter().map(Arc::new).collect();
    let mut of_prior_calls = of_prior_calls(store, key, &content.messages).await?;
    // With decisions whose calls have no results, nothing else of the run is unanswered.
    if messages.is_empty() {
        messages.append(&mut of_prior_calls.messages);
    }
    rows.append(&mut of_prior_calls.rows);
    if let Some(text) = &content.open.partial_text {
        messages.push(Arc::new(partial_message(text)));
    }
    let write = last_write(store, key, content, messages, Close::Commit);
    Ok(write.with_tools(rows))
}

/// What the commit of a run as it stands says of calls of earlier runs.
#[derive(Debug, Default)]
pub(crate) struct OfPriorCalls {
    /// The results of calls that the run has decided about, and what their tools have queued.
    pub(crate) messages: Vec<Arc<Message>>,
    /// The rows of calls that the run has decided about, or whose results it brings.
    pub(crate) rows: Vec<ToolRecord>,
}

/// What the commit of a run that has staged these messages says of calls of earlier runs.
pub(crate) async fn of_prior_calls(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    staged: &[Arc<Message>],
) -> Result<OfPriorCalls, StoreError> {
    let has_results = |message: &Arc<Message>| message.results().next().is_some();
    if !staged.iter().any(has_results) && !answers_approvals(staged) {
        return Ok(OfPriorCalls::default());
    }
    let visible = store.load(key).await?;
    let decided = results_of_decided_calls(store, key, &visible, staged).await?;
    let (decided, queued) = decided.unzip();
    let all: Vec<_> = staged.iter().chain(&decided).cloned().collect();
    let rows = rows_of_prior_calls(store, key, &visible, &all).await?;
    Ok(OfPriorCalls {
        messages: decided.into_iter().chain(queued.into_iter().flatten()).collect(),
        rows,
    })
}

/// The results of calls of earlier runs that a run's staged messages decide about and do not answer,
/// in the order of the calls: what the record knows of them, or that they were rejected.
/// With them what their tools have queued. A batch of which an approved call has not begun goes on waiting,
/// so that the call can be approved again; the record has what came out of the others.
async fn results_of_decided_calls(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    visible: &History,
    staged: &[Arc<Message>],
) -> Result<Option<(Arc<Message>, Vec<Arc<Message>>)>, StoreError> {
    let decisions = decisions_in(staged);
    if decisions.is_empty() {
        return Ok(None);
    }
    let mut replay = Replay::of_history(visible, DanglingCalls::default());
    staged.iter().for_each(|message| replay.push(message));
    let decided_in = |batch: Vec<PendingApproval>| -> Vec<_> {
        let calls = batch.into_iter();
        calls
            .filter_map(|call| {
                Some((*decisions.get(&*call.request.id)?, call.call_position?, call))
            })
            .collect()
    };
    let decided: Vec<_> = replay.approvals_in_order().into_iter().map(decided_in).collect();
    let asking: HashSet<MessageId> =
        decided.iter().flatten().map(|(_, (message, _), _)| *message).collect();
    let is_it = |message: &Arc<Message>| message.id.is_some_and(|id| asking.contains(&id));
    let sequences = visible.numbered().filter(|(_, message)| is_it(message));
    let query = InvocationQuery::of(key).in_messages(sequences.map(|(sequence, _)| sequence));
    let known = store.invocations(&query).await?.found;
    let known = by_call(&known);
    let waits = |(decision, call, _): &(&ApprovalResponse, CallOfRun, _)| {
        let row = known.get(call);
        decision.approved && row.is_none_or(|row| row.result.is_none() && row.started_at.is_none())
    };
    let decided = decided.into_iter().filter(|batch| !batch.iter().any(waits)).flatten();
    let mut results = Vec::new();
    let mut queued = Vec::new();
    let mut statuses = Vec::new();
    for (decision, (message, index), waiting) in decided {
        let row = known.get(&(message, index));
        let (mut result, status) = match row.map(|row| (&row.result, row.started_at)) {
            // Its stored arguments are not those that were approved.
            Some((Some(result), None)) => (result.clone(), Some(ToolStatus::RejectedArguments)),
            Some((Some(result), Some(_))) => (result.clone(), None),
            Some((None, Some(_))) => (ToolResult::error("", INTERRUPTED), None),
            Some((None, None)) | None => {
                let result = ToolResult::new("", rejection(decision.reason.as_deref()));
                (result, Some(ToolStatus::RejectedByApproval))
            }
        };
        let position = u32::try_from(results.len()).unwrap_or(u32::MAX);
        statuses.extend(status.map(|status| (position, status)));
        queued.extend(std::mem::take(&mut result.queued).into_iter().map(Arc::new));
        result.call_id = Some(waiting.call_id);
        result.name.get_or_insert(waiting.request.call.name);
        result.call = u32::try_from(index).ok().map(|index| CallPosition { message, index });
        results.push(result);
    }
    if results.is_empty() {
        return Ok(None);
    }
    let mut message = Arc::new(Message::tool_results(results));
    mark_statuses(&mut message, statuses);
    Ok(Some((message, queued)))
}

/// The decisions in these messages, by the ids of the requests.
fn decisions_in(messages: &[Arc<Message>]) -> HashMap<&str, &ApprovalResponse> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let decisions = parts.filter_map(|part| match part {
        Part::ApprovalResponse(decision) => Some((&*decision.request_id, decision)),
        _ => None,
    });
    decisions.collect()
}

fn discarding(
    store: &(impl HistoryStore + ?Sized),
    key: &ConversationKey,
    content: &OpenRunContent,
) -> Write {
    let close = Close::Discard { visible: content.open.visible };
    last_write(store, key, content, Vec::new(), close)
}

/// The last write of an open run, under an attempt of its own.
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
