//! Tests per-service-call mode: every answered service call is durable before the caller receives
//! the end of the answer.

use std::{
    future::pending,
    pin::pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::{StreamExt, future::poll_immediate};
use tower::{Layer, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, HistoryStore, Message,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::MessageId,
    policy::UnansweredInputs,
    request::HistoryOwner,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use crate::common::*;

#[tokio::test]
async fn every_service_call_is_stored_before_the_next_one_is_made() {
    Cases::all()
        .with_all_ids()
        .modes(
            [PerServiceCall],
            "in the other modes, readers see nothing before the end of the run",
        )
        .check(async |case| {
            let (store, counts) = (case.store().await, Arc::new(Mutex::new(Vec::new())));
            let model = ScriptedModel::new([
                noting(&store, &counts, case.calls([("look", "c1")])),
                noting(&store, &counts, case.calls([("look", "c2")])),
                noting(&store, &counts, Step::text("there")),
            ]);
            send(&case.agent(&model, &store), case.ask("where?")).await.unwrap();
            assert_eq!(*counts.lock().unwrap(), [0, 2, 4]);
            assert_eq!(store.appends(), 3);
            let all = [
                "user where?",
                "assistant look#c1",
                "tool c1=looked c1",
                "assistant look#c2",
                "tool c2=looked c2",
                "assistant there",
            ];
            assert_eq!(stored(&store).await, all, "nothing is stored twice");
            for (call, shown) in [1, 3, 5].into_iter().enumerate() {
                assert_eq!(sent_texts(&model, call), all[..shown]);
            }
        })
        .await;
}

#[tokio::test]
async fn each_append_holds_the_new_inputs_and_the_response_of_one_call() {
    Cases::all()
        .with_all_ids()
        .modes(
            [PerServiceCall],
            "per-run mode writes once, and journaled mode stages the input first",
        )
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
            let request = case.ask("where?");
            let run = request.conversation().unwrap().run;
            send(&case.agent(&model, &store), request).await.unwrap();
            let writes = store.writes();
            assert_eq!(shorts(writes[0].messages()), ["user where?", "assistant look#c1"]);
            let history = store.inner().load(&key()).await.unwrap().messages;
            assert_eq!(
                shorts_after(history.iter().take(2), writes[1].messages()),
                ["tool c1=looked c1", "assistant there"]
            );
            let ids: Vec<_> = writes.iter().map(|write| write.id()).collect();
            assert_eq!(ids, [0, 2].map(|index| MessageId { run, index }));
        })
        .await;
}

#[tokio::test]
async fn the_history_is_loaded_once_a_run_and_extended_in_memory() {
    every_id(async |case| {
        let (store, model, client) = case
            .begin([
                Step::text("hello"),
                case.calls([("look", "c1")]),
                case.calls([("look", "c2")]),
                Step::text("there"),
            ])
            .await;
        send(&client, case.ask("hi")).await.unwrap();
        let (heads, loads) = (store.heads(), store.loads());
        send(&client, case.ask("where?")).await.unwrap();
        assert_eq!((store.heads() - heads, store.loads() - loads), (1, 1));
        assert_eq!(sent_texts(&model, 3).len(), 7);
        assert_eq!(sent_texts(&model, 3)[..3], ["user hi", "assistant hello", "user where?"]);
    })
    .await;
}

#[tokio::test]
async fn messages_queued_during_the_run_are_stored_with_the_call_that_carries_them() {
    every_case(async |case| {
        let store = case.store().await;
        let mut request = case.ask("hi");
        let handle = request.run_handle();
        let model = ScriptedModel::new([
            Step::respond(move |_| {
                handle.queue(Message::user("and in French"));
                Step::text("hello")
            }),
            Step::text("bonjour"),
        ]);
        let answer = send(&case.agent(&model, &store), request).await.unwrap();
        let all = ["user hi", "assistant hello", "user and in French", "assistant bonjour"];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 1), all[..3]);
        assert_eq!(shorts(&answer.messages), all[1..]);
    })
    .await;
}

#[derive(Clone, Default)]
struct Ids(Arc<Mutex<Vec<Option<HistoryOwner>>>>);

impl Ids {
    fn note(&self, id: &Option<HistoryOwner>) {
        self.0.lock().unwrap().push(id.clone());
    }

    fn seen(&self) -> Vec<Option<HistoryOwner>> {
        self.0.lock().unwrap().clone()
    }

    fn around(&self, client: Client) -> Client {
        let ids = self.clone();
        boxed(tower::service_fn(move |request: ChatRequest| {
            let (ids, client) = (ids.clone(), client.clone());
            async move {
                let response = head(&client, request).await?;
                let updates = response.map(move |update| {
                    if let Ok(ChatUpdate::Finish(finish)) = &update {
                        ids.note(&finish.history_owner);
                    }
                    update
                });
                Ok::<_, BoxError>(ChatResponse::forward(updates))
            }
        }))
    }
}

#[tokio::test]
async fn the_sentinel_is_between_persister_and_loop_and_nowhere_else() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode sets no sentinel, as the next test shows")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
            let ids = Ids::default();
            let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
            let tool_loop =
                ToolLoopLayer::new(tools(&ToolLog::default())).assume_persister_below(true);
            let looped = tool_loop.layer(ids.around(boxed(below)));
            let client = boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(looped));
            let answer = send(&client, case.ask("where?")).await.unwrap();

            let sentinel = Some(HistoryOwner::Local);
            assert_eq!(
                ids.seen(),
                [sentinel.clone(), sentinel],
                "every response contains the sentinel"
            );
            assert!(model.requests().iter().all(|request| request.history_owner.is_none()));
            assert_eq!(
                answer.finish.history_owner, None,
                "the caller does not receive the sentinel"
            );
            assert_eq!(service_id(&store).await, None, "the sentinel is not stored");
        })
        .await;
}

#[tokio::test]
async fn per_run_mode_has_no_sentinel_at_all() {
    Cases::all()
        .modes([PerRun], "the other modes set the sentinel, as the test above shows")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([case.calls([("look", "c1")]), Step::text("there")]);
            let ids = Ids::default();
            let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
            let looped =
                ToolLoopLayer::new(tools(&ToolLog::default())).layer(ids.around(boxed(below)));
            let client = boxed(PerRunPersistence::new(store.clone()).layer(looped));
            let answer = send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(ids.seen(), [None, None]);
            assert_eq!(answer.finish.history_owner, None);
        })
        .await;
}

#[tokio::test]
async fn a_caller_who_puts_the_sentinel_on_its_request_gets_an_ordinary_run() {
    every_case(async |case| {
        let (_, model, client) = case.begin([Step::text("hello"), Step::text("there")]).await;
        send(&client, case.ask("hi")).await.unwrap();
        let mut request = case.ask("where?");
        request.history_owner = Some(HistoryOwner::Local);
        send(&client, request).await.unwrap();
        assert_eq!(sent_texts(&model, 1), ["user hi", "assistant hello", "user where?"]);
    })
    .await;
}

#[tokio::test]
async fn the_append_is_done_before_the_caller_sees_the_last_update() {
    Cases::all()
        .modes([PerRun, PerServiceCall], "journaled mode stages the input first")
        .streamed("the test reads updates before the end of the answer")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            store.hold_appends();
            let mut response = head(&case.agent(&model, &store), case.ask("hi")).await.unwrap();
            let mut deltas = 0;
            loop {
                tokio::select! {
                    biased;
                    update = response.next() => match update {
                        Some(Ok(ChatUpdate::TextDelta(_))) => deltas += 1,
                        other => panic!("forwarded before it is durable: {other:?}"),
                    },
                    () = store.holding(1) => break,
                }
            }
            assert!(deltas > 0, "deltas are forwarded immediately");
            store.release_appends();
            let rest: Vec<_> = response.map(Result::unwrap).collect().await;
            assert!(
                matches!(rest[..], [ChatUpdate::Message(_), ChatUpdate::Finish(_)]),
                "{rest:?}"
            );
            assert_eq!(count_now(&store), 2);
        })
        .await;
}

#[tokio::test]
async fn no_message_of_a_call_is_shown_before_the_call_is_durable() {
    Cases::all()
        .modes(
            [PerServiceCall],
            "in per-run mode, messages are durable at the end; journaled mode stages the input first",
        )
        .streamed("the test reads updates before the end of the answer")
        .check(async |case| {
            for alone in [false, true] {
                let store = case.store().await;
                let several =
                    [Message::assistant("let me look"), case.call_message([("look", "c1")])];
                let model = ScriptedModel::new([
                    Step::answer(several, tower_chat::Finish::stop()),
                    Step::text("there"),
                ]);
                let client = match alone {
                    true => boxed(PerServiceCallPersistence::new(store.clone()).layer(model)),
                    false => case.agent(&model, &store),
                };
                store.hold_appends();
                let mut response = head(&client, case.ask("where?")).await.unwrap();
                loop {
                    tokio::select! {
                        biased;
                        update = response.next() => {
                            let update = update.unwrap().unwrap();
                            assert!(!matches!(update, ChatUpdate::Message(_)), "{update:?}");
                        }
                        () = store.holding(1) => break,
                    }
                }
                assert!(futures_util::FutureExt::now_or_never(response.next()).is_none());
                store.release_appends();
                let messages = response.collect().await.unwrap().messages;
                assert_eq!(shorts(&messages)[..2], ["assistant let me look", "assistant look#c1"]);
            }
        })
        .await;
}

#[tokio::test]
async fn a_whole_answer_waits_until_it_is_durable() {
    Cases::all()
        .modes([PerRun, PerServiceCall], "journaled mode stages the input first")
        .whole("the test above covers streamed answers")
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::text("hello")]);
            store.hold_appends();
            let client = case.agent(&model, &store);
            let call = tokio::spawn(async move { send(&client, case.ask("hi")).await });
            store.holding(1).await;
            assert!(!call.is_finished());
            store.release_appends();
            assert_eq!(call.await.unwrap().unwrap().text(), "hello");
        })
        .await;
}

#[tokio::test]
async fn deltas_pass_through_while_the_answer_is_coming() {
    Cases::all()
        .streamed("pieces of an answer")
        .check(async |case| {
            let gate = Gate::closed();
            let model = ScriptedModel::new([Step::text("hello").waits_after(1, &gate)]);
            let mut response =
                head(&case.agent(&model, &case.store().await), case.ask("hi")).await.unwrap();
            let first = response.next().await.unwrap().unwrap();
            assert_eq!(first, ChatUpdate::TextDelta("he".into()));
            gate.open();
            assert_eq!(response.collect().await.unwrap().text(), "hello");
        })
        .await;
}

#[tokio::test]
async fn a_call_that_fails_stores_its_question_and_keeps_the_calls_before_it() {
    Cases::all()
        .modes([PerRun, PerServiceCall], "a journaled run remains open with its input")
        .check(async |case| {
            let (store, _, client) =
                case.begin([Step::error("overloaded"), Step::text("hello")]).await;
            send(&client, case.ask("hi")).await.unwrap_err();
            let all = ["user hi", "user hi again", "assistant hello"];
            let kept = usize::from(case.is(PerServiceCall));
            assert_eq!(stored(&store).await, all[..kept]);
            send(&client, case.ask("hi again")).await.unwrap();
            assert_eq!(stored(&store).await, all[1 - kept..]);
        })
        .await;
}

#[tokio::test]
async fn results_of_tools_that_ran_survive_a_failing_call_by_policy() {
    Cases::all()
        .with_all_ids()
        .modes([PerServiceCall], "per-run mode stores nothing, and a journaled run remains open")
        .check(async |case| {
            for (failing, keep) in cases!(
                [
                    || Step::error("overloaded"),
                    || Step::text("half").fails_after(1, "reset"),
                    || Step::text("half").cut_off_after(1),
                ],
                [true, false]
            ) {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let model = ScriptedModel::new([
                    case.calls([("look", "c1")]),
                    failing(),
                    Step::text("there"),
                ]);
                let policy = policy().with_inputs_of_failed_call(results_if(keep));
                let client = case.stack(model.clone(), &store, policy, tools(&tool_log));
                let mut request = case.ask("where?");
                let handle = request.run_handle();
                handle.queue(Message::user("quick"));
                send(&client, request).await.unwrap_err();
                let start = ["user where?", "user quick", "assistant look#c1", "tool c1=looked c1"];
                let kept = if keep { 4 } else { 3 };
                assert_eq!(stored(&store).await, start[..kept]);

                send(&client, case.ask("well?")).await.unwrap();
                let mut expected: Vec<_> = start.to_vec();
                let interrupted = format!("tool c1!{INTERRUPTED}");
                if !keep {
                    expected[3] = &interrupted;
                }
                expected.push("user well?");
                assert_eq!(sent_texts(&model, 2), expected);
            }
        })
        .await;
}

#[tokio::test]
async fn results_of_tools_that_ran_survive_a_layer_that_keeps_them_from_the_persister() {
    Cases::all()
        .with_all_ids()
        .modes([PerServiceCall], "per-run mode stores nothing, and a journaled run remains open")
        .in_memory("the test polls the run once")
        .check(async |case| {
            for (hangs, keep) in [(false, true), (true, true), (false, false)] {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let mut request = case.ask("where?");
                let handle = request.run_handle();
                let queue = move |_: &_| {
                    handle.queue(Message::user("quick"));
                    case.calls([("look", "c1")])
                };
                let model = ScriptedModel::new([Step::respond(queue), Step::text("there")]);
                let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
                let made = Arc::new(AtomicUsize::new(0));
                let between = service_fn(move |request: ChatRequest| {
                    let (below, number) = (below.clone(), made.fetch_add(1, Ordering::Relaxed));
                    async move {
                        match number {
                            1 if hangs => pending().await,
                            1 => Err("overloaded".into()),
                            _ => below.oneshot(request).await,
                        }
                    }
                });
                let policy = policy().with_inputs_of_failed_call(results_if(keep));
                let above = PerRunPersistence::new(store.clone()).mode(case.mode).policy(policy);
                let client = boxed(
                    above.layer(
                        ToolLoopLayer::new(tools(&tool_log))
                            .assume_persister_below(true)
                            .layer(between),
                    ),
                );
                let answer = poll_immediate(pin!(send(&client, request.clone()))).await;
                assert_eq!(answer.is_none(), hangs);
                let start = ["user where?", "assistant look#c1", "tool c1=looked c1", "user quick"];
                assert_eq!(stored(&store).await, start[..if keep { 3 } else { 2 }]);
                if keep {
                    send(&client, request).await.unwrap();
                    assert_eq!(sent_texts(&model, 1), start);
                    assert_eq!(tool_log.names(), ["look"], "the tool does not run again");
                }
            }
        })
        .await;
}

#[tokio::test]
async fn other_inputs_of_a_failing_call_are_not_stored_beside_the_results_by_policy() {
    Cases::all()
        .with_all_ids()
        .modes([PerServiceCall], "per-run mode stores nothing, and a journaled run remains open")
        .check(async |case| {
            let store = case.store().await;
            let mut request = case.ask("where?");
            let handle = request.run_handle();
            let queueing = handle.clone();
            let model = ScriptedModel::new([
                Step::respond(move |_| {
                    queueing.queue(Message::user("quick"));
                    case.calls([("look", "c1")])
                }),
                Step::error("overloaded"),
            ]);
            let policy = policy().with_inputs_of_failed_call(UnansweredInputs::Results);
            let client = case.stack(model, &store, policy, tools(&ToolLog::default()));
            send(&client, request).await.unwrap_err();
            let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
            assert_eq!(stored(&store).await, all);
            assert_eq!(handle.take_queued().len(), 1, "the queued message can be sent again");
        })
        .await;
}

#[tokio::test]
async fn a_crash_between_calls_leaves_a_history_that_replays() {
    Cases::all()
        .with_all_ids()
        .modes([PerServiceCall], "per-run mode stores nothing, and `faults` kills journaled runs")
        .check(async |case| {
            let store = case.store().await;
            let gate = Gate::closed();
            let model = ScriptedModel::new([
                case.calls([("look", "c1"), ("wait", "c2")]),
                Step::text("there"),
            ]);
            let tools = tools_with_gate(&ToolLog::default(), &gate);
            let client = case.stack(model.clone(), &store, policy(), tools);
            let call = tokio::spawn({
                let client = client.clone();
                async move { send(&client, case.ask("where?")).await }
            });
            gate.reached(1).await;
            let left = stored(&store).await;
            assert_eq!(left, ["user where?", "assistant look#c1 wait#c2"]);
            call.abort();
            let _ = call.await;
            send(&client, case.ask("well?")).await.unwrap();
            let shown = sent_texts(&model, 1);
            assert_eq!(shown.first().unwrap(), "user where?");
            assert_eq!(shown.last().unwrap(), "user well?");
            assert_eq!(shown[1], "assistant look#c1 wait#c2");
            let results = format!("tool c1=looked c1 c2!{INTERRUPTED}");
            assert_eq!(shown[2], results, "the outcome of the second call is unknown");
        })
        .await;
}

#[tokio::test]
async fn an_answer_of_several_messages_is_stored_whole() {
    every_id(async |case| {
        let store = case.store().await;
        let several = Step::answer(
            [Message::assistant("let me look"), case.call_message([("look", "c1")])],
            tower_chat::Finish::stop(),
        );
        let model = ScriptedModel::new([several, Step::text("there")]);
        send(&case.agent(&model, &store), case.ask("where?")).await.unwrap();
        let all = [
            "user where?",
            "assistant let me look",
            "assistant look#c1",
            "tool c1=looked c1",
            "assistant there",
        ];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 1), all[..4]);
    })
    .await;
}

#[tokio::test]
async fn an_answer_without_messages_stores_its_input() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::answer([], tower_chat::Finish::stop())]);
        send(&case.agent(&model, &store), case.ask("hi")).await.unwrap();
        assert_eq!(stored(&store).await, ["user hi"]);
    })
    .await;
}

#[tokio::test]
async fn the_inputs_of_a_call_without_an_answer_are_kept_by_policy() {
    let cases = Cases::all().modes(
        [PerServiceCall],
        "per-run mode stores nothing of the run, and journaled mode stages all of it",
    );
    cases
        .check(async |case| {
            use UnansweredInputs::{All, None, Results};
            for ((kept, count), is_dropped) in
                cases!([(All, 4), (Results, 3), (None, 2)], [true, false])
            {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let mut request = case.ask("where?");
                let handle = request.run_handle();
                let queue = move |_: &_| {
                    handle.queue(Message::user("quick"));
                    case.calls([("look", "c1")])
                };
                let last = if is_dropped { Step::hang() } else { Step::error("overloaded") };
                let model = ScriptedModel::new([Step::respond(queue), last]);
                let policy = match is_dropped {
                    true => policy().with_inputs_of_dropped_call(kept),
                    false => policy().with_inputs_of_failed_call(kept),
                };
                let client = case.stack(model.clone(), &store, policy, tools(&tool_log));
                match is_dropped {
                    true => until_called(&model, 2, send(&client, request)).await,
                    false => drop(send(&client, request).await.unwrap_err()),
                }
                let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "user quick"];
                assert_eq!(stored(&store).await, all[..count]);
            }
        })
        .await;
}
