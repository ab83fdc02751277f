//! [`SqliteStore`], the store in one file.

mod maintenance;
mod writing;

use std::{path::Path, sync::Arc};

use async_trait::async_trait;
use rusqlite::Connection;
use tokio::runtime::Handle;
use tower_chat_core::{
    BoxError, Classified, ConversationKey, RunId,
    store::{
        AddedSummary, CallSelection, ConversationPage, ConversationQuery, ConversationRows,
        ConversationSummary, Description, Directory, Fork, Head, History, HistoryStore,
        HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance, MessagePage,
        Pruned, Revision, Rewrite, RunSummary, StoreError, StoreHandle, Summaries, ToolCallQueries,
        ToolTotals, UsageQuery, UsageTotals,
        author::{AppendError, LoadFrom, OpenRunContent, Slot, Ticket, Write},
    },
};

use self::writing::Writing;
use crate::{
    OpenError, SqliteOptions, directory,
    file::StoreFile,
    history_summary, invocations, open_run,
    read::{self, NotRead},
    readers::Readers,
    submission::Submission,
    telemetry::{SYSTEM, TELEMETRY},
    tool_totals,
    write_panicked::catch,
};

/// Stores conversations in one SQLite file.
///
/// Clones share one store. Dropping the last clone blocks the thread until the submitted writes are
/// finished. To wait without blocking, [`close`](HistoryStore::close) the store first.
///
/// The async methods of the store must be called on a tokio runtime.
#[derive(Debug, Clone)]
pub struct SqliteStore(Arc<Shared>);

/// The numbers of commits and writes of a store since the store was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// The number of committed transactions. Under load, one transaction contains the writes of
    /// many callers.
    pub commits: u64,
    /// The number of acknowledged writes.
    pub writes: u64,
}

#[derive(Debug)]
struct Shared {
    handle: StoreHandle,
    readers: Arc<Readers>,
    /// The writing part of the store; `None` if the store was opened read-only.
    writing: Option<Writing>,
}

impl SqliteStore {
    /// Opens the store at a path with the default options, and creates the file if it does not
    /// exist. Must be called on a tokio runtime.
    ///
    /// # Errors
    ///
    /// Returns an [`OpenError`] if the store cannot be opened. A file that is not a store is not
    /// changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        SqliteOptions::new().open(path).await
    }

    /// Returns the default options for opening a store.
    pub fn options() -> SqliteOptions {
        SqliteOptions::new()
    }

    pub(crate) async fn open_with(path: &Path, options: SqliteOptions) -> Result<Self, OpenError> {
        let path = path.to_path_buf();
        let failed = {
            let path = path.clone();
            move |cause: BoxError| OpenError::Io { path, source: Classified::permanent(cause) }
        };
        let runtime = match Handle::try_current() {
            Ok(runtime) => runtime,
            Err(error) => return Err(failed(error.into())),
        };
        let opened = runtime.spawn_blocking(move || Self::open_here(&path, &options)).await;
        opened.unwrap_or_else(|error| Err(failed(error.into())))
    }

    fn open_here(path: &Path, options: &SqliteOptions) -> Result<Self, OpenError> {
        let (file, connection) = StoreFile::open(path, options)?;
        let (reader, writing) = if options.read_only {
            (Some(connection), None)
        } else {
            let writing = Writing::start(&file, connection, options).map_err(|cause| {
                OpenError::Io { path: path.into(), source: Classified::permanent(cause) }
            })?;
            (None, Some(writing))
        };
        let readers = Arc::new(Readers::new(file, options, reader));
        let handle = match options.exclusive {
            true => StoreHandle::exclusive(),
            false => StoreHandle::new(),
        }
        .with_system(SYSTEM);
        Ok(Self(Arc::new(Shared { handle, readers, writing })))
    }

    /// Returns the number of commits and writes since the store was opened.
    pub fn statistics(&self) -> Statistics {
        self.0.writing.as_ref().map_or(Statistics { commits: 0, writes: 0 }, |writing| Statistics {
            commits: writing.queue.commits(),
            writes: writing.queue.writes(),
        })
    }

    #[cfg(test)]
    pub(crate) fn checkpoints(&self) -> &crate::checkpoints::Checkpoints {
        &self.0.writing.as_ref().unwrap().checkpoints
    }

    #[cfg(test)]
    pub(crate) fn queue(&self) -> &Arc<crate::queue::WriteQueue> {
        &self.0.writing.as_ref().unwrap().queue
    }

    #[cfg(test)]
    pub(crate) fn readers(&self) -> &Arc<Readers> {
        &self.0.readers
    }

    fn writing(&self) -> Result<&Writing, StoreError> {
        self.0.writing.as_ref().ok_or(StoreError::ReadOnly)
    }

    /// Executes `work` on a separate connection, after all earlier submissions (writes and other
    /// changes in the queue) and before all later ones.
    pub(crate) async fn run_exclusively<T: Send + 'static>(
        &self,
        action: &'static str,
        work: impl FnOnce(&mut Connection) -> Result<T, NotRead> + Send + 'static,
    ) -> Result<T, StoreError> {
        let queue = &self.writing()?.queue;
        let file = self.file().clone();
        let turn = move || {
            file.check_path().map_err(|failure| NotRead::Damaged(failure.store_error(action)))?;
            catch(|| work(&mut file.writer()?)).unwrap_or_else(|panic| {
                Err(NotRead::Damaged(StoreError::backend(action, false, panic)))
            })
        };
        match queue.run_exclusively(turn).await.map_err(|_| StoreError::Closed)? {
            Ok(done) => Ok(done),
            Err(NotRead::Damaged(error)) => Err(error),
            Err(NotRead::Failed(error)) => Err(self.file().failure(error).store_error(action)),
        }
    }

    pub(crate) fn file(&self) -> &StoreFile {
        self.0.readers.file()
    }

    /// Waits until all earlier submissions have finished. With a key, waits only up to the last
    /// submission that changes or copies this conversation.
    pub(crate) async fn settle(&self, key: Option<&ConversationKey>) -> Result<(), StoreError> {
        let barrier = self.0.writing.as_ref().and_then(|writing| writing.queue.barrier(key));
        match barrier {
            Some(barrier) => barrier.await.map_err(|_| StoreError::Closed),
            None => Ok(()),
        }
    }
}

#[async_trait]
impl HistoryStore for SqliteStore {
    fn handle(&self) -> &StoreHandle {
        &self.0.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let head = move |connection: &_| read::head(connection, &key);
        self.0.readers.read_few("read the head of a conversation", head).await
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        self.settle(Some(key)).await?;
        let found = key.clone();
        let read = move |connection: &_| read::history(connection, &found, None);
        let (history, bytes) = self.0.readers.read("load a conversation", read).await?;
        TELEMETRY.loaded(key, history.messages.len(), bytes);
        Ok(history)
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &LoadFrom,
    ) -> Result<History, StoreError> {
        self.settle(Some(key)).await?;
        let (found, from) = (key.clone(), from.clone());
        let read = move |connection: &_| read::history(connection, &found, Some(&from));
        let (history, bytes) = self.0.readers.read("load a conversation", read).await?;
        TELEMETRY.loaded(key, history.messages.len(), bytes);
        Ok(history)
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.invocations(&which.query(key)).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        let Writing { slots, budget, .. } = self.writing()?;
        let permit = slots.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        budget.wait().await;
        if slots.is_closed() {
            return Err(StoreError::Closed);
        }
        Ok(Slot::guarded(permit))
    }

    fn try_reserve(&self) -> Option<Slot> {
        let Writing { slots, budget, .. } = self.writing().ok()?;
        let permit = slots.clone().try_acquire_owned().ok()?;
        budget.is_free().then(|| Slot::guarded(permit))
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        match self.writing() {
            Ok(writing) => writing.queue.append(Submission::append(slot, writes, &writing.budget)),
            Err(source) => Ticket::done(Err(AppendError { completed: 0, source })),
        }
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let slot = self.reserve().await?;
        let (submission, outcome) = Submission::delete(slot.without_blocking(), key.clone());
        self.writing()?.queue.submit(submission);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn flush(&self) -> Result<(), StoreError> {
        self.settle(None).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        let Some(writing) = &self.0.writing else { return Ok(()) };
        writing.slots.close();
        writing.queue.close();
        self.settle(None).await?;
        let failed = |source: BoxError| StoreError::backend("close", false, source);
        let runtime = Handle::try_current().map_err(|error| failed(error.into()))?;
        self.0.readers.release();
        let ended = runtime.spawn_blocking(writing.retire());
        let synced = ended.await.map_err(|error| failed(error.into()))?;
        synced.map_err(|error| failed(error.into()))
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
impl Summaries for SqliteStore {
    async fn history_summaries(
        &self,
        key: &ConversationKey,
    ) -> Result<Vec<HistorySummary>, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let summaries = move |connection: &_| history_summary::list(connection, &key);
        self.0.readers.read("read the summaries of a conversation", summaries).await
    }

    async fn history_summary(
        &self,
        key: &ConversationKey,
        id: u64,
    ) -> Result<Option<HistorySummary>, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let summary = move |connection: &_| history_summary::find(connection, &key, id);
        self.0.readers.read_few("read a summary of a conversation", summary).await
    }

    async fn add_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
        rewrites: u64,
    ) -> Result<AddedSummary, StoreError> {
        let (submission, outcome) = Submission::add_summary(key.clone(), summary.clone(), rewrites);
        self.writing()?.queue.submit(submission);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn remove_summary(&self, key: &ConversationKey, id: u64) -> Result<bool, StoreError> {
        let (submission, outcome) = Submission::remove_summary(key.clone(), id);
        self.writing()?.queue.submit(submission);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }
}

#[async_trait]
impl Journal for SqliteStore {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let content = move |connection: &_| open_run::content(connection, &key);
        self.0.readers.read("load an open run", content).await
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.settle(None).await?;
        let (scope, after) = (scope.to_owned(), after.map(str::to_owned));
        let list =
            move |connection: &_| open_run::list(connection, &scope, after.as_deref(), limit);
        self.0.readers.read("list open runs", list).await
    }
}

#[async_trait]
impl Maintenance for SqliteStore {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let slot = self.reserve().await?;
        let (submission, outcome) =
            Submission::fork(slot.without_blocking(), from.clone(), before, to.clone());
        self.writing()?.queue.submit(submission);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        let slot = self.reserve().await?;
        self.0.handle.at_rest(key)?;
        let (submission, outcome) = Submission::prune(slot.without_blocking(), key.clone(), keep);
        self.writing()?.queue.submit(submission);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        self.settle(None).await?;
        let after = after.map(str::to_owned);
        let scopes = move |connection: &_| read::scopes(connection, after.as_deref(), limit);
        self.0.readers.read("list the scopes", scopes).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let rows = move |connection: &_| crate::maintenance::rows(connection, &key);
        self.0.readers.read("read the rows of a conversation", rows).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let slot = self.reserve().await?;
        let (submission, outcome) = Submission::rewrite(slot.without_blocking(), rewrite);
        self.writing()?.queue.submit(submission);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }
}

#[async_trait]
impl Directory for SqliteStore {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        self.settle(None).await?;
        let (scope, after) = (scope.to_owned(), after.map(str::to_owned));
        let list = move |connection: &_| read::list(connection, &scope, after.as_deref(), limit);
        self.0.readers.read("list conversations", list).await
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let summary = move |connection: &_| directory::summary(connection, &key);
        self.0.readers.read_few("read the directory", summary).await
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        if query.limit == 0 {
            return Ok(ConversationPage::new(Vec::new(), query.after.clone()));
        }
        self.settle(None).await?;
        let query = query.clone();
        let page = move |connection: &_| directory::conversations(connection, &query);
        self.0.readers.read("list the directory", page).await
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        let key = query.scope.clone().zip(query.conversation.clone());
        let key = key.map(|(scope, id)| ConversationKey::new(scope, id));
        self.settle(key.as_ref()).await?;
        let query = query.clone();
        let usage = move |connection: &_| directory::usage(connection, &query);
        self.0.readers.read("add up usage", usage).await
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let runs = move |connection: &_| directory::runs(connection, &key, after, limit);
        self.0.readers.read("list the runs of a conversation", runs).await
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        self.settle(Some(key)).await?;
        let key = key.clone();
        let page =
            move |connection: &_| directory::messages_before(connection, &key, before, limit);
        self.0.readers.read("load messages", page).await
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let slot = self.reserve().await?.without_blocking();
        let (submission, outcome) =
            Submission::describe(slot, key.clone(), description.clone(), expected_version);
        self.writing()?.queue.submit(submission);
        outcome.await.unwrap_or(Err(StoreError::Closed))
    }
}

#[async_trait]
impl ToolCallQueries for SqliteStore {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        if query.matches_nothing() {
            return Ok(Invocations::default());
        }
        self.settle(invocations::conversation(query).as_ref()).await?;
        let query = query.clone();
        let found = move |connection: &_| invocations::invocations(connection, &query);
        self.0.readers.read("read the record of tool calls", found).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        if query.sequences.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Vec::new());
        }
        self.settle(invocations::conversation(query).as_ref()).await?;
        let query = query.clone();
        let totals = move |connection: &_| tool_totals::tool_totals(connection, &query);
        self.0.readers.read("count tool calls", totals).await
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.readers.release();
        if let Some(writing) = &self.writing {
            // The outcome is ignored here: a caller that needs it calls `close`.
            drop(writing.retire()());
        }
    }
}
