//! Decoding of stored messages.

use tokio_postgres::Row;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    format::{self, FormatError},
    store::StoreError,
};

/// Decodes a row. The columns from `first` on are the run, the index in the run, and the body.
pub(crate) fn read(row: &Row, first: usize) -> Result<Message, FormatError> {
    let malformed = FormatError::malformed;
    let run: &[u8] =
        row.try_get(first).map_err(|_| malformed("its run id is not of type bytea"))?;
    let run = <[u8; 16]>::try_from(run).map_err(|_| malformed("its run id is not 16 bytes"))?;
    let index: i64 = row.try_get(first + 1).map_err(|_| malformed("it has no index in its run"))?;
    let index = u32::try_from(index).ok().filter(|index| *index <= MessageId::LAST_INDEX);
    let index = index.ok_or_else(|| malformed("its index in its run is out of range"))?;
    let body: &str = row.try_get(first + 2).map_err(|_| malformed("it is not text"))?;
    format::decode(body).map(|mut message| {
        message.id = Some(MessageId { run: RunId::from_bytes(run), index });
        message
    })
}

/// Returns the error of a message that cannot be decoded.
pub(crate) fn undecodable(key: &ConversationKey, sequence: u64, source: FormatError) -> StoreError {
    StoreError::Undecodable { key: key.clone(), sequence, source }
}
