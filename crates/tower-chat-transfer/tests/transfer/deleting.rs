//! Tests of the deletion of whole scopes.

use tower_chat::{
    ConversationKey, HistoryStore as _, MemoryStore,
    store::{self, Directory},
    transfer::{OutcomeKind, delete_scope},
};

use crate::{
    conversations::{add_run, discard_run, export_alice, fill, key},
    stores::Kind,
};

#[tokio::test(flavor = "multi_thread")]
async fn a_deletion_deletes_everything_of_its_scope_and_nothing_of_other_scopes() {
    for kind in Kind::all() {
        eprintln!("in {kind:?}");
        let store = kind.open().await;
        fill(&*store, &key("coats")).await;
        discard_run(&*store, &key("all discarded"), 4).await;
        for number in 0..120 {
            let id = format!("many {number}");
            add_run(&*store, &key(&id), 10 + number, &[&id]).await;
        }
        let others =
            ["Alice", "alice2", "alic", ""].map(|scope| ConversationKey::new(scope, "coats"));
        for other in &others {
            add_run(&*store, other, 1, &[other.scope()]).await;
        }
        let receipt = delete_scope(&*store, "alice", &mut |_| Ok(())).await.unwrap();
        let deleted = receipt.total(OutcomeKind::Deleted);
        assert_eq!((deleted.conversations, deleted.messages, deleted.tool_calls), (122, 127, 4));
        assert_eq!(receipt.scopes.len(), 1);
        assert_eq!(store.list("alice", None, 10).await.unwrap(), []);
        assert_eq!(store.summary(&key("all discarded")).await.unwrap(), None);
        for other in &others {
            assert_eq!(store.load(other).await.unwrap().messages.len(), 1);
        }
        let again = delete_scope(&*store, "alice", &mut |_| Ok(())).await.unwrap();
        assert!(again.scopes.is_empty());
    }
}

/// A store that does not support queries of tool calls.
struct WithoutQueries(MemoryStore);

impl store::author::StoreWrapper for WithoutQueries {
    type Inner = MemoryStore;

    fn inner(&self) -> &MemoryStore {
        &self.0
    }

    fn journal(&self) -> Option<&dyn store::Journal> {
        self.0.journal()
    }

    fn directory(&self) -> Option<&dyn Directory> {
        self.0.directory()
    }

    fn summaries(&self) -> Option<&dyn store::Summaries> {
        self.0.summaries()
    }
}

#[tokio::test]
async fn a_store_without_queries_of_tool_calls_can_be_exported_and_deleted() {
    let inner = MemoryStore::new();
    fill(&inner, &key("coats")).await;
    let store = WithoutQueries(inner.clone());
    assert_eq!(export_alice(&store).await, export_alice(&inner).await);
    let receipt = delete_scope(&store, "alice", &mut |_| Ok(())).await.unwrap();
    let deleted = receipt.total(OutcomeKind::Deleted);
    assert_eq!((deleted.conversations, deleted.messages, deleted.tool_calls), (1, 7, 4));
    assert_eq!(inner.list("alice", None, 10).await.unwrap(), []);
}
