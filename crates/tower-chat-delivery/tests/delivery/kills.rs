//! Tests of processes that die. Dropping the runtime of a server simulates the death of its
//! process.

use std::time::Duration;

use futures_util::StreamExt;
use tower_chat::{
    ChatUpdate, MemoryStore, Message, PersistenceMode, ToolCall,
    recovery::{Recovered, RecoveryPolicy, recover, recover_all},
};
use tower_chat_delivery::{
    DeliveryError, DetachedRunsLayer, MemoryUpdateLog, RunEvent, RunKey, RunState, UpdateLog,
    UpdatePosition,
};
use tower_chat_testkit::Step;

use crate::support::{Server, deltas, process, request, sketch, stored, timed_log};

/// Creates a server whose model calls a tool and then sends only a part of an answer.
fn dying(log: &MemoryUpdateLog, store: &MemoryStore, mode: PersistenceMode) -> Server {
    let call = Message::tool_calls([ToolCall::new("c1", "lookup", "{}")]);
    let answer = Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1);
    let runs = DetachedRunsLayer::new(log.clone());
    Server::new([Step::message(call), answer], runs, store.clone(), mode)
}

/// Sends a request in a process that dies when `waits` has passed since the first delta. Returns
/// the position of this delta.
fn killed(
    log: &MemoryUpdateLog,
    store: &MemoryStore,
    mode: PersistenceMode,
    waits: Duration,
) -> (tower_chat::ChatRequest, RunKey, UpdatePosition) {
    let process = process();
    let (request, run) = request();
    let position = process.block_on(async {
        let server = dying(log, store, mode);
        drop(server.call(request.clone()).await.unwrap());
        let mut reader = server.attach(&run, UpdatePosition::START).await;
        let position = loop {
            match reader.next().await.unwrap().unwrap() {
                RunEvent::Update { update: ChatUpdate::TextDelta(_), position } => break position,
                RunEvent::Update { .. } => {}
                other => panic!("{other:?}"),
            }
        };
        tokio::time::sleep(waits).await;
        position
    });
    drop(process);
    (request, run, position)
}

#[test]
fn the_first_reader_after_the_lease_closes_the_log() {
    let (log, clock) = timed_log();
    let store = MemoryStore::new();
    let mode = PersistenceMode::PerServiceCall;
    let (_, run, _) = killed(&log, &store, mode, Duration::from_secs(2));
    process().block_on(async {
        let server = Server::new([], DetachedRunsLayer::new(log.clone()), store.clone(), mode);
        let is_open = |state| matches!(state, RunState::Open { attempt: 1, .. });
        assert!(is_open(server.runs.state(&run).await.unwrap()));
        clock.advance(Duration::from_secs(15));
        let events = sketch(&server.events(&run, UpdatePosition::START).await);
        let (end, updates) = events.split_last().unwrap();
        assert_eq!(end, "interrupted");
        assert_eq!(updates.last().unwrap(), "Take ");
        assert!(matches!(server.runs.state(&run).await.unwrap(), RunState::Closed { .. }));
        // Reading the updates must not call the model.
        assert_eq!(server.model.remaining(), 0);
        assert_eq!(stored(&store, &run).await.len(), 3);
    });
}

#[test]
fn a_journaled_run_continues_under_the_next_attempt() {
    // With the wait of 2 seconds, the killed process has appended its last delta to the log;
    // without a wait it has not.
    for waits in [Duration::ZERO, Duration::from_secs(2)] {
        let (log, clock) = timed_log();
        let store = MemoryStore::new();
        let mode = PersistenceMode::Journaled;
        let (request, run, position) = killed(&log, &store, mode, waits);
        clock.advance(Duration::from_secs(15));
        process().block_on(async {
            let step = Step::updates(deltas(&["Take ", "boots."]));
            let server =
                Server::new([step], DetachedRunsLayer::new(log.clone()), store.clone(), mode);
            let response = server.call(request).await.unwrap();
            let answer = response.collect().await.unwrap();
            assert_eq!((answer.messages.len(), &*answer.text()), (3, "Take boots."));
            let rest =
                ["restarted 2", "Take ", "boots.", "message: Take boots.", "finish", "completed"];
            assert_eq!(sketch(&server.events(&run, position).await), rest);
            // A reader of the whole run receives each complete message once.
            let events = sketch(&server.events(&run, UpdatePosition::START).await);
            let messages: Vec<_> =
                events.iter().filter(|event| event.starts_with("message")).collect();
            assert_eq!(messages, ["message: lookup", "message: Rain.", "message: Take boots."]);
            assert_eq!(events[events.len() - rest.len()..], rest);
            assert_eq!(stored(&store, &run).await.len(), 4);
        });
    }
}

#[test]
fn readers_can_follow_a_recovered_run() {
    let (log, clock) = timed_log();
    let store = MemoryStore::new();
    let mode = PersistenceMode::Journaled;
    let (_, run, position) = killed(&log, &store, mode, Duration::from_secs(2));
    clock.advance(Duration::from_secs(15));
    process().block_on(async {
        use tower::Layer;
        let model = tower_chat_testkit::ScriptedModel::new([Step::text("Take boots.").whole()]);
        let pipeline = tower_chat::ChatPipeline::builder(model)
            .history(store.clone())
            .persistence(mode)
            .build()
            .unwrap();
        let runs = DetachedRunsLayer::new(log.clone());
        let mut stack = runs.layer(pipeline);
        let key = &run.conversation;
        recover(&mut stack, &store, key, RecoveryPolicy::resume()).await.unwrap();
        let reader = runs.attach(&run, position).await.unwrap();
        let events = sketch(&crate::support::rest(reader).await);
        assert_eq!(events, ["restarted 2", "message: Take boots.", "finish", "completed"]);
    });
}

#[test]
fn a_recovery_waits_for_the_lease_of_the_process_that_died() {
    let (log, clock) = timed_log();
    let store = MemoryStore::new();
    let mode = PersistenceMode::Journaled;
    let (_, run, position) = killed(&log, &store, mode, Duration::from_secs(2));
    process().block_on(async {
        let step = Step::text("Take boots.").whole();
        let server = Server::new([step], DetachedRunsLayer::new(log.clone()), store.clone(), mode);
        let recovery = async {
            let all = recover_all(server.stack(), &store, RecoveryPolicy::resume()).await;
            all.unwrap().collect::<Vec<_>>().await
        };
        let end_of_lease = async {
            tokio::time::sleep(Duration::from_secs(10)).await;
            let state = server.runs.state(&run).await.unwrap();
            assert_eq!(state, RunState::Open { attempt: 1, stop_requested: false });
            clock.advance(Duration::from_secs(15));
        };
        let (recovered, ()) = tokio::join!(recovery, end_of_lease);
        let [(key, Ok(Recovered::Resumed(answer)))] = &*recovered else { panic!("{recovered:?}") };
        assert_eq!((key, &*answer.text()), (&run.conversation, "Take boots."));
        let events = sketch(&server.events(&run, position).await);
        assert_eq!(events, ["restarted 2", "message: Take boots.", "finish", "completed"]);
    });
}

#[test]
fn a_caller_that_follows_a_process_that_dies_may_send_its_request_again() {
    let (log, clock) = timed_log();
    let store = MemoryStore::new();
    let mode = PersistenceMode::Journaled;
    let (request, run, _) = killed(&log, &store, mode, Duration::from_secs(2));
    process().block_on(async {
        let step = Step::updates(deltas(&["Take ", "boots."]));
        let server = Server::new([step], DetachedRunsLayer::new(log.clone()), store.clone(), mode);
        // The lease is still valid, so that another process may be executing the run.
        let response = server.call(request.clone()).await.unwrap();
        clock.advance(Duration::from_secs(15));
        let error = response.collect().await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(DeliveryError::Interrupted { .. })));
        assert_eq!(tower_chat::error::is_retryable(&*error), Some(true));
        let response = server.call(request).await.unwrap();
        assert_eq!(response.collect().await.unwrap().text(), "Take boots.");
        assert_eq!(log.read(&run, UpdatePosition::START, 0).await.unwrap().state.attempt(), 2);
    });
}

#[test]
fn readers_in_the_process_end_if_the_task_panics() {
    process().block_on(async {
        let step = Step::respond(|_| panic!("a planted panic"));
        let server = Server::simple([step]);
        let (request, _) = request();
        let error = server.call(request).await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(DeliveryError::Interrupted { .. })));
        assert_eq!(server.runs.in_progress(), 0);
    });
}
