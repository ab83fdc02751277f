//! Tests that commands do not change an encrypted store without its keys, or a store of a newer
//! version.

use std::time::SystemTime;

use tower_chat::{
    ConversationKey, HistoryStore, Message,
    message::MessageId,
    run::RunId,
    store::{
        Description, Directory, Lease, LeaseEnd, Revision,
        author::{Staged, Write},
    },
};

use crate::support::*;

/// The commands that do not write to the store.
const READING: [&str; 12] = [
    "list",
    "show",
    "usage",
    "export",
    "tools",
    "verify",
    "runs",
    "backup",
    "doctor",
    "completions",
    "help",
    // The only write of `serve` is to end open runs in the same way as `recover`.
    "serve",
];

/// The commands that write. `TO` is a store, `OURS` an export, and `THEIRS` a foreign file.
const WRITING: [&[&str]; 13] = [
    &[
        "chat",
        "talk",
        "--provider",
        "openai",
        "--base-url",
        "SERVER",
        "--model",
        "m",
        "--scope",
        "play",
    ],
    &["import", "OURS"],
    &["import", "--from", "openai-chat", "--scope", "play", "THEIRS"],
    &["copy", "--to", "TO"],
    &["delete", "play", "talk"],
    &["delete", "--scope", "play", "--all"],
    &["fork", "play", "talk", "copy"],
    &["recover", "--end", "commit", "--force"],
    &["recover", "--end", "discard", "--force"],
    &["repair"],
    &["prune", "--keep-messages", "1"],
    &["migrate"],
    &["vacuum"],
];

fn key(id: &str) -> ConversationKey {
    ConversationKey::new("play", id)
}

fn write(key: &ConversationKey, run: RunId, expected: Revision, text: &str) -> Write {
    let id = MessageId { run, index: 0 };
    Write::new(key.clone(), id, expected, [Message::user(text).into()])
}

/// Stores a conversation with three runs, and a conversation with an open run.
fn fill(store: &TestStore) {
    store.with(async |history| {
        let append = async |write: Write| {
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap()
        };
        let mut at = Revision::ABSENT;
        for text in ["one", "two", "three"] {
            at = append(write(&key("talk"), RunId::new(), at, text)).await;
        }
        let description = Description::new().with_title("A talk").unwrap();
        history.set_description(&key("talk"), &description, 0).await.unwrap();
        let at = append(write(&key("open"), RunId::new(), Revision::ABSENT, "seen")).await;
        let lease = Lease {
            attempt: 1,
            holder: 1,
            renewed_at: SystemTime::now(),
            until: LeaseEnd::NotHeld,
        };
        let staged = Staged { lease, close: None, service_id: None, partial_text: None };
        let opens = write(&key("open"), RunId::new(), at, "staged");
        append(opens.staged(staged).beginning_attempt()).await;
    });
}

/// Runs a command on the store without the store's keys. Returns the exit code and the output.
fn run_without_keys(store: &TestStore, command: &[&str]) -> (Option<i32>, String) {
    let source = TestStore::new(Kind::Sqlite);
    source.with(async |history| {
        let write = write(&key("new"), RunId::new(), Revision::ABSENT, "of another store");
        history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
    });
    let server = ModelServer::start([Reply::text(&["An answer."])]);
    let file = |name: &str, content: &str| {
        let path = source.folder().join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    };
    let ours = source.prints(&["export", "--format", "tower-chat"]);
    let messages = r#"{"messages": [{"role": "user", "content": "hi"}]}"#;
    let arguments: Vec<String> = command
        .iter()
        .map(|argument| match *argument {
            "OURS" => file("ours.jsonl", &ours),
            "THEIRS" => file("theirs.json", messages),
            "SERVER" => format!("{}/v1", server.url),
            "TO" => store.url(),
            other => other.to_owned(),
        })
        .collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut process = match command.first() {
        Some(&"copy") => source.command(&arguments),
        _ => store.command(&arguments),
    };
    process.env_remove("TOWER_CHAT_KEYS").env("OPENAI_API_KEY", "sk-test");
    let ended = run_with_input(process, "hi\n");
    (ended.code, format!("{}{}", ended.stdout, ended.stderr))
}

/// Fails if a command of the help is in neither of the lists.
#[test]
fn every_command_is_listed_as_writing_or_as_not_writing() {
    let help = stdout(&run(&["--help"]));
    let commands = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let commands = commands.take_while(|line| !line.is_empty());
    let names = commands.filter_map(|line| {
        let name = line.strip_prefix("  ")?.split(' ').next()?;
        (!name.is_empty()).then_some(name)
    });
    let mut count = 0;
    for name in names {
        count += 1;
        let writes = WRITING.iter().any(|command| command[0] == name);
        assert_ne!(writes, READING.contains(&name), "{name}");
    }
    assert!(count > 20, "{help}");
}

fn assert_unchanged(store: &TestStore, before: &[String], command: &[&str], printed: &str) {
    let now = store.contents();
    let new: Vec<_> = now.iter().filter(|entry| !before.contains(entry)).collect();
    let gone: Vec<_> = before.iter().filter(|entry| !now.contains(entry)).collect();
    assert!(new.is_empty() && gone.is_empty(), "{command:?}: {printed} new {new:?} gone {gone:?}");
}

/// Asserts that no command that writes changes an encrypted store without the keys.
fn assert_no_command_changes(store: &TestStore) {
    let before = store.contents();
    for command in WRITING {
        let (code, printed) = run_without_keys(store, command);
        assert_unchanged(store, &before, command, &printed);
        let changes_nothing = match command[0] {
            "migrate" => true,
            // `vacuum` accepts only a store in a file.
            "vacuum" => store.kind == Kind::Encrypted,
            _ => false,
        };
        assert_eq!(code == Some(0), changes_nothing, "{command:?}: {code:?} {printed}");
    }
}

#[test]
fn without_keys_no_command_changes_an_encrypted_store_on_a_server() {
    for kind in [Kind::Postgres, Kind::Redis] {
        if TestStore::is_missing(kind) {
            continue;
        }
        let store = TestStore::encrypted(kind);
        fill(&store);
        assert_no_command_changes(&store);
        assert!(store.prints(&["verify"]).contains("no problems"));
    }
}

#[test]
fn without_keys_no_command_changes_an_encrypted_file() {
    let store = TestStore::new(Kind::Encrypted);
    fill(&store);
    assert_no_command_changes(&store);
    // The store, opened with its keys, must be unchanged.
    assert!(store.prints(&["verify"]).contains("no problems"));
    store.prints(&["fork", "play", "talk", "copy"]);
    store.prints(&["prune", "--keep-messages", "1", "--scope", "play", "--conversation", "talk"]);
    assert!(store.prints(&["export"]).contains("three"));
}

#[test]
fn no_command_changes_a_store_of_a_newer_version() {
    let store = TestStore::new(Kind::Sqlite);
    fill(&store);
    make_newer(&store.path());
    let before = store.contents();
    for command in WRITING {
        let (code, printed) = run_without_keys(&store, command);
        assert_eq!(code, Some(2), "{command:?}: {printed}");
        assert_unchanged(&store, &before, command, &printed);
        assert!(printed.contains("99"), "{command:?}: {printed}");
    }
}

#[test]
fn no_command_changes_tables_of_a_newer_version() {
    if TestStore::is_missing(Kind::Postgres) {
        return;
    }
    let store = TestStore::new(Kind::Postgres);
    fill(&store);
    store.execute_sql(&format!("UPDATE {}.schema_version SET version = 99", store.name()));
    let before = store.contents();
    for command in WRITING {
        let (code, printed) = run_without_keys(&store, command);
        assert_eq!(code, Some(2), "{command:?}: {printed}");
        assert_unchanged(&store, &before, command, &printed);
        assert!(printed.contains("99") || command[0] == "vacuum", "{command:?}: {printed}");
    }
}

/// In Redis, each conversation has its own format version.
#[test]
fn no_command_changes_a_conversation_of_a_newer_format() {
    if TestStore::is_missing(Kind::Redis) {
        return;
    }
    let store = TestStore::new(Kind::Redis);
    fill(&store);
    store.make_format_newer("talk");
    store.make_format_newer("open");
    let before = store.contents();
    for command in WRITING {
        // These commands may add other conversations to the store, and `delete` does not read the
        // conversation.
        if matches!(command[0], "play" | "import" | "copy" | "delete") {
            continue;
        }
        let (_, printed) = run_without_keys(&store, command);
        assert_unchanged(&store, &before, command, &printed);
    }
}

#[test]
fn encrypted_conversations_are_deleted_without_keys_only_if_requested() {
    let store = TestStore::new(Kind::Encrypted);
    fill(&store);
    let (code, printed) = run_without_keys(&store, &["delete", "play", "talk"]);
    assert!(code == Some(2) && printed.contains("TOWER_CHAT_KEYS"), "{printed}");
    for command in [
        &["delete", "play", "talk", "--without-keys"][..],
        &["delete", "--scope", "play", "--all", "--without-keys"],
    ] {
        let (code, printed) = run_without_keys(&store, command);
        assert_eq!(code, Some(0), "{printed}");
    }
    let left = store.contents();
    assert!(left.iter().all(|row| row.starts_with("store_marks")), "{left:?}");
}

/// The test deletes the first message with SQL, as an attacker could, or an older release that does
/// not refuse to prune an encrypted store without its keys.
#[test]
fn a_repair_makes_a_conversation_readable_that_was_pruned_without_the_keys() {
    let store = TestStore::new(Kind::Encrypted);
    fill(&store);
    let number = "SELECT id FROM conversations WHERE conversation = 'talk'";
    let removed = format!("DELETE FROM messages WHERE place = (({number}) << 32) + 1");
    assert_eq!(execute(&store.path(), &removed), 1);
    execute(&store.path(), "UPDATE conversations SET pruned = 1 WHERE conversation = 'talk'");
    let verified = store.run(&["verify"]);
    assert_eq!(verified.status.code(), Some(1), "{}", stdout(&verified));
    let planned = store.run(&["repair", "--dry-run"]);
    assert_eq!(planned.status.code(), Some(1), "{}", stdout(&planned));
    assert!(stdout(&planned).contains("1 to repair"), "{}", stdout(&planned));
    assert_eq!(store.run(&["verify"]).status.code(), Some(1));
    assert!(store.prints(&["repair"]).contains("1 repaired, 0 not repaired"));
    assert!(store.prints(&["verify"]).contains("no problems"));
    let exported = store.prints(&["export"]);
    assert!(exported.contains("three") && !exported.contains("\"one\""), "{exported}");
}
