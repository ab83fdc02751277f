//! Journaled plays, and the commands for runs that came to no end.

use std::process::{Child, Stdio};

use serde_json::Value;

use crate::support::*;

/// Kills a journaled play when it has stored so many messages.
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

/// A store in which a killed play has left open runs.
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

/// Nothing is wrong with a store that is not wrong with the recordings themselves.
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
    assert!(stderr(&memory).contains("holds nothing to recover"), "{}", stderr(&memory));
}
