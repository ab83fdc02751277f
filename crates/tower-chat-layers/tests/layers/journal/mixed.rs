//! Tests answers with calls that need approval, calls that the caller executes, and other calls.
//! The approval requests, the returned calls and the pending calls are the same in every mode.

use std::sync::Arc;

use tokio::sync::Notify;
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatUpdate, HistoryStore, Message, Part, PersistenceMode, Role,
    ToolCall, ToolContext, ToolResult, Tools,
    error::ToolLoopError,
    layer::ToolLoopLayer,
    policy::UnknownTools,
    store::{InvocationQuery, ToolCallQueries},
    tool::{ApprovalRequest, ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

/// Why the caller executes a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Callers {
    /// The tool set only declares the tool.
    Declared,
    /// The tool set only declares the tool, with approval. The caller decides about the approval.
    DeclaredWithApproval,
    /// The options of the request declare the tool.
    InOptions,
    /// The tool is not declared, and the policy returns calls of unknown tools.
    Unknown,
}

const ALL_CALLERS: [Callers; 4] =
    [Callers::Declared, Callers::DeclaredWithApproval, Callers::InOptions, Callers::Unknown];

/// Returns the tools `pay`, which needs approval, and `look`. Both log their arguments and return
/// them.
fn executed(tool_log: &ToolLog) -> Tools {
    let tool = |name: &'static str| {
        let tool_log = tool_log.clone();
        let mut definition = definition(name);
        definition.needs_approval = name == "pay";
        tool_fn(definition, move |context: ToolContext| {
            tool_log.note(&format!("{name} {}", context.arguments()));
            let answer = format!("{name} did {}", context.arguments());
            async move { Ok::<_, BoxError>(ToolOutput::from(answer)) }
        })
    };
    Tools::new().with(tool("pay")).with(tool("look"))
}

fn looped(tool_log: &ToolLog, callers: Callers) -> ToolLoopLayer {
    let tools = executed(tool_log);
    match callers {
        Callers::Declared => ToolLoopLayer::new(tools.declare(definition("ask"))),
        Callers::DeclaredWithApproval => {
            ToolLoopLayer::new(tools.declare(definition("ask").needs_approval()))
        }
        Callers::InOptions => ToolLoopLayer::new(tools),
        Callers::Unknown => ToolLoopLayer::new(tools).unknown_tools(UnknownTools::Return),
    }
}

fn with_options(mut request: ChatRequest, callers: Callers) -> ChatRequest {
    if callers == Callers::InOptions {
        let mut options = (*request.options).clone();
        options.tools.push(definition("ask"));
        request = request.with_options(options);
    }
    request
}

/// Returns one answer with calls of `look`, `pay` and `ask`, in this order.
fn batch() -> Message {
    let call = |(name, id, arguments)| ToolCall::new(id, name, arguments);
    Message::tool_calls([("look", "c1", "1"), ("pay", "c2", "2"), ("ask", "c3", "3")].map(call))
}

fn requests(answer: &Answer) -> Vec<ApprovalRequest> {
    answer.approval_requests().cloned().collect()
}

fn approvals(asked: &[ApprovalRequest]) -> Message {
    let required = asked.iter().filter(|request| request.required);
    Message::new(Role::User, required.map(|request| request.approve().into()).collect())
}

fn result_of_ask() -> Message {
    Message::tool_results([ToolResult::new("c3", "blue")])
}

async fn statuses(store: &Store) -> Vec<(String, ToolStatus)> {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    found.into_iter().map(|(_, call)| (call.name, call.status)).collect()
}

const ASKED: [&str; 2] = ["user buy", "assistant look#c1? pay#c2? ask#c3"];
const ROUND: [&str; 3] =
    ["user buy", "assistant look#c1 pay#c2 ask#c3", "tool c1=look did 1 c2=pay did 2 c3=blue"];

async fn asked(setup: &Setup, callers: Callers, streamed: bool) -> Vec<ApprovalRequest> {
    let tool_log = ToolLog::default();
    let model = ScriptedModel::new([Step::message(batch())]);
    let client = setup.looped(&model, looped(&tool_log, callers));
    let request = with_options(ask("buy", streamed), callers);
    let answer = send(&client, request).await.unwrap();
    let case = (setup.mode, callers, streamed);
    assert_eq!(shorts(&answer.messages), ASKED[1..], "{case:?}");
    let returned: Vec<_> = answer.tool_calls().map(|call| call.name.clone()).collect();
    assert_eq!(returned, ["ask"], "{case:?}");
    assert_eq!(tool_log.names(), [""; 0], "{case:?}");
    assert_eq!(stored(&setup.store).await, ASKED, "{case:?}");
    assert!(open(&setup.store).await.is_none(), "{case:?}");
    let requests = requests(&answer);
    let of = |request: &ApprovalRequest| (request.call.name.clone(), request.required);
    let expected = [("look".to_owned(), false), ("pay".to_owned(), true)];
    assert_eq!(requests.iter().map(of).collect::<Vec<_>>(), expected, "{case:?}");
    requests
}

#[tokio::test]
async fn a_batch_of_approvals_and_returned_calls_is_recorded_the_same_in_every_mode() {
    for (streamed, mode, callers) in cases!(BOTH_WAYS, ALL_MODES, ALL_CALLERS) {
        let store = store();
        asked(&Setup::new(&store).mode(mode), callers, streamed).await;
        let expected = [
            ("look".to_owned(), ToolStatus::PendingApproval),
            ("pay".to_owned(), ToolStatus::PendingApproval),
            ("ask".to_owned(), ToolStatus::Returned),
        ];
        assert_eq!(statuses(&store).await, expected);
    }
}

#[tokio::test]
async fn approvals_and_results_in_one_request_answer_the_whole_batch() {
    for (streamed, mode, callers, results_first) in
        cases!(BOTH_WAYS, ALL_MODES, ALL_CALLERS, [false, true])
    {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = asked(&setup, callers, streamed).await;
        let input = match results_first {
            true => [result_of_ask(), approvals(&asked)],
            false => [approvals(&asked), result_of_ask()],
        };
        let model = ScriptedModel::new([Step::text("done"), Step::text("bye")]);
        let client = setup.elsewhere().looped(&model, looped(&tool_log, callers));
        let request = with_options(request_with(input, streamed), callers);
        send(&client, request).await.unwrap();
        assert_eq!(tool_log.names(), ["look 1", "pay 2"]);
        assert_eq!(sent_texts(&model, 0), ROUND);
        let expected = ["look", "pay", "ask"].map(|it| (it.to_owned(), ToolStatus::Ok));
        assert_eq!(statuses(&store).await, expected);
        send(&client, ask("ok", streamed)).await.unwrap();
        assert_eq!(sent_texts(&model, 1)[..3], ROUND);
        assert_eq!(sent_texts(&model, 1)[3..], ["assistant done", "user ok"]);
    }
}

#[tokio::test]
async fn a_run_that_is_dropped_before_its_first_service_call_does_not_store_its_input() {
    for (streamed, mode) in
        cases!(BOTH_WAYS, [PersistenceMode::PerRun, PersistenceMode::PerServiceCall])
    {
        let store = store();
        let setup = Setup::new(&store).mode(mode);
        let asked = asked(&setup, Callers::Declared, streamed).await;
        let model = ScriptedModel::new([]);
        let started = Arc::new(Notify::new());
        let hanging = |name: &'static str| {
            let started = started.clone();
            tool_fn(definition(name), move |_: ToolContext| {
                started.notify_one();
                std::future::pending::<Result<ToolOutput, BoxError>>()
            })
        };
        let tools = Tools::new().with(hanging("look")).with(hanging("pay"));
        let tool_loop = ToolLoopLayer::new(tools.declare(definition("ask")));
        let client = setup.looped(&model, tool_loop);
        let request = request_with([result_of_ask(), approvals(&asked)], streamed);
        tokio::select! {
            answer = send(&client, request) => panic!("the tool does not end: {answer:?}"),
            () = started.notified() => {}
        }
        store.inner().flush().await.unwrap();
        assert_eq!(stored(&store).await, ASKED, "{mode:?}");
    }
}

#[tokio::test]
async fn results_may_come_before_the_approvals() {
    for (streamed, mode, callers) in cases!(BOTH_WAYS, ALL_MODES, ALL_CALLERS) {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = asked(&setup, callers, streamed).await;
        let model = ScriptedModel::new([Step::text("blue, then"), Step::text("done")]);
        let client = setup.looped(&model, looped(&tool_log, callers));
        let results = with_options(request_with([result_of_ask()], streamed), callers);
        send(&client, results).await.unwrap();
        assert_eq!(sent_texts(&model, 0), ["user buy", "assistant ask#c3", "tool c3=blue"]);
        assert_eq!(tool_log.names(), [""; 0], "the other calls still wait");
        let yes = with_options(request_with([approvals(&asked)], streamed), callers);
        send(&client, yes).await.unwrap();
        assert_eq!(tool_log.names(), ["look 1", "pay 2"]);
        let shown = sent_texts(&model, 1);
        let rest =
            ["assistant blue, then", "assistant look#c1 pay#c2", "tool c1=look did 1 c2=pay did 2"];
        assert_eq!(shown[3..], rest);
    }
}

#[tokio::test]
async fn approvals_without_the_callers_results_are_refused_and_not_used_up() {
    for (streamed, mode, callers) in cases!(BOTH_WAYS, ALL_MODES, ALL_CALLERS) {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = asked(&setup, callers, streamed).await;
        let model = ScriptedModel::new([Step::text("done")]);
        let client = setup.looped(&model, looped(&tool_log, callers));
        let yes = with_options(request_with([approvals(&asked)], streamed), callers);
        let error = send(&client, yes).await.unwrap_err();
        let text = error.to_string();
        let Some(ToolLoopError::ResultsMissing { calls, .. }) = error.downcast_ref() else {
            panic!("{error:?}")
        };
        let named: Vec<_> = calls.iter().map(|it| (&*it.tool, &*it.call_id)).collect();
        assert_eq!(named, [("ask", "c3")]);
        assert!(text.contains("ask") && text.contains("c3"), "{text}");
        assert_eq!((tool_log.names().len(), model.requests().len()), (0, 0));
        assert_eq!(stored(&store).await, ASKED);
        assert!(open(&store).await.is_none());

        let whole = request_with([approvals(&asked), result_of_ask()], streamed);
        send(&client, with_options(whole, callers)).await.unwrap();
        assert_eq!(tool_log.names(), ["look 1", "pay 2"]);
        assert_eq!(sent_texts(&model, 0), ROUND);
    }
}

#[tokio::test]
async fn calls_of_several_messages_of_one_answer_wait_together() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let first = Message::tool_calls([ToolCall::new("c2", "pay", "2")]);
        let second = Message::tool_calls([ToolCall::new("c3", "ask", "3")]);
        let finish = tower_chat::Finish::stop();
        let model = ScriptedModel::new([
            Step::answer([first, Message::assistant("and"), second], finish),
            Step::text("done"),
        ]);
        let client = setup.looped(&model, looped(&tool_log, Callers::Declared));
        let answer = send(&client, ask("buy", streamed)).await.unwrap();
        let messages = ["assistant pay#c2?", "assistant and", "assistant ask#c3"];
        assert_eq!(shorts(&answer.messages), messages);
        let asked = requests(&answer);
        let yes = request_with([approvals(&asked)], streamed);
        let error = send(&client, yes).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>();
        assert!(matches!(error, Some(ToolLoopError::ResultsMissing { .. })), "{error:?}");
        assert_eq!(tool_log.names(), [""; 0]);
        send(&client, request_with([approvals(&asked), result_of_ask()], streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay 2"]);
    }
}

#[tokio::test]
async fn a_waiting_call_of_a_tool_that_became_the_callers_needs_its_result() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let run_by_us = tool_fn(definition("ask"), |_| async { Ok(ToolOutput::from("ours")) });
        let model = ScriptedModel::new([Step::message(batch()), Step::text("done")]);
        let client = setup.stack(&model, executed(&tool_log).with(run_by_us));
        let asked = requests(&send(&client, ask("buy", streamed)).await.unwrap());
        assert_eq!(asked.len(), 3);
        let client = setup.looped(&model, looped(&tool_log, Callers::Declared));
        let all = asked.iter().map(|request| request.approve().into()).collect();
        let all = Message::new(Role::User, all);
        let error = send(&client, request_with([all], streamed)).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>();
        assert!(matches!(error, Some(ToolLoopError::ResultsMissing { .. })), "{error:?}");
        let ours = asked[..2].iter().map(|request| request.approve().into()).collect();
        let ours = Message::new(Role::User, ours);
        send(&client, request_with([ours, result_of_ask()], streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["look 1", "pay 2"]);
        assert_eq!(sent_texts(&model, 1), ROUND);
    }
}

#[tokio::test]
async fn the_updates_of_a_mixed_batch_show_the_answer_once_it_is_whole() {
    for mode in ALL_MODES {
        let store = store();
        let mut answer = batch();
        answer.parts.insert(0, Part::text("one moment"));
        let model = ScriptedModel::new([Step::message(answer)]);
        let client = Setup::new(&store).mode(mode);
        let client = client.looped(&model, looped(&ToolLog::default(), Callers::Declared));
        let mut response = head(&client, ask("buy", true)).await.unwrap();
        let (mut shown, mut deltas_after) = (Vec::new(), 0);
        while let Some(update) = response.next().await {
            match update.unwrap() {
                ChatUpdate::Message(message) => shown.push(short(&message)),
                ChatUpdate::Finish(_) => shown.push("end".to_owned()),
                _ => deltas_after += usize::from(!shown.is_empty()),
            }
        }
        let expected = ["assistant one moment look#c1? pay#c2? ask#c3", "end"];
        assert_eq!(shown, expected, "{mode:?}");
        assert_eq!(deltas_after, 0, "no delta follows the message {mode:?}");
    }
}

#[tokio::test]
async fn the_other_calls_of_a_batch_run_although_one_call_is_rejected() {
    for mode in [PerRun, PersistenceMode::PerServiceCall, JOURNALED] {
        let (store, tool_log) = (store(), ToolLog::default());
        let setup = Setup::new(&store).mode(mode);
        let asked = asked(&setup, Callers::Declared, false).await;
        let model = ScriptedModel::new([Step::text("fine")]);
        let client = setup.looped(&model, looped(&tool_log, Callers::Declared));
        let no = Message::new(Role::User, vec![asked[1].reject("too dear").into()]);
        send(&client, request_with([no, result_of_ask()], false)).await.unwrap();
        assert_eq!(tool_log.names(), ["look 1"], "{mode:?}");
        let results = &sent_texts(&model, 0)[2];
        assert!(
            results.starts_with("tool c1=look did 1 c2=") && results.ends_with("c3=blue"),
            "{results}"
        );
        assert!(results.contains("too dear"), "{results}");
    }
}
