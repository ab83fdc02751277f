//! Tests that a message which a tool queues is stored together with the outcome of the call. If the
//! run is resumed, the tool does not run again.

use std::sync::{Arc, Mutex};

use tower_chat::{
    Message, Role, ToolContext, Tools,
    policy::UnansweredInputs,
    recovery::{RunEnd, close},
    run::RunHandle,
    tool::{ApprovalRequest, ToolOutput},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

/// Returns the tools `note` and `pay`, which needs approval. Each queues two messages: through its
/// context, and through the run handle of the context.
fn tools_that_queue(tool_log: &ToolLog) -> Tools {
    let run = |name: &'static str| {
        let tool_log = tool_log.clone();
        move |context: ToolContext| {
            tool_log.note(name);
            context.run_handle().queue(Message::user(format!("see {}", label_of(&context))));
            context.queue(Message::user(format!("and {}", label_of(&context))));
            async move { Ok(ToolOutput::from("noted")) }
        }
    };
    Tools::new()
        .with(tool_fn(definition("note"), run("note")))
        .with(tool_fn(definition("pay").needs_approval(), run("pay")))
}

const NOTED: [&str; 5] =
    ["user go", "assistant note#c1", "tool c1=noted", "user see c1", "user and c1"];

#[tokio::test]
async fn messages_queued_by_tools_are_kept_after_a_failed_service_call() {
    for is_elsewhere in [false, true] {
        every_case(async |case| {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let model = ScriptedModel::new([
                case.calls([("note", "c1")]),
                Step::error("overloaded"),
                Step::text("done"),
                Step::text("done"),
            ]);
            let stack = |store: &Store| {
                case.stack(model.clone(), store, policy(), tools_that_queue(&tool_log))
            };
            let request = case.ask("go");
            send(&stack(&store), request.clone()).await.unwrap_err();
            let store = if is_elsewhere { store.in_another_process() } else { store };
            if case.is(PerRun) {
                // The run has stored nothing. The tool runs again in the next attempt.
                assert_eq!(durable(&store).await, [""; 0]);
                return;
            }
            send(&stack(&store), request).await.unwrap();
            assert_eq!(tool_log.names(), ["note"]);
            let all = [&NOTED[..], &["assistant done"]].concat();
            assert_eq!(stored(&store).await, all);
            assert_eq!(sent_texts(&model, 2), NOTED);
        })
        .await;
    }
}

#[tokio::test]
async fn a_run_that_begins_again_contains_the_messages_queued_by_its_tools_once() {
    let cases = Cases::all().modes([PerRun], "in the other modes no tool runs again");
    cases
        .check(async |case| {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let round = || case.calls([("note", "c1")]);
            let model =
                ScriptedModel::new([round(), Step::error("overloaded"), round(), Step::text("ok")]);
            let client = case.stack(model.clone(), &store, policy(), tools_that_queue(&tool_log));
            let mut request = case.ask("go");
            let handle = request.run_handle();
            send(&client, request.clone()).await.unwrap_err();
            assert!(!handle.has_queued());
            send(&client, request).await.unwrap();
            assert_eq!(tool_log.names(), ["note", "note"]);
            assert_eq!(stored(&store).await, [&NOTED[..], &["assistant ok"]].concat());
        })
        .await;
}

#[tokio::test]
async fn messages_queued_by_tools_are_kept_after_a_disconnect_and_the_end_of_the_process() {
    let cases = Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing, and the tool runs again");
    for keeps_inputs in [UnansweredInputs::All, UnansweredInputs::Results] {
        cases
            .clone()
            .check(async |case| {
                let (store, tool_log) = (case.store().await, ToolLog::default());
                let model = ScriptedModel::new([
                    case.calls([("note", "c1")]),
                    Step::hang(),
                    Step::text("done"),
                ]);
                let policy = policy().with_inputs_of_dropped_call(keeps_inputs);
                let stack = |store: &Store| {
                    case.stack(model.clone(), store, policy.clone(), tools_that_queue(&tool_log))
                };
                let request = case.ask("go");
                until_called(&model, 2, send(&stack(&store), request.clone())).await;
                let store = store.in_another_process();
                send(&stack(&store), request).await.unwrap();
                assert_eq!(tool_log.names(), ["note"]);
                assert_eq!(stored(&store).await, [&NOTED[..], &["assistant done"]].concat());
            })
            .await;
    }
}

#[tokio::test]
async fn messages_queued_by_tools_are_committed_with_an_open_run() {
    let cases = Cases::all().modes([Journaled], "only a journaled run remains open");
    cases
        .check(async |case| {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let model =
                ScriptedModel::new([case.calls([("note", "c1")]), Step::error("overloaded")]);
            let client = case.stack(model, &store, policy(), tools_that_queue(&tool_log));
            send(&client, case.ask("go")).await.unwrap_err();
            assert!(close(&store, &key(), RunEnd::Commit).await.unwrap());
            assert_eq!(stored(&store).await, NOTED);
        })
        .await;
}

#[tokio::test]
async fn messages_queued_by_an_approved_call_are_stored_with_its_outcome() {
    every_case(async |case| {
        let (store, tool_log) = (case.store().await, ToolLog::default());
        let model = ScriptedModel::new([
            case.calls([("pay", "c1")]),
            Step::error("overloaded"),
            Step::text("done"),
        ]);
        let stack =
            |store: &Store| case.stack(model.clone(), store, policy(), tools_that_queue(&tool_log));
        let answer = send(&stack(&store), case.ask("buy")).await.unwrap();
        let yes = answer.approval_requests().map(ApprovalRequest::approve).map(Into::into);
        let request = case.request_with([Message::new(Role::User, yes.collect())]);
        send(&stack(&store), request.clone()).await.unwrap_err();
        let store = store.in_another_process();
        send(&stack(&store), request).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        let all = [
            "user buy",
            "assistant pay#c1?",
            "user yes",
            "tool c1=noted",
            "user see c1",
            "user and c1",
            "assistant done",
        ];
        assert_eq!(stored(&store).await, all);
    })
    .await;
}

#[tokio::test]
async fn messages_queued_by_tools_are_stored_if_the_run_is_stopped_before_the_next_call() {
    every_case(async |case| {
        let (store, tool_log) = (case.store().await, ToolLog::default());
        let model = ScriptedModel::new([case.calls([("note", "c1")])]);
        let mut request = case.ask("go");
        let handle = request.run_handle();
        let stopping = handle.clone();
        let tools = tools_that_queue(&tool_log).with(tool_fn(
            definition("note"),
            move |context: ToolContext| {
                context.queue(Message::user("see c1"));
                context.queue(Message::user("and c1"));
                stopping.stop();
                async { Ok(ToolOutput::from("noted")) }
            },
        ));
        let client = case.stack(model, &store, policy(), tools);
        let answer = send(&client, request).await.unwrap();
        assert_eq!(shorts(&answer.messages), NOTED[1..]);
        assert_eq!(stored(&store).await[..5], NOTED);
        assert!(!handle.has_queued());
    })
    .await;
}

/// The run contains no answer of the model, but has ended: the model is not called for the same
/// request.
#[tokio::test]
async fn a_stopped_run_of_approved_calls_has_ended_although_its_last_message_was_queued() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([case.calls([("pay", "c1")])]);
        let stopping = Arc::new(Mutex::new(None::<RunHandle>));
        let handle = stopping.clone();
        let pay = tool_fn(definition("pay").needs_approval(), move |context: ToolContext| {
            context.queue(Message::user("see c1"));
            handle.lock().unwrap().iter().for_each(RunHandle::stop);
            async { Ok(ToolOutput::from("noted")) }
        });
        let client = case.stack(model.clone(), &store, policy(), Tools::new().with(pay));
        let answer = send(&client, case.ask("buy")).await.unwrap();
        let yes = answer.approval_requests().map(ApprovalRequest::approve).map(Into::into);
        let mut request = case.request_with([Message::new(Role::User, yes.collect())]);
        *stopping.lock().unwrap() = Some(request.run_handle());
        send(&client, request.clone()).await.unwrap();
        let after = stored(&store).await;
        assert_eq!(after[2..5], ["user yes", "tool c1=noted", "user see c1"]);
        send(&client, request).await.unwrap();
        assert_eq!(model.requests().len(), 1);
        assert_eq!(stored(&store).await, after);
    })
    .await;
}

#[tokio::test]
async fn messages_queued_by_a_tool_that_ends_the_run_stay_in_the_run_handle() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([case.calls([("end", "c1")])]);
        let mut request = case.ask("go");
        let handle = request.run_handle();
        let tools = Tools::new().with(tool_fn(definition("end"), |context: ToolContext| {
            context.queue(Message::user("and then?"));
            async { Ok(ToolOutput::from("ended").terminate()) }
        }));
        let client = case.stack(model, &store, policy(), tools);
        send(&client, request).await.unwrap();
        assert_eq!(handle.take_queued(), [Message::user("and then?")]);
    })
    .await;
}
