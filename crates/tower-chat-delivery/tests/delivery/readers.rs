//! Tests of the updates that callers and readers receive.

use std::time::Duration;

use tower_chat::{ChatRequest, ChatUpdate, MemoryStore, PersistenceMode, error::is_retryable};
use tower_chat_delivery::{
    DeliveryError, DetachedRunsLayer, Erase, MemoryUpdateLog, RunEnd, RunEvent, RunState,
    UpdateLog, UpdatePosition,
};
use tower_chat_testkit::{Gate, Step};

use crate::support::{Server, deltas, request, rest, sketch, stored, timed_log};

const ANSWER: [&str; 5] = ["Take ", "a coat.", "message: Take a coat.", "finish", "completed"];

#[tokio::test(start_paused = true)]
async fn a_run_continues_after_its_caller_has_disconnected() {
    let gate = Gate::closed();
    let step = Step::updates(deltas(&["Take ", "a coat."])).waits_after(1, &gate);
    let store = MemoryStore::new();
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let server = Server::new([step], runs, store.clone(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    let mut response = server.call(request).await.unwrap();
    let first = response.next().await.unwrap().unwrap();
    assert_eq!(first, ChatUpdate::TextDelta("Take ".to_owned()));
    drop(response);
    gate.open();
    assert_eq!(sketch(&server.events(&run, UpdatePosition::START).await), ANSWER);
    server.runs.drained().await;
    assert_eq!(server.runs.in_progress(), 0);
    assert_eq!(stored(&store, &run).await, ["What should I wear?", "Take a coat."]);
    // After the end of the run, a reader receives the same updates from the log.
    assert_eq!(sketch(&server.events(&run, UpdatePosition::START).await), ANSWER);
    let closed = RunState::Closed { attempt: 1, end: RunEnd::Completed };
    assert_eq!(server.runs.state(&run).await.unwrap(), closed);
}

#[tokio::test(start_paused = true)]
async fn a_run_continues_if_its_caller_disconnects_before_the_response() {
    let gate = Gate::closed();
    let server = Server::simple([Step::text("Take a coat.").whole().waits(&gate)]);
    let (request, run) = request();
    {
        let call = server.call(request);
        tokio::select! {
            biased;
            _ = call => panic!("the gate is closed"),
            () = gate.reached(1) => {}
        }
    }
    gate.open();
    let events = sketch(&server.events(&run, UpdatePosition::START).await);
    assert_eq!(events, ["message: Take a coat.", "finish", "completed"]);
}

#[tokio::test(start_paused = true)]
async fn readers_receive_only_updates_after_their_position() {
    let gate = Gate::closed();
    let step = Step::updates(deltas(&["Take ", "a coat."])).waits_after(1, &gate);
    let server = Server::simple([step]);
    let (request, run) = request();
    let response = server.call(request).await.unwrap();
    let mut first = server.attach(&run, UpdatePosition::START).await;
    let Some(Ok(RunEvent::Update { position, .. })) = first.next().await else {
        panic!("no update");
    };
    let second = server.attach(&run, position).await;
    gate.open();
    assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
    assert_eq!(sketch(&rest(first).await), ANSWER[1..]);
    assert_eq!(sketch(&rest(second).await), ANSWER[1..]);
    // After the end of the run, the reader receives the same updates from the log.
    server.runs.drained().await;
    assert_eq!(sketch(&server.events(&run, position).await), ANSWER[1..]);
    let last = UpdatePosition::new(1, 3);
    assert_eq!(sketch(&server.events(&run, last).await), ["completed"]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_in_another_process_follows_a_run() {
    let gate = Gate::closed();
    let log = MemoryUpdateLog::new();
    let step = Step::updates(deltas(&["Take ", "a coat."])).waits_after(1, &gate);
    let runs = DetachedRunsLayer::new(log.clone());
    let server = Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerRun);
    let other = DetachedRunsLayer::new(log);
    let (request, run) = request();
    drop(server.call(request).await.unwrap());
    let mut reader = other.attach(&run, UpdatePosition::START).await.unwrap();
    // The reader receives the first delta when the first batch was stored, after one second.
    let first = reader.next().await.unwrap().unwrap();
    assert_eq!(sketch(&[first]), ["Take "]);
    gate.open();
    assert_eq!(sketch(&rest(reader).await), ANSWER[1..]);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_does_not_read_does_not_delay_the_run() {
    // The run sends more bytes than the hub retains in memory.
    let texts: Vec<String> = (0..200).map(|index| format!("{index:>2000}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let server = Server::simple([Step::updates(deltas(&texts))]);
    let (request, run) = request();
    let response = server.call(request).await.unwrap();
    let mut slow = server.attach(&run, UpdatePosition::START).await;
    let mut received = vec![slow.next().await.unwrap().unwrap()];
    server.runs.drained().await;
    received.extend(rest(slow).await);
    let sketched = sketch(&received);
    assert_eq!(sketched[..200], texts);
    assert_eq!(sketched[201..], ["finish", "completed"]);
    // The caller of the run also reads slowly, and must receive the whole answer.
    assert_eq!(response.collect().await.unwrap().text(), texts.concat());
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_of_an_erased_run_receives_an_error() {
    let texts: Vec<String> = (0..200).map(|index| format!("{index:>2000}")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let log = MemoryUpdateLog::new();
    let runs = DetachedRunsLayer::new(log.clone());
    let step = Step::updates(deltas(&texts)).hangs_after(200);
    let server = Server::new([step], runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    let _response = server.call(request).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let mut slow = server.attach(&run, UpdatePosition::START).await;
    log.erase(Erase::Conversation(&run.conversation)).await.unwrap();
    let error = slow.next().await.unwrap().unwrap_err();
    assert!(matches!(error, DeliveryError::UnknownRun { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn the_same_request_joins_a_run_in_progress() {
    let gate = Gate::closed();
    let log = MemoryUpdateLog::new();
    let step = Step::updates(deltas(&["Take ", "a coat."])).waits_after(1, &gate);
    let store = MemoryStore::new();
    let runs = DetachedRunsLayer::new(log.clone());
    let server = Server::new([step], runs, store.clone(), PersistenceMode::PerServiceCall);
    let elsewhere = DetachedRunsLayer::new(log);
    let other = Server::new([], elsewhere, store, PersistenceMode::PerServiceCall);
    let (request, _) = request();
    let first = server.call(request.clone()).await.unwrap();
    let second = server.call(request.clone()).await.unwrap();
    let third = other.call(request).await.unwrap();
    gate.open();
    for response in [first, second, third] {
        assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
    }
    assert_eq!(server.model.remaining(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_request_with_another_input_cannot_join_a_run_in_progress() {
    let step = Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1);
    let server = Server::simple([step]);
    let (request, run) = request();
    let _response = server.call(request.clone()).await.unwrap();
    let mut other = ChatRequest::user("What else?");
    other.extensions = request.extensions.clone();
    let error = server.call(other).await.unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::OtherInput { .. })), "{error:?}");
    assert_eq!(is_retryable(&*error), Some(false));
    // The request has no messages and continues the run, like the request of a recovery.
    let mut recovery = ChatRequest::default();
    recovery.extensions = request.extensions.clone();
    let joined = server.call(recovery).await.unwrap();
    server.runs.stop(&run).await.unwrap();
    assert_eq!(joined.collect().await.unwrap().text(), "Take ");
}

#[tokio::test(start_paused = true)]
async fn the_same_request_after_the_end_returns_the_stored_answer() {
    let server = Server::simple([Step::text("Take a coat.").whole()]);
    let (request, run) = request();
    for _ in 0..2 {
        let response = server.call(request.clone()).await.unwrap();
        assert_eq!(response.collect().await.unwrap().text(), "Take a coat.");
        server.runs.drained().await;
    }
    let events = server.events(&run, UpdatePosition::START).await;
    assert_eq!(sketch(&events), ["message: Take a coat.", "finish", "completed"]);
    // A reader that has received the finish does not receive any update again.
    let events = server.events(&run, UpdatePosition::new(1, 1)).await;
    assert_eq!(sketch(&events), ["completed"]);
}

/// The store has lost the run, so that the model is called again. The task of the run appends nothing
/// to the log, and must not wait for an append that never starts.
#[tokio::test(start_paused = true)]
async fn a_repeated_response_may_last_longer_than_a_batch_of_the_log() {
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let mode = PersistenceMode::PerServiceCall;
    let (request, _) = request();
    for step in ["Take a coat.", "Take a hat."] {
        let gate = Gate::closed();
        let step = Step::updates(deltas(&["Well. ", step])).waits_after(1, &gate);
        let server = Server::new([step], runs.clone(), MemoryStore::new(), mode);
        let response = server.call(request.clone()).await.unwrap();
        tokio::time::sleep(Duration::from_secs(20)).await;
        gate.open();
        response.collect().await.unwrap();
        runs.drained().await;
    }
}

#[tokio::test(start_paused = true)]
async fn the_caller_receives_the_error_of_a_failed_service_call() {
    let server = Server::simple([Step::error(tower_chat::error::Retryability::Retryable)]);
    let (request, run) = request();
    let error = server.call(request).await.unwrap_err();
    assert_eq!(is_retryable(&*error), Some(true));
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::Failed { .. })), "{error:?}");
    server.runs.drained().await;
    let events = server.events(&run, UpdatePosition::START).await;
    let [RunEvent::Ended(RunEnd::Failed { .. })] = &events[..] else { panic!("{events:?}") };
}

#[tokio::test(start_paused = true)]
async fn a_stream_error_is_delivered_after_the_updates_before_it() {
    let step = Step::updates(deltas(&["Take ", "a coat."])).fails_after(1, "overloaded");
    let server = Server::simple([step]);
    let (request, run) = request();
    let mut response = server.call(request).await.unwrap();
    assert!(response.next().await.unwrap().is_ok());
    let error = response.next().await.unwrap().unwrap_err();
    assert!(matches!(error.downcast_ref(), Some(DeliveryError::Failed { .. })), "{error:?}");
    assert!(response.next().await.is_none());
    let events = sketch(&server.events(&run, UpdatePosition::START).await);
    assert_eq!((events.len(), &*events[0]), (2, "Take "));
    assert!(events[1].starts_with("failed: "), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_run_that_is_not_in_the_log_cannot_be_followed() {
    let server = Server::simple([]);
    let (_, run) = request();
    let error = server.runs.attach(&run, UpdatePosition::START).await.unwrap_err();
    assert!(matches!(error, DeliveryError::UnknownRun { .. }), "{error:?}");
}

#[tokio::test(start_paused = true)]
async fn a_read_only_reader_does_not_close_a_run_whose_lease_has_expired() {
    let (log, clock) = timed_log();
    let (_, run) = request();
    let lease = Duration::from_secs(15);
    log.begin(&run, 1, lease).await.unwrap();
    clock.advance(lease);
    let runs = DetachedRunsLayer::new(log);
    let reader = runs.attach(&run, UpdatePosition::START).await.unwrap();
    assert_eq!(rest(reader.read_only()).await, [RunEvent::Ended(RunEnd::Interrupted)]);
    assert_eq!(runs.state(&run).await.unwrap(), RunState::LeaseExpired { attempt: 1 });
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_conversation_passes_unchanged() {
    use tower::{Layer, Service, ServiceExt};
    let model = tower_chat_testkit::ScriptedModel::new([Step::text("Take a coat.")]);
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let mut stack = runs.layer(model);
    let call = stack.ready().await.unwrap().call(ChatRequest::user("What should I wear?"));
    assert_eq!(call.await.unwrap().collect().await.unwrap().text(), "Take a coat.");
    assert_eq!(runs.in_progress(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_layer_refuses_the_service_calls_of_a_run() {
    use tower::{Layer, ServiceExt};
    let model = tower_chat_testkit::ScriptedModel::new([Step::text("Take a coat.")]);
    let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
    let wrong = tower_chat::ChatPipeline::builder(runs.layer(model.clone()))
        .history(MemoryStore::new())
        .build()
        .unwrap();
    let (request, run) = request();
    let error = wrong.oneshot(request).await.unwrap_err();
    assert!(is_below(&*error), "{error:?}");
    assert_eq!(model.remaining(), 1);
    assert_eq!(runs.state(&run).await.unwrap(), RunState::Unknown);
}

fn is_below(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(error.downcast_ref(), Some(DeliveryError::BelowPersistence { .. }))
        || error.source().is_some_and(is_below)
}
