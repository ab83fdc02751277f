//! Tests the commands for open runs.

use serde_json::Value;
use tower_chat::{
    ConversationKey, HistoryStore, Message, PersistenceMode,
    message::MessageId,
    run::RunId,
    store::{
        Lease, LeaseEnd, Revision,
        author::{Staged, Write},
    },
};

use crate::support::*;

fn open_runs(store: &Store) -> Vec<Value> {
    let output = run(&["runs", "--store", &store.argument(), "--json"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn with_open_runs() -> Store {
    let store = Store::new();
    fill_open_runs(&store, 3);
    assert_eq!(open_runs(&store).len(), 3);
    store
}

fn assert_is_well_formed(store: &Store) {
    let output = run(&["verify", "--store", &store.argument()]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
}

#[test]
fn open_runs_are_hidden_from_exports_and_listed_with_the_states_of_their_calls() {
    let store = with_open_runs();
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
    assert_is_well_formed(&store);
}

#[test]
fn recover_commits_or_discards_open_runs_and_the_store_is_well_formed_afterwards() {
    for end in ["commit", "discard"] {
        let store = with_open_runs();
        let before = export(&store.argument(), &["--record"]);
        let open = open_runs(&store);
        let recover = ["recover", "--store", &store.argument(), "--end", end];
        let young = run(&[&recover[..], &["--older-than", "1h"]].concat());
        assert_eq!((young.status.code(), stdout(&young)), (Some(0), String::new()));
        let output = run(&recover);
        assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
        assert_eq!(stdout(&output).lines().count(), open.len());
        assert!(open_runs(&store).is_empty());
        assert_is_well_formed(&store);
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
fn the_list_of_a_store_without_open_runs_says_that_there_are_none() {
    let store = Store::new();
    fill_runs(&store, 1, PersistenceMode::Journaled);
    assert_eq!(stdout(&run(&["runs", "--store", &store.argument()])), "no open runs\n");
    let missing = run(&["runs", "--store", "sqlite:/nowhere/at/all.db"]);
    assert_eq!(missing.status.code(), Some(2));
    let memory = run(&["recover", "--store", "memory:", "--end", "commit"]);
    assert_eq!(memory.status.code(), Some(2));
    assert!(stderr(&memory).contains("has nothing to recover"), "{}", stderr(&memory));
}

/// Stores conversations with one visible message, and an open run with one staged message.
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
            let lease = Lease { attempt: 1, holder: 1, renewed_at, until: LeaseEnd::NotHeld };
            let staged = Staged { lease, close: None, service_id: None, partial_text: None };
            append(write(at, "staged").staged(staged).beginning_attempt()).await;
        }
    });
}

#[test]
fn a_damaged_open_run_is_reported_beside_the_others_and_can_be_discarded() {
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
        assert!(store.prints(&["verify"]).contains("no problems"));
        let key = ConversationKey::new("play", "damaged");
        let seen = store.with(async |history| history.load(&key).await.unwrap().messages);
        assert_eq!(seen.iter().map(|message| message.text()).collect::<Vec<_>>(), ["seen"]);
    });
}

#[test]
fn other_open_runs_are_listed_although_the_row_of_an_open_run_is_damaged() {
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
