//! [`SharedStore`], a store that delegates to an `Arc<dyn HistoryStore>`.

use std::sync::Arc;

use async_trait::async_trait;
use tower_chat::{ConversationKey, HistoryStore, store};

/// A store that a chat shares with the layers of its pipeline.
#[derive(Clone)]
pub(super) struct SharedStore(pub(super) Arc<dyn HistoryStore>);

#[async_trait]
impl store::author::StoreWrapper for SharedStore {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &dyn HistoryStore {
        &*self.0
    }

    async fn load_from(
        &self,
        key: &ConversationKey,
        from: &store::author::LoadFrom,
    ) -> Result<store::History, store::StoreError> {
        self.inner().load_from(key, from).await
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.inner().journal()
    }

    fn directory(&self) -> Option<&dyn store::Directory> {
        self.inner().directory()
    }

    fn tool_calls(&self) -> Option<&dyn store::ToolCallQueries> {
        self.inner().tool_calls()
    }

    fn maintenance(&self) -> Option<&dyn store::Maintenance> {
        self.inner().maintenance()
    }

    fn summaries(&self) -> Option<&dyn store::Summaries> {
        self.inner().summaries()
    }
}
