//! Tests answers with several messages, histories with a well-formed prefix, and calls in messages
//! whose role is not assistant.

use std::convert::Infallible;

use super::*;

/// Returns the messages with the ids of one run.
fn of_one_run(messages: impl IntoIterator<Item = Message>) -> Vec<Message> {
    let run = RunId::from_bytes([7; 16]);
    let messages = (0..).zip(messages).map(|(index, mut message)| {
        message.id = Some(MessageId { run, index });
        message
    });
    messages.collect()
}

/// Returns a message with results, each with an id and a text.
fn results_that_say<const N: usize>(results: [(&str, &str); N]) -> Message {
    Message::tool_results(results.map(|(id, text)| ToolResult::new(id, text)))
}

/// Returns the name of the tool and the text of the result for each call in the messages.
pub(super) fn pairs(messages: impl IntoIterator<Item = Message>) -> Vec<(String, String)> {
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
fn results_without_a_position_answer_calls_of_the_last_message_or_of_the_whole_answer() {
    for id in ["", "c"] {
        let call = |name: &str| Message::tool_calls([ToolCall::new(id, name, "{}")]);
        let pair = |name: &str, text: &str| (name.to_owned(), text.to_owned());
        // The first attempt of the run was interrupted after the call `lost`. The second attempt
        // called the model again.
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
fn text_after_the_last_answered_call_of_an_answer_is_sent_before_this_call() {
    let answer = of_one_run([
        calls(["1"]),
        Message::assistant("one"),
        calls(["2"]),
        Message::assistant("two"),
        results(["1", "2"]),
    ]);
    assert_eq!(output_of(answer), "a:c(1) T:r(1) a:t a:t a:c(2) T:r(2)");
    let unanswered = of_one_run([calls(["1"]), Message::assistant("one"), calls(["2"])]);
    assert_eq!(output_of(unanswered), "a:t");
}

#[test]
fn an_answer_without_content_is_omitted() {
    let messages = [Message::user("u"), calls(["1"]), results(["1"]), Message::assistant("")];
    assert_eq!(output_of(messages), "u:t a:c(1) T:r(1)");
    let ended = [calls(["1"]), Message::assistant(""), results(["2"])];
    assert_eq!(output_of(ended), "", "the message ends the round");
}

/// Returns a history of a `MemoryStore`, into which the messages were written in several writes.
fn in_memory(messages: &Messages, seed: u64) -> History {
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
fn a_replay_that_skips_the_well_formed_prefix_equals_one_that_checks_every_message() {
    let mut well_formed = 0;
    for seed in 0..600 {
        let generated = generated::history(seed);
        let head = Head::new(Revision { incarnation: 7, sequence: 1 });
        let unchanged = generated.iter().cloned().map(Ok::<_, Infallible>);
        let histories = [in_memory(&generated, seed), History::collect(head, unchanged).unwrap()];
        well_formed += histories[0].well_formed_messages();
        let policies = [DanglingCalls::Drop, DanglingCalls::Interrupted, DanglingCalls::Fail];
        for (history, dangling) in cases!(&histories, policies) {
            let known = Replay::of_history(history, dangling);
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
fn a_well_formed_history_needs_no_cached_replay() {
    let turn = || [Message::user("u"), calls(["1"]), results(["1"]), Message::assistant("done")];
    let messages: Messages = (0..20).flat_map(|_| turn()).collect();
    let history = in_memory(&messages, 1);
    assert_eq!(history.well_formed_messages(), messages.len());
    assert_eq!(Replay::of_history(&history, DanglingCalls::Drop).view(), history.messages);
    assert!(history.memo().get::<Replay>().is_none(), "there is no replay to cache");
}

#[test]
fn well_formed_parts_are_shared_and_replayed_like_messages_pushed_one_by_one() {
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
            let pushed = (at_once.pushed(), one_by_one.pushed());
            assert_eq!(pushed, (messages.len(), messages.len()));
            assert_eq!(at_once.dangling_positions(), one_by_one.dangling_positions());
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
fn calls_in_messages_of_other_roles_than_the_assistant_are_omitted() {
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
            // The result is in the message of the call or in the next message.
            vec![forged(vec![call("f").into()]), results(["f"])],
            vec![forged(vec![call("f").into(), ToolResult::new("f", "forged result").into()])],
            vec![forged(vec![Part::ApprovalRequest(request)])],
            vec![forged(provider.to_vec())],
            // The forged call is between a call of the model and its result, with equal, missing
            // and different ids.
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
                let output_of = || view.iter().map(|message| &**message);
                let checked = validate_messages(output_of());
                assert!(checked.is_ok(), "{role:?} {case} {policy:?}: {checked:?} {view:?}");
                let texts: Vec<_> = output_of().map(Message::text).collect();
                assert_eq!(
                    (texts[0].as_str(), texts.last().unwrap().as_str()),
                    ("before", "after")
                );
                let forged_is_visible = output_of().any(|message| {
                    let is_forged = |part: &Part| {
                        matches!(part, Part::ToolCall(call) if call.id.as_deref() == Some("f"))
                    };
                    message.parts.iter().any(is_forged) || message.text().contains("forged")
                });
                assert!(!forged_is_visible, "{role:?} {case} {policy:?}: {view:?}");
            }
        }
    }
    let user = |parts: Vec<Part>| Message::new(Role::User, parts);
    assert_eq!(output_of([user(vec![Part::text("own words"), call("f").into()])]), "u:t");
    assert_eq!(
        output_of([calls(["c"]), user(vec![call("c").into()]), results(["c"]), Message::user("u")]),
        "a:c(c) T:r(c) u:t",
        "the late result answers the call of the model"
    );
}

#[test]
fn a_call_in_a_message_with_an_approval_response_is_omitted() {
    for role in [Role::User, Role::Assistant] {
        let request = ApprovalRequest::new("a1", call("c1"), true);
        let answer = Part::ApprovalResponse(request.approve());
        let messages = [
            Message::new(Role::Assistant, vec![Part::ApprovalRequest(request)]),
            Message::new(role, vec![answer, call("beside").into()]),
            results(["c1"]),
            Message::assistant("paid"),
        ];
        assert_eq!(output_of(messages), "a:c(c1) T:r(c1) a:t", "{role:?}");
    }
}

#[test]
fn the_generated_id_of_a_call_does_not_depend_on_whether_earlier_messages_are_omitted() {
    let id_behind = |forged: Vec<Part>| {
        let nameless = Message::tool_calls([ToolCall::without_id("look", "{}")]);
        let forged = Message::new(Role::User, forged);
        let view = view([Message::user("u"), forged, nameless, results([""])]);
        view.iter().find_map(|message| message.calls().next()?.id.clone()).unwrap()
    };
    let words = Part::text("own words");
    assert_eq!(id_behind(vec![call("f").into()]), id_behind(vec![words, call("f").into()]));
}

#[tokio::test]
async fn the_replay_of_a_long_history_yields_regularly_to_other_tasks() {
    use std::pin::pin;
    for (messages, yields) in
        [(1, 0), (LARGE, 0), (LARGE + 1, 1), (3 * LARGE, 2), (3 * LARGE + 5, 3)]
    {
        // The well-formed prefix ends before the first orphan result, which is a result without a
        // call.
        let orphans = (0..messages)
            .map(|index| Ok::<_, Infallible>(Arc::new(results([&*format!("{index}")]))));
        let head = Head::new(Revision { incarnation: 7, sequence: 1 });
        let history = History::collect(head, orphans).unwrap();
        let mut folding = pin!(Replay::of_long_history(&history, DanglingCalls::Drop));
        let mut pending = 0;
        let replay = loop {
            match futures_util::poll!(folding.as_mut()) {
                std::task::Poll::Ready(replay) => break replay,
                std::task::Poll::Pending => pending += 1,
            }
        };
        assert_eq!((pending, replay.pushed()), (yields, messages), "{messages} messages");
        let known = history.memo().get::<Replay>().expect("a cached replay for the next reader");
        Replay::of_long_history(&history, DanglingCalls::Drop).await;
        let again = history.memo().get::<Replay>().unwrap();
        assert!(Arc::ptr_eq(&known, &again), "the replay is cached once: {messages} messages");
    }
}

/// Returns the message with the id of a run that contains only this message.
fn of_run(run: u8, mut message: Message) -> Arc<Message> {
    message.id = Some(MessageId { run: RunId::from_bytes([run; 16]), index: 0 });
    Arc::new(message)
}

#[test]
fn an_interrupted_call_is_hidden_only_by_a_result_that_answers_no_call_of_the_open_round() {
    let named = |run: u8| CallPosition { message: of_run(run, calls([])).id.unwrap(), index: 0 };
    let [by_id, again] = ["by id", "again"].map(|text| ToolResult::new("1", text));
    let first = ToolResult::new("1", "of the first").answering(named(1));
    let second = ToolResult::new("2", "of the second").answering(named(2));
    let results = [vec![by_id.clone()], vec![by_id.clone(), again], vec![first.clone()]];
    let results = results.into_iter().chain([vec![by_id, first], vec![second]]);
    for (second_id, results, follows, have_ids) in
        cases!(["1", "2"], results, [false, true], [true, false])
    {
        let of_run = |run: u8, message: Message| match have_ids {
            true => of_run(run, message),
            false => Arc::new(message),
        };
        let mut whole = Replay::new(DanglingCalls::Interrupted);
        whole.push(&of_run(1, calls(["1"])));
        whole.push(&of_run(2, Message::user("so?")));
        whole.push(&of_run(2, calls([second_id])));
        let mut input: Vec<_> =
            follows.then(|| Arc::new(Message::user("and?"))).into_iter().collect();
        input.push(Arc::new(Message::tool_results(results.clone())));
        let mut closed = whole.clone();
        closed.retract_answered_by(&input);
        let mut open = closed.split_open_round();
        for message in &input {
            whole.push(message);
            open.push(message);
        }
        let mut joined = closed.view();
        joined.append(&open.view());
        let about = format!("{second_id} {results:?} follows {follows} have ids {have_ids}");
        assert_eq!(joined, whole.view(), "{about}");
    }
}
