//! Tests of the keys on the server, for conversations with and without a time to live.

use std::{sync::Arc, time::Duration};

use crate::common::{address, append, ask, key, names, open, options, prefix, raw, texts, write};
use redis::aio::MultiplexedConnection;
use tower_chat_core::{
    Message, MessageId, RunId, ToolCall,
    store::{
        ConversationQuery, Directory, HistoryStore, InvocationQuery, Journal, Keep, Lease,
        LeaseEnd, Maintenance, Parent, Revision, SequencePosition, StoreError, ToolCallQueries,
        author::{Staged, ToolRecord, Write},
    },
};
use tower_chat_redis::{RedisOptions, RedisStore};

fn call(text: &str) -> (Message, ToolRecord) {
    let call = SequencePosition { sequence: 1, index: 0 };
    let mut record = ToolRecord::pending(call, 0, "id", "tool");
    record.error = Some(text.to_owned());
    (Message::tool_calls([ToolCall::new("id", "tool", text)]), record)
}

/// Creates a conversation with an open run, and with all keys except the summaries.
async fn whole(store: &RedisStore, id: &str, text: &str) -> Revision {
    let key = key(id);
    let (message, mut record) = call(text);
    record.status = tower_chat_core::ToolStatus::PendingApproval;
    let run = MessageId { run: RunId::new(), index: 0 };
    let first = Write::new(key.clone(), run, Revision::ABSENT, [Arc::new(message)]);
    let revision = append(store, first.with_tools(vec![record])).await.unwrap();
    let lease = Lease {
        attempt: 1,
        holder: 1,
        renewed_at: std::time::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let staged = Staged { lease, close: None, service_id: None, partial_text: Some(text.into()) };
    append(store, write(&key, revision, &[text]).staged(staged)).await.unwrap()
}

async fn type_of(connection: &mut MultiplexedConnection, name: &str) -> String {
    ask(connection, &["TYPE", name]).await.unwrap()
}

/// Returns the values of all keys with a prefix, as one text.
async fn everything(connection: &mut MultiplexedConnection, prefix: &str) -> String {
    let mut all = String::new();
    for name in names(connection, prefix).await {
        let dump: Vec<u8> = redis::cmd("DUMP").arg(&name).query_async(connection).await.unwrap();
        all.push_str(&format!("{name} {}\n", String::from_utf8_lossy(&dump)));
    }
    all
}

#[tokio::test]
async fn a_deletion_removes_all_keys_and_data_of_a_conversation() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    whole(&store, "id of it", "what it was about").await;
    assert_eq!(names(&mut connection, &prefix).await.len(), 8);
    let all = everything(&mut connection, &prefix).await;
    assert!(all.contains("what it was about") && all.contains("id of it"), "{all}");
    assert!(store.delete(&key("id of it")).await.unwrap());
    assert_eq!(names(&mut connection, &prefix).await, Vec::<String>::new());
}

#[tokio::test]
async fn all_keys_of_a_conversation_expire_together_and_its_id_can_be_used_again() {
    let prefix = prefix();
    let options = options().with_prefix(&prefix).with_time_to_live(Duration::from_secs(3600));
    let store = open(options).await;
    let mut connection = raw(&address()).await;
    let old = whole(&store, "ends", "text").await;
    let of_it = format!("{prefix}:{{scope/ends}}:");
    let keys = names(&mut connection, &prefix).await;
    let keys: Vec<_> = keys.into_iter().filter(|name| name.starts_with(&of_it)).collect();
    assert_eq!(keys.len(), 6);
    let mut ends = Vec::new();
    for name in &keys {
        ends.push(ask::<i64>(&mut connection, &["PEXPIRETIME", name]).await.unwrap());
    }
    assert!(
        ends.iter().all(|end| *end == ends[0] && *end > 0),
        "all keys expire at the same time: {ends:?}"
    );

    // The keys expire.
    for name in &keys {
        ask::<()>(&mut connection, &["PEXPIREAT", name, "1"]).await.unwrap();
    }
    assert_eq!(store.head(&key("ends")).await.unwrap().revision, Revision::ABSENT);
    assert_eq!(texts(&store, &key("ends")).await, Vec::<String>::new());
    assert_eq!(store.list("scope", None, 10).await.unwrap(), []);
    assert!(store.open_runs("scope", None, 10).await.unwrap().is_empty());
    let query = InvocationQuery::in_scope("scope");
    assert!(store.invocations(&query).await.unwrap().found.is_empty());
    let error = append(&store, write(&key("ends"), old, &["late"])).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");

    let new = append(&store, write(&key("ends"), Revision::ABSENT, &["new"])).await.unwrap();
    assert_ne!(new.incarnation, old.incarnation);
    assert_eq!(texts(&store, &key("ends")).await, ["new"]);
    assert_eq!(store.list("scope", None, 10).await.unwrap(), [key("ends")]);
}

#[tokio::test]
async fn a_conversation_is_gone_when_its_time_to_live_has_passed_since_its_last_write() {
    let prefix = prefix();
    let options = options().with_prefix(&prefix).with_time_to_live(Duration::from_millis(1));
    let store = open(options).await;
    let (message, record) = call("text");
    let id = MessageId { run: RunId::new(), index: 0 };
    let first = Write::new(key("short"), id, Revision::ABSENT, [Arc::new(message)]);
    let old = append(&store, first.with_tools(vec![record])).await.unwrap();
    // The time to live of the conversation is one millisecond.
    while store.head(&key("short")).await.unwrap().revision != Revision::ABSENT {}
    let error = append(&store, write(&key("short"), old, &["late"])).await.unwrap_err().source;
    assert!(matches!(error, StoreError::Conflict(_)), "{error:?}");
    let mut connection = raw(&address()).await;
    let of_it = format!("{prefix}:{{scope/short}}");
    assert_eq!(names(&mut connection, &of_it).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_list_keeps_an_expired_id_until_no_writer_can_create_the_conversation() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    append(&store, write(&key("ended"), Revision::ABSENT, &["a"])).await.unwrap();
    let list = format!("{prefix}:{{scope/*}}:list");
    let made = format!("{prefix}:{{scope/*}}:made:ended");
    for part in ["head", "messages", "directory"] {
        let name = format!("{prefix}:{{scope/ended}}:{part}");
        ask::<()>(&mut connection, &["DEL", &name]).await.unwrap();
    }
    // The token of the writer has not expired, so that the writer could create the conversation
    // again. Therefore the id remains on the list of the scope.
    assert_eq!(store.list("scope", None, 10).await.unwrap(), []);
    assert_eq!(ask::<u64>(&mut connection, &["ZCARD", &list]).await.unwrap(), 1);
    let left: u64 = ask(&mut connection, &["PTTL", &made]).await.unwrap();
    assert!((1..=120_000).contains(&left), "{left}");
    // Deleting the token has the same effect as its expiry.
    ask::<()>(&mut connection, &["DEL", &made]).await.unwrap();
    assert_eq!(store.list("scope", None, 10).await.unwrap(), []);
    assert_eq!(names(&mut connection, &prefix).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_deletion_keeps_the_id_on_the_list_while_a_writer_creates_the_conversation() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
    // Another process has stored its token, and has not created the conversation yet.
    let made = format!("{prefix}:{{scope/*}}:made:a");
    ask::<()>(&mut connection, &["APPEND", &made, "0123456789abcdef"]).await.unwrap();
    assert!(store.delete(&key("a")).await.unwrap());
    let list = format!("{prefix}:{{scope/*}}:list");
    assert_eq!(ask::<u64>(&mut connection, &["ZCARD", &list]).await.unwrap(), 1);
    assert_eq!(store.list("scope", None, 10).await.unwrap(), []);
}

#[tokio::test]
async fn an_append_without_a_time_to_live_removes_the_expiry_of_a_conversation() {
    let prefix = prefix();
    let options = options().with_prefix(&prefix);
    let mortal = open(options.clone().with_time_to_live(Duration::from_secs(3600))).await;
    let immortal = open(options).await;
    let mut connection = raw(&address()).await;
    let mut revision = whole(&mortal, "a", "text").await;
    assert!(store_is_mortal(&mut connection, &prefix).await);
    let lease = Lease {
        attempt: 2,
        holder: 1,
        renewed_at: std::time::UNIX_EPOCH,
        until: LeaseEnd::NotHeld,
    };
    let taken = Staged { lease, close: None, service_id: None, partial_text: None };
    let open_run = mortal.head(&key("a")).await.unwrap().open_run.unwrap().run;
    for (store, mortality) in [(&immortal, false), (&mortal, true), (&immortal, false)] {
        let id = MessageId { run: open_run, index: revision.sequence as u32 };
        let message = Arc::new(Message::user("more"));
        let write = Write::new(key("a"), id, revision, [message]).staged(taken.clone());
        revision = append(store, write).await.unwrap();
        assert_eq!(store_is_mortal(&mut connection, &prefix).await, mortality);
    }
}

/// Returns whether the six keys of a conversation without summaries have a time to live. Panics if
/// only some of them have one.
async fn store_is_mortal(connection: &mut MultiplexedConnection, prefix: &str) -> bool {
    let all = names(connection, &format!("{prefix}:{{scope/a}}")).await;
    assert_eq!(all.len(), 6);
    let mut mortal = 0;
    for name in all {
        let left: i64 = ask(connection, &["PTTL", &name]).await.unwrap();
        mortal += usize::from(left > 0);
    }
    assert!([0, 6].contains(&mortal), "{mortal}");
    mortal == 6
}

/// Opens a store in which one key of a conversation has a value that another program has written.
async fn with_foreign(part: &str, words: &[&str]) -> (RedisStore, MultiplexedConnection, String) {
    let prefix = prefix();
    let store = open(RedisOptions::new().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    let name = format!("{prefix}:{{scope/a}}:{part}");
    let mut command = vec![words[0], &name];
    command.extend(&words[1..]);
    ask::<redis::Value>(&mut connection, &command).await.unwrap();
    (store, connection, name)
}

#[tokio::test]
async fn foreign_data_under_the_key_names_of_a_store_is_reported_and_not_changed() {
    for (part, words) in [
        ("head", &["SET", "foreign"][..]),
        ("head", &["HSET", "foreign", "yes"]),
        ("messages", &["SET", "foreign"]),
        ("messages", &["HSET", "1", "left over"]),
        ("tools", &["RPUSH", "foreign"]),
        ("calls", &["SADD", "foreign"]),
        ("pending", &["SET", "foreign"]),
        ("directory", &["SET", "foreign"]),
        ("directory", &["HSET", "foreign", "yes"]),
        ("summaries", &["SET", "foreign"]),
    ] {
        let (store, mut connection, name) = with_foreign(part, words).await;
        let before: Vec<u8> =
            redis::cmd("DUMP").arg(&name).query_async(&mut connection).await.unwrap();
        let (message, record) = call("text");
        let id = MessageId { run: RunId::new(), index: 0 };
        let first = Write::new(key("a"), id, Revision::ABSENT, [Arc::new(message)]);
        let error = append(&store, first.with_tools(vec![record])).await.unwrap_err().source;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{part} {words:?}: {error:?}");
        let after: Vec<u8> =
            redis::cmd("DUMP").arg(&name).query_async(&mut connection).await.unwrap();
        assert_eq!(before, after);
        let of_it = names(&mut connection, &name.replace(&format!(":{part}"), "")).await;
        assert_eq!(of_it, std::slice::from_ref(&name), "no other key was written");
        if part == "head" {
            let error = store.load(&key("a")).await.unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{words:?}: {error:?}");
            let error = store.head(&key("a")).await.unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{words:?}: {error:?}");
            let error = store.delete(&key("a")).await.unwrap_err();
            assert!(matches!(error, StoreError::Corrupt { .. }), "{words:?}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_write_that_finds_foreign_data_in_a_key_changes_nothing() {
    for part in ["messages", "tools", "calls", "pending", "directory"] {
        let prefix = prefix();
        let store = open(options().with_prefix(&prefix)).await;
        let mut connection = raw(&address()).await;
        let at = append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
        let name = format!("{prefix}:{{scope/a}}:{part}");
        ask::<()>(&mut connection, &["SET", &name, "foreign"]).await.unwrap();
        let head = format!("{prefix}:{{scope/a}}:head");
        let before: Vec<String> = ask(&mut connection, &["HGETALL", &head]).await.unwrap();
        let (message, mut record) = call("text");
        record.call.sequence = 2;
        let id = MessageId { run: RunId::new(), index: 0 };
        let second = Write::new(key("a"), id, at, [Arc::new(message)]).with_tools(vec![record]);
        let error = append(&store, second).await.unwrap_err().source;
        assert!(matches!(error, StoreError::Corrupt { .. }), "{part}: {error:?}");
        let after: Vec<String> = ask(&mut connection, &["HGETALL", &head]).await.unwrap();
        assert_eq!(before, after);
        let of_it = names(&mut connection, &format!("{prefix}:{{scope/a}}")).await;
        for name in of_it.iter().filter(|name| !name.ends_with(part)) {
            let kind = type_of(&mut connection, name).await;
            assert_eq!(kind, "hash", "{name}");
            assert!(!name.ends_with("tools"), "no row was written");
        }
    }
}

#[tokio::test]
async fn a_newer_format_and_a_missing_or_undecodable_message_are_reported() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    let at = append(&store, write(&key("a"), Revision::ABSENT, &["a", "b", "c"])).await.unwrap();
    let messages = format!("{prefix}:{{scope/a}}:messages");
    ask::<()>(&mut connection, &["HDEL", &messages, "2"]).await.unwrap();
    let error = store.load(&key("a")).await.unwrap_err().to_string();
    assert!(error.contains("message 2 of conversation scope/a is missing"), "{error}");
    ask::<()>(&mut connection, &["HSET", &messages, "2", "no message"]).await.unwrap();
    let error = store.load(&key("a")).await.unwrap_err();
    assert!(matches!(error, StoreError::Undecodable { sequence: 2, .. }), "{error:?}");

    let head = format!("{prefix}:{{scope/a}}:head");
    ask::<()>(&mut connection, &["HSET", &head, "format", "2"]).await.unwrap();
    for error in [
        store.load(&key("a")).await.unwrap_err(),
        append(&store, write(&key("a"), at, &["d"])).await.unwrap_err().source,
    ] {
        assert!(error.to_string().contains("the newer release"), "{error}");
    }
}

#[tokio::test]
async fn a_prune_removes_the_data_of_pruned_messages_and_begins_another_life() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    let key = key("pruned");
    let (message, record) = call("what it was about");
    let id = MessageId { run: RunId::new(), index: 0 };
    let mut row = record;
    row.status = tower_chat_core::ToolStatus::Ok;
    let first = Write::new(key.clone(), id, Revision::ABSENT, [Arc::new(message)]);
    let at = append(&store, first.with_tools(vec![row])).await.unwrap();
    append(&store, write(&key, at, &["left"])).await.unwrap();
    assert!(everything(&mut connection, &prefix).await.contains("what it was about"));
    let head = format!("{prefix}:{{scope/pruned}}:head");
    let life: String = ask(&mut connection, &["HGET", &head, "life"]).await.unwrap();
    let pruned = store.prune(&key, Keep::Messages(1)).await.unwrap();
    assert_eq!((pruned.runs, pruned.messages), (1, 1));
    assert!(!everything(&mut connection, &prefix).await.contains("what it was about"));
    let names = names(&mut connection, &format!("{prefix}:{{scope/pruned}}")).await;
    assert_eq!(names.len(), 3, "{names:?}");
    let after: String = ask(&mut connection, &["HGET", &head, "life"]).await.unwrap();
    assert_ne!(life, after);
    assert_eq!(texts(&store, &key).await, ["left"]);
}

async fn branches_of(store: &RedisStore, parent: &str) -> Vec<String> {
    let query = ConversationQuery::in_scope("scope").branches_of(key(parent));
    let page = store.conversations(&query).await.unwrap();
    let mut ids: Vec<_> =
        page.conversations.iter().map(|found| found.key.id().to_owned()).collect();
    ids.sort();
    ids
}

#[tokio::test]
async fn deleting_a_branch_removes_it_from_the_index_and_deleting_the_parent_does_not() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    append(&store, write(&key("parent"), Revision::ABSENT, &["a"])).await.unwrap();
    for branch in ["first", "second"] {
        store.fork_at(&key("parent"), None, &key(branch)).await.unwrap();
    }
    let imported = write(&key("third"), Revision::ABSENT, &["a"]);
    let parent = Parent::new(key("parent"), 1);
    append(&store, imported.with_parent(Some(parent.clone()))).await.unwrap();
    assert_eq!(branches_of(&store, "parent").await, ["first", "second", "third"]);
    assert!(store.delete(&key("parent")).await.unwrap());
    assert!(store.delete(&key("second")).await.unwrap());
    assert_eq!(branches_of(&store, "parent").await, ["first", "third"]);
    // A conversation that is created again without a parent is no branch.
    append(&store, write(&key("second"), Revision::ABSENT, &["b"])).await.unwrap();
    assert_eq!(branches_of(&store, "parent").await, ["first", "third"]);
    for branch in ["first", "second", "third"] {
        assert!(store.delete(&key(branch)).await.unwrap());
    }
    assert_eq!(names(&mut connection, &prefix).await, Vec::<String>::new());
}

#[tokio::test]
async fn the_index_keeps_an_expired_branch_until_no_writer_can_create_it() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    append(&store, write(&key("parent"), Revision::ABSENT, &["a"])).await.unwrap();
    store.fork_at(&key("parent"), None, &key("ended")).await.unwrap();
    for part in ["head", "messages", "directory"] {
        let name = format!("{prefix}:{{scope/ended}}:{part}");
        ask::<()>(&mut connection, &["DEL", &name]).await.unwrap();
    }
    let index = format!("{prefix}:{{scope/*}}:branches:parent");
    let member = r#"["scope","ended"]"#;
    assert_eq!(branches_of(&store, "parent").await, [""; 0]);
    let value: String = ask(&mut connection, &["HGET", &index, member]).await.unwrap();
    let (at, token) = value.split_once(' ').unwrap();
    // Two minutes after the addition, no writer can create the branch.
    let earlier = format!("{} {token}", at.parse::<u64>().unwrap() - 120_001);
    ask::<()>(&mut connection, &["HSET", &index, member, &earlier]).await.unwrap();
    assert_eq!(branches_of(&store, "parent").await, [""; 0]);
    assert_eq!(ask::<u64>(&mut connection, &["EXISTS", &index]).await.unwrap(), 0);
}

/// The token of a writer that may still create the branch remains if another conversation with the
/// key of the branch is deleted.
#[tokio::test]
async fn deleting_a_branch_keeps_the_token_of_another_writer() {
    let prefix = prefix();
    let store = open(options().with_prefix(&prefix)).await;
    let mut connection = raw(&address()).await;
    append(&store, write(&key("parent"), Revision::ABSENT, &["a"])).await.unwrap();
    store.fork_at(&key("parent"), None, &key("branch")).await.unwrap();
    let error = store.fork_at(&key("parent"), None, &key("branch")).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error:?}");
    let index = format!("{prefix}:{{scope/*}}:branches:parent");
    let member = r#"["scope","branch"]"#;
    let value: String = ask(&mut connection, &["HGET", &index, member]).await.unwrap();
    let value = format!("{value}another");
    ask::<()>(&mut connection, &["HSET", &index, member, &value]).await.unwrap();
    assert!(store.delete(&key("branch")).await.unwrap());
    assert_eq!(ask::<u64>(&mut connection, &["EXISTS", &index]).await.unwrap(), 1);
    assert_eq!(branches_of(&store, "parent").await, [""; 0]);
}
