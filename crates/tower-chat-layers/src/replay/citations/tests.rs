//! Tests from which results uncited sources are removed, which results do not change, and the next
//! source number.

use std::sync::Arc;

use tower_chat_core::{Message, Native, ToolCall, ToolResult};

use super::*;
use crate::replay::{
    Truncation,
    generated::{check_step, history},
};

const NONE_CITED: &str = "None of the sources was used.";

fn source(number: u64) -> String {
    format!(r#"{{"source_number": {number}, "content": "text {number}"}}"#)
}

fn sources(numbers: impl IntoIterator<Item = u64>) -> String {
    format!("[{}]", numbers.into_iter().map(source).collect::<Vec<_>>().join(", "))
}

/// Returns a turn: a question, calls with these results, and an answer.
fn turn(results: &[&str], answer: &str) -> Messages {
    let ids = || (0..results.len()).map(|index| format!("c{index}"));
    let answers = ids().zip(results).map(|(id, text)| ToolResult::new(id, *text));
    [
        Message::user("u"),
        Message::tool_calls(ids().map(|id| ToolCall::new(id, "search", "{}"))),
        Message::tool_results(answers),
        Message::assistant(answer),
    ]
    .into()
}

fn results(messages: &Messages) -> Vec<String> {
    let results = messages.iter().flat_map(|message| message.results());
    results.map(ToolResult::text).collect()
}

fn compacted(results_of_turn: &[&str], answer: &str) -> Vec<String> {
    results(&Citations::default().apply(&turn(results_of_turn, answer)))
}

fn replacing() -> Citations {
    Citations::default().on_uncited(Uncited::Replace(NONE_CITED.to_owned()))
}

#[test]
fn a_turn_without_final_text_is_not_compacted() {
    let found = sources(0..3);
    let whole = turn(&[&found], "");
    for policy in [Citations::default(), replacing()] {
        assert_eq!(policy.apply(&whole), whole);
        assert_eq!(policy.apply(&whole.take(3)), whole.take(3));
    }
}

#[test]
fn text_in_a_message_with_a_call_is_not_final_text() {
    let found = sources(0..3);
    let mut messages = turn(&[&found], "As [source1] says.").take(3);
    let mut asking = Message::tool_calls([ToolCall::new("d", "search", "{}")]);
    asking.parts.insert(0, Part::text("As [source1] says."));
    messages.push(asking);
    messages.push(Message::tool_results([ToolResult::new("d", "")]));
    assert_eq!(Citations::default().apply(&messages), messages);
    messages.push(Message::assistant("And [source2]."));
    let retained = format!("[{},{}]", source(1), source(2));
    assert_eq!(results(&Citations::default().apply(&messages)), [retained, String::new()]);
}

#[test]
fn text_between_rounds_is_not_final_text() {
    let mut messages = turn(&[&sources(0..3)], "As [source1] says, I have to look further.");
    messages.push(Message::tool_calls([ToolCall::new("d", "search", "{}")]));
    messages.push(Message::tool_results([ToolResult::new("d", sources(3..5))]));
    assert_eq!(Citations::default().apply(&messages), messages);
    assert_eq!(replacing().apply(&messages), messages);
}

#[test]
fn only_the_cited_sources_are_retained_with_their_numbers() {
    let retained = format!("[{},{}]", source(0), source(3));
    assert_eq!(compacted(&[&sources(0..5)], "See [source0] and [source3]."), [retained]);
}

#[test]
fn a_message_with_only_cited_sources_is_shared() {
    let messages = turn(&[&sources(0..2)], "[source1] [source0] [source7]");
    let output = Citations::default().apply(&messages);
    assert!(messages.iter().zip(output.iter()).all(|(a, b)| Arc::ptr_eq(a, b)));
}

#[test]
fn the_policy_decides_whether_a_result_without_cited_sources_is_replaced() {
    let found = sources(0..2);
    let messages = turn(&[&found, "plain", &found], "I do not know.");
    assert_eq!(Citations::default().apply(&messages), messages);
    assert_eq!(results(&replacing().apply(&messages)), [NONE_CITED, "plain", NONE_CITED]);
}

#[test]
fn a_result_that_is_not_an_array_of_only_sources_is_unchanged() {
    let one = source(0);
    let cut = sources(0..3);
    for text in [
        "plain [source0]".to_owned(),
        String::new(),
        "[]".to_owned(),
        "[ ]".to_owned(),
        one.clone(),
        format!("{} Remember to cite.", sources(0..3)),
        format!("[{one}, \"text\"]"),
        format!("[{one}, 7]"),
        format!("[{one}, null]"),
        format!("[{one}, {{\"content\": \"no number\"}}]"),
        format!("[{one}, [{one}]]"),
        r#"["a", "b"]"#.to_owned(),
        r#"[{"source_number": "0"}]"#.to_owned(),
        r#"[{"source_number": 0.0}]"#.to_owned(),
        r#"[{"source_number": -1}]"#.to_owned(),
        r#"[{"source_number": true}]"#.to_owned(),
        r#"[{"source_number": 99999999999999999999}]"#.to_owned(),
        r#"[{"source_number": 1e400}]"#.to_owned(),
        r#"[{"inner": {"source_number": 0}}]"#.to_owned(),
        cut[..cut.len() - 1].to_owned(),
        cut[..cut.len() / 2].to_owned(),
        "[".repeat(100_000),
        format!("[{{\"source_number\":{}", "[".repeat(100_000)),
    ] {
        let messages = turn(&[&text], "See [source5].");
        assert_eq!(Citations::default().apply(&messages), messages, "{text:.60}");
        let messages = turn(&[&text], "I do not know.");
        assert_eq!(replacing().apply(&messages), messages, "{text:.60}");
        let _any = Citations::default().source_map(&messages);
        let _any = Citations::default().highest_number(&messages);
    }
}

#[test]
fn an_empty_result_and_a_truncated_result_are_unchanged() {
    let mut empty = ToolResult::new("c0", "");
    empty.content.clear();
    let mut cut = ToolResult::new("c1", sources(0..50));
    Truncation::to(300).apply(&mut cut);
    let messages: Messages = [
        Message::user("u"),
        Message::tool_calls(["c0", "c1"].map(|id| ToolCall::new(id, "search", "{}"))),
        Message::tool_results([empty, cut]),
        Message::assistant("[source1]"),
    ]
    .into();
    let citations = Citations::default();
    assert_eq!(citations.apply(&messages), messages);
    assert_eq!(
        citations.highest_number(&messages),
        Some(5),
        "the complete items before the cut are included"
    );
}

#[test]
fn each_result_retains_its_cited_sources_or_becomes_an_empty_array() {
    let found = [sources(0..2), sources(2..4), sources(4..6)];
    let found: Vec<&str> = found.iter().map(String::as_str).collect();
    let expected = [format!("[{}]", source(1)), "[]".to_owned(), format!("[{}]", source(4))];
    assert_eq!(compacted(&found, "[source1] [source4]"), expected);
}

#[test]
fn a_citation_may_be_upper_case_but_may_not_list_several_sources() {
    assert_eq!(compacted(&[&sources(0..2)], "[Source0]"), [format!("[{}]", source(0))]);
    let found = sources(0..3);
    assert_eq!(compacted(&[&found], "[source 1] and [source1, source2]"), [found]);
}

#[test]
fn retained_sources_are_unchanged_byte_for_byte() {
    let odd = "{ \"content\" : \"日本語 \\u0627 🙂\",\n \"n\": 1.50e+2, \"source_number\":1 }";
    let found = format!(" [ {} , {odd} ] ", source(0));
    assert_eq!(compacted(&[&found], "[source1]"), [format!("[{odd}]")]);
}

#[test]
fn compaction_does_not_change_the_input_messages() {
    let found = sources(0..3);
    let messages = turn(&[&found], "[source1]");
    let _compacted = Citations::default().apply(&messages);
    assert_eq!(results(&messages), [found]);
}

#[test]
fn a_huge_number_in_the_text_cites_nothing() {
    let found = sources(0..2);
    let answer = format!("[source{}]", "9".repeat(20));
    assert_eq!(compacted(&[&found], &answer), [found]);
}

#[test]
fn a_turn_is_compacted_only_by_the_citations_in_its_own_text() {
    let mut messages = turn(&[&sources(0..2)], "[source0]");
    messages.append(&turn(&[&sources(2..4)], "[source1] [source3]"));
    let retained = [format!("[{}]", source(0)), format!("[{}]", source(3))];
    let citations = Citations::default();
    assert_eq!(results(&citations.apply(&messages)), retained);
    let first = citations.apply(&messages.take(4));
    assert_eq!(first, citations.apply(&messages).take(4), "later turns do not change earlier ones");
}

#[test]
fn each_text_part_is_compacted_separately_and_a_changed_result_loses_its_native_item() {
    let native = Native::new("w", r#""all of it""#.parse().unwrap());
    let mut result = ToolResult::new("c0", sources(0..2));
    result.content.push(Part::text("a note"));
    result.native = Some(native);
    let messages: Messages = [
        Message::tool_calls([ToolCall::new("c0", "search", "{}")]),
        Message::tool_results([result]),
        Message::assistant("[source1]"),
    ]
    .into();
    let output = Citations::default().apply(&messages);
    let result = output.get(1).unwrap().results().next().unwrap();
    assert_eq!(result.content, [Part::text(format!("[{}]", source(1))), Part::text("a note")]);
    assert_eq!(result.native, None);
}

#[test]
fn the_key_of_the_source_number_is_configurable() {
    let found = r#"[{"nr": 0}, {"n\u0072": 1}]"#;
    let output = Citations::default().with_number_key("nr").apply(&turn(&[found], "[source1]"));
    assert_eq!(results(&output), [r#"[{"n\u0072": 1}]"#]);
}

#[test]
fn the_key_of_the_source_content_is_configurable() {
    let found = r#"[{"nr": 7, "body": "rain", "content": "not this"}]"#;
    let citations = Citations::default().with_number_key("nr").with_content_key("body");
    let map = citations.source_map(&turn(&[found], "[source7]"));
    let found: Vec<(u64, &str)> = map.iter().map(|(nr, source)| (*nr, &*source.content)).collect();
    assert_eq!(found, [(7, "rain")]);
}

#[test]
fn the_highest_source_number_is_found_across_all_results_of_the_conversation() {
    let citations = Citations::default();
    let highest = |results: &[&str]| citations.highest_number(&turn(results, "a"));
    assert_eq!(citations.highest_number(&Messages::new()), None);
    assert_eq!(highest(&["plain", "", r#"[{"content": "a"}]"#, r#"["a", "b"]"#]), None);
    assert_eq!(highest(&[&sources([3, 9]), &sources([4])]), Some(9));
    let odd = r#"["a", {"source_number": "50"}, {"source_number": 2}, {"source_number": 1.5}]"#;
    assert_eq!(highest(&[odd]), Some(2));
}

#[test]
fn the_next_source_number_follows_the_highest_number_even_if_numbers_are_missing() {
    let citations = Citations::default();
    assert_eq!(citations.next_number(&Messages::new()), 0);
    let mut messages = turn(&[&sources([0, 1, 7])], "[source7]");
    assert_eq!(citations.next_number(&messages), 8);
    assert_eq!(citations.next_number(&citations.apply(&messages)), 8);
    messages.append(&turn(&[r#"[{"source_number": 18446744073709551615}]"#], "a"));
    assert_eq!(citations.next_number(&messages), u64::MAX);
}

#[test]
fn the_source_map_contains_the_last_source_of_each_number() {
    let found = r#"[{"source_number": 0, "content": "old"}, {"source_number": 1},
        {"source_number": 2, "content": 7}, {"source_number": 4, "content": "b", "content_id": "x"}]"#;
    let messages = turn(&[found, r#"[{"content": "new", "source_number": 0}]"#], "a");
    let map = Citations::default().source_map(&messages);
    let found: Vec<(u64, &str, &str)> = map
        .iter()
        .map(|(number, source)| (*number, &*source.content, &*source.content_id))
        .collect();
    assert_eq!(found, [(0, "new", ""), (4, "b", "x")]);
}

#[test]
fn compaction_keeps_every_history_valid() {
    check_step(|messages, _| Citations::default().apply(messages), &[]);
    check_step(|messages, _| replacing().apply(messages), &[NONE_CITED]);
}

#[test]
fn compaction_only_ever_removes_whole_items() {
    for seed in 1..200 {
        let before = history(seed);
        let after = Citations::default().apply(&before);
        assert_eq!(before.len(), after.len());
        for (old, new) in results(&before).iter().zip(results(&after)).filter(|(a, b)| *a != b) {
            let new = items(&new).into_iter().map(str::to_owned).collect::<Vec<_>>();
            let old = items(old);
            assert!(new.len() < old.len() && new.iter().all(|item| old.contains(&&**item)));
        }
    }
}
