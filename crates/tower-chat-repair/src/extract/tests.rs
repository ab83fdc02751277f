//! Tests which calls [`extract`] finds in messages, and which result it assigns to each call.

use tower_chat_core::{
    ApprovalRequest, Media, MediaSource, MessageId, Part, Role, RunId, ToolCall, ToolInvocation,
    ToolResult,
};
use tower_chat_layers::replay::{DanglingCalls, Replay};
use tower_chat_testkit::damaged_history;

use super::*;

/// The number of generated histories.
const SEEDS: u64 = 400;

/// Returns the messages that a model receives when this history is replayed.
fn output_of(messages: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(messages, 0);
    replay.view()
}

/// Returns the messages with the ids that a run assigns when it stores them.
fn of_run(messages: impl IntoIterator<Item = Message>) -> Messages {
    let run = RunId::from_bytes([1; 16]);
    let with_id = |(index, mut message): (u32, Message)| {
        message.id = Some(MessageId { run, index });
        message
    };
    (0..).zip(messages).map(with_id).collect()
}

/// Returns the tool calls that [`extract`] finds in messages, which are numbered from 1.
fn records_of(messages: &Messages) -> Vec<ToolInvocation> {
    let message = |sequence: u64| messages.get(usize::try_from(sequence).unwrap() - 1).cloned();
    extract(messages, 1, 0).iter().map(|record| record.resolve(message).unwrap()).collect()
}

/// Formats each call as `round.index id=result`, with `-` for a call without a result.
fn sketch(messages: impl IntoIterator<Item = Message>) -> Vec<String> {
    let of_call = |call: ToolInvocation| {
        let result = call.result.map_or("-".to_owned(), |result| result.text());
        format!("{}.{} {}={result}", call.round_index, call.sequence_index, call.call_id)
    };
    records_of(&of_run(messages)).into_iter().map(of_call).collect()
}

fn calls<const N: usize>(ids: [&str; N]) -> Message {
    Message::tool_calls(ids.map(|id| ToolCall::new(id, "look", "{}")))
}

fn results<const N: usize>(results: [(&str, &str); N]) -> Message {
    Message::tool_results(results.map(|(id, text)| ToolResult::new(id, text)))
}

#[test]
fn a_result_with_the_id_of_an_earlier_call_answers_no_call_without_an_id() {
    let nameless = Message::tool_calls([ToolCall::new("", "look", "{}")]);
    let messages = [
        Message::user("u"),
        calls(["1", "2"]),
        Message::user("u"),
        nameless,
        results([("2", "late")]),
    ];
    let found = sketch(messages);
    assert_eq!(found[..2], ["0.0 1=-", "0.1 2=late"]);
    assert!(found[2].ends_with("=-"), "{found:?}");
}

#[test]
fn no_messages_have_no_calls() {
    assert!(extract(&Messages::new(), 1, 0).is_empty());
    assert!(sketch([Message::user("u"), Message::assistant("a")]).is_empty());
}

#[test]
fn a_call_is_reported_with_its_result_and_its_place() {
    let call = ToolCall::new("c1", "look", r#"{ "a" : 1 }"#);
    let messages =
        of_run([Message::user("u"), Message::tool_calls([call]), results([("c1", "r")])]);
    let records_of = &records_of(&messages)[0];
    assert_eq!((records_of.round_index, records_of.sequence_index, records_of.sequence), (0, 0, 2));
    assert_eq!(
        (&*records_of.call_id, &*records_of.name, &*records_of.arguments),
        ("c1", "look", r#"{ "a" : 1 }"#)
    );
    assert_eq!(
        (records_of.status, records_of.result.clone()),
        (ToolStatus::Ok, Some(ToolResult::new("c1", "r")))
    );
}

#[test]
fn numbers_continue_from_those_given() {
    let messages = of_run([calls(["1"]), results([("1", "a")]), calls(["2"])]);
    let records = extract(&messages, 41, 7);
    let positions: Vec<(u64, u32)> =
        records.iter().map(|record| (record.call.sequence, record.round_index)).collect();
    assert_eq!(positions, [(41, 7), (43, 8)]);
    let position = SequencePosition { sequence: 42, index: 0 };
    assert_eq!(records[0].result, RecordedResult::InMessage(position));
}

#[test]
fn rounds_are_counted_over_messages_with_calls() {
    let records_of = sketch([
        Message::user("u"),
        calls(["1", "2"]),
        results([("1", "a"), ("2", "b")]),
        Message::assistant("Let me look further."),
        calls(["3"]),
        results([("3", "c")]),
    ]);
    assert_eq!(records_of, ["0.0 1=a", "0.1 2=b", "1.0 3=c"]);
}

#[test]
fn every_turn_counts_its_rounds_from_zero() {
    let turn =
        || [Message::user("u"), calls(["1"]), results([("1", "a")]), Message::assistant("a")];
    let records_of = sketch(turn().into_iter().chain(turn()));
    assert_eq!(records_of, ["0.0 1=a", "0.0 1=a"]);
}

#[test]
fn a_call_without_a_result_is_a_record_without_one() {
    let messages = of_run([calls(["1", "2"]), results([("2", "b")])]);
    let records_of = records_of(&messages);
    assert_eq!((records_of[0].status, records_of[0].result.clone()), (ToolStatus::Pending, None));
    assert_eq!(records_of[1].status, ToolStatus::Ok);
}

#[test]
fn an_empty_result_is_a_result() {
    assert_eq!(sketch([calls(["1"]), results([("1", "")])]), ["0.0 1="]);
}

#[test]
fn calls_without_ids_keep_their_results_by_place() {
    let asked = [ToolCall::without_id("a", "{}"), ToolCall::new("", "b", "{}")];
    let mut without = ToolResult::new("", "of a");
    without.call_id = None;
    let answers = Message::tool_results([without, ToolResult::new("", "of b")]);
    let messages = of_run([Message::tool_calls(asked), answers]);
    let records_of = records_of(&messages);
    let texts: Vec<String> =
        records_of.iter().map(|call| call.result.as_ref().unwrap().text()).collect();
    assert_eq!(texts, ["of a", "of b"]);
    let replayed: Vec<String> = output_of(&messages)
        .iter()
        .flat_map(|m| m.calls())
        .filter_map(|call| call.id.clone())
        .collect();
    let ids: Vec<String> = records_of.into_iter().map(|call| call.call_id).collect();
    assert_eq!(ids, replayed, "the record names a call as replays do");
}

#[test]
fn results_come_in_any_order() {
    let records_of =
        sketch([calls(["1", "2", "3"]), results([("3", "c"), ("1", "a")]), results([("2", "b")])]);
    assert_eq!(records_of, ["0.0 1=a", "0.1 2=b", "0.2 3=c"]);
}

#[test]
fn an_id_that_is_used_again_keeps_its_own_result() {
    let records_of = sketch([
        calls(["x", "x"]),
        results([("x", "a"), ("x", "b")]),
        calls(["x"]),
        results([("x", "c")]),
    ]);
    assert_eq!(records_of, ["0.0 x=a", "0.1 call_0101010101010101_0_1=b", "1.0 x=c"]);
}

#[test]
fn content_of_many_parts_is_kept() {
    let mut result = ToolResult::new("1", "a picture");
    result.content.push(Media::new("image/png", MediaSource::Base64("AA".into())).into());
    let messages = of_run([calls(["1"]), Message::tool_results([result.clone()])]);
    assert_eq!(records_of(&messages)[0].result, Some(result));
}

#[test]
fn orphan_and_repeated_results_are_ignored() {
    let messages = [
        results([("0", "orphan")]),
        calls(["1"]),
        results([("9", "orphan"), ("1", "a"), ("1", "again")]),
        results([("1", "again")]),
        Message::assistant("a"),
        results([("1", "again"), ("", "orphan")]),
    ];
    assert_eq!(sketch(messages), ["0.0 1=a"]);
}

#[test]
fn hundreds_of_calls_of_a_turn_are_all_recorded() {
    let ids: Vec<String> = (0..300).map(|id| id.to_string()).collect();
    let asked = Message::tool_calls(ids.iter().map(|id| ToolCall::new(id, "look", "{}")));
    let answers = Message::tool_results(ids.iter().rev().map(|id| ToolResult::new(id, id)));
    let records_of = records_of(&of_run([asked, answers]));
    assert!(records_of.iter().all(|call| call.result.as_ref().unwrap().text() == call.call_id));
    assert_eq!(records_of.len(), 300);
}

#[test]
fn a_later_result_answers_the_call_it_names() {
    let records_of = sketch([calls(["1", "2"]), Message::user("u"), results([("2", "late")])]);
    assert_eq!(records_of, ["0.0 1=-", "0.1 2=late"]);
}

#[test]
fn a_failed_result_is_distinguished() {
    let answers =
        Message::tool_results([ToolResult::error("1", "boom"), ToolResult::new("2", "b")]);
    let records_of = records_of(&of_run([calls(["1", "2"]), answers]));
    assert_eq!([records_of[0].status, records_of[1].status], [ToolStatus::Error, ToolStatus::Ok]);
}

#[test]
fn an_aggregate_row_tells_its_rounds() {
    let row = Message::new(
        Role::Assistant,
        vec![
            ToolCall::new("1", "look", "{}").into(),
            ToolResult::new("1", "a").into(),
            Part::text("and"),
            ToolCall::new("2", "look", "{}").into(),
            ToolResult::new("2", "b").into(),
            Part::text("done"),
        ],
    );
    assert_eq!(sketch([row]), ["0.0 1=a", "1.1 2=b"]);
}

#[test]
fn the_providers_own_tools_are_no_matter_of_the_record() {
    let mut own = ToolCall::new("ws", "web_search", "{}");
    own.provider_executed = true;
    let parts = vec![
        own.into(),
        ToolResult::new("ws", "pages").into(),
        ToolCall::new("1", "look", "{}").into(),
    ];
    assert_eq!(sketch([Message::new(Role::Assistant, parts), results([("1", "a")])]), ["0.0 1=a"]);
}

#[test]
fn rounds_are_counted_on_behind_a_message_that_was_queued_in_a_later_run() {
    let of_run = |run: u8, index: u32, mut message: Message| {
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index });
        message
    };
    let messages = [
        of_run(1, 0, Message::user("first request")),
        of_run(1, 1, calls(["1"])),
        of_run(2, 0, Message::user("second request")),
        of_run(2, 1, calls(["2"])),
        of_run(2, 2, results([("2", "b")])),
        of_run(2, 3, Message::user("queued words")),
        of_run(2, 4, calls(["3"])),
    ];
    let rounds: Vec<u32> =
        records_of(&messages.into()).iter().map(|call| call.round_index).collect();
    assert_eq!(rounds, [0, 0, 1]);
}

fn waiting() -> (Message, ApprovalRequest) {
    let request = ApprovalRequest::new("approval", ToolCall::new("1", "pay", "{}"), true);
    (Message::new(Role::Assistant, vec![request.clone().into()]), request)
}

#[test]
fn a_call_that_waits_for_approval_says_so_until_it_is_answered() {
    let (asking, request) = waiting();
    let approving = Message::new(Role::User, vec![Part::ApprovalResponse(request.approve())]);
    let messages = of_run([Message::user("u"), asking, approving, results([("1", "paid")])]);
    let status = |count| records_of(&messages.take(count))[0].status;
    let expected = [ToolStatus::PendingApproval, ToolStatus::Pending, ToolStatus::Ok];
    assert_eq!([status(2), status(3), status(4)], expected);
}

#[test]
fn a_refused_call_stays_refused_whatever_the_model_receives() {
    let (asking, request) = waiting();
    let rejecting = Message::new(Role::User, vec![Part::ApprovalResponse(request.reject("no"))]);
    let messages = of_run([asking, rejecting, results([("1", "was refused")])]);
    assert_eq!(records_of(&messages.take(2))[0].status, ToolStatus::RejectedByApproval);
    let records_of = &records_of(&messages)[0];
    assert_eq!(records_of.status, ToolStatus::RejectedByApproval);
    assert_eq!(records_of.result.as_ref().unwrap().text(), "was refused");
}

/// For every generated history, the record has a row for each call, and contains the same results
/// as the replayed history.
#[test]
fn the_record_of_every_history_agrees_with_its_replay() {
    for seed in 1..=SEEDS {
        let history = damaged_history(seed);
        let records = extract(&history, 1, 0);
        let asked = history.iter().map(|message| message.asked_calls().count()).sum::<usize>();
        assert_eq!(records.len(), asked, "seed {seed}");
        let result_at = |position: SequencePosition| {
            let message = history.get(usize::try_from(position.sequence).unwrap() - 1)?;
            message.results().nth(position.index as usize)
        };
        let mut recorded: Vec<String> = records
            .iter()
            .filter_map(|record| match &record.result {
                RecordedResult::InMessage(position) => Some(result_at(*position).unwrap().text()),
                _ => None,
            })
            .collect();
        let replay = output_of(&history);
        let results = replay.iter().flat_map(|message| message.results());
        let mut replayed: Vec<String> = results.map(ToolResult::text).collect();
        recorded.sort();
        replayed.sort();
        assert_eq!(recorded, replayed, "seed {seed}: {history:?}");
    }
}

#[test]
fn a_call_in_a_message_of_the_user_is_no_call() {
    let user = Message::new(Role::User, vec![ToolCall::new("c", "look", "{}").into()]);
    let results = || Message::tool_results([ToolResult::new("c", "found")]);
    let messages: Messages =
        [calls(["c"]), user.clone(), results(), user, Message::assistant("done")].into();
    let records = extract(&messages, 1, 0);
    let answered: Vec<_> =
        records.iter().map(|it| (it.call.sequence, it.call_id.as_str(), it.status)).collect();
    assert_eq!(answered, [(1, "c", ToolStatus::Ok)]);
}
