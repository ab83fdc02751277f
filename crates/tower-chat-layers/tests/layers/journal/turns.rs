//! Tests several runs that begin at the same time in one conversation. They are rejected, queued,
//! or continued in a branch. The messages of two runs are never mixed.

use std::time::Duration;

use tower::{Layer, limit::ConcurrencyLimitLayer};
use tower_chat::{PersistenceError, policy::ConcurrentRuns, store::Directory};
use tower_chat_testkit::{Gate, ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

#[tokio::test]
async fn a_second_run_is_rejected_before_the_model_is_paid_and_so_is_a_retry_of_the_first() {
    for (mode, streamed) in cases!(ALL_MODES, BOTH_WAYS) {
        let (store, gate) = (store(), Gate::closed());
        let setup = Setup::new(&store).mode(mode);
        let model = ScriptedModel::new([Step::text("hello").waits(&gate)]);
        let client = setup.stack(&model, BookingTools::default().tools());
        let request = ask("hi", streamed);
        let first = tokio::spawn({
            let (client, request) = (client.clone(), request.clone());
            async move { send(&client, request).await }
        });
        model.called(1).await;
        for other in [ask("me too", streamed), request] {
            let error = refused(send(&client, other).await);
            assert!(matches!(error, PersistenceError::RunUnderWay { .. }), "{error:?}");
        }
        gate.open();
        first.await.unwrap().unwrap();
        assert_eq!(model.requests().len(), 1);
        assert_eq!(stored(&store).await, ["user hi", "assistant hello"]);
    }
}

#[tokio::test]
async fn queued_runs_begin_in_the_order_of_their_arrival_and_the_queue_is_bounded() {
    for mode in ALL_MODES {
        let (store, gate) = (store(), Gate::closed());
        let policy = policy().with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 3 });
        let setup = Setup::new(&store).mode(mode).policy(policy);
        let echo = |request: &tower_chat::ChatRequest| {
            Step::text(short(request.messages().last().unwrap()))
        };
        let steps = (0..5).map(|_| Step::respond(echo).waits(&gate));
        let model = ScriptedModel::new(steps);
        let client = setup.stack(&model, BookingTools::default().tools());
        let mut runs = Vec::new();
        for text in ["a", "b", "c", "d"] {
            let client = client.clone();
            runs.push(tokio::spawn(async move { send(&client, ask(text, false)).await }));
            tokio::task::yield_now().await;
        }
        model.called(1).await;
        let error = refused(send(&client, ask("e", false)).await);
        assert!(matches!(error, PersistenceError::RunUnderWay { .. }), "{mode:?} {error:?}");
        // A dropped run leaves the queue, and does not block the runs after it.
        runs.remove(1).abort();
        tokio::task::yield_now().await;
        gate.open();
        for run in runs {
            run.await.unwrap().unwrap();
        }
        let all =
            ["a", "c", "d"].map(|text| [format!("user {text}"), format!("assistant user {text}")]);
        assert_eq!(stored(&store).await, all.concat(), "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_queued_run_holds_no_permit_of_a_service_with_a_concurrency_limit() {
    for (mode, streamed) in cases!(ALL_MODES, BOTH_WAYS) {
        let (store, gate) = (store(), Gate::closed());
        let policy = policy().with_concurrent_runs(ConcurrentRuns::Queue { max_waiting: 1 });
        let booking_tools = BookingTools::default().with_gate_before("c1", &gate);
        let limited = ConcurrencyLimitLayer::new(1).layer(booking_model());
        let client = stack(limited, &store, mode, policy, booking_tools.tools());
        let begin = |text| {
            let (client, request) = (client.clone(), ask(text, streamed));
            let run = async move { send(&client, request).await };
            tokio::spawn(tokio::time::timeout(Duration::from_secs(3600), run))
        };
        let first = begin("trip");
        gate.reached(1).await;
        let second = begin("hi");
        tokio::task::yield_now().await;
        gate.open();
        for run in [first, second] {
            run.await.unwrap().expect("no deadlock").unwrap();
        }
        let next = ["user hi", "assistant hello"];
        assert_eq!(stored(&store).await, [&WHOLE_RUN[..], &next[..]].concat());
    }
}

#[tokio::test]
async fn a_concurrent_run_continues_in_a_branch_and_its_repetition_uses_the_same_branch() {
    for (mode, streamed) in cases!(ALL_MODES, BOTH_WAYS) {
        let (store, gate) = (store(), Gate::closed());
        let policy = policy().with_concurrent_runs(ConcurrentRuns::Branch);
        let setup = Setup::new(&store).mode(mode).policy(policy);
        let model = ScriptedModel::new([
            Step::text("hello"),
            Step::text("one").waits(&gate),
            Step::error("overloaded"),
            Step::text("two"),
        ]);
        let client = setup.stack(&model, BookingTools::default().tools());
        send(&client, ask("hi", streamed)).await.unwrap();
        let first = tokio::spawn({
            let client = client.clone();
            async move { send(&client, ask("first", streamed)).await }
        });
        model.called(2).await;
        let second = ask("second", streamed);
        send(&client, second.clone()).await.unwrap_err();
        gate.open();
        assert_eq!(first.await.unwrap().unwrap().finish.branch, None);
        let answer = send(&client, second.clone()).await.unwrap();
        let branch = answer.finish.branch.expect("the run continued in a branch");
        assert_eq!(branch.scope(), "alice");
        let before = ["user hi", "assistant hello"];
        let main: Vec<_> = before.into_iter().chain(["user first", "assistant one"]).collect();
        let other: Vec<_> = before.into_iter().chain(["user second", "assistant two"]).collect();
        assert_eq!(stored(&store).await, main);
        assert_eq!(stored_of(&store, &branch).await, other);
        let again = send(&client, second).await.unwrap();
        assert_eq!((again.text(), again.finish.branch), ("two".into(), Some(branch)));
        assert_eq!(model.requests().len(), 4);
        let listed = store.list("alice", None, 10).await.unwrap();
        assert_eq!(listed.len(), 2);
    }
}
