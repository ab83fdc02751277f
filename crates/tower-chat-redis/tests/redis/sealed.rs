//! Tests that a store with sealed data refuses changes that do not come from the store wrapper that
//! seals the data.

use std::sync::Arc;

use crate::common::{address, append, ask, key, open, options, prefix, raw, texts, write};
use tower_chat_core::{
    Message, MessageId, Native, Part, Role, RunId,
    store::{
        HistoryStore, Keep, Maintenance, Revision, ServiceIdChange, StoreError,
        author::{SEALED_WIRE, Write},
    },
};
use tower_chat_testkit::store_contract::{self, Store};

#[tokio::test]
async fn plain_changes_are_refused_once_a_sealed_write_is_stored() {
    let options = options();
    let open = async || {
        let store: Store = Arc::new(open(options.clone()).await);
        store
    };
    store_contract::plain_changes_are_refused_once_a_sealed_write_is_stored(open).await;
}

/// An older release has sealed the conversation, and does not mark the store.
#[tokio::test]
async fn a_store_refuses_plain_writes_after_it_has_read_a_sealed_head() {
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

/// The first format of sealed data has sealed messages, but no sealed head.
#[tokio::test]
async fn the_first_plain_change_is_refused_if_messages_have_the_first_sealed_format() {
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
        assert_eq!(found, "0", "nothing was sealed before the first write");
        // Without the mark, the conversations are like those of an older release.
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
