//! Tests of the keys of the directory, and of conversations that an older release has created.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use redis::aio::MultiplexedConnection;
use serde_json::json;
use tower_chat_core::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        ConversationQuery, ConversationState, ConversationSummary, Description, Directory,
        HistoryStore, Keep, Lease, LeaseEnd, Maintenance, ModelUsage, Revision, RunActivity,
        StoreError, UsageGrouping, UsageQuery, UsageSum,
        author::{Close, Staged, Write},
    },
};
use tower_chat_redis::RedisStore;

use crate::common::{address, append, ask, key, open, options, prefix, proxy::Proxy, raw, write};

/// Returns the id of a run that was created at the given time, in milliseconds since 1970.
fn run_made_at(milliseconds: u64, random: u8) -> RunId {
    let mut bytes = [random; 16];
    bytes[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
    bytes[6] = 0x70;
    bytes[8] = 0x80;
    RunId::from_bytes(bytes)
}

fn at(milliseconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(milliseconds)
}

fn write_of(key: &ConversationKey, run: RunId, index: u32, at: Revision, text: &str) -> Write {
    Write::new(key.clone(), MessageId { run, index }, at, [Message::user(text).into()])
}

fn staged(store: &RedisStore, close: Option<Close>) -> Staged {
    let holder = store.handle().holder();
    let lease = Lease { attempt: 1, holder, renewed_at: UNIX_EPOCH, until: LeaseEnd::NotHeld };
    Staged { lease, close, service_id: None, partial_text: None }
}

struct Fixture {
    store: RedisStore,
    prefix: String,
    connection: MultiplexedConnection,
}

impl Fixture {
    async fn new() -> Self {
        let prefix = prefix();
        let store = open(options().with_prefix(&prefix)).await;
        Self { store, prefix, connection: raw(&address()).await }
    }

    fn name(&self, id: &str, part: &str) -> String {
        format!("{}:{{scope/{id}}}:{part}", self.prefix)
    }

    /// Deletes the directory entry of a conversation, as if an older release had stored the
    /// conversation.
    async fn age(&mut self, id: &str) {
        let name = self.name(id, "directory");
        assert_eq!(ask::<u64>(&mut self.connection, &["DEL", &name]).await.unwrap(), 1);
    }

    /// Creates a conversation as an older release would, with three messages of two runs.
    async fn old(&mut self, id: &str) -> Revision {
        let (key, runs) = (key(id), [run_made_at(2_000, 1), run_made_at(5_000, 2)]);
        let at = write_of(&key, runs[0], 0, Revision::ABSENT, &format!("{id} a"));
        let at = append(&self.store, at).await.unwrap();
        let at = append(&self.store, write_of(&key, runs[1], 0, at, &format!("{id} b"))).await;
        let last = write_of(&key, runs[1], 1, at.unwrap(), &format!("{id} c"));
        let at = append(&self.store, last).await.unwrap();
        self.age(id).await;
        at
    }

    async fn summary(&self, id: &str) -> ConversationSummary {
        self.store.summary(&key(id)).await.unwrap().unwrap()
    }

    async fn listed(&self) -> Vec<ConversationSummary> {
        let page = self.store.conversations(&ConversationQuery::in_scope("scope")).await.unwrap();
        assert_eq!(page.unreadable, []);
        page.conversations
    }
}

#[tokio::test]
async fn a_conversation_of_an_older_release_gets_its_directory_entry_at_its_first_read() {
    let mut fixture = Fixture::new().await;
    fixture.old("old").await;
    let listed = fixture.listed().await;
    assert_eq!([listed[0].created_at, listed[0].last_active_at], [at(2_000), at(5_000)]);
    assert_eq!((listed[0].messages, listed[0].runs), (3, 2));
    assert_eq!((listed[0].usage, listed[0].description_version), (UsageSum::default(), 0));
    let name = fixture.name("old", "directory");
    assert!(ask::<bool>(&mut fixture.connection, &["EXISTS", &name]).await.unwrap());
    assert_eq!(fixture.summary("old").await, listed[0]);

    fixture.old("its-runs").await;
    let runs = fixture.store.runs(&key("its-runs"), None, 9).await.unwrap();
    let runs: Vec<_> = runs.iter().map(|run| (run.run, run.began_at)).collect();
    assert_eq!(runs, [(run_made_at(5_000, 2), at(5_000)), (run_made_at(2_000, 1), at(2_000))]);
}

#[tokio::test]
async fn a_conversation_of_an_older_release_gets_its_directory_entry_at_its_first_write() {
    let mut fixture = Fixture::new().await;
    let end = fixture.old("written").await;
    let model = ModelUsage::new(Some("m".into()), UsageSum::of_calls(1, 2));
    let more = write_of(&key("written"), run_made_at(5_000, 2), 2, end, "more")
        .with_activity(RunActivity::new(at(9_000)).with_usage([model.clone()]));
    append(&fixture.store, more.clone()).await.unwrap();
    append(&fixture.store, more).await.unwrap();
    let now = fixture.summary("written").await;
    assert_eq!([now.created_at, now.last_active_at], [at(2_000), at(9_000)]);
    assert_eq!((now.messages, now.runs, now.usage), (4, 2, model.sum));

    fixture.old("described").await;
    let description = Description::new().with_title("old and described").unwrap();
    let version = fixture.store.set_description(&key("described"), &description, 0).await;
    assert_eq!(version.unwrap(), 1);
    let now = fixture.summary("described").await;
    assert_eq!((now.runs, now.description), (2, description));

    fixture.old("pruned").await;
    fixture.store.prune(&key("pruned"), Keep::Messages(1)).await.unwrap();
    let now = fixture.summary("pruned").await;
    assert_eq!((now.messages, now.runs, now.created_at), (2, 2, at(2_000)));

    fixture.old("original").await;
    fixture.store.fork_at(&key("original"), None, &key("copy")).await.unwrap();
    assert_eq!(fixture.summary("copy").await.runs, 2);
}

#[tokio::test]
async fn discarding_an_open_run_of_an_older_release_decreases_the_number_of_runs() {
    let mut fixture = Fixture::new().await;
    let end = fixture.old("open").await;
    let run = run_made_at(7_000, 3);
    let first = write_of(&key("open"), run, 0, end, "staged").staged(staged(&fixture.store, None));
    let end = append(&fixture.store, first).await.unwrap();
    for is_read_first in [true, false] {
        fixture.age("open").await;
        if is_read_first {
            let now = fixture.summary("open").await;
            assert_eq!((now.runs, now.messages, now.state), (3, 3, ConversationState::RunOpen));
        }
    }
    let close = Some(Close::Discard { visible: 3 });
    let discard = Write::new(key("open"), MessageId { run, index: 1 }, end, []);
    append(&fixture.store, discard.staged(staged(&fixture.store, close))).await.unwrap();
    let now = fixture.summary("open").await;
    assert_eq!((now.runs, now.messages, now.state), (2, 3, ConversationState::Idle));
}

#[tokio::test]
async fn a_conversation_does_not_use_the_directory_entry_of_an_earlier_one_with_its_id() {
    let mut fixture = Fixture::new().await;
    let usage = ModelUsage::new(Some("of the first".into()), UsageSum::of_calls(7, 0));
    let first = write_of(&key("again"), RunId::new(), 0, Revision::ABSENT, "first")
        .with_activity(RunActivity::new(at(1)).with_usage([usage]));
    append(&fixture.store, first).await.unwrap();
    let description = Description::new().with_title("the first").unwrap();
    fixture.store.set_description(&key("again"), &description, 0).await.unwrap();
    for is_made_by_old in [false, true] {
        let left = fixture.name("again", "directory");
        let aside = format!("{left}:aside");
        ask::<()>(&mut fixture.connection, &["RENAME", &left, &aside]).await.unwrap();
        fixture.store.delete(&key("again")).await.unwrap();
        if is_made_by_old {
            fixture.old("again").await;
        }
        ask::<()>(&mut fixture.connection, &["RENAME", &aside, &left]).await.unwrap();
        if !is_made_by_old {
            assert_eq!(fixture.store.summary(&key("again")).await.unwrap(), None);
            let next = write(&key("again"), Revision::ABSENT, &["next"]);
            append(&fixture.store, next).await.unwrap();
        }
        let now = fixture.summary("again").await;
        assert_eq!((now.usage, now.description_version), (UsageSum::default(), 0));
        assert!(now.description.is_empty() && now.created_at > at(1));
        let runs = fixture.store.runs(&key("again"), None, 9).await.unwrap();
        assert!(runs.iter().all(|run| run.usage.is_empty()), "{runs:?}");
    }
}

#[tokio::test]
async fn a_directory_entry_expires_together_with_its_conversation() {
    let mut fixture = Fixture::new().await;
    let hour = options().with_prefix(&fixture.prefix).with_time_to_live(Duration::from_secs(3600));
    let mortal = open(hour).await;
    append(&mortal, write(&key("ends"), Revision::ABSENT, &["text"])).await.unwrap();
    fixture.age("ends").await;
    assert_eq!(fixture.summary("ends").await.runs, 1);
    let mut ends = Vec::new();
    for part in ["head", "messages", "directory"] {
        let name = fixture.name("ends", part);
        ends.push(ask::<i64>(&mut fixture.connection, &["PEXPIRETIME", &name]).await.unwrap());
    }
    assert!(ends[0] > 0 && ends.iter().all(|end| *end == ends[0]), "{ends:?}");
    let description = Description::new().with_title("no longer life").unwrap();
    fixture.store.set_description(&key("ends"), &description, 0).await.unwrap();
    let name = fixture.name("ends", "directory");
    let after: i64 = ask(&mut fixture.connection, &["PEXPIRETIME", &name]).await.unwrap();
    assert_eq!(after, ends[0]);
}

#[tokio::test]
async fn a_list_reports_unreadable_conversations_and_contains_the_others() {
    let mut fixture = Fixture::new().await;
    for id in ["entry", "numbers", "newer", "whole"] {
        append(&fixture.store, write(&key(id), Revision::ABSENT, &[id])).await.unwrap();
    }
    for (id, part, field, value) in [
        ("entry", "directory", "usage", "0 0 0"),
        ("numbers", "head", "sequence", "9"),
        ("newer", "head", "format", "2"),
    ] {
        let name = fixture.name(id, part);
        ask::<()>(&mut fixture.connection, &["HSET", &name, field, value]).await.unwrap();
    }
    let query = ConversationQuery::in_scope("scope");
    let page = fixture.store.conversations(&query).await.unwrap();
    let mut found: Vec<_> = page.conversations.iter().map(|it| (it.key.id(), it.state)).collect();
    found.sort_by_key(|(id, _)| *id);
    let expected = [("numbers", ConversationState::Damaged), ("whole", ConversationState::Idle)];
    assert_eq!(found, expected);
    let unreadable: Vec<_> = page.unreadable.iter().map(|it| it.key.id()).collect();
    assert_eq!(unreadable, ["entry", "newer"]);
    assert!(page.unreadable[1].reason.contains("newer release"), "{:?}", page.unreadable);
    let error = fixture.store.summary(&key("entry")).await.unwrap_err();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
    let end = fixture.store.head(&key("entry")).await.unwrap().revision;
    let error = append(&fixture.store, write(&key("entry"), end, &["more"])).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Corrupt { .. }), "{error:?}");
    assert_eq!(fixture.store.head(&key("entry")).await.unwrap().revision, end);
}

#[tokio::test]
async fn scopes_of_any_name_are_found() {
    let (prefix, other) = (format!("{}[*]", prefix()), prefix());
    let store = open(options().with_prefix(&prefix)).await;
    let stranger = open(options().with_prefix(&other)).await;
    append(&stranger, write(&key("elsewhere"), Revision::ABSENT, &["x"])).await.unwrap();
    let long = "long".repeat(100);
    let scopes = [long.clone(), format!("{long} too"), "{a}*/~%".to_owned(), String::new()];
    for (time, scope) in (1..).zip(&scopes) {
        let key = ConversationKey::new(&**scope, format!("in {time}"));
        let first = write(&key, Revision::ABSENT, &[scope]);
        append(&store, first.with_activity(RunActivity::new(at(time)))).await.unwrap();
    }
    let page = store.conversations(&ConversationQuery::in_all_scopes()).await.unwrap();
    let found: Vec<_> = page.conversations.iter().rev().map(|it| it.key.scope()).collect();
    assert_eq!(found, scopes);
    // The list of a scope still exists for some time after its conversations have expired.
    let gone = ConversationKey::new(&*long, "in 1");
    let mut connection = raw(&address()).await;
    let half = crate::common::names(&mut connection, &prefix.replace("[*]", "\\[\\*\\]")).await;
    let of_gone = half.iter().filter(|name| name.contains("/in%201}"));
    for name in of_gone {
        ask::<()>(&mut connection, &["DEL", name]).await.unwrap();
    }
    assert_eq!(store.summary(&gone).await.unwrap(), None);
    let page = store.conversations(&ConversationQuery::in_all_scopes()).await.unwrap();
    assert_eq!(page.conversations.len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_description_whose_answer_was_lost_is_set_once_and_each_read_is_one_command() {
    let (proxy, address) = Proxy::start(&address()).await;
    let store = options().with_max_connections(1).connect(&address).await.unwrap();
    let key = key("set once");
    let mut end = Revision::ABSENT;
    for text in ["one", "two", "three"] {
        end = append(&store, write(&key, end, &[text])).await.unwrap();
    }
    let members = json!({"answer": "lost"}).as_object().cloned().unwrap();
    let description = Description::new().with_metadata(members).unwrap();
    store.set_description(&key, &Description::new(), 0).await.unwrap();
    proxy.lose_the_next_answer();
    assert_eq!(store.set_description(&key, &description, 1).await.unwrap(), 2);
    assert_eq!(proxy.lost(), 1);
    let mut asked = 0;
    // The requests of the second pass are counted, because the server has then cached all scripts.
    for _ in 0..2 {
        let before = proxy.asked();
        assert_eq!(store.summary(&key).await.unwrap().unwrap().description, description);
        assert_eq!(store.messages_before(&key, Some(3), 1).await.unwrap().earlier, Some(2));
        assert_eq!(store.runs(&key, None, 9).await.unwrap().len(), 3);
        store.usage(&UsageQuery::of(&key, UsageGrouping::Run)).await.unwrap();
        asked = proxy.asked() - before;
    }
    assert_eq!(asked, 4);
}

#[tokio::test]
async fn a_page_of_long_messages_before_a_position_is_returned_in_order() {
    let store = open(options()).await;
    let mut end = Revision::ABSENT;
    for number in 0..5 {
        let text = format!("{number}{}", "x".repeat(700_000));
        end = append(&store, write(&key("long"), end, &[&text])).await.unwrap();
    }
    let page = store.messages_before(&key("long"), Some(5), 3).await.unwrap();
    let found = page.messages.iter().map(|(at, message)| (*at, message.text()[..1].to_owned()));
    let expected = [(2, "1"), (3, "2"), (4, "3")].map(|(at, text)| (at, text.to_owned()));
    assert_eq!(found.collect::<Vec<_>>(), expected);
    assert_eq!(page.earlier, Some(2));
}
