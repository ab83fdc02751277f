//! The store.

use std::{
    collections::{BTreeMap, btree_map::Entry},
    fs,
    ops::Bound,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tower_chat::{
    ConversationKey, RunId,
    store::{
        CallSelection, ConversationPage, ConversationQuery, ConversationRows, ConversationSummary,
        Description, Directory, Head, History, HistoryStore, InvocationQuery, Invocations, Journal,
        Keep, Maintenance, MessagePage, Pruned, Revision, Rewrite, RunSummary, StoreError,
        StoreHandle, ToolCallQueries, ToolTotals, UnreadableInvocation, UsageQuery, UsageTotals,
        author::{AppendError, OpenRunContent, Slot, Ticket, ToolRecord, UsageReport, Write},
    },
};

use crate::{
    conversation::{Change, Conversation},
    file::{ConversationFile, failed},
};

/// A store with one file for each conversation, in one folder. Clones share the store.
#[derive(Debug, Clone)]
pub(crate) struct FileStore {
    handle: StoreHandle,
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    folder: PathBuf,
    next_file: u64,
    is_closed: bool,
    conversations: BTreeMap<ConversationKey, (Conversation, ConversationFile)>,
}

impl FileStore {
    /// Opens the store in a folder, and reads all files. Creates a missing folder.
    pub(crate) fn open(folder: impl AsRef<Path>) -> Result<Self, StoreError> {
        let folder = folder.as_ref().to_owned();
        let read = failed("read the folder of a store");
        fs::create_dir_all(&folder).map_err(&read)?;
        let mut state =
            State { folder, next_file: 0, is_closed: false, conversations: BTreeMap::new() };
        for entry in fs::read_dir(&state.folder).map_err(&read)? {
            let path = entry.map_err(&read)?.path();
            let name = path.file_stem().and_then(|name| name.to_str());
            let Some(number) = name.and_then(|name| name.parse::<u64>().ok()) else { continue };
            state.next_file = state.next_file.max(number + 1);
            match path.extension().is_some_and(|it| it == "jsonl") {
                true => {
                    if let Some((file, now)) = ConversationFile::open(path)? {
                        state.conversations.insert(now.key.clone(), (now, file));
                    }
                }
                // A crash left this file before it got its final name.
                false => fs::remove_file(path).map_err(&read)?,
            }
        }
        Ok(Self { handle: StoreHandle::new(), state: Arc::new(Mutex::new(state)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find<T>(&self, key: &ConversationKey, read: impl Fn(&Conversation) -> T) -> Option<T> {
        self.state().conversations.get(key).map(|(conversation, _)| read(conversation))
    }

    /// Stores the writes in order, up to the first that fails.
    fn write(&self, writes: &[Write]) -> Result<Revision, AppendError> {
        let mut revision = Revision::ABSENT;
        for (completed, write) in writes.iter().enumerate() {
            let stored = self.state().store(write);
            revision = stored.map_err(|source| AppendError { completed, source })?;
        }
        Ok(revision)
    }
}

impl State {
    fn takes_writes(&self) -> Result<(), StoreError> {
        if self.is_closed { Err(StoreError::Closed) } else { Ok(()) }
    }

    fn new_file(&mut self) -> PathBuf {
        self.next_file += 1;
        self.folder.join(format!("{}.jsonl", self.next_file - 1))
    }

    /// Stores a write: first on the disk, then in memory.
    fn store(&mut self, write: &Write) -> Result<Revision, StoreError> {
        self.takes_writes()?;
        let path = self.new_file();
        match self.conversations.entry(write.key().clone()) {
            Entry::Vacant(entry) => {
                let mut now = Conversation::absent(write.key().clone());
                if !matches!(now.write(write)?, Change::None) {
                    let file = ConversationFile::create(path, &now)?;
                    entry.insert((now, file));
                }
            }
            Entry::Occupied(mut entry) => {
                let (conversation, file) = entry.get_mut();
                let mut now = conversation.clone();
                match now.write(write)? {
                    Change::None => {}
                    Change::Grown { after, tools } => file.append(&now, after, &tools)?,
                    Change::Cut => file.rewrite(&now)?,
                }
                *conversation = now;
            }
        }
        Ok(write.result())
    }

    /// Returns the conversations of a scope whose ids are greater than the given one.
    fn of_scope<'a>(
        &'a self,
        scope: &'a str,
        after: Option<&str>,
    ) -> impl Iterator<Item = &'a Conversation> {
        let start = ConversationKey::new(scope, after.unwrap_or_default());
        let start = match after {
            Some(_) => Bound::Excluded(start),
            None => Bound::Included(start),
        };
        let following = self.conversations.range((start, Bound::Unbounded));
        following.map(|(_, (it, _))| it).take_while(move |it| it.key.scope() == scope)
    }

    /// Returns the rows that match a query, in order, with their conversations.
    fn asked_for<'a>(
        &'a self,
        query: &'a InvocationQuery,
    ) -> impl Iterator<Item = (&'a Conversation, &'a ToolRecord)> {
        let is_asked_for =
            |it: &&Conversation| query.conversation.as_deref().is_none_or(|id| id == it.key.id());
        self.of_scope(&query.scope, None)
            .filter(is_asked_for)
            .flat_map(|it| it.rows().map(move |row| (it, row)))
            .filter(|(_, row)| query.fits(row))
    }
}

#[async_trait]
impl HistoryStore for FileStore {
    fn handle(&self) -> &StoreHandle {
        &self.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        let head = |it: &Conversation| it.head().with_pending_approvals(it.pending_approvals());
        Ok(self.find(key, head).unwrap_or_else(|| Head::new(Revision::ABSENT)))
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        Ok(self.find(key, Conversation::history).unwrap_or_else(History::empty))
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        self.invocations(&which.query(key)).await
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.state().takes_writes()?;
        Ok(Slot::unbounded())
    }

    fn append(&self, _slot: Slot, writes: Vec<Write>) -> Ticket {
        Ticket::done(self.write(&writes))
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.takes_writes()?;
        match state.conversations.remove(key) {
            Some((_, file)) => file.remove().map(|()| true),
            None => Ok(false),
        }
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
}

#[async_trait]
impl Journal for FileStore {
    async fn open_run(&self, key: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        Ok(self.find(key, Conversation::open_run).flatten())
    }

    async fn open_runs(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let state = self.state();
        let open = state.of_scope(scope, after);
        let open = open.filter(|it| it.open.is_some()).map(|it| it.key.clone());
        Ok(open.take(limit).collect())
    }
}

#[async_trait]
impl Maintenance for FileStore {
    async fn fork(
        &self,
        from: &ConversationKey,
        to: &ConversationKey,
    ) -> Result<Revision, StoreError> {
        let mut state = self.state();
        state.takes_writes()?;
        if state.conversations.contains_key(to) {
            return Err(StoreError::Exists { key: to.clone() });
        }
        let original = state.conversations.get(from).filter(|(it, _)| it.is_seen());
        let Some(fork) = original.map(|(it, _)| it.fork(to.clone())) else {
            return Ok(Revision::ABSENT);
        };
        let revision = fork.revision();
        let file = ConversationFile::create(state.new_file(), &fork)?;
        state.conversations.insert(to.clone(), (fork, file));
        Ok(revision)
    }

    async fn prune(&self, key: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        self.handle.at_rest(key)?;
        let mut state = self.state();
        state.takes_writes()?;
        let Some((conversation, file)) = state.conversations.get_mut(key) else {
            return Ok(Pruned::default());
        };
        let mut now = conversation.clone();
        let pruned = now.prune(keep)?;
        if pruned.messages > 0 {
            file.rewrite(&now)?;
            *conversation = now;
        }
        Ok(pruned)
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        let state = self.state();
        let mut scopes: Vec<_> = state.conversations.keys().map(ConversationKey::scope).collect();
        scopes.dedup();
        let wanted = scopes.into_iter().filter(|scope| after.is_none_or(|after| *scope > after));
        Ok(wanted.take(limit).map(str::to_owned).collect())
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        Ok(self.find(key, Conversation::every_row))
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let mut state = self.state();
        state.takes_writes()?;
        let Some((conversation, file)) = state.conversations.get_mut(&rewrite.key) else {
            return Err(rewrite.conflict(Revision::ABSENT, None));
        };
        let mut now = conversation.clone();
        let revision = now.rewrite(&rewrite)?;
        file.rewrite(&now)?;
        *conversation = now;
        Ok(revision)
    }
}

#[async_trait]
impl Directory for FileStore {
    async fn list(
        &self,
        scope: &str,
        after: Option<&str>,
        limit: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        let state = self.state();
        let seen = state.of_scope(scope, after).filter(|it| it.is_seen());
        Ok(seen.take(limit).map(|it| it.key.clone()).collect())
    }

    async fn summary(
        &self,
        key: &ConversationKey,
    ) -> Result<Option<ConversationSummary>, StoreError> {
        Ok(self.find(key, Conversation::summary).flatten())
    }

    async fn conversations(
        &self,
        query: &ConversationQuery,
    ) -> Result<ConversationPage, StoreError> {
        let state = self.state();
        let all = state.conversations.values().filter_map(|(it, _)| it.summary());
        Ok(ConversationPage::of_all(query, all))
    }

    async fn usage(&self, query: &UsageQuery) -> Result<Vec<UsageTotals>, StoreError> {
        let mut report = UsageReport::new(query);
        for (it, _) in self.state().conversations.values() {
            if let Some(entry) = &it.directory {
                entry.report(&it.key, &mut report);
            }
        }
        Ok(report.into_totals())
    }

    async fn runs(
        &self,
        key: &ConversationKey,
        after: Option<RunId>,
        limit: usize,
    ) -> Result<Vec<RunSummary>, StoreError> {
        Ok(self.find(key, |it| it.runs(after, limit)).unwrap_or_default())
    }

    async fn messages_before(
        &self,
        key: &ConversationKey,
        before: Option<u64>,
        limit: usize,
    ) -> Result<MessagePage, StoreError> {
        let page = |it: &Conversation| MessagePage::of(&it.history(), before, limit);
        Ok(self.find(key, page).unwrap_or_default())
    }

    async fn set_description(
        &self,
        key: &ConversationKey,
        description: &Description,
        expected_version: u64,
    ) -> Result<u64, StoreError> {
        let mut state = self.state();
        state.takes_writes()?;
        let nobody = || StoreError::NoConversation { key: key.clone() };
        let (conversation, file) = state.conversations.get_mut(key).ok_or_else(nobody)?;
        let mut now = conversation.clone();
        let entry = now.directory.as_mut().ok_or_else(nobody)?;
        let version = entry.set_description(key, description, expected_version)?;
        file.append(&now, now.revision().sequence, &[])?;
        *conversation = now;
        Ok(version)
    }
}

#[async_trait]
impl ToolCallQueries for FileStore {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        let mut invocations = Invocations::default();
        let state = self.state();
        for (it, row) in state.asked_for(query).take(query.limit.unwrap_or(usize::MAX)) {
            let key = it.key.clone();
            match row.resolve(|sequence| it.message(sequence).cloned()) {
                Ok(invocation) => invocations.found.push((key, invocation)),
                Err(error) => invocations.unreadable.push(UnreadableInvocation::new(
                    key,
                    row.call.sequence,
                    row.call.index,
                    error.to_string(),
                )),
            }
        }
        Ok(invocations)
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        let state = self.state();
        let mut totals: BTreeMap<&str, ToolTotals> = BTreeMap::new();
        for (_, row) in state.asked_for(query) {
            let tool = totals.entry(&row.name).or_insert_with(|| ToolTotals::new(&row.name));
            tool.count(row.status, row.started_at, row.finished_at);
        }
        Ok(totals.into_values().collect())
    }
}
