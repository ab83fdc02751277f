//! Tests `tower-chat import`.

use std::{fs, path::PathBuf};

use serde_json::{Value, json};
use tower_chat::{ConversationKey, HistoryStore, store::Directory};

use crate::support::*;

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

fn assistant(text: &str) -> Value {
    json!({"role": "assistant", "content": text})
}

/// Returns a turn with two calls whose results are in the opposite order.
fn berths() -> Vec<Value> {
    let call = |id: &str, number: u32| {
        let arguments = json!({"number": number}).to_string();
        json!({"id": id, "type": "function", "function": {"name": "berth", "arguments": arguments}})
    };
    vec![
        user("Which berth is free?"),
        json!({"role": "assistant", "content": null, "tool_calls": [call("c1", 1), call("c2", 2)]}),
        json!({"role": "tool", "tool_call_id": "c2", "content": "The second is taken."}),
        json!({"role": "tool", "tool_call_id": "c1", "content": "The first is free."}),
        assistant("The first."),
    ]
}

fn file(store: &TestStore, name: &str, lines: &[Value]) -> String {
    let path: PathBuf = store.folder().join(name);
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    fs::write(&path, lines.join("\n")).unwrap();
    path.display().to_string()
}

fn import<'a>(from: &'a str, more: &[&'a str]) -> Vec<&'a str> {
    [&["import", "--from", from, "--scope", "harbour"], more].concat()
}

/// Returns the id and the exported messages of each conversation in the store.
fn exported(store: &TestStore) -> Vec<(String, Value)> {
    let lines = store.prints(&["export", "--scope", "harbour"]);
    let line = |line: &str| serde_json::from_str::<Value>(line).unwrap();
    let pair = |line: Value| (line["id"].as_str().unwrap().to_owned(), line["messages"].clone());
    lines.lines().map(line).map(pair).collect()
}

#[test]
fn an_import_writes_new_conversations_and_extends_stored_ones_on_every_store() {
    each_store(|store| {
        let tides = vec![user("When is the tide?"), assistant("At 18:40.")];
        let both = file(
            store,
            "both.jsonl",
            &[
                json!({"id": "berths", "messages": berths()}),
                json!({"id": "tides", "messages": tides}),
            ],
        );
        let printed = store.prints(&import("openai-chat", &[&both]));
        assert_eq!(
            printed,
            "harbour/berths: written, 5 messages\nharbour/tides: written, 2 messages\n\
             imported: 2 written, 0 extended, 0 unchanged, 0 skipped\n"
        );
        // A model receives the results in the order of their calls.
        let mut shown = berths();
        shown.swap(2, 3);
        assert_eq!(
            exported(store),
            [("berths".to_owned(), json!(shown)), ("tides".to_owned(), json!(tides))]
        );
        let tools: Value = serde_json::from_str(&store.prints(&["tools", "--json"])).unwrap();
        assert_eq!((&tools["total"], &tools["tools"][0]["open"]), (&json!(2), &json!(0)));

        let mut longer = tides.clone();
        longer.extend([user("And tomorrow?"), assistant("At 19:30.")]);
        let files = [
            file(store, "berths.json", &[json!(berths())]),
            file(store, "tides.json", &[json!(longer)]),
            file(
                store,
                "other.json",
                &[json!({"id": "berths", "messages": [user("Is it foggy?")]})],
            ),
        ];
        let files = files.each_ref().map(String::as_str);
        let output = store.run(&import("openai-chat", &files));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let lines = stdout(&output);
        let lines: Vec<&str> = lines.lines().collect();
        assert_eq!(
            lines[..2],
            ["harbour/berths: unchanged, 5 messages", "harbour/tides: extended, messages 3 to 4"]
        );
        assert!(
            lines[2].starts_with("harbour/berths: skipped, because the stored conversation"),
            "{}",
            lines[2]
        );
        assert!(lines[2].contains("differs from message 1 on"), "{}", lines[2]);
        assert_eq!(lines[3], "imported: 0 written, 1 extended, 1 unchanged, 1 skipped");
        assert_eq!(exported(store)[0].1, json!(shown));
        assert_eq!(exported(store)[1].1, json!(longer));

        let printed = store.prints(&import("openai-chat", &["--json", "--id", "tides", files[1]]));
        let line: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!(
            line,
            json!({
                "file": files[1], "scope": "harbour", "id": "tides", "outcome": "unchanged",
                "messages": 4, "losses": [],
            })
        );
    });
}

#[test]
fn a_dry_run_of_an_import_reports_the_changes_and_writes_nothing() {
    each_store(|store| {
        let tides = [user("When is high water?"), assistant("At 6:10.")];
        let path = file(store, "tides.json", &[json!(tides)]);
        let printed = store.prints(&import("openai-chat", &["--dry-run", &path]));
        assert!(printed.starts_with("harbour/tides: would be written, 2 messages\n"), "{printed}");
        assert!(!store.path().exists());

        store.prints(&import("openai-chat", &[&file(store, "tides.json", &[json!(tides[..1])])]));
        let path = file(store, "tides.json", &[json!(tides)]);
        let printed = store.prints(&import("openai-chat", &["--dry-run", "--json", &path]));
        let line: Value = serde_json::from_str(&printed).unwrap();
        assert_eq!((&line["outcome"], &line["first_new"]), (&json!("extended"), &json!(2)));
        assert_eq!(exported(store), [("tides".to_owned(), json!(tides[..1]))]);
    });
}

#[test]
fn an_import_names_content_that_is_not_stored_or_not_sent_to_models() {
    each_store(|store| {
        let content = |kind: &str, more: Value| {
            let mut content = json!({"type": kind});
            content.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            content
        };
        let path = file(
            store,
            "ships.jsonl",
            &[
                json!({"role": "user", "contents": [content("text", json!({"text": "Whose ship is it?"}))]}),
                json!({"role": "assistant", "contents": [
                    content("function_call", json!({"call_id": "c1", "name": "own\u{1b}er", "arguments": "{}"})),
                    content("shell_tool_call", json!({"commands": ["ls"]})),
                ]}),
            ],
        );
        let output = store.run(&import("agent-framework", &[&path]));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        assert_eq!(
            stdout(&output),
            "harbour/ships: written, 2 messages\n  \
             line 2: a content of type \"shell_tool_call\" is not stored: messages have no part for it\n  \
             stored message 2: the call of tool \"own\\u{1b}er\" (id \"c1\") has no result; it is \
             stored, and sent to models as interrupted: it is unknown whether the tool has run\n\
             imported: 1 written, 0 extended, 0 unchanged, 0 skipped\n"
        );
        let output = store.run(&import("agent-framework", &["--json", &path]));
        assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
        let line: Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!(line["outcome"], "unchanged");
        let stored: Vec<_> =
            line["losses"].as_array().unwrap().iter().map(|loss| &loss["stored"]).collect();
        assert_eq!(stored, [&json!(false), &json!(true)]);
        store.with(async |history| {
            let key = ConversationKey::new("harbour", "ships");
            let stored = history.load(&key).await.unwrap();
            assert_eq!(stored.messages.iter().map(|it| it.calls().count()).sum::<usize>(), 1);
        });
    });
}

#[test]
fn nothing_is_imported_if_a_file_is_unreadable_or_one_id_is_given_for_two_conversations() {
    each_store(|store| {
        let good = file(store, "good.json", &[json!([user("Is there fog?")])]);
        let cut = file(store, "cut.jsonl", &[user("Is there wind?"), json!("[")]);
        let gemini =
            file(store, "gemini.json", &[json!([{"role": "user", "parts": [{"text": "Ice?"}]}])]);
        let missing = store.folder().join("missing.json").display().to_string();
        for (arguments, expected) in [
            (vec![&*good, &*cut], "cannot read line 2 of"),
            (vec![&*good, &*gemini], "message 1 has the format of gemini"),
            (vec![&*good, &*missing], "missing.json"),
            (vec!["--id", "fog", &*good, &*good], "the files have 2 conversations"),
        ] {
            let output = store.run(&import("openai-chat", &arguments));
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            assert!(stderr(&output).contains(expected), "{}", stderr(&output));
            assert!(stderr(&output).contains("nothing was imported"), "{}", stderr(&output));
        }
        assert!(!store.path().exists());
        store.with(async |history| {
            assert_eq!(history.list("harbour", None, 10).await.unwrap(), []);
        });
    });
}

#[test]
fn an_import_into_a_store_in_memory_is_refused() {
    let store = TestStore::new(Kind::Sqlite);
    let path = file(&store, "one.json", &[json!([user("Is there ice?")])]);
    let output = run(&["import", "--from", "openai-chat", "--store", "memory:", &path]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("is lost when the command ends"), "{}", stderr(&output));
}
