//! Tests `verify` and `repair` with problems that can occur in every kind of store.

use serde_json::{Value, json};
use tower_chat::{
    ConversationKey, Message, ToolResult,
    message::MessageId,
    run::RunId,
    store::{
        Lease, LeaseEnd, Revision,
        author::{Staged, Write},
    },
};
use tower_chat_repair::{INTERRUPTED, extract};

use crate::support::*;

/// Stores conversations in the scope `play`, with their record of tool calls.
fn fill(store: &TestStore, conversations: Vec<(&str, Vec<Message>)>) {
    store.with(async |history| {
        for (id, messages) in conversations {
            let records = extract(&messages.iter().cloned().collect(), 1, 0);
            let key = ConversationKey::new("play", id);
            let id = MessageId { run: RunId::new(), index: 0 };
            let messages = messages.into_iter().map(Into::into);
            let write = Write::new(key, id, Revision::ABSENT, messages).with_tools(records);
            history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
        }
    });
}

fn texts(word: &str) -> Vec<Message> {
    ["question", "answer", "thanks"].map(|what| Message::user(format!("{word}: {what}"))).to_vec()
}

/// Stores problems, of which `repair` can repair only the call without a result.
fn fill_damaged(store: &TestStore) {
    let dangling = vec![
        Message::user("go"),
        Message::tool_calls([call("c1"), call("c2")]),
        Message::tool_results([ToolResult::new("c2", "the second")]),
        Message::assistant("And the first?"),
    ];
    fill(
        store,
        vec![
            ("dangling", dangling),
            ("gap", texts("gap")),
            ("short", texts("short")),
            ("unreadable", texts("unreadable")),
            ("whole", texts("whole")),
        ],
    );
    store.lose("gap", 2);
    store.lose("short", 3);
    store.spoil("unreadable", 2);
}

/// Returns the problems that `verify` finds in this kind of store. In a SQLite file, a missing last
/// message cannot be detected, because the file does not contain the length of a conversation.
fn found(store: &TestStore) -> Vec<(&'static str, u64, &'static str)> {
    let short = ("short", 3, "is missing");
    let of_server = (!is_file(store)).then_some(short);
    let mut found = vec![
        ("dangling", 2, r#"the call of tool "look" (id "c1") has no result"#),
        ("gap", 2, "is missing"),
    ];
    found.extend(of_server);
    found.push(("unreadable", 2, "cannot be read: not a stored message"));
    found
}

fn is_file(store: &TestStore) -> bool {
    matches!(store.kind, Kind::Sqlite | Kind::Encrypted)
}

/// Runs a command, and returns the exit code and the lines of the output.
fn run_on(store: &TestStore, arguments: &[&str]) -> (Option<i32>, Vec<String>) {
    let output = store.run(arguments);
    assert_eq!(stderr(&output), "", "{arguments:?}");
    (output.status.code(), stdout(&output).lines().map(str::to_owned).collect())
}

fn objects(lines: &[String]) -> Vec<Value> {
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn verify_finds_no_problems_in_an_intact_store_of_any_kind() {
    each_store(|store| {
        fill(store, vec![("a", texts("a")), ("b", texts("b"))]);
        let rest = match is_file(store) {
            true => ", and the file of the store",
            false => ", but not the files of the server",
        };
        let well = format!("no problems; checked: 2 conversations, 6 messages, 0 tool calls{rest}");
        assert_eq!(run_on(store, &["verify"]), (Some(0), vec![well]));
        let (code, lines) = run_on(store, &["verify", "--json"]);
        let summary = json!({
            "kind": "summary", "problems": 0, "conversations": 2, "messages": 6, "tool_calls": 0,
            "file": is_file(store),
        });
        assert_eq!((code, objects(&lines)), (Some(0), vec![summary]));
        assert_eq!(run_on(store, &["repair"]), (Some(0), vec!["nothing to repair".to_owned()]));
    });
}

#[test]
fn verify_finds_damage_in_a_store_of_any_kind() {
    each_store(|store| {
        fill_damaged(store);
        let expected = found(store);
        let (code, lines) = run_on(store, &["verify"]);
        assert_eq!((code, lines.len()), (Some(1), expected.len() + 1), "{lines:?}");
        for ((id, message, what), line) in expected.iter().zip(&lines) {
            let start = format!("conversation play/{id}, message {message}: {what}");
            assert!(line.starts_with(&start), "{line}");
        }
        let last = lines.last().unwrap();
        assert!(
            last.starts_with(&format!("{} problems; checked: 5 conv", expected.len())),
            "{last}"
        );
        let (code, lines) = run_on(store, &["verify", "--json"]);
        let mut objects = objects(&lines);
        let summary = objects.pop().unwrap();
        assert_eq!((code, &summary["problems"]), (Some(1), &json!(expected.len())));
        assert_eq!((&summary["kind"], &summary["tool_calls"]), (&json!("summary"), &json!(2)));
        let found: Vec<_> = objects
            .iter()
            .map(|it| [&it["kind"], &it["scope"], &it["conversation"], &it["message"]])
            .collect();
        let expected: Vec<_> = expected
            .iter()
            .map(|(id, message, _)| [json!("problem"), json!("play"), json!(id), json!(message)])
            .collect();
        assert_eq!(found, expected.iter().map(|it| it.each_ref()).collect::<Vec<_>>());
    });
}

#[test]
fn repair_repairs_each_repairable_problem_in_a_store_of_any_kind() {
    each_store(|store| {
        fill_damaged(store);
        let left = found(store).len() - 1;
        let planned = format!("1 to repair, {left} that cannot be repaired");
        let (code, lines) = run_on(store, &["repair", "--dry-run"]);
        assert_eq!((code, lines.last()), (Some(1), Some(&planned)));
        let (code, again) = run_on(store, &["repair", "--dry-run"]);
        assert_eq!((code, again), (Some(1), lines), "a dry run writes nothing");

        let (code, lines) = run_on(store, &["repair", "--json"]);
        let objects = objects(&lines);
        let kinds: Vec<_> = objects.iter().map(|it| it["kind"].as_str().unwrap()).collect();
        let expected = [&["repaired"][..], &vec!["left"; left], &["summary"]].concat();
        assert_eq!((code, kinds), (Some(1), expected));
        let summary = json!({ "kind": "summary", "dry_run": false, "repaired": 1, "left": left });
        assert_eq!(objects.last(), Some(&summary));
        assert_eq!(
            (&objects[0]["conversation"], &objects[0]["message"]),
            (&json!("dangling"), &json!(2))
        );

        let (_, lines) = run_on(store, &["verify"]);
        assert_eq!(lines.len(), left + 1, "{lines:?}");
        assert!(lines.iter().all(|line| !line.contains("dangling")), "{lines:?}");
        let (code, lines) = run_on(store, &["repair"]);
        assert_eq!(
            (code, lines.last()),
            (Some(1), Some(&format!("0 repaired, {left} not repaired")))
        );
        store.with(async |history| {
            let key = ConversationKey::new("play", "dangling");
            let loaded = history.load(&key).await.unwrap();
            let results: Vec<_> = loaded.messages.iter().flat_map(|it| it.results()).collect();
            let results: Vec<_> =
                results.iter().map(|it| (it.call_id.as_deref(), it.text())).collect();
            let expected =
                [(Some("c2"), "the second".to_owned()), (Some("c1"), INTERRUPTED.to_owned())];
            assert_eq!(results, expected);
            let whole = history.load(&ConversationKey::new("play", "whole")).await.unwrap();
            assert_eq!(
                whole.messages.iter().map(|it| it.text()).collect::<Vec<_>>(),
                ["whole: question", "whole: answer", "whole: thanks"]
            );
        });
    });
}

#[test]
fn a_missing_key_of_an_encrypted_store_is_an_error_and_not_damage() {
    let store = TestStore::new(Kind::Encrypted);
    fill_damaged(&store);
    let digits = "2e".repeat(32);
    for command in [&["verify"][..], &["verify", "--json"], &["repair"], &["repair", "--dry-run"]] {
        for (keys, what) in [
            (String::new(), "conversation play/dangling of the store is encrypted: set the"),
            (format!("other:{digits}"), "conversation play/dangling is encrypted with a key that"),
        ] {
            let output = store.command(command).env("TOWER_CHAT_KEYS", keys).output().unwrap();
            let printed = stderr(&output);
            assert_eq!(
                (output.status.code(), stdout(&output)),
                (Some(2), String::new()),
                "{printed}"
            );
            assert!(printed.contains(what) && printed.contains("TOWER_CHAT_KEYS"), "{printed}");
            assert!(!printed.contains(&digits), "{printed}");
        }
    }
    let (_, lines) = run_on(&store, &["verify"]);
    assert_eq!(lines.len(), found(&store).len() + 1, "nothing was changed");
}

#[test]
fn verify_reports_each_moved_encrypted_value_and_checks_the_other_values() {
    let store = TestStore::new(Kind::Encrypted);
    fill(&store, vec![("moved", texts("moved")), ("whole", texts("whole"))]);
    store.swap("moved", 1, 3);
    let (code, lines) = run_on(&store, &["verify"]);
    assert_eq!((code, lines.len()), (Some(1), 3), "{lines:?}");
    for (line, message) in lines.iter().zip([1, 3]) {
        let start = format!("conversation play/moved, message {message}: cannot be read: ");
        assert!(line.starts_with(&start) && line.contains("was moved from message"), "{line}");
    }
    let (code, lines) = run_on(&store, &["repair"]);
    assert_eq!((code, lines.last().unwrap().as_str()), (Some(1), "0 repaired, 2 not repaired"));
}

#[test]
fn recover_ends_open_runs_in_a_store_of_any_kind() {
    each_store(|store| {
        fill(store, vec![("whole", texts("whole"))]);
        let now = std::time::SystemTime::now();
        let minute = std::time::Duration::from_secs(60);
        let mut runs = Vec::new();
        store.with(async |history| {
            for (id, until) in [
                ("held", LeaseEnd::At(now + minute)),
                ("left", LeaseEnd::NotHeld),
                ("other", LeaseEnd::NotHeld),
            ] {
                let key = ConversationKey::new("play", id);
                let run = RunId::new();
                runs.push(run.to_string());
                let lease = Lease { attempt: 1, holder: 7, renewed_at: now, until };
                let staged = Staged { lease, close: None, service_id: None, partial_text: None };
                let messages = [Message::user(format!("{id}: a question")).into()];
                let write =
                    Write::new(key, MessageId { run, index: 0 }, Revision::ABSENT, messages);
                let slot = history.reserve().await.unwrap();
                history.append(slot, vec![write.staged(staged)]).await.unwrap();
            }
        });
        let run = |kind: &str, id: &str, run: &String| json!({ "kind": kind, "scope": "play", "conversation": id, "run": run });
        let summary = |ended: usize, left_alone: usize| json!({ "kind": "summary", "ended": ended, "left_alone": left_alone });
        let one = ["recover", "--end", "commit", "--conversation", "left", "--json"];
        let (code, lines) = run_on(store, &one);
        let expected = vec![run("committed", "left", &runs[1]), summary(1, 0)];
        assert_eq!((code, objects(&lines)), (Some(0), expected));
        let (code, lines) = run_on(store, &["recover", "--end", "discard", "--json"]);
        let expected = vec![
            run("left_alone", "held", &runs[0]),
            run("discarded", "other", &runs[2]),
            summary(1, 1),
        ];
        assert_eq!((code, objects(&lines)), (Some(1), expected));
        let forced = ["recover", "--end", "discard", "--force"];
        let line = format!("play/held: run {} discarded", runs[0]);
        assert_eq!(run_on(store, &forced), (Some(0), vec![line]));
        let exported = objects(&run_on(store, &["export"]).1);
        let ids: Vec<_> = exported.iter().map(|line| line["id"].as_str().unwrap()).collect();
        assert_eq!(ids, ["left", "whole"]);
    });
}

#[test]
fn prune_deletes_old_runs_in_a_store_of_any_kind() {
    each_store(|store| {
        fill(store, vec![("long", texts("first")), ("short", texts("only"))]);
        store.with(async |history| {
            for word in ["second", "third"] {
                let key = ConversationKey::new("play", "long");
                let expected = history.head(&key).await.unwrap().revision;
                let id = MessageId { run: RunId::new(), index: 0 };
                let messages = texts(word).into_iter().map(Into::into);
                let write = Write::new(key, id, expected, messages);
                history.append(history.reserve().await.unwrap(), vec![write]).await.unwrap();
            }
        });
        let object = |kind: &str| json!({ "kind": kind, "scope": "play", "conversation": "long", "runs": 2, "messages": 6 });
        let summary = |dry_run: bool| {
            json!({
                "kind": "summary", "dry_run": dry_run, "conversations": 1, "runs": 2, "messages": 6,
                "left_alone": 0,
            })
        };
        let prune = ["prune", "--keep-messages", "2", "--json"];
        let (code, lines) = run_on(store, &[&prune[..], &["--dry-run"]].concat());
        assert_eq!((code, objects(&lines)), (Some(0), vec![object("would_go"), summary(true)]));
        let (code, lines) = run_on(store, &prune);
        assert_eq!((code, objects(&lines)), (Some(0), vec![object("gone"), summary(false)]));
        let (code, lines) = run_on(store, &["prune", "--keep-messages", "2"]);
        let nothing = "deleted: 0 messages in 0 runs of 0 conversations".to_owned();
        assert_eq!((code, lines), (Some(0), vec![nothing]));
        assert_eq!(run_on(store, &["verify"]).0, Some(0));
        store.spoil("short", 2);
        let (code, lines) =
            run_on(store, &["prune", "--keep-messages", "0", "--dry-run", "--json"]);
        let objects = objects(&lines);
        let kinds: Vec<_> = objects.iter().map(|it| it["kind"].as_str().unwrap()).collect();
        assert_eq!((code, kinds), (Some(1), vec!["left_alone", "summary"]), "{lines:?}");
        assert_eq!(objects[0]["conversation"], "short");
        assert!(objects[0]["why"].as_str().unwrap().contains("message 2"), "{lines:?}");
    });
}
