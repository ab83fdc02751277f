//! Tests `tower-chat verify`.

use std::{fs, io::Write as _};

use crate::support::*;

fn verify(store: &Store) -> (i32, Vec<String>) {
    let output = run(&["verify", "--store", &store.argument()]);
    assert_eq!(stderr(&output), "");
    (output.status.code().unwrap(), stdout(&output).lines().map(str::to_owned).collect())
}

#[test]
fn verify_does_not_change_an_intact_store() {
    let store = Store::new();
    fill_intact(&store);
    let before = fs::read(store.path()).unwrap();
    let well = "no problems; checked: 2 conversations, 6 messages, 2 tool calls, and the file of the store";
    assert_eq!(verify(&store), (0, vec![well.to_owned()]));
    assert_eq!(fs::read(store.path()).unwrap(), before);
}

#[test]
fn verify_finds_no_problems_in_a_store_that_runs_of_any_mode_have_filled() {
    for mode in PERSISTENCE {
        let store = Store::new();
        fill_runs(&store, 2, mode);
        let (code, lines) = verify(&store);
        assert_eq!((code, lines.len()), (0, 1), "{lines:?}");
    }
}

#[test]
fn verify_finds_every_repairable_problem() {
    let store = Store::new();
    fill_intact(&store);
    fill_repairable(&store);
    let (code, lines) = verify(&store);
    assert_eq!(
        (code, lines.iter().map(String::as_str).collect::<Vec<_>>()),
        (
            1,
            vec![
                r#"conversation play/dangling, message 2: the call of tool "look" (id "c1") has no result"#,
                r#"conversation play/dangling, message 5: the call of tool "look" (id "c1") has no result"#,
                r#"conversation play/results, message 2: a result (call id "gone") answers no call"#,
                r#"conversation play/results, message 4: a result (call id "lost") answers no call"#,
                r#"conversation play/results, message 4: a result answers call "c1", which has a result already"#,
                "conversation play/rows, message 2: the record of its call 0: message 3 has no result 7",
                "conversation play/rows, message 4: the record of its call 0: message 4 has no call 0",
                "database: rows that belong to no conversation: 1 record of tool calls",
                "8 problems; checked: 6 conversations, 22 messages, 9 tool calls, and the file of the store",
            ]
        )
    );
}

#[test]
fn verify_finds_the_problems_after_an_unreadable_message() {
    let store = Store::new();
    fill_intact(&store);
    fill_unreadable(&store);
    let (code, lines) = verify(&store);
    assert_eq!((code, lines.len()), (1, 5), "{lines:?}");
    assert_eq!(lines[0], "conversation play/gap, message 3: is missing");
    assert!(lines[1].contains("play/torn, message 2: the call"), "{lines:?}");
    assert!(lines[2].contains("play/torn, message 5: cannot be read: not a stored"), "{lines:?}");
    assert!(lines[3].contains("message 6: cannot be read") && lines[3].contains("version 9"));
}

#[test]
fn verify_accepts_two_calls_of_one_message_with_the_same_id() {
    let store = Store::new();
    let twice = tower_chat::Message::tool_calls([call("c1"), call("c1")]);
    let results = ["one", "two"].map(|text| tower_chat::ToolResult::new("c1", text));
    let results = tower_chat::Message::tool_results(results);
    fill_play(&store, "x", vec![tower_chat::Message::user("go"), twice, results]);
    let (code, lines) = verify(&store);
    assert_eq!(code, 0, "{lines:?}");
}

#[test]
fn a_file_whose_pages_are_damaged_is_reported() {
    let store = Store::new();
    let many: Vec<_> = (0..400).map(|_| tower_chat::Message::user("x".repeat(200))).collect();
    fill_play(&store, "x", many);
    let mut bytes = fs::read(store.path()).unwrap();
    let middle = bytes.len() / 4096 / 2 * 4096;
    bytes[middle..middle + 64].fill(0xff);
    fs::File::create(store.path()).unwrap().write_all(&bytes).unwrap();
    let (code, lines) = verify(&store);
    assert_eq!(code, 1);
    assert!(lines[0].starts_with("database: "), "{lines:?}");
    let output = run(&["repair", "--store", &store.argument()]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert_eq!(fs::read(store.path()).unwrap(), bytes, "nothing is written to a damaged file");
}

#[test]
fn a_missing_store_and_a_store_in_memory_are_neither_verified_nor_repaired() {
    let store = Store::new();
    for command in ["verify", "repair"] {
        for location in [store.argument(), "memory:".to_owned()] {
            let output = run(&[command, "--store", &location]);
            assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
            assert!(stderr(&output).starts_with("error: "), "{}", stderr(&output));
        }
    }
    assert!(fs::read_dir(store.folder()).unwrap().next().is_none());
}
