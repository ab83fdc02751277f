//! Tests of reading and rewriting damaged values.

use redis::aio::MultiplexedConnection;
use tower_chat_core::{
    Message,
    store::{Maintenance, Revision, Rewrite, SequencePosition, StoreError, author::ToolRecord},
};
use tower_chat_redis::RedisStore;

use crate::common::{address, append, ask, key, open, options, prefix, raw, texts, write};

fn record(sequence: u64) -> ToolRecord {
    ToolRecord::pending(SequencePosition { sequence, index: 0 }, 0, "c1", "look")
}

struct Fixture {
    store: RedisStore,
    prefix: String,
    connection: MultiplexedConnection,
    at: Revision,
}

impl Fixture {
    /// Creates a conversation `c` of five messages with three recorded calls, and a conversation
    /// `d`, which the tests must not affect.
    async fn new() -> Self {
        let prefix = prefix();
        let store = open(options().with_prefix(&prefix)).await;
        append(&store, write(&key("d"), Revision::ABSENT, &["untouched"])).await.unwrap();
        let five = write(&key("c"), Revision::ABSENT, &["one", "two", "three", "four", "five"]);
        let five = five.with_tools(vec![record(1), record(2), record(4)]);
        let at = append(&store, five).await.unwrap();
        Self { store, prefix, connection: raw(&address()).await, at }
    }

    fn name(&self, part: &str) -> String {
        format!("{}:{{scope/c}}:{part}", self.prefix)
    }

    async fn ask<T: redis::FromRedisValue>(&mut self, words: &[&str]) -> T {
        ask(&mut self.connection, words).await.unwrap()
    }

    /// Truncates a message to its id and the beginning of its content.
    async fn cut_off(&mut self, number: &str) {
        let messages = self.name("messages");
        let stored: Vec<u8> = self.ask(&["HGET", &messages, number]).await;
        let mut set = redis::cmd("HSET");
        set.arg(messages).arg(number).arg(&stored[..21]);
        set.exec_async(&mut self.connection).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_values_are_returned_as_errors_among_the_other_values() {
    let mut fixture = Fixture::new().await;
    let (messages, tools) = (fixture.name("messages"), fixture.name("tools"));
    fixture.cut_off("2").await;
    fixture.ask::<()>(&["HDEL", &messages, "3", "5"]).await;
    fixture.ask::<()>(&["HSET", &tools, "1:0000000000", "odd"]).await;
    fixture.ask::<()>(&["HDEL", &tools, "4:0000000000"]).await;
    let rows = fixture.store.rows(&key("c")).await.unwrap().unwrap();
    assert_eq!(rows.head.revision, fixture.at);
    let read: Vec<_> = rows.messages.iter().map(|(number, it)| (*number, it.is_ok())).collect();
    assert_eq!(read, [(1, true), (2, false), (4, true)]);
    let read: Vec<_> = rows.tools.iter().map(|(call, it)| (call.sequence, it.is_ok())).collect();
    assert_eq!(read, [(1, false), (2, true), (4, false)]);

    let store = &fixture.store;
    let mut rewrite = Rewrite::new(key("c"), fixture.at);
    rewrite.messages.push((2, Message::user("zwei")));
    rewrite.tools = vec![record(1), record(4)];
    rewrite.expected = store.rewrite(rewrite.clone()).await.unwrap();
    let rows = store.rows(&key("c")).await.unwrap().unwrap();
    let read: Vec<_> =
        rows.messages.iter().map(|(_, message)| message.as_ref().unwrap().text()).collect();
    assert_eq!(read, ["one", "zwei", "four"]);
    assert!(rows.tools.iter().all(|(_, row)| row.is_ok()), "{:?}", rows.tools);
    rewrite.messages.push((3, Message::user("drei")));
    let refused = store.rewrite(rewrite).await.unwrap_err();
    assert!(matches!(refused, StoreError::Corrupt { .. }), "{refused:?}");
    assert_eq!(texts(store, &key("d")).await, ["untouched"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn reading_rows_with_impossible_numbers_does_not_block_the_server() {
    for (field, value) in [("sequence", "9007199254740991"), ("sequence", "x"), ("pruned", "-1")] {
        let mut fixture = Fixture::new().await;
        let head = fixture.name("head");
        fixture.ask::<()>(&["HSET", &head, field, value]).await;
        match fixture.store.rows(&key("c")).await {
            Ok(rows) => assert_eq!(rows.unwrap().messages.len(), 5, "{field} {value}"),
            Err(StoreError::Corrupt { .. }) => {}
            Err(error) => panic!("{field} {value}: {error:?}"),
        }
        assert!(fixture.store.rows(&key("d")).await.unwrap().is_some());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_of_several_pages_is_read_in_order() {
    let store = open(options()).await;
    let numbers: Vec<String> = (1..=2500).map(|number| format!("message {number}")).collect();
    let all: Vec<&str> = numbers.iter().map(String::as_str).collect();
    let at = append(&store, write(&key("long"), Revision::ABSENT, &all)).await.unwrap();
    let rows = store.rows(&key("long")).await.unwrap().unwrap();
    let read: Vec<_> =
        rows.messages.iter().map(|(_, message)| message.as_ref().unwrap().text()).collect();
    assert_eq!(read, numbers);
    assert!(rows.messages.iter().map(|(number, _)| *number).eq(1..=2500));
    assert_eq!(rows.head.revision, at);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scope_whose_list_contains_no_existing_conversation_is_not_returned() {
    let mut fixture = Fixture::new().await;
    let list = format!("{}:{{ghost/*}}:list", fixture.prefix);
    let ids: Vec<String> = (0..600).map(|number| format!("gone {number:03}")).collect();
    for id in &ids {
        fixture.ask::<()>(&["ZADD", &list, "0", id]).await;
    }
    assert_eq!(fixture.store.scopes(None, 10).await.unwrap(), ["scope"]);
    // The read of the list has removed the id of the deleted conversation.
    assert_eq!(fixture.ask::<usize>(&["EXISTS", &list]).await, 0);
}
