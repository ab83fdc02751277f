//! The capability of queries of the record of tool calls.

use async_trait::async_trait;

use super::Capability;
use crate::store::{HistoryStore, InvocationQuery, Invocations, StoreError, ToolTotals};

/// Queries of the record of tool calls in a scope, which are a [capability](Capability) of a store.
#[async_trait]
pub trait ToolCallQueries: Send + Sync {
    /// Returns the tool calls that match a query, in the order of conversation, message and index.
    /// Unreadable rows are returned separately. The store sends one request to its backend,
    /// regardless of the number of messages that the query names. If no call can match the query,
    /// the store sends no request.
    ///
    /// ```
    /// # futures_util::FutureExt::now_or_never(async {
    /// use tower_chat_core::{
    ///     ConversationKey, Message, ToolCall, ToolStatus,
    ///     store::{HistoryStore, InvocationQuery, ToolCallQueries},
    /// };
    /// # use tower_chat_core::{MemoryStore, MessageId, RunId};
    /// # use tower_chat_core::store::{Revision, SequencePosition, author::{ToolRecord, Write}};
    /// # let store = MemoryStore::new();
    /// # let key = ConversationKey::new("alice", "weather");
    /// # let asks = Message::tool_calls([ToolCall::new("call_1", "weather", r#"{"city": "Paris"}"#)]);
    /// # let row = ToolRecord::pending(SequencePosition { sequence: 1, index: 0 }, 0, "call_1", "weather");
    /// # let id = MessageId { run: RunId::new(), index: 0 };
    /// # let write = Write::new(key.clone(), id, Revision::ABSENT, [asks.into()]).with_tools(vec![row]);
    /// # store.append(store.reserve().await?, vec![write]).await?;
    /// let open = InvocationQuery::in_scope("alice").with_status(ToolStatus::Pending).with_limit(50);
    /// for (conversation, call) in store.invocations(&open).await?.found {
    ///     println!("{conversation}: {} with {}", call.name, call.arguments);
    ///     # assert_eq!((conversation, call.arguments.as_str()), (key.clone(), r#"{"city": "Paris"}"#));
    /// }
    /// # assert_eq!(store.invocations(&open).await?.found.len(), 1);
    /// # Ok::<(), tower_chat_core::BoxError>(())
    /// # }).unwrap().unwrap();
    /// ```
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError>;

    /// Counts the tool calls that match a query, for each tool, in the byte order of the tools'
    /// names. The limit of the query is ignored. Arguments and results are not read.
    ///
    /// # Errors
    ///
    /// If the store cannot be read.
    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError>;
}

/// Every operation fails with [`StoreError::MissingCapability`] if the store lacks the capability.
#[async_trait]
impl ToolCallQueries for dyn HistoryStore + '_ {
    async fn invocations(&self, query: &InvocationQuery) -> Result<Invocations, StoreError> {
        self.tool_calls().ok_or(Capability::ToolCallQueries)?.invocations(query).await
    }

    async fn tool_totals(&self, query: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        self.tool_calls().ok_or(Capability::ToolCallQueries)?.tool_totals(query).await
    }
}
