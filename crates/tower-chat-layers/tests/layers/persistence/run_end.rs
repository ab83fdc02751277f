//! Tests requests that are sent again, for every mode of the first and the second attempt. A
//! complete run returns its stored answer. An interrupted run continues after its stored messages.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use futures_util::StreamExt;
use tower::{Layer, ServiceExt};
use tower_chat::{
    Answer, ChatRequest, ChatResponse, ChatUpdate, HistoryStore, Message, PersistenceMode, Role,
    ToolCall, ToolResult, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    recovery::{RunEnd, close},
    replay::DanglingCalls,
    run::RunHandle,
    store::{InvocationQuery, ToolCallQueries},
    tool::{Retention, ToolOutput, pending_results, persist_with},
    tool_fn,
    validate::validate_request,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use crate::common::*;

const JOURNALED: PersistenceMode = PersistenceMode::Journaled;
const ALL_MODES: [PersistenceMode; 3] = [PerRun, PerServiceCall, JOURNALED];
const WHOLE_RUN: [&str; 4] =
    ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];

/// Returns every combination of the modes of two attempts, whole and streamed.
fn pairs() -> impl Iterator<Item = (PersistenceMode, PersistenceMode, bool)> + Clone {
    let modes = ALL_MODES.into_iter().flat_map(|first| ALL_MODES.map(|second| (first, second)));
    modes.flat_map(|(first, second)| BOTH_WAYS.map(|streamed| (first, second, streamed)))
}

fn looking() -> Step {
    Step::respond(|request| {
        validate_request(request).unwrap();
        match request.messages().iter().any(|message| message.role == Role::Tool) {
            true => Step::text("there"),
            false => calls([("look", "c1")]),
        }
    })
}

fn looking_with(first: usize, step: Step) -> ScriptedModel {
    let before = (0..first).map(|_| looking());
    ScriptedModel::new(before.chain([step]).chain((0..20).map(|_| looking())))
}

async fn in_mode(
    model: &ScriptedModel,
    store: &Store,
    mode: PersistenceMode,
    tool_log: &ToolLog,
    request: &ChatRequest,
) -> Answer {
    let client = stack(model.clone(), store, mode, policy(), tools(tool_log));
    send(&client, request.clone()).await.unwrap()
}

#[tokio::test]
async fn a_run_whose_service_failed_continues_in_every_mode() {
    for ((first, second, streamed), is_restarted) in cases!(pairs(), [false, true]) {
        let about = format!("{first:?}, then {second:?}, streamed: {streamed}");
        let (mut store, tool_log) = (store(), ToolLog::default());
        let model = looking_with(1, Step::error("503"));
        let client = stack(model.clone(), &store, first, policy(), tools(&tool_log));
        let request = ask("where?", streamed);
        send(&client, request.clone()).await.unwrap_err();
        drop(client);
        store.inner().flush().await.unwrap();
        if is_restarted {
            store = store.in_another_process();
        }
        let answer = in_mode(&model, &store, second, &tool_log, &request).await;
        assert_eq!(shorts(&answer.messages), WHOLE_RUN[1..], "{about}");
        assert_eq!(stored(&store).await, WHOLE_RUN, "{about}");
        let times = if first == PerRun { 2 } else { 1 };
        assert_eq!(tool_log.names().len(), times, "{about}");
        let asked = model.requests().len();
        for third in ALL_MODES {
            let again = in_mode(&model, &store, third, &tool_log, &request).await;
            assert_eq!(again.messages, answer.messages, "{about}, then {third:?}");
        }
        assert_eq!((model.requests().len(), tool_log.names().len()), (asked, times), "{about}");
    }
}

#[tokio::test]
async fn a_dangling_call_is_no_answer_in_any_mode() {
    for ((second, streamed), is_committed) in
        cases!(ALL_MODES.into_iter().flat_map(|m| BOTH_WAYS.map(|s| (m, s))), [false, true])
    {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let model = looking_with(0, calls([("wait", "c1")]));
        // If `is_committed` is set, the first run is journaled and is committed without being
        // resumed. The commit stores an error result for the interrupted call.
        let first = if is_committed { JOURNALED } else { PerServiceCall };
        let client =
            stack(model.clone(), &store, first, policy(), tools_with_gate(&tool_log, &gate));
        let request = ask("where?", streamed);
        tokio::select! {
            biased;
            answer = send(&client, request.clone()) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        drop(client);
        store.inner().flush().await.unwrap();
        assert_eq!(close(&store, &key(), RunEnd::Commit).await.unwrap(), is_committed);
        let answer = in_mode(&model, &store, second, &tool_log, &request).await;
        assert_eq!(answer.text(), "there");
        let interrupted = format!("tool c1!{INTERRUPTED}");
        assert_eq!(sent_texts(&model, 1), ["user where?", "assistant wait#c1", &interrupted]);
        let mut all = vec!["user where?", "assistant wait#c1", "assistant there"];
        if is_committed {
            all.insert(2, &interrupted);
        }
        assert_eq!(stored(&store).await, all);
        assert_eq!(shorts(&answer.messages), all[1..]);
        let again = in_mode(&model, &store, second, &tool_log, &request).await;
        assert_eq!(again.messages, answer.messages);
        assert_eq!(model.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_text_that_was_cut_off_is_no_answer_in_any_mode() {
    for (second, first) in cases!(ALL_MODES, [PerServiceCall, JOURNALED]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let cut_off = Step::updates([ChatUpdate::TextDelta("the".into())]).hangs_after(1);
        let model = ScriptedModel::new([cut_off, Step::text("there")]);
        let keeping = policy().with_partial_text(true);
        let client = stack(model.clone(), &store, first, keeping, tools(&tool_log));
        let request = ask("where?", true);
        let mut response = head(&client, request.clone()).await.unwrap();
        response.next().await.unwrap().unwrap();
        drop((response, client));
        store.inner().flush().await.unwrap();
        close(&store, &key(), RunEnd::Commit).await.unwrap();
        assert_eq!(stored(&store).await, ["user where?", "assistant the"]);
        let answer = in_mode(&model, &store, second, &tool_log, &request).await;
        assert_eq!(shorts(&answer.messages), ["assistant there"]);
        assert_eq!(sent_texts(&model, 1), ["user where?"]);
        let again = in_mode(&model, &store, second, &tool_log, &request).await;
        assert_eq!(again.messages, answer.messages);
        assert_eq!(model.requests().len(), 2);
    }
}

/// How a run ends intentionally.
#[derive(Debug, Clone, Copy)]
enum End {
    Tool,
    SecondTool,
    Returned,
    ReturnedWithText,
    Approval,
    RoundLimit,
}

const ENDS: [End; 6] = [
    End::Tool,
    End::SecondTool,
    End::Returned,
    End::ReturnedWithText,
    End::Approval,
    End::RoundLimit,
];

impl End {
    fn asking(self) -> Step {
        match self {
            Self::Tool => calls([("stop", "c1")]),
            Self::SecondTool => calls([("look", "c1"), ("stop", "c2"), ("look", "c3")]),
            Self::Returned => calls([("ask", "c1")]),
            Self::ReturnedWithText => {
                let mut message = call_message([("ask", "c1"), ("look", "c2")]);
                message.parts.insert(0, tower_chat::Part::text("one question"));
                Step::message(message)
            }
            Self::Approval => calls([("pay", "c1")]),
            Self::RoundLimit => calls([("look", "c2")]),
        }
    }

    fn model(self) -> ScriptedModel {
        let asking = match self {
            Self::RoundLimit => vec![calls([("look", "c1")]), self.asking()],
            _ => vec![self.asking()],
        };
        ScriptedModel::new(asking)
    }

    fn stack(
        self,
        model: &ScriptedModel,
        store: &Store,
        mode: PersistenceMode,
        tool_log: &ToolLog,
    ) -> Client {
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let above = PerRunPersistence::new(store.clone()).mode(mode).policy(policy());
        let tool_loop = ToolLoopLayer::new(tools(tool_log)).max_rounds(1).unwrap();
        boxed(above.layer(tool_loop.layer(below)))
    }
}

#[tokio::test]
async fn a_run_that_ended_on_purpose_gives_its_answer_in_every_mode() {
    for ((first, second, streamed), end) in cases!(pairs(), ENDS) {
        let about = format!("{end:?}, {first:?}, then {second:?}, streamed: {streamed}");
        let (store, tool_log) = (store(), ToolLog::default());
        let model = end.model();
        let request = ask("where?", streamed);
        let answer =
            send(&end.stack(&model, &store, first, &tool_log), request.clone()).await.unwrap();
        let before = (stored(&store).await, tool_log.names(), model.requests().len());
        let rows = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap();
        for store in [store.clone(), store.in_another_process()] {
            let client = end.stack(&model, &store, second, &tool_log);
            let again = send(&client, request.clone()).await.expect(&about);
            assert_eq!(shorts(&again.messages), shorts(&answer.messages), "{about}");
            // The times of the messages are not compared, because the time of a result is lost if
            // the result is stored only with its call.
            let content = |answer: &Answer| {
                let messages = answer.messages.iter();
                let of = |message: &Arc<Message>| {
                    (message.id, message.parts.clone(), message.metadata.clone())
                };
                messages.map(of).collect::<Vec<_>>()
            };
            assert_eq!(content(&again), content(&answer), "{about}");
            assert_eq!(again.finish.saved, answer.finish.saved, "{about}");
        }
        let after = (stored(&store).await, tool_log.names(), model.requests().len());
        assert_eq!(after, before, "{about}");
        let now = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap();
        assert_eq!(now.found, rows.found, "{about}");
    }
}

#[tokio::test]
async fn calls_of_a_run_that_ended_on_purpose_are_not_said_to_be_interrupted() {
    for ((mode, streamed), end) in
        cases!(ALL_MODES.into_iter().flat_map(|m| BOTH_WAYS.map(|s| (m, s))), ENDS)
    {
        let (store, tool_log) = (store(), ToolLog::default());
        let request = ask("where?", streamed);
        send(&end.stack(&end.model(), &store, mode, &tool_log), request).await.unwrap();
        let model = ScriptedModel::new([Step::text("well")]);
        send(&end.stack(&model, &store, mode, &tool_log), ask("so?", streamed)).await.unwrap();
        let shown = sent_texts(&model, 0);
        assert!(!shown.concat().contains("interrupted"), "{end:?}, {mode:?}: {shown:?}");
        let is_of_last_round = |line: &String| line.contains("stop") || line.contains("ask#");
        assert!(!shown.iter().any(is_of_last_round), "{end:?}, {mode:?}: {shown:?}");
    }
}

#[tokio::test]
async fn a_tool_that_ended_the_run_and_is_kept_nowhere_does_not_run_again() {
    for (first, second, streamed) in pairs() {
        let about = format!("{first:?}, then {second:?}, streamed: {streamed}");
        let (store, tool_log) = (store(), ToolLog::default());
        let hidden = || {
            let tool_log = tool_log.clone();
            let stop = tool_fn(definition("stop"), move |_| {
                tool_log.note("stop");
                async { Ok(ToolOutput::from("stopped").terminate()) }
            });
            Tools::new().with(persist_with(stop, |_| Ok(Retention::Forget)))
        };
        let asking = || {
            let mut message = Message::tool_calls([ToolCall::new("c1", "stop", "{}")]);
            message.parts.insert(0, tower_chat::Part::text("I stop"));
            Step::message(message)
        };
        let model = ScriptedModel::new([asking()]);
        let request = ask("where?", streamed);
        let client = stack(model.clone(), &store, first, policy(), hidden());
        send(&client, request.clone()).await.unwrap();
        let client = stack(model.clone(), &store, second, policy(), hidden());
        let again = send(&client, request).await.expect(&about);
        assert_eq!(shorts(&again.messages), ["assistant I stop"], "{about}");
        assert_eq!((tool_log.names().len(), model.requests().len()), (1, 1), "{about}");
    }
}

#[tokio::test]
async fn inserted_results_and_omitted_calls_are_logged_once_without_their_contents() {
    let logged = logged();
    let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
    let model = ScriptedModel::new([calls([("wait", "c1")]), calls([("ask", "c2")])]);
    let client =
        stack(model.clone(), &store, PerServiceCall, policy(), tools_with_gate(&tool_log, &gate));
    tokio::select! {
        biased;
        answer = send(&client, ask("secret words", false)) => panic!("{answer:?}"),
        () = gate.reached(1) => {}
    }
    send(&client, ask("go on", false)).await.unwrap();
    assert_eq!((logged.lines("wait (c1)"), logged.lines("ask (c2)")), (1, 0));
    let answer = Message::tool_results([ToolResult::new("c2", "blue")]);
    let client = agent(&ScriptedModel::new([looking(), looking()]), &store, PerServiceCall);
    send(&client, request_with([answer], false)).await.unwrap();
    assert_eq!(
        (logged.lines("wait (c1)"), logged.lines("ask (c2)")),
        (1, 0),
        "the call was answered"
    );
    assert_eq!(logged.lines("conversation=alice/support"), 1);
    assert_eq!((logged.lines("secret"), logged.lines("blue")), (0, 0));
}

#[tokio::test]
async fn omitted_calls_are_logged_unless_the_input_answers_them() {
    every_case(async |case| {
        let (store, gate) = (case.store().await, Gate::closed());
        let model = ScriptedModel::new([calls([("wait", "c1")])]);
        let tools_with_gate = tools_with_gate(&ToolLog::default(), &gate);
        let client = stack(model, &store, PerServiceCall, policy(), tools_with_gate);
        tokio::select! {
            biased;
            answer = send(&client, case.ask("where?")) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        let logged = logged();
        let dropping = policy().with_dangling_calls(DanglingCalls::Drop);
        let model = ScriptedModel::new([Step::text("well"), Step::text("good")]);
        let client = case.stack(model, &store, dropping, tools(&ToolLog::default()));
        send(&client, case.ask("so?")).await.unwrap();
        assert_eq!(logged.lines_with(&["wait (c1)", "alice/support"]), 1);
        let late = Message::tool_results([ToolResult::new("c1", "waited after all")]);
        send(&client, case.request_with([late])).await.unwrap();
        assert_eq!(logged.lines("alice/support"), 1, "no call is dangling");
    })
    .await;
}

#[tokio::test]
async fn a_late_result_replaces_the_result_that_reports_the_interruption() {
    for (mode, streamed) in ALL_MODES.into_iter().flat_map(|m| BOTH_WAYS.map(|s| (m, s))) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let model = ScriptedModel::new([calls([("look", "c1"), ("wait", "c2")]), Step::text("hm")]);
        let client = stack(
            model.clone(),
            &store,
            PerServiceCall,
            policy(),
            tools_with_gate(&tool_log, &gate),
        );
        tokio::select! {
            biased;
            answer = send(&client, ask("where?", streamed)) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        send(&client, ask("well?", streamed)).await.unwrap();
        let results = format!("tool c1=looked c1 c2!{INTERRUPTED}");
        let start = ["user where?", "assistant look#c1 wait#c2", &results, "user well?"];
        assert_eq!(sent_texts(&model, 1), start);

        let model = ScriptedModel::new([Step::text("good"), Step::text("yes")]);
        let client = agent(&model, &store, mode);
        let late = Message::tool_results([ToolResult::new("c2", "waited after all")]);
        send(&client, request_with([late], streamed)).await.unwrap();
        let shown = [
            "user where?",
            "assistant look#c1",
            "tool c1=looked c1",
            "user well?",
            "assistant hm",
            "assistant wait#c2",
            "tool c2=waited after all",
        ];
        assert_eq!(sent_texts(&model, 0), shown, "{mode:?}");
        validate_request(&model.requests()[0]).unwrap();
        send(&client, ask("sure?", streamed)).await.unwrap();
        assert_eq!(sent_texts(&model, 1)[..7], shown, "{mode:?}");
        let calls = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
        let result = calls[1].1.result.as_ref().map(ToolResult::text);
        assert_eq!(result.as_deref(), Some("waited after all"), "{mode:?}");
    }
}

#[tokio::test]
async fn each_policy_shows_interrupted_and_ended_runs_as_it_says() {
    let interrupted = format!("tool c1!{INTERRUPTED}");
    let died = ["user where?", "assistant wait#c1", &interrupted, "user so?"];
    for ((choice, of_died, of_ended), mode) in cases!(
        [
            (DanglingCalls::Interrupted, &died[..], &["user where?", "user so?"][..]),
            (DanglingCalls::Drop, &["user where?", "user so?"], &["user where?", "user so?"]),
            (
                DanglingCalls::FromRecord,
                &died,
                &["user where?", "assistant stop#c1", "tool c1=stopped c1", "user so?"],
            ),
        ],
        ALL_MODES
    ) {
        let (tool_log, gate) = (ToolLog::default(), Gate::closed());
        let choosing = || policy().with_dangling_calls(choice);
        let killed = store();
        let model = ScriptedModel::new([calls([("wait", "c1")])]);
        let tools_with_gate = tools_with_gate(&tool_log, &gate);
        let client = stack(model, &killed, PerServiceCall, choosing(), tools_with_gate);
        tokio::select! {
            biased;
            answer = send(&client, ask("where?", false)) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        let ended = store();
        let model = ScriptedModel::new([calls([("stop", "c1")])]);
        let client = stack(model, &ended, mode, choosing(), tools(&tool_log));
        send(&client, ask("where?", false)).await.unwrap();
        for (store, expected) in [(killed, of_died), (ended, of_ended)] {
            let model = ScriptedModel::new([Step::text("well"), Step::text("well")]);
            let client = stack(model.clone(), &store, mode, choosing(), tools(&tool_log));
            send(&client, ask("so?", false)).await.unwrap();
            assert_eq!(sent_texts(&model, 0), expected);
            send(&client, ask("and?", false)).await.unwrap();
            assert_eq!(sent_texts(&model, 1)[..expected.len()], *expected);
        }
    }
}

#[tokio::test]
async fn a_call_that_was_interrupted_is_shown_so_before_and_after_a_run_that_ended_on_purpose() {
    every_case(async |case| {
        for died_first in [true, false] {
            let (store, tool_log, gate) = (case.store().await, ToolLog::default(), Gate::closed());
            let tools_with_gate = tools_with_gate(&tool_log, &gate);
            let die = async || {
                let model = ScriptedModel::new([calls([("wait", "c1")])]);
                let tools = tools_with_gate.clone();
                let client = stack(model, &store, PerServiceCall, policy(), tools);
                tokio::select! {
                    biased;
                    answer = send(&client, case.ask("where?")) => panic!("{answer:?}"),
                    () = gate.reached(1) => {}
                }
            };
            if died_first {
                die().await;
            }
            let model = ScriptedModel::new([calls([("ask", "c2")])]);
            let client = case.stack(model, &store, policy(), tools(&tool_log));
            send(&client, case.ask("a question for you?")).await.unwrap();
            if !died_first {
                die().await;
            }
            let model = ScriptedModel::new([Step::text("well")]);
            let client = case.stack(model.clone(), &store, policy(), tools(&tool_log));
            send(&client, case.ask("so?")).await.unwrap();
            let interrupted = format!("tool c1!{INTERRUPTED}");
            let died = ["user where?", "assistant wait#c1", &interrupted];
            let ended = ["user a question for you?"];
            let shown = match died_first {
                true => [&died[..], &ended, &["user so?"]].concat(),
                false => [&ended[..], &died, &["user so?"]].concat(),
            };
            assert_eq!(sent_texts(&model, 0), shown, "died first: {died_first}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_failed_with_recorded_results_is_shown_them_and_continues_with_them() {
    for (mode, streamed) in ALL_MODES.into_iter().flat_map(|m| BOTH_WAYS.map(|s| (m, s))) {
        let refused_with_results = async || {
            let (store, tool_log) = (store(), ToolLog::default());
            let model = ScriptedModel::new([calls([("look", "c1")]), kept("there", "s1")]);
            let client = stack(model, &store, PerServiceCall, policy(), tools(&tool_log));
            let request = ask("where?", streamed);
            send(&client, request.clone()).await.unwrap_err();
            assert_eq!(
                stored(&store).await,
                WHOLE_RUN[..2],
                "only the record contains the results"
            );
            (store, tool_log, request)
        };
        let (store, tool_log, request) = refused_with_results().await;
        let model = ScriptedModel::new([Step::text("there")]);
        let answer = in_mode(&model, &store, mode, &tool_log, &request).await;
        assert_eq!(answer.text(), "there", "{mode:?}");
        assert_eq!(sent_texts(&model, 0), WHOLE_RUN[..3], "{mode:?}");
        assert_eq!(tool_log.names(), ["look"], "{mode:?}");

        let (store, tool_log, _) = refused_with_results().await;
        let model = ScriptedModel::new([Step::text("well"), Step::text("so")]);
        in_mode(&model, &store, mode, &tool_log, &ask("well?", streamed)).await;
        let shown = [WHOLE_RUN[0], WHOLE_RUN[1], WHOLE_RUN[2], "user well?"];
        assert_eq!(sent_texts(&model, 0), shown, "{mode:?}");
        let results = pending_results(&store, &key()).await.unwrap().unwrap();
        in_mode(&model, &store, mode, &tool_log, &request_with([results], streamed)).await;
        let later = ["user where?", "user well?", "assistant well", WHOLE_RUN[1], WHOLE_RUN[2]];
        assert_eq!(
            sent_texts(&model, 1),
            later,
            "{mode:?}: the result is sent once, with its call"
        );
        assert_eq!(pending_results(&store, &key()).await.unwrap(), None, "{mode:?}");
    }
}

/// The next step after an answer is decided when the answer is stored. This message is queued
/// later, and therefore remains for the next run.
#[tokio::test]
async fn a_message_queued_after_the_last_answer_was_stored_is_left_for_the_next_run() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::text("the last")]);
        let handle = RunHandle::new();
        let queued = handle.clone();
        let is_queued = Arc::new(AtomicBool::new(false));
        let persister = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let queueing = persister.map_response(move |response: ChatResponse| {
            let (queued, is_queued) = (queued.clone(), is_queued.clone());
            ChatResponse::forward(response.inspect(move |update| {
                let is_end = matches!(update, Ok(ChatUpdate::Finish(_)));
                if is_end && !is_queued.swap(true, Ordering::Relaxed) {
                    queued.queue(Message::user("too late"));
                }
            }))
        });
        let agent = ToolLoopLayer::new(Tools::new()).layer(queueing);
        let client = boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(agent));
        let request = case.ask("a question").with_extension(handle.clone());
        let answer = send(&client, request).await.unwrap();
        assert_eq!(shorts(&answer.messages), ["assistant the last"]);
        assert_eq!(stored(&store).await, ["user a question", "assistant the last"]);
        assert!(handle.has_queued());
        assert_eq!(model.requests().len(), 1);
    })
    .await;
}
