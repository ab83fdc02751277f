//! Tests which call a result is matched with, and the errors of rows that cannot be parsed.

use super::*;

/// Returns the arguments of each call, the text of its result, and whether the tool failed.
fn answers(rows: &[serde_json::Value]) -> Vec<(String, String, bool)> {
    let rows: Vec<String> = rows.iter().map(ToString::to_string).collect();
    let rows = read_rows(rows.iter().map(String::as_str)).unwrap();
    let valid = valid_messages_of_rows(rows, DanglingCalls::Drop).unwrap();
    assert_valid(&valid);
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

#[test]
fn a_result_with_the_id_of_a_call_answers_this_call() {
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

#[test]
fn a_result_inside_a_call_answers_this_call() {
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

#[test]
fn an_error_field_is_read_as_a_failed_result_with_its_text() {
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

#[test]
fn each_invalid_row_is_reported_with_its_position() {
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
    assert!(error.to_string().starts_with("6 rows cannot be converted; row 1: "), "{error}");
}

#[test]
fn null_and_empty_results_answer_their_calls() {
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

#[test]
fn arguments_and_results_are_read_byte_for_byte() {
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

#[test]
fn the_policy_for_dangling_calls_determines_the_valid_messages() {
    let rows = || [row().with_call(call("1")), user("q")];
    let noted = valid_messages_of_rows(rows(), DanglingCalls::Interrupted).unwrap();
    assert_eq!(sketch(noted.iter().map(|message| &**message)), r#"a:c(1) T:r(1) u:"q""#);
    let failed = valid_messages_of_rows(rows(), DanglingCalls::Fail).unwrap_err();
    assert!(matches!(failed, RowsError::Dangling(_)), "{failed}");
}

#[test]
fn rows_without_calls_become_messages_in_the_same_order() {
    let rows = [
        AggregateRow::new(Role::System).with_text("s"),
        user("a"),
        row().with_text("b"),
        user("c"),
    ];
    assert_eq!(whole(rows), r#"s:"s" u:"a" a:"b" u:"c""#);
}

#[test]
fn a_tool_row_with_only_a_text_answers_the_preceding_call() {
    let rows = [row().with_call(call("1")), AggregateRow::new(Role::Tool).with_text("found")];
    let messages = messages_of_rows(rows).unwrap();
    assert_eq!(messages[1].results().next().unwrap().text(), "found");
    assert_eq!(messages[1].results().next().unwrap().call_id, None);
}

#[test]
fn rows_with_invalid_roles_or_calls_are_refused() {
    for row in [
        json!({"role": "wizard"}),
        json!({}),
        json!({"role": "user", "calls": [{"id": "1"}]}),
        json!({"role": "user", "calls": {"first": {"name": "a"}}}),
        json!({"role": "user", "calls": "none"}),
    ] {
        assert!(serde_json::from_value::<AggregateRow>(row.clone()).is_err(), "{row}");
    }
    let error = messages_of_rows([user("q"), user("r").with_call(call("1"))]).unwrap_err();
    assert_eq!(error, RowsError::NotOfTheModel { row: 1, role: Role::User });
}

#[test]
fn random_rows_become_valid_messages_that_contain_all_content() {
    let ids = ["1", "2", "3", ""];
    for seed in 0..1000 {
        let mut rng = Rng::of(seed, 0);
        let mut rows = Vec::new();
        for number in 0..rng.below(8) {
            let calls: Vec<_> = (0..rng.below(3)).map(|_| call(ids[rng.below(4)])).collect();
            let results: Vec<_> = (0..rng.below(4)).map(|_| result(ids[rng.below(4)])).collect();
            let text = format!("text {number}");
            rows.push(match rng.below(5) {
                0 => user(&text),
                1 => AggregateRow { results, ..AggregateRow::new(Role::Tool) },
                2 => row().with_step(AggregateStep::new(text, calls, results)),
                3 => AggregateRow { results, ..user(&text) },
                _ => AggregateRow { calls, results, ..row().with_text(text) },
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
        let imported: usize = messages.iter().map(|message| message.asked_calls().count()).sum();
        assert_eq!(imported, rows.iter().map(calls).sum::<usize>(), "seed {seed}");
        let valid = valid_messages_of_rows(rows, DanglingCalls::Drop).unwrap();
        assert_valid(&valid);
    }
}
