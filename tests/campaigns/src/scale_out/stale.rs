//! Tests a stale writer, which expects a revision that the promoted server has lost. A second
//! writer has since appended as many messages as were lost. The incarnation of a conversation is a
//! random number in each revision.

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
    /// The last revision that its writer received.
    revision: Revision,
    /// The number of writes that will be lost.
    lost_writes: usize,
}

impl Stale {
    /// Begins the conversation with a write that the replica receives.
    pub(super) async fn begin(
        store: &impl HistoryStore,
        key: ConversationKey,
    ) -> Result<Self, Failure> {
        let mut stale = Self { key, revision: Revision::ABSENT, lost_writes: 0 };
        stale.revision = stale.write(store, "first").await?;
        Ok(stale)
    }

    /// Appends writes that the replica does not receive.
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

    /// In the role of another writer, appends as many writes to the promoted server as were lost.
    /// Then appends in the role of the stale writer. The server must refuse this append.
    ///
    /// Revisions count messages. After the other writer has appended as many messages as were lost,
    /// the sequence numbers match again. Only a new incarnation then distinguishes the two
    /// conversations, so the incarnations must be renewed after a failover.
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

/// Gives a conversation a new incarnation without any other change.
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
