//! Tests `tower-chat show`.

use std::fs;

use serde_json::{Value, json};
use tower_chat::{
    ConversationKey, HistoryStore,
    store::{HistorySummary, Summaries},
};

use crate::support::*;

const ODD: &str = "漢字 \u{1b}[2J";

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Runs a command, which must exit with `code`, and returns its output and its errors.
fn printed(store: &TestStore, arguments: &[&str], code: i32) -> (String, String) {
    let output = store.run(arguments);
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", stderr(&output));
    (stdout(&output), stderr(&output))
}

/// Returns each command in a chapter of the guide, with the output that the chapter shows.
fn recordings(chapter: &str) -> Vec<(String, String)> {
    let path = format!("{}/../../docs/guide/src/{chapter}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).unwrap();
    let blocks = text.split("```console\n").skip(1).filter_map(|rest| rest.split("```").next());
    let commands = blocks.flat_map(|block| block.split("$ ").skip(1));
    let recordings = commands.map(|command| {
        let (command, output) = command.split_once('\n').unwrap();
        (command.to_owned(), format!("{}\n", output.trim_end()))
    });
    recordings.filter(|(command, _)| command.starts_with("tower-chat ")).collect()
}

#[test]
fn the_guide_contains_the_actual_output_of_the_command() {
    let recordings = recordings("directory.md");
    assert_eq!(recordings.len(), 3);
    each_store(|store| {
        fill_observed(store, vec![wardrobe(), hats()]);
        for (command, expected) in &recordings {
            let arguments: Vec<&str> = command.split(' ').skip(1).collect();
            let found = store.prints(&arguments);
            assert_eq!(&found, expected, "{command} prints\n{found}");
        }
    });
}

#[test]
fn show_prints_every_kind_of_part_and_marks_content_that_is_not_sent() {
    let long = "x".repeat(600);
    let rows = format!("line\n{}", "                | line\n".repeat(11));
    let expected = format!(
        r#"conversation bob/漢字 \u{{1b}}[2J: Hats for 巴黎 in winter
run_open; 4 messages, 2 runs; 3 calls, 18 in, 4 out, cost 0.000000
created 2026-11-23 09:00:00, last active 2026-11-23 09:01:41

run 01a207a2-3280-7000-8000-000000000000, per_run, 2026-11-23 09:00:00, 3.000 s
  unknown model: 1 call, 9 in, 1 out
  #1 user Bob \u{{9b}}1m, 2026-11-23 09:00:00
    | See these:
    | \u{{1b}}[31mred\u{{202e}}
    image/png, 8 bytes of base64
    application/pdf at https://host/file.pdf
    text/plain, file file_9
    error
      | the upload broke
    item of anthropic, 19 bytes
  #2 assistant, 2026-11-23 09:00:01, round 0
    call lost (c7), pending
      arguments | {{}}
    ! no message has a result of the call: it is sent as interrupted
    call long (c8), ok
      arguments | {{"text":"{long}"}}
      result #3 | {rows}                … 199 bytes in total; --full prints them
  #3 tool, 2026-11-23 09:00:02
    1 result, printed with the calls
  #4 tool, 2026-11-23 09:00:03
    ! nothing of it is sent to the model
    result of c9
      | of no call
    ! the result answers no call: it is not sent

run 01a207a3-b920-7000-8000-000000000000, journaled, 2026-11-23 09:01:40, 1.000 s
  model a: 1 call, 4 in, 1 out
  model b: 1 call, 5 in, 2 out, cost 0.000000
  open: its messages are staged, attempt 2, no process has its lease
  #5 user, staged, 2026-11-23 09:01:40
    | go on
  #6 assistant, staged, 2026-11-23 09:01:41, round 0
    call slow (c10), pending
      arguments | {{"n":1}}
  the beginning of an answer, staged
    | I have
"#
    );
    each_store(|store| {
        fill_observed(store, vec![odd()]);
        assert_eq!(store.prints(&["show", "bob", ODD]), expected);
        let full = store.prints(&["show", "bob", ODD, "--full"]);
        assert_eq!(full.matches("| line\n").count(), 40, "{full}");
        assert!(
            full.contains("    item of anthropic, 19 bytes\n      | {\"type\":\"citation\"}\n")
        );
    });
}

#[test]
fn show_prints_decisions_and_the_results_of_the_record() {
    let expected = r#"conversation carol/decisions
idle; 5 messages, 1 run; 0 calls, 0 in, 0 out
created 2026-11-23 10:00:00, last active 2026-11-23 10:00:04

run 01a207d9-2100-7000-8000-000000000000, journaled, 2026-11-23 10:00:00, 4.000 s
  #1 user, 2026-11-23 10:00:00
    | Send it, and erase the rest.
  #2 assistant, 2026-11-23 10:00:01, round 0
    call send (call_one), ok, approval approval_one, 0.300 s
      arguments | {"of":"one"}
      result #4 | the beginning
                | [truncated]
      ! the result was cut when it was stored
    call erase (call_two), rejected_by_approval, approval approval_two
      arguments | {"of":"two"}
      error #4  | The caller has rejected the call: not now
  #3 user, 2026-11-23 10:00:02
    ! nothing of it is sent to the model
    approved approval_one
    ! decisions are not sent
    rejected approval_two
      | not now
    ! decisions are not sent
  #4 tool, 2026-11-23 10:00:03
    2 results, printed with the calls
  #5 assistant, 2026-11-23 10:00:04, round 1
    call web_search (search_1), run by the provider
      arguments | {"query":"coats"}
    result of search_1
      | 42 coats
    call close_ticket (call_end), ok
      arguments | {}
      result    | The ticket is closed.
      it is in the record of tool calls alone
    ! no message has a result of the call: it is not sent
"#;
    each_store(|store| {
        fill_observed(store, vec![decided()]);
        let found = store.prints(&["show", "carol", "decisions"]);
        assert_eq!(found, expected, "{found}");
    });
}

#[test]
fn a_long_conversation_is_printed_in_pages_that_begin_at_its_end() {
    each_store(|store| {
        fill_observed(store, vec![long(10_000)]);
        let numbers = |arguments: &[&str]| -> Vec<String> {
            let page = store.prints(&[&["show", "dave", "long"], arguments].concat());
            let headings = page.lines().filter_map(|line| line.strip_prefix("  #"));
            let mut found: Vec<_> =
                headings.filter_map(|line| line.split(' ').next()).map(str::to_owned).collect();
            let earlier =
                page.lines().find_map(|line| line.strip_prefix("there are earlier messages: "));
            found.extend(earlier.map(str::to_owned));
            found
        };
        let of = |first: u64, last: u64, earlier: Option<u64>| -> Vec<String> {
            let earlier = earlier.map(|earlier| format!("--before {earlier}"));
            (first..=last).map(|number| number.to_string()).chain(earlier).collect()
        };
        assert_eq!(numbers(&[]), of(9_951, 10_000, Some(9_951)));
        assert_eq!(numbers(&["--before", "9951", "--last", "3"]), of(9_948, 9_950, Some(9_948)));
        assert_eq!(numbers(&["--before", "4"]), of(1, 3, None));
        assert_eq!(numbers(&["--before", "1"]), of(1, 0, None));
        let json = lines(&store.prints(&["show", "dave", "long", "--json", "--last", "10000"]));
        assert_eq!((json.len(), &json[9_999]["number"]), (10_000, &json!(10_000)));
        assert_eq!(json[6_999]["parts"], json!([{"text": {"text": "answer 7000"}}]));
    });
}

#[test]
fn the_summary_in_force_is_printed_with_what_it_covers() {
    each_store(|store| {
        fill_observed(store, vec![long(6)]);
        store.with(async |history| {
            let key = ConversationKey::new("dave", "long");
            let last = history.load(&key).await.unwrap().message(4).unwrap().id.unwrap();
            let summary = HistorySummary::new(4, last, "Dave asks\nquestions.")
                .with_made_by(Some(ODD.into()));
            history.add_summary(&key, &summary, 0).await.unwrap();
        });
        let page = store.prints(&["show", "dave", "long"]);
        let (_, summary) = page.split_once("the model receives this summary by ").unwrap();
        let summary: Vec<&str> = summary.lines().take(3).collect();
        assert!(
            summary[0].starts_with("漢字 \\u{1b}[2J instead of messages up to #4, "),
            "{summary:?}"
        );
        assert_eq!(summary[1..], ["    | Dave asks", "    | questions."]);
        let json = lines(&store.prints(&["show", "dave", "long", "--json"]));
        let covered = json!([{"part": null, "reason": "summarized"}]);
        let reasons: Vec<&Value> = json.iter().map(|line| &line["reasons"]).collect();
        assert_eq!(reasons, [&covered, &covered, &covered, &covered, &json!([]), &json!([])]);
    });
}

#[test]
fn the_json_of_show_has_the_stored_messages_with_their_metadata() {
    each_store(|store| {
        fill_observed(store, vec![wardrobe(), odd()]);
        let found = lines(&store.prints(&["show", "alice", "wardrobe", "--json"]));
        let numbers: Vec<_> = found.iter().map(|line| line["number"].as_u64().unwrap()).collect();
        assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
        let expected = json!({
            "scope": "alice", "id": "wardrobe", "number": 6, "run": run_id(60_000).to_string(), "index": 1,
            "staged": false, "role": "assistant", "author": null, "added_at": "2026-11-23T08:01:01.300Z",
            "parts": [
                {"text": {"text": "I can order one."}},
                {"approval_request": {
                    "id": "approval_1",
                    "call": {
                        "id": "call_3", "name": "order",
                        "arguments": r#"{"item":"rain coat","price":"129 EUR"}"#,
                    },
                    "required": true,
                }},
            ],
            "metadata": {},
            "calls": [{
                "round": 0, "status": "pending_approval", "error": null, "started_at": null,
                "finished_at": null, "duration_ms": null, "result_message": null,
                "recorded_result": null,
            }],
            "sent": "changed", "reasons": [{"part": 1, "reason": "awaiting_approval"}],
        });
        assert_eq!(found[5], expected);
        let failed = json!({
            "round": 0, "status": "error", "error": "connection refused",
            "started_at": "2026-11-23T08:00:00.910Z", "finished_at": "2026-11-23T08:00:01.440Z",
            "duration_ms": 530, "result_message": 3, "recorded_result": null,
        });
        assert_eq!(found[1]["calls"][1], failed);
        let odd = lines(&store.prints(&["show", "bob", ODD, "--json"]));
        let staged: Vec<_> = odd.iter().map(|line| line["staged"].as_bool().unwrap()).collect();
        assert_eq!(staged, [false, false, false, false, true, true]);
        let sent: Vec<_> = odd.iter().map(|line| line["sent"].as_str()).collect();
        let expected =
            [Some("unchanged"), Some("changed"), Some("unchanged"), Some("left_out"), None, None];
        assert_eq!(sent, expected);
    });
}

#[test]
fn show_marks_other_messages_as_omitted_under_another_policy() {
    each_store(|store| {
        fill_observed(store, vec![wardrobe()]);
        let marks = |policy: Value| -> Vec<(u64, Vec<String>)> {
            let policy = policy.to_string();
            let printed =
                store.prints(&["show", "alice", "wardrobe", "--json", "--policy", &policy]);
            let reasons = |line: &Value| {
                let reasons = line["reasons"].as_array().unwrap().iter();
                reasons.map(|it| it["reason"].as_str().unwrap().to_owned()).collect()
            };
            let printed = lines(&printed);
            let marked =
                printed.iter().map(|line| (line["number"].as_u64().unwrap(), reasons(line)));
            marked.filter(|(_, reasons): &(u64, Vec<String>)| !reasons.is_empty()).collect()
        };
        let of = |number, reasons: &[&str]| {
            (number, reasons.iter().map(|it| (*it).to_owned()).collect())
        };
        let waits = of(6, &["awaiting_approval"]);
        assert_eq!(marks(json!({})), std::slice::from_ref(&waits));
        let outside = [1, 2, 3, 4].map(|number| of(number, &["outside_window"]));
        let window = marks(json!({"window": {"turns": 1}}));
        assert_eq!(window, [&outside[..], std::slice::from_ref(&waits)].concat());
        let stale = [of(2, &["stale", "stale"]), of(3, &["stale", "stale"]), waits];
        assert_eq!(marks(json!({"freshness": {"window": 60}})), stale);
        let page = store.prints(&[
            "show",
            "alice",
            "wardrobe",
            "--policy",
            r#"{"freshness": {"window": 60}}"#,
            "--last",
            "5",
        ]);
        assert!(
            page.contains("      ! the result is too old: it is not sent, nor its call\n"),
            "{page}"
        );
    });
}

#[test]
fn a_call_that_waits_for_approval_outside_the_page_is_named_below_the_page() {
    each_store(|store| {
        fill_observed(store, vec![wardrobe()]);
        let page = store.prints(&["show", "alice", "wardrobe", "--before", "3", "--last", "1"]);
        let expected = r#"
waiting for approval, in messages that are not printed
    call order (call_3), approval approval_1
      arguments | {"item":"rain coat","price":"129 EUR"}
"#;
        assert!(page.ends_with(expected), "{page}");
        // The message with the results is not printed.
        assert!(page.contains("      error #3  | The shop does not answer.\n"), "{page}");
    });
}

#[test]
fn the_error_of_an_unknown_conversation_advises_to_list_the_conversations() {
    each_store(|store| {
        store.with(async |_| {});
        let (out, error) = printed(store, &["show", "alice", "nothing"], 2);
        let expected = "error: there is no conversation alice/nothing: see `tower-chat list`\n";
        assert_eq!((out.as_str(), error.as_str()), ("", expected));
    });
}

#[test]
fn show_prints_the_readable_messages_and_reports_the_unreadable_conversation() {
    let store = TestStore::new(Kind::Sqlite);
    fill_observed(&store, vec![wardrobe()]);
    assert_eq!(replace_stored(&store.path(), "wear in Paris", "wear\u{1b}[5m\" in"), 1);
    let (page, error) = printed(&store, &["show", "alice", "wardrobe", "--last", "4"], 1);
    assert!(page.contains("| Rain, 7 degrees.") || page.contains("| Rain"), "{page}");
    assert!(error.contains("conversation alice/wardrobe cannot be loaded"), "{error}");
    assert!(error.contains("find the problem with `tower-chat verify`"), "{error}");
    let (page, error) = printed(&store, &["show", "alice", "wardrobe"], 2);
    assert_eq!(page, "");
    assert!(
        error.contains("the messages of conversation alice/wardrobe cannot be read"),
        "{error}"
    );
}

#[test]
fn contradictory_or_invalid_arguments_of_show_are_refused() {
    let store = TestStore::new(Kind::Sqlite);
    fill_observed(&store, vec![hats()]);
    for (arguments, message) in [
        (&["show", "alice"][..], "<ID>"),
        (&["show", "alice", "hats", "--last", "0"], "--last"),
        (&["show", "alice", "hats", "--policy", "turns"], "it is not JSON"),
        (&["show", "alice", "hats", "--policy", r#"{"windows": 1}"#], "unknown field `windows`"),
    ] {
        let (out, error) = printed(&store, arguments, 2);
        assert_eq!(out, "", "{arguments:?}");
        assert!(error.contains(message), "{arguments:?}: {error}");
    }
}

#[test]
fn show_succeeds_if_the_reader_of_its_output_disconnects() {
    let store = TestStore::new(Kind::Sqlite);
    fill_observed(&store, vec![long(4_000)]);
    for arguments in [&["--last", "4000"][..], &["--last", "4000", "--json"]] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let mut command = store.command(&[&["show", "dave", "long"], arguments].concat());
        let output = command.stdout(writer).output().unwrap();
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()));
    }
}
