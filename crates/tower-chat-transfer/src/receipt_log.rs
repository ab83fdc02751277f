//! A receipt that is written step by step.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Seek, SeekFrom, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use tower_chat_core::{ConversationKey, store::author::milliseconds};

use crate::{Counts, Event, Operation, Outcome, Receipt, Selection, Step};

/// A file that has an account of a transfer, over all attempts at it: a line is added for every
/// conversation that is begun, and one once it is done, before the transfer goes on.
///
/// A line is one JSON object: `{"transfer":…}` at the beginning of every attempt,
/// `{"begins":…}` and `{"done":…}` for a conversation, and `{"receipt":…}` with the sum of all attempts
/// once the transfer is complete. After that, the same transfer begins anew in the same file.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::transfer::{Operation, OutcomeKind, ReceiptLog, Selection, Transfer, delete_scope};
/// # use tower_chat::{ConversationKey, MemoryStore, Message, MessageId, RunId};
/// # use tower_chat::store::{HistoryStore, Revision, author::Write};
/// # let store = MemoryStore::new();
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let key = ConversationKey::new("alice", "support");
/// # let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
/// # store.append(store.reserve().await?, vec![write]).await?;
/// # let folder = tempfile::tempdir()?;
/// # let path = folder.path().join("deleted.jsonl");
/// let deletion = Transfer::new(Operation::Delete, Selection::scope("alice")).from("chats.db");
/// let mut log = ReceiptLog::open(&path, deletion)?;
/// delete_scope(&store, "alice", &mut |event| Ok(log.record(event)?)).await?;
/// let receipt = log.complete()?; // of this attempt and all before it
/// assert_eq!(receipt.total(OutcomeKind::Deleted).messages, 1);
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug)]
pub struct ReceiptLog {
    file: File,
    total: Receipt,
    begun: Option<(ConversationKey, Counts)>,
    last: Option<ConversationKey>,
}

/// What a transfer does, as its receipt says it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transfer {
    /// What is done.
    pub operation: Operation,
    /// With which conversations.
    pub selection: Selection,
    /// Where they are taken from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// Where they go.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Transfer {
    /// A transfer of these conversations.
    pub fn new(operation: Operation, selection: Selection) -> Self {
        Self { operation, selection: selection.from_the_first(), from: None, to: None }
    }

    /// Names the store or the file that they are taken from, without passwords.
    #[must_use]
    pub fn from(mut self, from: impl Into<String>) -> Self {
        self.from = Some(from.into());
        self
    }

    /// Names the store or the file that they go to, without passwords.
    #[must_use]
    pub fn to(mut self, to: impl Into<String>) -> Self {
        self.to = Some(to.into());
        self
    }
}

/// A receipt cannot be gone on with.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptLogError {
    /// The file is of another transfer.
    #[error("the receipt is one of another transfer: name another file, or delete this one")]
    OtherTransfer,
    /// The file is there, and does not begin as a receipt does. It is left as it is.
    #[error("the file is no receipt, and is left as it is: name another file")]
    NotAReceipt,
    /// A line of it cannot be read.
    #[error("line {line} of the receipt cannot be read: name another file")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// What is wrong with it.
        source: serde_json::Error,
    },
    /// The file cannot be read or written.
    #[error("the receipt cannot be read or written")]
    Io(#[from] io::Error),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Entry {
    Transfer {
        #[serde(flatten)]
        transfer: Transfer,
        at: i64,
    },
    Begins {
        scope: String,
        id: String,
        counts: Counts,
    },
    Done(Step),
    Receipt(Box<Receipt>),
}

impl ReceiptLog {
    /// Opens the receipt of a transfer: a new file, or that of earlier attempts at the same.
    ///
    /// # Errors
    ///
    /// [`ReceiptLogError`].
    pub fn open(path: &Path, transfer: Transfer) -> Result<Self, ReceiptLogError> {
        let file = OpenOptions::new().read(true).append(true).create(true).open(path)?;
        let mut log = Self {
            total: Receipt::begin(transfer.operation, transfer.selection.clone()),
            file,
            begun: None,
            last: None,
        };
        log.read(&transfer)?;
        let at = milliseconds::of(std::time::SystemTime::now());
        log.write(&Entry::Transfer { transfer, at })?;
        Ok(log)
    }

    /// Reads what earlier attempts have written, and cuts off a last line that is not whole.
    fn read(&mut self, transfer: &Transfer) -> Result<(), ReceiptLogError> {
        let mut reader = BufReader::new(self.file.try_clone()?);
        let (mut text, mut line, mut whole) = (Vec::new(), 0, 0);
        loop {
            text.clear();
            let length = reader.read_until(b'\n', &mut text)?;
            if text.last() != Some(&b'\n') {
                break;
            }
            line += 1;
            whole += length as u64;
            let entry = match serde_json::from_slice(&text) {
                Ok(entry) => entry,
                Err(_) if line == 1 => return Err(ReceiptLogError::NotAReceipt),
                Err(source) => return Err(ReceiptLogError::Damaged { line, source }),
            };
            if line == 1 && !matches!(entry, Entry::Transfer { .. }) {
                return Err(ReceiptLogError::NotAReceipt);
            }
            self.take(entry, transfer)?;
        }
        // What is cut off is a line of ours, not the contents of another file.
        if !text.is_empty() && !is_beginning(&text, line == 0) {
            return Err(ReceiptLogError::NotAReceipt);
        }
        self.file.set_len(whole)?;
        self.file.seek(SeekFrom::End(0))?;
        Ok(())
    }

    fn take(&mut self, entry: Entry, expected: &Transfer) -> Result<(), ReceiptLogError> {
        match entry {
            Entry::Transfer { transfer, .. } if transfer != *expected => {
                return Err(ReceiptLogError::OtherTransfer);
            }
            Entry::Transfer { at, .. } => self.total.began_at = self.total.began_at.min(at),
            Entry::Begins { scope, id, counts } => {
                self.begun = Some((ConversationKey::new(scope, id), counts));
            }
            Entry::Done(step) => self.count(&step),
            Entry::Receipt(_) => {
                let Transfer { operation, selection, .. } = expected.clone();
                (self.begun, self.last) = (None, None);
                self.total = Receipt::begin(operation, selection);
            }
        }
        Ok(())
    }

    fn count(&mut self, step: &Step) {
        self.begun = None;
        self.last = Some(step.key());
        self.total.add(step);
    }

    /// The last conversation that was done: the transfer goes on [after](Selection::after) it.
    pub fn last(&self) -> Option<&ConversationKey> {
        self.last.as_ref()
    }

    /// The conversation that an earlier attempt has begun, and may have done.
    pub fn begun(&self) -> Option<&ConversationKey> {
        self.begun.as_ref().map(|(key, _)| key)
    }

    /// Writes down that the conversation that an earlier attempt has [begun](Self::begun) is deleted.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn was_deleted(&mut self) -> io::Result<()> {
        let Some((key, counts)) = self.begun.take() else { return Ok(()) };
        self.record(&Event::Done(Step::new(&key, Outcome::Deleted, counts)))
    }

    /// Writes an event down, for a callback. When it has returned, the file has it.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn record(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Total { .. } => Ok(()),
            Event::Begins { key, counts } => {
                self.begun = Some((key.clone(), *counts));
                let (scope, id) = (key.scope().to_owned(), key.id().to_owned());
                self.write(&Entry::Begins { scope, id, counts: *counts })?;
                // What is deleted next is gone for good, whatever happens to this machine.
                match self.total.operation {
                    Operation::Delete => self.file.sync_data(),
                    Operation::Export | Operation::Import | Operation::Copy => Ok(()),
                }
            }
            Event::Done(step) => {
                self.count(step);
                self.write(&Entry::Done(step.clone()))
            }
        }
    }

    /// Writes the sum of all attempts down, and returns it.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn complete(self) -> io::Result<Receipt> {
        self.complete_with(None)
    }

    /// Completes the receipt of an export or an import, whose file has this SHA-256.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn complete_with(mut self, sha256: Option<String>) -> io::Result<Receipt> {
        let mut receipt = self.total.clone().end();
        receipt.sha256 = sha256;
        self.write(&Entry::Receipt(Box::new(receipt.clone())))?;
        self.file.sync_data()?;
        Ok(receipt)
    }

    fn write(&mut self, entry: &Entry) -> io::Result<()> {
        let mut line = serde_json::to_vec(entry)?;
        line.push(b'\n');
        self.file.write_all(&line)
    }
}

/// Whether a line that was cut off is one of a receipt, which may be its first.
fn is_beginning(text: &[u8], is_first: bool) -> bool {
    const FIRST: &[&[u8]] = &[b"{\"transfer\":{"];
    const OTHERS: &[&[u8]] = &[b"{\"begins\":{", b"{\"done\":{", b"{\"receipt\":{"];
    let others = if is_first { &[] } else { OTHERS };
    FIRST.iter().chain(others).any(|beginning| {
        let length = text.len().min(beginning.len());
        text.get(..length) == beginning.get(..length)
    })
}
