//! Encrypts and authenticates (seals) single values, and verifies and decrypts (opens) them. The
//! life of a conversation is a random value that distinguishes the conversation from a deleted one
//! with the same key.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305,
    aead::{Aead, Payload},
};
use tower_chat_core::{ConversationKey, MessageId, RunId};

use crate::{EncryptionError, KeyProvider, SecretKey, chain::Digest};

/// The prefix of a sealed value. The prefix is followed by these data, separated by colons: the id
/// of the key, the life of the conversation, the id of the message, the sequence number of the
/// message, the index of the value in the message, and the nonce and the ciphertext together in
/// base64. The message id is `-` for a value that is not part of a message.
const PREFIX: &str = "tower-chat-3:";
/// The prefix of values of the second format. Messages of that format contain no digest of the
/// previous message, and the life is the id of the run that created the conversation.
const SECOND_PREFIX: &str = "tower-chat-2:";
/// The prefix of values of the first format, which contain neither a life nor a message id.
const FIRST_PREFIX: &str = "tower-chat-1:";
/// The number of bytes of a nonce.
const NONCE: usize = 24;

/// The position of a value: the sequence number of its message, from 1, and its index among the
/// values of the same column (kind of value).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Position {
    pub(crate) sequence: u64,
    pub(crate) index: u64,
}

/// The position at which a value was found. A part that is unknown is `None`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) sequence: Option<u64>,
    pub(crate) index: Option<u64>,
}

impl Found {
    /// Creates a position of which only the number of the message is known.
    pub(crate) fn in_message(sequence: u64) -> Self {
        Self { sequence: Some(sequence), index: None }
    }

    /// Creates a position of which only the conversation is known.
    pub(crate) fn somewhere() -> Self {
        Self { sequence: None, index: None }
    }
}

impl From<Position> for Found {
    fn from(position: Position) -> Self {
        Self { sequence: Some(position.sequence), index: Some(position.index) }
    }
}

/// Distinguishes a conversation from a deleted one with the same key.
pub(crate) type Life = RunId;

/// Creates a new life.
pub(crate) fn new_life() -> Result<Life, EncryptionError> {
    let mut life = [0; 16];
    getrandom::fill(&mut life).map_err(|_| EncryptionError::NoRandomNumbers)?;
    Ok(Life::from_bytes(life))
}

/// The format of a sealed value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// The value is bound to neither a life nor a message.
    First,
    /// The value is bound to a life and a message, but not to the message before it.
    Second,
    Third,
}

/// Seals values of one conversation.
pub(crate) struct Sealer {
    pub(crate) conversation: ConversationKey,
    pub(crate) id: Arc<str>,
    pub(crate) key: SecretKey,
    pub(crate) life: Life,
}

/// An opened value, with the position for which it was sealed.
pub(crate) struct Opened {
    pub(crate) text: String,
    pub(crate) position: Position,
    pub(crate) life: Option<Life>,
    pub(crate) format: Format,
}

/// The life and the formats that opened values must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// The first value that is opened may have any life, and all later values must have the same
    /// life.
    Any,
    Life(ExpectedLife),
    /// The conversation has no life yet. Every value must have the first format, which has no life.
    First,
}

/// The life that values must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ExpectedLife {
    pub(crate) life: Life,
    /// Messages up to this sequence number may have the first format.
    pub(crate) first_format: u64,
    /// Messages up to this sequence number may have the second format. `None` if no message has the
    /// third format.
    pub(crate) second_format: Option<u64>,
    /// The digest of the final message of the newest run that was committed by a write without
    /// messages. Only this digest shows that the run is committed, because the message itself is
    /// still marked as staged (not committed).
    pub(crate) committed: Option<Digest>,
}

impl Sealer {
    pub(crate) fn seal(
        &self,
        at: Position,
        message: Option<MessageId>,
        column: &str,
        value: &str,
    ) -> Result<String, EncryptionError> {
        check_name(&self.id)?;
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| EncryptionError::NoRandomNumbers)?;
        let bound = Some((self.life, message));
        let associated =
            authenticated(&self.conversation, &self.id, at, bound, Format::Third, column);
        let payload = Payload { msg: value.as_bytes(), aad: &associated };
        let cipher = XChaCha20Poly1305::new(self.key.as_bytes().into());
        let sealed = cipher.encrypt((&nonce).into(), payload);
        let Ok(sealed) = sealed else { return Err(self.not_sealed(at, column)) };
        let message = message.map_or_else(|| NO_MESSAGE.to_owned(), |message| message.to_string());
        let (id, life, Position { sequence, index }) = (&self.id, self.life, at);
        let mut text = format!("{PREFIX}{id}:{life}:{message}:{sequence}:{index}:");
        STANDARD_NO_PAD.encode_string([&nonce[..], &sealed].concat(), &mut text);
        Ok(text)
    }

    /// Returns the error for a value that cannot be sealed. The only cause is a size above 256 GiB.
    fn not_sealed(&self, at: Position, column: &str) -> EncryptionError {
        EncryptionError::NotSealed {
            key: self.conversation.clone(),
            sequence: at.sequence,
            column: column.to_owned(),
            reason: "it is too large",
        }
    }
}

/// Opens values of one conversation, with any of its keys.
pub(crate) struct Opener<'a> {
    conversation: &'a ConversationKey,
    provider: &'a dyn KeyProvider,
    keys: HashMap<String, SecretKey>,
    expected: Expected,
    accepts_former: bool,
}

impl<'a> Opener<'a> {
    pub(crate) fn new(
        conversation: &'a ConversationKey,
        provider: &'a dyn KeyProvider,
        expected: Expected,
    ) -> Self {
        Self { conversation, provider, keys: HashMap::new(), expected, accepts_former: true }
    }

    /// Sets whether values of a former format are accepted.
    pub(crate) fn accepting_former(mut self, accepts_former: bool) -> Self {
        self.accepts_former = accepts_former;
        self
    }

    /// Sets the required life and formats of the values that are opened from now on.
    pub(crate) fn expect(&mut self, expected: Expected) {
        self.expected = expected;
    }

    /// Returns the digest in [`ExpectedLife::committed`], if it is known.
    pub(crate) fn committed(&self) -> Option<Digest> {
        match self.expected {
            Expected::Life(expected) => expected.committed,
            Expected::Any | Expected::First => None,
        }
    }

    /// Returns whether a value in a message with this sequence number may have the first format.
    pub(crate) fn accepts_first_format(&self, sequence: u64) -> bool {
        self.accepts_former
            && match self.expected {
                Expected::Any | Expected::First => true,
                Expected::Life(expected) => sequence <= expected.first_format,
            }
    }

    /// Refuses, from now on, values of formats that are older than this one.
    pub(crate) fn refuse_before(&mut self, format: Format) {
        if let Expected::Life(expected) = &mut self.expected {
            match format {
                Format::First => {}
                Format::Second => expected.first_format = 0,
                Format::Third => (expected.first_format, expected.second_format) = (0, Some(0)),
            }
        }
    }

    /// Checks that a value has the required life and an accepted format.
    fn check_life(&mut self, parsed: &Sealed<'_>) -> Result<(), &'static str> {
        if parsed.format != Format::Third && !self.accepts_former {
            return Err("it has a former format");
        }
        let life = parsed.bound.map(|(life, _)| life);
        let sequence = parsed.position.sequence;
        let expected = match (self.expected, life) {
            (Expected::Any, Some(life)) => {
                // The formats are not limited, because a row of the record may have a later format
                // than the message with its call.
                self.expected = Expected::Life(ExpectedLife {
                    life,
                    first_format: u64::MAX,
                    second_format: Some(u64::MAX),
                    committed: None,
                });
                return Ok(());
            }
            (Expected::Any | Expected::First, None) => return Ok(()),
            (Expected::First, Some(_)) => return Err("the sealed head was removed"),
            (Expected::Life(expected), _) => expected,
        };
        if life.is_some_and(|life| life != expected.life) {
            return Err("it belongs to another incarnation of the conversation");
        }
        match parsed.format {
            Format::First if sequence <= expected.first_format => Ok(()),
            Format::Second if expected.second_format.is_none_or(|last| sequence <= last) => Ok(()),
            Format::First | Format::Second => Err("it has a former format"),
            Format::Third if expected.second_format.is_some() => Ok(()),
            Format::Third => Err("the sealed head was replaced by an older one"),
        }
    }

    /// Opens a value. Checks that the value was sealed for this column, and for the message and the
    /// position if they are known.
    pub(crate) async fn open(
        &mut self,
        found: Found,
        message: Option<MessageId>,
        column: &str,
        sealed: &str,
    ) -> Result<Opened, EncryptionError> {
        let parsed = Sealed::parse(sealed)
            .ok_or_else(|| self.not_sealed(found, column, "it is not encrypted, or is damaged"))?;
        let Position { sequence, index } = parsed.position;
        let is_elsewhere = found.sequence.is_some_and(|found| found != sequence)
            || found.index.is_some_and(|found| found != index);
        if is_elsewhere {
            return Err(EncryptionError::Moved {
                key: self.conversation.clone(),
                sequence: found.sequence.unwrap_or(sequence),
                found: sequence,
                column: column.to_owned(),
            });
        }
        self.check_life(&parsed).map_err(|reason| self.not_sealed(found, column, reason))?;
        let is_of_message = |own: Option<MessageId>| message.is_none() || own == message;
        if parsed.bound.is_some_and(|(_, own)| !is_of_message(own)) {
            return Err(self.not_sealed(found, column, "it belongs to a message with another id"));
        }
        if !self.keys.contains_key(parsed.id) {
            let key = self.provider.key(self.conversation, parsed.id).await?;
            self.keys.insert(parsed.id.to_owned(), key);
        }
        let Sealed { id, position, bound, format, .. } = &parsed;
        let associated = authenticated(self.conversation, id, *position, *bound, *format, column);
        let opened = self.keys.get(parsed.id).and_then(|key| {
            // The cipher is created where it is used, because moving a cipher would leave a copy of
            // its key in memory.
            let cipher = XChaCha20Poly1305::new(key.as_bytes().into());
            let (nonce, sealed) = parsed.bytes.split_first_chunk::<NONCE>()?;
            let payload = Payload { msg: sealed, aad: &associated };
            cipher.decrypt(nonce.into(), payload).ok()
        });
        let text = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| EncryptionError::NotOpened {
            key: self.conversation.clone(),
            sequence,
            column: column.to_owned(),
        })?;
        let life = parsed.bound.map(|(life, _)| life);
        Ok(Opened { text, position: parsed.position, life, format: parsed.format })
    }

    pub(crate) fn not_sealed(
        &self,
        found: Found,
        column: &str,
        reason: &'static str,
    ) -> EncryptionError {
        EncryptionError::NotSealed {
            key: self.conversation.clone(),
            sequence: found.sequence.unwrap_or_default(),
            column: column.to_owned(),
            reason,
        }
    }
}

struct Sealed<'a> {
    id: &'a str,
    position: Position,
    /// The life of the conversation, and the id of the message that contains the value. `None` in
    /// the first format.
    bound: Option<Bound>,
    format: Format,
    bytes: Vec<u8>,
}

type Bound = (Life, Option<MessageId>);

/// The text in place of the id of a message.
const NO_MESSAGE: &str = "-";

/// Returns whether a text is a sealed value of the second or the third format.
pub(crate) fn is_sealed(text: &str) -> bool {
    text.starts_with(PREFIX) || text.starts_with(SECOND_PREFIX)
}

impl<'a> Sealed<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let formats = [
            (PREFIX, Format::Third),
            (SECOND_PREFIX, Format::Second),
            (FIRST_PREFIX, Format::First),
        ];
        let (rest, format) = formats
            .into_iter()
            .find_map(|(prefix, format)| Some((text.strip_prefix(prefix)?, format)))?;
        let (rest, bytes) = rest.rsplit_once(':')?;
        let (rest, index) = rest.rsplit_once(':')?;
        let (rest, sequence) = rest.rsplit_once(':')?;
        let position = Position { sequence: sequence.parse().ok()?, index: index.parse().ok()? };
        let bytes = STANDARD_NO_PAD.decode(bytes).ok()?;
        if format == Format::First {
            return Some(Self { id: rest, position, bound: None, format, bytes });
        }
        let (rest, message) = rest.rsplit_once(':')?;
        let (id, life) = rest.rsplit_once(':')?;
        let message = match message {
            NO_MESSAGE => None,
            message => Some(message.parse().ok()?),
        };
        Some(Self { id, position, bound: Some((life.parse().ok()?, message)), format, bytes })
    }
}

/// Returns the data that are authenticated together with a value, which differ for any two
/// positions, lives, message ids, conversations, key ids, formats and columns.
fn authenticated(
    conversation: &ConversationKey,
    id: &str,
    at: Position,
    bound: Option<Bound>,
    format: Format,
    column: &str,
) -> Vec<u8> {
    let version: &[u8; 18] = match format {
        Format::First => b"tower-chat value 1",
        Format::Second => b"tower-chat value 2",
        Format::Third => b"tower-chat value 3",
    };
    let mut bytes = version.to_vec();
    bytes.extend(at.sequence.to_le_bytes());
    bytes.extend(at.index.to_le_bytes());
    if let Some((life, message)) = bound {
        bytes.extend(life.to_bytes());
        bytes.push(u8::from(message.is_some()));
        if let Some(message) = message {
            bytes.extend(message.run.to_bytes());
            bytes.extend(message.index.to_le_bytes());
        }
    }
    for text in [conversation.scope(), conversation.id(), id, column] {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    }
    bytes
}

pub(crate) fn check_name(id: &str) -> Result<(), EncryptionError> {
    if (1..=64).contains(&id.len()) {
        return Ok(());
    }
    Err(EncryptionError::KeyName { id: id.to_owned() })
}
