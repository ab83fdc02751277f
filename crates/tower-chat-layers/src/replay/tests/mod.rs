//! Tests the output of a replay (its view) for damaged and for valid histories. A lenient replay
//! keeps calls without results and results without calls.

mod answers;
mod approvals;

use std::sync::Arc;

use tower_chat_core::{
    ApprovalRequest, CallPosition, ConversationKey, Message, MessageId, Messages, Native, Part,
    Reasoning, Role, RunId, ToolCall, ToolResult,
    store::{Head, Revision, author::Write},
};
use tower_chat_testkit::cases;

use super::*;

fn call(id: &str) -> ToolCall {
    ToolCall::new(id, "look", "{}")
}

fn calls<const N: usize>(ids: [&str; N]) -> Message {
    Message::tool_calls(ids.map(call))
}

fn results<const N: usize>(ids: [&str; N]) -> Message {
    Message::tool_results(ids.map(|id| ToolResult::new(id, format!("result of {id}"))))
}

fn replay(messages: impl IntoIterator<Item = Message>) -> Replay {
    let mut replay = Replay::new(DanglingCalls::Drop);
    messages.into_iter().for_each(|message| replay.push(&Arc::new(message)));
    replay
}

fn view(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    replay(messages).view().iter().map(|message| (**message).clone()).collect()
}

/// Returns a short text that describes the messages: `u` is a message of the user, `a` a text of
/// the model, `c(id)` a call and `r(id)` a result.
fn sketch(messages: &[Message]) -> String {
    let part = |part: &Part| match part {
        Part::Text(_) => "t".to_owned(),
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
    messages.iter().map(message).collect::<Vec<_>>().join(" ")
}

fn output_of(messages: impl IntoIterator<Item = Message>) -> String {
    sketch(&view(messages))
}

#[test]
fn a_well_formed_history_is_sent_unchanged_and_is_not_copied() {
    let history: Messages = [
        Message::system("s"),
        Message::user("u"),
        calls(["1", "2"]),
        results(["1"]),
        results(["2"]),
        Message::assistant("done"),
    ]
    .into();
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(&history, 0);
    let view = replay.view();
    assert_eq!(view.len(), history.len());
    assert!(view.iter().zip(history.iter()).all(|(output, stored)| Arc::ptr_eq(output, stored)));
}

#[test]
fn results_come_in_call_order() {
    let messages = [Message::user("u"), calls(["1", "2"]), results(["2", "1"])];
    assert_eq!(output_of(messages), "u:t a:c(1)+c(2) T:r(1)+r(2)");
}

/// A lenient replay contains the second result for a call, because this result may answer a call
/// that another layer stores.
#[test]
fn a_lenient_replay_sends_a_repeated_result_whether_one_or_two_messages_answered_the_round() {
    for first in [vec![results(["1", "2"])], vec![results(["1"]), results(["2"])]] {
        let mut replay = Replay::lenient();
        let messages = [calls(["1", "2"])].into_iter().chain(first.clone()).chain([results(["2"])]);
        messages.into_iter().for_each(|message| replay.push(&Arc::new(message)));
        let output: Vec<Message> = replay.view().iter().map(|it| (**it).clone()).collect();
        let answered = sketch(&first);
        assert_eq!(sketch(&output), format!("a:c(1)+c(2) {answered} T:r(2)"));
    }
}

#[test]
fn a_result_with_the_id_of_an_earlier_call_answers_no_call_without_an_id() {
    let nameless = Message::tool_calls([ToolCall::without_id("look", "{}")]);
    let messages = [
        Message::user("u"),
        calls(["1", "2"]),
        Message::user("u"),
        nameless,
        results(["2"]),
        Message::user("u"),
    ];
    assert_eq!(output_of(messages), "u:t u:t a:c(2) T:r(2) u:t");
}

#[test]
fn a_round_whose_only_call_has_no_result_is_omitted() {
    let messages = [Message::user("u"), calls(["1"]), Message::user("hello?")];
    assert_eq!(output_of(messages), "u:t u:t");
}

#[test]
fn the_text_of_an_omitted_round_is_sent() {
    let mut asking = calls(["1"]);
    asking.parts.insert(0, Part::text("Let me look."));
    assert_eq!(output_of([Message::user("u"), asking]), "u:t a:t");
}

#[test]
fn reasoning_before_an_omitted_call_is_omitted() {
    let mut asking = calls(["1"]);
    asking.parts.insert(0, Reasoning::new("I should look.").into());
    assert_eq!(output_of([Message::user("u"), asking.clone()]), "u:t");
    asking.parts.insert(1, Part::text(""));
    assert_eq!(
        output_of([Message::user("u"), asking]),
        "u:t",
        "a message with an empty text is omitted"
    );
}

#[test]
fn answered_calls_are_sent_although_another_call_of_their_round_has_no_result() {
    let messages = [calls(["1", "2", "3"]), results(["3", "1"]), Message::user("u")];
    assert_eq!(output_of(messages), "a:c(1)+c(3) T:r(1)+r(3) u:t");
}

#[test]
fn orphan_and_duplicate_results_are_left_out() {
    let messages = [results(["0"]), calls(["1"]), results(["1", "1"]), results(["1", "9"])];
    assert_eq!(output_of(messages), "a:c(1) T:r(1)");
}

#[test]
fn results_are_matched_within_their_round_if_a_later_round_uses_the_same_call_id() {
    let messages = [
        calls(["x"]),
        Message::tool_results([ToolResult::new("x", "first")]),
        calls(["x"]),
        Message::tool_results([ToolResult::new("x", "second")]),
    ];
    let output = view(messages);
    let texts: Vec<String> =
        output.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(texts, ["first", "second"]);
}

#[test]
fn calls_without_ids_are_matched_by_order_and_get_the_same_ids_in_every_replay() {
    let run = RunId::new();
    let mut asking =
        Message::tool_calls([ToolCall::without_id("a", "{}"), ToolCall::new("", "b", "{}")]);
    asking.id = Some(MessageId { run, index: 1 });
    let mut first = ToolResult::new("", "of a");
    first.call_id = None;
    let answers = Message::tool_results([first, ToolResult::new("", "of b")]);
    let messages = [asking, answers];
    let output = view(messages.clone());
    let ids: Vec<_> = output[0].calls().map(|call| call.id.clone()).collect();
    let answered: Vec<_> = output[1].results().map(|result| result.call_id.clone()).collect();
    assert_eq!(ids, answered);
    assert_ne!(ids[0], ids[1]);
    assert_eq!(output, view(messages));
}

#[test]
fn a_call_with_truncated_arguments_is_sent_byte_for_byte() {
    let cut = ToolCall::new("1", "look", r#"{"city": "Pa"#);
    let messages = [Message::tool_calls([cut.clone()]), results(["1"])];
    assert_eq!(view(messages)[0].calls().next(), Some(&cut));
}

#[test]
fn an_interrupted_call_gets_an_error_result_that_reports_the_interruption() {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    replay.push(&Arc::new(calls(["1", "2"])));
    replay.push(&Arc::new(results(["2"])));
    replay.push(&Arc::new(Message::user("u")));
    let output = replay.view();
    let results: Vec<_> = output.get(1).unwrap().results().collect();
    assert_eq!((results[0].is_error, results[1].is_error), (true, false));
    assert!(results[0].text().contains("may or may not"));
}

#[test]
fn a_late_result_of_an_interrupted_call_is_shown_once() {
    let asking = calls(["1", "2"]);
    let late = Arc::new(results(["2"]));
    let answer = |id: &str| Message::assistant(format!("answer {id}"));
    let history = [Message::user("hi"), asking, results(["1"]), Message::user("so?"), answer("a")];
    let expected = "u:t a:c(1) T:r(1) u:t a:t a:c(2) T:r(2)";
    let mut whole = Replay::new(DanglingCalls::Interrupted);
    history.into_iter().for_each(|message| whole.push(&Arc::new(message)));
    let sketched = |replay: &Replay| {
        sketch(&replay.view().iter().map(|message| (**message).clone()).collect::<Vec<_>>())
    };
    assert_eq!(sketched(&whole), "u:t a:c(1)+c(2) T:r(1)+r(2) u:t a:t");

    let mut closed = whole.clone();
    closed.retract_answered_by(std::slice::from_ref(&late));
    let mut open = closed.split_open_round();
    open.push(&late);
    assert_eq!(format!("{} {}", sketched(&closed), sketched(&open)), expected);

    assert_eq!(whole.dangling_positions().len(), 0, "these messages have no ids");
    whole.push(&late);
    assert_eq!(sketched(&whole), expected);
    whole.push(&late);
    assert_eq!(sketched(&whole), expected, "the call has its result");
}

#[test]
fn a_late_result_of_a_round_with_results_of_two_runs_is_shown_once() {
    let of_run = |run: u8, index: u32, mut message: Message| {
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index });
        Arc::new(message)
    };
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    for message in [
        of_run(1, 0, Message::user("hi")),
        of_run(1, 1, calls(["1", "2", "3"])),
        of_run(1, 2, results(["1"])),
        of_run(2, 0, results(["2"])),
        of_run(2, 1, Message::assistant("answer a")),
    ] {
        replay.push(&message);
    }
    let sketched = |replay: &Replay| {
        sketch(&replay.view().iter().map(|message| (**message).clone()).collect::<Vec<_>>())
    };
    assert_eq!(sketched(&replay), "u:t a:c(1)+c(2)+c(3) T:r(1) T:r(2) T:r(3) a:t");
    replay.push(&of_run(3, 0, results(["3"])));
    assert_eq!(sketched(&replay), "u:t a:c(1)+c(2) T:r(1) T:r(2) a:t a:c(3) T:r(3)");
}

#[test]
fn a_call_is_sent_at_the_place_of_its_late_result_even_if_the_result_is_an_interruption() {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    let late = Message::tool_results([ToolResult::error("1", INTERRUPTED)]);
    let history = [Message::user("hi"), calls(["1"]), Message::user("so?"), late];
    history.into_iter().for_each(|message| replay.push(&Arc::new(message)));
    let output: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
    assert_eq!(sketch(&output), "u:t u:t a:c(1) T:r(1)");
}

#[test]
fn an_interrupted_call_that_a_result_in_the_open_round_answers_is_shown_once() {
    let mut whole = Replay::new(DanglingCalls::Interrupted);
    let history = [calls(["1"]), Message::user("so?"), calls(["2"]), results(["1"])];
    history.into_iter().for_each(|message| whole.push(&Arc::new(message)));
    let sketched = |replay: &Replay| {
        sketch(&replay.view().iter().map(|message| (**message).clone()).collect::<Vec<_>>())
    };
    let mut closed = whole.clone();
    closed.retract_answered_by(&[]);
    let mut open = closed.split_open_round();
    for replay in [&mut whole, &mut open] {
        replay.push(&Arc::new(Message::user("go on")));
    }
    assert_eq!(sketched(&closed), "u:t");
    assert_eq!(sketched(&open), "a:c(2) T:r(2) a:c(1) T:r(1) u:t");
    assert_eq!(sketched(&whole), format!("{} {}", sketched(&closed), sketched(&open)));
}

#[test]
fn late_results_of_interrupted_calls_that_share_an_id_are_shown_once() {
    let mut whole = Replay::new(DanglingCalls::Interrupted);
    for message in [calls(["1"]), Message::user("so?"), calls(["1"]), Message::user("and?")] {
        whole.push(&Arc::new(message));
    }
    let late = Arc::new(results(["1", "1"]));
    let sketched = |replay: &Replay| {
        sketch(&replay.view().iter().map(|message| (**message).clone()).collect::<Vec<_>>())
    };
    let mut closed = whole.clone();
    closed.retract_answered_by(std::slice::from_ref(&late));
    let mut open = closed.split_open_round();
    open.push(&late);
    whole.push(&late);
    assert_eq!(sketched(&whole), "u:t u:t a:c(1) T:r(1) a:c(1) T:r(1)");
    assert_eq!(format!("{} {}", sketched(&closed), sketched(&open)), sketched(&whole));
}

#[test]
fn a_late_result_does_not_replace_the_error_of_another_call_with_the_same_id() {
    let failed = Message::tool_results([ToolResult::error("1", "no such city")]);
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    for message in [calls(["1"]), Message::user("so?"), calls(["1"]), failed, Message::user("and?")]
    {
        replay.push(&Arc::new(message));
    }
    replay.push(&Arc::new(results(["1"])));
    let output: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
    assert_eq!(sketch(&output), "u:t a:c(1) T:r(1) u:t a:c(1) T:r(1)");
    let texts: Vec<String> =
        output.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(texts, ["no such city", "result of 1"]);
}

#[test]
fn calls_of_a_run_that_ended_on_purpose_are_left_out() {
    let output_of = |history: Vec<Message>| {
        let mut replay = Replay::new(DanglingCalls::Interrupted);
        history.into_iter().for_each(|message| replay.push(&Arc::new(message)));
        replay.push(&Arc::new(Message::user("so?")));
        sketch(&replay.view().iter().map(|message| (**message).clone()).collect::<Vec<_>>())
    };
    let mut marked = Arc::new(calls(["1"]));
    mark_ended(&mut marked);
    assert_eq!(output_of(vec![Arc::unwrap_or_clone(marked)]), "u:t");
    assert_eq!(output_of(vec![calls(["1"]), end_marker()]), "u:t");
    let mut ending = ToolResult::new("2", "the end");
    ending.ends_run = true;
    let ended = vec![calls(["1", "2"]), Message::tool_results([ending])];
    assert_eq!(output_of(ended), "a:c(2) T:r(2) u:t");
    assert_eq!(
        output_of(vec![calls(["1"])]),
        "a:c(1) T:r(1) u:t",
        "a run without a mark is interrupted"
    );
}

#[test]
fn the_error_of_the_fail_policy_names_the_dangling_call() {
    let mut replay = Replay::new(DanglingCalls::Fail);
    replay.push(&Arc::new(calls(["1"])));
    assert_eq!(replay.check().unwrap_err().call_id, "1");
    replay.push(&Arc::new(results(["1"])));
    assert_eq!(replay.check(), Ok(()));
}

#[test]
fn a_result_in_a_later_message_is_sent_next_to_its_call() {
    let messages = [calls(["1"]), Message::user("u"), results(["1"]), Message::assistant("a")];
    assert_eq!(output_of(messages), "u:t a:c(1) T:r(1) a:t");
}

#[test]
fn a_lenient_replay_sends_dangling_calls_and_orphan_results() {
    let mut replay = Replay::lenient();
    [results(["0"]), Message::user("u"), calls(["1"])]
        .into_iter()
        .for_each(|message| replay.push(&Arc::new(message)));
    let output: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
    assert_eq!(sketch(&output), "T:r(0) u:t a:c(1)");
}

#[test]
fn the_two_parts_of_a_split_replay_equal_the_whole_replay() {
    let mut whole = replay([Message::user("u"), approvals::waiting()]);
    let mut closed = whole.clone();
    let mut open = closed.split_open();
    assert_eq!(closed.view().len(), 1);
    for message in [approvals::approving(None), results(["1"])] {
        whole.push(&Arc::new(message.clone()));
        open.push(&Arc::new(message));
    }
    let mut joined = closed.view();
    joined.append(&open.view());
    assert_eq!(joined, whole.view());
}

#[test]
fn a_split_replay_keeps_an_interrupted_call_in_the_open_part_for_a_late_result() {
    let mut whole = Replay::new(DanglingCalls::Interrupted);
    let before = [Message::system("s"), Message::user("u")];
    for message in before.into_iter().chain([calls(["1"]), Message::user("v"), calls(["2"])]) {
        whole.push(&Arc::new(message));
    }
    let mut closed = whole.clone();
    let mut open = closed.split_open();
    assert_eq!(closed.view().len(), 2);
    for message in [results(["2"]), Message::assistant("done"), results(["1"])] {
        whole.push(&Arc::new(message.clone()));
        open.push(&Arc::new(message));
    }
    let mut joined = closed.view();
    joined.append(&open.view());
    assert_eq!(joined, whole.view());
    let shown: Vec<Message> = joined.iter().map(|message| (**message).clone()).collect();
    assert_eq!(sketch(&shown), "s:t u:t u:t a:c(2) T:r(2) a:t a:c(1) T:r(1)");
}

#[test]
fn results_of_the_open_round_are_shared_although_an_earlier_call_has_the_same_id() {
    let messages = [
        calls(["1"]),
        Message::user("u"),
        calls(["1", "2"]),
        results(["1"]),
        results(["2"]),
        calls(["1"]),
        Message::tool_results([ToolResult::new("1", "at once")]),
    ];
    let messages = messages.map(Arc::new);
    let mut replay = Replay::new(DanglingCalls::Drop);
    messages.iter().for_each(|message| replay.push(message));
    let view = replay.view();
    assert_eq!(view.len(), messages.len() - 1);
    assert!(view.iter().zip(&messages[1..]).all(|(output, pushed)| Arc::ptr_eq(output, pushed)));
}

#[test]
fn replaying_a_replayed_history_changes_nothing() {
    let messages = [
        results(["0"]),
        Message::user("u"),
        calls(["1", "2"]),
        results(["2"]),
        Message::user("v"),
        results(["1"]),
        calls(["3"]),
    ];
    let once = view(messages);
    assert_eq!(view(once.clone()), once);
}

#[test]
fn calls_of_one_message_with_the_same_id_get_distinct_ids() {
    let messages = [Message::user("u"), calls(["1", "1"]), results(["1", "1"])];
    assert_eq!(output_of(messages), "u:t a:c(1)+c(call_1_1) T:r(1)+r(call_1_1)");
    assert_eq!(output_of([calls(["1", "1"]), results(["1"])]), "a:c(1) T:r(1)");
    let late = [calls(["1", "1"]), Message::user("u"), results(["1", "1"])];
    assert_eq!(output_of(late), "u:t a:c(1)+c(call_0_1) T:r(1)+r(call_0_1)");
}

#[test]
fn late_results_of_calls_that_share_an_id_are_shown_in_different_rounds() {
    let again = || [calls(["1"]), Message::user("u")];
    let messages = again().into_iter().chain(again()).chain([results(["1", "1"])]);
    assert_eq!(output_of(messages), "u:t u:t a:c(1) T:r(1) a:c(1) T:r(1)");
}

#[test]
fn messages_can_be_replayed_alone_from_a_run_if_no_result_answers_an_earlier_call() {
    let ids = [1, 2, 3, 4].map(|run| RunId::from_bytes([run; 16]));
    let turn = || vec![Message::user("question"), Message::assistant("answer")];
    let interrupted = vec![Message::user("look"), calls(["1"])];
    let late = vec![results(["1"]), Message::assistant("seen")];
    let runs = ids.into_iter().zip([turn(), interrupted, turn(), late]);
    let mut replay = Replay::new(DanglingCalls::Drop);
    for (run, messages) in runs {
        for (index, mut message) in (0..).zip(messages) {
            message.id = Some(MessageId { run, index });
            replay.push(&Arc::new(message));
        }
    }
    assert_eq!(ids.map(|run| replay.can_begin_with(run)), [true, true, false, false]);
}
