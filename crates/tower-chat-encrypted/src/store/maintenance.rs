//! The rows of a conversation, opened, and their repair, sealed.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, MessageId, RunId,
    format::FormatError,
    store::{ConversationRows, Head, HistoryStore, Revision, Rewrite, StoreError, author::Write},
};

use super::{EncryptedStore, OPEN, SEAL};
use crate::{
    EncryptionError,
    error::reported,
    lives::SealedHead,
    seal::{Expected, Life},
};

impl<S: HistoryStore> EncryptedStore<S> {
    /// What does not open is reported in its row. A key that cannot be had is no damage: it fails the whole.
    pub(super) async fn opened_rows(
        &self,
        key: &ConversationKey,
        sealed: ConversationRows,
    ) -> Result<ConversationRows, EncryptionError> {
        let (head, [visible, _]) = self.opened_head(key, sealed.head).await?;
        let mut opener = self.opener(key, visible);
        let mut messages = Vec::with_capacity(sealed.messages.len());
        for (sequence, envelope) in sealed.messages {
            let opened = match envelope {
                Ok(envelope) => match opener.message(sequence, &envelope).await {
                    Ok(message) => Ok(Arc::new(message)),
                    Err(error @ EncryptionError::Key(_)) => return Err(error),
                    Err(error) => Err(FormatError::malformed(error)),
                },
                Err(error) => Err(error),
            };
            messages.push((sequence, opened));
        }
        let mut tools = Vec::with_capacity(sealed.tools.len());
        for (call, row) in sealed.tools {
            let opened = match row {
                Ok(row) => match opener.row(row).await {
                    Ok(row) => Ok(row),
                    Err(error @ EncryptionError::Key(_)) => return Err(error),
                    Err(error) => Err(error.to_string()),
                },
                Err(reason) => Err(reason),
            };
            tools.push((call, opened));
        }
        Ok(ConversationRows::new(head, messages, tools))
    }

    /// Seals what changes for the ids that the messages have inside.
    pub(super) async fn rewrite_sealed(&self, rewrite: Rewrite) -> Result<Revision, StoreError> {
        let key = &rewrite.key;
        let Some(rows) = self.inner.rows(key).await? else {
            return Err(rewrite.conflict(Revision::ABSENT, None));
        };
        rewrite.check(&rows.head)?;
        let fetched = self.keys.writing_key(key).await;
        fetched.map_err(EncryptionError::from).map_err(reported(SEAL))?;
        let head = self.sealed_head(key, &rows.head).await?;
        let sealed = self.sealed_rewrite(&rewrite, &rows, head.life)?;
        let revision = self.inner.rewrite(sealed).await?;
        self.lives.learn(key, (revision, rows.head.pruned), Some(&head), None);
        Ok(revision)
    }

    fn sealed_rewrite(
        &self,
        rewrite: &Rewrite,
        rows: &ConversationRows,
        life: Life,
    ) -> Result<Rewrite, StoreError> {
        let sealer = self.sealer(&rewrite.key, life).map_err(reported(SEAL))?;
        let mut sealed = Rewrite::new(rewrite.key.clone(), rewrite.expected);
        sealed.is_sealed = true;
        for (sequence, message) in &rewrite.messages {
            let found = rows.messages.iter().find(|(number, _)| number == sequence);
            let (_, found) = found.ok_or_else(|| rewrite.missing(*sequence))?;
            let found = found.as_ref().map_err(|source| StoreError::Undecodable {
                key: rewrite.key.clone(),
                sequence: *sequence,
                source: source.clone(),
            })?;
            let mut message = message.clone();
            message.id = found.id;
            let envelope = sealer.message(*sequence, &message).map_err(reported(SEAL))?;
            sealed.messages.push((*sequence, envelope));
        }
        let tools = rewrite.tools.iter().map(|row| sealer.row(row));
        sealed.tools = tools.collect::<Result<_, _>>().map_err(reported(SEAL))?;
        sealed.removed_tools.clone_from(&rewrite.removed_tools);
        Ok(sealed)
    }

    /// The sealed head. A conversation all of which is of the former format gets it now.
    async fn sealed_head(
        &self,
        key: &ConversationKey,
        head: &Head,
    ) -> Result<SealedHead, StoreError> {
        let mut opener = self.opener(key, Expected::Any);
        let found = opener.head(head.service_id.as_deref()).await.map_err(reported(OPEN))?;
        self.check_head(key, head, found.as_ref()).map_err(reported(OPEN))?;
        if let Some(found) = found {
            return Ok(found);
        }
        let run = RunId::new();
        let begun = SealedHead::begun(run, head);
        let change = self.sealer(key, run).and_then(|sealer| sealer.head(&begun));
        let change = change.map_err(reported(SEAL))?;
        let write = Write::new(key.clone(), MessageId { run, index: 0 }, head.revision, [])
            .with_service_id(change)
            .without_activity()
            .sealed();
        let slot = self.inner.reserve().await?;
        self.inner.append(slot, vec![write]).await.map_err(|error| error.source)?;
        Ok(begun)
    }
}
