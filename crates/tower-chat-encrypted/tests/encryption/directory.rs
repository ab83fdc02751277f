//! Tests that descriptions are sealed (encrypted) for their conversation and their version.

use tower_chat_core::{
    ConversationKey, MemoryStore, Message, MessageId, RunId,
    store::{ConversationQuery, Description, Directory, HistoryStore, Revision, author::Write},
};
use tower_chat_encrypted::{EncryptedStore, EncryptionError, ErasableKeys};

type Store = EncryptedStore<MemoryStore>;

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("alice", id)
}

fn description(title: &str, topic: &str) -> Description {
    let metadata = [("topic".to_owned(), topic.into())].into_iter().collect();
    Description::new().with_title(title).unwrap().with_metadata(metadata).unwrap()
}

/// Creates a store with two conversations, and returns its keys.
async fn store() -> (Store, ErasableKeys) {
    let keys = ErasableKeys::new();
    let store = EncryptedStore::new(MemoryStore::new(), keys.clone());
    for id in ["coats", "hats"] {
        store.head(&key(id)).await.unwrap();
        let first = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key(id), first, Revision::ABSENT, [Message::user(id).into()]);
        store.append(store.reserve().await.unwrap(), vec![write]).await.unwrap();
        let described = description(&format!("all about {id}"), id);
        store.set_description(&key(id), &described, 0).await.unwrap();
    }
    (store, keys)
}

async fn sealed(store: &Store, id: &str) -> Description {
    store.inner().summary(&key(id)).await.unwrap().unwrap().description
}

#[tokio::test]
async fn the_inner_store_receives_no_title_or_metadata_in_plaintext() {
    let (store, _) = store().await;
    for id in ["coats", "hats"] {
        let sealed = sealed(&store, id).await;
        assert_eq!(sealed.title(), None);
        let text = serde_json::to_string(&sealed).unwrap();
        assert!(!text.contains(id) && !text.contains("topic"), "{text}");
        let opened = store.summary(&key(id)).await.unwrap().unwrap().description;
        assert_eq!(opened, description(&format!("all about {id}"), id));
    }
    let empty = Description::new();
    store.set_description(&key("hats"), &empty, 1).await.unwrap();
    assert_eq!(sealed(&store, "hats").await, empty);
    let found = ConversationQuery::in_scope("alice").with_metadata("topic", "coats");
    let found = store.conversations(&found).await.unwrap().conversations;
    assert_eq!(found.iter().map(|it| it.key.id()).collect::<Vec<_>>(), ["coats"]);
}

#[tokio::test]
async fn a_description_that_was_moved_restored_or_replaced_with_plaintext_is_reported() {
    for attack in ["moved", "put back", "in clear"] {
        let (store, _) = store().await;
        let coats = key("coats");
        let earlier = sealed(&store, "coats").await;
        let planted = match attack {
            "moved" => sealed(&store, "hats").await,
            "put back" => earlier,
            _ => description("all about something else", "nothing"),
        };
        store.inner().set_description(&coats, &planted, 1).await.unwrap();
        let error = store.summary(&coats).await.unwrap_err();
        let found = EncryptionError::in_store_error(&error);
        assert!(
            matches!(
                found,
                Some(EncryptionError::Moved { .. } | EncryptionError::NotSealed { .. })
            ),
            "{attack}: {error:?}"
        );
        let page = store.conversations(&ConversationQuery::in_scope("alice")).await.unwrap();
        let listed: Vec<_> = page.conversations.iter().map(|it| it.key.id()).collect();
        let unreadable: Vec<_> = page.unreadable.iter().map(|it| it.key.id()).collect();
        assert_eq!((listed, unreadable), (vec!["hats"], vec!["coats"]), "{attack}");
        assert_eq!(store.messages_before(&coats, None, 1).await.unwrap().messages.len(), 1);
    }
}

#[tokio::test]
async fn a_description_is_erased_with_the_key_of_its_conversation() {
    let (store, keys) = store().await;
    keys.erase(&key("coats"));
    assert!(store.summary(&key("coats")).await.is_err());
    let page = store.conversations(&ConversationQuery::in_scope("alice")).await.unwrap();
    assert_eq!(page.conversations.iter().map(|it| it.key.id()).collect::<Vec<_>>(), ["hats"]);
    assert_eq!(page.unreadable.iter().map(|it| it.key.id()).collect::<Vec<_>>(), ["coats"]);
    store.delete(&key("coats")).await.unwrap();
    assert_eq!(store.summary(&key("coats")).await.unwrap(), None);
}
