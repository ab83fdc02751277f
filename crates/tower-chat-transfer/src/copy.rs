//! From a store to another.

use tower_chat_core::{ConversationKey, store::HistoryStore};

use crate::{
    Counts, Event, Operation, Outcome, Progress, Receipt, Refusal, Selection, Step, TransferError,
    export::ATTEMPTS,
    progress::tell,
    reader::{ReadError, Reader},
    selection::Keys,
    writer::Writer,
};

/// Copies conversations from a store to another, a page of messages in memory at a time.
///
/// It can be repeated: a conversation that the target has already is compared, and left as it is; of
/// one that the target has the beginning of, the rest is written. So a copy whose future was dropped,
/// or failed, goes on when it is called again, from the first conversation or
/// [after](Selection::after) the last that was done. Any other conversation under the same key is
/// refused, and nothing is written to it.
///
/// A conversation becomes visible at the target as it is written, cut at a write: a write has messages
/// of one run, and only a single run could be staged. The [crate's documentation](crate) says what
/// is preserved.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::{
///     ConversationKey, MemoryStore,
///     store::HistoryStore,
///     transfer::{OutcomeKind, Selection, copy},
/// };
/// # use tower_chat::{Message, MessageId, RunId, store::{Revision, author::Write}};
/// # let old = MemoryStore::new();
/// # let key = ConversationKey::new("alice", "support");
/// # let id = MessageId { run: RunId::new(), index: 0 };
/// # let write = Write::new(key.clone(), id, Revision::ABSENT, [Message::user("hi").into()]);
/// # old.append(old.reserve().await?, vec![write]).await?;
/// let new = MemoryStore::new();
/// let receipt = copy(&old, &new, &Selection::scope("alice"), &mut |_event| Ok(())).await?;
/// assert_eq!(receipt.total(OutcomeKind::Written).conversations, 1);
/// assert_eq!(new.load(&key).await?.messages, old.load(&key).await?.messages);
/// # Ok::<(), tower_chat::BoxError>(())
/// # }).unwrap().unwrap();
/// ```
///
/// # Errors
///
/// If a store fails, or the callback does.
pub async fn copy(
    from: &dyn HistoryStore,
    to: &dyn HistoryStore,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<Receipt, TransferError> {
    let mut receipt = Receipt::begin(Operation::Copy, selection.clone());
    let conversations = Keys::new(from, selection).count().await?;
    tell(progress, &Event::Total { conversations })?;
    let mut keys = Keys::new(from, selection);
    while let Some(key) = keys.next().await? {
        tell(progress, &Event::Begins { key: key.clone(), counts: Counts::default() })?;
        let step = copy_conversation(from, to, &key).await?;
        receipt.add(&step);
        tell(progress, &Event::Done(step))?;
    }
    Ok(receipt.end())
}

async fn copy_conversation(
    from: &dyn HistoryStore,
    to: &dyn HistoryStore,
    key: &ConversationKey,
) -> Result<Step, TransferError> {
    let mut attempt = 1;
    loop {
        let error = match Reader::begin(from, key).await {
            Ok(Some(reader)) => match copy_records(reader, to, key).await {
                Ok(step) => return Ok(step),
                Err(error) => error,
            },
            Ok(None) => return Ok(Step::new(key, Outcome::Gone, Counts::one())),
            Err(error) => error,
        };
        if matches!(error, ReadError::Changed) && attempt < ATTEMPTS {
            attempt += 1;
            continue;
        }
        let refusal: Refusal = error.into_refusal(attempt)?;
        return Ok(Step::new(key, Outcome::Refused(refusal), Counts::one()));
    }
}

async fn copy_records(
    mut reader: Reader<'_>,
    to: &dyn HistoryStore,
    key: &ConversationKey,
) -> Result<Step, ReadError> {
    let mut writer = Writer::begin(to, key, reader.beginning()).await?;
    while let Some(record) = reader.next().await? {
        writer.take(record).await?;
    }
    Ok(writer.end().await?)
}

impl From<TransferError> for ReadError {
    fn from(error: TransferError) -> Self {
        Self::Failed(error)
    }
}
