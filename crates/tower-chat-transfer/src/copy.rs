//! Copying conversations from one store to another.

use tower_chat_core::{ConversationKey, store::HistoryStore};

use crate::{
    Counts, Event, Operation, Progress, Receipt, Selection, TransferError, TransferOutcome,
    TransferRefusal, TransferStep,
    export::ATTEMPTS,
    progress::report,
    reader::{ReadError, Reader},
    selection::Keys,
    writer::Writer,
};

/// Copies conversations from one store to another, with one page of messages in memory at a time.
///
/// A copy can be repeated, because it compares each conversation with the conversation of the
/// target that has the same key. If the target has the whole conversation, the copy writes nothing.
/// If the target has only the beginning of the conversation, or less data about its runs, the copy
/// writes the missing data. If the target has a different conversation, the copy refuses the
/// conversation and writes nothing of it. After a failure, or after its future was dropped, call
/// the function again, with the same selection or with the conversations [after](Selection::after)
/// the last finished one.
///
/// While a conversation is being written, readers of the target see the messages of the completed
/// writes. The [crate's documentation](crate) lists the preserved data.
///
/// ```
/// # futures_util::FutureExt::now_or_never(async {
/// use tower_chat::{
///     ConversationKey, HistoryStore, MemoryStore,
///     transfer::{OutcomeKind, Selection, copy},
/// };
/// # use tower_chat::{Message, message::MessageId, run::RunId, store::{Revision, author::Write}};
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
/// Returns an error if a store or the callback fails.
pub async fn copy(
    from: &dyn HistoryStore,
    to: &dyn HistoryStore,
    selection: &Selection,
    progress: Progress<'_>,
) -> Result<Receipt, TransferError> {
    let mut receipt = Receipt::begin(Operation::Copy, selection.clone());
    let conversations = Keys::new(from, selection).count().await?;
    report(progress, &Event::Total { conversations })?;
    let mut keys = Keys::new(from, selection);
    while let Some(key) = keys.next().await? {
        report(progress, &Event::Begins { key: key.clone(), counts: Counts::default() })?;
        let step = copy_conversation(from, to, &key).await?;
        receipt.add(&step);
        report(progress, &Event::Done(step))?;
    }
    Ok(receipt.end())
}

async fn copy_conversation(
    from: &dyn HistoryStore,
    to: &dyn HistoryStore,
    key: &ConversationKey,
) -> Result<TransferStep, TransferError> {
    let mut attempt = 1;
    loop {
        let error = match Reader::begin(from, key).await {
            Ok(Some(reader)) => match copy_records(reader, to, key).await {
                Ok(step) => return Ok(step),
                Err(error) => error,
            },
            Ok(None) => return Ok(TransferStep::new(key, TransferOutcome::Gone, Counts::one())),
            Err(error) => error,
        };
        if matches!(error, ReadError::Changed) && attempt < ATTEMPTS {
            attempt += 1;
            continue;
        }
        let refusal: TransferRefusal = error.into_refusal(attempt)?;
        return Ok(TransferStep::new(key, TransferOutcome::Refused(refusal), Counts::one()));
    }
}

async fn copy_records(
    mut reader: Reader<'_>,
    to: &dyn HistoryStore,
    key: &ConversationKey,
) -> Result<TransferStep, ReadError> {
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
