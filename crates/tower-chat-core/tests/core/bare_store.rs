//! Tests of a store without capabilities, and of wrappers of such a store.

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey, MemoryStore, MessageId, RunId,
    store::{
        self, CallSelection, Capability, ConversationQuery, Description, Directory, Head, History,
        HistoryStore, HistorySummary, InvocationQuery, Invocations, Journal, Keep, Maintenance,
        Revision, Rewrite, StoreError, StoreHandle, Summaries, ToolCallQueries, UsageGrouping,
        UsageQuery,
        author::{Slot, Ticket, Write},
    },
    telemetry::TracedStore,
};

/// A store with only the required methods.
struct Bare(StoreHandle);

#[async_trait]
impl HistoryStore for Bare {
    fn handle(&self) -> &StoreHandle {
        &self.0
    }

    async fn head(&self, _: &ConversationKey) -> Result<Head, StoreError> {
        Err(StoreError::Closed)
    }

    async fn load(&self, _: &ConversationKey) -> Result<History, StoreError> {
        Err(StoreError::Closed)
    }

    async fn calls(
        &self,
        _: &ConversationKey,
        _: &CallSelection,
    ) -> Result<Invocations, StoreError> {
        Err(StoreError::Closed)
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        Err(StoreError::Closed)
    }

    fn append(&self, _: Slot, _: Vec<Write>) -> Ticket {
        unreachable!("there is no slot")
    }

    async fn delete(&self, _: &ConversationKey) -> Result<bool, StoreError> {
        Err(StoreError::Closed)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    async fn close(&self) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }
}

/// Returns the capability that an operation reports as missing.
fn missing<T>(answer: Result<T, StoreError>) -> Capability {
    match answer {
        Err(StoreError::MissingCapability { capability }) => capability,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the operation succeeded"),
    }
}

/// Checks that a store offers no capability, and that every operation of a capability reports the
/// missing capability.
async fn assert_has_no_capability(store: &dyn HistoryStore) {
    assert!(store.journal().is_none() && store.directory().is_none());
    assert!(store.tool_calls().is_none() && store.maintenance().is_none());
    assert!(store.summaries().is_none());
    let key = &ConversationKey::new("alice", "bare");
    let (all, calls) = (ConversationQuery::in_all_scopes(), InvocationQuery::in_scope("alice"));
    let usage = UsageQuery::of(key, UsageGrouping::Run);
    let description = Description::new();
    let of_journal =
        [missing(store.open_run(key).await), missing(store.open_runs("alice", None, 1).await)];
    assert_eq!(of_journal, [Capability::Journal; 2]);
    let of_directory = [
        missing(store.list("alice", None, 1).await),
        missing(store.summary(key).await),
        missing(store.conversations(&all).await),
        missing(store.usage(&usage).await),
        missing(store.runs(key, None, 1).await),
        missing(store.messages_before(key, None, 1).await),
        missing(store.set_description(key, &description, 0).await),
    ];
    assert_eq!(of_directory, [Capability::Directory; 7]);
    let of_calls =
        [missing(store.invocations(&calls).await), missing(store.tool_totals(&calls).await)];
    assert_eq!(of_calls, [Capability::ToolCallQueries; 2]);
    let of_maintenance = [
        missing(store.fork_at(key, None, key).await),
        missing(store.prune(key, Keep::Messages(1)).await),
        missing(store.scopes(None, 1).await),
        missing(store.rows(key).await),
        missing(store.rewrite(Rewrite::new(key.clone(), Revision::ABSENT)).await),
    ];
    assert_eq!(of_maintenance, [Capability::Maintenance; 5]);
    let last = MessageId { run: RunId::new(), index: 0 };
    let summary = HistorySummary::new(1, last, "one");
    let of_summaries = [
        missing(store.history_summaries(key).await),
        missing(store.history_summary(key, 1).await),
        missing(store.add_summary(key, &summary, 0).await),
        missing(store.remove_summary(key, 1).await),
    ];
    assert_eq!(of_summaries, [Capability::Summaries; 4]);
}

#[tokio::test]
async fn a_store_without_capabilities_returns_errors_that_name_the_missing_capability() {
    let bare = Bare(StoreHandle::new());
    assert!(bare.try_reserve().is_none());
    assert_has_no_capability(&bare).await;
}

/// A wrapper that overrides no method.
struct Wrapped<S>(S);

impl<S: HistoryStore> store::author::StoreWrapper for Wrapped<S> {
    type Inner = S;

    fn inner(&self) -> &S {
        &self.0
    }
}

#[tokio::test]
async fn a_wrapper_does_not_inherit_capabilities_of_the_store_inside() {
    assert_has_no_capability(&Wrapped(MemoryStore::new())).await;
}

#[tokio::test]
async fn a_traced_store_offers_the_capabilities_of_the_store_inside() {
    assert_has_no_capability(&TracedStore::new(Bare(StoreHandle::new()))).await;
    let store = TracedStore::new(MemoryStore::new());
    assert!(store.journal().is_some() && store.directory().is_some());
    assert!(store.tool_calls().is_some() && store.maintenance().is_some());
    assert!(store.summaries().is_some());
}

fn closed<T>(answer: Result<T, StoreError>) {
    match answer {
        Err(StoreError::Closed) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("the operation succeeded"),
    }
}

#[tokio::test]
async fn a_wrapper_forwards_operations_to_the_store_inside() {
    let bare = StoreHandle::exclusive();
    let (store, key) = (Wrapped(Bare(bare.clone())), ConversationKey::new("alice", "wrapped"));
    assert!(store.handle().is_same_store(&bare));
    assert!(!store.handle().is_same_store(&StoreHandle::exclusive()));
    closed(store.head(&key).await);
    closed(store.load(&key).await);
    closed(store.calls(&key, &CallSelection::All).await);
    closed(store.reserve().await);
    closed(store.delete(&key).await);
    closed(store.flush().await);
    closed(store.close().await);
}
