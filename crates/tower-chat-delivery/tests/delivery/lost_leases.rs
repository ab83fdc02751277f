//! Processes that lose the lease of a run without being killed.

use std::time::Duration;

use tokio::time::sleep;
use tower::{Layer, ServiceExt};
use tower_chat::{ChatUpdate, MemoryStore, PersistenceMode};
use tower_chat_delivery::{DeliveryError, DetachedRunsLayer, RunState, UpdateLog, UpdatePosition};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::{
    faulty_log::FaultyLog,
    support::{Server, deltas, request, rest, sketch, timed_log},
};

const LEASE: Duration = Duration::from_secs(15);

/// A model that waits for the gate before the second delta.
fn model(texts: [&str; 2], gate: &Gate) -> ScriptedModel {
    ScriptedModel::new([Step::updates(deltas(&texts)).waits_after(1, gate)])
}

#[tokio::test(start_paused = true)]
async fn readers_follow_the_next_attempt() {
    let (log, clock) = timed_log();
    let [former, latter] = [(); 2].map(|()| DetachedRunsLayer::new(log.clone()));
    let gate = Gate::closed();
    let first = former.layer(model(["Take ", "a coat."], &Gate::closed()));
    let second = latter.layer(model(["Take ", "boots."], &gate));
    let (request, run) = request();
    let mut response = first.clone().oneshot(request.clone()).await.unwrap();
    let update = response.next().await.unwrap().unwrap();
    assert_eq!(update, ChatUpdate::TextDelta("Take ".to_owned()));
    let early = former.attach(&run, UpdatePosition::START).await.unwrap();

    sleep(Duration::from_secs(2)).await; // the log receives the delta
    clock.advance(LEASE);
    let next = second.oneshot(request.clone()).await.unwrap();
    // The former owner learns of the next attempt with its next renewal.
    sleep(Duration::from_secs(6)).await;
    assert_eq!(former.in_progress(), 1, "the attempt that was stopped has not ended");
    let error = response.collect().await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::Interrupted { .. })), "{error:?}");
    assert_eq!(tower_chat::is_retryable(&*error), Some(true));
    // The same request joins the next attempt.
    let joined = first.oneshot(request).await.unwrap();
    let late = former.attach(&run, UpdatePosition::START).await.unwrap();
    gate.open();
    for response in [next, joined] {
        assert_eq!(response.collect().await.unwrap().text(), "Take boots.");
    }
    for reader in [early, late] {
        let events = sketch(&rest(reader).await);
        let rest =
            ["restarted 2", "Take ", "boots.", "message: Take boots.", "finish", "completed"];
        assert_eq!((&*events[0], &events[1..]), ("Take ", &rest.map(str::to_owned)[..]));
    }
    former.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_reaches_the_next_attempt() {
    let (log, clock) = timed_log();
    let step = Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1);
    let runs = DetachedRunsLayer::new(log.clone());
    let server = Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    let _response = server.call(request).await.unwrap();
    clock.advance(LEASE);
    log.begin(&run, 2, LEASE).await.unwrap();
    // This process has not learned yet that it has lost its lease.
    let state = server.runs.stop(&run).await.unwrap();
    assert_eq!(state, RunState::Open { attempt: 2, stop_requested: true });
    assert!(log.renew(&run, 2, LEASE).await.unwrap().stop_requested);
    server.runs.drained().await;
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_a_later_attempt_is_renewed_immediately() {
    let (memory, clock) = timed_log();
    let log = FaultyLog::new(memory, &[]);
    let (request, run) = request();
    log.begin(&run, 1, LEASE).await.unwrap();
    clock.advance(LEASE);
    // The task reads the updates of earlier attempts before it calls the service.
    log.set_slow_reads(clock.clone(), LEASE - Duration::from_secs(1));
    let runs = DetachedRunsLayer::new(log);
    let stack = runs.layer(model(["Take ", "a coat."], &Gate::closed()));
    let _response = stack.oneshot(request).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    clock.advance(Duration::from_secs(2));
    let open = RunState::Open { attempt: 2, stop_requested: false };
    assert_eq!(runs.state(&run).await.unwrap(), open);
}
