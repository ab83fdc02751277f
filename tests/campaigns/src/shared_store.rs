//! A store of any kind.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tower_chat::{ConversationKey, HistoryStore, store};

/// A store of any kind, in a type that the layers accept.
#[derive(Clone)]
pub(crate) struct SharedStore(Arc<dyn HistoryStore>);

impl SharedStore {
    pub(crate) fn new(store: impl HistoryStore) -> Self {
        Self(Arc::new(store))
    }

    pub(crate) fn as_dyn(&self) -> &dyn HistoryStore {
        &*self.0
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedStore")
    }
}

#[async_trait]
impl store::author::StoreWrapper for SharedStore {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &Self::Inner {
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
