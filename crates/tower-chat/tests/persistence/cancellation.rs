//! Whatever cuts a run short, the history is what the contract's table says, and the same for
//! every cause.

use std::time::{Duration, SystemTime};

use futures_util::{FutureExt, StreamExt};
use tower::{Layer, timeout::TimeoutLayer};
use tower_chat::{
    ChatPipeline, Clock, DeadlineExceeded, PerRunPersistence, PerServiceCallPersistence,
    PersistenceMode, ToolLoop, Tools,
    core::{ChatRequest, ChatUpdate, Message, ToolResult, store::HistoryStore},
    replay::{Freshness, OutdatedCalls, ReplayPolicy, ToolHistory},
};
use tower_chat_testkit::{Gate, ScriptedLeaf, Step};

use crate::common::*;

/// What cuts a run short that never ends by itself.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Cause {
    Dropped,
    Aborted,
    TimeoutAbove,
    Deadline,
}
use Cause::*;

const SOON: Duration = Duration::from_secs(5);

/// Lets a request run until nothing moves any more, then cuts it short. The clock is paused.
async fn cut_short(
    cause: Cause,
    leaf: &ScriptedLeaf,
    store: &Store,
    mode: PersistenceMode,
    tools: Tools,
    request: ChatRequest,
) {
    let client = stack(leaf.clone(), store, mode, policy(), tools.clone());
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
            let builder = ChatPipeline::builder(leaf.clone()).tools(tools).history(store.clone());
            let client = boxed(builder.persistence(mode).deadline(SOON).build().unwrap());
            let error = send(&client, request).await.expect_err("the run hangs");
            assert!(error.downcast_ref::<DeadlineExceeded>().is_some(), "{error:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn every_cause_leaves_the_same_history_wherever_the_leaf_hangs() {
    let before_head = || Step::hang();
    let mid_stream = || Step::text("never shown whole").hangs_after(1);
    for hanging in [before_head as fn() -> Step, mid_stream] {
        let is_mid_stream = format!("{:?}", hanging()).contains("Some");
        for cause in [Dropped, Aborted, TimeoutAbove, Deadline] {
            for streamed in BOTH_WAYS {
                for calls_before in [0, 1] {
                    if cause == TimeoutAbove && streamed && (is_mid_stream || calls_before > 0) {
                        // tower's timeout ends with the head; that is why there is a deadline.
                        continue;
                    }
                    for mode in BOTH_MODES {
                        let store = store();
                        let mut steps = vec![hanging()];
                        if calls_before == 1 {
                            steps.insert(0, calls([("look", "c1")]));
                        }
                        let leaf = ScriptedLeaf::new(steps);
                        let tools = tools(&Ran::default());
                        let request = ask("where?", streamed);
                        cut_short(cause, &leaf, &store, mode, tools, request).await;
                        let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
                        let kept = match (mode, calls_before) {
                            (PerRun, _) => 0,
                            (_, 0) => 1,
                            _ => 3,
                        };
                        let place = (cause, streamed, calls_before, mode);
                        assert_eq!(stored(&store).await, all[..kept], "{place:?}");
                    }
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn results_of_tools_that_have_finished_outlive_the_cancellation_of_their_siblings() {
    for cause in [Dropped, Aborted, Deadline] {
        for streamed in BOTH_WAYS {
            for mode in BOTH_MODES {
                let store = store();
                let leaf = ScriptedLeaf::new([calls([("look", "c1"), ("wait", "c2")])]);
                let tools = tools_with_gate(&Ran::default(), &Gate::closed());
                cut_short(cause, &leaf, &store, mode, tools, ask("where?", streamed)).await;
                let all = ["user where?", "assistant look#c1 wait#c2", "tool c1=looked c1"];
                let kept = if mode == PerRun { 0 } else { 3 };
                assert_eq!(stored(&store).await, all[..kept], "{cause:?} {streamed} {mode:?}");

                let leaf = ScriptedLeaf::new([Step::text("there")]);
                send(&agent(&leaf, &store, mode), ask("well?", streamed)).await.unwrap();
                if mode == PerServiceCall {
                    let shown = [
                        "user where?",
                        "assistant look#c1 wait#c2",
                        &format!("tool c1=looked c1 c2!{INTERRUPTED}"),
                        "user well?",
                    ];
                    assert_eq!(seen(&leaf, 0), shown);
                }
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_replay_leaves_out_of_finished_rounds_leaves_an_unfinished_one_too() {
    let later = || Clock::new(|| SystemTime::now() + Duration::from_secs(301));
    let replay = ReplayPolicy::default;
    for replay in [
        replay().freshness(Freshness::default()),
        replay().tool_history(ToolHistory::Omit),
        replay().outdated_calls(OutdatedCalls::keep().drop_unregistered()),
    ] {
        let store = store();
        let leaf = ScriptedLeaf::new([calls([("look", "c1"), ("wait", "c2")])]);
        let tools = tools_with_gate(&Ran::default(), &Gate::closed());
        cut_short(Dropped, &leaf, &store, PerServiceCall, tools, ask("where?", false)).await;
        let left = ["user where?", "assistant look#c1 wait#c2", "tool c1=looked c1"];
        assert_eq!(stored(&store).await, left);

        let answer = Message::tool_results([ToolResult::new("c2", "waited c2")]);
        let [of_new_input, of_answer] = [Message::user("well?"), answer].map(|input| {
            let (store, replay) = (store.inner().clone(), replay.clone());
            async move {
                let store = Store::new(store);
                let leaf = ScriptedLeaf::new([Step::error("down")]);
                let run = PerRunPersistence::new(store.clone())
                    .tools(Tools::new())
                    .policy(policy().replay(replay))
                    .clock(later());
                send(&boxed(run.layer(leaf.clone())), ask_with([input], false)).await.unwrap_err();
                seen(&leaf, 0)
            }
        });
        let interrupted = format!("tool c2!{INTERRUPTED}");
        let shown = ["user where?", "assistant wait#c2", &interrupted, "user well?"];
        assert_eq!(of_new_input.await, shown);
        assert_eq!(of_answer.await, ["user where?", "assistant wait#c2", "tool c2=waited c2"]);
    }
}

#[tokio::test]
async fn a_stream_dropped_after_any_update_has_stored_what_it_has_shown() {
    for mode in BOTH_MODES {
        let leaf = || ScriptedLeaf::new([calls([("look", "c1")]), Step::text("there")]);
        let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        let whole = head(&agent(&leaf(), &store(), mode), ask("where?", true)).await.unwrap();
        let updates: Vec<_> = whole.map(Result::unwrap).collect().await;
        let last_message =
            updates.iter().rposition(|update| matches!(update, ChatUpdate::Message(_))).unwrap();
        for taken in 0..=updates.len() {
            let store = store();
            let client = agent(&leaf(), &store, mode);
            let response = head(&client, ask("where?", true)).await.unwrap();
            let shown: Vec<_> = response.take(taken).map(Result::unwrap).collect().await;
            assert_eq!(shown.len(), taken);
            let left = stored(&store).await;
            if taken > last_message {
                assert_eq!(left, all, "{mode:?}, after {taken}: the answer was shown");
                continue;
            }
            match mode {
                PerServiceCall => {
                    assert!(all.starts_with(&left.iter().map(String::as_str).collect::<Vec<_>>()));
                    assert!(left.len() <= 3 && !left.is_empty(), "after {taken}: {left:?}");
                    let messages = shown.iter().filter(|u| matches!(u, ChatUpdate::Message(_)));
                    assert!(left.len() > messages.count().min(1), "after {taken}: {left:?}");
                }
                _ => assert_eq!(left, [""; 0], "after {taken}"),
            }
        }
    }
}

#[tokio::test]
async fn calls_that_come_back_unexecuted_are_stored_once_they_are_shown() {
    for mode in BOTH_MODES {
        for step in [
            calls([("ask", "c1")]),
            Step::updates([
                ChatUpdate::Message(call_message([("ask", "c1")]).into()),
                ChatUpdate::Finish(tower_chat::core::Finish::stop().into()),
            ]),
        ] {
            let store = store();
            let leaf = ScriptedLeaf::new([step]);
            let mut response = head(&agent(&leaf, &store, mode), ask("go", true)).await.unwrap();
            while let Some(update) = response.next().await {
                if matches!(update.unwrap(), ChatUpdate::Message(_)) {
                    break; // the caller has what it needs, and runs the tool itself
                }
            }
            drop(response);
            assert_eq!(stored(&store).await, ["user go", "assistant ask#c1"], "{mode:?}");
        }
    }
}

#[tokio::test]
async fn results_that_end_a_run_are_shown_once_it_is_stored() {
    for mode in BOTH_MODES {
        let store = store();
        let leaf = ScriptedLeaf::new([calls([("stop", "c1")])]);
        let mut response = head(&agent(&leaf, &store, mode), ask("go", true)).await.unwrap();
        while let Some(update) = response.next().await {
            let ChatUpdate::Message(message) = update.unwrap() else { continue };
            if message.results().next().is_some() {
                break;
            }
        }
        drop(response);
        assert_eq!(stored(&store).await, ["user go", "assistant stop#c1"], "{mode:?}");
    }
}

#[tokio::test]
async fn calls_are_shown_while_their_tools_are_running() {
    for mode in BOTH_MODES {
        let gate = Gate::closed();
        let leaf = ScriptedLeaf::new([calls([("wait", "c1")]), Step::text("there")]);
        let tools = tools_with_gate(&Ran::default(), &gate);
        let client = stack(leaf, &store(), mode, policy(), tools);
        let mut response = head(&client, ask("go", true)).await.unwrap();
        loop {
            let update = response.next().now_or_never();
            let update = update.expect("the call is shown before its tool is done");
            if matches!(update.unwrap().unwrap(), ChatUpdate::Message(_)) {
                break;
            }
        }
        gate.open();
        assert_eq!(response.collect().await.unwrap().text(), "there");
    }
}

#[tokio::test]
async fn a_call_dropped_before_the_store_had_room_keeps_its_inputs() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let (store, gate) = (store(), Gate::closed());
            let leaf = ScriptedLeaf::new([
                Step::respond({
                    let (store, gate) = (store.clone(), gate.clone());
                    move |_| {
                        store.hold_next_reserve(&gate);
                        calls([("look", "c1")])
                    }
                }),
                Step::text("there"),
            ]);
            if mode == PerRun {
                store.hold_next_reserve(&gate);
            }
            let client = agent(&leaf, &store, mode);
            tokio::select! {
                biased;
                answer = send(&client, ask("where?", streamed)) => panic!("{answer:?}"),
                () = gate.reached(1) => {}
            }
            let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
            let kept = if mode == PerRun { 0 } else { 3 };
            assert_eq!(stored(&store).await, all[..kept], "{mode:?}");
        }
    }
}

#[tokio::test]
async fn a_run_dropped_while_its_history_loads_stores_nothing() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let (store, gate) = (store(), Gate::closed());
            let leaf = ScriptedLeaf::new([Step::text("hello"), Step::text("there")]);
            let client = agent(&leaf, &store, mode);
            send(&client, ask("hi", streamed)).await.unwrap();
            store.hold_next_load(&gate);
            tokio::select! {
                biased;
                answer = send(&client, ask("where?", streamed)) => panic!("{answer:?}"),
                () = gate.reached(1) => {}
            }
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
            assert_eq!(leaf.requests().len(), 1);
        }
    }
}

#[tokio::test]
async fn an_answer_whose_end_has_come_is_stored_although_its_caller_goes_away() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([Step::text("hello")]);
            store.hold_appends();
            let client = agent(&leaf, &store, mode);
            tokio::select! {
                biased;
                answer = send(&client, ask("hi", streamed)) => panic!("{answer:?}"),
                () = store.holding(1) => {}
            }
            store.release_appends();
            assert_eq!(stored(&store).await, ["user hi", "assistant hello"], "{mode:?}");
        }
    }
}

#[tokio::test]
async fn errors_of_the_leaf_leave_the_history_of_the_table() {
    let errors: [fn() -> Step; 3] = [
        || Step::error("overloaded"),
        || Step::text("half").fails_after(1, "reset"),
        || Step::text("half").cut_off_after(1),
    ];
    for error in errors {
        for streamed in BOTH_WAYS {
            for mode in BOTH_MODES {
                let store = store();
                let leaf = ScriptedLeaf::new([calls([("look", "c1")]), error()]);
                let client = agent(&leaf, &store, mode);
                send(&client, ask("where?", streamed)).await.unwrap_err();
                let all = ["user where?", "assistant look#c1", "tool c1=looked c1"];
                let kept = if mode == PerRun { 0 } else { 3 };
                assert_eq!(stored(&store).await, all[..kept]);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_timeout_below_the_persister_is_an_error_of_the_service() {
    for streamed in BOTH_WAYS {
        for mode in BOTH_MODES {
            let store = store();
            let leaf = ScriptedLeaf::new([Step::hang()]);
            let below = boxed(TimeoutLayer::new(SOON).layer(leaf.clone()));
            let client = stack(below, &store, mode, policy(), tools(&Ran::default()));
            send(&client, ask("hi", streamed)).await.unwrap_err();
            assert_eq!(stored(&store).await, [""; 0], "no inputs, unlike for a timeout above");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_deadline_does_not_cut_short_an_answer_that_is_there() {
    for streamed in BOTH_WAYS {
        let store = store();
        let leaf = ScriptedLeaf::new([Step::text("hello")]);
        let builder = ChatPipeline::builder(leaf).history(store.clone()).deadline(SOON);
        let client = boxed(builder.build().unwrap());
        let response = head(&client, ask("hi", streamed)).await.unwrap();
        assert_eq!(response.collect().await.unwrap().text(), "hello");
        assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_message_is_stored_or_queued_again_and_never_both() {
    let mid_stream = || Step::text("never shown whole").hangs_after(1);
    // A timeout between loop and persister ends with the head.
    for (hanging, below) in
        [(Step::hang as fn() -> Step, false), (Step::hang, true), (mid_stream, false)]
    {
        for streamed in BOTH_WAYS {
            for mode in [PerRun, PerServiceCall, PersistenceMode::Journaled] {
                let store = store();
                let leaf = ScriptedLeaf::new([hanging(), Step::text("there")]);
                let persister = PerServiceCallPersistence::new(store.clone()).layer(leaf.clone());
                let patience = if below { SOON } else { Duration::MAX };
                let persister = boxed(TimeoutLayer::new(patience).layer(persister));
                let above = PerRunPersistence::new(store.clone()).mode(mode);
                let client = boxed(above.layer(ToolLoop::new(Tools::new()).layer(persister)));
                let mut request = ask("where?", streamed);
                let handle = request.run_handle();
                handle.queue(Message::user("quick"));
                let run = tokio::time::timeout(2 * SOON, send(&client, request.clone())).await;
                assert_eq!(run.is_ok_and(|answer| answer.is_err()), below);

                let all = ["user where?", "user quick", "assistant there"];
                let place = (streamed, below, mode);
                let is_stored = mode == PerServiceCall;
                assert_eq!(stored(&store).await, all[..if is_stored { 2 } else { 0 }], "{place:?}");
                assert_eq!(handle.has_queued(), !is_stored, "{place:?}");
                send(&client, request).await.unwrap();
                assert_eq!(seen(&leaf, 1), all[..2], "{place:?}");
                assert_eq!(stored(&store).await, all, "{place:?}");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_conversation_goes_on_after_a_cancellation() {
    for cause in [Dropped, Aborted, TimeoutAbove, Deadline] {
        for streamed in BOTH_WAYS {
            for mode in BOTH_MODES {
                let store = store();
                let leaf = ScriptedLeaf::new([Step::hang()]);
                let tools = tools(&Ran::default());
                cut_short(cause, &leaf, &store, mode, tools, ask("hi", streamed)).await;
                let leaf = ScriptedLeaf::new([Step::text("hello")]);
                send(&agent(&leaf, &store, mode), ask("still there?", streamed)).await.unwrap();
                let messages = stored(&store).await;
                assert_eq!(messages.last().unwrap(), "assistant hello");
                assert_eq!(messages.len(), if mode == PerRun { 2 } else { 3 });
                let history = store.inner().load(&key()).await.unwrap();
                let valid = history
                    .messages
                    .iter()
                    .all(|message: &std::sync::Arc<Message>| message.id.is_some());
                assert!(valid);
            }
        }
    }
}
