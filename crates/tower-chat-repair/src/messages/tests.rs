//! Tests repairs of single mismatches, and of histories that a generator has damaged.

use tower_chat_core::{ApprovalRequest, Message, MessageId, Part, RunId, ToolCall, format};
use tower_chat_layers::replay::{DanglingCalls, Replay};
use tower_chat_testkit::{assert_valid_replay, damaged_history};

use super::*;

/// The number of generated histories.
const SEEDS: u64 = 400;

/// Returns the messages with the ids that messages have in a store.
fn stored(messages: impl IntoIterator<Item = Message>) -> Messages {
    let run = RunId::new();
    let numbered = (0..).zip(messages).map(|(index, mut message)| {
        message.id = Some(MessageId { run, index });
        message
    });
    numbered.collect()
}

fn repair(messages: &Messages) -> Messages {
    repaired(messages, 1, |_| Filling::Interrupted)
}

fn output_of(messages: &Messages) -> Messages {
    let mut replay = Replay::new(DanglingCalls::Drop);
    replay.push_from(messages, 0);
    replay.view()
}

/// Returns the texts of all results that a model receives when these messages are replayed.
fn results(messages: &Messages) -> Vec<String> {
    let output = output_of(messages);
    output.iter().flat_map(|message| message.results()).map(|result| result.text()).collect()
}

#[test]
fn a_dangling_call_is_answered_and_its_sibling_keeps_its_own_result() {
    let calls = [ToolCall::new("c1", "look", "{}"), ToolCall::new("c2", "look", "{}")];
    let messages = stored([
        Message::user("go"),
        Message::tool_calls(calls),
        Message::tool_results([ToolResult::new("c2", "two")]),
        Message::assistant("Done."),
    ]);
    let after = repair(&messages);
    assert_eq!(results(&after), [INTERRUPTED, "two"]);
    assert_eq!(after.len(), messages.len());
    let from_record = repaired(&messages, 1, |call| {
        assert_eq!(call, SequencePosition { sequence: 2, index: 0 });
        Filling::Result(Box::new(ToolResult::new("other id", "one")))
    });
    assert_eq!(results(&from_record), ["one", "two"]);
}

#[test]
fn a_call_without_a_round_behind_it_is_answered_in_its_own_message() {
    let calls = [ToolCall::without_id("look", "{}"), ToolCall::new("", "look", "{}")];
    let messages = stored([Message::tool_calls(calls), Message::user("and now?")]);
    let after = repair(&messages);
    assert_eq!(results(&after), [INTERRUPTED, INTERRUPTED]);
    assert_eq!(output_of(&after).len(), 3);
}

#[test]
fn results_out_of_the_way_are_kept_to_the_byte_and_not_shown() {
    let orphan = ToolResult::new("gone", "é \"lost\"");
    let again = ToolResult::new("c1", "two");
    let mut lost_again = ToolResult::new("", "three");
    lost_again.call_id = None;
    let messages = stored([
        Message::new(Role::User, vec![orphan.clone().into()]),
        Message::tool_calls([ToolCall::new("c1", "look", "{}")]),
        Message::tool_results([orphan.clone(), ToolResult::new("c1", "one"), again.clone()]),
        Message::assistant("Done."),
        Message::new(Role::User, vec![Part::text("And now?"), lost_again.into()]),
    ]);
    let found: Vec<String> = mismatches(&messages, 1).iter().map(Mismatch::to_string).collect();
    let expected = [
        r#"a result (call id "gone") answers no call"#,
        r#"a result (call id "gone") answers no call"#,
        r#"a result answers call "c1", which has a result already"#,
        "a result (no call id) answers no call",
    ];
    assert_eq!(found, expected);
    let after = repair(&messages);
    assert_eq!(results(&after), ["one"]);
    assert_eq!(output_of(&after).len(), 4);
    let roles = |index: usize| after.get(index).unwrap().role;
    assert_eq!((roles(0), roles(4)), (Role::Tool, Role::User), "words stay the user's");
    let removed = |index: usize| {
        let stored = format::encode(after.get(index).unwrap());
        let metadata = format::decode(&stored).unwrap().metadata;
        let texts = metadata[REMOVED_RESULTS].as_array().unwrap().clone();
        let read = |text: &serde_json::Value| serde_json::from_str(text.as_str().unwrap()).unwrap();
        texts.iter().map(read).collect::<Vec<ToolResult>>()
    };
    assert_eq!(removed(0), std::slice::from_ref(&orphan));
    assert_eq!(removed(2), [orphan, again]);
}

#[test]
fn a_call_that_waits_for_approval_is_left_alone() {
    let request = ApprovalRequest::new("a1", ToolCall::new("c1", "pay", "{}"), true);
    let approved = Part::ApprovalResponse(request.approve());
    let messages = stored([
        Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]),
        Message::new(Role::User, vec![approved]),
    ]);
    assert_eq!(mismatches(&messages, 1), []);
    assert_eq!(repair(&messages), messages);
}

#[test]
fn records_follow_their_results() {
    let calls = [ToolCall::new("c1", "look", "{}"), ToolCall::new("c2", "look", "{}")];
    let messages = stored([
        Message::tool_calls(calls),
        Message::tool_results([ToolResult::new("gone", "x"), ToolResult::new("c2", "two")]),
    ]);
    // 41 is the number of the first message after 40 earlier messages were pruned.
    for first in [1, 41] {
        let position = |sequence, index| SequencePosition { sequence, index };
        let mut records = extract(&messages, first, 0);
        records.push(ToolRecord::pending(position(first + 8, 0), 0, "c9", "look"));
        let after = repaired(&messages, first, |call| {
            assert_eq!(call, position(first, 0));
            Filling::Interrupted
        });
        assert_eq!(after, repair(&messages));
        let (written, removed) = repaired_records(&records, first, &messages, &after);
        assert_eq!(removed, [position(first + 8, 0)]);
        let at = |index| RecordedResult::InMessage(position(first + 1, index));
        let outcomes: Vec<_> = written.iter().map(|it| (it.status, it.result.clone())).collect();
        assert_eq!(outcomes, [(ToolStatus::Interrupted, at(1)), (ToolStatus::Ok, at(0))]);
        assert_eq!(repaired_records(&written, first, &after, &after), (Vec::new(), Vec::new()));
    }
}

#[test]
fn a_record_is_interrupted_only_if_nothing_was_known_of_its_call() {
    let calls = ["c1", "c2", "c3"].map(|id| ToolCall::new(id, "look", "{}"));
    let asking = ApprovalRequest::new("a1", ToolCall::new("c4", "pay", "{}"), true);
    let messages = stored([
        Message::tool_calls(calls),
        Message::user("go on"),
        Message::new(Role::Assistant, vec![Part::ApprovalRequest(asking)]),
    ]);
    let after = repaired(&messages, 1, |call| match call.index {
        0 => Filling::Result(Box::new(ToolResult::new("", "one"))),
        _ => Filling::Interrupted,
    });
    assert_eq!(results(&after), ["one", INTERRUPTED, INTERRUPTED]);
    let mut records = extract(&messages, 1, 0);
    assert_eq!(records.len(), 4);
    records[2].status = ToolStatus::Error;
    // The status `Pending` contradicts the call, which is a request for approval.
    records[3].status = ToolStatus::Pending;
    let (written, removed) = repaired_records(&records, 1, &messages, &after);
    assert_eq!(removed, []);
    let statuses: Vec<_> = written.iter().map(|it| (&*it.call_id, it.status)).collect();
    let expected = [ToolStatus::Pending, ToolStatus::Interrupted, ToolStatus::Error];
    let expected: Vec<_> = ["c1", "c2", "c3"].into_iter().zip(expected).collect();
    assert_eq!(statuses, expected);
}

#[test]
fn a_record_that_holds_the_result_of_a_call_itself_stays_as_it_is() {
    let messages =
        stored([Message::tool_calls([ToolCall::new("c1", "look", "{}")]), Message::user("well?")]);
    let mut records = extract(&messages, 1, 0);
    records[0].status = ToolStatus::Ok;
    records[0].result = RecordedResult::Apart(Box::new(ToolResult::new("c1", "recorded")));
    let after = repaired(&messages, 1, |_| Filling::Leave);
    assert_eq!(after, messages);
    assert_eq!(repaired_records(&records, 1, &messages, &after), (Vec::new(), Vec::new()));
}

#[test]
fn nothing_near_a_message_that_cannot_be_read_is_reported() {
    let messages = stored([
        Message::tool_results([ToolResult::new("gone", "x")]),
        Message::tool_calls([ToolCall::new("c1", "look", "{}")]),
        Message::user("lost"),
        Message::tool_results([ToolResult::new("c2", "x")]),
        Message::tool_calls([ToolCall::new("c3", "look", "{}")]),
    ]);
    let readable = messages.iter().map(|message| (message.text() != "lost").then_some(message));
    let found = mismatches_of_readable((1..).zip(readable));
    assert_eq!(found.iter().map(Mismatch::sequence).collect::<Vec<_>>(), [1, 5]);
    let answer = ToolResult::new("of the unreadable message", "y");
    let behind = Message::new(Role::User, vec![answer.into(), Part::text("well?")]);
    let readable = [None, Some(Arc::new(behind))];
    assert_eq!(mismatches_of_readable((1..).zip(readable.iter().map(Option::as_ref))), []);
}

#[test]
fn a_result_of_the_providers_own_tool_is_no_mismatch() {
    let mut search = ToolCall::new("ws_1", "web_search", "{}");
    search.provider_executed = true;
    let found = ToolResult::new("ws_1", "pages");
    let parts: Vec<Part> = vec![search.into(), found.into()];
    let messages = stored([Message::new(Role::Assistant, parts.clone())]);
    assert_eq!(mismatches(&messages, 1), []);
    assert_eq!(repair(&messages), messages);
    let orphan = ToolResult::new("gone", "the result of no call");
    let beside = Message::new(Role::Assistant, [parts, vec![orphan.into()]].concat());
    let result = SequencePosition { sequence: 1, index: 1 };
    let expected = Mismatch::OrphanResult { result, call_id: Some("gone".to_owned()) };
    assert_eq!(mismatches(&stored([beside]), 1), [expected]);
}

#[test]
fn every_odd_history_is_repaired_for_good_and_nothing_of_it_is_lost() {
    let mut repairs = 0;
    for seed in 1..=SEEDS {
        let before = damaged_history(seed);
        if before.iter().any(|message| message.id.is_none()) {
            continue;
        }
        let after = repair(&before);
        assert_eq!(mismatches(&after, 1), [], "seed {seed}: {before:?}\n{after:?}");
        assert_eq!(repair(&after), after, "nothing more to do, seed {seed}");
        assert_valid_replay(&output_of(&after), seed);
        let ids = |messages: &Messages| messages.iter().map(|it| it.id).collect::<Vec<_>>();
        assert_eq!(ids(&after), ids(&before), "seed {seed}");
        let interrupted = |messages: &Messages| {
            let count = |it: &Arc<Message>| format::encode(it).matches(INTERRUPTED).count();
            messages.iter().map(count).sum::<usize>()
        };
        let all_results = |messages: &Messages| {
            let removed = |it: &Arc<Message>| {
                let removed = it.metadata.get(REMOVED_RESULTS).and_then(|it| it.as_array());
                it.results().count() + removed.map_or(0, Vec::len)
            };
            messages.iter().map(removed).sum::<usize>()
        };
        assert_eq!(all_results(&after) - interrupted(&after), all_results(&before), "seed {seed}");
        // A repair does not remove a result that a model would have received before the repair.
        let (was, is) = (results(&before), results(&after));
        let is: Vec<String> = is.into_iter().filter(|it| it != INTERRUPTED).collect();
        assert_eq!(was, is, "seed {seed} {before:?}");
        repairs += usize::from(before != after);
    }
    assert!(repairs > 20, "{repairs} histories were repaired");
}
