//! The stored form of a message: the run (16 bytes), the index in the run (4 bytes), and the JSON.

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    format::{self, FormatError},
    store::StoreError,
};

/// Returns the beginning of the stored form of a message: the run, and the index in the run.
pub(crate) fn name(id: MessageId) -> [u8; 20] {
    let mut name = [0; 20];
    let (run, index) = name.split_at_mut(16);
    run.copy_from_slice(&id.run.to_bytes());
    index.copy_from_slice(&id.index.to_be_bytes());
    name
}

/// Encodes a message.
pub(crate) fn write(id: MessageId, message: &Message) -> Vec<u8> {
    let json = format::encode(message);
    let mut stored = Vec::with_capacity(20 + json.len());
    stored.extend_from_slice(&name(id));
    stored.extend_from_slice(json.as_bytes());
    stored
}

/// Decodes a message.
pub(crate) fn read(stored: &[u8]) -> Result<Message, FormatError> {
    let malformed = FormatError::malformed;
    let (run, rest) =
        stored.split_first_chunk::<16>().ok_or_else(|| malformed("it is too short"))?;
    let (index, json) =
        rest.split_first_chunk::<4>().ok_or_else(|| malformed("it is too short"))?;
    let json = std::str::from_utf8(json).map_err(|_| malformed("it is not text"))?;
    let id = MessageId { run: RunId::from_bytes(*run), index: u32::from_be_bytes(*index) };
    if id.index > MessageId::LAST_INDEX {
        return Err(malformed("its index in its run is out of range"));
    }
    format::decode(json).map(|mut message| {
        message.id = Some(id);
        message
    })
}

/// Returns the error of a message that cannot be decoded.
pub(crate) fn undecodable(key: &ConversationKey, sequence: u64, source: FormatError) -> StoreError {
    StoreError::Undecodable { key: key.clone(), sequence, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_returned_with_its_id() {
        let id = MessageId { run: RunId::new(), index: 7 };
        let mut message = Message::user("hi \0 \u{e9}");
        message.id = Some(id);
        let stored = write(id, &message);
        assert!(stored.starts_with(&name(id)));
        assert_eq!(read(&stored).unwrap(), message);
        for cut in [0, 15, 19, 20, stored.len() - 1] {
            assert!(read(&stored[..cut]).is_err(), "{cut}");
        }
    }
}
