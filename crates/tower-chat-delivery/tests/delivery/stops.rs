//! Tests of stops, which the process of the run or another process requests.

use tower_chat::{MemoryStore, PersistenceMode, request::EndedBy};
use tower_chat_delivery::{
    DetachedRunsLayer, MemoryUpdateLog, RunEnd, RunState, UpdateLog, UpdatePosition,
};
use tower_chat_testkit::Step;

use crate::support::{Server, deltas, request, sketch, stored};

fn hanging() -> Step {
    Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1)
}

#[tokio::test(start_paused = true)]
async fn a_stop_keeps_the_answer_so_far() {
    for mode in
        [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled]
    {
        let store = MemoryStore::new();
        let runs = DetachedRunsLayer::new(MemoryUpdateLog::new());
        let server = Server::new([hanging()], runs, store.clone(), mode);
        let (request, run) = request();
        let mut response = server.call(request).await.unwrap();
        assert!(response.next().await.unwrap().is_ok());
        for _ in 0..2 {
            let state = server.runs.stop(&run).await.unwrap();
            assert_eq!(state, RunState::Open { attempt: 1, stop_requested: true });
        }
        let answer = response.collect().await.unwrap();
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
        server.runs.drained().await;
        assert_eq!(stored(&store, &run).await, ["What should I wear?", "Take "], "{mode:?}");
        let events = sketch(&server.events(&run, UpdatePosition::START).await);
        assert_eq!(events, ["Take ", "message: Take ", "finish", "completed"]);
        // Stopping a run that has ended changes nothing.
        let closed = RunState::Closed { attempt: 1, end: RunEnd::Completed };
        assert_eq!(server.runs.stop(&run).await.unwrap(), closed);
    }
}

#[tokio::test(start_paused = true)]
async fn another_process_stops_a_run() {
    let log = MemoryUpdateLog::new();
    let store = MemoryStore::new();
    let runs = DetachedRunsLayer::new(log.clone());
    let server = Server::new([hanging()], runs, store.clone(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    drop(server.call(request).await.unwrap());
    let other = DetachedRunsLayer::new(log);
    for _ in 0..2 {
        let state = other.stop(&run).await.unwrap();
        assert_eq!(state, RunState::Open { attempt: 1, stop_requested: true });
    }
    server.runs.drained().await;
    assert_eq!(stored(&store, &run).await, ["What should I wear?", "Take "]);
    let closed = RunState::Closed { attempt: 1, end: RunEnd::Completed };
    assert_eq!(other.stop(&run).await.unwrap(), closed);
}

/// The process in which the stop is requested has also received a repetition of the request, and
/// does not know yet that another process executes the run.
#[tokio::test(start_paused = true)]
async fn a_stop_reaches_a_run_that_began_in_another_process() {
    let log = MemoryUpdateLog::new();
    let store = MemoryStore::new();
    let mode = PersistenceMode::PerServiceCall;
    let server = Server::new([hanging()], DetachedRunsLayer::new(log.clone()), store.clone(), mode);
    let (request, run) = request();
    drop(server.call(request.clone()).await.unwrap());
    let other = Server::new([], DetachedRunsLayer::new(log), store, mode);
    let mut call = std::pin::pin!(other.call(request));
    assert!(futures_util::poll!(&mut call).is_pending());
    other.runs.stop(&run).await.unwrap();
    let answer = call.await.unwrap().collect().await.unwrap();
    assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
    server.runs.drained().await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_disconnects_stops_nothing() {
    let server = Server::simple([hanging()]);
    let (request, run) = request();
    drop(server.call(request).await.unwrap());
    for _ in 0..3 {
        let mut reader = server.attach(&run, UpdatePosition::START).await;
        assert!(reader.next().await.unwrap().is_ok());
    }
    tokio::time::sleep(std::time::Duration::from_secs(60)).await;
    assert_eq!(server.runs.in_progress(), 1);
    server.runs.stop(&run).await.unwrap();
    server.runs.drained().await;
}

#[tokio::test(start_paused = true)]
async fn updates_of_an_erased_conversation_are_not_logged_again() {
    let log = MemoryUpdateLog::new();
    let runs = DetachedRunsLayer::new(log.clone());
    let server =
        Server::new([hanging()], runs, MemoryStore::new(), PersistenceMode::PerServiceCall);
    let (request, run) = request();
    let response = server.call(request).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    let erase = tower_chat_delivery::Erase::Conversation(&run.conversation);
    assert_eq!(log.erase(erase).await.unwrap(), 1);
    server.runs.stop(&run).await.unwrap();
    // The caller in the process that executes the run still receives its response.
    assert_eq!(response.collect().await.unwrap().finish.ended_by, Some(EndedBy::Stop));
    server.runs.drained().await;
    assert_eq!(server.runs.state(&run).await.unwrap(), RunState::Unknown);
}
