//! Importing conversations from a file to a store.

use std::io::SeekFrom;

use tokio::io::{AsyncBufRead, AsyncSeek, AsyncSeekExt};
use tower_chat_core::store::HistoryStore;

use crate::{
    Counts, Event, ExportContents, FileError, Operation, Progress, Receipt, Selection,
    TransferError,
    contents::{Entry, Lines},
    progress::report,
    writer::Writer,
};

/// Imports a file that [`export`](crate::export()) has written, with one line in memory at a time.
///
/// The import first reads and checks the whole file, and then reads the file again and writes the
/// conversations. Conversations that are not in the selection are not imported. An import can be
/// repeated: it compares each conversation with that of the store, as [`copy`](crate::copy()) does.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use std::io::Cursor;
/// use tower_chat::{MemoryStore, transfer::{ExportFile, OutcomeKind, Selection, export, import}};
/// # use tower_chat::{ConversationKey, Message, message::MessageId, run::RunId};
/// # use tower_chat::{HistoryStore, store::{Revision, author::Write}};
/// # let old = MemoryStore::new();
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let key = ConversationKey::new("alice", "support");
/// # let write = Write::new(key, id, Revision::ABSENT, [Message::user("hi").into()]);
/// # old.append(old.reserve().await?, vec![write]).await?;
/// # let (mut file, all) = (Vec::new(), Selection::everything());
/// # export(&old, &all, ExportFile::new(&mut file), &mut |_event| Ok(())).await?;
/// let new = MemoryStore::new();
/// // `file` has the bytes of an export; or a `BufReader` of a `tokio::fs::File`.
/// for expected in [OutcomeKind::Written, OutcomeKind::Unchanged] {
///     let receipt = import(&new, Cursor::new(&file), &all, &mut |_event| Ok(())).await?;
///     assert_eq!(receipt.total(expected).conversations, 1);
/// }
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
///
/// # Errors
///
/// Returns [`TransferError::File`] if a line of the file is damaged or missing. In this case the
/// import has written nothing. Returns another error if the file cannot be read, or if the store or
/// the callback fails.
pub async fn import<R: AsyncBufRead + AsyncSeek + Unpin + Send>(
    store: &dyn HistoryStore,
    mut file: R,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<Receipt, TransferError> {
    let mut receipt = Receipt::begin(Operation::Import, selection.clone());
    let contents = ExportContents::read(&mut file).await?;
    if !contents.is_complete() {
        return Err(FileError::Incomplete { line: contents.lines() }.into());
    }
    report(progress, &Event::Total { conversations: contents.conversations() })?;
    file.seek(SeekFrom::Start(0)).await.map_err(TransferError::reading)?;
    let mut lines = Lines::new(file);
    let mut writer: Option<Writer<'_>> = None;
    while let Some(entry) = lines.next().await? {
        match entry {
            Entry::Begins(key, beginning)
                if selection.contains(&key) && !contents.is_abandoned(lines.line) =>
            {
                report(progress, &Event::Begins { key: key.clone(), counts: Counts::default() })?;
                writer = Some(Writer::begin(store, &key, *beginning).await?);
            }
            Entry::Record(record) => {
                if let Some(writer) = &mut writer {
                    writer.take(record).await?;
                }
            }
            Entry::Ends(_) => {
                if let Some(writer) = writer.take() {
                    let step = writer.end().await?;
                    receipt.add(&step);
                    report(progress, &Event::Done(step))?;
                }
            }
            Entry::Begins(..) | Entry::Header | Entry::Abandoned | Entry::Complete => {}
        }
    }
    receipt.sha256 = Some(contents.sha256());
    Ok(receipt.end())
}
