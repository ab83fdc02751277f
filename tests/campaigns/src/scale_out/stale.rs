//! A writer that knows more of a conversation than the server that has taken over, and a second writer
//! that has filled the gap.

use std::sync::Arc;

use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{HistoryStore, Revision, Rewrite, StoreError, author::Write},
};

use super::{Plant, Search, append, failed};
use crate::Failure;

/// A conversation of which the end is lost.
pub(super) struct Stale {
    key: ConversationKey,
    /// What its writer was told last.
    revision: Revision,
    /// How many writes will be lost.
    ahead: usize,
}

impl Stale {
    /// Begins the conversation, which the replica gets too.
    pub(super) async fn begin(
        store: &impl HistoryStore,
        key: ConversationKey,
    ) -> Result<Self, Failure> {
        let mut stale = Self { key, revision: Revision::ABSENT, ahead: 0 };
        stale.revision = stale.write(store, "first").await?;
        Ok(stale)
    }

    /// Writes what the replica does not get.
    pub(super) async fn write_ahead(&mut self, store: &impl HistoryStore) -> Result<(), Failure> {
        for text in ["lost one", "lost two"] {
            self.revision = self.write(store, text).await?;
            self.ahead += 1;
        }
        Ok(())
    }

    async fn write(&self, store: &impl HistoryStore, text: &str) -> Result<Revision, Failure> {
        let written = append(store, write(&self.key, self.revision, text)).await;
        written.map_err(|error| failed("a writer appends", error))
    }

    /// Lets another writer add, on the server that has taken over, as many writes as were lost, and
    /// then the stale one go on. It must be refused.
    ///
    /// Revisions count messages, so where the numbers are the same again only another incarnation
    /// tells the conversations apart. Renewing it is what has to be done after a failover.
    pub(super) async fn go_on(
        &self,
        search: Search,
        store: &impl HistoryStore,
    ) -> Result<(), Failure> {
        let head =
            |what| async move { store.head(&self.key).await.map_err(|error| failed(what, error)) };
        let mut revision = head("the conversation is looked at").await?.revision;
        if revision == self.revision {
            return Err(Failure::cannot_run("the replica has what it should not have got"));
        }
        if search.plant != Some(Plant::NoRenewal) {
            renew(store, &self.key).await?;
            revision = head("the conversation is looked at again").await?.revision;
        }
        for number in 0..self.ahead {
            let text = format!("of the other writer {number}");
            let written = append(store, write(&self.key, revision, &text)).await;
            revision = written.map_err(|error| failed("another writer appends", error))?;
        }
        match append(store, write(&self.key, self.revision, "after a gap")).await {
            Err(StoreError::Conflict(_)) => Ok(()),
            Err(error) => Err(failed("the stale writer goes on", error)),
            Ok(_) => Err(search.found("a stale writer was accepted after a failover".to_owned())),
        }
    }
}

/// Gives a conversation another incarnation, and changes nothing else.
async fn renew(store: &impl HistoryStore, key: &ConversationKey) -> Result<(), Failure> {
    let renewing = async {
        let head = store.head(key).await?;
        store.rewrite(Rewrite::new(key.clone(), head.revision)).await
    };
    let renewed = renewing.await;
    renewed.map(drop).map_err(|error| failed("the incarnation is renewed", error))
}

pub(super) fn write(key: &ConversationKey, expected: Revision, text: &str) -> Write {
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, [Arc::new(Message::user(text))])
}
