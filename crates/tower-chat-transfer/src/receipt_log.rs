//! A receipt that is written to a file step by step.

use std::{
    fs::{File, OpenOptions},
    io::{self, BufRead, BufReader, Seek, SeekFrom, Write},
    path::Path,
};

use serde::{Deserialize, Serialize};
use tower_chat_core::{ConversationKey, store::author::milliseconds};

use crate::{Counts, Event, Operation, Receipt, Selection, TransferOutcome, TransferStep};

/// A file with the receipt of a transfer, which includes all attempts at the transfer. One line is
/// written when the transfer of a conversation begins, and another line when the transfer of the
/// conversation is finished. The transfer waits until each line was written.
///
/// Each line is a JSON object: `{"transfer":…}` at the beginning of every attempt, `{"begins":…}`
/// and `{"done":…}` for each conversation, and `{"receipt":…}` with the sums of all attempts when
/// the transfer is complete. When a transfer is complete, the same file can be used for another
/// execution of the same transfer.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::transfer::{Operation, OutcomeKind, ReceiptLog, Selection, Transfer, delete_scope};
/// # use tower_chat::{ConversationKey, MemoryStore, Message, message::MessageId, run::RunId};
/// # use tower_chat::{HistoryStore, store::{Revision, author::Write}};
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
/// let receipt = log.complete()?; // of this attempt and all earlier ones
/// assert_eq!(receipt.total(OutcomeKind::Deleted).messages, 1);
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
#[derive(Debug)]
pub struct ReceiptLog {
    file: File,
    /// The sums of all attempts since the last completed transfer, or since the file was created.
    total: Receipt,
    /// The conversation whose transfer has begun and is not finished, if any.
    begun: Option<(ConversationKey, Counts)>,
    last: Option<ConversationKey>,
}

/// The parameters of a transfer, as written to its receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Transfer {
    /// The kind of the transfer.
    pub operation: Operation,
    /// The selected conversations.
    pub selection: Selection,
    /// The name of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The name of the target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
}

impl Transfer {
    /// Creates a transfer of the selected conversations. All attempts at a transfer must have equal
    /// parameters. Therefore this function removes a restriction by [`after`](Selection::after)
    /// from the selection.
    pub fn new(operation: Operation, selection: Selection) -> Self {
        Self { operation, selection: selection.from_the_first(), from: None, to: None }
    }

    /// Sets the name of the store or file that is the source. The name must not contain passwords.
    #[must_use]
    pub fn from(mut self, from: impl Into<String>) -> Self {
        self.from = Some(from.into());
        self
    }

    /// Sets the name of the store or file that is the target. The name must not contain passwords.
    #[must_use]
    pub fn to(mut self, to: impl Into<String>) -> Self {
        self.to = Some(to.into());
        self
    }
}

/// A receipt cannot be continued.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiptLogError {
    /// The file is the receipt of a different transfer.
    #[error("the receipt belongs to another transfer: name another file, or delete this one")]
    OtherTransfer,
    /// The file exists and is not a receipt. The file is not changed.
    #[error("the file is not a receipt, and was not changed: name another file")]
    NotAReceipt,
    /// A line after the first cannot be parsed.
    #[error("line {line} of the receipt cannot be read: name another file")]
    Damaged {
        /// The line, from 1.
        line: u64,
        /// The parser's error.
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
    Done(TransferStep),
    Receipt(Box<Receipt>),
}

impl ReceiptLog {
    /// Opens the receipt of a transfer. The file is created, or continued if it contains earlier
    /// attempts at the same transfer. Writes the first line of the new attempt.
    ///
    /// # Errors
    ///
    /// Returns a [`ReceiptLogError`] if the receipt cannot be continued.
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

    /// Reads the lines of earlier attempts, and removes an incomplete last line.
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
        // An incomplete line is removed only if it has the beginning of a line of a receipt.
        // Otherwise the file may belong to another program.
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

    fn count(&mut self, step: &TransferStep) {
        self.begun = None;
        self.last = Some(step.key());
        self.total.add(step);
    }

    /// Returns the last finished conversation. A transfer that is continued selects the
    /// conversations [after](Selection::after) this one.
    pub fn last(&self) -> Option<&ConversationKey> {
        self.last.as_ref()
    }

    /// Returns the conversation whose transfer has begun and was not recorded as finished. An
    /// earlier attempt may have finished the conversation, and stopped before it wrote the line.
    pub fn begun(&self) -> Option<&ConversationKey> {
        self.begun.as_ref().map(|(key, _)| key)
    }

    /// Records that the [begun](Self::begun) conversation was deleted. Does nothing if there is no
    /// begun conversation.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn was_deleted(&mut self) -> io::Result<()> {
        let Some((key, counts)) = self.begun.take() else { return Ok(()) };
        self.record(&Event::Done(TransferStep::new(&key, TransferOutcome::Deleted, counts)))
    }

    /// Writes an event to the file. Call this method in the callback of the transfer. When the
    /// method returns, the line has been written to the file, and a line for the beginning of a
    /// deletion has also been synced to the disk. The method writes nothing for [`Event::Total`].
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn record(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::Total { .. } => Ok(()),
            Event::Begins { key, counts } => {
                self.begun = Some((key.clone(), *counts));
                let (scope, id) = (key.scope().to_owned(), key.id().to_owned());
                self.write(&Entry::Begins { scope, id, counts: *counts })?;
                // The line must survive a power loss, because the deletion after it cannot be
                // undone.
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

    /// Writes the receipt with the sums of all attempts to the file, and returns it.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
    pub fn complete(self) -> io::Result<Receipt> {
        self.complete_with(None)
    }

    /// Completes the receipt of an export or an import. `sha256` is the digest of the exported or
    /// imported file.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written.
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

/// Returns whether an incomplete line is the beginning of a line of a receipt.
fn is_beginning(text: &[u8], is_first: bool) -> bool {
    const FIRST: &[&[u8]] = &[b"{\"transfer\":{"];
    const OTHERS: &[&[u8]] = &[b"{\"begins\":{", b"{\"done\":{", b"{\"receipt\":{"];
    let others = if is_first { &[] } else { OTHERS };
    FIRST.iter().chain(others).any(|beginning| {
        let length = text.len().min(beginning.len());
        text.get(..length) == beginning.get(..length)
    })
}
