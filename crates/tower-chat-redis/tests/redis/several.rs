//! Tests of several processes that use the same conversation, and of long conversations.

mod damaged;

use std::{
    env,
    process::{Command, Stdio},
    sync::Arc,
    time::Instant,
};

use crate::common::{
    address, append, ask, key, names, open, options, prefix, proxy::Proxy, raw, texts, write,
};
use redis::aio::MultiplexedConnection;
use tower_chat_core::{
    Message, MessageId, RunId, ToolCall, ToolStatus,
    store::{
        ConversationQuery, Directory, HistoryStore, InvocationQuery, Keep, Maintenance, Revision,
        SequencePosition, StoreError, ToolCallQueries,
        author::{ToolRecord, Write},
    },
};
use tower_chat_redis::RedisStore;

const ADDRESS: &str = "TOWER_CHAT_REDIS_ADDRESS";
const PREFIX: &str = "TOWER_CHAT_REDIS_PREFIX";
const NAME: &str = "TOWER_CHAT_REDIS_NAME";
const PROCESSES: usize = 4;
const WRITES: usize = 25;

#[tokio::test]
async fn every_write_of_processes_that_race_on_one_conversation_is_stored_exactly_once() {
    let prefix = prefix();
    let children: Vec<_> = (0..PROCESSES)
        .map(|number| {
            Command::new(env::current_exe().unwrap())
                .args([
                    "--exact",
                    "several::child_appends_to_the_shared_conversation",
                    "--ignored",
                    "--nocapture",
                ])
                .env(ADDRESS, address())
                .env(PREFIX, &prefix)
                .env(NAME, number.to_string())
                .stdout(Stdio::null())
                .spawn()
                .unwrap()
        })
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    let store = open(RedisStore::options().with_prefix(&prefix)).await;
    let all = texts(&store, &key("race")).await;
    assert_eq!(all.len(), PROCESSES * WRITES);
    for process in 0..PROCESSES {
        let begin = format!("{process}.");
        let own: Vec<_> = all.iter().filter(|text| text.starts_with(&begin)).collect();
        let expected: Vec<_> = (0..WRITES).map(|number| format!("{process}.{number}")).collect();
        assert_eq!(own, expected.iter().collect::<Vec<_>>());
    }
}

#[tokio::test]
#[ignore = "the child of another test"]
async fn child_appends_to_the_shared_conversation() {
    let (Ok(address), Ok(prefix), Ok(name)) = (env::var(ADDRESS), env::var(PREFIX), env::var(NAME))
    else {
        return;
    };
    let store = RedisStore::options().with_prefix(prefix).connect(&address).await.unwrap();
    let key = key("race");
    let mut at = store.head(&key).await.unwrap().revision;
    for number in 0..WRITES {
        loop {
            match append(&store, write(&key, at, &[&format!("{name}.{number}")])).await {
                Ok(after) => {
                    at = after;
                    break;
                }
                Err(error) => match error.source {
                    StoreError::Conflict(conflict) => at = conflict.found,
                    other => panic!("{other:?}"),
                },
            }
        }
    }
}

/// Returns the number of commands that the server has executed, including the commands that scripts
/// call.
async fn commands(connection: &mut MultiplexedConnection) -> u64 {
    let answer: String = ask(connection, &["INFO", "commandstats"]).await.unwrap();
    let own = ["cmdstat_info", "cmdstat_ping"];
    let lines = answer.lines().filter(|line| !own.iter().any(|own| line.starts_with(own)));
    let calls = lines.filter_map(|line| line.split_once("calls=")?.1.split(',').next());
    calls.map(|calls| calls.parse::<u64>().unwrap()).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_thousand_messages_are_appended_to_loaded_and_copied() {
    const LONG: usize = 100_000;
    const AT_ONCE: usize = 5_000;
    let server = crate::common::start(&[]);
    let prefix = prefix();
    let options = options().with_prefix(&prefix).with_max_connections(1);
    let store = options.connect(&server.address(0)).await.unwrap();
    let mut connection = raw(&server.address(0)).await;
    let (short, long) = (key("short"), key("long"));
    let mut at_short = append(&store, write(&short, Revision::ABSENT, &["0"])).await.unwrap();
    let mut at = Revision::ABSENT;
    for part in 0..LONG / AT_ONCE {
        let texts: Vec<_> =
            (0..AT_ONCE).map(|number| (part * AT_ONCE + number).to_string()).collect();
        let texts: Vec<_> = texts.iter().map(String::as_str).collect();
        at = append(&store, write(&long, at, &texts)).await.unwrap();
    }
    let mut done = Vec::new();
    let begun = Instant::now();
    for (key, at) in [(&short, &mut at_short), (&long, &mut at)] {
        let before = commands(&mut connection).await;
        for _ in 0..3 {
            *at = append(&store, write(key, *at, &["more", "and more"])).await.unwrap();
        }
        done.push(commands(&mut connection).await - before);
    }
    // The store also reads the mark that records whether it contains sealed data, whenever the
    // cached mark is older than a second.
    let checks = 1 + begun.elapsed().as_secs();
    assert!(
        done[0].abs_diff(done[1]) <= checks,
        "an append costs the same at any length: {done:?}"
    );

    let loaded = texts(&store, &long).await;
    assert_eq!(loaded.len(), LONG + 6);
    assert!(loaded.iter().take(LONG).enumerate().all(|(number, text)| *text == number.to_string()));
    let copied = store.fork_at(&long, None, &key("copy")).await.unwrap();
    assert_eq!(copied.position as usize, LONG + 6);
    assert!(texts(&store, &key("copy")).await == loaded, "the copy differs");
    let of_copy = names(&mut connection, &format!("{prefix}:{{scope/copy}}")).await;
    assert_eq!(of_copy.len(), 3, "no temporary key remains: {of_copy:?}");
    let pruned = store.prune(&long, Keep::Messages(10)).await.unwrap();
    assert_eq!((pruned.messages, pruned.runs), ((LONG - AT_ONCE) as u64, 19));
    assert!(texts(&store, &long).await == loaded[LONG - AT_ONCE..], "other messages remain");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_of_a_record_with_several_pages_returns_all_calls_in_order() {
    const MESSAGES: u64 = 30;
    const CALLS: u32 = 4;
    let store = open(options()).await;
    let key = key("pages");
    let long = "x".repeat(100_000);
    let call = || ToolCall::new("id", "tool", "{}");
    let messages = (0..MESSAGES).map(|_| Arc::new(Message::tool_calls((0..CALLS).map(|_| call()))));
    let rows = (1..=MESSAGES)
        .flat_map(|sequence| (0..CALLS).map(move |index| SequencePosition { sequence, index }));
    let rows = rows.map(|position| {
        let mut row = ToolRecord::pending(position, 0, "id", "tool");
        row.error = Some(long.clone());
        row
    });
    let id = MessageId { run: RunId::new(), index: 0 };
    let first = Write::new(key.clone(), id, Revision::ABSENT, messages);
    append(&store, first.with_tools(rows.collect())).await.unwrap();
    let expected: Vec<_> = (1..=MESSAGES)
        .flat_map(|sequence| (0..CALLS).map(move |index| (sequence, index)))
        .collect();
    let of_list = InvocationQuery::of(&key).in_messages(1..=MESSAGES);
    for query in [InvocationQuery::of(&key), InvocationQuery::in_scope("scope"), of_list] {
        for limit in [usize::MAX, 70] {
            let found = store.invocations(&query.clone().with_limit(limit)).await.unwrap().found;
            let positions: Vec<_> =
                found.iter().map(|(_, call)| (call.sequence, call.sequence_index)).collect();
            assert_eq!(positions, expected[..limit.min(expected.len())], "{query:?}");
        }
        let totals = store.tool_totals(&query).await.unwrap();
        assert_eq!(totals[0].calls, MESSAGES * u64::from(CALLS));
    }
    store.fork_at(&key, None, &crate::common::key("copy")).await.unwrap();
    let copied =
        store.invocations(&InvocationQuery::of(&crate::common::key("copy"))).await.unwrap();
    assert_eq!(copied.found.len(), expected.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_query_of_the_record_starts_again_after_a_prune_between_two_of_its_pages() {
    const MESSAGES: u64 = 20;
    let options = options();
    let store = open(options.clone()).await;
    let (proxy, address) = Proxy::start(&address()).await;
    let reading = options.connect(&address).await.unwrap();
    let key = key("pruned meanwhile");
    let called = |sequence| {
        let mut row = ToolRecord::pending(SequencePosition { sequence, index: 0 }, 0, "id", "tool");
        row.status = ToolStatus::Error;
        row.error = Some("x".repeat(100_000));
        (Arc::new(Message::tool_calls([ToolCall::new("id", "tool", "{}")])), row)
    };
    let mut at = Revision::ABSENT;
    for run in [1..=1, 2..=MESSAGES] {
        let (messages, rows): (Vec<_>, Vec<_>) = run.map(called).unzip();
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key.clone(), id, at, messages).with_tools(rows);
        at = append(&store, write).await.unwrap();
    }
    proxy.hold_the_question_after(1);
    let query = InvocationQuery::of(&key);
    let (found, ()) = tokio::join!(reading.invocations(&query), async {
        proxy.held().await;
        assert_eq!(store.prune(&key, Keep::Messages(1)).await.unwrap().messages, 1);
        proxy.let_go();
    });
    let found = found.unwrap().found.into_iter().map(|(_, call)| call.sequence);
    assert_eq!(found.collect::<Vec<_>>(), (2..=MESSAGES).collect::<Vec<_>>());
}

/// Opens two stores with the same prefix. The second store goes through a proxy. The server has
/// already cached the scripts for a fork.
async fn forking_through_a_proxy() -> (String, RedisStore, Proxy, RedisStore) {
    let prefix = prefix();
    let options = options().with_prefix(&prefix);
    let store = open(options.clone()).await;
    let (proxy, address) = Proxy::start(&address()).await;
    let forking = options.connect(&address).await.unwrap();
    append(&store, write(&key("first"), Revision::ABSENT, &["a"])).await.unwrap();
    forking.fork_at(&key("first"), None, &key("first copy")).await.unwrap();
    (prefix, store, proxy, forking)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_whose_target_already_exists_fails_and_leaves_no_keys() {
    let (prefix, store, proxy, forking) = forking_through_a_proxy().await;
    let mut connection = raw(&address()).await;
    append(&store, write(&key("from"), Revision::ABSENT, &["a"])).await.unwrap();
    append(&store, write(&key("there"), Revision::ABSENT, &["b"])).await.unwrap();
    // The tokens of processes that create a conversation expire later.
    let made = format!("{prefix}:{{scope/*}}:made");
    let left = async |connection: &mut MultiplexedConnection| {
        let mut names = names(connection, &prefix).await;
        names.retain(|name| !name.starts_with(&made));
        names.sort();
        names
    };
    let mut expected = left(&mut connection).await;
    let asked = proxy.asked();
    let error = forking.fork_at(&key("from"), None, &key("there")).await.unwrap_err();
    assert!(matches!(error, StoreError::Exists { .. }), "{error:?}");
    // The last of these requests checks whether the target exists; the others read the mark of
    // sealed data.
    let about_the_store = proxy.asked() - asked - 1;
    assert!(about_the_store <= 2, "the check precedes the copy");

    // A fork sends these requests: the check of the target, three reads of the original, the write
    // of the temporary keys, the additions to the list and to the index of branches, and the rename.
    // The proxy delays the rename.
    proxy.hold_the_question_after(about_the_store + 7);
    let (from, meanwhile) = (key("from"), key("meanwhile"));
    let (forked, ()) = tokio::join!(forking.fork_at(&from, None, &meanwhile), async {
        proxy.held().await;
        assert_eq!(names(&mut connection, &format!("{prefix}:*copy")).await.len(), 1);
        append(&store, write(&meanwhile, Revision::ABSENT, &["c"])).await.unwrap();
        proxy.let_go();
    });
    assert!(matches!(forked, Err(StoreError::Exists { .. })), "{forked:?}");
    let parts = ["head", "messages", "directory"];
    expected.extend(parts.map(|part| format!("{prefix}:{{scope/meanwhile}}:{part}")));
    expected.sort();
    assert_eq!(left(&mut connection).await, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_branches_of_a_conversation_are_found_without_reading_other_conversations() {
    let (_, store, proxy, other) = forking_through_a_proxy().await;
    let parent = key("parent");
    append(&store, write(&parent, Revision::ABSENT, &["a"])).await.unwrap();
    for number in 0..20 {
        let key = key(&format!("other {number}"));
        append(&store, write(&key, Revision::ABSENT, &["b"])).await.unwrap();
    }
    store.fork_at(&parent, None, &key("branch")).await.unwrap();
    let branches = ConversationQuery::in_scope("scope").branches_of(parent);
    let asked = proxy.asked();
    let page = other.conversations(&branches).await.unwrap();
    assert_eq!(page.conversations.len(), 1);
    // One request reads the index, and one request reads the entry of the branch. The server may
    // request the code of a script.
    assert!(proxy.asked() - asked <= 3, "{}", proxy.asked() - asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fork_starts_again_if_its_source_is_replaced_while_the_fork_reads() {
    let (_, store, proxy, forking) = forking_through_a_proxy().await;
    let from = key("from");
    append(&store, write(&from, Revision::ABSENT, &["old"])).await.unwrap();
    // The fork has read the messages of the original, but not its record. The test now replaces the
    // original with another conversation that has the same number of writes.
    proxy.hold_the_question_after(3);
    let copy = key("copy");
    let (forked, ()) = tokio::join!(forking.fork_at(&from, None, &copy), async {
        proxy.held().await;
        store.delete(&from).await.unwrap();
        append(&store, write(&from, Revision::ABSENT, &["new"])).await.unwrap();
        proxy.let_go();
    });
    forked.unwrap();
    assert_eq!(texts(&store, &copy).await, ["new"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_of_64_megabytes_is_returned_whole() {
    let store = open(options()).await;
    let key = key("large");
    let text = "0123456789abcdef".repeat(4 * 1024 * 1024);
    let at = append(&store, write(&key, Revision::ABSENT, &[&text, "small"])).await.unwrap();
    append(&store, write(&key, at, &["last"])).await.unwrap();
    let loaded = texts(&store, &key).await;
    assert!(loaded.len() == 3 && loaded[0] == text, "the message has changed");
    assert!(store.delete(&key).await.unwrap());
}
