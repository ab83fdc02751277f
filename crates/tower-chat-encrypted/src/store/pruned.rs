//! Stores, in the sealed (encrypted) head of a conversation, the number of messages that may be
//! missing at the beginning.

use tower_chat_core::{
    ConversationKey, MessageId, RunId,
    store::{Head, HistoryStore, StoreError, author::Write},
};

use super::{EncryptedStore, OPEN, SEAL, chain_from};
use crate::{
    EncryptionError,
    error::{reported, unopened},
    seal::Expected,
    sealing_cache::SealedHead,
};

impl<S: HistoryStore> EncryptedStore<S> {
    /// Accepts that the first messages of a conversation are missing, because they were pruned
    /// (deleted as the oldest runs) without this store, for example by a program without the keys.
    /// Returns whether messages were missing.
    ///
    /// Every writer of the inner store can delete messages. Therefore a person should decide
    /// whether to call this method after an [`EncryptionError::CutOff`].
    ///
    /// # Errors
    ///
    /// [`StoreError::UnderWay`], if a run of the conversation is not committed yet; an error if the
    /// remaining messages do not open, or the store cannot be written.
    pub async fn accept_missing_beginning(
        &self,
        key: &ConversationKey,
    ) -> Result<bool, StoreError> {
        let history = self.inner.load(key).await?;
        let head = history.head;
        if let Some(open) = head.open_run {
            return Err(StoreError::UnderWay { key: key.clone(), run: open.run });
        }
        let mut opener = self.opener(key, Expected::Any);
        let sealed = opener.head(head.service_id.as_deref()).await.map_err(unopened(key, OPEN))?;
        let Some(mut sealed) = sealed.filter(|it| it.content.pruned.1 < head.pruned) else {
            return Ok(false);
        };
        let expected = SealedHead::expected(Some(&sealed));
        let mut chain = chain_from(expected, head.pruned.saturating_add(1));
        let messages = history.messages.iter();
        let opened = self.opener(key, expected).messages(head.pruned, &mut chain, messages).await;
        opened.map_err(unopened(key, OPEN))?;
        let fetched = self.keys.writing_key(key).await;
        fetched.map_err(EncryptionError::from).map_err(reported(SEAL))?;
        sealed.content.pruned = (head.pruned, head.pruned);
        self.put_head(key, &head, &sealed).await?;
        Ok(true)
    }

    /// Stores a sealed head.
    pub(super) async fn put_head(
        &self,
        key: &ConversationKey,
        head: &Head,
        sealed: &SealedHead,
    ) -> Result<(), StoreError> {
        let change = self.sealer(key, sealed.life).and_then(|sealer| sealer.head(sealed));
        let change = change.map_err(reported(SEAL))?;
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key.clone(), id, head.revision, [])
            .with_service_id(change)
            .without_activity()
            .sealed();
        let slot = self.inner.reserve().await?;
        self.inner.append(slot, vec![write]).await.map_err(|error| error.source)?;
        self.sealing_cache.learn(key, head, Some(sealed), None, self.sealing_cache.now());
        Ok(())
    }

    /// Stores, in the sealed head, that up to `max` messages may be missing at the beginning. If
    /// `max` is `None`, stores the number of messages that are missing now. Does not create a
    /// sealed head.
    pub(super) async fn seal_pruned(
        &self,
        key: &ConversationKey,
        max: Option<u64>,
    ) -> Result<(), StoreError> {
        const ATTEMPTS: usize = 5;
        let mut conflict = None;
        for _attempt in 0..ATTEMPTS {
            let head = self.inner.head(key).await?;
            let mut opener = self.opener(key, Expected::Any);
            let sealed =
                opener.head(head.service_id.as_deref()).await.map_err(unopened(key, OPEN))?;
            let Some(mut sealed) = sealed else { return Ok(()) };
            self.check_head(key, &head, Some(&sealed)).map_err(unopened(key, OPEN))?;
            let pruned = (head.pruned, max.unwrap_or(head.pruned));
            if sealed.content.pruned == pruned {
                return Ok(());
            }
            sealed.content.pruned = pruned;
            match self.put_head(key, &head, &sealed).await {
                Err(StoreError::Conflict(found)) => conflict = Some(StoreError::Conflict(found)),
                done => return done,
            }
        }
        conflict.map_or(Ok(()), Err)
    }
}
