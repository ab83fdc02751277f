//! Implements `StoreFile` for the file of a SQLite store.

use async_trait::async_trait;
use tower_chat_core::store::StoreError;
use tower_chat_sqlite::SqliteStore;

use crate::target::{StoreFile, StrayRows};

#[async_trait]
impl StoreFile for SqliteStore {
    async fn damage(&self) -> Result<Vec<String>, StoreError> {
        self.check_integrity().await
    }

    async fn stray_rows(&self) -> Result<StrayRows, StoreError> {
        let found = Self::stray_rows(self).await?;
        Ok(StrayRows { messages: found.messages, tools: found.tools })
    }

    async fn remove_stray_tools(&self) -> Result<(), StoreError> {
        Self::remove_stray_tools(self).await.map(drop)
    }
}
