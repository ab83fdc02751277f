//! Tests that no further tool starts after a run was stopped.

use std::pin::pin;

use futures_util::poll;
use tower::Layer;
use tower_chat::{
    Answer, BoxError, HistoryStore, Message, Role, ToolContext, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    request::EndedBy,
    run::RunHandle,
    store::{InvocationQuery, ToolCallQueries},
    tool::{ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel};

use crate::common::*;

const STOPPED: &str = "The call was not run: the run was stopped before the call started.";

fn tools_that_halt(tool_log: &ToolLog, handle: &RunHandle) -> Tools {
    let handle = handle.clone();
    tools(tool_log).with(tool_fn(definition("halt"), move |context: ToolContext| {
        handle.stop();
        let answer = format!("halted {}", label_of(&context));
        async move { Ok::<_, BoxError>(ToolOutput::from(answer)) }
    }))
}

fn client(case: Case, model: &ScriptedModel, store: &Store, tools: Tools, at_once: bool) -> Client {
    let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
    let tool_loop = ToolLoopLayer::new(tools).concurrent(at_once).layer(below);
    boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(tool_loop))
}

async fn statuses(store: &Store) -> Vec<(ToolStatus, bool)> {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    found.iter().map(|(_, call)| (call.status, call.started_at.is_some())).collect()
}

#[tokio::test]
async fn no_tool_starts_after_the_one_that_stops_the_run() {
    for at_once in [false, true] {
        every_id(async |case| {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let asking = [("halt", "c1"), ("look", "c2"), ("stop", "c3")];
            let model = ScriptedModel::new([case.calls(asking)]);
            let mut request = case.ask("where?");
            let tools = tools_that_halt(&tool_log, &request.run_handle());
            let client = client(case, &model, &store, tools, at_once);
            let answer = send(&client, request.clone()).await.unwrap();
            assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
            assert_eq!(tool_log.names(), [""; 0]);
            let results = format!("tool c1=halted c1 c2!{STOPPED} c3!{STOPPED}");
            let all = ["user where?", "assistant halt#c1 look#c2 stop#c3", &results];
            assert_eq!(shorts(&answer.messages), all[1..]);
            assert_eq!(stored(&store).await, all);
            let stopped = (ToolStatus::Stopped, false);
            assert_eq!(statuses(&store).await, [(ToolStatus::Ok, true), stopped, stopped]);
            let again = send(&client, request).await.unwrap();
            assert_eq!(
                shorts(&again.messages),
                all[1..],
                "the same request returns the same answer"
            );
            assert_eq!(again.finish.ended_by, Some(EndedBy::Stop));
        })
        .await;
    }
}

#[tokio::test]
async fn no_approved_call_starts_after_the_one_that_stops_the_run() {
    every_id(async |case| {
        let (store, tool_log) = (case.store().await, ToolLog::default());
        let model = ScriptedModel::new([case.calls([("halt", "c1"), ("pay", "c2")])]);
        let mut request = case.ask("buy");
        let tools = tools_that_halt(&tool_log, &RunHandle::new());
        let asked = client(case, &model, &store, tools, false);
        let answer = send(&asked, request.clone()).await.unwrap();
        let yes: Vec<_> =
            answer.approval_requests().map(|request| request.approve().into()).collect();
        request = case.request_with([Message::new(Role::User, yes.clone())]);
        let tools = tools_that_halt(&tool_log, &request.run_handle());
        let answer = send(&client(case, &model, &store, tools, false), request).await.unwrap();
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
        assert_eq!(tool_log.names(), [""; 0]);
        let stopped = (ToolStatus::Stopped, false);
        assert_eq!(statuses(&store).await, [(ToolStatus::Ok, true), stopped]);
        // The stopped call has a result. A later approval is therefore refused.
        let again = case.request_with([Message::new(Role::User, yes)]);
        send(&asked, again).await.unwrap_err();
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(model.requests().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn no_tool_starts_where_another_task_stops_the_run_just_before_the_one_before_it_ends() {
    every_case(async |case| {
        let (store, tool_log, gate) = (case.store().await, ToolLog::default(), Gate::closed());
        let model = ScriptedModel::new([case.calls([("wait", "c1"), ("look", "c2")])]);
        let mut request = case.ask("where?");
        let handle = request.run_handle();
        let client = client(case, &model, &store, tools_with_gate(&tool_log, &gate), false);
        let answer: Answer = {
            let mut run = pin!(send(&client, request));
            let mut there = pin!(gate.reached(1));
            while poll!(there.as_mut()).is_pending() {
                assert!(poll!(run.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            // The run is not polled between these two events.
            handle.stop();
            gate.open();
            run.await.unwrap()
        };
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Stop));
        assert_eq!(tool_log.names(), [""; 0]);
        let results = format!("tool c1=waited c1 c2!{STOPPED}");
        assert_eq!(shorts(&answer.messages), ["assistant wait#c1 look#c2", &results]);
        assert_eq!(stored(&store).await[2], results);
    })
    .await;
}

#[tokio::test]
async fn a_run_is_reported_as_ended_by_its_tool_if_the_tool_also_stops_it() {
    every_case(async |case| {
        let (store, tool_log) = (case.store().await, ToolLog::default());
        let model = ScriptedModel::new([case.calls([("end", "c1"), ("look", "c2")])]);
        let mut request = case.ask("where?");
        let handle = request.run_handle();
        let tools = tools(&tool_log).with(tool_fn(definition("end"), move |_| {
            handle.stop();
            async { Ok::<_, BoxError>(ToolOutput::from("ended").terminate()) }
        }));
        let client = client(case, &model, &store, tools, false);
        let answer = send(&client, request.clone()).await.unwrap();
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Tool));
        assert_eq!(shorts(&answer.messages), ["assistant end#c1 look#c2", "tool c1=ended"]);
        assert_eq!(tool_log.names(), [""; 0]);
        let again = send(&client, request).await.unwrap();
        assert_eq!(again.finish.ended_by, Some(EndedBy::Tool));
    })
    .await;
}
