//! The file with the notes of a workload about its operations. It is not in the folder under test.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use tower_chat_core::{
    ConversationKey, format,
    store::{
        self, ConversationRows, Fork, HistoryStore, Keep, Pruned, Revision, Rewrite, StoreError,
        author::{Close, Slot, Ticket, ToolRecord, Write, milliseconds},
    },
};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Note {
    /// An operation begins. This note precedes every effect of the operation.
    Began { number: u64, action: Action },
    /// An operation was acknowledged. `pruned` is the number of messages that a prune removed.
    Done { number: u64, pruned: u64 },
    /// The store reported that an operation failed.
    Refused { number: u64, reason: String },
    /// A caller received these answers of a run, which must therefore be stored.
    Answered { key: Key, run: String, texts: Vec<String> },
}

pub(super) type Key = (String, String);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Action {
    Write(Box<WriteNote>),
    Prune {
        key: Key,
    },
    Delete {
        key: Key,
    },
    Fork {
        from: Key,
        to: Key,
    },
    /// Makes all earlier changes durable: a checkpoint, a vacuum, a close.
    MakeDurable {
        how: String,
    },
    Backup {
        name: String,
    },
}

/// A write to a conversation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WriteNote {
    pub(super) key: Key,
    /// The number of the last message before the write.
    pub(super) after: u64,
    pub(super) messages: Vec<(String, String)>,
    /// The rows about tool calls, each with the position of its call.
    pub(super) record: Vec<((u64, u32), String)>,
    pub(super) staged: Staging,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Staging {
    No,
    Yes,
    Commit,
    Discard { visible: u64 },
}

pub(super) fn key(key: &ConversationKey) -> Key {
    (key.scope().to_owned(), key.id().to_owned())
}

/// Returns a row about a tool call as text, with times in their stored precision.
pub(super) fn described(record: &ToolRecord) -> String {
    let mut record = record.clone();
    let at = [record.started_at.take(), record.finished_at.take()];
    format!("{record:?} {:?}", at.map(|time| time.map(milliseconds::of)))
}

impl WriteNote {
    fn of(write: &Write) -> Self {
        let messages = write
            .messages()
            .iter()
            .map(|message| (format!("{:?}", message.id), format::encode(message)));
        let staged = match (write.as_staged(), write.close()) {
            (None, _) => Staging::No,
            (Some(_), None) => Staging::Yes,
            (Some(_), Some(Close::Commit)) => Staging::Commit,
            (Some(_), Some(Close::Discard { visible })) => Staging::Discard { visible },
        };
        Self {
            key: key(write.key()),
            after: write.expected().sequence,
            messages: messages.collect(),
            record: write
                .tools()
                .iter()
                .map(|record| ((record.call.sequence, record.call.index), described(record)))
                .collect(),
            staged,
        }
    }
}

#[derive(Debug, Clone)]
pub(super) struct Notes(Arc<Open>);

#[derive(Debug)]
struct Open {
    file: Mutex<File>,
    next: AtomicU64,
}

impl Notes {
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create_new(true).append(true).open(path)?;
        Ok(Self(Arc::new(Open { file: Mutex::new(file), next: AtomicU64::new(0) })))
    }

    /// Writes a line with one system call.
    pub(super) fn write(&self, note: &Note) {
        #[expect(clippy::expect_used, reason = "a workload without its notes cannot be checked")]
        {
            let mut line = serde_json::to_vec(note).expect("a note has a JSON form");
            line.push(b'\n');
            let mut file = self.0.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.write_all(&line).expect("the notes can be written");
        }
    }

    pub(super) fn begin(&self, action: Action) -> u64 {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.write(&Note::Began { number, action });
        number
    }

    /// Records the outcome of an operation. A success contains the number of pruned messages.
    pub(super) fn end<E: std::fmt::Display>(&self, number: u64, outcome: &Result<u64, E>) {
        self.write(&match outcome {
            Ok(pruned) => Note::Done { number, pruned: *pruned },
            Err(error) => Note::Refused { number, reason: error.to_string() },
        });
    }
}

/// A store that notes when each write begins and when it is acknowledged.
#[derive(Clone)]
pub(super) struct Noted {
    pub(super) inner: Arc<dyn HistoryStore>,
    pub(super) notes: Notes,
}

#[async_trait]
impl store::author::StoreWrapper for Noted {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &Self::Inner {
        &*self.inner
    }

    fn append(&self, slot: Slot, writes: Vec<Write>) -> Ticket {
        let begin = |write| self.notes.begin(Action::Write(Box::new(WriteNote::of(write))));
        let numbers: Vec<u64> = writes.iter().map(begin).collect();
        let ticket = HistoryStore::append(&*self.inner, slot, writes);
        let notes = self.notes.clone();
        if ticket.is_durable() {
            numbers.iter().for_each(|number| notes.end::<StoreError>(*number, &Ok(0)));
            return ticket;
        }
        Ticket::watching(async move {
            let outcome = ticket.await;
            let completed =
                outcome.as_ref().map_or_else(|error| error.completed, |_| numbers.len());
            for (index, number) in numbers.iter().enumerate() {
                match &outcome {
                    Err(error) if index >= completed => {
                        notes.end(*number, &Err::<u64, _>(&error.source));
                    }
                    Ok(_) | Err(_) => notes.end::<StoreError>(*number, &Ok(0)),
                }
            }
            outcome
        })
    }

    async fn delete(&self, of: &ConversationKey) -> Result<bool, StoreError> {
        let number = self.notes.begin(Action::Delete { key: key(of) });
        let outcome = HistoryStore::delete(&*self.inner, of).await;
        self.notes.end(number, &outcome.as_ref().map(|_| 0));
        outcome
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        Some(self)
    }
}

#[async_trait]
impl store::Maintenance for Noted {
    async fn fork_at(
        &self,
        from: &ConversationKey,
        before: Option<u64>,
        to: &ConversationKey,
    ) -> Result<Fork, StoreError> {
        let number = self.notes.begin(Action::Fork { from: key(from), to: key(to) });
        let outcome = store::Maintenance::fork_at(&*self.inner, from, before, to).await;
        self.notes.end(number, &outcome.as_ref().map(|_| 0));
        outcome
    }

    async fn prune(&self, of: &ConversationKey, keep: Keep) -> Result<Pruned, StoreError> {
        let number = self.notes.begin(Action::Prune { key: key(of) });
        let outcome = store::Maintenance::prune(&*self.inner, of, keep).await;
        self.notes.end(number, &outcome.as_ref().map(|pruned| pruned.messages));
        outcome
    }

    async fn scopes(&self, after: Option<&str>, limit: usize) -> Result<Vec<String>, StoreError> {
        store::Maintenance::scopes(&*self.inner, after, limit).await
    }

    async fn rows(&self, key: &ConversationKey) -> Result<Option<ConversationRows>, StoreError> {
        store::Maintenance::rows(&*self.inner, key).await
    }

    async fn rewrite(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        store::Maintenance::rewrite(&*self.inner, rewrite).await
    }
}
