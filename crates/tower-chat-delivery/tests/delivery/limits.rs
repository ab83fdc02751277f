//! The limits of runs in tasks of their own.

use std::time::Duration;

use tower_chat::{EndedBy, MemoryStore, PersistenceMode, is_retryable};
use tower_chat_delivery::{DeliveryError, DetachedRuns, MemoryUpdateLog, UpdatePosition};
use tower_chat_testkit::Step;

use crate::support::{Server, deltas, request};

fn server(runs: DetachedRuns, steps: impl IntoIterator<Item = Step>) -> Server {
    Server::new(steps, runs, MemoryStore::new(), PersistenceMode::PerServiceCall)
}

#[tokio::test(start_paused = true)]
async fn the_number_of_runs_is_bounded() {
    let runs = DetachedRuns::new(MemoryUpdateLog::new()).with_max_runs(1);
    let server = server(runs, [Step::hang(), Step::text("Take a coat.")]);
    let (first, run) = request();
    let call = server.call(first.clone());
    tokio::select! {
        biased;
        _ = call => panic!("the model does not answer"),
        () = tokio::time::sleep(Duration::from_secs(1)) => {}
    }
    let (second, _) = request();
    let error = server.call(second.clone()).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::TooManyRuns { most: 1, .. })));
    assert_eq!(is_retryable(&*error), Some(true));
    server.runs.stop(&run).await.unwrap();
    server.runs.drained().await;
    server.call(second).await.unwrap().collect().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_with_too_many_bytes_is_stopped() {
    let runs = DetachedRuns::new(MemoryUpdateLog::new()).with_max_bytes_per_run(1000);
    let text = "x".repeat(2000);
    let step = Step::updates(deltas(&[&text, "y"])).hangs_after(1);
    let server = server(runs, [step]);
    let (request, _) = request();
    let answer = server.call(request).await.unwrap().collect().await.unwrap();
    assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
    assert_eq!(answer.text(), text);
}

#[tokio::test(start_paused = true)]
async fn a_run_without_a_reader_is_stopped_after_some_time() {
    let most = Duration::from_secs(100);
    let runs = DetachedRuns::new(MemoryUpdateLog::new()).with_max_time_without_reader(Some(most));
    let step = Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1);
    let server = server(runs, [step]);
    let (request, run) = request();
    let response = server.call(request).await.unwrap();
    tokio::time::sleep(most * 2).await;
    drop(response);
    tokio::time::sleep(most - Duration::from_secs(1)).await;
    // A reader ends the period.
    let reader = server.attach(&run, UpdatePosition::START).await;
    tokio::time::sleep(most * 2).await;
    drop(reader);
    tokio::time::sleep(most - Duration::from_secs(1)).await;
    assert_eq!(server.runs.in_progress(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(server.runs.in_progress(), 0);
}
