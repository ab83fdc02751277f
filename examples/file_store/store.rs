//! A store with one file for each conversation.

use std::{
    collections::BTreeMap,
    fs::{self, File},
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use tower_chat::{
    ConversationKey, HistoryStore,
    store::{
        CallSelection, Head, History, Invocations, Revision, StoreError, StoreHandle,
        author::{AppendError, Slot, StoredConversation, Ticket, Write},
    },
};

/// A store with one file for each conversation. Each write replaces the file. Clones share the same
/// conversations. Only one process at a time may open the folder.
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
    conversations: BTreeMap<ConversationKey, (PathBuf, StoredConversation)>,
}

impl FileStore {
    /// Opens the store in a folder, and reads all files. Creates a missing folder.
    pub(crate) fn open(folder: impl Into<PathBuf>) -> Result<Self, StoreError> {
        let folder = folder.into();
        let mut conversations = BTreeMap::new();
        let mut next_file = 0;
        fs::create_dir_all(&folder).map_err(failed("create the folder"))?;
        for entry in fs::read_dir(&folder).map_err(failed("read the folder"))? {
            let path = entry.map_err(failed("read the folder"))?.path();
            let name = path.file_name().and_then(|name| name.to_str()?.strip_suffix(".json"));
            let Some(number) = name.and_then(|name| name.parse::<u64>().ok()) else { continue };
            next_file = next_file.max(number + 1);
            let json = fs::read(&path).map_err(failed("read a conversation"))?;
            let conversation = StoredConversation::from_json(&json)?;
            conversations.insert(conversation.key().clone(), (path, conversation));
        }
        let state = State { folder, next_file, is_closed: false, conversations };
        Ok(Self { handle: StoreHandle::new(), state: Arc::new(Mutex::new(state)) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, key: &ConversationKey) -> StoredConversation {
        let found = self.state().conversations.get(key).map(|(_, it)| it.clone());
        found.unwrap_or_else(|| StoredConversation::absent(key.clone()))
    }
}

impl State {
    fn admits_changes(&self) -> Result<(), StoreError> {
        if self.is_closed { Err(StoreError::Closed) } else { Ok(()) }
    }

    /// Stores a write: first on the disk, then in memory.
    fn store(&mut self, write: &Write) -> Result<Revision, StoreError> {
        self.admits_changes()?;
        let key = write.key();
        let (path, mut conversation) = match self.conversations.get(key) {
            Some(found) => found.clone(),
            None => {
                let path = self.folder.join(format!("{}.json", self.next_file));
                (path, StoredConversation::absent(key.clone()))
            }
        };
        if conversation.write(write)? {
            replace(&path, &conversation.to_json()).map_err(failed("write a conversation"))?;
            if self.conversations.insert(key.clone(), (path, conversation)).is_none() {
                self.next_file += 1;
            }
        }
        Ok(write.result())
    }
}

#[async_trait]
impl HistoryStore for FileStore {
    fn handle(&self) -> &StoreHandle {
        &self.handle
    }

    async fn head(&self, key: &ConversationKey) -> Result<Head, StoreError> {
        Ok(self.find(key).head())
    }

    async fn load(&self, key: &ConversationKey) -> Result<History, StoreError> {
        Ok(self.find(key).history().clone())
    }

    async fn calls(
        &self,
        key: &ConversationKey,
        which: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        Ok(self.find(key).calls(which))
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        self.state().admits_changes().map(|()| Slot::unbounded())
    }

    fn append(&self, _: Slot, writes: Vec<Write>) -> Ticket {
        let mut revision = Revision::ABSENT;
        for (completed, write) in writes.iter().enumerate() {
            match self.state().store(write) {
                Ok(stored) => revision = stored,
                Err(source) => return Ticket::done(Err(AppendError { completed, source })),
            }
        }
        Ticket::done(Ok(revision))
    }

    async fn delete(&self, key: &ConversationKey) -> Result<bool, StoreError> {
        let mut state = self.state();
        state.admits_changes()?;
        let Some((path, _)) = state.conversations.get(key) else { return Ok(false) };
        match fs::remove_file(path) {
            // An earlier deletion removed the file but failed to sync the folder, which is synced
            // below.
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        }
        .and_then(|()| sync_folder(path))
        .map_err(failed("delete a conversation"))?;
        state.conversations.remove(key);
        Ok(true)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }

    async fn close(&self) -> Result<(), StoreError> {
        self.state().is_closed = true;
        Ok(())
    }
}

/// Replaces a file. After a crash, the file has either its old or its new content.
fn replace(path: &Path, content: &[u8]) -> io::Result<()> {
    let unnamed = path.with_extension("new");
    let mut file = File::create(&unnamed)?;
    file.write_all(content)?;
    file.sync_all()?;
    fs::rename(&unnamed, path)?;
    sync_folder(path)
}

/// Syncs the folder of a file, which makes the name of the file durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

fn failed(action: &'static str) -> impl Fn(io::Error) -> StoreError {
    move |error| StoreError::backend(action, true, error)
}
