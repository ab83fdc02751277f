//! Tests a stale writer: it expects a revision that was lost in a failover. A second writer has
//! since appended as many messages as were lost.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{Capability, HistoryStore, Revision, Rewrite, StoreError, author::Write},
};

use super::{Plant, Search, append, failed};
use crate::Failure;

/// A conversation whose end is lost in the failover.
pub(super) struct Stale {
    key: ConversationKey,
    revision: Revision,
    /// The number of writes that will be lost.
    lost_writes: usize,
}

impl Stale {
    pub(super) async fn begin(
        store: &impl HistoryStore,
        key: ConversationKey,
    ) -> Result<Self, Failure> {
        let mut stale = Self { key, revision: Revision::ABSENT, lost_writes: 0 };
        stale.revision = stale.write(store, "first").await?;
        Ok(stale)
    }

    pub(super) async fn add_lost_writes(
        &mut self,
        store: &impl HistoryStore,
    ) -> Result<(), Failure> {
        for text in ["lost one", "lost two"] {
            self.revision = self.write(store, text).await?;
            self.lost_writes += 1;
        }
        Ok(())
    }

    async fn write(&self, store: &impl HistoryStore, text: &str) -> Result<Revision, Failure> {
        let written = append(store, write(&self.key, self.revision, text)).await;
        written.map_err(|error| failed("append as the first writer", error))
    }

    /// As another writer, appends as many writes to the promoted server as were lost. Then appends
    /// as the stale writer, which the server must refuse.
    ///
    /// The conversation then has the same number of messages as before the failover. The server can
    /// refuse the stale writer only because of a new incarnation, a random number in each revision.
    /// Incarnations must therefore be renewed after a failover.
    pub(super) async fn assert_refused(
        &self,
        search: Search,
        store: &impl HistoryStore,
    ) -> Result<(), Failure> {
        let head =
            |what| async move { store.head(&self.key).await.map_err(|error| failed(what, error)) };
        let mut revision = head("read the head").await?.revision;
        if revision == self.revision {
            return Err(Failure::cannot_run(
                "the replica has received the writes that were to be lost",
            ));
        }
        if search.plant != Some(Plant::NoRenewal) {
            renew(store, &self.key).await?;
            revision = head("read the head after the renewal").await?.revision;
        }
        for number in 0..self.lost_writes {
            let text = format!("of the other writer {number}");
            let written = append(store, write(&self.key, revision, &text)).await;
            revision = written.map_err(|error| failed("append as another writer", error))?;
        }
        match append(store, write(&self.key, self.revision, "after a gap")).await {
            Err(StoreError::Conflict(_)) => Ok(()),
            Err(error) => Err(failed("append as the stale writer", error)),
            Ok(_) => Err(search.found("a stale writer was accepted after a failover".to_owned())),
        }
    }
}

async fn renew(store: &impl HistoryStore, key: &ConversationKey) -> Result<(), Failure> {
    let renewing = async {
        let head = store.head(key).await?;
        let maintenance = store.maintenance().ok_or(Capability::Maintenance)?;
        maintenance.rewrite(Rewrite::new(key.clone(), head.revision)).await
    };
    let renewed = renewing.await;
    renewed.map(drop).map_err(|error| failed("renew the incarnation", error))
}

pub(super) fn write(key: &ConversationKey, expected: Revision, text: &str) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, [Arc::new(Message::user(text))])
}
