//! Encrypts (seals) and decrypts (opens) the texts of summaries. A summary replaces the first
//! messages of a conversation for the model.
//!
//! A text is authenticated with its conversation, with the range and the id of the summary, and
//! with the id of the last message that it covers. A text that was moved to another row does not
//! open. A text also does not open if the last covered message has another id.

use tower_chat_core::{
    ConversationKey, RunId,
    store::{HistoryStore, HistorySummary, StoreError},
};

use super::{EncryptedStore, OPEN};
use crate::{
    EncryptionError,
    error::{reported, unopened},
    seal::{Expected, Found, Position, Sealer},
};

const COLUMN: &str = "summary";
const SEAL: &str = "seal a summary";

fn position(summary: &HistorySummary) -> Position {
    Position { sequence: summary.covers_to, index: summary.id }
}

impl<S: HistoryStore> EncryptedStore<S> {
    pub(super) async fn sealed_history_summary(
        &self,
        key: &ConversationKey,
        summary: &HistorySummary,
    ) -> Result<HistorySummary, StoreError> {
        let fetched = self.keys.writing_key(key).await;
        let (id, secret) = fetched.map_err(EncryptionError::from).map_err(reported(SEAL))?;
        // Like a description, a summary is sealed with a fixed life instead of the life (the random
        // value) of its conversation.
        let life = RunId::from_bytes([0; 16]);
        let sealer = Sealer { conversation: key.clone(), id, key: secret, life };
        let text = sealer.seal(position(summary), Some(summary.last), COLUMN, &summary.text);
        let mut sealed = summary.clone();
        sealed.text = text.map_err(reported(SEAL))?.into();
        sealed.is_sealed = true;
        Ok(sealed)
    }

    pub(super) async fn opened_history_summary(
        &self,
        key: &ConversationKey,
        mut summary: HistorySummary,
    ) -> Result<HistorySummary, StoreError> {
        // No summary has a former format.
        let mut opener = self.opener(key, Expected::Any).accepting_former(false);
        let found = Found::from(position(&summary));
        let opened = opener.open(found, Some(summary.last), COLUMN, &summary.text).await;
        summary.text = opened.map_err(unopened(key, OPEN))?.text.into();
        Ok(summary)
    }
}
