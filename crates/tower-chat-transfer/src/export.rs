//! Exporting conversations from a store to a file.

use std::fmt;

use serde::Serialize;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tower_chat_core::{ConversationKey, store::HistoryStore};

use crate::{
    Counts, Event, ExportContents, Operation, Progress, Receipt, Selection, TransferError,
    TransferOutcome, TransferStep,
    digest::Sum,
    line::{AbandonedLine, CompleteLine, ConversationLine, EndLine, FORMAT, Header, Line, VERSION},
    progress::report,
    reader::{ReadError, Reader},
    record::Record,
    selection::Keys,
};

/// The maximum number of attempts to read a conversation that changes while it is read.
pub(crate) const ATTEMPTS: u32 = 8;

/// The size of the buffer, in bytes, at which it is written to the file.
const BUFFER: usize = 64 * 1024;

/// A file that [`export`] writes.
///
/// If the export stops, the file may end in the middle of a conversation or of a line. Another
/// export can continue the file: see [`resume`](Self::resume).
pub struct ExportFile<W> {
    writer: W,
    buffer: Vec<u8>,
    /// The digest of all lines.
    sum: Sum,
    /// The digest of the lines of the conversation that is being written.
    section: Sum,
    /// The number of complete conversations in the file.
    conversations: u64,
    /// Whether the first line of the file was written.
    is_begun: bool,
}

impl<W> fmt::Debug for ExportFile<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportFile").field("conversations", &self.conversations).finish()
    }
}

impl<W: AsyncWrite + Unpin> ExportFile<W> {
    /// Creates a new file in an empty writer.
    pub fn new(writer: W) -> Self {
        Self {
            writer,
            buffer: Vec::new(),
            sum: Sum::default(),
            section: Sum::default(),
            conversations: 0,
            is_begun: false,
        }
    }

    /// Continues a file. The caller must have truncated the file to its [whole
    /// bytes](ExportContents::whole_bytes), and positioned the writer at the end of the file.
    pub fn resume(writer: W, contents: &ExportContents) -> Self {
        Self {
            sum: contents.sum().clone(),
            conversations: contents.conversations(),
            is_begun: contents.whole_bytes() > 0,
            ..Self::new(writer)
        }
    }

    async fn begin(&mut self) -> Result<(), TransferError> {
        if self.is_begun {
            return Ok(());
        }
        self.is_begun = true;
        self.put(&Header { format: FORMAT.to_owned(), version: VERSION }).await
    }

    async fn begin_conversation(
        &mut self,
        key: &ConversationKey,
        reader: &Reader<'_>,
    ) -> Result<(), TransferError> {
        self.section = Sum::default();
        let line = ConversationLine::new(key, &reader.beginning());
        self.put(&Line::Conversation(Box::new(line))).await
    }

    async fn put_record(&mut self, record: &Record) -> Result<(), TransferError> {
        let line = Line::of(record).map_err(|error| TransferError::writing(error.into()))?;
        self.put(&line).await
    }

    async fn end_conversation(&mut self, counts: &Counts) -> Result<(), TransferError> {
        self.conversations += 1;
        let line = EndLine::new(counts, self.section.hex());
        self.put(&Line::End(line)).await?;
        self.flush().await
    }

    async fn abandon(&mut self, reason: String) -> Result<(), TransferError> {
        self.put(&Line::Abandoned(AbandonedLine { reason })).await?;
        self.flush().await
    }

    /// Writes the last line of the file. Returns the digest of the whole file.
    async fn complete(&mut self) -> Result<String, TransferError> {
        let line = CompleteLine { conversations: self.conversations, sha256: self.sum.hex() };
        self.put(&Line::Complete(line)).await?;
        self.flush().await?;
        Ok(self.sum.hex())
    }

    async fn put(&mut self, line: &impl Serialize) -> Result<(), TransferError> {
        let start = self.buffer.len();
        serde_json::to_writer(&mut self.buffer, line)
            .map_err(|error| TransferError::writing(error.into()))?;
        self.buffer.push(b'\n');
        let added = self.buffer.get(start..).unwrap_or_default();
        self.sum.add(added);
        self.section.add(added);
        if self.buffer.len() >= BUFFER {
            self.write_buffer().await?;
        }
        Ok(())
    }

    async fn write_buffer(&mut self) -> Result<(), TransferError> {
        self.writer.write_all(&self.buffer).await.map_err(TransferError::writing)?;
        self.buffer.clear();
        Ok(())
    }

    async fn flush(&mut self) -> Result<(), TransferError> {
        self.write_buffer().await?;
        self.writer.flush().await.map_err(TransferError::writing)
    }
}

/// Writes conversations to a file. Each conversation is in a consistent state, and one page of
/// messages is in memory at a time.
///
/// If a conversation changes while the export reads it, the export reads it again. After eight such
/// attempts, the conversation is refused. The earlier lines of the conversation remain in the file,
/// marked as abandoned, so that an import ignores them. A conversation that cannot be read is
/// refused, and the export continues with the other conversations. The file is complete when the
/// function has returned `Ok`.
///
/// To continue an export after a failure, or after its future was dropped, use
/// [`ExportContents::read`], [`ExportFile::resume`] and [`Selection::after`].
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::transfer::{ExportFile, Selection, export};
/// # use tower_chat::{ConversationKey, MemoryStore, Message, message::MessageId, run::RunId};
/// # use tower_chat::{HistoryStore, store::{Revision, author::Write}};
/// # let store = MemoryStore::new();
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let key = ConversationKey::new("alice", "support");
/// # let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
/// # store.append(store.reserve().await?, vec![write]).await?;
/// let mut file = Vec::new(); // or a `tokio::fs::File`
/// let alice = Selection::scope("alice");
/// let receipt = export(&store, &alice, ExportFile::new(&mut file), &mut |_event| Ok(())).await?;
/// assert_eq!(receipt.scopes.len(), 1);
/// assert!(file.starts_with(b"{\"format\":\"tower-chat\",\"version\":1}\n"));
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
///
/// # Errors
///
/// Returns an error if the store cannot be read, the file cannot be written, or the callback fails.
pub async fn export<W: AsyncWrite + Unpin + Send>(
    store: &dyn HistoryStore,
    selection: &Selection,
    mut file: ExportFile<W>,
    progress: Progress<'_>,
) -> Result<Receipt, TransferError> {
    let mut receipt = Receipt::begin(Operation::Export, selection.clone());
    let conversations = Keys::new(store, selection).count().await?;
    report(progress, &Event::Total { conversations })?;
    file.begin().await?;
    let mut keys = Keys::new(store, selection);
    while let Some(key) = keys.next().await? {
        report(progress, &Event::Begins { key: key.clone(), counts: Counts::default() })?;
        let step = export_conversation(store, &key, &mut file).await?;
        receipt.add(&step);
        report(progress, &Event::Done(step))?;
    }
    receipt.sha256 = Some(file.complete().await?);
    Ok(receipt.end())
}

async fn export_conversation<W: AsyncWrite + Unpin>(
    store: &dyn HistoryStore,
    key: &ConversationKey,
    file: &mut ExportFile<W>,
) -> Result<TransferStep, TransferError> {
    let mut attempt = 1;
    loop {
        let mut reader = match Reader::begin(store, key).await {
            Ok(Some(reader)) => reader,
            Ok(None) => return Ok(TransferStep::new(key, TransferOutcome::Gone, Counts::one())),
            Err(error) => {
                let refusal = error.into_refusal(attempt)?;
                return Ok(TransferStep::new(
                    key,
                    TransferOutcome::Refused(refusal),
                    Counts::one(),
                ));
            }
        };
        file.begin_conversation(key, &reader).await?;
        let mut counts = Counts::one();
        let error = loop {
            match reader.next().await {
                Ok(Some(record)) => {
                    record.count(&mut counts);
                    file.put_record(&record).await?;
                }
                Ok(None) => {
                    file.end_conversation(&counts).await?;
                    let mut step = TransferStep::new(key, TransferOutcome::Exported, counts);
                    step.open_run = reader.open_run().map(|open| open.run);
                    return Ok(step);
                }
                Err(error) => break error,
            }
        };
        if matches!(error, ReadError::Changed) && attempt < ATTEMPTS {
            file.abandon("it was changed while it was read".to_owned()).await?;
            attempt += 1;
            continue;
        }
        let refusal = error.into_refusal(attempt)?;
        file.abandon(refusal.to_string()).await?;
        return Ok(TransferStep::new(key, TransferOutcome::Refused(refusal), Counts::one()));
    }
}
