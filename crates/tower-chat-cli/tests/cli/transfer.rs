//! Tests `export`, `import`, `copy`, `delete` and `fork`.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use serde_json::{Value, json};
use tower_chat::{
    ConversationKey, HistoryStore, Message, message::MessageId, run::RunId, store::author::Write,
};

use crate::support::*;

/// Converts a path to a command line argument.
pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[track_caller]
fn assert_code(output: &Output, code: i32) {
    let printed = format!("{}{}", stdout(output), stderr(output));
    assert_eq!(output.status.code(), Some(code), "{printed}");
}

/// Appends a run with one message to a conversation.
pub(crate) fn add(store: &TestStore, scope: &str, id: &str, text: &str) {
    let key = ConversationKey::new(scope, id);
    store.with(async |history| {
        let expected = history.head(&key).await.unwrap().revision;
        let first = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key.clone(), first, expected, [Message::user(text).into()]);
        history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
    });
}

/// Exports all data of a store to a file, and returns the path of the file.
fn exported(store: &TestStore, name: &str) -> PathBuf {
    let path = store.folder().join(name);
    store.prints(&["export", "--format", "tower-chat", "--to", &text(&path)]);
    path
}

#[test]
fn an_exported_file_is_imported_exactly_into_a_store_of_any_kind() {
    each_store(|store| {
        fill_observed(store, vec![wardrobe(), odd()]);
        let file = exported(store, "all.jsonl");
        let printed = store.prints(&["export", "--format", "tower-chat"]);
        assert_eq!(fs::read_to_string(&file).unwrap(), printed);

        let other = TestStore::new(Kind::Sqlite);
        let first = other.prints(&["import", &text(&file)]);
        assert!(first.contains("written: "), "{first}");
        assert!(first.contains("SHA-256 of the file: "), "{first}");
        assert_eq!(fs::read(exported(&other, "again.jsonl")).unwrap(), printed.as_bytes());
        let again = other.prints(&["import", &text(&file)]);
        assert_eq!(again, first.replace("written: ", "unchanged: "));

        // Imports the file into a new store of the first kind.
        let back = TestStore::new(store.kind);
        back.prints(&["import", &text(&file), "--json"]);
        assert_eq!(back.prints(&["export", "--format", "tower-chat"]), printed);
    });
}

#[test]
fn a_repeated_copy_adds_new_messages_and_refuses_conversations_that_differ() {
    each_store(|store| {
        add(store, "alice", "coats", "a coat?");
        add(store, "alice", "hats", "a hat?");
        add(store, "bob", "coats", "another coat?");
        let target = TestStore::new(store.kind);
        let copy = |more: &[&str]| {
            let url = target.url();
            store.run(&[&["copy", "--to", &url], more].concat())
        };
        let sum = "3 conversations with 3 messages, 0 tool calls and 3 runs\n";
        for outcome in ["written", "unchanged"] {
            let output = copy(&[]);
            assert_code(&output, 0);
            assert_eq!(stdout(&output), format!("{outcome}: {sum}"));
            assert_eq!(stderr(&output), "", "no bar where there is no terminal");
        }
        add(store, "alice", "coats", "and shoes?");
        add(&target, "alice", "hats", "a cap?");
        let output = copy(&["--scope", "alice", "--json"]);
        assert_code(&output, 1);
        let printed = lines(&stdout(&output));
        assert_eq!(printed[0]["done"]["outcome"], json!({"extended": {"messages": 1}}));
        assert_eq!(
            printed[1]["done"]["outcome"],
            json!({"refused": {"target_has_more": {"messages": 1}}})
        );
        assert_eq!(printed[2]["receipt"]["scopes"]["alice"]["refused"]["conversations"], 1);
        assert_eq!(printed.len(), 3);
        let output = copy(&["--conversation", "hats"]);
        assert_code(&output, 1);
        assert!(stdout(&output).starts_with(
            "alice/hats: not transferred: the target has more messages than the source (by 1)"
        ));
        assert_eq!(
            store.prints(&["export", "--conversation", "coats"]),
            target.prints(&["export", "--conversation", "coats"])
        );
    });
}

#[test]
fn a_copy_can_encrypt_or_decrypt_a_store() {
    let (sealed, open) = (TestStore::new(Kind::Encrypted), TestStore::new(Kind::Sqlite));
    add(&sealed, "alice", "coats", "a sealed question");
    let output = sealed
        .command(&["copy", "--to", &open.url()])
        .env("TOWER_CHAT_TO_KEYS", "")
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert!(open.prints(&["export"]).contains("a sealed question"));
    let file = fs::read(open.path()).unwrap();
    assert!(file.windows(17).any(|bytes| bytes == b"a sealed question"));

    let again = TestStore::new(Kind::Encrypted);
    let keys = format!("test:{}", "1f".repeat(32));
    let output = open
        .command(&["copy", "--to", &again.url()])
        .env("TOWER_CHAT_TO_KEYS", keys)
        .output()
        .unwrap();
    assert_code(&output, 0);
    assert!(again.prints(&["export"]).contains("a sealed question"));
    let file = fs::read(again.path()).unwrap();
    assert!(!file.windows(17).any(|bytes| bytes == b"a sealed question"));
}

#[test]
fn a_conversation_or_a_scope_is_deleted_and_the_receipt_lists_every_deletion() {
    each_store(|store| {
        for (scope, id) in [("alice", "a"), ("alice", "b"), ("alice", "c"), ("bob", "a")] {
            add(store, scope, id, &format!("of {scope}, {id}"));
        }
        let before = store.prints(&["export"]);
        let dry = store.prints(&["delete", "--scope", "alice", "--all", "--dry-run"]);
        assert!(dry.ends_with("would be deleted: 3 conversations with 3 messages\n"), "{dry}");
        let dry = store.prints(&["delete", "alice", "b", "--dry-run", "--json"]);
        assert_eq!(lines(&dry), [json!({"scope": "alice", "id": "b", "messages": 1})]);
        let output = store.run(&["delete", "--scope", "alice"]);
        assert_code(&output, 2);
        assert!(stderr(&output).contains("--all"), "{}", stderr(&output));
        assert_eq!(store.prints(&["export"]), before);

        let one = "deleted: 1 conversation with 1 message, 0 tool calls and 1 run\n";
        assert_eq!(store.prints(&["delete", "alice", "b"]), one);
        let output = store.run(&["delete", "alice", "b"]);
        assert_code(&output, 2);
        assert!(
            stderr(&output).contains("there is no conversation alice/b"),
            "{}",
            stderr(&output)
        );

        let receipt = store.folder().join("receipt.jsonl");
        let all = ["delete", "--scope", "alice", "--all", "--receipt", &text(&receipt)];
        let printed = store.prints(&all);
        assert_eq!(printed, "deleted: 2 conversations with 2 messages, 0 tool calls and 2 runs\n");
        let written = lines(&fs::read_to_string(&receipt).unwrap());
        let kinds: Vec<_> = written
            .iter()
            .map(|line| line.as_object().unwrap().keys().next().unwrap().as_str())
            .collect();
        assert_eq!(kinds, ["transfer", "begins", "done", "begins", "done", "receipt"]);
        assert_eq!(written[5]["receipt"]["scopes"]["alice"]["deleted"]["messages"], 2);
        assert!(!fs::read_to_string(&receipt).unwrap().contains("password"));
        assert_eq!(store.prints(&all), "no conversations\n");
        let left = lines(&store.prints(&["export"]));
        assert_eq!((left.len(), &left[0]["scope"]), (1, &json!("bob")));
    });
}

#[test]
fn a_receipt_of_another_deletion_is_refused_before_anything_is_deleted() {
    let store = TestStore::new(Kind::Sqlite);
    add(&store, "alice", "a", "of alice");
    let receipt = text(&store.folder().join("receipt.jsonl"));
    store.prints(&["delete", "--scope", "bob", "--all", "--receipt", &receipt]);
    let output = store.run(&["delete", "--scope", "alice", "--all", "--receipt", &receipt]);
    assert_code(&output, 2);
    assert!(stderr(&output).contains("name another file"), "{}", stderr(&output));
    assert!(store.prints(&["export"]).contains("of alice"));
}

#[test]
fn a_fork_is_a_copy_that_continues_independently_of_its_parent() {
    each_store(|store| {
        add(store, "alice", "coats", "a coat?");
        assert_eq!(
            store.prints(&["fork", "alice", "coats", "copy"]),
            "alice/copy: a copy of alice/coats, with 1 message\n"
        );
        let printed =
            store.prints(&["fork", "alice", "coats", "coats", "--to-scope", "bob", "--json"]);
        assert_eq!(
            lines(&printed),
            [json!({"scope": "bob", "id": "coats", "messages": 1, "position": 1})]
        );
        add(store, "alice", "coats", "and a hat?");
        assert_eq!(
            store.prints(&["fork", "alice", "coats", "first", "--at", "2"]),
            "alice/first: a copy of alice/coats up to message 1, with 1 message\n"
        );
        let of_coats = ["list", "--scope", "alice", "--branches-of", "coats", "--json"];
        let mut branches = lines(&store.prints(&of_coats));
        branches.sort_by_key(|branch| branch["id"].to_string());
        let parent = json!({"scope": "alice", "id": "coats", "position": 1});
        let found: Vec<_> = branches.iter().map(|it| (&it["id"], &it["parent"])).collect();
        assert_eq!(found, [(&json!("copy"), &parent), (&json!("first"), &parent)]);
        let output = store.run(&["fork", "alice", "coats", "copy"]);
        assert_code(&output, 2);
        assert!(stderr(&output).contains("conversation alice/copy exists already"));
        let output = store.run(&["fork", "alice", "none", "new"]);
        assert_code(&output, 2);
        assert!(stderr(&output).contains("there is no conversation alice/none"));
    });
}

#[test]
fn conversations_are_exported_in_the_request_formats_of_providers() {
    let store = TestStore::new(Kind::Sqlite);
    add(&store, "alice", "coats", "a coat?");
    for (format, expected) in [
        ("openai-chat", json!({"messages": [{"role": "user", "content": "a coat?"}]})),
        ("anthropic", json!({"messages": [{"role": "user", "content": "a coat?"}]})),
        ("gemini", json!({"contents": [{"role": "user", "parts": [{"text": "a coat?"}]}]})),
    ] {
        let mut printed = lines(&store.prints(&["export", "--format", format])).remove(0);
        let fields = printed.as_object_mut().unwrap();
        assert_eq!(
            (fields.remove("scope"), fields.remove("id")),
            (Some(json!("alice")), Some(json!("coats")))
        );
        assert_eq!(printed, expected, "{format}");
    }
    let printed = lines(&store.prints(&["export", "--format", "openai-responses"])).remove(0);
    assert_eq!(printed["input"][0]["role"], "user");
    let path = text(&store.folder().join("chat.jsonl"));
    assert_eq!(store.prints(&["export", "--to", &path]), "");
    assert_eq!(fs::read_to_string(&path).unwrap(), store.prints(&["export"]));
}

#[test]
fn unusable_transfer_files_are_refused_with_advice() {
    let store = TestStore::new(Kind::Sqlite);
    add(&store, "alice", "coats", "a coat?");
    let file = exported(&store, "all.jsonl");
    let refused = |arguments: &[&str], expected: &str| {
        let output = store.run(arguments);
        assert_code(&output, 2);
        let printed = stderr(&output);
        assert!(printed.contains(expected), "{arguments:?} printed {printed}");
    };
    let format = ["export", "--format", "tower-chat", "--to"];
    refused(&[&format[..], &[&text(&file)]].concat(), "continue it with --resume");
    refused(&[&format[..], &[&text(&file), "--resume"]].concat(), "is a complete export");
    refused(&["export", "--resume"], "--to");
    refused(&["export", "--format", "gemini", "--record"], "--record is for --format openai-chat");
    refused(&["export", "--json"], "are for --format tower-chat");
    let changed = fs::read_to_string(&file).unwrap().replace("a coat?", "a boat?");
    let damaged = store.folder().join("damaged.jsonl");
    fs::write(&damaged, &changed).unwrap();
    refused(&["import", &text(&damaged)], "line 5: lines 2 to 4 differ from the exported lines");
    fs::write(&damaged, &changed[..changed.len() / 2]).unwrap();
    refused(&["import", &text(&damaged)], "the export is not complete");
    fs::write(&damaged, "{\"messages\": []}\n").unwrap();
    refused(
        &["import", &text(&damaged)],
        "line 1 is not the first line of an export of tower-chat",
    );
    refused(&["import", "/no/such/file"], "`/no/such/file` cannot be read");
    refused(&["copy", "--to", "sqlite:/no/such/folder/chat.db"], "error: ");
}

#[cfg(target_os = "linux")]
#[test]
fn an_interrupted_export_and_an_interrupted_deletion_are_continued() {
    let store = TestStore::new(Kind::Sqlite);
    let word = "a long message ".repeat(2_000);
    store.with(async |history| {
        for number in 0..300 {
            let key = ConversationKey::new("alice", format!("c{number:03}"));
            let first = MessageId { run: RunId::new(), index: 0 };
            let message = Message::user(format!("{number}: {word}")).into();
            let write = Write::new(key, first, tower_chat::store::Revision::ABSENT, [message]);
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
    });
    let whole = exported(&store, "whole.jsonl");
    let (file, receipt) = (store.folder().join("cut.jsonl"), store.folder().join("receipt.jsonl"));
    let (file_name, receipt_name) = (text(&file), text(&receipt));
    let export =
        ["export", "--format", "tower-chat", "--to", &file_name, "--receipt", &receipt_name];
    let printed = interrupt(&store, &export, || length(&file) > 200_000);
    assert!(printed.contains("continue with the same command and --resume"), "{printed}");
    assert!(length(&file) < length(&whole));
    let printed = store.prints(&[&export[..], &["--resume"]].concat());
    assert!(printed.starts_with("exported: 300 conversations with 300 messages"), "{printed}");
    assert_eq!(fs::read(&file).unwrap(), fs::read(&whole).unwrap());

    fs::remove_file(&receipt).unwrap();
    let delete = ["delete", "--scope", "alice", "--all", "--receipt", &receipt_name];
    let printed = interrupt(&store, &delete, || length(&receipt) > 3_000);
    assert!(printed.contains("the same command continues"), "{printed}");
    assert_ne!(store.prints(&["export"]), "");
    let printed = store.prints(&delete);
    assert!(printed.starts_with("deleted: 300 conversations with 300 messages"), "{printed}");
    assert_eq!(store.prints(&["export"]), "");
}

fn length(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |file| file.len())
}

/// Runs a command, interrupts it when `is_moment` returns `true`, and returns its errors.
#[cfg(target_os = "linux")]
fn interrupt(store: &TestStore, arguments: &[&str], is_moment: impl Fn() -> bool) -> String {
    // A shell may have made the test ignore the signal, which the command would inherit.
    let mut command = Command::new("env");
    command.args(["--default-signal=INT", env!("CARGO_BIN_EXE_tower-chat")]);
    command.args(arguments).args(["--store", &store.url()]);
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::piped());
    let child = command.spawn().unwrap();
    while !is_moment() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    let interrupt = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_code(&output, 130);
    stderr(&output)
}
