//! Encrypts (seals) and decrypts (opens) the value that states which part of a conversation the
//! next run loads. The part consists of the leading messages and the messages after a gap.
//!
//! The inner store contains the positions of the part in plaintext, and the sealed value in place
//! of [`LoadFrom::applies_to`]. The sealed value contains the digests of the last leading message
//! and of the last skipped message. A digest covers a message and all messages before it. The
//! messages of the part therefore open only in the state of the conversation in which the value was
//! written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tower_chat_core::store::author::LoadFrom;

use crate::{
    EncryptionError,
    chain::Digest,
    digests::Digests,
    envelope::json,
    seal::{Found, Opener, Position, Sealer},
};

const COLUMN: &str = "load_from";

/// A value of the inner store, and its content.
#[derive(Debug, Clone)]
pub(crate) struct SealedRange {
    /// The value in the inner store.
    pub(crate) sealed: Arc<LoadFrom>,
    /// The plaintext value, as it was passed to the encrypted store.
    pub(crate) opened: Arc<LoadFrom>,
    pub(crate) ends: Option<Ends>,
}

/// The digests of the messages at both ends of the gap.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ends {
    /// The digest of the last leading message; `None` if there are no leading messages.
    pub(crate) leading: Option<Digest>,
    /// The digest of the last skipped message, which is the last message of the gap.
    pub(crate) after: Digest,
}

/// The content that is sealed.
#[derive(Serialize, Deserialize)]
struct Content {
    opened: LoadFrom,
    ends: Option<Ends>,
}

fn position(leading: u64, after: u64) -> Position {
    Position { sequence: after, index: leading }
}

impl Sealer {
    /// Seals a value for the inner store. The gap of the sealed value ends with the last skipped
    /// message whose digest is known. If there is no such message, or if the digest of the last
    /// leading message is unknown, the part is the whole conversation.
    pub(crate) fn range(
        &self,
        opened: &Arc<LoadFrom>,
        digests: &Digests,
        pruned: u64,
    ) -> Result<SealedRange, EncryptionError> {
        let leading = match opened.leading {
            last if last <= pruned => Some(None),
            last => digests.of(last).map(Some),
        };
        let start = digests.up_to(opened.after).filter(|(after, _)| *after >= opened.leading);
        let (leading, after, ends) = match leading.zip(start) {
            Some((leading, (after, digest))) => {
                (opened.leading, after, Some(Ends { leading, after: digest }))
            }
            None => (0, 0, None),
        };
        let content = Content { opened: LoadFrom::clone(opened), ends };
        let applies_to = self.seal(position(leading, after), None, COLUMN, &json(&content))?;
        let sealed = Arc::new(LoadFrom { leading, after, applies_to });
        Ok(SealedRange { sealed, opened: opened.clone(), ends })
    }
}

impl Opener<'_> {
    /// Opens a value of the inner store.
    pub(crate) async fn range(
        &mut self,
        sealed: &Arc<LoadFrom>,
    ) -> Result<SealedRange, EncryptionError> {
        let found = Found::from(position(sealed.leading, sealed.after));
        let text = self.open(found, None, COLUMN, &sealed.applies_to).await?.text;
        let Content { opened, ends } = self.parsed(found, COLUMN, &text)?;
        Ok(SealedRange { sealed: sealed.clone(), opened: Arc::new(opened), ends })
    }

    /// Checks the digest of the message before a gap.
    pub(crate) fn check_end_of_range(
        &self,
        sequence: u64,
        found: Option<Digest>,
        expected: Option<Digest>,
    ) -> Result<(), EncryptionError> {
        if found.is_some() && found == expected {
            return Ok(());
        }
        let reason = "it differs from the message for which the range was stored";
        Err(self.not_sealed(Found::in_message(sequence), COLUMN, reason))
    }
}
