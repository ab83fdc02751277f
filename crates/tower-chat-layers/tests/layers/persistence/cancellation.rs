//! Tests which history each cause of an interruption leaves, as in the table of `docs/contract.md`.

use std::time::{Duration, SystemTime};

use futures_util::{FutureExt, StreamExt};
use tower::{Layer, timeout::TimeoutLayer};
use tower_chat::{
    ChatPipeline, ChatRequest, ChatUpdate, HistoryStore, Message, PersistenceMode, ToolResult,
    Tools,
    error::DeadlineExceeded,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    replay::{Freshness, OutdatedCalls, ReplayPolicy, ToolHistory},
    run::Clock,
    store::{InvocationQuery, ToolCallQueries},
    tool::ToolStatus,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use crate::common::*;

/// The cause of an interruption. Without it, the run would wait forever.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cause {
    Dropped,
    Aborted,
    TimeoutAbove,
    Deadline,
}
use Cause::*;

const SOON: Duration = Duration::from_secs(5);

/// Sends a request, and interrupts the run when no task makes progress. Tokio's clock must be
/// paused.
async fn cut_short(
    cause: Cause,
    model: &ScriptedModel,
    store: &Store,
    mode: PersistenceMode,
    tools: Tools,
    request: ChatRequest,
) {
    let client = stack(model.clone(), store, mode, policy(), tools.clone());
    match cause {
        Dropped => {
            let run = tokio::time::timeout(SOON, send(&client, request)).await;
            run.expect_err("the run hangs");
        }
        Aborted => {
            let run = tokio::spawn(async move { send(&client, request).await });
            tokio::time::sleep(SOON).await;
            run.abort();
            assert!(run.await.unwrap_err().is_cancelled());
        }
        TimeoutAbove => {
            let error = send(&boxed(TimeoutLayer::new(SOON).layer(client)), request).await;
            let error = error.expect_err("the run hangs");
            assert!(error.downcast_ref::<tower::timeout::error::Elapsed>().is_some(), "{error:?}");
        }
        Deadline => {
            let builder = ChatPipeline::builder(model.clone()).tools(tools).history(store.clone());
            let client = boxed(builder.persistence(mode).deadline(SOON).build().unwrap());
            let error = send(&client, request).await.expect_err("the run hangs");
            assert!(error.downcast_ref::<DeadlineExceeded>().is_some(), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_run_leaves_the_same_history_for_every_cause_of_the_cancellation() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            let before_head = || Step::hang();
            let mid_stream = || Step::text("never shown whole").hangs_after(1);
            for hanging in [before_head as fn() -> Step, mid_stream] {
                let is_mid_stream = format!("{:?}", hanging()).contains("Some");
                for (cause, calls_before) in
                    cases!([Dropped, Aborted, TimeoutAbove, Deadline], [0, 1])
                {
                    if cause == TimeoutAbove && case.streamed && (is_mid_stream || calls_before > 0)
                    {
                        // The timeout of tower does not apply to the stream of a response. The
                        // deadline of the pipeline does.
                        continue;
                    }
                    let store = case.store().await;
                    let mut steps = vec![hanging()];
                    if calls_before == 1 {
                        steps.insert(0, case.calls([("look", "c1")]));
                    }
                    let model = ScriptedModel::new(steps);
                    let tools = tools(&ToolLog::default());
                    let request = case.ask("where?");
                    cut_short(cause, &model, &store, case.mode, tools, request).await;
                    let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
                    let kept = match (case.mode, calls_before) {
                        (PerRun, _) => 0,
                        (_, 0) => 1,
                        _ => 3,
                    };
                    let case_name = (cause, case.streamed, calls_before, case.mode);
                    assert_eq!(durable(&store).await, all[..kept], "{case_name:?}");
                }
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn results_of_tools_that_have_finished_outlive_the_cancellation_of_their_siblings() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            for cause in [Dropped, Aborted, Deadline] {
                let store = case.store().await;
                let model = ScriptedModel::new([case.calls([("look", "c1"), ("wait", "c2")])]);
                let tools = tools_with_gate(&ToolLog::default(), &Gate::closed());
                cut_short(cause, &model, &store, case.mode, tools, case.ask("where?")).await;
                let all = ["user where?", "assistant look#c1 wait#c2", "tool c1=looked c1"];
                let kept = if case.mode == PerRun { 0 } else { 3 };
                assert_eq!(durable(&store).await, all[..kept], "{cause:?} {case}");

                let model = ScriptedModel::new([Step::text("there")]);
                send(&case.agent(&model, &store), case.ask("well?")).await.unwrap();
                if case.mode == PerServiceCall {
                    let shown = [
                        "user where?",
                        "assistant look#c1 wait#c2",
                        &format!("tool c1=looked c1 c2!{INTERRUPTED}"),
                        "user well?",
                    ];
                    assert_eq!(sent_texts(&model, 0), shown);
                }
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn replay_steps_also_omit_finished_calls_of_incomplete_rounds() {
    Cases::all()
        .modes([PerServiceCall], "only in this mode is an incomplete round part of the history")
        .with_a_stopped_clock()
        .check(async |case| {
            let later = || Clock::new(|| SystemTime::now() + Duration::from_secs(301));
            let replay = ReplayPolicy::default;
            for replay in [
                replay().with_freshness(Freshness::default()),
                replay().with_tool_history(ToolHistory::Omit),
                replay().with_outdated_calls(OutdatedCalls::keep().drop_unregistered()),
            ] {
                let store = case.store().await;
                let model = ScriptedModel::new([case.calls([("look", "c1"), ("wait", "c2")])]);
                let tools = tools_with_gate(&ToolLog::default(), &Gate::closed());
                cut_short(Dropped, &model, &store, case.mode, tools, case.ask("where?")).await;
                let left = ["user where?", "assistant look#c1 wait#c2", "tool c1=looked c1"];
                assert_eq!(stored(&store).await, left);

                let answer = Message::tool_results([ToolResult::new("c2", "waited c2")]);
                let [of_new_input, of_answer] = [Message::user("well?"), answer].map(|input| {
                    let (store, replay) = (store.inner().clone(), replay.clone());
                    async move {
                        let store = Store::new(store);
                        let model = ScriptedModel::new([Step::error("down")]);
                        let run = PerRunPersistence::new(store.clone())
                            .tools(Tools::new())
                            .policy(policy().with_replay(replay))
                            .clock(later());
                        send(&boxed(run.layer(model.clone())), case.request_with([input]))
                            .await
                            .unwrap_err();
                        sent_texts(&model, 0)
                    }
                });
                let interrupted = format!("tool c2!{INTERRUPTED}");
                let shown = ["user where?", "assistant wait#c2", &interrupted, "user well?"];
                assert_eq!(of_new_input.await, shown);
                assert_eq!(
                    of_answer.await,
                    ["user where?", "assistant wait#c2", "tool c2=waited c2"]
                );
            }
        })
        .await;
}

#[tokio::test]
async fn a_stream_dropped_after_any_update_has_stored_what_it_has_shown() {
    Cases::all()
        .streamed("a stream is dropped between its updates")
        .check(async |case| {
            let model = || ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
            let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
            let whole =
                head(&case.agent(&model(), &case.store().await), case.ask("where?")).await.unwrap();
            let updates: Vec<_> = whole.map(Result::unwrap).collect().await;
            let last_message = updates
                .iter()
                .rposition(|update| matches!(update, ChatUpdate::Message(_)))
                .unwrap();
            for taken in 0..=updates.len() {
                let store = case.store().await;
                let client = case.agent(&model(), &store);
                let response = head(&client, case.ask("where?")).await.unwrap();
                let shown: Vec<_> = response.take(taken).map(Result::unwrap).collect().await;
                assert_eq!(shown.len(), taken);
                let left = stored(&store).await;
                if taken > last_message {
                    assert_eq!(
                        left, all,
                        "{case}, after {taken} updates: the caller has received the answer"
                    );
                    continue;
                }
                match case.mode {
                    PerServiceCall => {
                        assert!(
                            all.starts_with(&left.iter().map(String::as_str).collect::<Vec<_>>())
                        );
                        assert!(left.len() <= 3 && !left.is_empty(), "after {taken}: {left:?}");
                        let messages = shown.iter().filter(|u| matches!(u, ChatUpdate::Message(_)));
                        assert!(left.len() > messages.count().min(1), "after {taken}: {left:?}");
                    }
                    _ => assert_eq!(left, [""; 0], "after {taken}"),
                }
            }
        })
        .await;
}

#[tokio::test]
async fn calls_that_are_returned_unexecuted_are_stored_once_they_are_shown() {
    Cases::all()
        .streamed("a stream is dropped between its updates")
        .check(async |case| {
            for step in [
                case.calls([("ask", "c1")]),
                Step::updates([
                    ChatUpdate::Message(case.call_message([("ask", "c1")]).into()),
                    ChatUpdate::Finish(tower_chat::Finish::stop().into()),
                ]),
            ] {
                let store = case.store().await;
                let model = ScriptedModel::new([step]);
                let mut response = head(&case.agent(&model, &store), case.ask("go")).await.unwrap();
                while let Some(update) = response.next().await {
                    if matches!(update.unwrap(), ChatUpdate::Message(_)) {
                        break; // The caller has received the call, and can execute it.
                    }
                }
                drop(response);
                assert_eq!(stored(&store).await, ["user go", "assistant ask#c1"]);
            }
        })
        .await;
}

#[tokio::test]
async fn results_that_end_a_run_are_shown_once_it_is_stored() {
    Cases::all()
        .streamed("a stream is dropped between its updates")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([case.calls([("stop", "c1")])]);
            let mut response = head(&case.agent(&model, &store), case.ask("go")).await.unwrap();
            while let Some(update) = response.next().await {
                let ChatUpdate::Message(message) = update.unwrap() else { continue };
                if message.results().next().is_some() {
                    break;
                }
            }
            drop(response);
            assert_eq!(stored(&store).await, ["user go", "assistant stop#c1"]);
        })
        .await;
}

/// The stack has no `PerServiceCallPersistence`, which would hold back the messages until the end
/// of the answer.
#[tokio::test]
async fn a_message_that_may_be_the_last_is_not_shown_before_the_answer_has_ended() {
    Cases::all()
        .modes([PerRun], "the other modes need a persister")
        .streamed("the test reads updates before the end of the answer")
        .in_memory("the test polls the answer without waiting for a store")
        .check(async |case| {
            let pausing = Step::updates([
                ChatUpdate::TextDelta("the last words".into()),
                ChatUpdate::Message(Message::assistant("the last words").into()),
            ]);
            let model = ScriptedModel::new([pausing.hangs_after(2)]);
            let above = PerRunPersistence::new(case.store().await).mode(case.mode);
            let client = boxed(above.layer(model));
            let mut response = head(&client, case.ask("go")).await.unwrap();
            let mut shown = Vec::new();
            for _ in 0..10 {
                while let Some(update) = response.next().now_or_never() {
                    shown.push(update.unwrap().unwrap());
                }
                tokio::task::yield_now().await;
            }
            assert_eq!(shown, [ChatUpdate::TextDelta("the last words".into())]);
        })
        .await;
}

#[tokio::test]
async fn calls_are_shown_while_their_tools_are_running() {
    Cases::all()
        .streamed("the test reads updates before the end of the answer")
        .in_memory("the test polls the answer without waiting for a store")
        .check(async |case| {
            let gate = Gate::closed();
            let model = ScriptedModel::new([case.calls([("wait", "c1")]), Step::text("there")]);
            let tools = tools_with_gate(&ToolLog::default(), &gate);
            let client = case.stack(model, &case.store().await, policy(), tools);
            let mut response = head(&client, case.ask("go")).await.unwrap();
            loop {
                let update = response.next().now_or_never();
                let update =
                    update.expect("the caller receives the call before its tool has finished");
                if matches!(update.unwrap().unwrap(), ChatUpdate::Message(_)) {
                    break;
                }
            }
            gate.open();
            assert_eq!(response.collect().await.unwrap().text(), "there");
        })
        .await;
}

#[tokio::test]
async fn a_call_dropped_before_the_store_had_room_keeps_its_inputs() {
    every_case(async |case| {
        let (store, gate) = (case.store().await, Gate::closed());
        let model = ScriptedModel::new([
            Step::respond({
                let (store, gate) = (store.clone(), gate.clone());
                move |_| {
                    store.hold_next_reserve(&gate);
                    case.calls([("look", "c1")])
                }
            }),
            Step::text("there"),
        ]);
        if case.mode == PerRun {
            store.hold_next_reserve(&gate);
        }
        let client = case.agent(&model, &store);
        tokio::select! {
            biased;
            answer = send(&client, case.ask("where?")) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
        let kept = if case.mode == PerRun { 0 } else { 3 };
        assert_eq!(durable(&store).await, all[..kept]);
    })
    .await;
}

#[tokio::test]
async fn a_run_dropped_while_its_history_loads_stores_nothing() {
    every_case(async |case| {
        let (store, gate) = (case.store().await, Gate::closed());
        let model = ScriptedModel::new([Step::text("hello"), Step::text("there")]);
        let client = case.agent(&model, &store);
        send(&client, case.ask("hi")).await.unwrap();
        store.hold_next_load(&gate);
        tokio::select! {
            biased;
            answer = send(&client, case.ask("where?")) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        assert_eq!(model.requests().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn an_answer_whose_end_has_come_is_stored_although_its_caller_disconnects() {
    Cases::all()
        .modes(
            [PerRun, PerServiceCall],
            "a journaled run writes its input first, as `journal::staging` shows",
        )
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            store.hold_appends();
            let client = case.agent(&model, &store);
            tokio::select! {
                biased;
                answer = send(&client, case.ask("hi")) => panic!("{answer:?}"),
                () = store.holding(1) => {}
            }
            store.release_appends();
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        })
        .await;
}

#[tokio::test]
async fn the_mode_decides_which_messages_are_stored_after_an_error_of_the_model() {
    every_case(async |case| {
        let errors: [fn() -> Step; 3] = [
            || Step::error("overloaded"),
            || Step::text("half").fails_after(1, "reset"),
            || Step::text("half").cut_off_after(1),
        ];
        for error in errors {
            let (store, _, client) = case.begin([case.calls([("look", "c1")]), error()]).await;
            send(&client, case.ask("where?")).await.unwrap_err();
            let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
            let kept = if case.mode == PerRun { 0 } else { 3 };
            assert_eq!(durable(&store).await, all[..kept]);
        }
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_timeout_below_the_persister_is_an_error_of_the_service() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::hang()]);
            let below = boxed(TimeoutLayer::new(SOON).layer(model.clone()));
            let client = case.stack(below, &store, policy(), tools(&ToolLog::default()));
            send(&client, case.ask("hi")).await.unwrap_err();
            let kept = if case.is(PerServiceCall) { &["user hi"][..] } else { &[] };
            assert_eq!(
                stored(&store).await,
                kept,
                "the same messages are stored as after a timeout above"
            );
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_does_not_interrupt_an_answer_that_is_already_complete() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            let builder = ChatPipeline::builder(model)
                .history(store.clone())
                .persistence(case.mode)
                .deadline(SOON);
            let client = boxed(builder.build().unwrap());
            let response = head(&client, case.ask("hi")).await.unwrap();
            assert_eq!(response.collect().await.unwrap().text(), "hello");
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_ends_a_run_whose_caller_does_not_poll() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            let mid_stream = || Step::text("never shown whole").hangs_after(1);
            for hanging in [Step::hang as fn() -> Step, mid_stream] {
                let store = case.store().await;
                let first_call = case.calls([("look", "c1")]);
                let model = ScriptedModel::new([first_call, hanging(), Step::text("there")]);
                let builder = ChatPipeline::builder(model)
                    .tools(tools(&ToolLog::default()))
                    .history(store.clone())
                    .persistence(case.mode)
                    .deadline(SOON);
                let client = boxed(builder.build().unwrap());

                // The caller stops polling the response when no task makes progress, but does not
                // drop it.
                let call = head(&client, case.ask("where?"));
                tokio::pin!(call);
                let mut response = None;
                if let Ok(head) = tokio::time::timeout(SOON / 5, &mut call).await {
                    let response = response.insert(head.unwrap());
                    while let Ok(update) = tokio::time::timeout(SOON / 5, response.next()).await {
                        update.unwrap().unwrap();
                    }
                }
                tokio::time::sleep(2 * SOON).await;
                let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
                let kept = if case.mode == PerRun { 0 } else { 3 };
                assert_eq!(durable(&store).await, all[..kept], "{case}");

                send(&client, case.ask("well?")).await.expect("the conversation is not blocked");
                let error = match &mut response {
                    Some(response) => response.next().await.unwrap().unwrap_err(),
                    None => call.await.unwrap_err(),
                };
                assert!(error.is::<DeadlineExceeded>(), "{error:?}");
                if let Some(mut response) = response {
                    assert!(response.next().await.is_none());
                }
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_deadline_after_the_end_of_an_answer_is_no_error() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            let store = case.store().await;
            let builder = ChatPipeline::builder(ScriptedModel::new([Step::text("hello")]))
                .history(store.clone())
                .persistence(case.mode)
                .deadline(SOON);
            let client = boxed(builder.build().unwrap());
            let mut response = head(&client, case.ask("hi")).await.unwrap();
            while !matches!(response.next().await.unwrap().unwrap(), ChatUpdate::Finish(_)) {}
            tokio::time::sleep(2 * SOON).await;
            assert!(response.next().await.is_none());
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_is_stored_or_queued_again_and_never_both() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            let mid_stream = || Step::text("never shown whole").hangs_after(1);
            // A timeout between the tool loop and the persister (`PerServiceCallPersistence`) does
            // not apply to the stream of a response. It is therefore not tested with a model client
            // that stalls during the stream.
            for (hanging, below) in
                [(Step::hang as fn() -> Step, false), (Step::hang, true), (mid_stream, false)]
            {
                let store = case.store().await;
                let model = ScriptedModel::new([hanging(), Step::text("there")]);
                let persister = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
                let patience = if below { SOON } else { Duration::MAX };
                let persister = boxed(TimeoutLayer::new(patience).layer(persister));
                let above = PerRunPersistence::new(store.clone()).mode(case.mode);
                let client = boxed(above.layer(ToolLoopLayer::new(Tools::new()).layer(persister)));
                let mut request = case.ask("where?");
                let handle = request.run_handle();
                handle.queue(Message::user("quick"));
                let run = tokio::time::timeout(2 * SOON, send(&client, request.clone())).await;
                assert_eq!(run.is_ok_and(|answer| answer.is_err()), below);

                let all = ["user where?", "user quick", "assistant there"];
                let case_name = (case.streamed, below, case.mode);
                let is_stored = case.mode == PerServiceCall;
                assert_eq!(
                    stored(&store).await,
                    all[..if is_stored { 2 } else { 0 }],
                    "{case_name:?}"
                );
                assert_eq!(handle.has_queued(), !is_stored, "{case_name:?}");
                send(&client, request).await.unwrap();
                assert_eq!(sent_texts(&model, 1), all[..2], "{case_name:?}");
                assert_eq!(stored(&store).await, all, "{case_name:?}");
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_conversation_continues_after_a_cancellation() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            for cause in [Dropped, Aborted, TimeoutAbove, Deadline] {
                let store = case.store().await;
                let model = ScriptedModel::new([Step::hang()]);
                let tools = tools(&ToolLog::default());
                cut_short(cause, &model, &store, case.mode, tools, case.ask("hi")).await;
                let model = ScriptedModel::new([Step::text("hello")]);
                send(&case.agent(&model, &store), case.ask("still there?")).await.unwrap();
                let messages = stored(&store).await;
                assert_eq!(messages.last().unwrap(), "assistant hello");
                assert_eq!(messages.len(), if case.mode == PerRun { 2 } else { 3 });
                let history = store.inner().load(&key()).await.unwrap();
                let valid = history
                    .messages
                    .iter()
                    .all(|message: &std::sync::Arc<Message>| message.id.is_some());
                assert!(valid);
            }
        })
        .await;
}

#[tokio::test]
async fn a_call_that_ran_when_its_caller_went_away_is_recorded_as_interrupted() {
    Cases::all()
        .with_all_ids()
        .modes([PerServiceCall], "per-run mode stores nothing, and a journaled run is resumed")
        .check(async |case| {
            let (store, gate) = (case.store().await, Gate::closed());
            let model = ScriptedModel::new([case.calls([("look", "c1"), ("wait", "c2")])]);
            let tools = tools_with_gate(&ToolLog::default(), &gate);
            let client = case.stack(model, &store, policy(), tools);
            tokio::select! {
                biased;
                answer = send(&client, case.ask("where?")) => panic!("{answer:?}"),
                () = gate.reached(1) => {}
            }
            store.inner().flush().await.unwrap();
            let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap();
            let rows = found
                .found
                .iter()
                .map(|(_, call)| (call.status, call.started_at.is_some(), call.result.is_some()));
            let expected = [(ToolStatus::Ok, true, true), (ToolStatus::Interrupted, true, false)];
            assert_eq!(rows.collect::<Vec<_>>(), expected);
        })
        .await;
}
