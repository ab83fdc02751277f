//! Tests `tower-chat tools`.

use serde_json::{Value, json};
use tower_chat::{Message, PersistenceMode, ToolCall, ToolResult};
use tower_chat_repair::extract;

use crate::support::*;

fn tools(store: &Store, more: &[&str]) -> (Value, String) {
    let output = run(&[&["tools", "--json", "--store", &store.argument()], more].concat());
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let printed = stdout(&output);
    assert_eq!(printed.lines().count(), 1, "{printed}");
    (serde_json::from_str(&printed).unwrap(), stderr(&output))
}

/// Returns the name of each tool, and the numbers of its calls, errors and open calls.
fn counts(summary: &Value) -> Vec<(String, u64, u64, u64)> {
    let counted = |tool: &Value| {
        assert!(tool["duration_ms"].is_u64(), "{tool}");
        let number = |field: &str| tool[field].as_u64().unwrap();
        let name = tool["name"].as_str().unwrap().to_owned();
        (name, number("calls"), number("errors"), number("open"))
    };
    summary["tools"].as_array().unwrap().iter().map(counted).collect()
}

/// Returns a store with two conversations and the record of their tool calls.
fn filled() -> Store {
    let store = Store::new();
    let weather = |id: &str| ToolCall::new(id, "weather", "{\"city\": \"Paris\"}");
    let first = vec![
        Message::user("go"),
        Message::tool_calls([weather("c1"), ToolCall::new("c2", "Wardrobe", "{}")]),
        Message::tool_results([ToolResult::new("c1", "rain"), ToolResult::error("c2", "locked")]),
        Message::assistant("A coat."),
    ];
    let second = vec![Message::user("go"), Message::tool_calls([weather("c1")])];
    for (scope, id, messages) in [("alice", "x", first), ("bob", "y", second)] {
        let records = extract(&messages.iter().cloned().collect(), 1, 0);
        fill_recorded(&store, scope, id, messages, records);
    }
    store
}

#[test]
fn calls_are_totalled_over_all_scopes_in_the_byte_order_of_names() {
    let store = filled();
    let (summary, printed) = tools(&store, &[]);
    assert_eq!((summary["total"].as_u64(), printed.as_str()), (Some(3), ""));
    let (wardrobe, weather) = (|| "Wardrobe".to_owned(), || "weather".to_owned());
    assert_eq!(counts(&summary), [(wardrobe(), 1, 1, 0), (weather(), 2, 0, 1)]);
    for (filter, expected) in [
        (&["--scope", "alice"][..], vec![(wardrobe(), 1, 1, 0), (weather(), 1, 0, 0)]),
        (&["--conversation", "y"], vec![(weather(), 1, 0, 1)]),
        (&["--tool", "Wardrobe"], vec![(wardrobe(), 1, 1, 0)]),
        (&["--status", "ok"], vec![(weather(), 1, 0, 0)]),
        (&["--scope", "bob", "--status", "error"], vec![]),
        (&["--scope", "nobody"], vec![]),
    ] {
        let (summary, _) = tools(&store, filter);
        assert_eq!(counts(&summary), expected, "{filter:?}");
        let total: u64 = expected.iter().map(|tool| tool.1).sum();
        assert_eq!(summary["total"], json!(total), "{filter:?}");
    }
}

#[test]
fn calls_are_listed_with_their_positions() {
    let store = filled();
    let (summary, _) = tools(&store, &["--list", "--tool", "Wardrobe"]);
    assert_eq!(
        summary["calls"],
        json!([{
            "scope": "alice", "conversation": "x", "message": 2, "round": 0, "index": 1,
            "call_id": "c2", "name": "Wardrobe", "arguments": "{}", "status": "error",
            "result": "locked",
        }])
    );
    let output = run(&["tools", "--list", "--store", &store.argument()]);
    assert_eq!(output.status.code(), Some(0));
    let printed = stdout(&output);
    let rows: Vec<Vec<&str>> = printed.lines().map(|it| it.split_whitespace().collect()).collect();
    assert_eq!(rows[2], ["alice/x", "2", "0", "1", "Wardrobe", "error", "-"]);
    assert_eq!(rows[3], ["bob/y", "2", "0", "0", "weather", "pending", "-"]);
    assert_eq!(rows.last().unwrap(), &["total", "3", "1", "1", "0.000"]);
}

#[test]
fn tool_calls_that_runs_have_recorded_are_counted() {
    let store = Store::new();
    fill_runs(&store, 3, PersistenceMode::PerServiceCall);
    let (summary, _) = tools(&store, &[]);
    assert_eq!(counts(&summary), [("look".to_owned(), 3, 0, 0)]);
}

#[test]
fn an_unreadable_row_of_the_record_is_reported_and_the_other_rows_are_counted() {
    let store = filled();
    let damaged = execute(
        &store.path(),
        "UPDATE tool_invocations SET status = 'odd' WHERE name = 'Wardrobe'",
    );
    assert_eq!(damaged, 1);
    let (summary, printed) = tools(&store, &[]);
    assert_eq!(counts(&summary), [("weather".to_owned(), 2, 0, 1)]);
    assert!(printed.contains("alice/x") && printed.contains("odd"), "{printed}");
    assert_eq!(printed.lines().count(), 1, "{printed}");
}

#[test]
fn the_tools_command_creates_no_file_for_a_missing_store() {
    let store = Store::new();
    for arguments in [
        &["--store", &store.argument()][..],
        &["--store", "memory:"],
        &[],
        &["--store", &store.argument(), "--status", "odd"],
    ] {
        let output = run(&[&["tools"], arguments].concat());
        assert_eq!((output.status.code(), stdout(&output).as_str()), (Some(2), ""));
        assert!(!stderr(&output).is_empty());
    }
    assert!(std::fs::read_dir(store.folder()).unwrap().next().is_none());
}
