//! Tests the conversion of rows to messages.

mod results;

use serde_json::json;
use tower_chat_core::Native;
use tower_chat_testkit::Rng;

use super::*;
use tower_chat_layers::validate::validate_messages;

fn call(id: &str) -> AggregateCall {
    AggregateCall::new(id, "look", "{}")
}

fn result(id: &str) -> AggregateResult {
    AggregateResult::new(id, format!("of {id}"))
}

fn user(text: &str) -> AggregateRow {
    AggregateRow::new(Role::User).with_text(text)
}

fn row() -> AggregateRow {
    AggregateRow::new(Role::Assistant)
}

/// Formats the role of each message, and the texts and ids of its parts.
fn sketch<'a>(messages: impl IntoIterator<Item = &'a Message>) -> String {
    let part = |part: &Part| match part {
        Part::Text(text) => format!("{:?}", text.text),
        Part::ToolCall(call) => format!("c({})", call.id.as_deref().unwrap_or("-")),
        Part::ToolResult(result) => format!("r({})", result.call_id.as_deref().unwrap_or("-")),
        other => format!("{other:?}"),
    };
    let message = |message: &Message| {
        let role = match message.role {
            Role::User => "u",
            Role::Assistant => "a",
            Role::Tool => "T",
            _ => "s",
        };
        format!("{role}:{}", message.parts.iter().map(part).collect::<Vec<_>>().join("+"))
    };
    messages.into_iter().map(message).collect::<Vec<_>>().join(" ")
}

/// Converts rows with `valid_messages_of_rows`, and formats the messages.
fn valid<const N: usize>(rows: [AggregateRow; N]) -> String {
    let messages = valid_messages_of_rows(rows, DanglingCalls::Drop).unwrap();
    assert_valid(&messages);
    sketch(messages.iter().map(|message| &**message))
}

fn assert_valid(messages: &Messages) {
    if let Err(invalid) = validate_messages(messages.iter().map(|message| &**message)) {
        panic!("{invalid}: {messages:?}");
    }
}

/// Converts rows with `messages_of_rows`, and formats the messages.
fn whole<const N: usize>(rows: [AggregateRow; N]) -> String {
    sketch(&messages_of_rows(rows).unwrap())
}

#[test]
fn a_row_becomes_messages_with_its_calls_its_results_and_its_text() {
    let rows = || {
        [
            user("q"),
            row().with_text("done").with_call(call("1")).with_result(result("1")),
            user("r"),
        ]
    };
    assert_eq!(valid(rows()), r#"u:"q" a:c(1) T:r(1) a:"done" u:"r""#);
    assert_eq!(whole(rows()), valid(rows()));
}

#[test]
fn the_calls_of_a_row_are_one_batch_with_their_results() {
    let row = row()
        .with_call(call("1"))
        .with_call(call("2"))
        .with_result(result("2"))
        .with_result(result("1"));
    assert_eq!(valid([row.with_text("done")]), r#"a:c(1)+c(2) T:r(1)+r(2) a:"done""#);
}

#[test]
fn unanswered_calls_are_stored_and_omitted_from_valid_messages() {
    let asking = || row().with_call(call("1"));
    assert_eq!(
        valid([user("q"), asking().with_text("done"), user("r")]),
        r#"u:"q" a:"done" u:"r""#
    );
    assert_eq!(valid([user("q"), asking()]), r#"u:"q""#);
    assert_eq!(whole([user("q"), asking()]), r#"u:"q" a:c(1)"#);
}

#[test]
fn valid_messages_contain_only_the_answered_calls_of_a_batch() {
    let row =
        row().with_text("done").with_call(call("1")).with_call(call("2")).with_result(result("2"));
    assert_eq!(valid([row]), r#"a:c(2) T:r(2) a:"done""#);
}

#[test]
fn valid_messages_contain_a_repeated_result_only_once() {
    let mut other = result("1");
    other.content = "other".into();
    let row = row()
        .with_text("done")
        .with_call(call("1"))
        .with_result(result("1"))
        .with_result(result("1"));
    let row = row.with_result(other);
    assert_eq!(valid([row.clone()]), r#"a:c(1) T:r(1) a:"done""#);
    assert_eq!(whole([row]), r#"a:c(1) T:r(1)+r(1) a:"done""#, "what differs is kept");
}

#[test]
fn calls_without_ids_are_answered_by_the_results_in_their_order() {
    let mut row = row().with_text("done");
    row.calls = vec![AggregateCall::without_id("a", "{}"), AggregateCall::without_id("b", "{}")];
    row.results = ["of a", "of b"]
        .map(|text| AggregateResult { call_id: None, ..AggregateResult::new("", text) })
        .into();
    let messages = valid_messages_of_rows([row], DanglingCalls::Drop).unwrap();
    assert_valid(&messages);
    let results: Vec<String> =
        messages.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(results, ["of a", "of b"]);
}

#[test]
fn valid_messages_omit_results_before_the_first_call() {
    let rows = || [AggregateRow::new(Role::Tool).with_result(result("0")), row().with_text("done")];
    assert_eq!(valid(rows()), r#"a:"done""#);
    assert_eq!(whole(rows()), r#"T:r(0) a:"done""#);
}

#[test]
fn a_result_in_a_later_row_is_placed_directly_after_its_call() {
    let rows = [
        user("q"),
        row().with_call(call("1")),
        user("yes, do it"),
        row().with_text("done").with_result(result("1")),
    ];
    assert_eq!(valid(rows), r#"u:"q" a:c(1) T:r(1) u:"yes, do it" a:"done""#);
    let rows = [
        row().with_text("May I?").with_call(call("1")),
        AggregateRow::new(Role::Tool).with_result(result("1")),
    ];
    assert_eq!(valid(rows), r#"a:c(1) T:r(1) a:"May I?""#);
    let rows =
        [row().with_call(call("1")), user("yes").with_result(result("1")), row().with_text("done")];
    assert_eq!(valid(rows), r#"a:c(1) T:r(1) u:"yes" a:"done""#);
}

#[test]
fn calls_of_several_rows_with_the_same_id_have_the_results_of_their_rows() {
    let turn = |text: &str| {
        row()
            .with_text(text)
            .with_call(call("x"))
            .with_result(AggregateResult::new("x", format!("of {text}")))
    };
    let messages =
        valid_messages_of_rows([turn("1"), user("u"), turn("2")], DanglingCalls::Drop).unwrap();
    let results: Vec<String> =
        messages.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(results, ["of 1", "of 2"]);
}

#[test]
fn a_late_result_answers_the_earlier_call_without_a_result() {
    let rows = [
        row().with_call(call("x")),
        user("u"),
        row().with_call(call("x")).with_result(result("x")),
        AggregateRow::new(Role::Tool).with_result(AggregateResult::new("x", "late")),
    ];
    assert_eq!(valid(rows.clone()), r#"a:c(x) T:r(x) u:"u" a:c(x) T:r(x)"#);
    assert_eq!(messages_of_rows(rows).unwrap()[1].results().next().unwrap().text(), "late");
}

#[test]
fn each_result_answers_the_call_of_the_same_step() {
    let row = row()
        .with_text("done")
        .with_step(AggregateStep::new("Let me look.", [call("x")], [result("x")]))
        .with_step(AggregateStep::new("", [call("x")], [AggregateResult::new("x", "again")]))
        .with_step(AggregateStep::new("done", [], []));
    let rows = [user("q"), row];
    assert_eq!(valid(rows.clone()), r#"u:"q" a:"Let me look."+c(x) T:r(x) a:c(x) T:r(x) a:"done""#);
    let messages = messages_of_rows(rows).unwrap();
    let results: Vec<String> =
        messages.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(results, ["of x", "again"]);
}

#[test]
fn valid_messages_contain_the_text_but_not_the_calls_of_an_unanswered_last_step() {
    let row = row()
        .with_text("Let me look further.")
        .with_step(AggregateStep::new("Let me look.", [call("1")], [result("1")]))
        .with_step(AggregateStep::new("Let me look further.", [call("2")], []));
    assert_eq!(
        valid([row, user("r")]),
        r#"a:"Let me look."+c(1) T:r(1) a:"Let me look further." u:"r""#
    );
}

#[test]
fn a_step_without_text_and_answered_calls_is_skipped() {
    let row = row()
        .with_step(AggregateStep::new("", [call("1")], [result("1")]))
        .with_step(AggregateStep::new("", [call("2")], []))
        .with_step(AggregateStep::new("", [], []));
    assert_eq!(valid([row.with_text("")]), "a:c(1) T:r(1)");
}

#[test]
fn the_text_of_a_row_is_added_unless_its_steps_contain_it() {
    let steps = || {
        row()
            .with_step(AggregateStep::new("one ", [call("1")], [result("1")]))
            .with_step(AggregateStep::new("two", [], []))
    };
    let expected = r#"a:"one "+c(1) T:r(1) a:"two""#;
    assert_eq!(valid([steps()]), expected);
    assert_eq!(valid([steps().with_text("two\n")]), expected);
    assert_eq!(valid([steps().with_text("one two")]), expected);
    assert_eq!(valid([steps().with_text("three")]), format!(r#"{expected} a:"three""#));
}

#[test]
fn lists_beside_the_steps_add_only_calls_and_results_that_the_steps_lack() {
    let row = row()
        .with_step(AggregateStep::new("", [call("1")], [result("1")]))
        .with_step(AggregateStep::new("", [call("2")], []))
        .with_call(call("1"))
        .with_call(call("2"))
        .with_call(call("3"))
        .with_result(result("1"))
        .with_result(result("2"))
        .with_result(result("3"));
    let row = row.with_text("done");
    assert_eq!(whole([row.clone()]), r#"a:c(1) T:r(1) a:c(2) T:r(2) a:c(3) T:r(3) a:"done""#);
    assert_eq!(valid([row.clone()]), whole([row]));
}

#[test]
fn results_beside_the_steps_answer_the_calls_of_the_steps_in_order() {
    let step = || AggregateStep::new("", [call("x")], []);
    let answer = |text: &str| AggregateResult::new("x", text);
    let row =
        row().with_step(step()).with_step(step()).with_result(answer("a")).with_result(answer("b"));
    let messages = messages_of_rows([row]).unwrap();
    let results: Vec<String> =
        messages.iter().flat_map(Message::results).map(ToolResult::text).collect();
    assert_eq!(sketch(&messages), "a:c(x) T:r(x) a:c(x) T:r(x)");
    assert_eq!(results, ["a", "b"]);
}

#[test]
fn a_result_is_an_error_only_if_its_failed_flag_is_true() {
    let rows: Vec<AggregateRow> = serde_json::from_value(json!([{
        "role": "assistant",
        "calls": [{"name": "a", "id": "1"}, {"name": "a", "id": "2"}, {"name": "a", "id": "3"}],
        "results": [
            {"call_id": "1", "content": "x", "failed": true},
            {"call_id": "2", "content": "x"},
            {"call_id": "3", "content": "x", "failed": null},
        ],
    }]))
    .unwrap();
    let messages = messages_of_rows(rows).unwrap();
    let failed: Vec<bool> = messages[1].results().map(|result| result.is_error).collect();
    assert_eq!(failed, [true, false, false]);
}

#[test]
fn a_call_is_imported_with_its_reasoning_and_its_native_item() {
    let native = Native::new("gemini", r#"{"thoughtSignature": "s"}"#.parse().unwrap());
    let mut asked = call("1");
    asked.native = Some(native.clone());
    let mut row = row().with_text("done").with_call(asked).with_result(result("1"));
    row.reasoning = vec![Reasoning::new("hm")];
    let messages = valid_messages_of_rows([row], DanglingCalls::Drop).unwrap();
    let asking = messages.get(0).unwrap();
    assert_eq!(asking.parts[0], Reasoning::new("hm").into());
    assert_eq!(asking.calls().next().unwrap().native, Some(native));
}

#[test]
fn objects_with_numeric_keys_are_read_as_lists() {
    let row: AggregateRow = serde_json::from_value(json!({
        "role": "assistant", "content": "done", "id": 7, "created_at": "yesterday",
        "tool_calls": {"10": {"id": "3", "name": "c"}, "2": {"id": "2", "name": "b"}},
        "tool_results": {"4": {"tool_call_id": "3", "result": "x"}, "0": {"tool_call_id": "2", "result": "y"}},
        "steps": null,
    }))
    .unwrap();
    assert_eq!(valid([row]), r#"a:c(2)+c(3) T:r(2)+r(3) a:"done""#);
}
