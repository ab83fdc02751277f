//! Tests of damaged values: every operation succeeds or returns a typed error, no script runs for a
//! long time, and the store deletes nothing because of the damage.

use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tower_chat_core::{
    MessageId, RunId, ToolStatus,
    store::{
        AddedSummary, ConversationQuery, Directory, HistoryStore, HistorySummary, InvocationQuery,
        Journal, Keep, Lease, LeaseEnd, Maintenance, Revision, SequencePosition, StoreError,
        Summaries, ToolCallQueries, UsageGrouping, UsageQuery,
        author::{Close, LoadFrom, Staged, ToolRecord, Write},
    },
};
use tower_chat_redis::RedisStore;

use crate::common::{append, ask, key, open, options, raw, start, texts, write};

/// The maximum duration of an operation, which is too short for a loop over 2^53 numbers.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The kinds of damage, as Redis commands. `{head}`, `{tools}` and similar words are replaced with
/// the names of keys.
const DAMAGES: &[&[&str]] = &[
    &["HSET", "{head}", "sequence", "9007199254740991"],
    &["HSET", "{head}", "sequence", "9007199254740993"],
    &["HSET", "{head}", "sequence", "18446744073709551615"],
    &["HSET", "{head}", "sequence", "1e300"],
    &["HSET", "{head}", "sequence", "-1"],
    &["HSET", "{head}", "sequence", "inf"],
    &["HSET", "{head}", "sequence", "nan"],
    &["HSET", "{head}", "sequence", ""],
    &["HSET", "{head}", "sequence", "5"],
    &["HSET", "{head}", "sequence", "7"],
    &["HSET", "{head}", "pruned", "18446744073709551615"],
    &["HSET", "{head}", "pruned", "-9007199254740991"],
    &["HSET", "{head}", "pruned", "7"],
    &["HSET", "{head}", "pruned", "x"],
    &["HSET", "{head}", "visible", "9007199254740991"],
    &["HSET", "{head}", "visible", "-1"],
    &["HSET", "{head}", "visible", "x"],
    &["HSET", "{head}", "attempt", "4294967295"],
    &["HSET", "{head}", "attempt", "x"],
    &["HSET", "{head}", "incarnation", "x"],
    &["HSET", "{head}", "writes", "x"],
    &["HDEL", "{messages}", "3"],
    &["HDEL", "{messages}", "6"],
    &["HSET", "{messages}", "0", ""],
    &["HSET", "{messages}", "9007199254740992", ""],
    &["ZADD", "{calls}", "inf", "2:0000000000"],
    &["ZADD", "{calls}", "-inf", "2:0000000000"],
    &["ZADD", "{calls}", "1", "18446744073709551615:4294967295"],
    &["ZADD", "{calls}", "1", "x"],
    &["ZADD", "{pending}", "1", "18446744073709551615:4294967295"],
    &["HSET", "{tools}", "2:0000000000", "ok x 1e400 9999999999999999999999:"],
    &["HSET", "{tools}", "2:0000000000", "ok 1 x 4:tool{}"],
    &["HSET", "{tools}", "2:0000000000", ""],
    &["HSET", "{directory}", "usage", "1e300 0 0 0 0 0 -"],
    &["HSET", "{directory}", "usage", ""],
    &["HSET", "{directory}", "runs", "18446744073709551615"],
    &["HSET", "{directory}", "active", "nan"],
    &["HSET", "{directory}", "active", "99999999999999999999"],
    &["HSET", "{directory}", "created", ""],
    &["HSET", "{directory}", "mode", "x"],
    &["HSET", "{directory}", "version", "-1"],
    &["HSET", "{directory}", "description", "{"],
    &["HSET", "{directory}", "0123456789abcdefmodel", "1 2 3"],
    &["HSET", "{directory}", "of", "another"],
    &["HDEL", "{directory}", "created"],
    &["HSET", "{head}", "rewrites", "-1"],
    &["HSET", "{head}", "rewrites", "9007199254740992"],
    &["HSET", "{head}", "load_from", "{}"],
    &["HSET", "{head}", "summary", "x"],
    &["HSET", "{head}", "summary_to", "7"],
    &["HSET", "{head}", "summary_to", "99999999999999999999"],
    &["HDEL", "{head}", "summary_to"],
    &["HSET", "{summaries}", "2", "x"],
    &["HSET", "{summaries}", "2", "7 {}"],
    &["HSET", "{summaries}", "-1", "7 {}"],
    &["DEL", "{summaries}"],
];

fn range() -> LoadFrom {
    LoadFrom { leading: 1, after: 4, applies_to: String::new() }
}

struct Fixture {
    store: RedisStore,
    prefix: String,
    connection: MultiplexedConnection,
    at: Revision,
}

impl Fixture {
    /// Creates two conversations. The tests damage conversation `c`, and the damage must not affect
    /// conversation `d`. `c` has six messages of three runs and one recorded call; if `is_open` is
    /// true, it also has an open run, which is not committed yet.
    async fn new(address: &str, prefix: &str, is_open: bool) -> Self {
        let store = RedisStore::options().with_prefix(prefix).connect(address).await.unwrap();
        let connection = raw(address).await;
        append(&store, write(&key("d"), Revision::ABSENT, &["untouched"])).await.unwrap();
        let mut at = Revision::ABSENT;
        for texts in [["one", "two"], ["three", "four"], ["five", "six"]] {
            let mut record =
                ToolRecord::pending(SequencePosition { sequence: 2, index: 0 }, 0, "id", "tool");
            record.status = ToolStatus::Ok;
            let tools = if at == Revision::ABSENT { vec![record] } else { Vec::new() };
            let next = write(&key("c"), at, &texts).with_tools(tools);
            at = append(&store, next.with_load_from(Some(range().into()))).await.unwrap();
        }
        let last = store.load(&key("c")).await.unwrap().message(2).unwrap().id.unwrap();
        let summary = HistorySummary::new(2, last, "one to two");
        store.add_summary(&key("c"), &summary, 0).await.unwrap();
        if is_open {
            let staged = write(&key("c"), at, &["staged"]).staged(staged(&store, None));
            at = append(&store, staged).await.unwrap();
        }
        Self { store, prefix: prefix.to_owned(), connection, at }
    }

    async fn damage(&mut self, words: &[&str]) {
        let base = format!("{}:{{scope/c}}", self.prefix);
        let names = ["head", "messages", "tools", "calls", "pending", "directory", "summaries"];
        let words: Vec<String> = words
            .iter()
            .map(|word| {
                let found = names.iter().find(|name| *word == format!("{{{name}}}"));
                found.map_or_else(|| (*word).to_owned(), |name| format!("{base}:{name}"))
            })
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        ask::<redis::Value>(&mut self.connection, &words).await.unwrap();
    }

    async fn count(&mut self) -> usize {
        let name = format!("{}:{{scope/c}}:messages", self.prefix);
        ask(&mut self.connection, &["HLEN", &name]).await.unwrap()
    }
}

fn staged(store: &RedisStore, close: Option<Close>) -> Staged {
    let holder = store.handle().holder();
    let lease =
        Lease { attempt: 1, holder, renewed_at: std::time::UNIX_EPOCH, until: LeaseEnd::NotHeld };
    Staged { lease, close, service_id: None, partial_text: None }
}

/// Checks that an operation ends before the timeout, and that its error is a refusal or reports the
/// damage.
async fn check<T: std::fmt::Debug>(
    what: &str,
    outcome: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    let outcome = tokio::time::timeout(TIMEOUT, outcome).await;
    let outcome = outcome.unwrap_or_else(|_| panic!("{what}: the server is busy"));
    if let Err(error) = &outcome {
        let is_known = matches!(
            error,
            StoreError::Corrupt { .. }
                | StoreError::Undecodable { .. }
                | StoreError::Conflict(_)
                | StoreError::UnderWay { .. }
        );
        assert!(is_known, "{what}: {error:?}");
    }
    outcome
}

async fn exercise(address: &str, number: usize, damage: &[&str], is_open: bool) {
    let what = format!("{damage:?}, open: {is_open}");
    let prefix = format!("damage-{number}-{is_open}");
    let mut fixture = Fixture::new(address, &prefix, is_open).await;
    assert!(fixture.count().await >= 6);
    fixture.damage(damage).await;
    let before = fixture.count().await;
    let store = fixture.store.clone();
    let (c, d) = (key("c"), key("d"));
    let head = check(&format!("{what}: head"), store.head(&c)).await;
    drop(check(&format!("{what}: load"), store.load(&c)).await);
    drop(check(&format!("{what}: range"), store.load_from(&c, &range())).await);
    drop(check(&format!("{what}: open run"), store.open_run(&c)).await);
    drop(check(&format!("{what}: open runs"), store.open_runs("scope", None, 9)).await);
    drop(check(&format!("{what}: list"), store.list("scope", None, 9)).await);
    let query = InvocationQuery::in_scope("scope");
    drop(check(&format!("{what}: record"), store.invocations(&query)).await);
    drop(check(&format!("{what}: totals"), store.tool_totals(&query)).await);
    drop(check(&format!("{what}: summary"), store.summary(&c)).await);
    drop(check(&format!("{what}: runs"), store.runs(&c, None, 9)).await);
    drop(check(&format!("{what}: page"), store.messages_before(&c, None, 9)).await);
    let query = UsageQuery::in_scope("scope", UsageGrouping::Run);
    drop(check(&format!("{what}: usage"), store.usage(&query)).await);
    drop(check(&format!("{what}: summaries"), store.history_summaries(&c)).await);
    let last = MessageId { run: RunId::new(), index: 0 };
    let other = HistorySummary::new(4, last, "of other messages");
    let added = check(&format!("{what}: add"), store.add_summary(&c, &other, 0)).await;
    assert!(!added.is_ok_and(|added| added == AddedSummary::Stored), "{what}");
    let page = store.conversations(&ConversationQuery::in_scope("scope")).await.unwrap();
    assert_eq!(page.conversations.len() + page.unreadable.len(), 2, "{what}");
    for keep in [Keep::Messages(0), Keep::Since(std::time::SystemTime::now())] {
        match check(&format!("{what}: prune"), store.prune(&c, keep)).await {
            Ok(pruned) => assert!(pruned.messages <= 4, "{what}: {pruned:?}"),
            Err(_) => assert_eq!(fixture.count().await, before, "{what}"),
        }
    }
    drop(check(&format!("{what}: fork"), store.fork_at(&c, None, &key("copy"))).await);
    if let Some(summary) = head.as_ref().ok().and_then(|head| head.summary) {
        let removal = store.remove_summary(&c, summary.id);
        drop(check(&format!("{what}: remove"), removal).await);
    }
    let found = head.map_or(fixture.at, |head| head.revision);
    for expected in [fixture.at, found] {
        let id = MessageId { run: RunId::new(), index: 9 };
        let next = if is_open {
            let visible = 6;
            let close = Some(Close::Discard { visible });
            Write::new(c.clone(), id, expected, []).staged(staged(&store, close))
        } else {
            Write::new(c.clone(), id, expected, [tower_chat_core::Message::user("next").into()])
        };
        let appended = async { append(&store, next.clone()).await.map_err(|error| error.source) };
        drop(check(&format!("{what}: append"), appended).await);
    }
    let after = write(&d, store.head(&d).await.unwrap().revision, &["goes on"]);
    append(&store, after).await.unwrap();
    assert_eq!(texts(&store, &d).await, ["untouched", "goes on"], "{what}");
    assert!(check(&format!("{what}: delete"), store.delete(&c)).await.unwrap());
}

#[tokio::test]
async fn operations_on_damaged_data_block_no_script_and_change_no_other_conversation() {
    // Other tests would fail if a script blocked their server.
    let server = start(&[]);
    for (number, damage) in DAMAGES.iter().enumerate() {
        for is_open in [false, true] {
            exercise(&server.address(0), number, damage, is_open).await;
        }
    }
}

#[tokio::test]
async fn a_run_index_out_of_range_is_damage() {
    let options = options();
    let store = open(options).await;
    let id = MessageId { run: RunId::new(), index: MessageId::LAST_INDEX };
    let message = || [tower_chat_core::Message::user("the last").into()];
    let last = Write::new(key("c"), id, Revision::ABSENT, message());
    let at = append(&store, last).await.unwrap();
    assert_eq!(texts(&store, &key("c")).await, ["the last"]);
    let id = MessageId { run: id.run, index: u32::MAX };
    let error = append(&store, Write::new(key("c"), id, at, message())).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Backend { retryable: false, .. }), "{error:?}");
}
