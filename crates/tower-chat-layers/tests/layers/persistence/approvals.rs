//! Tests that calls which wait for approval are stored, and that a later run executes an approved
//! call exactly once.

use std::sync::{Arc, Mutex};

use tower_chat::{
    Answer, ChatRequest, Finish, Message, Part, PersistenceMode, Role, ToolContext, Tools,
    error::ToolLoopError,
    policy::ConflictPolicy,
    run::Run,
    tool::{ApprovalRequest, ApprovalResponse, ToolOutput},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

fn requests(answer: &Answer) -> Vec<ApprovalRequest> {
    answer.approval_requests().cloned().collect()
}

fn replying(parts: impl IntoIterator<Item = ApprovalResponse>, streamed: bool) -> ChatRequest {
    let parts = parts.into_iter().map(Part::from).collect();
    request_with([Message::new(Role::User, parts)], streamed)
}

fn agent_with(
    model: &ScriptedModel,
    store: &Store,
    mode: PersistenceMode,
    tool_log: &ToolLog,
) -> Client {
    stack(model.clone(), store, mode, policy(), tools(tool_log))
}

#[tokio::test]
async fn a_request_is_stored_survives_a_restart_and_is_approved_by_a_later_run() {
    every_id(async |case| {
        let (store, tool_log, _, client) =
            case.begin_with_log([case.calls([("pay", "c1"), ("look", "c2")])]).await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        assert_eq!(asked.iter().map(|r| r.required).collect::<Vec<_>>(), [true, false]);
        assert_eq!(stored(&store).await, ["user buy", "assistant pay#c1? look#c2?"]);
        drop(client);

        let after = store.in_another_process();
        let model = ScriptedModel::new([Step::text("done"), Step::text("bye")]);
        let client = agent_with(&model, &after, case.mode, &tool_log);
        let yes = replying(asked.iter().map(ApprovalRequest::approve), case.streamed);
        let answer = send(&client, yes).await.unwrap();
        assert_eq!(tool_log.names(), ["pay", "look"]);
        let shown = ["user buy", "assistant pay#c1 look#c2", "tool c1=payed c1 c2=looked c2"];
        assert_eq!(sent_texts(&model, 0), shown);
        let all = [
            "user buy",
            "assistant pay#c1? look#c2?",
            "user yes yes",
            "tool c1=payed c1 c2=looked c2",
            "assistant done",
        ];
        assert_eq!(stored(&after).await, all);
        let history = after.inner().load(&key()).await.unwrap().messages;
        assert_eq!(shorts_after(history.iter().take(3), &answer.messages), all[3..]);
        send(&client, case.ask("ok")).await.unwrap();
        assert_eq!(sent_texts(&model, 1)[..3], shown);
        assert_eq!(sent_texts(&model, 1)[3..], ["assistant done", "user ok"]);
    })
    .await;
}

fn paying() -> Tools {
    let pay = definition("pay").needs_approval();
    Tools::new().with(tool_fn(pay, |context: ToolContext| async move {
        Ok(ToolOutput::from(format!("paid {}", context.call().arguments)))
    }))
}

#[tokio::test]
async fn a_call_runs_with_the_arguments_of_its_decision_and_the_model_is_told() {
    every_id(async |case| {
        let store = case.store().await;
        let asking = ScriptedModel::new([case.calls([("pay", "c1"), ("pay", "c2")])]);
        let client = stack(asking, &store, case.mode, policy(), paying());
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        let arguments = &asked[1].call.arguments;
        drop(client);

        let after = store.in_another_process();
        let model = ScriptedModel::new([Step::text("done"), Step::text("bye")]);
        let client = stack(model.clone(), &after, case.mode, policy(), paying());
        let decisions = [asked[0].approve_with(r#"{"cents": 1}"#), asked[1].approve()];
        let request = replying(decisions, case.streamed);
        send(&client, request.clone()).await.unwrap();
        let results = format!(
            "tool c1=paid {{\"cents\": 1}}[The call was approved with other arguments. The tool \
             was called with {{\"cents\": 1}}] c2=paid {arguments}"
        );
        let shown = ["user buy", "assistant pay#c1 pay#c2", results.as_str()];
        assert_eq!(sent_texts(&model, 0), shown);
        let requests = model.requests();
        let sent = requests[0].messages();
        let calls = sent.iter().flat_map(|message| message.calls());
        let sent: Vec<_> = calls.map(|call| call.arguments.as_str()).collect();
        assert_eq!(sent, [&asked[0].call.arguments, arguments]);
        let history = stored(&after).await;
        assert_eq!(history[1..4], ["assistant pay#c1? pay#c2?", "user yes yes", results.as_str()]);
        let messages = after.inner().load(&key()).await.unwrap().messages;
        let Some(Part::ApprovalResponse(decision)) = messages.get(2).map(|it| &it.parts[0]) else {
            panic!("{messages:?}")
        };
        assert_eq!(decision.arguments.as_deref(), Some(r#"{"cents": 1}"#));
        send(&client, case.ask("ok")).await.unwrap();
        assert_eq!(sent_texts(&model, 1)[..3], shown);
    })
    .await;
}

#[tokio::test]
async fn two_decisions_with_different_arguments_contradict_each_other() {
    every_id(async |case| {
        let (store, tool_log, _, client) = case.begin_with_log([case.calls([("pay", "c1")])]).await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        for other in [asked[0].approve(), asked[0].approve_with(r#"{"cents": 2}"#)] {
            let decisions = [asked[0].approve_with(r#"{"cents": 1}"#), other];
            let error = send(&client, replying(decisions, case.streamed)).await.unwrap_err();
            let error = error.downcast_ref::<ToolLoopError>();
            assert!(matches!(error, Some(ToolLoopError::ApprovalContradicted { .. })), "{error:?}");
        }
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(stored(&store).await, ["user buy", "assistant pay#c1?"]);
    })
    .await;
}

#[tokio::test]
async fn a_rejected_call_does_not_run_and_the_model_and_the_store_receive_the_reason() {
    every_id(async |case| {
        let (store, tool_log, model, client) =
            case.begin_with_log([case.calls([("pay", "c1")]), Step::text("fine")]).await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        send(&client, replying([asked[0].reject("too dear")], case.streamed)).await.unwrap();
        assert_eq!(tool_log.names(), [""; 0]);
        let messages = stored(&store).await;
        assert_eq!(messages[..3], ["user buy", "assistant pay#c1?", "user no"]);
        assert!(messages[3].starts_with("tool c1") && messages[3].contains("too dear"));
        assert_eq!(sent_texts(&model, 1), ["user buy", "assistant pay#c1", messages[3].as_str()]);
    })
    .await;
}

#[tokio::test]
async fn pending_calls_are_omitted_from_replay_and_can_be_approved_after_other_runs() {
    every_id(async |case| {
        let (_, tool_log, model, client) = case
            .begin_with_log([
                case.calls([("pay", "c1")]),
                Step::text("as you like"),
                Step::text("done"),
            ])
            .await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        send(&client, case.ask("wait")).await.unwrap();
        assert_eq!(sent_texts(&model, 1), ["user buy", "user wait"]);
        send(&client, replying([asked[0].approve()], case.streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        let shown = [
            "user buy",
            "user wait",
            "assistant as you like",
            "assistant pay#c1",
            "tool c1=payed c1",
        ];
        assert_eq!(sent_texts(&model, 2), shown);
    })
    .await;
}

#[tokio::test]
async fn forged_and_repeated_answers_are_refused() {
    every_id(async |case| {
        let (store, tool_log, model, client) =
            case.begin_with_log([case.calls([("pay", "c1")]), Step::text("done")]).await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        let mut forged = asked[0].approve();
        forged.request_id = "approval_0_0_0".into();
        let error = send(&client, replying([forged], case.streamed)).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>();
        assert!(matches!(error, Some(ToolLoopError::ApprovalUnknown { .. })), "{error:?}");
        assert_eq!(tool_log.names(), [""; 0]);
        let twice = [asked[0].approve(), asked[0].approve()];
        send(&client, replying(twice, case.streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"], "one of the two decisions is applied");
        let error = send(&client, replying([asked[0].approve()], case.streamed)).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>();
        assert!(matches!(error, Some(ToolLoopError::ApprovalAnswered { .. })), "{error:?}");
        assert_eq!((tool_log.names(), model.requests().len()), (vec!["pay".to_owned()], 2));
        let results = stored(&store).await;
        assert_eq!(results.iter().filter(|m| m.starts_with("tool")).count(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_batch_answered_in_part_fails_before_anything_runs_and_consumes_nothing() {
    every_id(async |case| {
        let (store, tool_log, model, client) = case
            .begin_with_log([case.calls([("pay", "c1"), ("pay", "c2")]), Step::text("done")])
            .await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        let one = replying([asked[0].approve()], case.streamed);
        let error = send(&client, one).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>().expect("the loop's error");
        assert!(matches!(error, ToolLoopError::ApprovalMissing { .. }), "{error:?}");
        assert_eq!(stored(&store).await, ["user buy", "assistant pay#c1? pay#c2?"]);
        let all = replying(asked.iter().map(ApprovalRequest::approve), case.streamed);
        send(&client, all).await.unwrap();
        assert_eq!(tool_log.names(), ["pay", "pay"]);
        let shown = ["user buy", "assistant pay#c1 pay#c2", "tool c1=payed c1 c2=payed c2"];
        assert_eq!(sent_texts(&model, 1), shown);
    })
    .await;
}

#[tokio::test]
async fn approvals_are_not_used_up_by_a_run_that_then_fails() {
    every_id(async |case| {
        let (store, tool_log, model, client) = case
            .begin_with_log([
                case.calls([("pay", "c1")]),
                Step::error("overloaded"),
                Step::text("done"),
            ])
            .await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        let mut request = replying([asked[0].approve()], case.streamed);
        request.push(Message::user("quick"));
        send(&client, request.clone()).await.unwrap_err();
        if case.mode == PerRun {
            assert_eq!(stored(&store).await.len(), 2, "a failed run stores no messages");
        }
        send(&client, request).await.unwrap();
        assert_eq!(
            tool_log.names(),
            ["pay"],
            "the tool does not run again, although its run failed"
        );
        let all = [
            "user buy",
            "assistant pay#c1?",
            "user yes",
            "user quick",
            "tool c1=payed c1",
            "assistant done",
        ];
        assert_eq!(stored(&store).await, all);
        let shown = ["user buy", "user quick", "assistant pay#c1", "tool c1=payed c1"];
        assert_eq!(sent_texts(&model, 2), shown);
    })
    .await;
}

#[tokio::test]
async fn text_in_a_message_with_an_approval_is_sent_after_the_results() {
    every_id(async |case| {
        let (store, model, client) =
            case.begin([case.calls([("pay", "c1")]), Step::text("done")]).await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        let parts = vec![asked[0].approve().into(), Part::text("gladly")];
        send(&client, case.request_with([Message::new(Role::User, parts)])).await.unwrap();
        let shown = ["user buy", "assistant pay#c1", "tool c1=payed c1", "user gladly"];
        assert_eq!(sent_texts(&model, 1), shown);
        let history = stored(&store).await;
        assert_eq!(history[2], "user yes gladly");
    })
    .await;
}

#[tokio::test]
async fn a_service_that_keeps_the_history_gets_the_results_of_approved_calls() {
    every_id(async |case| {
        for conflict in [ConflictPolicy::StopRecording, ConflictPolicy::Record] {
            let (store, tool_log) = (case.store().await, ToolLog::default());
            let asking = case.call_message([("pay", "c1")]);
            let model = ScriptedModel::new([
                Step::answer([asking], Finish::stop().with_service_id("s1")),
                kept("done", "s1"),
            ]);
            let policy = policy().on_conflict(conflict);
            let client = case.stack(model.clone(), &store, policy, tools(&tool_log));
            let asking = send(&client, case.ask("buy")).await.unwrap();
            let asked = requests(&asking);
            assert_eq!(asked.len(), 1);
            send(&client, replying([asked[0].approve()], case.streamed)).await.unwrap();
            assert_eq!(tool_log.names(), ["pay"]);
            let case_name = format!("{conflict:?}");
            assert_eq!(
                shorts_after(&asking.messages, model.requests()[1].messages().iter()),
                ["tool c1=payed c1"],
                "the history already contains the call {case_name}"
            );
            assert_eq!(service_id(&store).await.as_deref(), Some("s1"));
            let again = replying([asked[0].approve()], case.streamed);
            let error = send(&client, again).await.unwrap_err();
            let error = error.downcast_ref::<ToolLoopError>();
            assert!(matches!(error, Some(ToolLoopError::ApprovalAnswered { .. })), "{case_name}");
            assert_eq!((tool_log.names(), model.requests().len()), (vec!["pay".to_owned()], 2));
        }
    })
    .await;
}

#[tokio::test]
async fn a_service_receives_the_pending_approvals_of_the_conversation() {
    every_case(async |case| {
        let observed = Arc::new(Mutex::new(Vec::new()));
        let noting = Step::respond({
            let observed = observed.clone();
            move |request| {
                let run = request.extensions.get::<Run>().unwrap();
                observed.lock().unwrap().push(run.pending_approvals());
                Step::text("noted")
            }
        });
        let (_, _, client) =
            case.begin([case.calls([("pay", "c1"), ("look", "c2")]), noting]).await;
        let asked = requests(&send(&client, case.ask("buy")).await.unwrap());
        send(&client, case.ask("wait")).await.unwrap();
        assert_eq!(*observed.lock().unwrap(), [vec![asked]]);
    })
    .await;
}
