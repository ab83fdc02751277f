//! Journaled plays, and the commands for open runs.

use std::process::{Child, Stdio};

use serde_json::Value;
use tower_chat::{
    ConversationKey, Message, MessageId, RunId,
    store::{
        HistoryStore, Lease, Revision,
        author::{Staged, Write},
    },
};

use crate::support::*;

/// Kills a journaled play after it has stored this many messages.
fn play_killed_at(file: &str, store: &Store, messages: usize) {
    let arguments =
        ["play", file, "--store", &store.argument(), "--persistence", "journaled", "--resume"];
    let mut child: Child = tower_chat(&[&arguments[..], &["--concurrency", "4"]].concat())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    while stored_messages(&store.path()) < messages && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    child.kill().unwrap();
    child.wait_with_output().unwrap();
}

fn open_runs(store: &Store) -> Vec<Value> {
    let output = run(&["runs", "--store", &store.argument(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// A store with open runs of a play that was killed.
fn with_open_runs(file: &str) -> Store {
    for messages in [60, 90, 40, 120, 75] {
        let store = Store::new();
        play_killed_at(file, &store, messages);
        if !open_runs(&store).is_empty() {
            return store;
        }
    }
    panic!("no kill has left a run open");
}

/// Asserts that the store has no other problems than the recordings themselves.
fn assert_no_more_problems(store: &Store, file: &str) {
    let whole = Store::new();
    play_well(&[file, "--store", &whole.argument()]);
    let problems = |store: &Store| {
        let output = run(&["verify", "--store", &store.argument()]);
        assert_ne!(output.status.code(), Some(2), "{}", stderr(&output));
        stdout(&output)
    };
    let known = problems(&whole);
    for problem in problems(store).lines().filter(|line| line.starts_with("conversation")) {
        assert!(known.lines().any(|line| line == problem), "{problem}");
    }
}

#[test]
fn journaled_plays_that_are_killed_pay_no_staged_answer_again_and_end_as_undisturbed() {
    const CONCURRENCY: u64 = 4;
    for stream in [&[][..], &["--stream"]] {
        let undisturbed = Store::new();
        let file = undisturbed.file("many.jsonl", &many_shapes(3));
        let options = ["--persistence", "journaled", "--concurrency", "4"];
        let all = [&[&file[..], "--store", &undisturbed.argument()], &options[..], stream];
        let expected = play_well(&all.concat());

        let store = Store::new();
        let mut kills = 0;
        for messages in [1, 20, 50, 51, 90, 130, 170, 200, 260] {
            play_killed_at(&file, &store, messages);
            kills += 1;
        }
        let all = [&[&file[..], "--store", &store.argument()], &options[..], &["--resume"], stream];
        let summary = play_well(&all.concat());
        assert_eq!(export_text(&store.argument(), &[]), export_text(&undisturbed.argument(), &[]));
        for count in ["service_calls", "tool_executions"] {
            let [expected, found] = [&expected, &summary].map(|it| it[count].as_u64().unwrap());
            let most = expected + kills * CONCURRENCY;
            assert!((expected..=most).contains(&found), "{count}: {found} of {expected}..={most}");
        }
        assert!(open_runs(&store).is_empty());
    }
}

#[test]
fn readers_see_nothing_of_open_runs_and_the_list_says_how_they_stand() {
    let folder = Store::new();
    let file = folder.file("many.jsonl", &many_shapes(3));
    let store = with_open_runs(&file);
    let open = open_runs(&store);
    let exported = export(&store.argument(), &["--record"]);
    for run in &open {
        let id = run["conversation"].as_str().unwrap();
        let seen = exported.get(id).map_or(0, |messages| messages.as_array().unwrap().len());
        assert_eq!(run["held"], false, "{run}");
        let counted: u64 = ["done", "failed", "never_started", "unknown"]
            .map(|it| run[it].as_u64().unwrap())
            .iter()
            .sum();
        assert_eq!(counted, run["calls"].as_array().unwrap().len() as u64, "{run}");
        assert!(run["messages"].as_u64().unwrap() > 0, "{run}, {seen} seen");
    }
    let table = stdout(&run(&["runs", "--store", &store.argument()]));
    assert_eq!(table.lines().count(), open.len() + 1, "{table}");
    assert_no_more_problems(&store, &file);
}

#[test]
fn open_runs_are_committed_or_discarded_and_the_rest_is_intact() {
    let folder = Store::new();
    let file = folder.file("many.jsonl", &many_shapes(3));
    for end in ["commit", "discard"] {
        let store = with_open_runs(&file);
        let before = export(&store.argument(), &["--record"]);
        let open = open_runs(&store);
        let recover = ["recover", "--store", &store.argument(), "--end", end];
        let young = run(&[&recover[..], &["--older-than", "1h"]].concat());
        assert_eq!((young.status.code(), stdout(&young)), (Some(0), String::new()));
        let output = run(&recover);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stdout(&output).lines().count(), open.len());
        assert!(open_runs(&store).is_empty());
        assert_no_more_problems(&store, &file);
        let after = export(&store.argument(), &["--record"]);
        if end == "discard" {
            assert_eq!(after, before);
        } else {
            assert_ne!(after, before);
        }
        let again = run(&recover);
        assert_eq!((again.status.code(), stdout(&again)), (Some(0), String::new()));
    }
}

#[test]
fn a_store_without_open_runs_says_so() {
    let store = Store::new();
    play_well(&[&transcript("shapes.jsonl"), "--store", &store.argument()]);
    assert_eq!(stdout(&run(&["runs", "--store", &store.argument()])), "no open runs\n");
    let missing = run(&["runs", "--store", "sqlite:/nowhere/at/all.db"]);
    assert_eq!(missing.status.code(), Some(2));
    let memory = run(&["recover", "--store", "memory:", "--end", "commit"]);
    assert_eq!(memory.status.code(), Some(2));
    assert!(stderr(&memory).contains("has nothing to recover"), "{}", stderr(&memory));
}

/// Stores conversations of one visible message, with an open run of one message each.
fn fill_open(store: &TestStore, ids: &[&str]) {
    store.with(async |history| {
        let append = async |write: Write| {
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap()
        };
        for id in ids {
            let key = ConversationKey::new("play", *id);
            let write = |expected, text: &str| {
                let id = MessageId { run: RunId::new(), index: 0 };
                Write::new(key.clone(), id, expected, [Message::user(text).into()])
            };
            let at = append(write(Revision::ABSENT, "seen")).await;
            let renewed_at = std::time::SystemTime::now();
            let lease = Lease { attempt: 1, holder: 1, renewed_at, until: None };
            let staged = Staged { lease, close: None, service_id: None, partial_text: None };
            append(write(at, "staged").staged(staged).beginning_attempt()).await;
        }
    });
}

#[test]
fn a_damaged_open_run_is_reported_hides_no_other_and_can_be_discarded() {
    each_store(|store| {
        fill_open(store, &["damaged", "sound"]);
        assert_eq!(store.run(&["verify"]).status.code(), Some(0));
        store.spoil("damaged", 2);

        let verified = store.run(&["verify"]);
        assert_eq!(verified.status.code(), Some(1), "{}", stdout(&verified));
        let printed = stdout(&verified);
        assert!(printed.contains("play/damaged") && printed.contains("--end discard"), "{printed}");
        assert!(!printed.contains("play/sound"), "{printed}");

        let listed = store.run(&["runs"]);
        assert_eq!(listed.status.code(), Some(1), "{}", stderr(&listed));
        let printed = stdout(&listed);
        assert!(printed.contains("play/damaged") && printed.contains("play/sound"), "{printed}");
        assert!(stderr(&listed).contains("play/damaged"), "{}", stderr(&listed));

        let exported = store.run(&["export", "--format", "tower-chat"]);
        assert_eq!(exported.status.code(), Some(1), "{}", stderr(&exported));
        assert!(stdout(&exported).contains("\"sound\""), "{}", stdout(&exported));

        let committed = store.run(&["recover", "--end", "commit", "--force"]);
        assert_eq!(committed.status.code(), Some(1), "{}", stderr(&committed));
        let printed = stdout(&committed);
        assert!(printed.contains("play/damaged") && printed.contains("skipped"), "{printed}");
        assert!(printed.contains("committed"), "{printed}");
        assert!(store.prints(&["recover", "--end", "discard", "--force"]).contains("discarded"));
        assert_eq!(store.prints(&["runs"]), "no open runs\n");
        assert!(store.prints(&["verify"]).contains("all is well"));
        let key = ConversationKey::new("play", "damaged");
        let seen = store.with(async |history| history.load(&key).await.unwrap().messages);
        assert_eq!(seen.iter().map(|message| message.text()).collect::<Vec<_>>(), ["seen"]);
    });
}

#[test]
fn an_open_run_whose_row_is_damaged_hides_no_other() {
    for kind in [Kind::Sqlite, Kind::Encrypted] {
        let store = TestStore::new(kind);
        fill_open(&store, &["damaged", "sound"]);
        let damage = "UPDATE open_runs SET attempt = -1
             WHERE number = (SELECT id FROM conversations WHERE conversation = 'damaged')";
        execute_unchecked(&store.path(), damage);

        for command in ["runs", "verify", "doctor"] {
            let output = store.run(&[command]);
            assert_eq!(output.status.code(), Some(1), "{command}: {}", stderr(&output));
            let printed = format!("{}{}", stdout(&output), stderr(&output));
            assert!(command == "doctor" || printed.contains("play/damaged"), "{printed}");
        }
        assert!(stdout(&store.run(&["runs"])).contains("play/sound"));
        let ended = store.run(&["recover", "--end", "discard", "--force"]);
        assert_eq!(ended.status.code(), Some(1), "{}", stderr(&ended));
        let printed = stdout(&ended);
        assert!(printed.contains("play/damaged: its open run skipped"), "{printed}");
        assert!(printed.contains("discarded"), "{printed}");
        let left = store.run(&["recover", "--end", "discard", "--force", "--json"]);
        let left: Vec<Value> =
            stdout(&left).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&left[0]["kind"], &left[0]["run"]), (&"left_alone".into(), &Value::Null));
        assert_eq!(left[1]["left_alone"], 1);
        assert_eq!(left.len(), 2);
    }
}
