//! Tests of stops, which the process of the run or another process requests.

use std::time::Duration;

use tower_chat::{MemoryStore, Message, PersistenceMode, ToolCall, request::EndedBy};
use tower_chat_delivery::{
    DetachedRunsLayer, MemoryUpdateLog, RunEnd, RunState, UpdateLog, UpdatePosition,
};
use tower_chat_testkit::Step;

use crate::{
    faulty_log::{Fault, FaultyLog},
    support::{Server, deltas, positions, process, request, rest, sketch, stored, timed_log},
};

fn hanging() -> Step {
    Step::updates(deltas(&["Take ", "a coat."])).hangs_after(1)
}

#[tokio::test(start_paused = true)]
async fn a_stopped_run_returns_and_stores_its_partial_answer() {
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
async fn a_process_can_stop_a_run_of_another_process() {
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
    tokio::time::sleep(Duration::from_secs(60)).await;
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
    tokio::time::sleep(Duration::from_secs(2)).await;
    let erase = tower_chat_delivery::Erase::Conversation(&run.conversation);
    assert_eq!(log.erase(erase).await.unwrap(), 1);
    server.runs.stop(&run).await.unwrap();
    // The caller in the process that executes the run still receives its response.
    assert_eq!(response.collect().await.unwrap().finish.ended_by, Some(EndedBy::Stop));
    server.runs.drained().await;
    assert_eq!(server.runs.state(&run).await.unwrap(), RunState::Unknown);
}

/// The process stores rounds of a run, and dies before the log contains them. The next attempt is stopped
/// before its first service call.
#[test]
fn readers_of_a_stopped_attempt_receive_the_rounds_of_earlier_attempts() {
    let round = ["message: lookup", "message: Rain."];
    for mode in [PersistenceMode::PerServiceCall, PersistenceMode::Journaled] {
        for rounds in 0..3 {
            let (log, clock) = timed_log();
            let store = MemoryStore::new();
            let (request, run) = request();
            let killed = process();
            killed.block_on(async {
                let calls = (0..rounds).map(|round| {
                    let call = ToolCall::new(format!("c{round}"), "lookup", "{}");
                    Step::message(Message::tool_calls([call]))
                });
                let lost = FaultyLog::new(log.clone(), &[Fault::NotStored; 100]);
                let runs = DetachedRunsLayer::new(lost);
                let server = Server::new(calls.chain([hanging()]), runs, store.clone(), mode);
                drop(server.call(request.clone()).await.unwrap());
                tokio::time::sleep(Duration::from_secs(3)).await;
            });
            drop(killed);
            clock.advance(Duration::from_secs(15));
            process().block_on(async {
                let runs = DetachedRunsLayer::new(log);
                let server = Server::new([], runs, store.clone(), mode);
                let mut request = request;
                request.run_handle().stop();
                drop(server.call(request).await.unwrap());
                server.runs.drained().await;
                let events = sketch(&server.events(&run, UpdatePosition::START).await);
                let rounds = round.repeat(rounds);
                let expected = ["restarted 2"].into_iter().chain(rounds);
                let expected: Vec<_> = expected.chain(["finish", "completed"]).collect();
                assert_eq!(events, expected, "{mode:?}");
            });
        }
    }
}

/// Readers have received the end of the run, so a request that is sent again must not add an answer.
#[tokio::test(start_paused = true)]
async fn a_run_that_was_stopped_before_its_answer_is_not_continued() {
    for mode in
        [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled]
    {
        let (log, store) = (MemoryUpdateLog::new(), MemoryStore::new());
        let runs = DetachedRunsLayer::new(log.clone());
        let server = Server::new([Step::text("Take a coat.")], runs, store.clone(), mode);
        let (mut request, run) = request();
        let (again, repeated) = (request.clone(), request.clone());
        request.run_handle().stop();
        for request in [request, again.clone(), again] {
            let answer = server.call(request).await.unwrap().collect().await.unwrap();
            assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop), "{mode:?}");
            server.runs.drained().await;
            // An empty message marks the end of the run.
            assert_eq!(stored(&store, &run).await, ["What should I wear?", ""], "{mode:?}");
        }
        assert_eq!(server.model.remaining(), 1, "{mode:?}");
        let events = sketch(&server.events(&run, UpdatePosition::START).await);
        assert_eq!(events, ["finish", "completed"], "{mode:?}");
        // The run is not continued either if the history does not show that it was stopped.
        let runs = DetachedRunsLayer::new(log.clone());
        let server = Server::new([Step::text("Take a hat.")], runs, MemoryStore::new(), mode);
        server.call(repeated).await.unwrap().collect().await.unwrap();
        server.runs.drained().await;
        assert_eq!(server.model.remaining(), 1, "{mode:?}");
        // A reader that has received the finish, but not the end, receives only the end.
        let finish = *positions(&log, &run).await.last().unwrap();
        assert_eq!(sketch(&server.events(&run, finish).await), ["completed"], "{mode:?}");
    }
}

/// The process dies before the store contains the answer that the log contains.
#[tokio::test(start_paused = true)]
async fn a_complete_run_that_the_store_does_not_contain_is_executed_again() {
    for mode in
        [PersistenceMode::PerRun, PersistenceMode::PerServiceCall, PersistenceMode::Journaled]
    {
        let log = MemoryUpdateLog::new();
        let (request, run) = request();
        let lost = MemoryStore::new();
        let first = [Step::text("Take a coat.")];
        let server = Server::new(first, DetachedRunsLayer::new(log.clone()), lost, mode);
        server.call(request.clone()).await.unwrap().collect().await.unwrap();
        server.runs.drained().await;
        let store = MemoryStore::new();
        let runs = DetachedRunsLayer::new(log.clone());
        let server = Server::new([Step::text("Take a hat.")], runs, store.clone(), mode);
        for request in [request.clone(), request] {
            let answer = server.call(request).await.unwrap().collect().await.unwrap();
            assert_eq!(answer.text(), "Take a hat.", "{mode:?}");
            server.runs.drained().await;
        }
        assert_eq!(stored(&store, &run).await, ["What should I wear?", "Take a hat."], "{mode:?}");
        let events = sketch(&server.events(&run, UpdatePosition::START).await);
        assert!(events.contains(&"message: Take a coat.".to_owned()), "{mode:?}: {events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_repeated_request_of_a_complete_run_changes_nothing_for_readers() {
    let (log, store) = (MemoryUpdateLog::new(), MemoryStore::new());
    let runs = DetachedRunsLayer::new(log.clone());
    let mode = PersistenceMode::PerServiceCall;
    let step = Step::updates(deltas(&["Take ", "a coat."]));
    let server = Server::new([step], runs, store.clone(), mode);
    let (request, run) = request();
    let first = server.call(request.clone()).await.unwrap().collect().await.unwrap();
    server.runs.drained().await;
    let finish = *positions(&log, &run).await.last().unwrap();
    // This reader attaches before the task of the second call reads the log.
    let mut call = std::pin::pin!(server.call(request.clone()));
    assert!(futures_util::poll!(&mut call).is_pending());
    let reader = server.attach(&run, finish).await;
    let response = call.await.unwrap();
    assert_eq!(response.collect().await.unwrap().messages, first.messages);
    assert_eq!(sketch(&rest(reader).await), ["completed"]);
    server.runs.drained().await;
    assert_eq!(*positions(&log, &run).await.last().unwrap(), finish);
    // A request that reuses the id of the run for another input fails, and changes nothing either.
    let mut other = request;
    other.set_new_messages([Message::user("And tomorrow?")]);
    server.call(other).await.unwrap_err();
    server.runs.drained().await;
    let closed = RunState::Closed { attempt: 1, end: RunEnd::Completed };
    assert_eq!(server.runs.state(&run).await.unwrap(), closed);
    assert_eq!(sketch(&server.events(&run, finish).await), ["completed"]);
}
