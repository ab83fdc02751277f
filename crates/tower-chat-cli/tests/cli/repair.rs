//! Tests `tower-chat repair`.

use std::{process::Stdio, time::SystemTime};

use serde_json::{Value, json};
use tower_chat::{
    ConversationKey, HistoryStore, Message, ToolResult,
    message::MessageId,
    run::RunId,
    store::{
        AddedSummary, Directory, DirectoryCounts, HistorySummary, Lease, LeaseEnd, Maintenance,
        Revision, Rewrite, Summaries,
        author::{Staged, Write},
    },
};
use tower_chat_repair::INTERRUPTED;

use crate::support::*;

/// Runs a command, and returns the exit code and the lines of the output.
fn command(name: &str, store: &Store, more: &[&str]) -> (i32, Vec<String>) {
    let output = run(&[&[name, "--store", &store.argument()], more].concat());
    assert_eq!(stderr(&output), "");
    (output.status.code().unwrap(), stdout(&output).lines().map(str::to_owned).collect())
}

/// Returns the texts of the results that a model would receive in a conversation.
fn results(store: &Store, id: &str) -> Vec<String> {
    let exported = export(&store.argument(), &[]);
    let messages = exported[id].as_array().unwrap();
    let results = messages.iter().filter(|message| message["role"] == "tool");
    results.map(|message| message["content"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_repair_is_durable_and_a_second_repair_changes_nothing() {
    let store = Store::new();
    fill_intact(&store);
    fill_repairable(&store);
    let before = dump(&store.path());
    let intact = export(&store.argument(), &["--record"]);

    let (code, planned) = command("repair", &store, &["--dry-run"]);
    assert_eq!((code, planned.len()), (1, 9), "{planned:?}");
    assert_eq!(planned[8], "8 to repair, 0 that cannot be repaired");
    assert_eq!(dump(&store.path()), before, "a dry run writes nothing");

    let (code, done) = command("repair", &store, &[]);
    assert_eq!((code, &done[..8]), (0, &planned[..8]));
    assert_eq!(done[8], "8 repaired, 0 not repaired");
    let (code, lines) = command("verify", &store, &[]);
    assert_eq!(code, 0, "{lines:?}");

    let after = dump(&store.path());
    for again in [&["--dry-run"][..], &[]] {
        let nothing = vec!["nothing to repair".to_owned()];
        assert_eq!(command("repair", &store, again), (0, nothing));
        assert_eq!(dump(&store.path()), after);
    }
    assert_eq!(results(&store, "dangling"), [INTERRUPTED, "two", INTERRUPTED]);
    assert_eq!(results(&store, "recorded"), [] as [&str; 0], "it is in the record alone");
    assert_eq!(results(&store, "results"), ["found"]);
    let record = export(&store.argument(), &["--record"]);
    for id in ["sound", "waiting"] {
        assert_eq!(record[id], intact[id]);
    }
}

#[test]
fn after_a_repair_the_record_of_tool_calls_has_the_new_positions_of_the_results() {
    let store = Store::new();
    fill_repairable(&store);
    assert_eq!(command("repair", &store, &[]).0, 0);
    let output = run(&["tools", "--json", "--list", "--store", &store.argument()]);
    assert_eq!(stderr(&output), "");
    let calls: Value = serde_json::from_str(&stdout(&output)).unwrap();
    let listed: Vec<Value> = calls["calls"]
        .as_array()
        .unwrap()
        .iter()
        .map(|call| json!([call["conversation"], call["message"], call["status"], call["result"]]))
        .collect();
    assert_eq!(
        listed,
        [
            json!(["dangling", 2, "interrupted", INTERRUPTED]),
            json!(["dangling", 2, "ok", "two"]),
            json!(["dangling", 5, "interrupted", INTERRUPTED]),
            json!(["recorded", 2, "ok", "from the record"]),
            json!(["results", 3, "ok", "found"]),
            json!(["rows", 2, "ok", "found"]),
        ]
    );
}

#[test]
fn results_that_a_repair_moves_or_cannot_assign_are_not_lost() {
    let store = Store::new();
    fill_repairable(&store);
    assert_eq!(command("repair", &store, &[]).0, 0);
    let bodies = dump(&store.path());
    for text in ["an orphan", "in front", "again"] {
        assert_eq!(bodies.iter().filter(|row| row.contains(text)).count(), 1, "{text}");
    }
}

#[test]
fn a_repair_does_not_change_unreadable_rows_and_repairs_the_other_rows() {
    let store = Store::new();
    fill_unreadable(&store);
    let unreadable = dump(&store.path());
    fill_repairable(&store);
    let (code, lines) = command("repair", &store, &[]);
    assert_eq!(code, 1);
    assert_eq!(lines.last().unwrap(), "8 repaired, 4 not repaired");
    let left: Vec<&String> = lines.iter().filter(|line| line.contains("not repaired: ")).collect();
    assert_eq!(left.len(), 4, "{lines:?}");
    let after = dump(&store.path());
    assert!(unreadable.iter().all(|row| after.contains(row)));
    let (code, problems) = command("verify", &store, &[]);
    assert_eq!((code, problems.len()), (1, 5), "{problems:?}");
    let (code, again) = command("repair", &store, &[]);
    assert_eq!((code, again.last().unwrap().as_str()), (1, "0 repaired, 4 not repaired"));
    assert_eq!(dump(&store.path()), after);
}

#[test]
fn after_a_killed_repair_each_conversation_is_unchanged_or_completely_repaired() {
    const CONVERSATIONS: usize = 150;
    let store = Store::new();
    let ids: Vec<String> = (0..CONVERSATIONS).map(|number| format!("c{number:03}")).collect();
    let messages = || {
        vec![
            Message::user("go"),
            Message::tool_calls([call("c1")]),
            Message::tool_results([ToolResult::new("gone", "an orphan")]),
            Message::tool_calls([call("c2")]),
        ]
    };
    fill_many(&store, &ids, messages);
    let repaired = || {
        let lines = command("verify", &store, &[]).1;
        let problems = |id: &String| lines.iter().filter(|line| line.contains(id.as_str())).count();
        ids.iter()
            .filter(|id| match problems(id) {
                0 => true,
                3 => false,
                some => panic!("{some} problems of {id}: {lines:?}"),
            })
            .count()
    };
    assert_eq!(repaired(), 0);
    let mut kills_between = 0;
    for step in [1, 40, 80, 120] {
        let mut child = tower_chat(&["repair", "--store", &store.argument()])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        while count_messages_with(&store.path(), INTERRUPTED) < step * 2
            && child.try_wait().unwrap().is_none()
        {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let now = repaired();
        assert!(now >= step);
        kills_between += usize::from(now < CONVERSATIONS);
    }
    assert!(kills_between > 0, "no kill came before the end");
    assert_eq!(command("repair", &store, &[]).0, 0);
    assert_eq!(command("verify", &store, &[]).0, 0);
}

fn fill_two_runs(store: &TestStore) {
    let key = ConversationKey::new("play", "talk");
    store.with(async |history| {
        for text in ["one", "two"] {
            let expected = history.head(&key).await.unwrap().revision;
            let id = MessageId { run: RunId::new(), index: 0 };
            let write = Write::new(key.clone(), id, expected, [Message::user(text).into()]);
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
    });
}

/// A repair deletes an unreadable description, because the description cannot be restored.
#[test]
fn verify_finds_an_unreadable_description_and_repair_deletes_it() {
    for kind in [Kind::Sqlite, Kind::Encrypted] {
        let store = TestStore::new(kind);
        fill_two_runs(&store);
        assert_eq!(store.run(&["verify"]).status.code(), Some(0), "{kind:?}");
        let damage =
            "UPDATE conversations SET description_version = 1, metadata = '{\"sealed\": \"tower'";
        assert!(execute(&store.path(), damage) > 0);
        let verified = store.run(&["verify"]);
        assert_eq!(verified.status.code(), Some(1), "{kind:?}: {}", stdout(&verified));
        assert!(stdout(&verified).contains("directory"), "{}", stdout(&verified));
        let planned = store.run(&["repair", "--dry-run"]);
        assert_eq!(planned.status.code(), Some(1), "{}", stdout(&planned));
        assert_eq!(store.run(&["verify"]).status.code(), Some(1));
        let repaired = store.run(&["repair"]);
        assert_eq!(repaired.status.code(), Some(0), "{}", stdout(&repaired));
        assert!(store.prints(&["verify"]).contains("no problems"));
        store.prints(&["list"]);
    }
}

/// Adds a summary of the first `covers_to` messages to the conversation of [`fill_two_runs`].
fn add_summary(store: &TestStore, covers_to: u64) {
    let key = ConversationKey::new("play", "talk");
    store.with(async |history| {
        let loaded = history.load(&key).await.unwrap();
        let last = loaded.message(covers_to).unwrap().id.unwrap();
        let summary = HistorySummary::new(covers_to, last, "shorter");
        let added = history.add_summary(&key, &summary, loaded.head.rewrites).await.unwrap();
        assert_eq!(added, AddedSummary::Stored);
    });
}

/// Each message is stored, so the model receives the messages after the repair.
#[test]
fn verify_finds_a_damaged_summary_and_repair_removes_it() {
    for kind in [Kind::Sqlite, Kind::Encrypted] {
        for damage in [
            "UPDATE history_summaries SET body = '{}'",
            "UPDATE history_summaries SET checksum = checksum + 1",
            "UPDATE history_summaries SET place = place + 1",
        ] {
            let store = TestStore::new(kind);
            fill_two_runs(&store);
            add_summary(&store, 1);
            assert_eq!(store.run(&["verify"]).status.code(), Some(0), "{kind:?}");
            let before = dump(&store.path());
            assert_eq!(execute(&store.path(), damage), 1);
            let verified = store.run(&["verify"]);
            let printed = stdout(&verified);
            assert_eq!(verified.status.code(), Some(1), "{kind:?} {damage}: {printed}");
            assert!(printed.contains("a summary cannot be read: "), "{printed}");
            assert!(printed.contains("repair removes it"), "{printed}");
            let repaired = store.run(&["repair"]);
            let printed = stdout(&repaired);
            assert_eq!(repaired.status.code(), Some(0), "{kind:?} {damage}: {printed}");
            assert!(printed.contains("it is removed, so that the messages are sent"), "{printed}");
            assert!(store.prints(&["verify"]).contains("no problems"));
            assert_eq!(dump(&store.path()), before, "the messages do not change");
        }
    }
}

/// The messages between the last stored one and the end of the summary may be lost.
#[test]
fn a_summary_that_ends_after_the_last_message_is_reported_and_not_repaired() {
    let store = TestStore::new(Kind::Sqlite);
    fill_two_runs(&store);
    add_summary(&store, 2);
    execute(&store.path(), "UPDATE history_summaries SET place = place + 7");
    for command in ["verify", "repair"] {
        let output = store.run(&[command]);
        let printed = stdout(&output);
        assert_eq!(output.status.code(), Some(1), "{printed}");
        assert!(printed.contains("its summary ends at 9, after its last visible"), "{printed}");
        assert!(printed.contains("restore it from a backup"), "{printed}");
    }
}

#[test]
fn repair_removes_a_summary_that_ends_inside_a_turn_in_a_store_of_any_kind() {
    each_store(|store| {
        let key = ConversationKey::new("play", "talk");
        store.with(async |history| {
            let id = MessageId { run: RunId::new(), index: 0 };
            let messages = [Message::user("one"), Message::assistant("two")].map(Into::into);
            let write = Write::new(key.clone(), id, Revision::ABSENT, messages);
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
        });
        add_summary(store, 1);
        let verified = store.run(&["verify"]);
        assert!(stdout(&verified).contains("ends inside a turn"), "{}", stdout(&verified));
        assert_eq!(store.run(&["repair"]).status.code(), Some(0));
        assert!(store.prints(&["verify"]).contains("no problems"));
        store.with(async |history| {
            assert_eq!(history.head(&key).await.unwrap().summary, None);
            assert_eq!(history.load(&key).await.unwrap().messages.len(), 2);
        });
    });
}

/// SQL statements that change counts, each with a part of the reported problem.
const CHANGED_COUNTS: [(&str, &str); 4] = [
    ("UPDATE conversations SET runs = 0", "the number of its runs is 0 in the directory"),
    ("UPDATE conversations SET runs = 99", "the number of its runs is 99 in the directory"),
    ("UPDATE conversations SET runs = -1", "directory"),
    ("UPDATE run_usage SET tool_calls = 77", " is 77 in the directory"),
];

#[test]
fn verify_finds_wrong_directory_counts_and_repair_corrects_them() {
    for kind in [Kind::Sqlite, Kind::Encrypted] {
        for (damage, what) in CHANGED_COUNTS {
            let store = TestStore::new(kind);
            fill_two_runs(&store);
            let before = store.prints(&["list", "--json"]);
            assert!(execute(&store.path(), damage) > 0);
            let verified = store.run(&["verify"]);
            let printed = stdout(&verified);
            assert_eq!(verified.status.code(), Some(1), "{kind:?} {damage}: {printed}");
            assert!(printed.contains(what), "{damage}: {printed}");
            let planned = store.run(&["repair", "--dry-run"]);
            assert_eq!(planned.status.code(), Some(1), "{}", stdout(&planned));
            let repaired = store.run(&["repair"]);
            let printed = format!("{}{}", stdout(&repaired), stderr(&repaired));
            assert_eq!(repaired.status.code(), Some(0), "{kind:?} {damage}: {printed}");
            assert!(store.prints(&["verify"]).contains("no problems"));
            assert_eq!(store.prints(&["list", "--json"]), before, "{damage}");
        }
    }
}

#[test]
fn repair_corrects_the_directory_counts_in_a_store_of_any_kind() {
    each_store(|store| {
        fill_two_runs(store);
        let before = store.prints(&["list", "--json"]);
        let key = ConversationKey::new("play", "talk");
        let first = store.with(async |history| {
            let head = history.head(&key).await.unwrap();
            let run = history.runs(&key, None, 1).await.unwrap()[0].run;
            let mut rewrite = Rewrite::new(key.clone(), head.revision);
            let mut counts = DirectoryCounts::new(7);
            counts.tool_calls = vec![(run, 77)];
            rewrite.counts = Some(counts);
            history.rewrite(rewrite).await.unwrap();
            run
        });
        let verified = store.run(&["verify"]);
        let printed = stdout(&verified);
        assert_eq!(verified.status.code(), Some(1), "{printed}");
        assert!(
            printed.contains("the number of its runs is 7 in the directory, and 2 in its messages"),
            "{printed}"
        );
        let repaired = store.run(&["repair"]);
        let printed = format!("{}{}", stdout(&repaired), stderr(&repaired));
        assert_eq!(repaired.status.code(), Some(0), "{printed}");
        assert!(printed.contains("it is computed again from the messages"), "{printed}");
        assert!(store.prints(&["verify"]).contains("no problems"));
        assert_eq!(store.prints(&["list", "--json"]), before, "run {first}");
    });
}

/// The run still changes these counts.
#[test]
fn counts_of_a_conversation_with_an_open_run_are_reported_and_not_corrected() {
    let store = TestStore::new(Kind::Sqlite);
    fill_two_runs(&store);
    let key = ConversationKey::new("play", "talk");
    store.with(async |history| {
        let expected = history.head(&key).await.unwrap().revision;
        let lease = Lease {
            attempt: 1,
            holder: 7,
            renewed_at: SystemTime::now(),
            until: LeaseEnd::NotHeld,
        };
        let staged = Staged { lease, close: None, service_id: None, partial_text: None };
        let id = MessageId { run: RunId::new(), index: 0 };
        let write = Write::new(key.clone(), id, expected, [Message::user("three").into()]);
        history.append(history.reserve().await.unwrap(), vec![write.staged(staged)]).await.unwrap();
    });
    assert!(execute(&store.path(), "UPDATE conversations SET runs = 0") > 0);
    let repaired = store.run(&["repair"]);
    let printed = stdout(&repaired);
    assert_eq!(repaired.status.code(), Some(1), "{printed}");
    assert!(
        printed.contains("the number of its runs is 0 in the directory")
            && printed.contains("0 repaired"),
        "{printed}"
    );
}
