//! A store of any kind.

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use tower_chat::store::{self, HistoryStore};

/// A store of any kind, in a type that the layers accept.
#[derive(Clone)]
pub(crate) struct SharedStore(Arc<dyn HistoryStore>);

impl SharedStore {
    pub(crate) fn new(store: impl HistoryStore) -> Self {
        Self(Arc::new(store))
    }
}

impl fmt::Debug for SharedStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SharedStore")
    }
}

#[async_trait]
impl store::StoreWrapper for SharedStore {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &Self::Inner {
        &*self.0
    }
}
