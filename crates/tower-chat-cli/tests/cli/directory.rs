//! Tests the commands that print the directory: `list`, `runs` for a conversation, and `usage`.

use serde_json::{Value, json};

use crate::support::*;

fn filled(store: &TestStore) {
    fill_observed(store, vec![wardrobe(), odd()]);
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Returns the output of a command on a terminal with this number of columns.
fn narrow(store: &TestStore, columns: &str, arguments: &[&str]) -> String {
    let output = store.command(arguments).env("COLUMNS", columns).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    stdout(&output)
}

const LISTED: &str = "\
scope  id              title                    state                 messages  runs  tokens      cost  last active
bob    漢字 \\u{1b}[2J  Hats for 巴黎 in winter  run_open                     4     2      22  0.000000  2026-11-23 09:01:41
alice  wardrobe        A coat for Paris         waiting_for_approval         6     2    2749  0.000647  2026-11-23 08:01:01
";

#[test]
fn conversations_are_listed_by_their_last_activity() {
    each_store(|store| {
        filled(store);
        assert_eq!(store.prints(&["list"]), LISTED);
        let of_alice: String = LISTED.lines().filter(|line| !line.starts_with("bob")).collect();
        let squeezed = |text: &str| text.split_whitespace().collect::<String>();
        for arguments in [
            &["--scope", "alice"][..],
            &["--state", "waiting-for-approval"],
            &["--metadata", "topic=clothes"],
            &["--metadata", "year=2026", "--metadata", "topic=clothes"],
        ] {
            let printed = store.prints(&[&["list"], arguments].concat());
            assert_eq!(squeezed(&printed), squeezed(&of_alice), "{arguments:?}");
        }
        let since = store.prints(&["list", "--active-since", "2026-11-23T08:30:00Z"]);
        assert!(since.contains("bob") && !since.contains("alice"), "{since}");
        for arguments in [&["--scope", "carol"][..], &["--metadata", "year=\"2026\""]] {
            let printed = store.prints(&[&["list"], arguments].concat());
            assert_eq!(printed, "no conversations\n", "{arguments:?}");
            assert_eq!(store.prints(&[&["list", "--json"], arguments].concat()), "");
        }
    });
}

#[test]
fn a_list_continues_at_the_cursor_of_the_previous_page() {
    each_store(|store| {
        filled(store);
        let first = store.prints(&["list", "--limit", "1"]);
        let (last, cursor) = (
            first.lines().last().unwrap(),
            "there are more conversations: give --limit, or --after ",
        );
        let cursor = last.strip_prefix(cursor).unwrap_or_else(|| panic!("{first}"));
        let second = store.prints(&["list", "--limit", "1", "--after", cursor]);
        assert!(first.contains("bob") && !first.contains("alice"), "{first}");
        assert!(second.contains("wardrobe") && !second.contains("there are more"), "{second}");

        let all = lines(&store.prints(&["list", "--json"]));
        let page = lines(&store.prints(&["list", "--json", "--limit", "1"]));
        assert_eq!((page.len(), &page[0]), (1, &all[0]));
        let cursor = all[0]["cursor"].as_str().unwrap();
        assert_eq!(lines(&store.prints(&["list", "--json", "--after", cursor])), all[1..]);
    });
}

#[test]
fn the_json_of_a_list_contains_all_fields_of_the_directory() {
    each_store(|store| {
        filled(store);
        let mut listed = lines(&store.prints(&["list", "--json", "--scope", "alice"]));
        listed[0]["cursor"].take();
        let usage = json!({
            "service_calls": 3, "tool_calls": 3, "input_tokens": 2650, "cached_input_tokens": 1650,
            "output_tokens": 99, "reasoning_tokens": 24, "total_tokens": 2749, "cost_nanos": 647_250,
        });
        let expected = json!({
            "scope": "alice", "id": "wardrobe", "title": "A coat for Paris",
            "metadata": {"topic": "clothes", "year": 2026}, "description_version": 1,
            "state": "waiting_for_approval", "created_at": "2026-11-23T08:00:00.000Z",
            "last_active_at": "2026-11-23T08:01:01.300Z", "messages": 6, "runs": 2,
            "last_mode": "per_service_call", "usage": usage, "cursor": null,
        });
        assert_eq!(listed, [expected]);
        let odd = lines(&store.prints(&["list", "--json", "--scope", "bob"]));
        assert_eq!((&odd[0]["id"], &odd[0]["metadata"]), (&json!("漢字 \u{1b}[2J"), &json!({})));
    });
}

#[test]
fn the_title_is_shortened_if_the_terminal_is_narrow() {
    let store = TestStore::new(Kind::Sqlite);
    filled(&store);
    let cut = LISTED.replace("Hats for 巴黎 in winter", "Hats for 巴黎 in…");
    let cut = cut.replace("title                    ", "title              ");
    let cut = cut.replace("A coat for Paris         ", "A coat for Paris   ");
    assert_eq!(narrow(&store, "117", &["list"]), cut);
    let least = narrow(&store, "20", &["list"]);
    assert!(least.contains("Hats fo…") && least.contains("wardrobe"), "{least}");
    assert_eq!(narrow(&store, "0", &["list"]), LISTED);
    assert_eq!(narrow(&store, "wide", &["list"]), LISTED);
}

#[test]
fn all_runs_of_a_conversation_are_listed_with_their_usage_of_each_model() {
    each_store(|store| {
        filled(store);
        let runs = store.prints(&["runs", "alice", "wardrobe"]);
        let expected = "\
run                                   mode              began                seconds  open  model       calls  tool calls  input  cached  output  reasoning      cost
01a2076c-2e60-7000-8000-000000000000  per_service_call  2026-11-23 08:01:00    1.300  no    gpt-5-mini      1           1   1400    1250      38          0  0.000195
01a2076b-4400-7000-8000-000000000000  per_service_call  2026-11-23 08:00:00    2.104  no    gpt-5-mini      2           2   1250     400      61         24  0.000453
";
        assert_eq!(runs, expected);
        let odd = store.prints(&["runs", "bob", "漢字 \u{1b}[2J"]);
        let cells: Vec<Vec<&str>> = odd
            .lines()
            .map(|line| line.split("  ").filter(|cell| !cell.is_empty()).collect())
            .collect();
        let trimmed: Vec<&str> = cells[1][1..6].iter().map(|cell| cell.trim()).collect();
        assert_eq!(trimmed, ["journaled", "2026-11-23 09:01:40", "1.000", "yes", "model a"]);
        assert_eq!(cells[2][0].trim(), "model b", "{odd}");
        assert_eq!(cells[3][1..3], ["per_run", "2026-11-23 09:00:00"], "{odd}");
        let json = lines(&store.prints(&["runs", "bob", "漢字 \u{1b}[2J", "--json"]));
        assert_eq!((&json[0]["is_open"], &json[1]["is_open"]), (&json!(true), &json!(false)));
        assert_eq!(json[0]["models"][1]["model"], json!("model b"));
        assert_eq!(json[0]["models"][1]["usage"]["cost_nanos"], json!(3));
        assert_eq!(json[1]["models"][0]["model"], Value::Null);
        assert_eq!(json[1]["began_at"], json!("2026-11-23T09:00:00.000Z"));
        // Without the key of a conversation, the command lists open runs.
        let open = lines(&store.prints(&["runs", "--json"]));
        assert_eq!((open.len(), &open[0]["attempt"]), (1, &json!(2)));
    });
}

#[test]
fn usage_is_added_up_by_model_day_scope_conversation_or_run() {
    each_store(|store| {
        filled(store);
        let expected = "\
model       runs  calls  tool calls  input  cached  output  reasoning      cost
-              1      1           2      9       0       1          0         -
gpt-5-mini     2      3           3   2650    1650      99         24  0.000647
model a        1      1           0      4       0       1          0         -
model b        1      1           1      5       0       2          0  0.000000
total                 6           6   2668    1650     103         24  0.000647
";
        assert_eq!(store.prints(&["usage", "--by", "model"]), expected);
        let of = |arguments: &[&str]| -> Vec<Value> {
            let mut found = lines(&store.prints(&[&["usage", "--json"], arguments].concat()));
            for line in &mut found {
                let usage = line["usage"].take();
                line["usage"] = usage["total_tokens"].clone();
            }
            found
        };
        let days = of(&[]);
        assert_eq!(days, [json!({"day": "2026-11-23", "runs": 4, "usage": 2771})]);
        let scopes = of(&["--by", "scope"]);
        let expected = [("alice", 2, 2749), ("bob", 2, 22)];
        let expected =
            expected.map(|(scope, runs, of)| json!({"scope": scope, "runs": runs, "usage": of}));
        assert_eq!(scopes, expected);
        let conversation = json!({"scope": "alice", "id": "wardrobe", "runs": 2, "usage": 2749});
        assert_eq!(of(&["--by", "conversation", "--scope", "alice"]), [conversation]);
        let run = json!({
            "scope": "alice", "id": "wardrobe", "run": run_id(60_000).to_string(), "runs": 1,
            "usage": 1438,
        });
        assert_eq!(
            of(&["--by", "run", "--since", "2026-11-23T08:00:30Z", "--until", "2026-11-23T08:30"]),
            [run]
        );
        assert_eq!(store.prints(&["usage", "--until", "2026-11-22"]), "there is no usage\n");
        assert_eq!(store.prints(&["usage", "--until", "2026-11-21", "--json"]), "");
    });
}

#[test]
fn an_empty_store_is_reported_as_empty_and_an_unknown_conversation_is_an_error() {
    each_store(|store| {
        store.with(async |_| {});
        assert_eq!(store.prints(&["list"]), "no conversations\n");
        assert_eq!(store.prints(&["usage"]), "there is no usage\n");
        let unknown = store.run(&["runs", "alice", "nothing\u{1b}[2J"]);
        assert_eq!((unknown.status.code(), stdout(&unknown)), (Some(2), String::new()));
        let expected =
            "error: there is no conversation alice/nothing\\u{1b}[2J: see `tower-chat list`\n";
        assert_eq!(stderr(&unknown), expected);
    });
}

#[test]
fn a_conversation_whose_directory_entry_is_unreadable_is_reported() {
    let store = TestStore::new(Kind::Sqlite);
    filled(&store);
    let sql = "UPDATE conversations SET metadata = 'no JSON' WHERE scope = 'alice'";
    assert_eq!(execute(&store.path(), sql), 1);
    let output = store.run(&["list"]);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    assert!(stdout(&output).contains("bob") && !stdout(&output).contains("alice"));
    assert!(
        stderr(&output).starts_with("error: the directory entry of conversation alice/wardrobe")
    );
}

#[test]
fn contradictory_or_invalid_arguments_are_refused() {
    let store = TestStore::new(Kind::Sqlite);
    filled(&store);
    for (arguments, printed) in [
        (&["list", "--metadata", "topic"][..], "it has no `=`"),
        (&["list", "--active-since", "soon"], "it is neither an age"),
        (&["list", "--after", "1.2"], "is not a directory cursor"),
        (&["list", "--limit", "0"], "--limit"),
        (&["usage", "--by", "hour"], "possible values: run, conversation, scope, model, day"),
        (&["runs", "alice"], "<ID>"),
    ] {
        let output = store.run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(stderr(&output).contains(printed), "{arguments:?}: {}", stderr(&output));
    }
}

#[test]
fn the_directory_commands_succeed_if_the_reader_of_the_output_disconnects() {
    let store = TestStore::new(Kind::Sqlite);
    filled(&store);
    for arguments in
        [&["list"][..], &["list", "--json"], &["usage"], &["runs", "alice", "wardrobe"]]
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = store.command(arguments).stdout(writer).output().unwrap();
        assert_eq!(
            (output.status.code(), stderr(&output)),
            (Some(0), String::new()),
            "{arguments:?}"
        );
    }
}
