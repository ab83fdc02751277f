//! Tests that a store with sealed data accepts only changes of the wrapper that seals the data.

use crate::common::{append, key, ordinary_user, quoted, raw, schema, texts, write};
use tower_chat_core::{
    ConversationKey, Message, MessageId, Native, Part, RawJson, Role, RunId,
    store::{
        Description, HistoryStore, Keep, Revision, Rewrite, ServiceIdChange, StoreError,
        author::Write,
    },
};
use tower_chat_postgres::PostgresStore;

/// Writes three runs of one message each, marked as sealed.
async fn sealed(store: &PostgresStore, key: &ConversationKey) -> Revision {
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        let write = write(key, at, &[text]).sealed();
        at = append(store, write).await.unwrap();
    }
    at
}

/// Tries every change without the mark, and expects that it is refused.
async fn assert_takes_no_plain_change(store: &PostgresStore, at: Revision) {
    // Every writer reads the head first.
    let revision = store.head(&key("c")).await.unwrap().revision;
    assert_eq!(revision, at);
    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.messages.push((1, Message::user("changed")));
    let description = Description::new().with_title("title").unwrap();
    let refused = [
        append(store, write(&key("new"), Revision::ABSENT, &["plain"])).await.unwrap_err().source,
        append(store, write(&key("c"), at, &["plain"])).await.unwrap_err().source,
        store.prune(&key("c"), Keep::Messages(1)).await.unwrap_err(),
        store.fork(&key("c"), &key("copy")).await.unwrap_err(),
        store.rewrite(rewrite).await.unwrap_err(),
        store.set_description(&key("c"), &description, 0).await.unwrap_err(),
    ];
    for error in refused {
        assert!(matches!(error, StoreError::Sealed), "{error:?}");
    }
    assert_eq!(texts(store, &key("c")).await, ["one", "two", "three"]);
    assert_eq!(store.head(&key("c")).await.unwrap().revision, at);
    assert_eq!(store.list(key("c").scope(), None, 9).await.unwrap(), [key("c")]);
}

#[tokio::test]
async fn plain_changes_are_refused_once_a_sealed_write_is_stored() {
    let options = PostgresStore::options().with_schema(schema());
    let address = ordinary_user().await;
    let store = options.clone().connect(&address).await.unwrap();
    let other = options.clone().connect(&address).await.unwrap();
    let at = sealed(&store, &key("c")).await;
    let later = options.connect(&address).await.unwrap();
    for store in [&store, &other, &later] {
        assert_takes_no_plain_change(store, at).await;
    }
    let mut rewrite = Rewrite::new(key("c"), at);
    rewrite.is_sealed = true;
    rewrite.messages.push((3, Message::user("changed")));
    store.rewrite(rewrite).await.unwrap();
    assert_eq!(store.prune(&key("c"), Keep::Messages(1).sealed()).await.unwrap().messages, 2);
    store.set_description(&key("c"), &Description::new().sealed(), 0).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["changed"]);
    assert!(other.delete(&key("c")).await.unwrap(), "a deletion needs no keys");
}

/// Tables of version 6 with sealed data are marked, with row-level security too.
#[tokio::test]
async fn tables_of_an_older_version_are_marked_if_they_hold_sealed_data() {
    let item: RawJson = "\"tower-chat-1:k:1:0:AAAA\"".parse().unwrap();
    let envelope =
        Message::new(Role::User, vec![Part::from(Native::new("tower-chat-encrypted", item))]);
    let quoted_text = Message::user("what is {\"wire\":\"tower-chat-encrypted\",?");
    let set = |id: &str| ServiceIdChange::Set(id.into());
    let tried = [
        (quoted_text, set("resp_1"), false),
        (envelope, set("resp_1"), true),
        (Message::user("x"), set("tower-chat-2:k:AAAA"), true),
    ];
    let address = ordinary_user().await;
    for (message, change, is_sealed) in tried {
        for has_policies in [false, true] {
            let schema = schema();
            let options =
                PostgresStore::options().with_schema(&schema).with_row_level_security(has_policies);
            let store = options.clone().connect(&address).await.unwrap();
            let id = MessageId { run: RunId::new(), index: 0 };
            let first = Write::new(key("c"), id, Revision::ABSENT, [message.clone().into()])
                .with_service_id(change.clone());
            append(&store, first).await.unwrap();
            let sql =
                "DROP TABLE {schema}.store_marks; UPDATE {schema}.schema_version SET version = 6";
            let client = raw(&address).await;
            client.batch_execute(&sql.replace("{schema}", &quoted(&schema))).await.unwrap();
            let store = options.connect(&address).await.unwrap();
            let plain = append(&store, write(&key("new"), Revision::ABSENT, &["more"])).await;
            assert_eq!(plain.is_err(), is_sealed, "{has_policies}: {plain:?}");
        }
    }
}
