//! Tests that a request which is sent again continues the same run, from any caller and in any
//! process.

use std::{
    future::ready,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tower::{
    Layer, ServiceExt,
    retry::{Policy, RetryLayer},
    timeout::TimeoutLayer,
};
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatResponse, Finish, HistoryStore, Message, PersistenceError,
    PersistencePolicy, ToolResult, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::{ConflictPolicy, StoreFailure},
    run::{Conversation, RunId, ServiceCall},
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use crate::common::*;

const WHOLE_RUN: [&str; 4] =
    ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];

#[tokio::test]
async fn a_completed_run_gives_its_stored_answer_without_paying_the_model() {
    every_case(async |case| {
        let (store, tool_log, model, client) =
            case.begin_with_log([case.calls([("look", "c1")]), Step::text("there")]).await;
        let request = case.ask("where?");
        let first = send(&client, request.clone()).await.unwrap();
        let again = send(&client, request).await.unwrap();
        assert_eq!(again.messages, first.messages);
        assert_eq!(again.finish.saved, first.finish.saved);
        assert_eq!(model.requests().len(), 2);
        assert_eq!(tool_log.names(), ["look"]);
        assert_eq!(stored(&store).await, WHOLE_RUN);
    })
    .await;
}

#[tokio::test]
async fn a_completed_run_is_recognised_after_other_runs() {
    every_case(async |case| {
        let (store, model, client) = case.begin([Step::text("hello"), Step::text("there")]).await;
        let first = case.ask("hi");
        send(&client, first.clone()).await.unwrap();
        send(&client, case.ask("where?")).await.unwrap();
        let again = send(&client, first).await.unwrap();
        assert_eq!(shorts(&again.messages), ["assistant hello"]);
        assert_eq!(model.requests().len(), 2);
        assert_eq!(stored(&store).await.len(), 4, "nothing is stored twice");
    })
    .await;
}

#[tokio::test]
async fn a_stored_run_is_found_after_runs_of_a_clock_that_went_back() {
    every_case(async |case| {
        let store = case.store().await;
        let texts = ["one", "two", "three", "four"];
        let model = ScriptedModel::new(texts.map(Step::text));
        let client = case.agent(&model, &store);
        // The hours at which the runs were created. They are not in order, because the clocks of
        // the processes differ.
        let requests: Vec<_> = [9_u8, 3, 6, 1]
            .into_iter()
            .map(|hour| {
                let conversation = Conversation { key: key(), run: made_at_hour(hour) };
                case.ask(&format!("asked at {hour}")).with_extension(conversation)
            })
            .collect();
        for (request, text) in requests.iter().zip(texts) {
            assert_eq!(send(&client, request.clone()).await.unwrap().text(), text);
        }
        let before = stored(&store).await;
        for (request, text) in requests.iter().zip(texts) {
            let again = send(&client, request.clone()).await.unwrap();
            assert_eq!(again.text(), text);
        }
        assert_eq!(model.requests().len(), 4, "the model is not paid twice");
        assert_eq!(stored(&store).await, before, "nothing is stored twice");
    })
    .await;
}

/// Returns requests that the service answers in the background. Processes with different clocks
/// created their runs at these hours.
fn in_the_background(hours: [u8; 3], streamed: bool) -> [ChatRequest; 3] {
    hours.map(|hour| {
        let conversation = Conversation { key: key(), run: made_at_hour(hour) };
        let mut request = ask(&format!("background at {hour}"), streamed);
        Arc::make_mut(&mut request.options).background = true;
        request.with_extension(conversation)
    })
}

#[tokio::test]
async fn a_run_in_the_background_that_is_sent_again_is_stored_once_whatever_the_clock_said() {
    every_case(async |case| {
        for hours in [[1, 2, 3], [9, 3, 6]] {
            let store = case.store().await;
            let texts = ["one", "two", "three"];
            let steps = [
                Step::text("one"),
                case.calls([("look", "c1")]),
                Step::text("two"),
                Step::text("three"),
            ];
            let model = ScriptedModel::new(steps);
            let client = case.agent(&model, &store);
            let requests = in_the_background(hours, case.streamed);
            for (request, text) in requests.iter().zip(texts) {
                assert_eq!(send(&client, request.clone()).await.unwrap().text(), text);
            }
            let before = stored(&store).await;
            for (request, text) in requests.iter().zip(texts) {
                let again = send(&client, request.clone()).await.unwrap();
                assert_eq!(again.text(), text, "{case} {hours:?}");
            }
            assert_eq!(model.requests().len(), 4, "{case}: the model is not paid twice");
            assert_eq!(stored(&store).await, before, "{case}: nothing is stored twice");
            let shown: Vec<_> = [0, 1, 3].map(|call| sent_texts(&model, call)).into();
            let asked = hours.map(|hour| vec![format!("user background at {hour}")]);
            assert_eq!(shown, asked, "the requests contain no history");
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_was_stored_in_part_continues_in_the_background_or_is_refused() {
    Cases::all()
        .modes([PerServiceCall], "only this mode stores a part of the run")
        .check(async |case| {
            for is_overtaken in [false, true] {
                let (store, model, client) = case
                    .begin([
                        case.calls([("look", "c1")]),
                        Step::error("overloaded"),
                        Step::text("there"),
                    ])
                    .await;
                let interrupted = case.ask("where?");
                send(&client, interrupted.clone()).await.unwrap_err();
                if is_overtaken {
                    send(&client, case.ask("well?")).await.unwrap();
                }
                let before = stored(&store).await;
                let mut again = interrupted;
                Arc::make_mut(&mut again.options).background = true;
                let result = send(&client, again).await;
                if is_overtaken {
                    let error = refused(result);
                    assert!(matches!(error, PersistenceError::RunOvertaken { .. }), "{error:?}");
                    assert_eq!(stored(&store).await, before);
                } else {
                    assert_eq!(result.unwrap().text(), "there");
                    assert_eq!(sent_texts(&model, 2), WHOLE_RUN[..3]);
                    assert_eq!(stored(&store).await, WHOLE_RUN);
                }
            }
        })
        .await;
}

/// Returns the id of a run that was created at this hour of the first day of 1970.
fn made_at_hour(hour: u8) -> RunId {
    let milliseconds = u64::from(hour) * 3_600_000;
    let mut bytes = [0; 16];
    bytes[..6].copy_from_slice(&milliseconds.to_be_bytes()[2..]);
    bytes[6] = 0x70;
    bytes[8] = 0x80;
    bytes[15] = hour;
    RunId::from_bytes(bytes)
}

#[tokio::test]
async fn an_interrupted_run_is_not_resumed_after_a_later_run_has_been_stored() {
    Cases::all()
        .modes([PerServiceCall], "per-run mode starts again, and a journaled run remains open")
        .check(async |case| {
            let (store, model, client) = case
                .begin([
                    case.calls([("look", "c1")]),
                    Step::error("overloaded"),
                    Step::text("there"),
                ])
                .await;
            let interrupted = case.ask("where?");
            send(&client, interrupted.clone()).await.unwrap_err();
            send(&client, case.ask("well?")).await.unwrap();
            let error = refused(send(&client, interrupted).await);
            assert!(matches!(error, PersistenceError::RunOvertaken { .. }), "{error:?}");
            assert_eq!(model.requests().len(), 3, "the model is not called");
            assert_eq!(stored(&store).await.len(), 5);
        })
        .await;
}

#[tokio::test]
async fn an_interrupted_run_resumes_without_storing_its_input_again() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing that could be resumed")
        .check(async |case| {
            let (store, tool_log, model, client) = case
                .begin_with_log([
                    case.calls([("look", "c1")]),
                    Step::error("overloaded"),
                    Step::text("there"),
                ])
                .await;
            let request = case.ask("where?");
            send(&client, request.clone()).await.unwrap_err();
            let answer = send(&client, request).await.unwrap();
            assert_eq!(stored(&store).await, WHOLE_RUN);
            assert_eq!(sent_texts(&model, 2), WHOLE_RUN[..3]);
            assert_eq!(tool_log.names(), ["look"], "a finished tool does not run again");
            assert_eq!(
                shorts(&answer.messages),
                WHOLE_RUN[1..],
                "the answer contains the whole run"
            );
            assert_eq!(answer.finish.saved.unwrap().messages, 4);
        })
        .await;
}

#[tokio::test]
async fn a_run_that_failed_in_per_run_mode_starts_anew() {
    every_case(async |case| {
        let (store, _, client) = case.begin([Step::error("overloaded"), Step::text("hello")]).await;
        let request = case.ask("hi");
        send(&client, request.clone()).await.unwrap_err();
        send(&client, request).await.unwrap();
        assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
    })
    .await;
}

#[tokio::test]
async fn a_run_resumes_in_a_new_process() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing that could be resumed")
        .check(async |case| {
            let store = case.store().await;
            let request = case.ask("where?");
            let killed = ScriptedModel::new([case.calls([("look", "c1")]), Step::hang()]);
            let client = agent(&killed, &store, case.mode);
            tokio::select! {
                biased;
                answer = send(&client, request.clone()) => panic!("{answer:?}"),
                () = killed.called(2) => {}
            }
            drop(client);

            let after = store.in_another_process();
            let model = ScriptedModel::new([Step::text("there")]);
            send(&agent(&model, &after, case.mode), request).await.unwrap();
            assert_eq!(stored(&after).await, WHOLE_RUN);
            assert_eq!(sent_texts(&model, 0), WHOLE_RUN[..3]);
        })
        .await;
}

#[tokio::test]
async fn a_run_of_which_only_the_input_is_stored_calls_the_model_again_in_every_mode() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::hang(), Step::text("there")]);
        let client = agent(&model, &store, PerServiceCall);
        let request = case.ask("where?");
        tokio::select! {
            biased;
            answer = send(&client, request.clone()) => panic!("{answer:?}"),
            () = model.called(1) => {}
        }
        assert_eq!(stored(&store).await, ["user where?"]);
        let request = request.with_extension(case.mode);
        assert_eq!(send(&client, request.clone()).await.unwrap().text(), "there");
        assert_eq!(stored(&store).await, ["user where?", "assistant there"]);
        assert_eq!(sent_texts(&model, 1), ["user where?"]);
        assert_eq!(send(&client, request).await.unwrap().text(), "there");
        assert_eq!(model.requests().len(), 2);
    })
    .await;
}

#[tokio::test]
async fn a_resumed_run_sends_the_part_of_its_input_that_is_not_stored_yet() {
    every_case(async |case| {
        let (store, model, client) = case
            .begin([case.calls([("ask", "c1")]), Step::error("overloaded"), Step::text("thanks")])
            .await;
        send(&client, case.ask("go")).await.unwrap();
        let input =
            [Message::tool_results([ToolResult::new("c1", "blue")]), Message::user("and be quick")];
        let request = case.request_with(input);
        send(&client, request.clone()).await.unwrap_err();
        send(&client, request).await.unwrap();
        let all = [
            "user go",
            "assistant ask#c1",
            "tool c1=blue",
            "user and be quick",
            "assistant thanks",
        ];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 2), all[..4]);
    })
    .await;
}

#[tokio::test]
async fn an_answer_with_calls_before_its_last_message_is_not_taken_for_the_end() {
    every_case(async |case| {
        let (store, gate) = (case.store().await, Gate::closed());
        let asking = [case.call_message([("wait", "c1")]), Message::assistant("one moment")];
        let model = ScriptedModel::new([Step::answer(asking, Finish::stop()), Step::text("there")]);
        let tools = tools_with_gate(&ToolLog::default(), &gate);
        let client = case.stack(model.clone(), &store, policy(), tools);
        let request = case.ask("where?");
        tokio::select! {
            biased;
            answer = send(&client, request.clone()) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        assert_eq!(send(&client, request).await.unwrap().text(), "there");
    })
    .await;
}

#[tokio::test]
async fn a_lone_persister_under_a_loop_gives_the_stored_answer() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(below));
        let request = case.ask("where?");
        send(&client, request.clone()).await.unwrap();
        let again = send(&client, request).await.unwrap();
        assert_eq!(again.text(), "there");
        assert_eq!(model.requests().len(), 2);
        assert_eq!(stored(&store).await, WHOLE_RUN);
    })
    .await;
}

#[derive(Clone)]
struct Again(usize);

impl Policy<ChatRequest, ChatResponse, BoxError> for Again {
    type Future = std::future::Ready<()>;

    fn retry(
        &mut self,
        _: &mut ChatRequest,
        result: &mut Result<ChatResponse, BoxError>,
    ) -> Option<Self::Future> {
        let again = result.is_err() && self.0 > 0;
        self.0 = self.0.saturating_sub(1);
        again.then(|| ready(()))
    }

    fn clone_request(&mut self, request: &ChatRequest) -> Option<ChatRequest> {
        Some(request.clone())
    }
}

/// Returns a stack with a retry layer above a timeout, both between the tool loop and the persister
/// (`PerServiceCallPersistence`).
fn retrying(
    case: Case,
    model: &ScriptedModel,
    store: &Store,
    policy: PersistencePolicy,
    tools: Tools,
) -> Client {
    let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
    let below = boxed(TimeoutLayer::new(Duration::from_secs(5)).layer(below));
    let retried = boxed(RetryLayer::new(Again(2)).layer(below));
    let above = PerRunPersistence::new(store.clone()).mode(case.mode).policy(policy);
    boxed(above.layer(ToolLoopLayer::new(tools).layer(retried)))
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_retried_above_the_persister_stores_its_inputs_once() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            for hanging_call in [0, 1] {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let mut steps = vec![case.calls([("look", "c1")]), Step::text("there")];
                steps.insert(hanging_call, Step::hang());
                let model = ScriptedModel::new(steps);
                let client = retrying(case, &model, &store, policy(), tools(&tool_log));
                let answer = send(&client, case.ask("where?")).await.unwrap();
                assert_eq!(stored(&store).await, WHOLE_RUN);
                assert_eq!(shorts(&answer.messages), WHOLE_RUN[1..]);
                assert_eq!(sent_texts(&model, 2), WHOLE_RUN[..3]);
                assert_eq!(tool_log.names(), ["look"]);
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_failed_call_that_is_retried_sees_the_results_and_stores_them_once() {
    Cases::all()
        .with_a_stopped_clock()
        .check(async |case| {
            for keep in [true, false] {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let model = ScriptedModel::new([
                    Step::error("overloaded"),
                    case.calls([("look", "c1")]),
                    Step::error("overloaded"),
                    Step::error("overloaded"),
                    Step::text("there"),
                ]);
                let policy = policy().with_inputs_of_failed_call(results_if(keep));
                let client = retrying(case, &model, &store, policy, tools(&tool_log));
                send(&client, case.ask("where?")).await.unwrap();
                assert_eq!(stored(&store).await, WHOLE_RUN, "keep: {keep}");
                for call in [2, 3, 4] {
                    assert_eq!(sent_texts(&model, call), WHOLE_RUN[..3], "keep: {keep}");
                }
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn results_that_a_failed_call_has_left_in_the_outbox_wait_there_once() {
    Cases::all()
        .modes([PerServiceCall], "only this mode writes the results of a failed service call")
        .with_a_stopped_clock()
        .check(async |case| {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let model = ScriptedModel::new([
                case.calls([("look", "c1")]),
                Step::error("overloaded"),
                Step::text("there"),
                Step::text("bye"),
            ]);
            let client = retrying(case, &model, &store, policy(), tools(&tool_log));
            store.fail_every_append(disk_full);
            let answer = send(&client, case.ask("where?")).await.unwrap();
            // The retry submits the unconfirmed writes again, with the write of its answer. The
            // outbox contains each of these writes once.
            let waiting = store.handle().unsaved(&key());
            let waiting: Vec<_> = waiting.iter().map(|write| shorts(write.messages())).collect();
            let expected = [&WHOLE_RUN[..2], &WHOLE_RUN[2..3], &WHOLE_RUN[3..]];
            assert_eq!(waiting, expected);
            assert_eq!(answer.finish.saved.unwrap().unsaved, WHOLE_RUN.len());
            store.heal();
            send(&client, case.ask("and now?")).await.unwrap();
            let next = ["user and now?", "assistant bye"];
            assert_eq!(stored(&store).await, [&WHOLE_RUN[..], &next].concat());
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answered_call_is_not_paid_for_again() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "the persister below the retry layer stores service calls only in this mode",
        )
        .whole("a retry layer does not receive errors inside a stream")
        .with_a_stopped_clock()
        .check(async |case| {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
            let policy = policy().on_store_failure(StoreFailure::FailCall);
            let client = retrying(case, &model, &store, policy, tools(&tool_log));
            store.fail_next_append(disk_full());
            store.fail_next_append(disk_full());
            send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(model.requests().len(), 2);
            assert_eq!(stored(&store).await, WHOLE_RUN);
            assert_eq!(tool_log.names(), ["look"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn an_answer_whose_write_is_slow_is_not_paid_for_again() {
    Cases::all()
        .modes([PerServiceCall], "the persister below the retry layer writes only in this mode")
        .whole("the timeout of tower does not apply to the stream of a response")
        .with_a_stopped_clock()
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            let client = retrying(case, &model, &store, policy(), tools(&ToolLog::default()));
            store.hold_appends();
            let call = tokio::spawn(async move { send(&client, case.ask("hi")).await });
            store.holding(2).await;
            store.release_appends();
            assert_eq!(call.await.unwrap().unwrap().text(), "hello");
            assert_eq!(model.requests().len(), 1);
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        })
        .await;
}

/// Returns a client that loses the first answer and returns an error instead.
fn losing_first(below: Client) -> Client {
    let is_lost = Arc::new(AtomicBool::new(false));
    boxed(below.map_future(move |response| {
        let is_lost = is_lost.clone();
        async move {
            let response: Result<ChatResponse, BoxError> = response.await;
            let answer: ChatResponse = response?.collect().await?.into();
            match is_lost.swap(true, Ordering::AcqRel) {
                false => Err(BoxError::from("the answer was lost")),
                true => Ok(answer),
            }
        }
    }))
}

#[tokio::test]
async fn a_durable_answer_that_was_lost_is_given_again_and_not_written_again() {
    Cases::all()
        .modes([PerRun, PerServiceCall], "a journaled run also writes its input and each result")
        .check(async |case| {
            for is_slow in [false, true] {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
                let below =
                    boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
                let retried = boxed(RetryLayer::new(Again(1)).layer(losing_first(below)));
                let above = PerRunPersistence::new(store.clone()).mode(case.mode).policy(policy());
                let tool_loop = ToolLoopLayer::new(tools(&tool_log)).assume_persister_below(true);
                let client = boxed(above.layer(tool_loop.layer(retried)));
                if is_slow {
                    store.hold_appends();
                }
                let call = tokio::spawn(async move { send(&client, case.ask("where?")).await });
                if is_slow {
                    store.holding(1).await;
                    store.release_appends();
                }
                let saved = call.await.unwrap().unwrap().finish.saved.unwrap();
                assert_eq!((saved.messages, saved.unsaved), (4, 0));
                let appends = if case.is(PerRun) { 1 } else { 2 };
                assert_eq!(model.requests().len(), 2, "slow: {is_slow}");
                assert_eq!(store.appends(), appends, "slow: {is_slow}");
                assert_eq!(stored(&store).await, WHOLE_RUN);
                assert_eq!(tool_log.names(), ["look"]);
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn inputs_of_a_dropped_call_that_the_store_refused_are_submitted_with_its_retry() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "the persister below the retry layer stores service calls only in this mode",
        )
        .with_a_stopped_clock()
        .check(async |case| {
            for failure in [StoreFailure::Continue, StoreFailure::FailCall] {
                let store = case.store().await;
                let model = ScriptedModel::new([Step::hang(), Step::text("hello")]);
                let policy = policy().on_store_failure(failure);
                let client = retrying(case, &model, &store, policy, tools(&ToolLog::default()));
                store.fail_next_append(disk_full());
                let answer = send(&client, case.ask("hi")).await.unwrap();
                assert_eq!(answer.text(), "hello");
                assert_eq!(stored(&store).await, ["user hi", "assistant hello"], "{failure:?}");
                let saved = answer.finish.saved.unwrap();
                assert_eq!((saved.messages, saved.unsaved), (2, 0));
            }
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_service_that_keeps_the_history_is_sent_the_inputs_again_by_a_retry() {
    Cases::all()
        .modes(
            [PerRun, PerServiceCall],
            "known fault: a journaled run commits its input under ConflictPolicy::StopRecording",
        )
        .with_a_stopped_clock()
        .check(async |case| {
            for (conflict, failing) in cases!(
                [ConflictPolicy::StopRecording, ConflictPolicy::Record],
                [Step::hang as fn() -> Step, || Step::error("overloaded")]
            ) {
                let store = case.store().await;
                let model = ScriptedModel::new([
                    kept("hello", "s1"),
                    failing(),
                    kept_call("s1"),
                    failing(),
                    kept("there", "s1"),
                ]);
                let policy = policy().on_conflict(conflict);
                let client = retrying(case, &model, &store, policy, tools(&ToolLog::default()));
                send(&client, case.ask("hi")).await.unwrap();
                send(&client, case.ask("where?")).await.unwrap();
                for (call, shown) in
                    ["user where?", "user where?", "tool c1=looked c1", "tool c1=looked c1"]
                        .iter()
                        .enumerate()
                {
                    assert_eq!(sent_texts(&model, call + 1), [*shown]);
                }
                let recorded = if conflict == ConflictPolicy::Record { 6 } else { 0 };
                assert_eq!(stored(&store).await.len(), recorded);
            }
        })
        .await;
}

/// Returns a client that makes every service call twice at the same time, like a hedge layer, and
/// drops the slower one.
fn hedged(below: Client) -> Client {
    boxed(tower::service_fn(move |mut request: ChatRequest| {
        request.extensions.insert(ServiceCall { ordinal: 0 });
        let first = Box::pin(send_owned(below.clone(), request.clone()));
        let second = Box::pin(send_owned(below.clone(), request));
        async move {
            let (answer, slower) = futures_util::future::select(first, second).await.factor_first();
            drop(slower);
            Ok::<_, BoxError>(ChatResponse::from(answer?))
        }
    }))
}

async fn send_owned(client: Client, request: ChatRequest) -> Result<Answer, BoxError> {
    send(&client, request).await
}

#[tokio::test]
async fn a_call_made_twice_at_once_is_stored_once() {
    every_case(async |case| {
        let closed = Gate::closed();
        let slow = || Step::text("slow").waits(&Gate::closed());
        for steps in [
            [slow(), Step::text("hello")],
            [Step::text("hello"), slow()],
            [Step::text("hello"), Step::text("hello")],
            [Step::error("overloaded").waits(&closed), Step::text("hello")],
        ] {
            let store = case.store().await;
            let model = ScriptedModel::new(steps);
            let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
            let above = PerRunPersistence::new(store.clone()).mode(case.mode);
            let client = boxed(above.layer(hedged(below)));
            let answer = send(&client, case.ask("hi")).await.unwrap();
            assert_eq!(answer.text(), "hello");
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        }
    })
    .await;
}

#[tokio::test]
async fn a_retry_above_the_run_is_the_same_run() {
    Cases::all()
        .whole("a retry layer does not receive errors inside a stream")
        .check(async |case| {
            let (store, tool_log, _, client) = case
                .begin_with_log([
                    case.calls([("look", "c1")]),
                    Step::error("overloaded"),
                    Step::respond(move |request| match request.messages().len() {
                        1 => case.calls([("look", "c1")]),
                        _ => Step::text("there"),
                    }),
                    Step::text("there"),
                ])
                .await;
            let client = boxed(RetryLayer::new(Again(2)).layer(client));
            send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(stored(&store).await, WHOLE_RUN);
            assert_eq!(tool_log.names().len(), if case.mode == PerRun { 2 } else { 1 });
        })
        .await;
}

#[tokio::test]
async fn a_write_that_failed_after_it_was_stored_is_recognised_by_the_retry() {
    Cases::all()
        .whole("a retry layer does not receive errors inside a stream")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            let policy = policy().on_store_failure(StoreFailure::FailCall);
            let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
            let client = boxed(RetryLayer::new(Again(2)).layer(client));
            store.fail_next_append_after_storing(disk_full());
            let answer = send(&client, case.ask("hi")).await.unwrap();
            assert_eq!(answer.text(), "hello");
            assert_eq!(model.requests().len(), 1);
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
        })
        .await;
}
