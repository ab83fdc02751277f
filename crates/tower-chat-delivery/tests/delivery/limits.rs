//! Tests of the limits of detached runs.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};
use tower::{Layer, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatRequest, ChatResponse, ChatUpdate, MemoryStore, PersistenceMode,
    error::is_retryable, request::EndedBy,
};
use tower_chat_delivery::{DeliveryError, DetachedRunsLayer, MemoryUpdateLog, UpdatePosition};
use tower_chat_testkit::Step;

use crate::support::{Server, deltas, request};

/// A service that returns a response without an end. The stack has no tool loop, so that no layer
/// ends the response of a stopped run.
async fn endless(_: ChatRequest) -> Result<ChatResponse, BoxError> {
    let deltas = stream::repeat(()).then(|()| async {
        sleep(Duration::from_millis(100)).await;
        Ok(ChatUpdate::TextDelta("x".to_owned()))
    });
    Ok(ChatResponse::stream(deltas))
}

async fn failure(response: ChatResponse) -> String {
    let error = response.collect().await.unwrap_err();
    let Some(DeliveryError::Failed { source, .. }) = error.downcast_ref() else {
        panic!("{error:?}")
    };
    source.to_string()
}

const NOT_ENDED: &str = "the run was stopped, but its service did not end the response in time";

#[tokio::test(start_paused = true)]
async fn a_response_that_ignores_a_stop_is_dropped_after_a_lease() {
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let (request, run) = request();
    let response = runs.layer(service_fn(endless)).oneshot(request).await.unwrap();
    runs.stop(&run).await.unwrap();
    let stopped_at = Instant::now();
    assert_eq!(failure(response).await, NOT_ENDED);
    let passed = stopped_at.elapsed();
    assert!((Duration::from_secs(15)..Duration::from_secs(16)).contains(&passed), "{passed:?}");
    runs.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_response_of_twice_the_size_is_dropped() {
    // Each stored delta has 12 bytes, so that the updates exceed the limit after 10 seconds.
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new()).with_max_bytes_per_run(1200);
    let began_at = Instant::now();
    let (request, _) = request();
    let response = runs.layer(service_fn(endless)).oneshot(request).await.unwrap();
    assert_eq!(failure(response).await, NOT_ENDED);
    let passed = began_at.elapsed();
    assert!((Duration::from_secs(20)..Duration::from_secs(21)).contains(&passed), "{passed:?}");
}

fn server(runs: DetachedRunsLayer, steps: impl IntoIterator<Item = Step>) -> Server {
    Server::new(steps, runs, MemoryStore::new(), PersistenceMode::PerServiceCall)
}

#[tokio::test(start_paused = true)]
async fn the_number_of_runs_is_bounded() {
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new()).with_max_runs(1);
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
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::TooManyRuns { max_runs: 1, .. })));
    assert_eq!(is_retryable(&*error), Some(true));
    server.runs.stop(&run).await.unwrap();
    server.runs.drained().await;
    server.call(second).await.unwrap().collect().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_with_too_many_bytes_is_stopped() {
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new()).with_max_bytes_per_run(1000);
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
    let max_time = Duration::from_secs(100);
    let runs =
        DetachedRunsLayer::new(MemoryUpdateLog::new()).with_max_time_without_reader(Some(max_time));
    let step = Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1);
    let server = server(runs, [step]);
    let (request, run) = request();
    let response = server.call(request).await.unwrap();
    tokio::time::sleep(max_time * 2).await;
    drop(response);
    tokio::time::sleep(max_time - Duration::from_secs(1)).await;
    // From now on the run has a reader, so that the time without a reader does not continue.
    let reader = server.attach(&run, UpdatePosition::START).await;
    tokio::time::sleep(max_time * 2).await;
    drop(reader);
    tokio::time::sleep(max_time - Duration::from_secs(1)).await;
    assert_eq!(server.runs.in_progress(), 1);
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(server.runs.in_progress(), 0);
}
