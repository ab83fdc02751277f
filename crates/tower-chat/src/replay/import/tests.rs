//! What rows become.

use serde_json::json;
use tower_chat_core::Native;

use super::*;
use crate::replay::generated::{Rng, assert_valid};

fn call(id: &str) -> AggregateCall {
    AggregateCall::new(id, "look", "{}")
}

fn result(id: &str) -> AggregateResult {
    AggregateResult::new(id, format!("of {id}"))
}

fn user(text: &str) -> AggregateRow {
    AggregateRow::new(Role::User).text(text)
}

fn row() -> AggregateRow {
    AggregateRow::new(Role::Assistant)
}

/// Roles, texts and ids at a glance.
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

/// What a provider is shown.
fn valid<const N: usize>(rows: [AggregateRow; N]) -> String {
    let messages = valid_messages_of_rows(rows, DanglingCalls::Drop).unwrap();
    assert_valid(&messages, 0);
    sketch(messages.iter().map(|message| &**message))
}

/// What is in the rows.
fn whole<const N: usize>(rows: [AggregateRow; N]) -> String {
    sketch(&messages_of_rows(rows).unwrap())
}

/// B 3.1, 0.50
#[test]
fn a_row_becomes_call_result_and_text() {
    let rows = || [user("q"), row().text("done").call(call("1")).result(result("1")), user("r")];
    assert_eq!(valid(rows()), r#"u:"q" a:c(1) T:r(1) a:"done" u:"r""#);
    assert_eq!(whole(rows()), valid(rows()));
}

/// B 0.51
#[test]
fn the_calls_of_a_row_are_one_batch() {
    let row = row().call(call("1")).call(call("2")).result(result("2")).result(result("1"));
    assert_eq!(valid([row.text("done")]), r#"a:c(1)+c(2) T:r(1)+r(2) a:"done""#);
}

/// B 3.2, 3.3, 0.54
#[test]
fn unanswered_calls_are_shown_to_nobody_and_kept() {
    let asking = || row().call(call("1"));
    assert_eq!(valid([user("q"), asking().text("done"), user("r")]), r#"u:"q" a:"done" u:"r""#);
    assert_eq!(valid([user("q"), asking()]), r#"u:"q""#);
    assert_eq!(whole([user("q"), asking()]), r#"u:"q" a:c(1)"#);
}

/// B 3.4, 0.55
#[test]
fn of_a_batch_that_was_partly_answered_the_answered_calls_stay() {
    let row = row().text("done").call(call("1")).call(call("2")).result(result("2"));
    assert_eq!(valid([row]), r#"a:c(2) T:r(2) a:"done""#);
}

/// B 3.5
#[test]
fn a_repeated_result_answers_once() {
    let mut other = result("1");
    other.content = "other".into();
    let row = row().text("done").call(call("1")).result(result("1")).result(result("1"));
    let row = row.result(other);
    assert_eq!(valid([row.clone()]), r#"a:c(1) T:r(1) a:"done""#);
    assert_eq!(whole([row]), r#"a:c(1) T:r(1)+r(1) a:"done""#, "what differs is kept");
}

/// B 3.6
#[test]
fn calls_without_ids_are_answered_by_place() {
    let mut row = row().text("done");
    row.calls = vec![AggregateCall::without_id("a", "{}"), AggregateCall::without_id("b", "{}")];
    row.results = ["of a", "of b"]
        .map(|text| AggregateResult { call_id: None, ..AggregateResult::new("", text) })
        .into();
    let messages = valid_messages_of_rows([row], DanglingCalls::Drop).unwrap();
    assert_valid(&messages, 0);
    let results: Vec<String> =
        messages.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(results, ["of a", "of b"]);
}

/// B 3.7, 2.23
#[test]
fn leading_orphans_are_left_out() {
    let rows = || [AggregateRow::new(Role::Tool).result(result("0")), row().text("done")];
    assert_eq!(valid(rows()), r#"a:"done""#);
    assert_eq!(whole(rows()), r#"T:r(0) a:"done""#);
}

/// B 3.8
#[test]
fn a_result_on_a_later_row_stands_next_to_its_call() {
    let rows = [
        user("q"),
        row().call(call("1")),
        user("yes, do it"),
        row().text("done").result(result("1")),
    ];
    assert_eq!(valid(rows), r#"u:"q" a:c(1) T:r(1) u:"yes, do it" a:"done""#);
    let rows =
        [row().text("May I?").call(call("1")), AggregateRow::new(Role::Tool).result(result("1"))];
    assert_eq!(valid(rows), r#"a:c(1) T:r(1) a:"May I?""#);
    let rows = [row().call(call("1")), user("yes").result(result("1")), row().text("done")];
    assert_eq!(valid(rows), r#"a:c(1) T:r(1) u:"yes" a:"done""#);
}

#[test]
fn an_id_that_comes_back_in_a_later_row_keeps_its_own_result() {
    let turn = |text: &str| {
        row().text(text).call(call("x")).result(AggregateResult::new("x", format!("of {text}")))
    };
    let messages =
        valid_messages_of_rows([turn("1"), user("u"), turn("2")], DanglingCalls::Drop).unwrap();
    let results: Vec<String> =
        messages.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(results, ["of 1", "of 2"]);
}

#[test]
fn a_late_result_answers_the_call_that_has_none() {
    let rows = [
        row().call(call("x")),
        user("u"),
        row().call(call("x")).result(result("x")),
        AggregateRow::new(Role::Tool).result(AggregateResult::new("x", "late")),
    ];
    assert_eq!(valid(rows.clone()), r#"a:c(x) T:r(x) u:"u" a:c(x) T:r(x)"#);
    assert_eq!(messages_of_rows(rows).unwrap()[1].results().next().unwrap().text(), "late");
}

/// B 3.9, 0.52
#[test]
fn each_result_answers_the_call_of_its_own_step() {
    let row = row()
        .text("done")
        .step(AggregateStep::new("Let me look.", [call("x")], [result("x")]))
        .step(AggregateStep::new("", [call("x")], [AggregateResult::new("x", "again")]))
        .step(AggregateStep::new("done", [], []));
    let rows = [user("q"), row];
    assert_eq!(valid(rows.clone()), r#"u:"q" a:"Let me look."+c(x) T:r(x) a:c(x) T:r(x) a:"done""#);
    let messages = messages_of_rows(rows).unwrap();
    let results: Vec<String> =
        messages.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(results, ["of x", "again"]);
}

/// B 3.10
#[test]
fn the_calls_of_a_step_limited_tail_go_and_its_text_stays() {
    let row = row()
        .text("Let me look further.")
        .step(AggregateStep::new("Let me look.", [call("1")], [result("1")]))
        .step(AggregateStep::new("Let me look further.", [call("2")], []));
    assert_eq!(
        valid([row, user("r")]),
        r#"a:"Let me look."+c(1) T:r(1) a:"Let me look further." u:"r""#
    );
}

/// B 3.11, 0.59
#[test]
fn a_step_with_nothing_left_to_say_is_skipped() {
    let row = row()
        .step(AggregateStep::new("", [call("1")], [result("1")]))
        .step(AggregateStep::new("", [call("2")], []))
        .step(AggregateStep::new("", [], []));
    assert_eq!(valid([row.text("")]), "a:c(1) T:r(1)");
}

#[test]
fn the_text_of_a_row_is_said_once_and_never_lost() {
    let steps =
        || {
            row()
                .step(AggregateStep::new("one ", [call("1")], [result("1")]))
                .step(AggregateStep::new("two", [], []))
        };
    let shown = r#"a:"one "+c(1) T:r(1) a:"two""#;
    assert_eq!(valid([steps()]), shown);
    assert_eq!(valid([steps().text("two\n")]), shown);
    assert_eq!(valid([steps().text("one two")]), shown);
    assert_eq!(valid([steps().text("three")]), format!(r#"{shown} a:"three""#));
}

#[test]
fn lists_beside_the_steps_add_only_what_the_steps_do_not_have() {
    let row = row()
        .step(AggregateStep::new("", [call("1")], [result("1")]))
        .step(AggregateStep::new("", [call("2")], []))
        .call(call("1"))
        .call(call("2"))
        .call(call("3"))
        .result(result("1"))
        .result(result("2"))
        .result(result("3"));
    let row = row.text("done");
    assert_eq!(whole([row.clone()]), r#"a:c(1) T:r(1) a:c(2) T:r(2) a:c(3) T:r(3) a:"done""#);
    assert_eq!(valid([row.clone()]), whole([row]));
}

#[test]
fn results_beside_the_steps_answer_them_in_their_order() {
    let step = || AggregateStep::new("", [call("x")], []);
    let answer = |text: &str| AggregateResult::new("x", text);
    let row = row().step(step()).step(step()).result(answer("a")).result(answer("b"));
    let messages = messages_of_rows([row]).unwrap();
    let results: Vec<String> =
        messages.iter().flat_map(Message::results).map(ToolResult::text).collect();
    assert_eq!(sketch(&messages), "a:c(x) T:r(x) a:c(x) T:r(x)");
    assert_eq!(results, ["a", "b"]);
}

/// B 3.12
#[test]
fn the_failed_flag_is_kept_and_its_absence_means_success() {
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

/// B 3.14
#[test]
fn what_the_provider_sent_with_a_call_stays_with_it() {
    let native = Native::new("gemini", r#"{"thoughtSignature": "s"}"#.parse().unwrap());
    let mut asked = call("1");
    asked.native = Some(native.clone());
    let mut row = row().text("done").call(asked).result(result("1"));
    row.reasoning = vec![Reasoning::new("hm")];
    let messages = valid_messages_of_rows([row], DanglingCalls::Drop).unwrap();
    let asking = messages.get(0).unwrap();
    assert_eq!(asking.parts[0], Reasoning::new("hm").into());
    assert_eq!(asking.calls().next().unwrap().native, Some(native));
}

/// B 3.16
#[test]
fn sparse_keyed_lists_are_lists() {
    let row: AggregateRow = serde_json::from_value(json!({
        "role": "assistant", "content": "done", "id": 7, "created_at": "yesterday",
        "tool_calls": {"10": {"id": "3", "name": "c"}, "2": {"id": "2", "name": "b"}},
        "tool_results": {"4": {"tool_call_id": "3", "result": "x"}, "0": {"tool_call_id": "2", "result": "y"}},
        "steps": null,
    }))
    .unwrap();
    assert_eq!(valid([row]), r#"a:c(2)+c(3) T:r(2)+r(3) a:"done""#);
}

/// The calls of a message and what each of them was answered with, in their order.
fn answers(rows: &[serde_json::Value]) -> Vec<(String, String, bool)> {
    let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let rows = read_rows(rows.iter().map(String::as_str)).unwrap();
    let valid = valid_messages_of_rows(rows, DanglingCalls::Drop).unwrap();
    assert_valid(&valid, 0);
    let calls: Vec<&ToolCall> = valid.iter().flat_map(|message| message.calls()).collect();
    let results: Vec<&ToolResult> = valid.iter().flat_map(|message| message.results()).collect();
    assert_eq!(calls.len(), results.len());
    let pairs = calls.iter().zip(results);
    pairs
        .map(|(call, result)| {
            assert_eq!(call.id, result.call_id);
            (call.arguments.clone(), result.text(), result.is_error)
        })
        .collect()
}

fn answer(arguments: &str, text: &str, failed: bool) -> (String, String, bool) {
    (arguments.to_owned(), text.to_owned(), failed)
}

/// Issue 15, 20
#[test]
fn results_under_the_id_of_their_call_answer_that_call() {
    let row = json!({
        "role": "assistant", "content": "Both done.",
        "tool_calls": [
            {"id": "p1", "name": "pay", "arguments": {"to": "Ann"}, "result_id": "f1"},
            {"id": "p2", "name": "pay", "arguments": {"to": "Bob"}, "result_id": "f2"},
            {"id": "p3", "name": "pay", "arguments": {"to": "Cid"}, "result_id": "f3"},
        ],
        "tool_results": [
            {"id": "p3", "name": "pay", "arguments": {"to": "Cid"}, "result": "paid Cid"},
            {"id": "p1", "name": "pay", "arguments": {"to": "Ann"}, "result": "paid Ann"},
        ],
    });
    let expected = [
        answer(r#"{"to":"Ann"}"#, "paid Ann", false),
        answer(r#"{"to":"Cid"}"#, "paid Cid", false),
    ];
    assert_eq!(answers(std::slice::from_ref(&row)), expected);
    let text = |name: &str| json!(row[name].to_string());
    let encoded = json!({
        "role": "assistant", "content": "Both done.",
        "tool_calls": text("tool_calls"), "tool_results": text("tool_results"),
    });
    assert_eq!(answers(&[encoded]), expected, "as a text column holds them");
}

/// Issue 15, 20
#[test]
fn a_result_inside_a_call_answers_that_call() {
    let calls = |ids: [serde_json::Value; 3]| {
        let [first, second, third] = ids;
        json!([
            {"id": first, "name": "look", "arguments": {"n": 1}, "result": "saw 1"},
            {"id": second, "name": "look", "arguments": {"n": 2}},
            {"id": third, "name": "look", "arguments": {"n": 3}, "result": {"seen": 3}, "denied": true},
        ])
    };
    let ids = [
        [json!("a"), json!("b"), json!("c")],
        [json!("a"), json!("a"), json!("a")],
        [json!(null), json!(null), json!(null)],
        [json!("call_2"), json!(""), json!("")],
    ];
    let expected =
        [answer(r#"{"n":1}"#, "saw 1", false), answer(r#"{"n":3}"#, r#"{"seen":3}"#, true)];
    for ids in ids {
        let calls = calls(ids);
        let step = json!({"content": "I look.", "tool_calls": calls, "reasoning": "hm"});
        let row = json!({"role": "assistant", "content": "Seen.", "steps": [step]});
        assert_eq!(answers(&[row]), expected, "in a step: {calls}");
        let row = json!({"role": "assistant", "content": "Seen.", "tool_calls": calls});
        assert_eq!(answers(&[row]), expected, "in a row: {calls}");
    }
    let null =
        json!({"role": "assistant", "tool_calls": [{"id": "a", "name": "look", "result": null}]});
    assert_eq!(answers(&[null]), [answer("", "", false)], "a stored null is a result");
}

/// Issue 15, 20
#[test]
fn an_error_field_is_a_failure_with_its_text() {
    let row = json!({
        "role": "assistant",
        "tool_calls": (0..6).map(|n| json!({"id": n.to_string(), "name": "look", "arguments": n}))
            .collect::<Vec<_>>(),
        "tool_results": [
            {"id": "0", "result": null, "successful": false, "error": "no network"},
            {"id": "1", "error": {"code": 7}},
            {"id": "2", "result": "half", "error": "then it broke"},
            {"id": "3", "result": "all of it", "successful": true, "error": null},
            {"id": "4", "result": "no", "failed": true},
            {"id": "5", "result": "not allowed", "successful": false},
        ],
    });
    assert_eq!(
        answers(&[row]),
        [
            answer("0", "no network", true),
            answer("1", r#"{"code":7}"#, true),
            answer("2", "half\nthen it broke", true),
            answer("3", "all of it", false),
            answer("4", "no", true),
            answer("5", "not allowed", true),
        ]
    );
}

/// Issue 15, 20
#[test]
fn each_row_that_is_not_understood_is_named_with_its_position() {
    let result = |result| json!({"role": "tool", "tool_results": [result]}).to_string();
    let call = |call| json!({"role": "assistant", "tool_calls": [call]}).to_string();
    let rows = [
        json!({"role": "user", "content": "q"}).to_string(),
        result(json!({"id": "1", "output": "lost"})),
        call(json!({"id": "1", "name": "a", "outcome": "lost"})),
        call(json!({"id": "1", "type": "function", "function": {"name": "a", "arguments": "{}"}})),
        json!({"role": "user", "calls": [{"id": "1", "name": "a"}]}).to_string(),
        json!({"role": "assistant", "tool_calls": "[{\"id\":\"1\""}).to_string(),
        "{".to_owned(),
        json!({"role": "assistant", "content": "r"}).to_string(),
    ];
    let error = read_rows(rows.iter().map(String::as_str)).unwrap_err();
    let named: Vec<usize> = error.rows.iter().map(|row| row.row).collect();
    assert_eq!(named, [1, 2, 3, 4, 5, 6]);
    for (row, word) in error.rows.iter().zip(["output", "outcome", "name", "assistant", "", ""]) {
        assert!(row.reason.contains(word), "{row:?}");
    }
    assert!(error.to_string().starts_with("6 rows cannot be taken over; row 1: "), "{error}");
}

/// B 3.17
#[test]
fn null_and_empty_results_are_answers() {
    let row: AggregateRow = serde_json::from_value(json!({
        "role": "assistant",
        "calls": [{"id": "1", "name": "a"}, {"id": "2", "name": "a"}, {"id": "3", "name": "a"}],
        "results": [
            {"call_id": "1", "content": null}, {"call_id": "2", "content": ""}, {"call_id": "3"}
        ],
    }))
    .unwrap();
    let messages = messages_of_rows([row]).unwrap();
    let texts: Vec<String> = messages[1].results().map(ToolResult::text).collect();
    assert_eq!(texts, ["", "", ""]);
}

/// B 4.12
#[test]
fn arguments_and_results_keep_their_text_byte_for_byte() {
    let row: AggregateRow = serde_json::from_str(
        r#"{"role": "assistant",
            "calls": [{"name": "a", "arguments": "{\"cut\": \u00e9"},
                      {"name": "b", "arguments": { "n" : 1.50e+2, "b":1 }},
                      {"name": "c", "arguments": null}, {"name": "d", "arguments": []}],
            "results": [{"content": {"z": 1, "a" : 2.0}}]}"#,
    )
    .unwrap();
    let arguments: Vec<&str> = row.calls.iter().map(|call| call.arguments.as_str()).collect();
    assert_eq!(arguments, ["{\"cut\": é", r#"{ "n" : 1.50e+2, "b":1 }"#, "", "[]"]);
    assert_eq!(row.results[0].content, r#"{"z": 1, "a" : 2.0}"#);
}

/// B 3.18
#[test]
fn the_policy_for_dangling_calls_decides() {
    let rows = || [row().call(call("1")), user("q")];
    let noted = valid_messages_of_rows(rows(), DanglingCalls::Interrupted).unwrap();
    assert_eq!(sketch(noted.iter().map(|message| &**message)), r#"a:c(1) T:r(1) u:"q""#);
    let failed = valid_messages_of_rows(rows(), DanglingCalls::Fail).unwrap_err();
    assert!(matches!(failed, ImportError::Dangling(_)), "{failed}");
}

/// B 3.19
#[test]
fn plain_turns_are_unchanged_and_in_order() {
    let rows = [AggregateRow::new(Role::System).text("s"), user("a"), row().text("b"), user("c")];
    assert_eq!(whole(rows), r#"s:"s" u:"a" a:"b" u:"c""#);
}

#[test]
fn a_result_that_is_the_text_of_its_own_row_answers_the_call_before() {
    let rows = [row().call(call("1")), AggregateRow::new(Role::Tool).text("found")];
    let messages = messages_of_rows(rows).unwrap();
    assert_eq!(messages[1].results().next().unwrap().text(), "found");
    assert_eq!(messages[1].results().next().unwrap().call_id, None);
}

/// B 4.16
#[test]
fn rows_that_make_no_sense_are_refused() {
    for row in [
        json!({"role": "wizard"}),
        json!({}),
        json!({"role": "user", "calls": [{"id": "1"}]}),
        json!({"role": "user", "calls": {"first": {"name": "a"}}}),
        json!({"role": "user", "calls": "none"}),
    ] {
        assert!(serde_json::from_value::<AggregateRow>(row.clone()).is_err(), "{row}");
    }
    let error = messages_of_rows([user("q"), user("r").call(call("1"))]).unwrap_err();
    assert_eq!(error, ImportError::NotOfTheModel { row: 1, role: Role::User });
}

/// Rows of any shape become messages that a provider accepts, and everything said is there.
#[test]
fn any_rows_become_valid_messages() {
    let ids = ["1", "2", "3", ""];
    for seed in 0..1000 {
        let mut rng = Rng::of(seed);
        let mut rows = Vec::new();
        for number in 0..rng.below(8) {
            let calls: Vec<_> = (0..rng.below(3)).map(|_| call(ids[rng.below(4)])).collect();
            let results: Vec<_> = (0..rng.below(4)).map(|_| result(ids[rng.below(4)])).collect();
            let text = format!("text {number}");
            rows.push(match rng.below(5) {
                0 => user(&text),
                1 => AggregateRow { results, ..AggregateRow::new(Role::Tool) },
                2 => row().step(AggregateStep::new(text, calls, results)),
                3 => AggregateRow { results, ..user(&text) },
                _ => AggregateRow { calls, results, ..row().text(text) },
            });
        }
        let texts_of = |messages: &[Message]| -> Vec<String> {
            messages.iter().map(Message::text).filter(|text| !text.is_empty()).collect()
        };
        let texts: Vec<String> = rows
            .iter()
            .flat_map(|row| row.text.iter().chain(row.steps.iter().flat_map(|step| &step.text)))
            .cloned()
            .collect();
        let messages = messages_of_rows(rows.clone()).unwrap();
        assert_eq!(texts_of(&messages), texts, "seed {seed}");
        let calls = |row: &AggregateRow| -> usize {
            row.calls.len() + row.steps.iter().map(|step| step.calls.len()).sum::<usize>()
        };
        let kept: usize = messages.iter().map(|message| message.asked_calls().count()).sum();
        assert_eq!(kept, rows.iter().map(calls).sum::<usize>(), "seed {seed}");
        let valid = valid_messages_of_rows(rows, DanglingCalls::Drop).unwrap();
        assert_valid(&valid, seed);
    }
}
