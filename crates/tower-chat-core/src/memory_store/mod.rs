//! A store in memory.

mod stored;

use std::{
    collections::BTreeMap,
    ops::Bound,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use self::stored::{Stored, matching_rows};
use crate::{
    ConversationKey, RunId,
    store::{
        AddedSummary, CallSelection, ConversationPage, ConversationQuery, ConversationRows,
        ConversationSummary, Description, Directory, Fork, Head, History, HistoryStore,
        HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance, MessagePage,
        Pruned, Revision, Rewrite, RunSummary, StoreError, StoreHandle, Summaries, ToolCallQueries,
        ToolTotals, UsageQuery, UsageTotals,
        author::{AppendError, DirectoryEntry, OpenRunContent, Slot, Ticket, UsageReport, Write},
    },
    telemetry::StoreTelemetry,
};

/// The kind of store in spans and metrics.
const SYSTEM: &str = "memory";

/// A store in the memory of the process, for tests and for conversations that need not survive the
/// process.
///
/// Clones share the same conversations. The handle of the store is
/// [exclusive](crate::store::StoreHandle::exclusive): no other process can resume a journaled run
/// (a run whose messages are stored immediately, one by one), and such a run needs no lease. The
/// cost of loading, cloning or extending a history does not depend on its length.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat_core::{ConversationKey, MemoryStore, store::HistoryStore};
/// let store = MemoryStore::new();
/// let history = store.load(&ConversationKey::new("alice", "support")).await?;
/// assert!(history.messages.is_empty());
/// # Ok::<(), tower_chat_core::store::StoreError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    handle: StoreHandle,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_closed: bool,
    conversations: BTreeMap<ConversationKey, Stored>,
}

impl Default for Shared {
    fn default() -> Self {
        Self { handle: StoreHandle::exclusive().with_system(SYSTEM), state: Mutex::default() }
    }
}

impl MemoryStore {
    /// Creates a store without conversations.
    pub fn new() -> Self {
        Self::default()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the state. Returns an error if the store is closed.
    fn open_state(&self) -> Result<MutexGuard<'_, State>, StoreError> {
        let state = self.state();
        if state.is_closed { Err(StoreError::Closed) } else { Ok(state) }
    }

    fn store(&self, write: &Write) -> Result<Revision, StoreError> {
        let mut state = self.open_state()?;
        if let Some(stored) = state.conversations.get_mut(write.key()) {
            return stored.store(write);
        }
        let mut stored = Stored::new(DirectoryEntry::before(write));
        let revision = stored.store(write)?;
        state.conversations.insert(write.key().clone(), stored);
        Ok(revision)
    }
}

#[async_trait]
impl HistoryStore for MemoryStore {
    fn handle(&self) -> &StoreHandle {
        &self.0.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let state = self.state();
        let head = state.conversations.get(key).map(Stored::head);
        Ok(head.unwrap_or_else(|| Head::new(Revision::ABSENT)))
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        let state = self.state();
        let stored = state.conversations.get(key);
        Ok(stored.map_or_else(History::empty, |stored| stored.history.clone()))
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.invocations(&which.query(key)).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.open_state().map(|_| Slot::unbounded())
    }

    fn try_reserve(&self) -> Option<Slot> {
        self.open_state().is_ok().then(Slot::unbounded)
    }

    fn append(&self, _slot: Slot, writes: Vec<Write>) -> Ticket {
        let mut outcome = Ok(Revision::ABSENT);
        for (completed, write) in writes.iter().enumerate() {
            outcome = self.store(write).map_err(|source| AppendError { completed, source });
            if outcome.is_err() {
                break;
            }
        }
        if let Err(error) = &outcome {
            StoreTelemetry::new(SYSTEM).refused(&error.source);
        }
        Ticket::done(outcome)
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        Ok(self.state().conversations.remove(key).is_some())
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.state().is_closed = true;
        Ok(())
    }

    fn journal(&self) -> Option<&dyn Journal> {
        Some(self)
    }

    fn directory(&self) -> Option<&dyn Directory> {
        Some(self)
    }

    fn tool_calls(&self) -> Option<&dyn ToolCallQueries> {
        Some(self)
    }

    fn maintenance(&self) -> Option<&dyn Maintenance> {
        Some(self)
    }

    fn summaries(&self) -> Option<&dyn Summaries> {
        Some(self)
    }
}

#[async_trait]
impl Summaries for MemoryStore {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        let state = self.state();
        let stored = state.conversations.get(key);
        Ok(stored.map_or_else(Vec::new, |stored| stored.summaries().cloned().collect()))
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        let state = self.state();
        let stored = state.conversations.get(key);
        Ok(stored.and_then(|stored| stored.summaries().find(|summary| summary.id == id).cloned()))
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        Ok(match self.open_state()?.conversations.get_mut(key) {
            Some(stored) => stored.add_summary(summary, rewrites),
            None => AddedSummary::NoSuchMessage,
        })
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let stored = &mut self.open_state()?.conversations;
        Ok(stored.get_mut(key).is_some_and(|stored| stored.remove_summary(id)))
    }
}

#[async_trait]
impl Journal for MemoryStore {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        Ok(self.state().conversations.get(key).and_then(Stored::open_run_content))
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let state = self.state();
        let open = of_scope(&state.conversations, scope, after)
            .filter(|(_, stored)| stored.open_run().is_some());
        Ok(open.map(|(key, _)| key.clone()).take(limit).collect())
    }
}

#[async_trait]
impl Maintenance for MemoryStore {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let conversations = &mut self.open_state()?.conversations;
        if conversations.contains_key(to) {
            return Err(StoreError::Exists { key: to.clone() });
        }
        let Some(stored) = conversations.get(from).filter(|stored| stored.is_visible()) else {
            return Ok(Fork::ABSENT);
        };
        let (fork, position) = stored.fork(from, before);
        let revision = fork.history.head.revision;
        conversations.insert(to.clone(), fork);
        Ok(Fork::new(revision, position))
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.0.handle.at_rest(key)?;
        match self.open_state()?.conversations.get_mut(key) {
            Some(stored) => stored.prune(key, keep),
            None => Ok(Pruned::default()),
        }
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        let (mut scopes, mut after) = (Vec::new(), after.map(str::to_owned));
        while scopes.len() < limit {
            let Some(scope) = scope_after(&state.conversations, after.as_deref()) else { break };
            after = Some(scope.to_owned());
            scopes.push(scope.to_owned());
        }
        Ok(scopes)
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        Ok(self.state().conversations.get(key).map(Stored::rows))
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        match self.open_state()?.conversations.get_mut(&rewrite.key) {
            Some(stored) => stored.rewrite(&rewrite),
            None => Err(rewrite.conflict(Revision::ABSENT, None)),
        }
    }
}

#[async_trait]
impl Directory for MemoryStore {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let state = self.state();
        let seen =
            of_scope(&state.conversations, scope, after).filter(|(_, stored)| stored.is_visible());
        Ok(seen.take(limit).map(|(key, _)| key.clone()).collect())
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        Ok(self.state().conversations.get(key).map(|stored| stored.summary(key)))
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        let state = self.state();
        let asked = state.conversations.iter().filter(|(key, _)| query.concerns(key));
        Ok(ConversationPage::of_all(query, asked.map(|(key, stored)| stored.summary(key))))
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        let mut report = UsageReport::new(query);
        for (key, stored) in &self.state().conversations {
            stored.directory.report(key, &mut report);
        }
        Ok(report.into_totals())
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        let state = self.state();
        let Some(stored) = state.conversations.get(key) else { return Ok(Vec::new()) };
        let open = stored.open_run().map(|open| open.run);
        Ok(stored.directory.runs(after, limit, open))
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let state = self.state();
        let page = |stored: &Stored| MessagePage::of(&stored.history, before, limit);
        Ok(state.conversations.get(key).map(page).unwrap_or_default())
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        match self.open_state()?.conversations.get_mut(key) {
            Some(stored) => stored.directory.set_description(key, description, expected_version),
            None => Err(StoreError::NoConversation { key: key.clone() }),
        }
    }
}

#[async_trait]
impl ToolCallQueries for MemoryStore {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        let mut invocations = Invocations::default();
        if query.matches_nothing() {
            return Ok(invocations);
        }
        let state = self.state();
        let rows =
            matching_rows(&state.conversations, query).take(query.limit.unwrap_or(usize::MAX));
        for (key, stored, record) in rows {
            invocations.push(key, record, |sequence| stored.message(sequence));
        }
        Ok(invocations)
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        let state = self.state();
        let mut totals: BTreeMap<&str, ToolTotals> = BTreeMap::new();
        for (_, _, record) in matching_rows(&state.conversations, query) {
            let tool = totals.entry(&record.name).or_insert_with(|| ToolTotals::new(&record.name));
            tool.count(record.status, record.started_at, record.finished_at);
        }
        Ok(totals.into_values().collect())
    }
}

/// Returns the least scope, in byte order, that is greater than `after`.
fn scope_after<'a>(
    conversations: &'a BTreeMap<ConversationKey, Stored>,
    after: Option<&str>,
) -> Option<&'a str> {
    // The least text greater than `after` is `after` with a zero byte appended.
    let least = after.map_or_else(String::new, |after| format!("{after}\0"));
    let (key, _) = conversations.range(ConversationKey::new(least, "")..).next()?;
    Some(key.scope())
}

fn of_scope<'a>(
    conversations: &'a BTreeMap<ConversationKey, Stored>,
    scope: &'a str,
    after: Option<&str>,
) -> impl Iterator<Item = (&'a ConversationKey, &'a Stored)> {
    let start = ConversationKey::new(scope, after.unwrap_or_default());
    let start = match after {
        Some(_) => Bound::Excluded(start),
        None => Bound::Included(start),
    };
    conversations.range((start, Bound::Unbounded)).take_while(move |(key, _)| key.scope() == scope)
}
