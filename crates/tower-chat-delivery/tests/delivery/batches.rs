//! Tests of the times at which the task of a run appends updates, and at which readers receive
//! them.

use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::{Instant, sleep};
use tower::{Layer, Service, ServiceExt, service_fn};
use tower_chat::{BoxError, ChatRequest, ChatResponse, ChatUpdate, Finish};
use tower_chat_delivery::{DetachedRunsLayer, MemoryUpdateLog};

use crate::{
    faulty_log::FaultyLog,
    support::{positions, request},
};

/// A model that streams 500 deltas, one every 20 ms.
async fn steady(_: ChatRequest) -> Result<ChatResponse, BoxError> {
    let deltas = stream::iter(0..500).then(|index| async move {
        sleep(Duration::from_millis(20)).await;
        Ok(ChatUpdate::TextDelta(format!(" {index}")))
    });
    let finish = stream::iter([Ok(ChatUpdate::Finish(Finish::stop().into()))]);
    Ok(ChatResponse::stream(deltas.chain(finish)))
}

/// Returns the number of appends to the log, and the longest time between two deltas that the
/// caller has received.
async fn delivered(runs: DetachedRunsLayer, log: &FaultyLog) -> (usize, Duration) {
    let mut stack = runs.layer(service_fn(steady));
    let (request, run) = request();
    let mut response = stack.ready().await.unwrap().call(request).await.unwrap();
    let (mut last, mut longest, mut count) = (Instant::now(), Duration::ZERO, 0);
    while let Some(update) = response.next().await {
        if let ChatUpdate::TextDelta(_) = update.unwrap() {
            count += 1;
            longest = longest.max(last.elapsed());
            last = Instant::now();
        }
    }
    assert_eq!(count, 500);
    runs.drained().await;
    assert_eq!(positions(log, &run).await.len(), 502);
    (log.appends(), longest)
}

#[tokio::test(start_paused = true)]
async fn deltas_are_delivered_at_once_and_appended_once_a_second() {
    let log = FaultyLog::new(MemoryUpdateLog::new(), &[]);
    let (appends, longest) = delivered(DetachedRunsLayer::new(log.clone()), &log).await;
    assert!(longest <= Duration::from_millis(25), "{longest:?}");
    assert!(appends <= 11, "{appends} appends in 10 seconds");
}

#[tokio::test(start_paused = true)]
async fn durable_delivery_appends_four_times_a_second() {
    let log = FaultyLog::new(MemoryUpdateLog::new(), &[]);
    let runs = DetachedRunsLayer::new(log.clone()).durable_delivery();
    let (appends, longest) = delivered(runs, &log).await;
    assert!(longest <= Duration::from_millis(300), "{longest:?}");
    assert!(longest >= Duration::from_millis(200), "{longest:?}");
    assert!(appends <= 41, "{appends} appends in 10 seconds");
}

#[tokio::test(start_paused = true)]
async fn a_large_batch_is_appended_early() {
    let log = FaultyLog::new(MemoryUpdateLog::new(), &[]);
    let runs = DetachedRunsLayer::new(log.clone()).with_batches(Duration::from_secs(60), 400);
    let (appends, _) = delivered(runs, &log).await;
    // Each stored delta has about 15 bytes.
    assert!((12..=40).contains(&appends), "{appends}");
}

#[tokio::test(start_paused = true)]
async fn readers_with_durable_delivery_receive_only_logged_updates() {
    let log = FaultyLog::new(MemoryUpdateLog::new(), &[]);
    let runs = DetachedRunsLayer::new(log.clone()).durable_delivery();
    let mut stack = runs.layer(service_fn(steady));
    let (request, run) = request();
    let mut response = stack.ready().await.unwrap().call(request).await.unwrap();
    let mut received = 0;
    while let Some(update) = response.next().await {
        update.unwrap();
        received += 1;
        assert!(positions(&log, &run).await.len() >= received);
    }
    assert_eq!(received, 502);
}
