//! How many messages may be missing at the beginning of a conversation.

use tower_chat_core::{
    ConversationKey, MessageId, RunId,
    store::{HistoryStore, StoreError, author::Write},
};

use super::{EncryptedStore, OPEN, SEAL};
use crate::{error::reported, seal::Expected};

impl<S: HistoryStore> EncryptedStore<S> {
    /// Says in the sealed head how many messages may be missing at the beginning; `None` stands for
    /// as many as are missing now. A conversation without a sealed head stays without.
    pub(super) async fn seal_pruned(
        &self,
        key: &ConversationKey,
        most: Option<u64>,
    ) -> Result<(), StoreError> {
        const ATTEMPTS: usize = 5;
        let mut conflict = None;
        for _attempt in 0..ATTEMPTS {
            let head = self.inner.head(key).await?;
            let mut opener = self.opener(key, Expected::Any);
            let sealed = opener.head(head.service_id.as_deref()).await.map_err(reported(OPEN))?;
            let Some(mut sealed) = sealed else { return Ok(()) };
            self.check_head(key, &head, Some(&sealed)).map_err(reported(OPEN))?;
            let pruned = (head.pruned, most.unwrap_or(head.pruned));
            if sealed.content.pruned == pruned {
                return Ok(());
            }
            sealed.content.pruned = pruned;
            let change = self.sealer(key, sealed.life).and_then(|sealer| sealer.head(&sealed));
            let change = change.map_err(reported(SEAL))?;
            let id = MessageId { run: RunId::new(), index: 0 };
            let write = Write::new(key.clone(), id, head.revision, [])
                .with_service_id(change)
                .without_activity()
                .sealed();
            let slot = self.inner.reserve().await?;
            match self.inner.append(slot, vec![write]).await.map_err(|error| error.source) {
                Ok(_) => {
                    let at = (head.revision, head.pruned);
                    self.lives.learn(key, at, Some(&sealed), None);
                    return Ok(());
                }
                Err(StoreError::Conflict(found)) => conflict = Some(StoreError::Conflict(found)),
                Err(error) => return Err(error),
            }
        }
        conflict.map_or(Ok(()), Err)
    }
}
