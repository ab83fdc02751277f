//! Tests that a run can be resumed from every point at which it stopped. No answered service call
//! is made again, no finished tool runs again, and the history is that of an uninterrupted run.

use std::{collections::HashSet, time::Duration};

use futures_util::StreamExt;
use tower::{Layer, ServiceExt, timeout::TimeoutLayer};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, ConversationKey, Finish, HistoryStore,
    MemoryStore, Message, PersistenceMode,
    error::ToolLoopError,
    layer::ToolLoopLayer,
    recovery::{
        CallState, JournalPolicy, OnOpenRun, Recovered, RecoveryPolicy, UnknownAnswer, UnknownCall,
        UnknownCalls, open_run, recover, recover_all,
    },
    store::LeaseEnd,
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

/// How a run is resumed.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Way {
    SameRequest,
    Report,
    NewMessage,
    /// The same request, sent by another process.
    Elsewhere,
}
use Way::*;

const ALL_WAYS: [Way; 4] = [SameRequest, Report, NewMessage, Elsewhere];

/// Resumes the run, and asserts that its messages and calls are those of an uninterrupted run.
async fn take_up(
    way: Way,
    setup: &Setup,
    model: &ScriptedModel,
    booking_tools: &BookingTools,
    request: &ChatRequest,
    case_name: &str,
) {
    let case_name = format!("{case_name} {way:?} streamed {}", request.options.stream);
    let setup = if way == Elsewhere { setup.elsewhere() } else { setup.clone() };
    let store = &setup.store;
    let answered = staged(store).await.iter().filter(|it| it.starts_with("assistant")).count();
    let done = calls_known(store).await.iter().filter(|it| it.ends_with("Done")).count();
    let left = open(store).await;
    let is_open = left.is_some();
    if left.as_ref().is_some_and(|left| left.open.lease.until == LeaseEnd::Abandoned)
        && way == NewMessage
    {
        return committed_first(&setup, model, booking_tools, request, &case_name).await;
    }
    let (tool_log, asked) = (booking_tools.ran().len(), model.requests().len());
    let client = setup.stack(model, booking_tools.reopened().tools());
    let request = match way {
        SameRequest | Elsewhere => request.clone(),
        Report if !is_open => request.clone(),
        Report => {
            let report = open_run(store, &key()).await.unwrap().unwrap();
            let resume = report.resume();
            if request.options.stream { resume.streamed() } else { resume }
        }
        NewMessage => ask("and then?", request.options.stream),
    };
    let answer =
        send(&client, request).await.unwrap_or_else(|error| panic!("{case_name}: {error:?}"));
    let mut expected: Vec<_> = WHOLE_RUN.map(str::to_owned).into();
    if way == NewMessage {
        assert_eq!(answer.text(), "hello", "{case_name}");
        if is_open || !stored(store).await.is_empty() {
            expected.extend(["user and then?".into(), "assistant hello".into()]);
        }
        let history = stored(store).await;
        if history.len() > 2 {
            assert_eq!(history, expected, "{case_name}");
        }
    } else {
        assert_eq!(stored(store).await, expected, "{case_name}");
        assert_eq!(
            shorts(&answer.messages),
            expected[1..],
            "the answer contains the whole run: {case_name}"
        );
        assert_eq!(answer.finish.saved.unwrap().messages, expected.len(), "{case_name}");
    }
    assert!(open(store).await.is_none(), "{case_name}");
    // `answered` and `done` were read from the open run, and are known only if a run was open.
    if is_open {
        let own = model.requests().len() - asked - usize::from(way == NewMessage);
        assert_eq!(own, SERVICE_CALLS - answered, "service calls: {case_name}");
        assert_eq!(
            booking_tools.ran().len() - tool_log,
            TOOL_CALLS - done,
            "tool calls: {case_name}"
        );
        let seen = all_seen(model);
        assert_eq!(seen[asked..asked + own], undisturbed()[answered..], "{case_name}");
        let new: Vec<_> = model.requests()[asked..asked + own]
            .iter()
            .map(|request| request.new_messages().len())
            .collect();
        assert_eq!(new, [1, 1, 1][answered..], "new messages of each service call: {case_name}");
    }
    let keys = booking_tools.keys();
    let distinct: HashSet<_> = keys.values().flatten().collect();
    assert_eq!(
        distinct.len(),
        keys.len(),
        "each call has one idempotency key: {case_name} {keys:?}"
    );
}

/// Sends a new message after the caller of an open run has disconnected. Asserts that the open run
/// is committed with all its staged messages, and without further service calls.
async fn committed_first(
    setup: &Setup,
    model: &ScriptedModel,
    booking_tools: &BookingTools,
    request: &ChatRequest,
    case_name: &str,
) {
    let store = &setup.store;
    let (before, tool_log, asked) =
        (staged(store).await, booking_tools.ran(), model.requests().len());
    let known = calls_known(store).await;
    let client = setup.stack(model, booking_tools.reopened().tools());
    let answer = send(&client, ask("and then?", request.options.stream)).await;
    let answer = answer.unwrap_or_else(|error| panic!("{case_name}: {error:?}"));
    assert_eq!(answer.text(), "hello", "{case_name}");
    assert_eq!(answer.finish.recovered, None, "{case_name}");
    assert_eq!(model.requests().len() - asked, 1, "one service call: {case_name}");
    assert_eq!(booking_tools.ran(), tool_log, "no tool runs: {case_name}");
    let history = stored(store).await;
    assert_eq!(history[..before.len()], before, "{case_name}");
    assert_eq!(history[history.len() - 2..], ["user and then?", "assistant hello"], "{case_name}");
    let is_round_open = before.last().is_some_and(|last| last.contains('#'));
    assert_eq!(history.len(), before.len() + usize::from(is_round_open) + 2, "{case_name}");
    if is_round_open {
        let calls = known.iter().rev().take(2 - usize::from(before.len() > 2));
        for call in calls {
            let (id, state) = call.split_once(' ').unwrap();
            let says = match state {
                "Done" => format!("{id}="),
                "Unknown" => format!("{id}!The call was interrupted."),
                _ => format!("{id}!The call was not run"),
            };
            assert!(history[before.len()].contains(&says), "{case_name}: {says} {history:?}");
        }
    }
    assert!(open(store).await.is_none(), "{case_name}");
}

#[tokio::test]
async fn a_run_resumes_after_a_service_call_that_failed() {
    for (streamed, concurrent, failing) in cases!(BOTH_WAYS, [false, true], 0..SERVICE_CALLS) {
        let cut = || Step::respond(|request| Step::message(reply(request)));
        let steps: [fn(Step) -> Step; 3] = [
            |_| Step::error("overloaded"),
            |answer| answer.cut_off_after(1),
            |answer| answer.fails_after(1, "reset"),
        ];
        for ((kind, step), way) in cases!(steps.iter().enumerate(), ALL_WAYS) {
            let (store, booking_tools) = (store(), BookingTools::default());
            let setup = Setup::new(&store).concurrent(concurrent);
            let model = booking_model_with(failing, [step(cut())]);
            let request = ask("trip", streamed);
            let client = setup.stack(&model, booking_tools.tools());
            send(&client, request.clone()).await.unwrap_err();
            let held = open(&store).await.unwrap().open.lease.until;
            assert_eq!(held, LeaseEnd::NotHeld, "a failed run has released its lease");
            assert_eq!(
                staged(&store).await,
                WHOLE_RUN[..SHOWN[failing] - usize::from(failing > 0)]
            );
            let case_name = format!("call {failing}, kind {kind}, concurrent {concurrent}");
            take_up(way, &setup, &model, &booking_tools, &request, &case_name).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_resumes_after_a_service_call_that_was_dropped_aborted_or_timed_out() {
    for (streamed, hanging, cause) in
        cases!(BOTH_WAYS, 0..SERVICE_CALLS, ["dropped", "aborted", "timeout"])
    {
        if cause == "timeout" && streamed && hanging > 0 {
            continue;
        }
        for way in ALL_WAYS {
            let (store, booking_tools) = (store(), BookingTools::default());
            let setup = Setup::new(&store);
            let model = booking_model_with(hanging, [Step::hang()]);
            let client = setup.stack(&model, booking_tools.tools());
            let request = ask("trip", streamed);
            match cause {
                "dropped" => {
                    drop_when(&client, request.clone(), model.called(hanging + 1)).await;
                }
                "aborted" => {
                    let request = request.clone();
                    let run = tokio::spawn(async move { send(&client, request).await });
                    model.called(hanging + 1).await;
                    run.abort();
                    assert!(run.await.unwrap_err().is_cancelled());
                }
                _ => {
                    let layer = TimeoutLayer::new(Duration::from_secs(5));
                    let client = boxed(layer.layer(client));
                    send(&client, request.clone()).await.unwrap_err();
                }
            }
            let case_name = format!("call {hanging} {cause}");
            assert_eq!(
                open(&store).await.unwrap().open.lease.until,
                LeaseEnd::Abandoned,
                "{case_name}"
            );
            take_up(way, &setup, &model, &booking_tools, &request, &case_name).await;
        }
    }
}

#[tokio::test]
async fn a_run_resumes_after_a_stream_that_was_dropped_at_any_update() {
    for (concurrent, way) in cases!([false, true], ALL_WAYS) {
        for taken in 0.. {
            let (store, booking_tools) = (store(), BookingTools::default());
            let setup = Setup::new(&store).concurrent(concurrent);
            let model = booking_model();
            let client = setup.stack(&model, booking_tools.tools());
            let request = ask("trip", true);
            let mut response = head(&client, request.clone()).await.unwrap();
            let mut is_whole = false;
            for _ in 0..taken {
                let Some(update) = response.next().await else {
                    is_whole = true;
                    break;
                };
                update.unwrap();
            }
            drop(response);
            let case_name = format!("{taken} updates, concurrent {concurrent}");
            take_up(way, &setup, &model, &booking_tools, &request, &case_name).await;
            for call in ["c1", "c2", "c3"] {
                let is_over = way == NewMessage || booking_tools.times(call) == 1;
                assert!(is_over && booking_tools.times(call) < 2, "{case_name} {call}");
            }
            if is_whole {
                break;
            }
        }
    }
}

#[tokio::test]
async fn a_run_resumes_after_a_write_that_failed_before_or_after_its_effect() {
    for (streamed, concurrent, way, failing, after_storing) in
        cases!(BOTH_WAYS, [false, true], ALL_WAYS, 0..1 + SERVICE_CALLS + TOOL_CALLS, [false, true])
    {
        let (store, booking_tools) = (store(), BookingTools::safe());
        let clock = TestClock::default();
        let setup = Setup::new(&store).concurrent(concurrent).clock(&clock);
        let model = booking_model();
        let client = setup.stack(&model, booking_tools.tools());
        let request = ask("trip", streamed);
        store.let_appends_through(failing);
        match after_storing {
            true => store.fail_next_append_after_storing(disk_full()),
            false => store.fail_next_append(disk_full()),
        }
        let error = send(&client, request.clone()).await.unwrap_err();
        let case_name = format!(
            "write {failing}, after its effect: {after_storing}, \
                             concurrent {concurrent}"
        );
        let error = error.downcast::<tower_chat::PersistenceError>();
        assert!(error.is_ok(), "{case_name}: {error:?}");
        // The failed attempt could not write, and has not released its lease. The next attempt can
        // begin only when this lease has expired.
        clock.advance(16);
        take_up(way, &setup, &model, &booking_tools, &request, &case_name).await;
    }
}

#[tokio::test]
async fn idempotency_keys_are_the_same_in_every_attempt() {
    let (store, gate) = (store(), Gate::closed());
    let booking_tools = BookingTools::safe().with_gate_after("c2", &gate);
    let setup = Setup::new(&store);
    let model = booking_model();
    let request = ask("trip", false);
    for attempt in 1..=3 {
        let client = setup.stack(&model, booking_tools.tools());
        drop_when(&client, request.clone(), gate.reached(attempt)).await;
    }
    let client = setup.stack(&model, booking_tools.reopened().tools());
    send(&client, request).await.unwrap();
    let keys = booking_tools.keys();
    assert_eq!(keys["c1"].len(), 1);
    assert_eq!(keys["c2"].len(), 4);
    assert!(keys["c2"].iter().all(|key| *key == keys["c2"][0]), "{keys:?}");
    assert_ne!(keys["c1"][0], keys["c2"][0]);
    assert_eq!(stored(&store).await, WHOLE_RUN);
}

/// Interrupts a run when the call c1 is done and the tool of the call c2 is running.
pub(super) async fn interrupted_at_c2(
    setup: &Setup,
    model: &ScriptedModel,
    booking_tools: &BookingTools,
    streamed: bool,
) -> ChatRequest {
    let gate = Gate::closed();
    let request = ask("trip", streamed);
    let client = setup.stack(model, booking_tools.clone().with_gate_after("c2", &gate).tools());
    drop_when(&client, request.clone(), async {
        gate.reached(1).await;
        while booking_tools.times("c1") == 0 || calls_known(&setup.store).await[0] != "c1 Done" {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(calls_known(&setup.store).await, ["c1 Done", "c2 Unknown"]);
    request
}

#[tokio::test]
async fn a_tool_that_is_safe_to_retry_runs_again() {
    for (streamed, concurrent, way) in
        cases!(BOTH_WAYS, [false, true], [SameRequest, Report, Elsewhere])
    {
        let (store, booking_tools) = (store(), BookingTools::safe());
        let setup = Setup::new(&store).concurrent(concurrent);
        let model = booking_model();
        let request = interrupted_at_c2(&setup, &model, &booking_tools, streamed).await;
        take_up(way, &setup, &model, &booking_tools, &request, "c2 unknown").await;
        assert_eq!(
            (booking_tools.times("c1"), booking_tools.times("c2"), booking_tools.times("c3")),
            (1, 2, 1)
        );
    }
}

#[tokio::test]
async fn a_call_with_unknown_outcome_gets_an_error_result_by_default() {
    for (streamed, concurrent) in cases!(BOTH_WAYS, [false, true]) {
        let (store, booking_tools) = (store(), BookingTools::default());
        let setup = Setup::new(&store).concurrent(concurrent);
        let model = booking_model();
        let request = interrupted_at_c2(&setup, &model, &booking_tools, streamed).await;
        let client = setup.stack(&model, booking_tools.reopened().tools());
        send(&client, request).await.unwrap();
        let history = stored(&store).await;
        assert!(history[2].starts_with("tool c1=book c1 c2!"), "{history:?}");
        assert!(history[2].contains("may or may not"), "{history:?}");
        assert_eq!(history[3..], WHOLE_RUN[3..]);
        assert_eq!(booking_tools.ran(), ["c1", "c2", "c3"]);
    }
}

#[tokio::test]
async fn a_call_with_unknown_outcome_fails_the_run_under_the_policy_fail_and_it_stays_open() {
    for streamed in BOTH_WAYS {
        let (store, booking_tools) = (store(), BookingTools::default());
        let journal = JournalPolicy::default().with_unknown_calls(UnknownCalls::Fail);
        let setup = Setup::new(&store).policy(policy().with_journal(journal));
        let model = booking_model();
        let request = interrupted_at_c2(&setup, &model, &booking_tools, streamed).await;
        let client = setup.stack(&model, booking_tools.reopened().tools());
        for _ in 0..2 {
            let error = send(&client, request.clone()).await.unwrap_err();
            let error = error.downcast_ref::<ToolLoopError>().expect("the loop's error");
            assert!(error.to_string().starts_with("the calls seat (c2) of"), "{error}");
            let ToolLoopError::UnknownCalls { calls, .. } = error else { panic!("{error:?}") };
            assert_eq!((calls.len(), &*calls[0].call_id, &*calls[0].tool), (1, "c2", "seat"));
            assert!(calls[0].started_at.is_some());
            assert_eq!(calls[0].idempotency_key, booking_tools.keys()["c2"][0]);
            assert_eq!(calls_known(&store).await, ["c1 Done", "c2 Unknown"]);
        }
        let again = request.with_extension(UnknownCalls::ask(|_| UnknownAnswer::RunAgain));
        send(&client, again).await.unwrap();
        assert_eq!(stored(&store).await, WHOLE_RUN);
        assert_eq!(booking_tools.ran(), ["c1", "c2", "c2", "c3"]);
    }
}

#[tokio::test]
async fn the_recovery_policy_for_unknown_calls_replaces_the_policy_of_the_stack() {
    let (store, booking_tools) = (store(), BookingTools::default());
    let setup = Setup::new(&store);
    let model = booking_model();
    interrupted_at_c2(&setup, &model, &booking_tools, false).await;
    let mut client = setup.stack(&model, booking_tools.reopened().tools());
    let fail = RecoveryPolicy::resume().with_unknown_calls(UnknownCalls::Fail);
    let error = recover(&mut client, &store, &key(), fail).await.unwrap_err();
    let error = error.downcast_ref::<ToolLoopError>().expect("the loop's error");
    assert!(matches!(error, ToolLoopError::UnknownCalls { .. }), "{error:?}");
    let run_again = UnknownCalls::ask(|_| UnknownAnswer::RunAgain);
    let run_again = RecoveryPolicy::resume().with_unknown_calls(run_again);
    recover(&mut client, &store, &key(), run_again).await.unwrap();
    assert_eq!(stored(&store).await, WHOLE_RUN);
    assert_eq!(booking_tools.ran(), ["c1", "c2", "c2", "c3"]);
}

#[tokio::test]
async fn a_recovery_of_all_runs_covers_every_scope_and_reports_each_failure() {
    // More open runs in a scope than fit on one page of the list.
    let scopes = [("alice", 130), ("bob", 1)];
    let keys = scopes.into_iter().flat_map(|(scope, runs)| {
        (0..runs).map(move |run| ConversationKey::new(scope, format!("{run:03}")))
    });
    let keys: Vec<_> = keys.collect();
    let store = MemoryStore::new();
    let pipeline = |fails: fn(&ConversationKey) -> bool| {
        let model = tower::service_fn(move |request: ChatRequest| async move {
            let key = request.conversation().ok_or("no conversation")?.key.clone();
            match fails(&key) {
                true => Err(BoxError::from("overloaded")),
                false => Ok(ChatResponse::whole([Message::assistant(key.id())], Finish::stop())),
            }
        });
        let pipeline = ChatPipeline::builder(model).history(store.clone());
        pipeline.persistence(PersistenceMode::Journaled).build().unwrap()
    };
    for key in &keys {
        let request = ChatRequest::user("Which one?").in_conversation(key.clone());
        pipeline(|_| true).oneshot(request).await.unwrap_err();
    }
    let all = recover_all(pipeline(|key| key.id() == "007"), &store, RecoveryPolicy::resume());
    let mut outcomes: Vec<_> = all.await.unwrap().collect().await;
    outcomes.sort_by(|(a, _), (b, _)| (a.scope(), a.id()).cmp(&(b.scope(), b.id())));
    assert_eq!(outcomes.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), keys);
    for (key, outcome) in &outcomes {
        match outcome {
            Ok(Recovered::Resumed(answer)) => assert_eq!(answer.text(), key.id()),
            Err(_) => assert_eq!(key.id(), "007"),
            other => panic!("{key}: {other:?}"),
        }
        let is_open = store.head(key).await.unwrap().open_run.is_some();
        assert_eq!(is_open, key.id() == "007");
    }
}

#[tokio::test]
async fn a_recovery_of_all_runs_returns_each_outcome_while_other_runs_continue() {
    let store = MemoryStore::new();
    let pipeline = |model: ScriptedModel| {
        let pipeline = ChatPipeline::builder(model).history(store.clone());
        pipeline.persistence(PersistenceMode::Journaled).build().unwrap()
    };
    for id in ["first", "second"] {
        let request = ChatRequest::user("Which one?")
            .in_conversation(ConversationKey::new("alice", id.to_owned()));
        pipeline(ScriptedModel::new([])).oneshot(request).await.unwrap_err();
    }
    let model = ScriptedModel::new([Step::hang(), Step::text("this one")]);
    let mut outcomes =
        recover_all(pipeline(model), &store, RecoveryPolicy::resume()).await.unwrap();
    let (recovered, outcome) = outcomes.next().await.unwrap();
    assert!(matches!(outcome, Ok(Recovered::Resumed(_))), "{outcome:?}");
    let is_open = async |id: &str| {
        let key = ConversationKey::new("alice", id.to_owned());
        store.head(&key).await.unwrap().open_run.is_some()
    };
    let open = (is_open("first").await, is_open("second").await);
    assert_eq!(open, (recovered.id() == "second", recovered.id() == "first"));
}

fn in_process(store: &Store, keys: &[ConversationKey]) -> Vec<tokio::task::JoinHandle<()>> {
    let lease = JournalPolicy::default().with_lease(Duration::from_secs(2));
    let model = ScriptedModel::new(keys.iter().map(|_| Step::hang()));
    let agent = ChatPipeline::builder(model)
        .history(store.clone())
        .persistence(PersistenceMode::Journaled)
        .policy(policy().with_journal(lease))
        .build()
        .unwrap();
    let runs = keys.iter().cloned().map(|key| {
        let run = agent.clone().oneshot(ChatRequest::user("Which one?").in_conversation(key));
        tokio::spawn(async move { drop(run.await) })
    });
    runs.collect()
}

#[tokio::test]
async fn a_recovery_of_all_runs_recovers_those_of_a_dead_process_among_those_of_a_process_that_is_alive()
 {
    // More runs than are recovered at the same time.
    let alive: Vec<_> = (0..70).map(|run| ConversationKey::new("alice", run.to_string())).collect();
    let of_dead = ConversationKey::new("alice", "of a dead process");
    let store = store().shared_by_processes();
    let all_open = async |keys: &[ConversationKey]| {
        for key in keys {
            while store.inner().head(key).await.unwrap().open_run.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    };
    let (elsewhere, key) = (store.in_another_process(), of_dead.clone());
    // A process that dies writes nothing more. Its runtime is therefore forgotten and not dropped.
    let dead = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let _runs = in_process(&elsewhere, std::slice::from_ref(&key));
            while elsewhere.inner().head(&key).await.unwrap().open_run.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        });
        std::mem::forget(runtime);
    });
    dead.join().unwrap();
    let _runs = in_process(&store.in_another_process(), &alive);
    all_open(&alive).await;

    let pipeline = ChatPipeline::builder(ScriptedModel::new([Step::text("this one")]))
        .history(store.clone())
        .persistence(PersistenceMode::Journaled)
        .build()
        .unwrap();
    let outcomes = recover_all(pipeline, &store, RecoveryPolicy::resume()).await.unwrap();
    let outcomes: Vec<_> =
        tokio::time::timeout(Duration::from_secs(20), outcomes.collect()).await.unwrap();
    assert_eq!(outcomes.len(), alive.len() + 1);
    for (key, outcome) in outcomes {
        let is_as_expected = match key == of_dead {
            true => matches!(outcome, Ok(Recovered::Resumed(_))),
            false => matches!(outcome, Ok(Recovered::InProgress)),
        };
        assert!(is_as_expected, "{key}: {outcome:?}");
    }
}

#[tokio::test]
async fn the_callback_for_unknown_calls_decides_how_they_are_answered() {
    for answer in ["again", "unknown", "output", "fail"] {
        let (store, booking_tools) = (store(), BookingTools::default());
        let ask = UnknownCalls::ask(move |call: &UnknownCall| {
            assert_eq!(
                (&*call.call_id, &*call.tool, &*call.arguments),
                ("c2", "seat", &*labelled("c2"))
            );
            match answer {
                "again" => UnknownAnswer::RunAgain,
                "unknown" => UnknownAnswer::Unknown,
                "output" => UnknownAnswer::Output(Box::new(ToolOutput::from("12A"))),
                _ => UnknownAnswer::Fail,
            }
        });
        let setup = Setup::new(&store)
            .policy(policy().with_journal(JournalPolicy::default().with_unknown_calls(ask)));
        let model = booking_model();
        let request = interrupted_at_c2(&setup, &model, &booking_tools, false).await;
        let outcome = send(&setup.stack(&model, booking_tools.reopened().tools()), request).await;
        let history = stored(&store).await;
        match answer {
            "again" => assert_eq!(history, WHOLE_RUN),
            "unknown" => assert!(history[2].contains("may or may not"), "{history:?}"),
            "output" => assert_eq!(history[2], "tool c1=book c1 c2=12A"),
            _ => assert!(outcome.is_err() && history.is_empty()),
        }
        assert_eq!(booking_tools.times("c2"), if answer == "again" { 2 } else { 1 });
    }
}

#[tokio::test]
async fn a_failed_tool_is_not_run_again() {
    for concurrent in [false, true] {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).concurrent(concurrent);
        let model = ScriptedModel::new([calls([("fail", "c1"), ("wait", "c2")]), Step::text("so")]);
        let request = ask("trip", false);
        let client = setup.stack(&model, tools_with_gate(&tool_log, &gate));
        drop_when(&client, request.clone(), async {
            gate.reached(1).await;
            while calls_known(&store).await[0] != "c1 Failed" {
                tokio::task::yield_now().await;
            }
        })
        .await;
        let report = open_run(&store, &key()).await.unwrap().unwrap();
        assert_eq!(report.calls[0].state, CallState::Failed);
        // These tools succeed. The result shows whether the failed tool was executed again.
        let fixed = tower_chat::Tools::new()
            .with(tower_chat::tool_fn(definition("fail"), |_| async {
                Ok::<_, tower_chat::BoxError>(ToolOutput::from("worked"))
            }))
            .with(tower_chat::tool_fn(definition("wait"), |_| async {
                Ok::<_, tower_chat::BoxError>(ToolOutput::from("waited"))
            }));
        // The limit of failing rounds includes the stored failure of c1, but not the interrupted
        // call.
        let strict = setup.looped(&model, ToolLoopLayer::new(fixed.clone()).max_failing_rounds(0));
        let error = send(&strict, request.clone()).await.unwrap_err();
        let Some(ToolLoopError::ConsecutiveFailures { failures, .. }) = error.downcast_ref() else {
            panic!("{error:?}")
        };
        assert_eq!(failures.iter().map(|it| &*it.call_id).collect::<Vec<_>>(), ["c1"]);
        send(&setup.stack(&model, fixed), request).await.unwrap();
        let history = stored(&store).await;
        assert!(history[2].starts_with("tool c1!"), "{history:?}");
    }
}

/// Serial calls do not run after a call that ends the run. Concurrent calls all run.
#[tokio::test]
async fn a_resumed_run_skips_the_calls_after_one_that_ended_the_run_only_if_calls_are_serial() {
    for (streamed, concurrent) in cases!(BOTH_WAYS, [false, true]) {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let setup = Setup::new(&store).concurrent(true);
        let model = ScriptedModel::new([calls([("stop", "c1"), ("wait", "c2")])]);
        let request = ask("trip", streamed);
        let client = setup.stack(&model, tools_with_gate(&tool_log, &gate));
        drop_when(&client, request.clone(), async {
            gate.reached(1).await;
            while calls_known(&store).await[0] != "c1 Done" {
                tokio::task::yield_now().await;
            }
        })
        .await;
        assert_eq!(calls_known(&store).await, ["c1 Done", "c2 Unknown"]);
        let resumed = ToolLog::default();
        let waits = resumed.clone();
        let wait = tool_fn(definition("wait"), move |_| {
            waits.note("wait");
            async { Ok("waited") }
        });
        let client = setup.concurrent(concurrent).stack(&model, tools(&resumed).with(wait));
        let again = request.with_extension(UnknownCalls::ask(|_| UnknownAnswer::RunAgain));
        send(&client, again).await.unwrap();
        let expected: &[&str] = if concurrent { &["wait"] } else { &[] };
        assert_eq!(resumed.names(), expected);
        assert_eq!(model.requests().len(), 1, "the run has ended");
        assert!(open(&store).await.is_none());
    }
}

#[tokio::test]
async fn a_finished_call_is_reused_although_its_tool_is_no_longer_registered() {
    let (store, booking_tools) = (store(), BookingTools::default());
    let setup = Setup::new(&store);
    let model = ScriptedModel::new([calls([("book", "c1"), ("seat", "c2")]), Step::text("booked")]);
    let request = interrupted_at_c2(&setup, &model, &booking_tools, false).await;
    send(&setup.stack(&model, tower_chat::Tools::new()), request).await.unwrap();
    let history = stored(&store).await;
    assert!(history[2].starts_with("tool c1=book c1 c2!"), "{history:?}");
    assert!(history[2].contains("may or may not"), "{history:?}");
}

#[tokio::test]
async fn an_assistant_message_at_the_end_of_the_input_is_not_taken_for_the_answer() {
    use tower_chat::Message;
    for streamed in BOTH_WAYS {
        let store = store();
        let setup = Setup::new(&store);
        let model = ScriptedModel::new([Step::error("overloaded"), Step::text("go")]);
        let request =
            request_with([Message::user("on your marks"), Message::assistant("set")], streamed);
        let client = setup.stack(&model, BookingTools::default().tools());
        send(&client, request.clone()).await.unwrap_err();
        assert_eq!(send(&client, request).await.unwrap().text(), "go");
        let all = ["user on your marks", "assistant set", "assistant go"];
        assert_eq!(stored(&store).await, all);
    }
}

#[tokio::test]
async fn an_open_run_is_resumed_before_a_request_of_any_mode() {
    for (mode, streamed) in cases!(ALL_MODES, BOTH_WAYS) {
        let (store, booking_tools) = (store(), BookingTools::default());
        let setup = Setup::new(&store);
        let model = booking_model_with(1, [Step::error("overloaded")]);
        let request = ask("trip", streamed);
        send(&setup.stack(&model, booking_tools.tools()), request).await.unwrap_err();
        let client = setup.mode(mode).stack(&model, booking_tools.tools());
        send(&client, ask("hi", streamed)).await.unwrap();
        let all: Vec<_> = WHOLE_RUN.into_iter().chain(["user hi", "assistant hello"]).collect();
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, model.requests().len() - 1), all[..7]);
    }
}

#[tokio::test]
async fn a_background_request_resumes_the_open_run_in_the_foreground() {
    let (store, booking_tools) = (store(), BookingTools::default());
    let setup = Setup::new(&store);
    let model = booking_model_with(1, [Step::error("overloaded")]);
    send(&setup.stack(&model, booking_tools.tools()), ask("trip", false)).await.unwrap_err();
    let mut request = ask("hi", false);
    std::sync::Arc::make_mut(&mut request.options).background = true;
    send(&setup.stack(&model, booking_tools.tools()), request).await.unwrap();
    let all: Vec<_> = WHOLE_RUN.into_iter().chain(["user hi", "assistant hello"]).collect();
    assert_eq!(stored(&store).await, all);
    let background: Vec<_> =
        model.requests().iter().map(|request| request.options.background).collect();
    assert_eq!(background, [false, false, false, false, true]);
}

#[tokio::test]
async fn a_run_that_cannot_be_resumed_fails_the_new_one_and_stays_open() {
    let (store, booking_tools) = (store(), BookingTools::default());
    let setup = Setup::new(&store);
    let model = booking_model_with(1, [Step::error("overloaded"), Step::error("still overloaded")]);
    let client = setup.stack(&model, booking_tools.tools());
    send(&client, ask("trip", false)).await.unwrap_err();
    let error = send(&client, ask("hi", false)).await.unwrap_err();
    assert!(error.to_string().contains("still overloaded"), "{error:?}");
    assert_eq!(staged(&store).await, WHOLE_RUN[..2]);
    let client = setup
        .policy(policy().with_journal(JournalPolicy::default().on_open_run(OnOpenRun::Reject)))
        .stack(&model, booking_tools.tools());
    let error = refused(send(&client, ask("hi", false)).await);
    assert!(matches!(error, tower_chat::PersistenceError::OpenRun { .. }), "{error:?}");
}
