//! Tests the commands with the address of each kind of store.

use serde_json::{Value, json};
use tower_chat::{
    ConversationKey, Message, ToolCall, ToolResult,
    message::MessageId,
    run::RunId,
    store::{
        Lease, LeaseEnd, Revision,
        author::{Staged, Write},
    },
};
use tower_chat_repair::extract;

use crate::support::*;

/// Returns a write of a turn with two calls, whose texts all contain `word`.
fn turn(word: &str, key: &ConversationKey, expected: Revision) -> Write {
    let call = |id: &str| ToolCall::new(id, "look", json!({ "at": word, "call": id }).to_string());
    let messages = vec![
        Message::user(format!("{word}: the question")),
        Message::tool_calls([call("c1"), call("c2")]),
        Message::tool_results([
            ToolResult::new("c2", format!("{word}: the second")),
            ToolResult::new("c1", format!("{word}: the first")),
        ]),
        Message::assistant(format!("{word}: the answer")),
    ];
    let before = expected.sequence;
    let records = extract(&messages.iter().cloned().collect(), before + 1, 0);
    let id = MessageId { run: RunId::new(), index: 0 };
    Write::new(key.clone(), id, expected, messages.into_iter().map(Into::into)).with_tools(records)
}

/// Stores two conversations in two scopes. One of the conversations has two turns and an open run.
fn fill(store: &TestStore) {
    store.with(async |history| {
        let (one, other) = (ConversationKey::new("alice", "x"), ConversationKey::new("bob", "y"));
        let first = turn("first", &one, Revision::ABSENT);
        let second = turn("second", &one, first.result());
        let open = MessageId { run: RunId::new(), index: 0 };
        let now = std::time::SystemTime::now();
        // The attempt has ended, and its run has no lease.
        let lease = Lease { attempt: 1, holder: 7, renewed_at: now, until: LeaseEnd::NotHeld };
        let staged = Staged { lease, close: None, service_id: None, partial_text: None };
        let staged =
            Write::new(one, open, second.result(), [Message::user("staged").into()]).staged(staged);
        for write in [first, second, staged, turn("third", &other, Revision::ABSENT)] {
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
    });
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn commands_read_and_change_conversations_in_a_store_of_any_kind() {
    each_store(|store| {
        fill(store);
        let exported = lines(&store.prints(&["export"]));
        let texts = |line: &Value| -> Vec<String> {
            let messages = line["messages"].as_array().unwrap().iter();
            messages.filter_map(|message| Some(message["content"].as_str()?.to_owned())).collect()
        };
        let expected = |words: &[&str]| -> Vec<String> {
            let labels = ["question", "first", "second", "answer"];
            words.iter().flat_map(|word| labels.map(|what| format!("{word}: the {what}"))).collect()
        };
        let ids: Vec<_> = exported.iter().map(|line| (&line["scope"], &line["id"])).collect();
        assert_eq!(ids, [(&json!("alice"), &json!("x")), (&json!("bob"), &json!("y"))]);
        assert_eq!(texts(&exported[0]), expected(&["first", "second"]));
        assert_eq!(texts(&exported[1]), expected(&["third"]));
        let of_bob = lines(&store.prints(&["export", "--scope", "bob"]));
        assert_eq!(of_bob, exported[1..]);

        let tools: Value = serde_json::from_str(&store.prints(&["tools", "--json"])).unwrap();
        assert_eq!((&tools["total"], &tools["tools"][0]["calls"]), (&json!(6), &json!(6)));

        let open = lines(&store.prints(&["runs", "--json"]));
        let of: Vec<_> = open.iter().map(|run| (&run["scope"], &run["conversation"])).collect();
        assert_eq!(of, [(&json!("alice"), &json!("x"))]);
        let refused = store.run(&["prune", "--keep-messages", "1", "--scope", "alice"]);
        assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
        assert!(stdout(&refused).contains("skipped: run"), "{}", stdout(&refused));
        assert!(store.prints(&["recover", "--end", "discard"]).ends_with(" discarded\n"));
        assert_eq!(store.prints(&["runs"]), "no open runs\n");

        let pruned = store.prints(&["prune", "--keep-messages", "1"]);
        assert!(pruned.ends_with("deleted: 4 messages in 1 run of 1 conversation\n"), "{pruned}");
        let exported = lines(&store.prints(&["export"]));
        assert_eq!(texts(&exported[0]), expected(&["second"]));
        assert_eq!(texts(&exported[1]), expected(&["third"]));
    });
}

/// Each command uses the only connection of the pooler, on which the prepared statements of the
/// previous command still exist.
#[test]
fn a_store_behind_a_transaction_pooler_is_used_without_prepared_statements() {
    if TestStore::is_missing(Kind::Postgres) {
        return;
    }
    let store = TestStore::new(Kind::Postgres);
    let Some((_pooler, address)) = store.behind_a_pooler() else { return };
    let whole = format!("{address}&prepared_statements=false");
    let prints = |arguments: &[&str]| {
        let output = run(&[arguments, &["--store", &whole]].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", stderr(&output));
        stdout(&output)
    };
    assert!(prints(&["migrate"]).ends_with("the tables were created\n"));
    assert_eq!(prints(&["migrate"]), "the tables are up to date\n");
    let file = TestStore::new(Kind::Sqlite);
    file.with(async |history| {
        let key = ConversationKey::new("carol", "pooled");
        let write = turn("fourth", &key, Revision::ABSENT);
        history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
    });
    for _ in 0..2 {
        file.prints(&["copy", "--to", &whole]);
        assert_eq!(prints(&["export"]), file.prints(&["export"]));
    }
    let checked = run(&["doctor", "--store", &whole]);
    assert_eq!(checked.status.code(), Some(1), "{}", stderr(&checked));
    assert!(stdout(&checked).contains("ok       a sample: read 4 messages\n"));
}

#[test]
fn vacuum_and_backup_are_refused_for_a_store_on_a_server() {
    each_store(|store| {
        let is_file = matches!(store.kind, Kind::Sqlite | Kind::Encrypted);
        fill(store);
        let copy = store.folder().join("copy.db").display().to_string();
        for arguments in [&["vacuum"][..], &["backup", "--to", &copy]] {
            let output = store.run(arguments);
            assert_eq!(output.status.code(), Some(if is_file { 0 } else { 2 }), "{arguments:?}");
            assert_eq!(stderr(&output).contains("only a store in a file"), !is_file);
        }
    });
}

#[test]
fn the_error_of_an_unreachable_server_names_the_server_and_the_cause() {
    let port = tower_chat_testkit::server::free_port();
    for (address, what) in [
        (format!("postgres://127.0.0.1:{port}/x?connect_timeout=2"), "PostgreSQL server cannot be"),
        (format!("redis://127.0.0.1:{port}/0"), "Redis server cannot be reached"),
        ("postgres://127.0.0.1:notaport/x".to_owned(), "cannot be parsed"),
    ] {
        let output = run(&["runs", "--store", &address]);
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
        assert!(stderr(&output).contains(what), "{}", stderr(&output));
    }
}

#[test]
fn invalid_keys_are_refused_and_never_printed() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let output = store.command(&["export"]).env("TOWER_CHAT_KEYS", "test:abc123").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let printed = stderr(&output);
    assert!(printed.contains("TOWER_CHAT_KEYS") && printed.contains("key 1 is not"), "{printed}");
    assert!(!printed.contains("abc123"), "{printed}");
}
