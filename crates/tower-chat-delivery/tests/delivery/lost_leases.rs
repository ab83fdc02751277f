//! Tests of processes that lose the lease of a run, although they were not killed.

use std::time::Duration;

use tokio::time::{sleep, timeout};
use tower::{Layer, ServiceExt};
use tower_chat::{
    ChatRequest, ChatUpdate, HistoryStore, MemoryStore, Message, PersistenceMode, ToolCall,
};
use tower_chat_delivery::{
    DeliveryError, DetachedRunsLayer, RunKey, RunState, UpdateLog, UpdatePosition,
};
use tower_chat_testkit::{FaultyStore, Gate, ScriptedModel, Step};

use crate::{
    faulty_log::FaultyLog,
    support::{Server, deltas, request, rest, sketch, stored, timed_log},
};

const LEASE: Duration = Duration::from_secs(15);

/// Returns a model that sends the second delta after the test has opened `gate`.
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

    sleep(Duration::from_secs(2)).await; // meanwhile the first delta is appended to the log
    clock.advance(LEASE);
    let next = second.oneshot(request.clone()).await.unwrap();
    // The former owner learns that the next attempt has begun when it next renews its lease.
    sleep(Duration::from_secs(6)).await;
    assert_eq!(former.in_progress(), 1, "the attempt that was stopped has not ended");
    let error = response.collect().await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::Interrupted { .. })), "{error:?}");
    assert_eq!(tower_chat::error::is_retryable(&*error), Some(true));
    // A repetition of the request returns the response of the next attempt.
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
    // This process does not know yet that it has lost its lease.
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
    // The read of the updates of earlier attempts takes almost the whole lease.
    log.set_slow_reads(clock.clone(), LEASE - Duration::from_secs(1));
    let runs = DetachedRunsLayer::new(log);
    let stack = runs.layer(model(["Take ", "a coat."], &Gate::closed()));
    let _response = stack.oneshot(request).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    clock.advance(Duration::from_secs(2));
    let open = RunState::Open { attempt: 2, stop_requested: false };
    assert_eq!(runs.state(&run).await.unwrap(), open);
}

/// Two processes that both execute the run. The first process has lost its lease, and has not
/// noticed the loss.
struct Overlap {
    former: Server,
    latter: Server,
    store: MemoryStore,
    request: ChatRequest,
    run: RunKey,
    /// The model of the first process waits at this gate in the middle of its answer.
    gate: Gate,
}

impl Overlap {
    /// Begins an attempt in each process. `steps` are the steps of the second process's model.
    async fn begin(mode: PersistenceMode, steps: impl IntoIterator<Item = Step>) -> Self {
        let (log, clock) = timed_log();
        let (store, gate) = (MemoryStore::new(), Gate::closed());
        let answer = Step::updates(deltas(&["Take ", "a coat."])).waits_after(1, &gate);
        let opened = FaultyStore::new(store.clone()).shared_by_processes();
        let runs = DetachedRunsLayer::new(log.clone());
        let former = Server::new([answer], runs, opened.clone(), mode);
        let (runs, opened) = (DetachedRunsLayer::new(log), opened.in_another_process());
        let latter = Server::new(steps, runs, opened, mode);
        let (request, run) = request();
        drop(former.call(request.clone()).await.unwrap());
        clock.advance(LEASE);
        drop(latter.call(request.clone()).await.unwrap());
        Self { former, latter, store, request, run, gate }
    }

    async fn history(&self) -> Vec<String> {
        stored(&self.store, &self.run).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_stopped_attempt_fails_if_an_earlier_attempt_has_already_stored_an_answer() {
    for mode in [PersistenceMode::PerRun, PersistenceMode::PerServiceCall] {
        let step = Step::updates(deltas(&["Take ", "boots."])).hangs_after(0);
        let overlap = Overlap::begin(mode, [step]).await;
        let Overlap { former, latter, run, gate, .. } = &overlap;
        gate.open();
        former.runs.drained().await;
        assert_eq!(overlap.history().await, ["What should I wear?", "Take a coat."]);
        // The first attempt has already stored its messages. The second attempt is stopped, and
        // would store only the question, without an answer.
        latter.runs.stop(run).await.unwrap();
        let events = sketch(&latter.events(run, UpdatePosition::START).await);
        let end = events.last().unwrap();
        assert!(end.starts_with("failed: "), "{mode:?}: {events:?}");
        // A repetition of the request returns the stored answer.
        let again = latter.call(overlap.request.clone()).await.unwrap();
        assert_eq!(again.collect().await.unwrap().text(), "Take a coat.");
        latter.runs.drained().await;
        let events = sketch(&latter.events(run, UpdatePosition::START).await);
        let rest = ["restarted 3", "message: Take a coat.", "finish", "completed"];
        assert_eq!(events[events.len() - rest.len()..], rest, "{mode:?}");
        assert_eq!(overlap.history().await, ["What should I wear?", "Take a coat."]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_write_of_an_earlier_attempt_is_refused() {
    for mode in [PersistenceMode::PerRun, PersistenceMode::PerServiceCall] {
        let call = Message::tool_calls([ToolCall::new("c1", "lookup", "{}")]);
        let answer = Step::updates(deltas(&["Take ", "boots."]));
        let overlap = Overlap::begin(mode, [Step::message(call), answer]).await;
        let Overlap { former, latter, run, gate, .. } = &overlap;
        latter.runs.drained().await;
        let expected = ["What should I wear?", "", "", "Take boots."];
        assert_eq!(overlap.history().await, expected, "{mode:?}");
        gate.open();
        former.runs.drained().await;
        assert_eq!(overlap.history().await, expected, "{mode:?}");
        let events = sketch(&latter.events(run, UpdatePosition::START).await);
        assert_eq!(events.last().unwrap(), "completed");
        assert!(events.contains(&"message: Take boots.".to_owned()), "{mode:?}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_later_attempt_that_is_stopped_replaces_results_that_no_service_call_has_stored() {
    let (log, clock) = timed_log();
    let store = MemoryStore::new();
    let opened = FaultyStore::new(store.clone()).shared_by_processes();
    let call = Message::tool_calls([ToolCall::new("c1", "lookup", "{}")]);
    let runs = DetachedRunsLayer::new(log.clone());
    let steps = [Step::message(call), Step::hang()];
    let former = Server::new(steps, runs, opened.clone(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    drop(former.call(request.clone()).await.unwrap());
    // Readers have received the result of the tool, and the second service call waits.
    former.model.called(2).await;
    sleep(Duration::from_secs(2)).await;
    clock.advance(LEASE);

    let runs = DetachedRunsLayer::new(log);
    let opened = opened.in_another_process();
    let latter = Server::new([Step::hang()], runs, opened, PersistenceMode::PerServiceCall);
    // The service of the second process never responds.
    drop(timeout(Duration::from_secs(1), latter.call(request)).await);
    latter.runs.stop(&run).await.unwrap();
    let events = sketch(&latter.events(&run, UpdatePosition::START).await);
    let unknown = "message: The call was interrupted. It may or may not have taken effect; its result is unknown.";
    let expected =
        ["message: lookup", "message: Rain.", "restarted 2", unknown, "finish", "completed"];
    assert_eq!(events[events.len() - expected.len()..], expected, "{events:?}");
    former.runs.drained().await;
    let history = store.load(&run.conversation).await.unwrap();
    let results = history.messages.iter().flat_map(|message| message.results());
    let results: Vec<_> = results.map(|result| format!("message: {}", result.text())).collect();
    assert_eq!((history.messages.len(), results), (3, vec![unknown.to_owned()]));
}
