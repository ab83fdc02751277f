//! Tests that a stopped run stores the messages that it has received, in every mode, and that the
//! next run continues with a valid history.

use std::pin::pin;

use futures_util::poll;
use tower::Layer;
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatUpdate, HistoryStore, Message, PersistenceError, Role,
    ToolContext,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::Messages,
    policy::StoreFailure,
    request::EndedBy,
    store::{InvocationQuery, ToolCallQueries},
    tool::{ToolInvocation, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::common::*;

const STOPPED: &str = "The call was not run: the run was stopped before the call started.";

/// Returns the id and the status of each stored tool call.
async fn statuses(store: &Store) -> Vec<(String, ToolStatus)> {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let of = |call: &ToolInvocation| label(&call.arguments).unwrap_or_default();
    found.iter().map(|(_, call)| (of(call), call.status)).collect()
}

/// Returns for each call whether its tool has started.
async fn started(store: &Store) -> Vec<bool> {
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    found.iter().map(|(_, call)| call.started_at.is_some()).collect()
}

/// Asserts that no run is open, and that the next run sends these messages to its model.
async fn assert_can_continue(case: Case, store: &Store, shown: &[&str]) {
    assert!(store.inner().head(&key()).await.unwrap().open_run.is_none());
    let model = ScriptedModel::new([Step::text("on it goes")]);
    send(&case.agent(&model, store), case.ask("and now?")).await.unwrap();
    let sent = sent_texts(&model, 0);
    assert_eq!(sent[..shown.len()], *shown);
    assert_eq!(sent[shown.len()..], ["user and now?"]);
}

async fn stopped_at(
    client: &Client,
    mut request: ChatRequest,
    store: Option<&Store>,
    there: impl Future,
) -> Answer {
    let handle = request.run_handle();
    let mut run = pin!(send(client, request));
    {
        let mut there = pin!(there);
        while poll!(there.as_mut()).is_pending() {
            assert!(poll!(run.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
    }
    // The run completes its writes while it is polled, and then waits.
    for _ in 0..10 {
        assert!(poll!(run.as_mut()).is_pending(), "the run waits at this point");
        if let Some(store) = store {
            store.inner().flush().await.unwrap();
        }
    }
    handle.stop();
    let answer = run.await.unwrap();
    assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
    answer
}

async fn called(model: &ScriptedModel, count: usize) {
    while model.requests().len() < count {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_while_it_waits_for_the_model_keeps_its_messages() {
    every_case(async |case| {
        let (store, model, client) = case.begin([case.calls([("look", "c1")]), Step::hang()]).await;
        let there = called(&model, 2);
        let request = case.ask("where?");
        let answer = stopped_at(&client, request.clone(), Some(&store), there).await;
        assert_eq!(shorts(&answer.messages), ["assistant look#c1", "tool c1=looked c1"]);
        let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
        let mut in_store = all.to_vec();
        if case.is(PerServiceCall) {
            // The dropped service call has already stored the results. An empty message after them
            // therefore marks the end of the run.
            in_store.push("assistant");
        }
        assert_eq!(stored(&store).await, in_store);
        assert_eq!(statuses(&store).await, [("c1".to_owned(), ToolStatus::Ok)]);
        let again = send(&case.agent(&model, &store), request).await.unwrap();
        assert_eq!(shorts(&again.messages), all[1..], "the same request returns the same answer");
        assert_eq!(model.requests().len(), 2);
        assert_can_continue(case, &store, &all).await;
    })
    .await;
}

#[tokio::test]
async fn the_text_of_an_answer_that_was_streamed_is_kept() {
    Cases::all()
        .streamed("a whole answer shows no part of its text")
        .check(async |case| {
            let (store, model, client) = case
                .begin([case.calls([("look", "c1")]), Step::text("half an answer").hangs_after(1)])
                .await;
            let mut request = case.ask("where?").streamed();
            let handle = request.run_handle();
            let sent = request.clone();
            let mut response = head(&client, request).await.unwrap();
            let mut messages = Vec::new();
            let mut finish = None;
            let mut text = String::new();
            while let Some(update) = response.next().await {
                match update.unwrap() {
                    ChatUpdate::TextDelta(delta) => {
                        text.push_str(&delta);
                        handle.stop();
                    }
                    ChatUpdate::Message(message) => messages.push(message),
                    ChatUpdate::Finish(end) => finish = Some(end),
                    _ => {}
                }
            }
            assert_eq!(finish.unwrap().ended_by, Some(EndedBy::Stop));
            assert!(!text.is_empty() && "half an answer".starts_with(&text));
            let partial = format!("assistant {text}");
            let answer = ["assistant look#c1", "tool c1=looked c1", &partial];
            assert_eq!(shorts(&messages), answer);
            assert_eq!(messages[2].metadata["interrupted"], true);
            let all = ["user where?", answer[0], answer[1], answer[2]];
            assert_eq!(stored(&store).await, all);
            let again = send(&case.agent(&model, &store), sent).await.unwrap();
            assert_eq!(shorts(&again.messages), answer, "the same request returns the same answer");
            assert_can_continue(case, &store, &all).await;
        })
        .await;
}

#[tokio::test]
async fn a_run_that_was_stopped_during_its_first_answer_accepts_no_further_input() {
    Cases::all()
        .streamed("a whole answer shows no part of its text")
        .check(async |case| {
            let (store, model, client) =
                case.begin([Step::text("half an answer").hangs_after(1)]).await;
            let mut request = case.ask("where?").streamed();
            let handle = request.run_handle();
            let mut longer = request.clone();
            longer.set_new_messages(Messages::from_iter(["where?", "when?"].map(Message::user)));
            let mut response = head(&client, request).await.unwrap();
            while let Some(update) = response.next().await {
                if let ChatUpdate::TextDelta(_) = update.unwrap() {
                    handle.stop();
                }
            }
            let before = stored(&store).await;
            assert_eq!(before.len(), 2, "{before:?}");
            let error = refused(send(&case.agent(&model, &store), longer).await);
            assert!(matches!(error, PersistenceError::RunIdReused { .. }), "{error}");
            assert_eq!(stored(&store).await, before);
            assert_eq!(model.requests().len(), 1);
        })
        .await;
}

#[tokio::test]
async fn a_stopped_run_has_results_for_interrupted_calls_and_for_calls_that_never_began() {
    for concurrent in [true, false] {
        every_id(async |case| {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let gate = Gate::closed();
            let model =
                ScriptedModel::new([case.calls([("look", "c1"), ("wait", "c2"), ("look", "c3")])]);
            let tools = tools_with_gate(&tool_log, &gate);
            let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
            let tool_loop = ToolLoopLayer::new(tools).concurrent(concurrent).layer(below);
            let above = PerRunPersistence::new(store.clone()).mode(case.mode);
            let client = boxed(above.layer(tool_loop));
            let there = gate.reached(1);
            let answer = stopped_at(&client, case.ask("where?"), Some(&store), there).await;
            let last = match concurrent {
                true => "c3=looked c3".to_owned(),
                false => format!("c3!{STOPPED}"),
            };
            let results = format!("tool c1=looked c1 c2!{INTERRUPTED} {last}");
            let calls = "assistant look#c1 wait#c2 look#c3";
            assert_eq!(shorts(&answer.messages), [calls, &results]);
            let all = ["user where?", calls, &results];
            assert_eq!(stored(&store).await, all);
            let of = |label: &str, status| (label.to_owned(), status);
            let third = if concurrent { ToolStatus::Ok } else { ToolStatus::Stopped };
            let statuses_of =
                [of("c1", ToolStatus::Ok), of("c2", ToolStatus::Interrupted), of("c3", third)];
            assert_eq!(statuses(&store).await, statuses_of);
            assert_eq!(started(&store).await, [true, true, concurrent]);
            assert_can_continue(case, &store, &all).await;
        })
        .await;
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_before_it_begins_keeps_its_input_and_pays_nothing() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([]);
        let mut request = case.ask("where?");
        let sent_again = request.clone();
        request.run_handle().stop();
        let answer = send(&case.agent(&model, &store), request).await.unwrap();
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
        assert_eq!(shorts(&answer.messages), [""; 0]);
        assert_eq!(stored(&store).await, ["user where?", "assistant"]);
        let again = send(&case.agent(&model, &store), sent_again).await.unwrap();
        assert_eq!(again.finish.ended_by, Some(EndedBy::Stop));
        assert_eq!(shorts(&again.messages), [""; 0]);
        assert!(model.requests().is_empty());
        assert_can_continue(case, &store, &["user where?"]).await;
    })
    .await;
}

#[tokio::test]
async fn an_interrupted_run_that_is_stopped_before_it_continues_has_results_for_its_calls() {
    let reason = "per-run mode stores no interrupted run";
    let interrupted_runs = Cases::all().modes([PerServiceCall, Journaled], reason);
    for is_sent in [false, true] {
        let scenario = async |case: Case| {
            let (store, tool_log, gate) = (case.store().await, ToolLog::default(), Gate::closed());
            let tools = tools_with_gate(&tool_log, &gate);
            let model = ScriptedModel::new([case.calls([("look", "c1"), ("wait", "c2")])]);
            let client = case.stack(model, &store, policy(), tools.clone());
            let mut request = case.ask("where?");
            tokio::select! {
                biased;
                answer = send(&client, request.clone()) => panic!("{answer:?}"),
                () = gate.reached(1) => {}
            }
            drop(client);

            let after = store.in_another_process();
            let model = ScriptedModel::new([Step::hang()]);
            let client = case.stack(model.clone(), &after, policy(), tools);
            let sent_again = request.clone();
            let answer = if is_sent {
                stopped_at(&client, request, Some(&after), called(&model, 1)).await
            } else {
                request.run_handle().stop();
                send(&client, request).await.unwrap()
            };
            assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
            // In per-service-call mode, the first attempt has stored the result of the finished
            // tool.
            let (calls, unknown) = ("assistant look#c1 wait#c2", format!("c2!{INTERRUPTED}"));
            let results = match case.mode {
                Journaled => vec![format!("tool c1=looked c1 {unknown}")],
                _ => vec!["tool c1=looked c1".to_owned(), format!("tool {unknown}")],
            };
            let all: Vec<_> = [calls.to_owned()].into_iter().chain(results).collect();
            assert_eq!(shorts(&answer.messages), all);
            let in_store = stored(&after).await;
            assert_eq!((&*in_store[0], &in_store[1..]), ("user where?", &*all));
            let of = |label: &str, status| (label.to_owned(), status);
            let interrupted = of("c2", ToolStatus::Interrupted);
            assert_eq!(statuses(&after).await, [of("c1", ToolStatus::Ok), interrupted]);
            assert_eq!(tool_log.names(), ["look"], "no tool runs again");
            let again = send(&case.agent(&model, &after), sent_again).await.unwrap();
            assert_eq!(again.finish.ended_by, Some(EndedBy::Stop));
            assert_eq!(shorts(&again.messages), all);
            let shown: Vec<_> = in_store.iter().map(|message| &**message).collect();
            assert_can_continue(case, &after, &shown).await;
        };
        interrupted_runs.clone().check(scenario).await;
    }
}

#[tokio::test]
async fn a_run_that_is_stopped_before_it_continues_has_the_results_that_only_the_record_contains() {
    let reason =
        "in the other modes, the record never contains a result that an attempt continues with";
    Cases::all()
        .modes([PerServiceCall], reason)
        .check(async |case| {
            // The second answer is refused, because it reports that the service stores the history.
            // The result of `look` is stored only with its call.
            let steps = [case.calls([("look", "c1")]), kept("there", "resp_1")];
            let (store, tool_log, model, client) = case.begin_with_log(steps).await;
            let mut request = case.ask("where?");
            refused(send(&client, request.clone()).await);
            assert_eq!(stored(&store).await, ["user where?", "assistant look#c1"]);
            request.run_handle().stop();
            let answer = send(&client, request).await.unwrap();
            let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
            assert_eq!(shorts(&answer.messages), all[1..]);
            assert_eq!(stored(&store).await, all);
            assert_eq!(statuses(&store).await, [("c1".to_owned(), ToolStatus::Ok)]);
            assert_eq!((model.requests().len(), tool_log.names()), (2, vec!["look".to_owned()]));
            assert_can_continue(case, &store, &all).await;
        })
        .await;
}

#[tokio::test]
async fn a_stopped_tool_loop_without_a_layer_above_has_results_for_the_calls_of_an_earlier_attempt()
{
    for streamed in BOTH_WAYS {
        let (store, tool_log, gate) = (store(), ToolLog::default(), Gate::closed());
        let tools = tools_with_gate(&tool_log, &gate);
        let lone = |model: &ScriptedModel, store: &Store| {
            let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
            boxed(ToolLoopLayer::new(tools.clone()).layer(below))
        };
        let request = ask("where?", streamed);
        let client = lone(&ScriptedModel::new([calls([("wait", "c1")])]), &store);
        tokio::select! {
            biased;
            answer = send(&client, request.clone()) => panic!("{answer:?}"),
            () = gate.reached(1) => {}
        }
        drop(client);
        let after = store.in_another_process();
        let model = ScriptedModel::new([Step::hang()]);
        let client = lone(&model, &after);
        let answer = stopped_at(&client, request, Some(&after), called(&model, 1)).await;
        let result = format!("tool c1!{INTERRUPTED}");
        assert_eq!(shorts(&answer.messages), [&*result]);
        assert_eq!(stored(&after).await, ["user where?", "assistant wait#c1", &result]);
        let last = after.inner().load(&key()).await.unwrap().messages.last().unwrap().id;
        assert_eq!(answer.messages[0].id, last);
    }
}

#[tokio::test]
async fn approved_calls_of_a_run_that_is_stopped_before_it_begins_are_not_run() {
    every_id(async |case| {
        let (store, tool_log, _, client) = case.begin_with_log([case.calls([("pay", "c1")])]).await;
        let answer = send(&client, case.ask("buy")).await.unwrap();
        let yes = answer.approval_requests().map(|request| request.approve().into()).collect();
        let mut request = case.request_with([Message::new(Role::User, yes)]);
        request.run_handle().stop();
        let answer = send(&client, request).await.unwrap();
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(statuses(&store).await, [("c1".to_owned(), ToolStatus::Stopped)]);
        // If the process died after a claim, it would be unknown whether the tool has run.
        assert!(store.writes().iter().all(|write| write.claims().is_empty()));
        let result = format!("tool c1!{STOPPED}");
        assert_can_continue(case, &store, &["user buy", "assistant pay#c1", &result]).await;
    })
    .await;
}

#[tokio::test]
async fn a_tool_may_stop_its_run() {
    every_case(async |case| {
        let store = case.store().await;
        let mut request = case.ask("where?");
        let handle = request.run_handle();
        let tool = tool_fn(definition("halt"), move |context: ToolContext| {
            handle.stop();
            let answer = format!("halted {}", label_of(&context));
            async move { Ok::<_, BoxError>(answer) }
        });
        let model = ScriptedModel::new([case.calls([("halt", "c1")])]);
        let client =
            case.stack(model.clone(), &store, policy(), tools(&ToolLog::default()).with(tool));
        let answer = send(&client, request).await.unwrap();
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
        let answered = ["assistant halt#c1", "tool c1=halted c1"];
        assert_eq!(shorts(&answer.messages), answered);
        let all = ["user where?", answered[0], answered[1]];
        assert_eq!(stored(&store).await, all);
        assert_can_continue(case, &store, &all).await;
    })
    .await;
}

#[tokio::test]
async fn a_stop_after_the_last_answer_changes_nothing() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::text("there")]);
        let mut request = case.ask("where?");
        let handle = request.run_handle();
        let answer = send(&case.agent(&model, &store), request).await.unwrap();
        handle.stop();
        assert_eq!(answer.finish.ended_by, None);
        assert_can_continue(case, &store, &["user where?", "assistant there"]).await;
    })
    .await;
}

#[tokio::test]
async fn a_stopped_run_without_persistence_gives_its_answer_so_far() {
    for streamed in BOTH_WAYS {
        let model = ScriptedModel::new([calls([("look", "c1")]), Step::hang()]);
        let tool_loop = ToolLoopLayer::new(tools(&ToolLog::default()));
        let client = boxed(tool_loop.layer(model.clone()));
        let mut request = ChatRequest::user("where?");
        if streamed {
            request = request.streamed();
        }
        let answer = stopped_at(&client, request, None, called(&model, 2)).await;
        assert_eq!(shorts(&answer.messages), ["assistant look#c1", "tool c1=looked c1"]);
        assert!(answer.finish.saved.is_none());
    }
}

#[tokio::test]
async fn messages_queued_for_the_service_call_in_progress_are_stored_if_the_run_is_stopped() {
    every_case(async |case| {
        let store = case.store().await;
        let mut request = case.ask("where?");
        let queueing = request.run_handle();
        let model = ScriptedModel::new([
            Step::respond(move |_| {
                queueing.queue(Message::user("quick"));
                case.calls([("look", "c1")])
            }),
            Step::hang(),
        ]);
        let client = case.agent(&model, &store);
        let there = called(&model, 2);
        let answer = stopped_at(&client, request.clone(), Some(&store), there).await;
        let answered = ["assistant look#c1", "tool c1=looked c1", "user quick"];
        assert_eq!(shorts(&answer.messages), answered);
        let all = ["user where?", answered[0], answered[1], answered[2]];
        // The end of a run is marked on its last message, but not on a queued message of the user.
        // An empty message of the model is therefore added.
        assert_eq!(stored(&store).await, [&all[..], &["assistant"]].concat());
        let again = send(&client, request).await.unwrap();
        assert_eq!(shorts(&again.messages), answered, "the same request returns the same answer");
        assert_eq!(model.requests().len(), 2);
        assert_can_continue(case, &store, &all).await;
    })
    .await;
}

#[tokio::test]
async fn an_answer_on_its_way_to_the_store_is_not_stopped_any_more() {
    let cases = Cases::all().modes(
        [PerServiceCall, Journaled],
        "in per-run mode, the tool loop has ended at this point",
    );
    cases
        .check(async |case| {
            for is_stored in [true, false] {
                let store = case.store().await;
                let holding = store.clone();
                let model = ScriptedModel::new([Step::respond(move |_| {
                    holding.hold_appends();
                    Step::text("there")
                })]);
                let policy = policy().on_store_failure(StoreFailure::FailCall);
                let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
                let mut request = case.ask("where?");
                let handle = request.run_handle();
                let mut run = pin!(send(&client, request));
                while model.requests().is_empty() {
                    assert!(poll!(run.as_mut()).is_pending());
                    tokio::task::yield_now().await;
                }
                for _ in 0..10 {
                    assert!(poll!(run.as_mut()).is_pending(), "the run waits for the store");
                }
                handle.stop();
                for _ in 0..10 {
                    assert!(poll!(run.as_mut()).is_pending(), "the run still waits for the store");
                }
                if !is_stored {
                    store.fail_next_append(disk_full());
                }
                store.release_appends();
                let result = run.await;
                if is_stored {
                    let answer = result.unwrap();
                    assert_eq!(shorts(&answer.messages), ["assistant there"]);
                    assert_eq!(answer.finish.ended_by, None);
                    assert_can_continue(case, &store, &["user where?", "assistant there"]).await;
                } else {
                    assert!(matches!(refused(result), PersistenceError::NotStored(_)));
                }
            }
        })
        .await;
}

/// The stop drops the service call, whose inputs are submitted then. No later write of the run
/// reports whether they were stored.
#[tokio::test]
async fn a_stop_whose_question_is_not_stored_fails_or_reports_it() {
    for on_failure in [StoreFailure::FailCall, StoreFailure::Continue] {
        stop_without_store(on_failure).await;
    }
}

async fn stop_without_store(on_failure: StoreFailure) {
    let modes = [PerRun, PerServiceCall];
    let cases =
        Cases::all().modes(modes, "journaled mode stages the input before the service call");
    cases
        .check(async |case| {
            let store = case.store().await;
            let model = ScriptedModel::new([Step::hang()]);
            let policy = policy().on_store_failure(on_failure);
            let client = case.stack(model.clone(), &store, policy, tools(&ToolLog::default()));
            let mut request = case.ask("where?");
            let handle = request.run_handle();
            let mut run = pin!(send(&client, request));
            while model.requests().is_empty() {
                assert!(poll!(run.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            store.fail_every_append(disk_full);
            handle.stop();
            match on_failure {
                StoreFailure::Continue => {
                    let finish = run.await.unwrap().finish;
                    assert_eq!(finish.ended_by, Some(EndedBy::Stop));
                    let saved = finish.saved.unwrap();
                    assert_eq!((saved.messages, saved.unsaved > 0), (0, true), "{saved:?}");
                }
                _ => assert!(matches!(refused(run.await), PersistenceError::NotStored(_))),
            }
        })
        .await;
}

#[tokio::test]
async fn approved_calls_of_a_stopped_run_are_answered_as_those_of_any_other() {
    every_id(async |case| {
        let (store, tool_log) = (case.store().await, ToolLog::default());
        let gate = Gate::closed();
        let asking = [("look", "c1"), ("wait", "c2"), ("pay", "c3")];
        let model = ScriptedModel::new([case.calls(asking)]);
        let client = case.stack(model.clone(), &store, policy(), tools_with_gate(&tool_log, &gate));
        let answer = send(&client, case.ask("buy")).await.unwrap();
        let yes = answer.approval_requests().map(|request| request.approve().into()).collect();
        let request = case.request_with([Message::new(Role::User, yes)]);
        let there = gate.reached(1);
        let answer = stopped_at(&client, request, Some(&store), there).await;
        assert_eq!(tool_log.names(), ["look"]);
        let results = format!("tool c1=looked c1 c2!{INTERRUPTED} c3!{STOPPED}");
        let calls = "assistant look#c1 wait#c2 pay#c3";
        let of = |label: &str, status| (label.to_owned(), status);
        let expected = [
            of("c1", ToolStatus::Ok),
            of("c2", ToolStatus::Interrupted),
            of("c3", ToolStatus::Stopped),
        ];
        assert_eq!(statuses(&store).await, expected);
        assert_eq!(answer.messages.len(), 1, "{answer:?}");
        assert_can_continue(case, &store, &["user buy", calls, &results]).await;
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_caller_is_shown_the_results_of_tools_while_the_model_is_still_at_work_on_them() {
    Cases::all()
        .streamed("the test reads updates before the end of the answer")
        .with_a_stopped_clock()
        .check(async |case| {
            let script = [calls([("look", "c1")]), Step::hang()];
            let (_, model, client) = case.begin(script).await;
            let mut response = head(&client, case.ask("where?")).await.unwrap();
            let mut shown = Vec::new();
            // The paused clock advances only when every task waits.
            let silence = std::time::Duration::from_secs(60);
            while let Ok(update) = tokio::time::timeout(silence, response.next()).await {
                if let Some(Ok(ChatUpdate::Message(message))) = update {
                    shown.push(message);
                }
            }
            assert_eq!(model.requests().len(), 2);
            assert_eq!(shorts(&shown), ["assistant look#c1", "tool c1=looked c1"]);
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_message_that_may_be_the_answer_is_shown_once_the_answer_is_complete() {
    Cases::all()
        .streamed("the test reads updates before the end of the answer")
        .with_a_stopped_clock()
        .check(async |case| {
            let gate = Gate::closed();
            let text = ChatUpdate::Message(std::sync::Arc::new(Message::assistant("over there")));
            let finish = ChatUpdate::Finish(tower_chat::Finish::stop().into());
            let (store, _, client) =
                case.begin([Step::updates([text, finish]).waits_after(1, &gate)]).await;
            let mut response = head(&client, case.ask("where?")).await.unwrap();
            // The paused clock advances only when every task waits.
            let silence = std::time::Duration::from_secs(60);
            let early = tokio::time::timeout(silence, response.next()).await;
            assert!(early.is_err(), "{early:?}");
            gate.open();
            assert_eq!(response.collect().await.unwrap().text(), "over there");
            assert_eq!(stored(&store).await, ["user where?", "assistant over there"]);
        })
        .await;
}
