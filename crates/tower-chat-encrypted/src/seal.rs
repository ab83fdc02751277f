//! One value, sealed for its place.

use std::{collections::HashMap, sync::Arc};

use base64::{Engine, engine::general_purpose::STANDARD_NO_PAD};
use chacha20poly1305::{
    KeyInit, XChaCha20Poly1305, XNonce,
    aead::{Aead, Payload},
};
use tower_chat_core::ConversationKey;

use crate::{EncryptionError, KeyProvider, SecretKey};

/// How a sealed value begins. The name of its key, the number of its message, its place there, and
/// nonce and ciphertext in base64 follow, with colons between.
const PREFIX: &str = "tower-chat-1:";
const NONCE: usize = 24;

/// Where a value belongs: the number of its message, from 1, and its place among those of its column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) sequence: u64,
    pub(crate) index: u64,
}

/// What is known of where a value was found.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Found {
    pub(crate) sequence: Option<u64>,
    pub(crate) index: Option<u64>,
}

impl Found {
    /// Its message alone is known.
    pub(crate) fn in_message(sequence: u64) -> Self {
        Self { sequence: Some(sequence), index: None }
    }

    /// Nothing but its conversation is known.
    pub(crate) fn somewhere() -> Self {
        Self { sequence: None, index: None }
    }
}

impl From<Place> for Found {
    fn from(place: Place) -> Self {
        Self { sequence: Some(place.sequence), index: Some(place.index) }
    }
}

/// Seals values of one conversation.
pub(crate) struct Sealer {
    pub(crate) conversation: ConversationKey,
    pub(crate) id: Arc<str>,
    pub(crate) key: SecretKey,
}

impl Sealer {
    pub(crate) fn seal(
        &self,
        at: Place,
        column: &str,
        value: &str,
    ) -> Result<String, EncryptionError> {
        check_name(&self.id)?;
        let mut nonce = [0; NONCE];
        getrandom::fill(&mut nonce).map_err(|_| EncryptionError::NoRandomNumbers)?;
        let place = authenticated(&self.conversation, &self.id, at, column);
        let payload = Payload { msg: value.as_bytes(), aad: &place };
        let cipher = XChaCha20Poly1305::new(self.key.as_bytes().into());
        let sealed = cipher.encrypt(XNonce::from_slice(&nonce), payload);
        let Ok(sealed) = sealed else { return Err(self.not_sealed(at, column)) };
        let mut text = format!("{PREFIX}{}:{}:{}:", self.id, at.sequence, at.index);
        STANDARD_NO_PAD.encode_string([&nonce[..], &sealed].concat(), &mut text);
        Ok(text)
    }

    /// Only more than 256 GiB cannot be sealed.
    fn not_sealed(&self, at: Place, column: &str) -> EncryptionError {
        EncryptionError::NotSealed {
            key: self.conversation.clone(),
            sequence: at.sequence,
            column: column.to_owned(),
            reason: "it is too large",
        }
    }
}

/// Opens values of one conversation, whatever keys they were sealed with.
pub(crate) struct Opener<'a> {
    conversation: &'a ConversationKey,
    provider: &'a dyn KeyProvider,
    keys: HashMap<String, SecretKey>,
}

impl<'a> Opener<'a> {
    pub(crate) fn new(conversation: &'a ConversationKey, provider: &'a dyn KeyProvider) -> Self {
        Self { conversation, provider, keys: HashMap::new() }
    }

    /// Opens what was sealed for this column of the place where it was found, as far as that is
    /// known.
    pub(crate) async fn open(
        &mut self,
        found: Found,
        column: &str,
        sealed: &str,
    ) -> Result<String, EncryptionError> {
        let parsed = Sealed::parse(sealed)
            .ok_or_else(|| self.not_sealed(found, column, "it is in clear, or damaged"))?;
        let Place { sequence, index } = parsed.place;
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
        if !self.keys.contains_key(parsed.id) {
            let key = self.provider.key(self.conversation, parsed.id).await?;
            self.keys.insert(parsed.id.to_owned(), key);
        }
        let place = authenticated(self.conversation, parsed.id, parsed.place, column);
        let opened = self.keys.get(parsed.id).and_then(|key| {
            // Made where it is used: a cipher that is moved leaves a copy of its key behind.
            let cipher = XChaCha20Poly1305::new(key.as_bytes().into());
            let (nonce, sealed) = parsed.bytes.split_at_checked(NONCE)?;
            let payload = Payload { msg: sealed, aad: &place };
            cipher.decrypt(XNonce::from_slice(nonce), payload).ok()
        });
        let text = opened.and_then(|bytes| String::from_utf8(bytes).ok());
        text.ok_or_else(|| EncryptionError::NotOpened {
            key: self.conversation.clone(),
            sequence,
            column: column.to_owned(),
        })
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
    place: Place,
    bytes: Vec<u8>,
}

impl<'a> Sealed<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (rest, bytes) = text.strip_prefix(PREFIX)?.rsplit_once(':')?;
        let (rest, index) = rest.rsplit_once(':')?;
        let (id, sequence) = rest.rsplit_once(':')?;
        let place = Place { sequence: sequence.parse().ok()?, index: index.parse().ok()? };
        Some(Self { id, place, bytes: STANDARD_NO_PAD.decode(bytes).ok()? })
    }
}

/// What is authenticated with a value: where it belongs, without ambiguity.
fn authenticated(conversation: &ConversationKey, id: &str, at: Place, column: &str) -> Vec<u8> {
    let mut place = b"tower-chat value 1".to_vec();
    place.extend(at.sequence.to_le_bytes());
    place.extend(at.index.to_le_bytes());
    for text in [conversation.scope(), conversation.id(), id, column] {
        place.extend((text.len() as u64).to_le_bytes());
        place.extend(text.as_bytes());
    }
    place
}

pub(crate) fn check_name(id: &str) -> Result<(), EncryptionError> {
    if (1..=64).contains(&id.len()) {
        return Ok(());
    }
    Err(EncryptionError::KeyName { id: id.to_owned() })
}
