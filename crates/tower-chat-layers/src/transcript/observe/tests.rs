use tower_chat_core::{
    ApprovalRequest, CallPosition, Media, MediaSource, MessageId, Part, Reasoning, Role, ToolCall,
    ToolResult,
};

use super::*;
use crate::{replay::end_marker, run::partial_message};

fn r1() -> RunId {
    RunId::from_bytes([1; 16])
}

fn r2() -> RunId {
    RunId::from_bytes([2; 16])
}

fn user(text: &str) -> Message {
    Message::user(text)
}

fn says(text: &str) -> Message {
    Message::assistant(text)
}

fn system(text: &str) -> Message {
    Message::system(text)
}

/// Returns a message that calls `look` under these ids.
fn asks<const N: usize>(ids: [&str; N]) -> Message {
    Message::tool_calls(ids.map(|id| ToolCall::new(id, "look", "{}")))
}

fn answers<const N: usize>(ids: [&str; N]) -> Message {
    Message::tool_results(ids.map(|id| ToolResult::new(id, "seen")))
}

/// Returns the stored messages of runs.
fn stored(runs: &[(RunId, &[Message])]) -> Messages {
    let mut messages = Messages::new();
    for (run, of_run) in runs {
        for (index, message) in (0..).zip(*of_run) {
            let mut message = message.clone();
            message.id = Some(MessageId { run: *run, index });
            messages.push(message);
        }
    }
    messages
}

fn compare(
    stored: &Messages,
    run: StoredRun,
    sent: &[Message],
) -> Result<Observed, TranscriptDifference> {
    let transcript = StoredTranscript { before: stored.clone(), added: &[], is_pruned: false, run };
    let sent: Vec<Arc<Message>> = sent.iter().cloned().map(Arc::new).collect();
    observe(&transcript, &sent)
}

fn known(run: RunId) -> StoredRun {
    StoredRun::Known { run, has_answered: false }
}

/// Returns a short text about a message.
fn short(message: &Message) -> String {
    let calls: Vec<_> = message.asked_calls().filter_map(|call| call.id.clone()).collect();
    let results: Vec<_> = message.results().filter_map(|it| it.call_id.clone()).collect();
    format!("{}{}{}", message.text(), calls.join("+"), results.join("+"))
}

fn shorts(messages: &[Arc<Message>]) -> Vec<String> {
    messages.iter().map(|message| short(message)).collect()
}

/// Asserts the new messages and the step of a request. Compares the request twice: as a request of
/// a known run, and as a request of an unknown run.
#[track_caller]
fn adds(stored: &Messages, run: RunId, sent: &[Message], step: Step, new: &[&str]) {
    for run in [StoredRun::Unknown, known(run)] {
        let observed = compare(stored, run, sent).unwrap();
        assert_eq!((observed.step, &*shorts(&observed.new)), (step, &*owned(new)), "{run:?}");
        assert_eq!(shorts(&observed.instructions), [""; 0]);
    }
}

fn owned(texts: &[&str]) -> Vec<String> {
    texts.iter().map(|text| (*text).to_owned()).collect()
}

#[test]
fn messages_after_the_repeated_transcript_of_a_run_are_new() {
    let stored = stored(&[(r1(), &[user("q"), asks(["c1"])])]);
    adds(&stored, r1(), &[user("q"), asks(["c1"]), answers(["c1"])], Step::Continue, &["c1"]);
    adds(&stored, r1(), &[answers(["c1"])], Step::Continue, &["c1"]);
    let more = [user("q"), asks(["c1"]), answers(["c1"]), user("and?")];
    adds(&stored, r1(), &more, Step::Continue, &["c1", "and?"]);
}

#[test]
fn a_transcript_may_repeat_or_omit_earlier_turns() {
    let stored = stored(&[
        (r1(), &[user("q1"), asks(["c1"]), answers(["c1"]), says("a1")]),
        (r2(), &[user("q2"), asks(["c2"])]),
    ]);
    let all = [
        user("q1"),
        asks(["c1"]),
        answers(["c1"]),
        says("a1"),
        user("q2"),
        asks(["c2"]),
        answers(["c2"]),
    ];
    for first in [0, 3, 4, 5, 6] {
        adds(&stored, r2(), &all[first..], Step::Continue, &["c2"]);
    }
}

#[test]
fn a_user_message_after_an_answer_begins_a_turn() {
    let stored = stored(&[(r1(), &[user("yes"), says("ok")])]);
    for sent in [&[user("yes"), says("ok"), user("yes")][..], &[user("yes")]] {
        let observed = compare(&stored, StoredRun::Unknown, sent).unwrap();
        assert_eq!((observed.step, shorts(&observed.new)), (Step::Begin, owned(&["yes"])));
    }
}

#[test]
fn equal_texts_in_a_transcript_are_distinguished_by_the_messages_between_them() {
    let twice = stored(&[(r1(), &[user("yes"), says("ok")]), (r2(), &[user("yes"), says("ok")])]);
    let round = [user("yes"), says("ok"), user("yes"), says("ok"), user("yes")];
    let observed = compare(&twice, StoredRun::Unknown, &round).unwrap();
    assert_eq!((observed.step, shorts(&observed.new)), (Step::Begin, owned(&["yes"])));
    // The request of the second run is sent again, under its id.
    let observed = compare(&twice, known(r2()), &round[..3]).unwrap();
    assert_eq!((observed.step, observed.new), (Step::Repeat, Vec::new()));
}

#[test]
fn calls_with_equal_ids_are_distinguished_by_their_rounds() {
    let stored = stored(&[(r1(), &[user("q"), asks(["c"]), answers(["c"]), asks(["c"])])]);
    let all = [user("q"), asks(["c"]), answers(["c"]), asks(["c"]), answers(["c"])];
    for first in [0, 1, 3, 4] {
        adds(&stored, r1(), &all[first..], Step::Continue, &["c"]);
    }
}

#[test]
fn calls_without_stored_ids_are_recognised_by_name_and_position() {
    let call = || Message::tool_calls([ToolCall::without_id("look", "{}")]);
    let stored = stored(&[(r1(), &[user("q"), call()])]);
    for id in ["", "made-up"] {
        let all = [user("q"), asks([id]), answers([id])];
        adds(&stored, r1(), &all, Step::Continue, &[id]);
        adds(&stored, r1(), &all[2..], Step::Continue, &[id]);
    }
    let other = Message::tool_calls([ToolCall::without_id("other", "{}")]);
    let error = compare(&stored, known(r1()), &[user("q"), other, answers([""])]).unwrap_err();
    assert_eq!((error.position, error.kind), (1, DifferenceKind::Calls));
}

#[test]
fn a_transcript_without_reasoning_or_with_joined_texts_and_results_is_recognised() {
    let mut thinking = asks(["c1", "c2"]);
    thinking.parts.insert(0, Part::Reasoning(Reasoning::new("hm")));
    let mut parts = user("one");
    parts.parts.push(Part::text("two"));
    let only_reasoning = Message::new(Role::Assistant, vec![Reasoning::new("hm").into()]);
    let stored = stored(&[(
        r1(),
        &[
            parts,
            only_reasoning,
            says("Let me look."),
            thinking,
            answers(["c1"]),
            answers(["c2"]),
            asks(["c3"]),
        ],
    )]);
    for (join, results) in
        [("", vec![answers(["c1", "c2"])]), ("\n\n", vec![answers(["c1"]), answers(["c2"])])]
    {
        let mut joined = asks(["c1", "c2"]);
        joined.parts.insert(0, Part::text(" Let me look.\n"));
        let mut sent = vec![user(&format!("one{join}two")), says(""), joined];
        sent.extend(results);
        sent.extend([asks(["c3"]), answers(["c3"])]);
        adds(&stored, r1(), &sent, Step::Continue, &["c3"]);
    }
}

#[test]
fn only_the_results_that_are_not_stored_are_new() {
    let stored = stored(&[(r1(), &[user("q"), asks(["c1", "c2"]), answers(["c1"])])]);
    let sent = [user("q"), asks(["c1", "c2"]), answers(["c1", "c2"])];
    adds(&stored, r1(), &sent, Step::Continue, &["c2"]);
}

#[test]
fn stored_arguments_and_results_are_not_compared_with_those_of_the_transcript() {
    let asking = Message::tool_calls([ToolCall::new("c1", "look", r#"{"at":"*"}"#)]);
    let result = Message::tool_results([ToolResult::new("c1", "cut...")]);
    let stored = stored(&[(r1(), &[user("q"), asking, result, asks(["c2"])])]);
    let sent = [user("q"), asks(["c1"]), answers(["c1"]), asks(["c2"]), answers(["c2"])];
    adds(&stored, r1(), &sent, Step::Continue, &["c2"]);
}

#[test]
fn a_transcript_may_contain_calls_that_a_hook_has_removed_from_the_store() {
    let mut hooked = asks(["c2"]);
    hooked.metadata.insert("hooked_calls".to_owned(), serde_json::json!([]));
    let stored = stored(&[(r1(), &[user("q"), hooked, answers(["c2"]), asks(["c3"])])]);
    let sent =
        [user("q"), asks(["c1", "c2"]), answers(["c1", "c2"]), asks(["c3"]), answers(["c3"])];
    adds(&stored, r1(), &sent, Step::Continue, &["c3"]);
}

#[test]
fn stored_system_messages_are_not_new_and_other_system_messages_are_instructions() {
    let stored = stored(&[(r1(), &[system("Be brief."), user("q"), asks(["c1"])])]);
    let sent = |text: &str| [system(text), user("q"), asks(["c1"]), answers(["c1"])];
    adds(&stored, r1(), &sent("Be brief."), Step::Continue, &["c1"]);
    let observed = compare(&stored, known(r1()), &sent("It is noon.")).unwrap();
    assert_eq!(shorts(&observed.instructions), ["It is noon."]);
    assert_eq!(shorts(&observed.new), ["c1"]);
    let only_new = [system("Be brief."), answers(["c1"])];
    adds(&stored, r1(), &only_new, Step::Continue, &["c1"]);
}

#[test]
fn a_request_that_is_sent_again_adds_nothing() {
    let open = stored(&[(r1(), &[user("q"), asks(["c1"])])]);
    adds(&open, r1(), &[user("q")], Step::Repeat, &[]);
    let complete = stored(&[(r1(), &[user("q"), asks(["c1"]), answers(["c1"]), says("a")])]);
    let sent = [user("q"), asks(["c1"]), answers(["c1"])];
    adds(&complete, r1(), &sent, Step::Repeat, &[]);
    adds(&complete, r1(), &sent[2..], Step::Repeat, &[]);
    let observed = compare(&complete, known(r1()), &sent[..1]).unwrap();
    assert_eq!(observed.step, Step::Repeat);
    let unanswered = stored(&[(r1(), &[user("q")])]);
    adds(&unanswered, r1(), &[user("q")], Step::Continue, &[]);
}

#[test]
fn a_request_that_ends_before_its_run_is_no_repetition_of_the_run() {
    let stored = stored(&[(r1(), &[user("q1"), says("a1")]), (r2(), &[user("q2"), says("a2")])]);
    compare(&stored, known(r2()), &[user("q1"), says("a1")]).unwrap_err();
}

#[test]
fn decisions_about_approvals_are_recognised_by_the_request_and_the_decision() {
    let decision = |approve: bool| {
        let request = ApprovalRequest::new("a1", ToolCall::new("c1", "pay", "{}"), true);
        let decision = if approve { request.approve() } else { request.reject("no") };
        Message::new(Role::User, vec![Part::ApprovalResponse(decision)])
    };
    let asked = [user("q"), asks(["c1"])];
    let stored =
        stored(&[(r1(), &asked), (r2(), &[decision(true), answers(["c1"]), says("done")])]);
    let sent = |approve| {
        let repeated = [decision(approve), answers(["c1"]), says("done"), user("and?")];
        asked.iter().cloned().chain(repeated).collect::<Vec<_>>()
    };
    let observed = compare(&stored, StoredRun::Unknown, &sent(true)).unwrap();
    assert_eq!((observed.step, shorts(&observed.new)), (Step::Begin, owned(&["and?"])));
    compare(&stored, StoredRun::Unknown, &sent(false)).unwrap_err();
}

#[test]
fn results_of_a_stopped_turn_are_not_stored_again_when_the_failed_request_is_repeated() {
    let turn = [user("q1"), asks(["c", "c", "c"])];
    let stopped = stored(&[(r1(), &turn)]);
    let next = [answers(["c"]), user("q2")];
    adds(&stopped, r2(), &next, Step::Continue, &["c", "q2"]);
    // The service call of the next turn failed, and the loop repeats its request.
    let failed = stored(&[(r1(), &turn), (r2(), &next)]);
    adds(&failed, r2(), &next, Step::Continue, &[]);
    // Another text, a result with another content, and a further result are new.
    let other = [answers(["c"]), user("q3")];
    adds(&failed, r2(), &other, Step::Continue, &["c", "q3"]);
    let result = Message::tool_results([ToolResult::new("c", "seen elsewhere")]);
    adds(&failed, r2(), &[result, user("q2")], Step::Continue, &["c", "q2"]);
    adds(&failed, r2(), &[answers(["c"])], Step::Continue, &["c"]);
}

#[test]
fn a_repeated_request_is_recognised_if_two_turns_are_equal() {
    let turn = [user("yes"), asks(["c"]), answers(["c"]), says("ok")];
    let stored = stored(&[(r1(), &turn), (r2(), &turn)]);
    let sent = [&turn[..], &turn[..3]].concat();
    adds(&stored, r2(), &sent, Step::Repeat, &[]);
}

#[test]
fn after_an_answer_the_same_text_without_an_id_is_new_and_with_the_stored_id_is_repeated() {
    let stored = stored(&[(r1(), &[user("go on"), says("one")])]);
    let run = StoredRun::Known { run: r1(), has_answered: true };
    let observed = compare(&stored, run, &[user("go on")]).unwrap();
    assert_eq!((observed.step, shorts(&observed.new)), (Step::Continue, owned(&["go on"])));
    let mut with_id = user("go on");
    with_id.id = Some(MessageId { run: r1(), index: 0 });
    assert_eq!(compare(&stored, run, &[with_id]).unwrap().step, Step::Repeat);
}

#[test]
fn a_transcript_may_contain_a_partial_answer_and_the_answer_after_it() {
    let half = partial_message("Half an");
    let stored = stored(&[(r1(), &[user("q"), half, says("answer")])]);
    let sent = [user("q"), says("Half an"), says("answer"), user("and?")];
    let observed = compare(&stored, StoredRun::Unknown, &sent).unwrap();
    assert_eq!((observed.step, shorts(&observed.new)), (Step::Begin, owned(&["and?"])));
}

#[test]
fn a_transcript_may_omit_partial_answers_and_interrupted_rounds() {
    let stored = stored(&[(
        r1(),
        &[
            user("q0"),
            partial_message("Half an"),
            user("q1"),
            asks(["c1"]),
            user("q2"),
            says("a2"),
            end_marker(),
        ],
    )]);
    let mut sent = vec![user("q2"), says("a2"), user("q3")];
    for before in [None, Some(user("q1")), Some(user("q0"))] {
        sent.splice(..0, before);
        let observed = compare(&stored, StoredRun::Unknown, &sent).unwrap();
        assert_eq!(shorts(&observed.new), ["q3"], "{sent:?}");
    }
}

#[test]
fn a_transcript_may_omit_an_interrupted_call_before_an_answer() {
    let stored = stored(&[(r1(), &[user("q"), asks(["c1"]), says("a")])]);
    let observed = compare(&stored, StoredRun::Unknown, &[user("q"), says("a"), user("q2")]);
    assert_eq!(shorts(&observed.unwrap().new), ["q2"]);
}

#[test]
fn media_in_a_transcript_are_compared_with_the_stored_media() {
    let image = |url: &str| {
        let media = Media::new("image/png", MediaSource::Url(url.into()));
        Message::new(Role::User, vec![Part::text("see"), Part::Media(media)])
    };
    let stored = stored(&[(r1(), &[image("https://a"), asks(["c1"])])]);
    adds(
        &stored,
        r1(),
        &[image("https://a"), asks(["c1"]), answers(["c1"])],
        Step::Continue,
        &["c1"],
    );
    let sent = [image("https://b"), asks(["c1"]), answers(["c1"])];
    let error = compare(&stored, known(r1()), &sent).unwrap_err();
    assert_eq!((error.position, error.kind), (0, DifferenceKind::Text));
}

#[test]
fn the_error_for_a_different_transcript_names_the_message_and_the_kind_of_difference() {
    let stored = stored(&[
        (r1(), &[user("q1"), says("a1")]),
        (r2(), &[user("q2"), asks(["c1"]), answers(["c1"]), asks(["c2"])]),
    ]);
    let sent = || {
        [
            user("q1"),
            says("a1"),
            user("q2"),
            asks(["c1"]),
            answers(["c1"]),
            asks(["c2"]),
            answers(["c2"]),
        ]
    };
    let changes = [
        (0, user("edited"), DifferenceKind::Text),
        (1, says("edited"), DifferenceKind::Text),
        (2, user("edited"), DifferenceKind::Text),
        (2, says("another role"), DifferenceKind::Text),
        (3, asks(["c9"]), DifferenceKind::Calls),
        (3, asks(["c1", "c9"]), DifferenceKind::Calls),
        (4, answers(["c9"]), DifferenceKind::Result),
        (4, user("another role"), DifferenceKind::Role),
        (5, says("another answer"), DifferenceKind::Text),
    ];
    for (position, message, kind) in changes {
        let mut sent = sent();
        sent[position] = message;
        for run in [StoredRun::Unknown, known(r2())] {
            let error = compare(&stored, run, &sent).unwrap_err();
            let expected = match sent[position].role {
                // This message is joined with the answer before it.
                Role::Assistant if position == 2 => 1,
                _ => position,
            };
            assert_eq!((error.position, error.kind), (expected, kind), "{position} {run:?}");
            let text = error.to_string();
            assert!(text.starts_with(&format!("message {expected} of the request ")), "{text}");
        }
    }
}

#[test]
fn a_transcript_with_an_answer_that_is_not_stored_is_refused_within_a_run() {
    let stored = stored(&[(r1(), &[user("q"), asks(["c1"])])]);
    let sent = [user("q"), asks(["c1"]), answers(["c1"]), says("made up"), user("go on")];
    let error = compare(&stored, known(r1()), &sent).unwrap_err();
    assert_eq!((error.position, error.kind), (3, DifferenceKind::NotStored));
}

#[test]
fn a_transcript_without_stored_messages_begins_a_turn() {
    let stored = stored(&[(r1(), &[user("q"), says("a")])]);
    let sent = [user("an example"), says("its answer"), user("q2")];
    let observed = compare(&stored, StoredRun::Unknown, &sent).unwrap();
    assert_eq!((observed.step, observed.new.len()), (Step::Begin, 3));
}

#[test]
fn results_for_the_calls_of_an_ended_run_begin_another_run() {
    let mut waiting = asks(["c1"]);
    waiting.metadata.insert("run_ended".to_owned(), true.into());
    let stored = stored(&[(r1(), &[user("q"), waiting])]);
    let observed = compare(&stored, StoredRun::Unknown, &[answers(["c1"])]).unwrap();
    assert_eq!((observed.step, shorts(&observed.new)), (Step::Begin, owned(&["c1"])));
}

#[test]
fn a_transcript_may_repeat_pruned_messages_before_the_stored_messages() {
    let left = stored(&[(r2(), &[user("q2"), says("a2")])]);
    let sent = [user("q1"), says("a1"), user("q2"), says("a2"), user("q3")];
    let sent: Vec<Arc<Message>> = sent.into_iter().map(Arc::new).collect();
    for is_pruned in [false, true] {
        let run = StoredRun::Unknown;
        let stored = StoredTranscript { before: left.clone(), added: &[], is_pruned, run };
        match observe(&stored, &sent) {
            Ok(observed) => {
                assert!(is_pruned);
                assert_eq!(shorts(&observed.new), ["q3"]);
            }
            Err(error) => assert_eq!((is_pruned, error.position), (false, 1)),
        }
    }
}

#[test]
fn a_long_history_is_compared_from_its_end_and_a_difference_far_before_it_is_found() {
    let mut messages = Vec::new();
    for turn in 0..300 {
        messages.extend([user(&format!("q{turn}")), says(&format!("a{turn}"))]);
    }
    let stored = stored(&[(r1(), &messages)]);
    let transcript = StoredTranscript {
        before: stored.clone(),
        added: &[],
        is_pruned: false,
        run: StoredRun::Unknown,
    };
    assert!(transcript.tail(&[user("q300").into()]).len() < 10);
    messages.push(user("q300"));
    let observed = compare(&stored, StoredRun::Unknown, &messages[200..]).unwrap();
    assert_eq!(shorts(&observed.new), ["q300"]);
    messages[401] = says("edited");
    let error = compare(&stored, StoredRun::Unknown, &messages).unwrap_err();
    assert_eq!((error.position, error.kind), (401, DifferenceKind::Text));
    // The old answer is far from the end.
    let error = compare(&stored, StoredRun::Unknown, &[user("q0"), says("a0"), user("q")]);
    assert_eq!(error.unwrap_err().position, 2);
}

#[test]
fn a_stored_result_with_a_call_position_is_recognised() {
    let position = CallPosition { message: MessageId { run: r1(), index: 1 }, index: 0 };
    let named = Message::tool_results([ToolResult::new("c1", "seen").answering(position)]);
    let stored = stored(&[(r1(), &[user("q"), asks(["c1"]), named, asks(["c2"])])]);
    let sent = [user("q"), asks(["c1"]), answers(["c1"]), asks(["c2"]), answers(["c2"])];
    adds(&stored, r1(), &sent, Step::Continue, &["c2"]);
}
