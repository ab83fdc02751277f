//! Tests that a request with many calls yields to other tasks of its worker thread, and stops its
//! work when the caller drops it.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use futures_util::poll;
use tower_chat::{Message, ToolCall, ToolResult};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

const CALLS: usize = 10_000;
/// The minimum number of times that such a request yields.
const YIELDS: usize = 5;

/// Returns an answer with many calls, and their results in reverse order.
fn many_calls() -> [Message; 4] {
    let call = |index| ToolCall::new(format!("c{index}"), "look", labelled(&format!("{index}")));
    let result = |index| ToolResult::new(format!("c{index}"), format!("found {index}"));
    [
        Message::user("where?"),
        Message::tool_calls((0..CALLS).map(call)),
        Message::tool_results((0..CALLS).rev().map(result)),
        Message::user("and now?"),
    ]
}

#[tokio::test]
async fn other_tasks_run_while_a_request_of_many_calls_is_worked_on() {
    Cases::all()
        .in_memory("a wait for the thread of another store lets other tasks run")
        .check(async |case| {
            let (_, _, client) = case.begin([Step::text("there")]).await;
            let ticks = Arc::new(AtomicUsize::new(0));
            let ticking = tokio::spawn({
                let ticks = ticks.clone();
                async move {
                    loop {
                        ticks.fetch_add(1, Ordering::Relaxed);
                        tokio::task::yield_now().await;
                    }
                }
            });
            send(&client, case.request_with(many_calls())).await.unwrap();
            ticking.abort();
            let ticks = ticks.load(Ordering::Relaxed);
            assert!(ticks >= YIELDS, "{ticks} ticks");
        })
        .await;
}

#[tokio::test]
async fn a_small_request_never_yields() {
    Cases::all()
        .in_memory("a run waits for the thread of another store")
        .check(async |case| {
            let (_, _, client) =
                case.begin([case.calls([("look", "c1")]), Step::text("there")]).await;
            let sending = pin!(send(&client, case.ask("where?")));
            assert!(poll!(sending).is_ready());
        })
        .await;
}

#[tokio::test]
async fn a_request_that_is_dropped_is_not_worked_on_any_more() {
    Cases::all()
        .in_memory("the number of polls depends on the store")
        .check(async |case| {
            let (store, model, client) =
                case.begin([Step::text("there"), Step::text("here")]).await;
            {
                let mut sending = pin!(send(&client, case.request_with(many_calls())));
                assert!(poll!(sending.as_mut()).is_pending());
                assert!(poll!(sending.as_mut()).is_pending());
            }
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            assert_eq!(model.requests().len(), 0);
            assert_eq!(stored(&store).await, [""; 0]);
            assert!(store.inner().head(&key()).await.unwrap().open_run.is_none());
            send(&client, case.ask("hi")).await.unwrap();
            assert_eq!(sent_texts(&model, 0), ["user hi"]);
        })
        .await;
}

#[tokio::test]
async fn other_tasks_run_between_tools_that_are_ready_at_once() {
    Cases::all()
        .in_memory("a wait for the thread of another store lets other tasks run")
        .check(async |case| {
            let store = case.store().await;
            let call = |index| case.tool_call("look", &format!("{index}"));
            let asking = Message::tool_calls((0..1000).map(call));
            let model = ScriptedModel::new([Step::message(asking), Step::text("there")]);
            let client = case.agent(&model, &store);
            let mut polls = 0;
            let mut sending = pin!(send(&client, case.ask("where?")));
            while poll!(sending.as_mut()).is_pending() {
                polls += 1;
                tokio::task::yield_now().await;
            }
            assert!(polls >= YIELDS, "{polls} polls");
        })
        .await;
}
