//! Tests of a store that implements only the required methods, and of a wrapper around it.

use async_trait::async_trait;
use tower_chat_core::{
    ConversationKey,
    store::{
        self, ConversationQuery, Description, Head, History, HistoryStore, InvocationQuery,
        Invocations, Keep, Pruned, Revision, Rewrite, StoreError, StoreHandle, ToolTotals,
        UsageGrouping, UsageQuery,
        author::{OpenRunContent, Slot, Ticket, Write},
    },
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

    async fn open_run(&self, _: &ConversationKey) -> Result<Option<OpenRunContent>, StoreError> {
        Err(StoreError::Closed)
    }

    async fn open_runs(
        &self,
        _: &str,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        Err(StoreError::Closed)
    }

    async fn reserve(&self) -> Result<Slot, StoreError> {
        Err(StoreError::Closed)
    }

    fn append(&self, _: Slot, _: Vec<Write>) -> Ticket {
        unreachable!("there is no slot")
    }

    async fn fork(&self, _: &ConversationKey, _: &ConversationKey) -> Result<Revision, StoreError> {
        Err(StoreError::Closed)
    }

    async fn prune(&self, _: &ConversationKey, _: Keep) -> Result<Pruned, StoreError> {
        Err(StoreError::Closed)
    }

    async fn delete(&self, _: &ConversationKey) -> Result<bool, StoreError> {
        Err(StoreError::Closed)
    }

    async fn list(
        &self,
        _: &str,
        _: Option<&str>,
        _: usize,
    ) -> Result<Vec<ConversationKey>, StoreError> {
        Err(StoreError::Closed)
    }

    async fn invocations(&self, _: &InvocationQuery) -> Result<Invocations, StoreError> {
        Err(StoreError::Closed)
    }

    async fn tool_totals(&self, _: &InvocationQuery) -> Result<Vec<ToolTotals>, StoreError> {
        Err(StoreError::Closed)
    }

    async fn flush(&self) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }

    async fn close(&self) -> Result<(), StoreError> {
        Err(StoreError::Closed)
    }
}

/// Returns the operation that the store does not support.
fn unsupported<T>(answer: Result<T, StoreError>) -> &'static str {
    match answer {
        Err(StoreError::Unsupported { operation }) => operation,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("there is an answer"),
    }
}

async fn assert_has_no_directory(store: &impl HistoryStore, key: &ConversationKey) {
    let all = ConversationQuery::in_all_scopes();
    let usage = UsageQuery::of(key, UsageGrouping::Run);
    let description = Description::new();
    let answers = [
        unsupported(store.summary(key).await),
        unsupported(store.conversations(&all).await),
        unsupported(store.usage(&usage).await),
        unsupported(store.runs(key, None, 1).await),
        unsupported(store.messages_before(key, None, 1).await),
        unsupported(store.set_description(key, &description, 0).await),
        unsupported(store.scopes(None, 1).await),
        unsupported(store.rows(key).await),
        unsupported(store.rewrite(Rewrite::new(key.clone(), Revision::ABSENT)).await),
    ];
    let expected = [
        "summary",
        "conversations",
        "usage",
        "runs",
        "messages_before",
        "set_description",
        "scopes",
        "rows",
        "rewrite",
    ];
    assert_eq!(answers, expected);
    assert!(store.try_reserve().is_none());
}

#[tokio::test]
async fn a_store_without_a_directory_says_so_instead_of_answering() {
    let key = ConversationKey::new("alice", "bare");
    assert_has_no_directory(&Bare(StoreHandle::new()), &key).await;
}

/// A wrapper that overrides no method.
struct Wrapped(Bare);

impl store::StoreWrapper for Wrapped {
    type Inner = Bare;

    fn inner(&self) -> &Bare {
        &self.0
    }
}

fn closed<T>(answer: Result<T, StoreError>) {
    match answer {
        Err(StoreError::Closed) => {}
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("there is an answer"),
    }
}

#[tokio::test]
async fn a_wrapper_answers_what_the_store_inside_answers() {
    let bare = StoreHandle::exclusive();
    let (store, key) = (Wrapped(Bare(bare.clone())), ConversationKey::new("alice", "wrapped"));
    let calls = InvocationQuery::in_scope("alice");
    assert!(store.handle().is_same_store(&bare));
    assert!(!store.handle().is_same_store(&StoreHandle::exclusive()));
    closed(store.head(&key).await);
    closed(store.load(&key).await);
    closed(store.open_run(&key).await);
    closed(store.open_runs("alice", None, 1).await);
    closed(store.reserve().await);
    closed(store.fork(&key, &key).await);
    closed(store.prune(&key, Keep::Messages(1)).await);
    closed(store.delete(&key).await);
    closed(store.list("alice", None, 1).await);
    closed(store.invocations(&calls).await);
    closed(store.tool_totals(&calls).await);
    closed(store.flush().await);
    closed(store.close().await);
    assert_has_no_directory(&store, &key).await;
}
