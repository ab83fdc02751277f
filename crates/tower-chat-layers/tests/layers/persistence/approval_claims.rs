//! Tests approved calls if two requests approve the same call at the same time, if the caller
//! disconnects, and if a request contains two decisions about a call.

use std::{pin::pin, time::Duration};

use futures_util::poll;
use tower::Layer;
use tower_chat::{
    ChatRequest, HistoryStore, Message, PersistenceError, Role, ToolContext, Tools,
    error::{ToolLoopError, is_retryable},
    layer::ToolLoopLayer,
    recovery::JournalPolicy,
    request::EndedBy,
    store::{InvocationQuery, ToolCallQueries},
    tool::{ApprovalRequest, ApprovalResponse, ToolOutput, ToolStatus},
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::common::*;

/// Returns the tools of these tests, with a tool `pay` that needs approval and waits at `gate`.
fn paying(tool_log: &ToolLog, gate: &Gate) -> Tools {
    let (tool_log, gate) = (tool_log.clone(), gate.clone());
    tools(&tool_log.clone()).with(tool_fn(
        definition("pay").needs_approval(),
        move |context: ToolContext| {
            let (tool_log, gate) = (tool_log.clone(), gate.clone());
            let answer = format!("payed {}", label_of(&context));
            tool_log.note("pay");
            async move {
                gate.pass().await;
                Ok(ToolOutput::from(answer))
            }
        },
    ))
}

fn deciding<const N: usize>(case: Case, decisions: [ApprovalResponse; N]) -> ChatRequest {
    let parts = decisions.into_iter().map(Into::into).collect();
    case.request_with([Message::new(Role::User, parts)])
}

async fn asked(case: Case, client: &Client) -> Vec<ApprovalRequest> {
    let answer = send(client, case.ask("buy")).await.unwrap();
    answer.approval_requests().cloned().collect()
}

/// Returns the stored row of the first call: its status, whether its tool was started, and its
/// result.
async fn row(store: &Store) -> (ToolStatus, bool, Option<String>) {
    store.inner().flush().await.unwrap();
    let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
    let call = found.into_iter().next().unwrap().1;
    (call.status, call.started_at.is_some(), call.result.map(|result| result.text()))
}

#[tokio::test]
async fn a_call_that_another_process_runs_is_not_called_interrupted() {
    let cases = Cases::all()
        .modes([PerRun, PerServiceCall], "a journaled run has a lease for the whole conversation");
    for is_same_run in [true, false] {
        cases
            .clone()
            .check(async |case| {
                let (store, tool_log, gate) =
                    (case.store().await, ToolLog::default(), Gate::closed());
                let model = ScriptedModel::new([case.calls([("pay", "c1")]), Step::text("one")]);
                let client = case.stack(model.clone(), &store, policy(), paying(&tool_log, &gate));
                let asked = asked(case, &client).await;
                let request = deciding(case, [asked[0].approve()]);
                let again = match is_same_run {
                    true => request.clone(),
                    false => deciding(case, [asked[0].approve()]),
                };
                let mut first = pin!(send(&client, request));
                let mut there = pin!(gate.reached(1));
                while poll!(there.as_mut()).is_pending() {
                    assert!(poll!(first.as_mut()).is_pending());
                    tokio::task::yield_now().await;
                }
                let elsewhere = store.in_another_process();
                let other = ScriptedModel::new([Step::text("two")]);
                let second =
                    case.stack(other.clone(), &elsewhere, policy(), paying(&tool_log, &gate));
                let before = (stored(&store).await, row(&store).await);
                let error = send(&second, again.clone()).await.unwrap_err();
                assert_eq!(is_retryable(&*error), Some(true));
                let error: &ToolLoopError = error.downcast_ref().unwrap();
                assert!(matches!(error, ToolLoopError::ApprovalHeld { .. }), "{error:?}");
                assert_eq!((stored(&store).await, row(&store).await), before);
                gate.open();
                assert_eq!(first.await.unwrap().text(), "one");
                let paid = (ToolStatus::Ok, true, Some("payed c1".to_owned()));
                assert_eq!(row(&store).await, paid);
                match send(&second, again).await {
                    Ok(answer) => assert!(is_same_run && answer.text() == "one", "{answer:?}"),
                    Err(error) => {
                        let error: &ToolLoopError = error.downcast_ref().unwrap();
                        let is_answered = matches!(error, ToolLoopError::ApprovalAnswered { .. });
                        assert!(!is_same_run && is_answered, "{error:?}");
                    }
                }
                assert_eq!((tool_log.names().len(), other.requests().len()), (1, 0));
            })
            .await;
    }
}

#[tokio::test]
async fn the_outcome_stays_in_the_record_where_the_other_process_is_the_first_to_end() {
    let cases = Cases::all()
        .modes([PerRun, PerServiceCall], "a journaled run has a lease for the whole conversation");
    cases
        .check(async |case| {
            let (store, tool_log, gate) = (case.store().await, ToolLog::default(), Gate::closed());
            let second_call = Gate::closed();
            // The claim of the call has no lease. Another process therefore treats the call as
            // interrupted while its tool runs.
            let policy =
                || policy().with_journal(JournalPolicy::default().with_lease(Duration::ZERO));
            let model = ScriptedModel::new([
                case.calls([("pay", "c1")]),
                Step::text("one").waits(&second_call),
            ]);
            let client = case.stack(model.clone(), &store, policy(), paying(&tool_log, &gate));
            let asked = asked(case, &client).await;
            let mut first = pin!(send(&client, deciding(case, [asked[0].approve()])));
            let mut there = pin!(gate.reached(1));
            while poll!(there.as_mut()).is_pending() {
                assert!(poll!(first.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            // The other process calls the model while the tool runs, and receives the answer later.
            let elsewhere = store.in_another_process();
            let other_told = Gate::closed();
            let other = ScriptedModel::new([Step::text("two").waits(&other_told)]);
            let client = case.stack(other, &elsewhere, policy(), paying(&tool_log, &gate));
            let mut second = pin!(send(&client, deciding(case, [asked[0].approve()])));
            let mut there = pin!(other_told.reached(1));
            while poll!(there.as_mut()).is_pending() {
                assert!(poll!(second.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            gate.open();
            let mut there = pin!(second_call.reached(1));
            while poll!(there.as_mut()).is_pending() {
                assert!(poll!(first.as_mut()).is_pending());
                tokio::task::yield_now().await;
            }
            other_told.open();
            second.await.unwrap();
            second_call.open();
            assert!(matches!(refused(first.await), PersistenceError::NotStored(_)));
            let paid = (ToolStatus::Ok, true, Some("payed c1".to_owned()));
            assert_eq!(row(&store).await, paid);
        })
        .await;
}

#[tokio::test]
async fn a_claim_is_withdrawn_when_the_caller_disconnects_before_the_tool_begins() {
    for is_same_run in [true, false] {
        let cases = Cases::all().with_all_ids();
        let scenario = async |case: Case| {
            let (store, tool_log, _, client) =
                case.begin_with_log([case.calls([("pay", "c1")]), Step::text("done")]).await;
            let asked = asked(case, &client).await;
            let request = deciding(case, [asked[0].approve()]);
            store.hold_appends();
            {
                let mut run = pin!(send(&client, request.clone()));
                loop {
                    assert!(poll!(run.as_mut()).is_pending());
                    if poll!(pin!(store.holding(1))).is_ready() {
                        if store.writes().last().is_some_and(|write| !write.claims().is_empty()) {
                            break;
                        }
                        // In journaled mode, this write contains the input of the run.
                        store.release_appends();
                        store.hold_appends();
                    }
                    tokio::task::yield_now().await;
                }
            }
            store.release_appends();
            assert_eq!(tool_log.names(), [""; 0], "the tool has not started");
            assert_eq!(row(&store).await, (ToolStatus::PendingApproval, false, None));
            let request = match is_same_run {
                true => request,
                false => deciding(case, [asked[0].approve()]),
            };
            send(&client, request).await.unwrap();
            assert_eq!(tool_log.names(), ["pay"], "the tool runs once");
            let paid = (ToolStatus::Ok, true, Some("payed c1".to_owned()));
            assert_eq!(row(&store).await, paid);
        };
        cases.check(scenario).await;
    }
}

#[tokio::test]
async fn an_approval_of_a_run_that_was_stopped_is_answered() {
    every_id(async |case| {
        let (store, tool_log, gate) = (case.store().await, ToolLog::default(), Gate::closed());
        let model = ScriptedModel::new([case.calls([("pay", "c1")])]);
        let client = case.stack(model.clone(), &store, policy(), paying(&tool_log, &gate));
        let asked = asked(case, &client).await;
        let mut request = deciding(case, [asked[0].approve()]);
        let handle = request.run_handle();
        let there = async {
            gate.reached(1).await;
            handle.stop();
        };
        let (answer, ()) = tokio::join!(send(&client, request.clone()), there);
        assert_eq!(answer.unwrap().finish.ended_by, Some(EndedBy::Stop));
        assert_eq!(row(&store).await.0, ToolStatus::Interrupted);
        let again = deciding(case, [asked[0].approve()]);
        let error = send(&client, again).await.unwrap_err();
        let error: &ToolLoopError = error.downcast_ref().unwrap();
        assert!(matches!(error, ToolLoopError::ApprovalAnswered { .. }), "{error:?}");
        assert_eq!((tool_log.names().len(), model.requests().len()), (1, 1));
        let same = send(&client, request).await.unwrap();
        assert_eq!(same.finish.ended_by, Some(EndedBy::Stop));
        assert_eq!(model.requests().len(), 1);
    })
    .await;
}

#[tokio::test]
async fn a_message_that_approves_and_rejects_the_same_call_is_refused() {
    for is_yes_first in [true, false] {
        for in_one_message in [true, false] {
            every_case(async |case| {
                let (store, tool_log, model, client) =
                    case.begin_with_log([case.calls([("pay", "c1")]), Step::text("done")]).await;
                let asked = asked(case, &client).await;
                let before = stored(&store).await;
                let mut both = [asked[0].approve(), asked[0].reject("too dear")];
                if !is_yes_first {
                    both.reverse();
                }
                let request = match in_one_message {
                    true => deciding(case, both),
                    false => case.request_with(
                        both.map(|decision| Message::new(Role::User, vec![decision.into()])),
                    ),
                };
                let error = send(&client, request).await.unwrap_err();
                let error: &ToolLoopError = error.downcast_ref().unwrap();
                assert!(matches!(error, ToolLoopError::ApprovalContradicted { .. }), "{error:?}");
                assert_eq!((tool_log.names().len(), model.requests().len()), (0, 1));
                assert_eq!(durable(&store).await, before);
                let twice = deciding(case, [asked[0].approve(), asked[0].approve()]);
                send(&client, twice).await.unwrap();
                assert_eq!(tool_log.names(), ["pay"]);
            })
            .await;
        }
    }
}

#[tokio::test]
async fn a_message_that_approves_and_rejects_the_same_call_is_refused_without_persistence() {
    for streamed in BOTH_WAYS {
        let (tool_log, model) = (ToolLog::default(), ScriptedModel::new([calls([("pay", "c1")])]));
        let client = boxed(ToolLoopLayer::new(tools(&tool_log)).layer(model.clone()));
        let answer = send(&client, ChatRequest::user("buy")).await.unwrap();
        let asked: Vec<_> = answer.approval_requests().cloned().collect();
        let both = vec![asked[0].approve().into(), asked[0].reject("no").into()];
        let mut messages = vec![Message::user("buy")];
        messages.extend(answer.messages.iter().map(|message| (**message).clone()));
        messages.push(Message::new(Role::User, both));
        let request = ChatRequest::new(messages);
        let request = if streamed { request.streamed() } else { request };
        let error = send(&client, request).await.unwrap_err();
        let error: &ToolLoopError = error.downcast_ref().unwrap();
        assert!(matches!(error, ToolLoopError::ApprovalContradicted { .. }), "{error:?}");
        assert_eq!(tool_log.names(), [""; 0]);
    }
}
