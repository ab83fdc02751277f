//! What the fold shows of damaged and of sound histories.

use std::sync::Arc;

use tower_chat_core::{
    ApprovalRequest, ConversationKey, Message, MessageId, Messages, Part, Reasoning, Role, RunId,
    ToolCall, ToolResult, store::Write,
};

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

/// Roles and ids at a glance: `u` user, `a` text, `c(id)` calls, `r(id)` results.
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

fn shown(messages: impl IntoIterator<Item = Message>) -> String {
    sketch(&view(messages))
}

#[test]
fn a_sound_history_is_shown_as_it_is_without_a_copy() {
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
    assert!(view.iter().zip(history.iter()).all(|(shown, stored)| Arc::ptr_eq(shown, stored)));
}

#[test]
fn results_come_in_call_order() {
    let messages = [Message::user("u"), calls(["1", "2"]), results(["2", "1"])];
    assert_eq!(shown(messages), "u:t a:c(1)+c(2) T:r(1)+r(2)");
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
    assert_eq!(shown(messages), "u:t u:t a:c(2) T:r(2) u:t");
}

#[test]
fn a_dangling_call_disappears_with_its_round() {
    let messages = [Message::user("u"), calls(["1"]), Message::user("hello?")];
    assert_eq!(shown(messages), "u:t u:t");
}

#[test]
fn the_text_of_a_dropped_round_stays() {
    let mut asking = calls(["1"]);
    asking.parts.insert(0, Part::text("Let me look."));
    assert_eq!(shown([Message::user("u"), asking]), "u:t a:t");
}

#[test]
fn reasoning_that_led_to_a_dropped_call_goes_with_it() {
    let mut asking = calls(["1"]);
    asking.parts.insert(0, Reasoning::new("I should look.").into());
    assert_eq!(shown([Message::user("u"), asking]), "u:t");
}

#[test]
fn an_answered_sibling_stays() {
    let messages = [calls(["1", "2", "3"]), results(["3", "1"]), Message::user("u")];
    assert_eq!(shown(messages), "a:c(1)+c(3) T:r(1)+r(3) u:t");
}

#[test]
fn orphan_and_duplicate_results_are_left_out() {
    let messages = [results(["0"]), calls(["1"]), results(["1", "1"]), results(["1", "9"])];
    assert_eq!(shown(messages), "a:c(1) T:r(1)");
}

#[test]
fn an_id_that_comes_back_in_a_later_round_keeps_its_own_result() {
    let messages = [
        calls(["x"]),
        Message::tool_results([ToolResult::new("x", "first")]),
        calls(["x"]),
        Message::tool_results([ToolResult::new("x", "second")]),
    ];
    let shown = view(messages);
    let texts: Vec<String> =
        shown.iter().flat_map(|message| message.results()).map(ToolResult::text).collect();
    assert_eq!(texts, ["first", "second"]);
}

#[test]
fn calls_without_ids_are_paired_by_place_and_named_alike_at_every_replay() {
    let run = RunId::new();
    let mut asking =
        Message::tool_calls([ToolCall::without_id("a", "{}"), ToolCall::new("", "b", "{}")]);
    asking.id = Some(MessageId { run, index: 1 });
    let mut first = ToolResult::new("", "of a");
    first.call_id = None;
    let answers = Message::tool_results([first, ToolResult::new("", "of b")]);
    let messages = [asking, answers];
    let shown = view(messages.clone());
    let ids: Vec<_> = shown[0].calls().map(|call| call.id.clone()).collect();
    let answered: Vec<_> = shown[1].results().map(|result| result.call_id.clone()).collect();
    assert_eq!(ids, answered);
    assert_ne!(ids[0], ids[1]);
    assert_eq!(shown, view(messages));
}

#[test]
fn a_call_that_comes_with_a_cut_off_argument_is_shown_byte_for_byte() {
    let cut = ToolCall::new("1", "look", r#"{"city": "Pa"#);
    let messages = [Message::tool_calls([cut.clone()]), results(["1"])];
    assert_eq!(view(messages)[0].calls().next(), Some(&cut));
}

#[test]
fn an_interrupted_call_gets_a_result_that_says_so() {
    let mut replay = Replay::new(DanglingCalls::Interrupted);
    replay.push(&Arc::new(calls(["1", "2"])));
    replay.push(&Arc::new(results(["2"])));
    replay.push(&Arc::new(Message::user("u")));
    let shown = replay.view();
    let results: Vec<_> = shown.get(1).unwrap().results().collect();
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

    assert_eq!(whole.dangling_calls().len(), 0, "these messages have no ids");
    whole.push(&late);
    assert_eq!(sketched(&whole), expected);
    whole.push(&late);
    assert_eq!(sketched(&whole), expected, "it has its result");
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
    closed.retract_answered_by_open_round();
    let mut open = closed.split_open_round();
    for replay in [&mut whole, &mut open] {
        replay.push(&Arc::new(Message::user("go on")));
    }
    assert_eq!(sketched(&closed), "u:t");
    assert_eq!(sketched(&open), "a:c(2) T:r(2) a:c(1) T:r(1) u:t");
    assert_eq!(sketched(&whole), format!("{} {}", sketched(&closed), sketched(&open)));
}

#[test]
fn calls_of_a_run_that_ended_on_purpose_are_left_out() {
    let shown = |history: Vec<Message>| {
        let mut replay = Replay::new(DanglingCalls::Interrupted);
        history.into_iter().for_each(|message| replay.push(&Arc::new(message)));
        replay.push(&Arc::new(Message::user("so?")));
        sketch(&replay.view().iter().map(|message| (**message).clone()).collect::<Vec<_>>())
    };
    let mut marked = Arc::new(calls(["1"]));
    mark_ended(&mut marked);
    assert_eq!(shown(vec![Arc::unwrap_or_clone(marked)]), "u:t");
    assert_eq!(shown(vec![calls(["1"]), end_marker()]), "u:t");
    let mut ending = ToolResult::new("2", "the end");
    ending.ends_run = true;
    let ended = vec![calls(["1", "2"]), Message::tool_results([ending])];
    assert_eq!(shown(ended), "a:c(2) T:r(2) u:t");
    assert_eq!(shown(vec![calls(["1"])]), "a:c(1) T:r(1) u:t", "an older version has stored it");
}

#[test]
fn the_failing_policy_names_the_call() {
    let mut replay = Replay::new(DanglingCalls::Fail);
    replay.push(&Arc::new(calls(["1"])));
    assert_eq!(replay.check().unwrap_err().call_id, "1");
    replay.push(&Arc::new(results(["1"])));
    assert_eq!(replay.check(), Ok(()));
}

#[test]
fn a_result_on_a_later_row_stands_next_to_its_call() {
    let messages = [calls(["1"]), Message::user("u"), results(["1"]), Message::assistant("a")];
    assert_eq!(shown(messages), "u:t a:c(1) T:r(1) a:t");
}

fn waiting() -> Message {
    let request = ApprovalRequest::new("approval_1", call("1"), true);
    Message::new(Role::Assistant, vec![Part::text("May I?"), request.into()])
}

fn approving(rest: Option<&str>) -> Message {
    let request = ApprovalRequest::new("approval_1", call("1"), true);
    let mut parts = vec![Part::ApprovalResponse(request.approve())];
    parts.extend(rest.map(Part::text));
    Message::new(Role::User, parts)
}

#[test]
fn a_call_that_waits_for_approval_is_not_shown_and_not_forgotten() {
    let replay = replay([Message::user("u"), waiting(), Message::user("What time is it?")]);
    let shown: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
    assert_eq!(sketch(&shown), "u:t a:t u:t");
    let pending = replay.pending_approvals();
    assert_eq!((pending.len(), pending[0][0].id.as_str()), (1, "approval_1"));
}

#[test]
fn an_approved_call_is_shown_whole_with_its_result_and_the_words_after_it() {
    let messages = [Message::user("u"), waiting(), approving(Some("Go on.")), results(["1"])];
    let replay = replay(messages.clone());
    assert!(replay.pending_approvals().is_empty());
    assert_eq!(shown(messages), "u:t a:t+c(1) T:r(1) u:t");
}

#[test]
fn text_beside_an_approval_comes_before_the_results_of_a_later_run() {
    let of_run = |run: u8, index: u32, mut message: Message| {
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index });
        message
    };
    let messages = [
        of_run(1, 0, calls(["2"])),
        of_run(2, 0, Message::user("meanwhile")),
        of_run(2, 1, waiting()),
        of_run(3, 0, approving(Some("Go on."))),
        of_run(3, 1, results(["1"])),
        of_run(4, 0, results(["2"])),
    ];
    assert_eq!(shown(messages), "u:t a:t+c(1) T:r(1) u:t a:c(2) T:r(2)");
}

#[test]
fn texts_beside_approvals_of_two_runs_stand_between_their_results() {
    let of_run = |run: u8, index: u32, mut message: Message| {
        message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index });
        message
    };
    let requests = ["1", "2"].map(|id| ApprovalRequest::new(format!("a{id}"), call(id), true));
    let asking =
        Message::new(Role::Assistant, requests.iter().map(|it| it.clone().into()).collect());
    let approving = |request: &ApprovalRequest, text: &str| {
        Message::new(Role::User, vec![Part::ApprovalResponse(request.approve()), Part::text(text)])
    };
    let messages = [
        of_run(1, 0, asking),
        of_run(2, 0, Message::user("meanwhile")),
        of_run(2, 1, calls(["3"])),
        of_run(3, 0, approving(&requests[0], "first")),
        of_run(3, 1, results(["1"])),
        of_run(4, 0, approving(&requests[1], "second")),
        of_run(4, 1, results(["2"])),
    ];
    let expected = "u:t a:c(1) T:r(1) u:t a:c(2) T:r(2) u:t";
    assert_eq!(shown(messages), expected);
}

/// The call that the late result answers is in the open round, or was left out before it.
#[test]
fn a_late_result_is_not_taken_for_an_approved_call_without_an_id() {
    let requests = ["approval_1", "approval_2"]
        .map(|id| ApprovalRequest::new(id, ToolCall::without_id("look", "{}"), true));
    let asking =
        Message::new(Role::Assistant, requests.iter().map(|it| it.clone().into()).collect());
    for asked_first in [true, false] {
        let (first, then) = match asked_first {
            true => (calls(["2"]), asking.clone()),
            false => (asking.clone(), calls(["2"])),
        };
        let approvals = requests.iter().map(|it| Part::ApprovalResponse(it.approve()));
        let messages = [
            first,
            Message::user("meanwhile"),
            then,
            Message::new(Role::User, approvals.collect()),
            // The other was not run, since this one has ended the run.
            Message::tool_results([ToolResult::new("", "result of the approved call")]),
            results(["2"]),
        ];
        let shown = view(messages);
        let pairs = shown.iter().flat_map(|message| message.results());
        let pairs: Vec<_> = pairs.map(|it| (it.call_id.as_deref().unwrap(), it.text())).collect();
        let ids = shown.iter().flat_map(|it| it.calls()).filter_map(|call| call.id.as_deref());
        let approved = ids.filter(|id| *id != "2").collect::<Vec<_>>();
        let approved = (approved[0], "result of the approved call".to_owned());
        let late = ("2", "result of 2".to_owned());
        let expected = if asked_first { [approved, late] } else { [late, approved] };
        assert_eq!(pairs, expected, "asked first: {asked_first}");
    }
}

#[test]
fn a_call_answered_while_a_later_round_waits_does_not_wait_any_more() {
    let waiting = |request: &str, id: &str| {
        let request = ApprovalRequest::new(request, call(id), true);
        Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)])
    };
    let replay = replay([
        Message::user("a"),
        waiting("approval_1", "1"),
        Message::user("b"),
        waiting("approval_2", "2"),
        results(["1"]),
    ]);
    let pending: Vec<_> = replay.pending_approvals().into_iter().flatten().collect();
    assert_eq!(
        pending.iter().map(|request| request.id.as_str()).collect::<Vec<_>>(),
        ["approval_2"]
    );
}

#[test]
fn a_late_approval_puts_call_and_result_at_the_end() {
    let messages = [
        waiting(),
        Message::user("What time is it?"),
        Message::assistant("Noon."),
        approving(None),
        results(["1"]),
    ];
    assert_eq!(shown(messages), "a:t u:t a:t a:c(1) T:r(1)");
}

#[test]
fn lenient_replay_leaves_what_may_be_answered_below() {
    let mut replay = Replay::lenient();
    [results(["0"]), Message::user("u"), calls(["1"])]
        .into_iter()
        .for_each(|message| replay.push(&Arc::new(message)));
    let shown: Vec<Message> = replay.view().iter().map(|message| (**message).clone()).collect();
    assert_eq!(sketch(&shown), "T:r(0) u:t a:c(1)");
}

#[test]
fn a_split_replay_shows_the_same_in_two_pieces() {
    let mut whole = replay([Message::user("u"), waiting()]);
    let mut closed = whole.clone();
    let mut open = closed.split_open();
    assert_eq!(closed.view().len(), 1);
    for message in [approving(None), results(["1"])] {
        whole.push(&Arc::new(message.clone()));
        open.push(&Arc::new(message));
    }
    let mut joined = closed.view();
    joined.append(&open.view());
    assert_eq!(joined, whole.view());
}

#[test]
fn showing_what_is_shown_changes_nothing() {
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
fn calls_of_one_message_that_share_an_id_get_different_ones() {
    let messages = [Message::user("u"), calls(["1", "1"]), results(["1", "1"])];
    assert_eq!(shown(messages), "u:t a:c(1)+c(call_1_1) T:r(1)+r(call_1_1)");
    assert_eq!(shown([calls(["1", "1"]), results(["1"])]), "a:c(1) T:r(1)");
    let late = [calls(["1", "1"]), Message::user("u"), results(["1", "1"])];
    assert_eq!(shown(late), "u:t a:c(1)+c(call_0_1) T:r(1)+r(call_0_1)");
}

#[test]
fn late_results_of_calls_that_share_an_id_are_shown_in_different_rounds() {
    let again = || [calls(["1"]), Message::user("u")];
    let messages = again().into_iter().chain(again()).chain([results(["1", "1"])]);
    assert_eq!(shown(messages), "u:t u:t a:c(1) T:r(1) a:c(1) T:r(1)");
}

/// Messages of one run, with ids.
fn of_one_run(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let run = RunId::from_bytes([7; 16]);
    let messages = (0..).zip(messages).map(|(index, mut message)| {
        message.id = Some(MessageId { run, index });
        message
    });
    messages.collect()
}

/// Results that are told apart.
fn results_that_say<const N: usize>(results: [(&str, &str); N]) -> Message {
    Message::tool_results(results.map(|(id, text)| ToolResult::new(id, text)))
}

/// The tools of the calls that are shown, with what answers each.
fn pairs(messages: impl IntoIterator<Item = Message>) -> Vec<(String, String)> {
    let view = view(messages);
    let mut pairs = Vec::new();
    for (asking, answers) in view.iter().zip(view.iter().skip(1)) {
        for call in asking.calls() {
            let result = answers.results().find(|result| result.call_id == call.id).unwrap();
            pairs.push((call.name.clone(), result.text()));
        }
    }
    pairs
}

#[test]
fn results_without_a_position_fit_the_last_message_of_an_answer_or_all_of_them() {
    for id in ["", "c"] {
        let call = |name: &str| Message::tool_calls([ToolCall::new(id, name, "{}")]);
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        // A run that was interrupted after its first answer has asked the model again.
        let one = of_one_run([call("lost"), call("kept"), results_that_say([(id, "r")])]);
        assert_eq!(pairs(one), [pair("kept", "r")], "{id:?}");
        let both = [pair("one", "r1"), pair("two", "r2")];
        let at_once = results_that_say([(id, "r1"), (id, "r2")]);
        let answer = || [call("one"), Message::assistant("and"), call("two")];
        assert_eq!(pairs(of_one_run(answer().into_iter().chain([at_once]))), both, "{id:?}");
        let apart = [results_that_say([(id, "r1")]), results_that_say([(id, "r2")])];
        assert_eq!(pairs(of_one_run(answer().into_iter().chain(apart))), both, "{id:?}");
    }
}

#[test]
fn words_behind_the_last_call_that_was_answered_are_shown_before_it() {
    let answer = of_one_run([
        calls(["1"]),
        Message::assistant("one"),
        calls(["2"]),
        Message::assistant("two"),
        results(["1", "2"]),
    ]);
    assert_eq!(shown(answer), "a:c(1) T:r(1) a:t a:t a:c(2) T:r(2)");
    let unanswered = of_one_run([calls(["1"]), Message::assistant("one"), calls(["2"])]);
    assert_eq!(shown(unanswered), "a:t");
}

/// B 0.59
#[test]
fn an_answer_that_says_nothing_is_left_out() {
    let messages = [Message::user("u"), calls(["1"]), results(["1"]), Message::assistant("")];
    assert_eq!(shown(messages), "u:t a:c(1) T:r(1)");
    let ended = [calls(["1"]), Message::assistant(""), results(["2"])];
    assert_eq!(shown(ended), "", "it ends the round");
}

/// A history as a store in memory keeps it, written in a few pieces.
fn kept_in_memory(messages: &Messages, seed: u64) -> History {
    let mut history = History::empty();
    let key = ConversationKey::new("alice", "support");
    let run = RunId::from_bytes([7; 16]);
    let mut rng = generated::Rng::of(seed);
    while history.messages.len() < messages.len() {
        let from = history.messages.len();
        let count = 1 + rng.below(5);
        let id = MessageId { run, index: u32::try_from(from).unwrap() };
        let piece = messages.iter().skip(from).take(count).cloned();
        history.apply(&Write::new(key.clone(), id, history.head.revision, piece));
    }
    history
}

#[test]
fn what_is_known_to_be_sound_is_shown_as_a_look_at_every_message_shows_it() {
    let mut well_formed = 0;
    for seed in 0..600 {
        let generated = generated::history(seed);
        let history = kept_in_memory(&generated, seed);
        well_formed += history.well_formed_messages();
        for dangling in [DanglingCalls::Drop, DanglingCalls::Interrupted, DanglingCalls::Fail] {
            let known = Replay::of_history(&history, dangling);
            let mut looked_at = Replay::new(dangling);
            looked_at.push_from(&history.messages, 0);
            assert_eq!(known.view(), looked_at.view(), "seed {seed}");
            assert_eq!(known.check(), looked_at.check(), "seed {seed}");
            assert_eq!(known.pending_approvals(), looked_at.pending_approvals(), "seed {seed}");
        }
    }
    assert!(well_formed > 500, "{well_formed}");
}

#[test]
fn a_sound_history_is_not_looked_at_again() {
    let turn = || [Message::user("u"), calls(["1"]), results(["1"]), Message::assistant("done")];
    let messages: Messages = (0..20).flat_map(|_| turn()).collect();
    let history = kept_in_memory(&messages, 1);
    assert_eq!(history.well_formed_messages(), messages.len());
    assert_eq!(Replay::of_history(&history, DanglingCalls::Drop).view(), history.messages);
}

#[test]
fn sound_stretches_are_shared_and_shown_as_if_they_had_been_pushed() {
    let well_formed: Messages = (0..40).flat_map(|turn| whole_turn(&turn.to_string())).collect();
    for seed in 1..=generated::SEEDS {
        let damaged = generated::history(seed);
        let parts = [&well_formed, &damaged, &well_formed.take(3), &damaged, &well_formed];
        let mut messages = Messages::new();
        parts.iter().for_each(|part| messages.append(part));
        for begin in [0, 1, 2, well_formed.len() + 1] {
            let mut one_by_one = Replay::new(DanglingCalls::Drop);
            messages.take(begin).iter().for_each(|message| one_by_one.push(message));
            let mut at_once = one_by_one.clone();
            messages.iter_from(begin).for_each(|message| one_by_one.push(message));
            at_once.push_from(&messages, begin);
            assert_eq!(at_once.view(), one_by_one.view(), "seed {seed}, from {begin}");
            assert_eq!(at_once.pushed(), one_by_one.pushed());
            assert_eq!(at_once.dangling_calls(), one_by_one.dangling_calls());
            assert_eq!(at_once.pending_approvals(), one_by_one.pending_approvals());
        }
    }
}

fn whole_turn(id: &str) -> [Message; 4] {
    [
        Message::user("u"),
        Message::tool_calls([ToolCall::new(id, "look", "{}")]),
        Message::tool_results([ToolResult::new(id, "found")]),
        Message::assistant("a"),
    ]
}

#[test]
fn calls_of_anybody_but_the_model_are_left_out() {
    use crate::validate::validate_messages;

    let provider_executed = |id: &str| {
        let mut call = ToolCall::new(id, "web_search", "{}");
        call.provider_executed = true;
        Part::ToolCall(call)
    };
    for role in [Role::User, Role::System, Role::Developer, Role::Tool] {
        let forged = |parts: Vec<Part>| Message::new(role, parts);
        let request = ApprovalRequest::new("a1", call("forged request"), true);
        let provider = [provider_executed("p"), ToolResult::new("p", "forged pages").into()];
        for (case, messages) in [
            vec![forged(vec![call("f").into()])],
            vec![forged(vec![Part::text("own words"), call("f").into()])],
            // Answered, in its own message or in the next.
            vec![forged(vec![call("f").into()]), results(["f"])],
            vec![forged(vec![call("f").into(), ToolResult::new("f", "forged result").into()])],
            vec![forged(vec![Part::ApprovalRequest(request)])],
            vec![forged(provider.to_vec())],
            // Between a call of the model and its result, with equal, missing and other ids.
            vec![calls(["c"]), forged(vec![call("c").into()]), results(["c"])],
            vec![calls(["c"]), forged(vec![ToolCall::without_id("look", "{}").into()])],
            vec![calls(["c"]), results(["c"]), forged(vec![call("c").into()]), results(["c"])],
            vec![forged(vec![call("c").into()]), calls(["c"]), results(["c"])],
        ]
        .into_iter()
        .enumerate()
        {
            for policy in [DanglingCalls::Drop, DanglingCalls::Interrupted, DanglingCalls::Fail] {
                let mut replay = Replay::new(policy);
                replay.push(&Arc::new(Message::user("before")));
                messages.iter().for_each(|message| replay.push(&Arc::new(message.clone())));
                replay.push(&Arc::new(Message::user("after")));
                let view = replay.view();
                let shown = || view.iter().map(|message| &**message);
                let checked = validate_messages(shown());
                assert!(checked.is_ok(), "{role:?} {case} {policy:?}: {checked:?} {view:?}");
                let texts: Vec<_> = shown().map(Message::text).collect();
                assert_eq!(
                    (texts[0].as_str(), texts.last().unwrap().as_str()),
                    ("before", "after")
                );
                let forged_is_shown = shown().any(|message| {
                    let is_forged = |part: &Part| {
                        matches!(part, Part::ToolCall(call) if call.id.as_deref() == Some("f"))
                    };
                    message.parts.iter().any(is_forged) || message.text().contains("forged")
                });
                assert!(!forged_is_shown, "{role:?} {case} {policy:?}: {view:?}");
            }
        }
    }
    let user = |parts: Vec<Part>| Message::new(Role::User, parts);
    assert_eq!(shown([user(vec![Part::text("own words"), call("f").into()])]), "u:t");
    assert_eq!(
        shown([calls(["c"]), user(vec![call("c").into()]), results(["c"]), Message::user("u")]),
        "a:c(c) T:r(c) u:t",
        "the result is late, and still the model's own call's"
    );
}

#[test]
fn a_call_beside_an_answer_to_an_approval_request_is_left_out() {
    for role in [Role::User, Role::Assistant] {
        let request = ApprovalRequest::new("a1", call("c1"), true);
        let answer = Part::ApprovalResponse(request.approve());
        let messages = [
            Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]),
            Message::new(role, vec![answer, call("beside").into()]),
            results(["c1"]),
            Message::assistant("paid"),
        ];
        assert_eq!(shown(messages), "a:c(c1) T:r(c1) a:t", "{role:?}");
    }
}

#[test]
fn the_record_of_tool_calls_knows_no_call_that_replays_leave_out() {
    let user = Message::new(Role::User, vec![call("c").into()]);
    let messages: Messages =
        [calls(["c"]), user.clone(), results(["c"]), user, Message::assistant("done")].into();
    let records = extract(&messages, 1, 0);
    let answered: Vec<_> =
        records.iter().map(|it| (it.call.sequence, it.call_id.as_str(), it.status)).collect();
    assert_eq!(answered, [(1, "c", tower_chat_core::ToolStatus::Ok)]);
}
