//! A store behind an `Arc<dyn HistoryStore>`.

use std::sync::Arc;

use tower_chat::store::{self, HistoryStore};

/// A store that is shared with the layers of a pipeline.
#[derive(Clone)]
pub(super) struct SharedStore(pub(super) Arc<dyn HistoryStore>);

impl store::StoreWrapper for SharedStore {
    type Inner = dyn HistoryStore;

    fn inner(&self) -> &dyn HistoryStore {
        &*self.0
    }
}
