//! Tests that a store with sealed data accepts only changes of the wrapper that seals the data.

use crate::common::{address, append, ask, key, open, options, prefix, raw, texts, write};
use tower_chat_core::{
    ConversationKey, Message, MessageId, Native, Part, Role, RunId,
    store::{
        Description, HistoryStore, Keep, Revision, Rewrite, ServiceIdChange, StoreError,
        author::{SEALED_WIRE, Write},
    },
};
use tower_chat_redis::RedisStore;

/// Writes three runs of one message each, marked as sealed.
async fn sealed(store: &RedisStore, key: &ConversationKey) -> Revision {
    let mut at = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        let write = write(key, at, &[text]).sealed();
        at = append(store, write).await.unwrap();
    }
    at
}

/// Tries every change without the mark, and expects that it is refused.
async fn assert_takes_no_plain_change(store: &RedisStore, at: Revision) {
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
    let options = options();
    let store = open(options.clone()).await;
    let other = open(options.clone()).await;
    let at = sealed(&store, &key("c")).await;
    let later = open(options).await;
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

/// A release before the mark has sealed the conversation.
#[tokio::test]
async fn a_sealed_head_that_was_read_says_what_the_store_holds() {
    let options = options();
    let store = open(options.clone()).await;
    let head = ServiceIdChange::Set("tower-chat-2:k:AAAA".into());
    let first = write(&key("c"), Revision::ABSENT, &["one"]).with_service_id(head);
    let at = append(&store, first).await.unwrap();
    let prune = open(options.clone()).await.prune(&key("c"), Keep::Messages(1)).await;
    assert!(matches!(prune, Err(StoreError::Sealed)), "{prune:?}");
    let other = open(options).await;
    assert_eq!(other.head(&key("c")).await.unwrap().revision, at);
    let error = append(&other, write(&key("c"), at, &["plain"])).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Sealed), "{error:?}");
    assert_eq!(texts(&store, &key("c")).await, ["one"]);
}

/// The first format sealed messages, and had no sealed head.
#[tokio::test]
async fn messages_of_the_first_sealed_format_are_found_by_the_first_plain_change() {
    let sealed_message = || {
        let native = Native::new(SEALED_WIRE, "{}".parse().unwrap());
        Message::new(Role::User, vec![Part::Native(native)])
    };
    for (is_last, holds_sealed) in [(false, true), (true, true), (false, false)] {
        let prefix = prefix();
        let options = options().with_prefix(prefix.clone());
        let store = open(options.clone()).await;
        let mut at = Revision::ABSENT;
        for is_sealed in [!is_last && holds_sealed, false, is_last] {
            let message = if is_sealed { sealed_message() } else { Message::user("plain") };
            let id = MessageId { run: RunId::new(), index: 0 };
            let write = Write::new(key("c"), id, at, [message.into()]);
            at = append(&store, write).await.unwrap();
        }
        let mut connection = raw(&address()).await;
        let mark = format!("{prefix}:sealed");
        let found: String = ask(&mut connection, &["GET", &mark]).await.unwrap();
        assert_eq!(found, "0", "nothing was sealed when the first write came");
        // A release before the mark has written all this.
        ask::<()>(&mut connection, &["DEL", &mark]).await.unwrap();
        let later = open(options.clone()).await;
        let written = append(&later, write(&key("new"), Revision::ABSENT, &["plain"])).await;
        let pruned = open(options).await.prune(&key("c"), Keep::Messages(1)).await;
        let found: String = ask(&mut connection, &["GET", &mark]).await.unwrap();
        assert_eq!(found, if holds_sealed { "1" } else { "0" });
        match holds_sealed {
            true => {
                assert!(matches!(written.unwrap_err().source, StoreError::Sealed));
                assert!(matches!(pruned, Err(StoreError::Sealed)), "{pruned:?}");
            }
            false => assert!(written.is_ok() && pruned.is_ok()),
        }
    }
}
