//! Tests `tower-chat doctor`.

use std::{fs, path::Path, process::Output, time::SystemTime};

use serde_json::Value;
use tower_chat::{
    ConversationKey, HistoryStore, Message,
    message::MessageId,
    run::RunId,
    store::{
        Lease, LeaseEnd, Revision,
        author::{Staged, Write},
    },
};
use tower_chat_testkit::{server::RedisServer, skip};

use crate::support::*;

/// Returns the exit code and the findings. Findings other than ok must have advice.
fn findings(store: &TestStore) -> (i32, Vec<(String, String, String)>) {
    findings_of(&store.run(&["doctor", "--json"]))
}

fn findings_of(output: &Output) -> (i32, Vec<(String, String, String)>) {
    let code = output.status.code().unwrap();
    assert!(code < 2, "{}", stderr(output));
    let text = stdout(output);
    let found = text.lines().map(|line| {
        let finding: Value = serde_json::from_str(line).unwrap();
        let of = |name: &str| finding[name].as_str().unwrap_or_default().to_owned();
        assert_eq!(of("level") == "ok", finding["advice"].is_null(), "{line}");
        (of("level"), of("check"), of("found"))
    });
    let found: Vec<_> = found.collect();
    let is_asked = found.iter().any(|(level, _, _)| level != "ok");
    assert_eq!(code == 1, is_asked, "{text}");
    (code, found)
}

#[track_caller]
fn assert_found(found: &[(String, String, String)], level: &str, check: &str, what: &str) {
    let of_check = found.iter().find(|(_, name, _)| name == check);
    let (found_level, _, found_what) = of_check.unwrap_or_else(|| panic!("{check}: {found:?}"));
    assert_eq!((found_level.as_str(), found_what.as_str()), (level, what), "{check}");
}

/// Stores two conversations, one of which has an open run without a lease.
fn fill(store: &TestStore) {
    store.with(|opened| async move {
        for (id, is_open) in [("complete", false), ("left", true)] {
            let key = ConversationKey::new("alice", id);
            let first = MessageId { run: RunId::new(), index: 0 };
            let message = Message::user(format!("the question of {id}"));
            let mut write = Write::new(key, first, Revision::ABSENT, [message.into()]);
            if is_open {
                let renewed_at = SystemTime::now();
                let lease = Lease { attempt: 1, holder: 7, renewed_at, until: LeaseEnd::NotHeld };
                let staged = Staged { lease, close: None, service_id: None, partial_text: None };
                write = write.staged(staged);
            }
            opened.append(opened.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
    });
}

#[test]
fn doctor_reports_the_open_runs_and_the_waiting_conversations_of_a_store() {
    each_store(|store| {
        fill(store);
        let (code, found) = findings(store);
        assert_eq!(code, 1);
        assert_found(&found, "warning", "open runs without a process", "1");
        assert_found(&found, "ok", "conversations that wait for approval", "0");
        let keys = if store.kind == Kind::Encrypted { "set" } else { "not set" };
        assert_found(&found, "ok", "keys of an encrypted store", keys);
        let server = match store.kind {
            Kind::Sqlite | Kind::Encrypted => "quick check",
            Kind::Postgres => "fsync",
            Kind::Redis => "appendonly",
        };
        assert!(found.iter().any(|(_, check, _)| check == server), "{found:?}");

        store.prints(&["recover", "--end", "discard"]);
        let (_, found) = findings(store);
        assert_found(&found, "ok", "open runs without a process", "0");
        let (level, _, read) = found.iter().find(|(_, check, _)| check == "a sample").unwrap();
        assert!(level == "ok" && read.starts_with("read "), "{level} {read}");
        let output = store.run(&["doctor"]);
        assert!(stdout(&output).contains("ok       open runs without a process: 0\n"));
    });
}

#[test]
fn doctor_accepts_a_current_file_and_reports_a_file_of_an_older_version() {
    let store = TestStore::new(Kind::Sqlite);
    store.with(|_| async {});
    assert_eq!(findings(&store).0, 0);
    let fixtures =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tower-chat-sqlite/tests/fixtures");
    for version in 1..7 {
        let store = TestStore::new(Kind::Sqlite);
        let path = store.folder().join("chat.db");
        fs::copy(fixtures.join(format!("v{version}.db")), &path).unwrap();
        let (code, found) = findings(&store);
        assert_eq!(code, 1);
        assert_found(&found, "warning", "schema", &format!("version {version} of 7"));
    }
    let missing = TestStore::new(Kind::Sqlite).run(&["doctor"]);
    assert_eq!(missing.status.code(), Some(2));
}

#[test]
fn doctor_reports_a_damaged_file_as_a_problem() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    let path = store.folder().join("chat.db");
    let mut bytes = fs::read(&path).unwrap();
    // Damages the header of a page that SQLite does not read when it opens the file.
    let root = "SELECT rootpage FROM sqlite_schema WHERE name = 'run_usage'";
    let connection = rusqlite::Connection::open(&path).unwrap();
    let root: u32 = connection.query_row(root, [], |row| row.get(0)).unwrap();
    drop(connection);
    let page = (root as usize - 1) * 4096;
    bytes[page..page + 8].fill(0x5a);
    fs::write(&path, bytes).unwrap();
    let (code, found) = findings(&store);
    let check = found.iter().find(|(_, check, _)| check == "quick check").unwrap();
    assert_eq!((code, check.0.as_str()), (1, "problem"), "{found:?}");
}

#[test]
fn doctor_reports_a_damaged_description_as_a_problem() {
    for kind in [Kind::Sqlite, Kind::Encrypted] {
        let store = TestStore::new(kind);
        fill(&store);
        let damage =
            "UPDATE conversations SET description_version = 1, metadata = '{\"sealed\": \"tower'";
        assert!(execute(&store.path(), damage) > 0);
        let (code, found) = findings(&store);
        assert_eq!(code, 1);
        let (level, _, what) = found.iter().find(|(_, check, _)| check == "the directory").unwrap();
        assert_eq!(level, "problem", "{kind:?}");
        assert!(what.contains("cannot be read"), "{what}");
    }
}

#[test]
fn doctor_reports_missing_tables_as_a_problem_and_does_not_create_them() {
    if TestStore::is_missing(Kind::Postgres) {
        return;
    }
    let store = TestStore::new(Kind::Postgres);
    for _ in 0..2 {
        let (code, found) = findings(&store);
        assert_eq!(code, 1);
        assert_found(&found, "problem", "tables", "there are none");
    }
}

#[test]
fn doctor_names_the_variables_of_keys_and_never_prints_a_key() {
    let store = TestStore::new(Kind::Sqlite);
    store.with(|_| async {});
    let mut command = store.command(&["doctor"]);
    command.env("GROQ_API_KEY", "gsk-canary-5").env_remove("COHERE_API_KEY");
    let output = command.output().unwrap();
    let printed = stdout(&output);
    assert!(!printed.contains("canary"), "{printed}");
    let line =
        |begins: &str| printed.lines().find(|line| line.contains(begins)).unwrap().to_owned();
    assert!(line("keys of providers that are set").contains("GROQ_API_KEY"));
    assert!(line("keys of providers that are not set").contains("COHERE_API_KEY"));
}

#[test]
fn doctor_reports_a_wrong_key_of_an_encrypted_store_as_a_problem() {
    let store = TestStore::new(Kind::Encrypted);
    store.with(|opened| async move {
        let key = ConversationKey::new("alice", "sealed");
        let first = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key, first, Revision::ABSENT, [Message::user("sealed").into()]);
        opened.append(opened.reserve().await.unwrap(), vec![write]).await.unwrap();
    });
    let mut command = store.command(&["doctor"]);
    command.env("TOWER_CHAT_KEYS", format!("test:{}", "2e".repeat(32)));
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("problem"), "{}", stdout(&output));
    assert!(!stdout(&output).contains("2e2e"), "{}", stdout(&output));
}

/// With `aof-load-truncated yes`, the default of Redis, only a part of a transaction may be stored
/// after a power loss: see `docs/scaling.md`.
#[test]
fn doctor_warns_if_redis_reports_that_it_loads_a_truncated_append_only_file() {
    const CHECK: &str = "aof-load-truncated";
    let server = match RedisServer::start() {
        Ok(server) => server,
        Err(missing) => return skip("what doctor says of an append-only file", missing),
    };
    let address = server.address(0);
    let ask = |command: &str| {
        let mut words = command.split_whitespace();
        let mut command = redis::cmd(words.next().unwrap());
        for word in words {
            command.arg(word);
        }
        let client = redis::Client::open(address.as_str()).unwrap();
        command.exec(&mut client.get_connection().unwrap()).unwrap();
    };
    let found_at = |address: &str| {
        let output = tower_chat(&["doctor", "--json", "--store", address]).output().unwrap();
        findings_of(&output).1
    };
    ask("CONFIG SET aof-load-truncated yes");
    assert_found(&found_at(&address), "warning", CHECK, "yes");
    ask("ACL SETUSER limited on >words ~* &* +@all -config");
    let limited = address.replace("//", "//limited:words@");
    assert_found(&found_at(&limited), "ok", CHECK, "unknown");
    ask("CONFIG SET appendonly no");
    let found = found_at(&address);
    assert!(found.iter().all(|(_, check, _)| check != CHECK), "{found:?}");
    ask("CONFIG SET appendonly yes");
    ask("CONFIG SET aof-load-truncated no");
    assert_found(&found_at(&address), "ok", CHECK, "no");
}
