//! Tests rounds in which a tool ends the run. In every mode, each call is stored with the correct
//! status.

use tower::Layer;
use tower_chat::{
    ChatRequest, Message, Part, PersistencePolicy, Role, ToolContext, ToolResult, Tools,
    layer::ToolLoopLayer,
    tool::{ToolOutput, ToolStatus, TypedTool},
    tool_fn,
};
use tower_chat_testkit::{Step, cases};

use super::*;
use crate::common::{ask, boxed, send};

/// The tools that a round may call.
const KINDS: [&str; 5] = ["look", "fail", "nobody", "weather", "stop"];

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "only its shape matters")]
struct City {
    city: String,
}

fn tools() -> Tools {
    Tools::new()
        .with(tool_fn(definition("look"), |context: ToolContext| async move {
            Ok(format!("looked for {}", context.call_id()))
        }))
        .with(tool_fn(definition("fail"), |context: ToolContext| async move {
            Err::<ToolOutput, BoxError>(format!("broke at {}", context.call_id()).into())
        }))
        .with(TypedTool::new("weather", "", |_: City, _| async { Ok("rain") }))
        .with(tool_fn(definition("stop"), |context: ToolContext| async move {
            Ok(ToolOutput::from(format!("stopped at {}", context.call_id())).terminate())
        }))
}

fn rounds() -> Vec<Vec<&'static str>> {
    let mut rounds = Vec::new();
    let mut longest = vec![Vec::new()];
    for _ in 0..3 {
        let longer =
            |round: &Vec<&'static str>| KINDS.map(|kind| [round.as_slice(), &[kind]].concat());
        longest = longest.iter().flat_map(longer).collect();
        rounds.extend(longest.iter().cloned());
    }
    rounds
}

/// Returns the expected rows of a round: the call id, the status, whether the tool was started, and
/// whether the call has a result.
fn expected(
    round: &[&str],
    concurrent: bool,
    budget: Option<usize>,
) -> Vec<(String, ToolStatus, bool, bool)> {
    let (mut spent, mut ended) = (0, false);
    let row = |(index, kind): (usize, &&str)| {
        let id = format!("c{index}");
        if *kind == "nobody" {
            return (id, ToolStatus::UnknownTool, false, true);
        }
        if budget.is_some_and(|budget| spent >= budget) {
            return (id, ToolStatus::SkippedBudget, false, true);
        }
        spent += 1;
        if ended && !concurrent {
            return (id, ToolStatus::Pending, false, false);
        }
        ended |= *kind == "stop";
        match *kind {
            "fail" => (id, ToolStatus::Error, true, true),
            "weather" => (id, ToolStatus::RejectedArguments, false, true),
            _ => (id, ToolStatus::Ok, true, true),
        }
    };
    round.iter().enumerate().map(row).collect()
}

fn found(call: &ToolInvocation) -> (String, ToolStatus, bool, bool) {
    assert_eq!(call.started_at.is_some(), call.finished_at.is_some(), "{call:?}");
    if matches!(call.status, ToolStatus::Ok | ToolStatus::Error) {
        let text = call.result.as_ref().map(|result| result.text());
        let error = call.error.as_deref();
        let names = |text: Option<&str>| text.is_some_and(|text| text.contains(&call.call_id));
        assert!(names(text.as_deref()) || names(error), "{call:?}");
    }
    (call.call_id.clone(), call.status, call.started_at.is_some(), call.result.is_some())
}

#[tokio::test]
async fn every_call_of_a_round_has_the_same_row_in_every_mode_whatever_ends_the_round() {
    for (round, (concurrent, budget), (mode, streamed)) in cases!(
        rounds(),
        [(false, None), (true, None), (false, Some(1)), (true, Some(1))],
        every_way()
    ) {
        let calls = round.iter().enumerate();
        let calls = calls.map(|(index, kind)| ToolCall::new(format!("c{index}"), *kind, "{}"));
        let script = vec![Step::message(Message::tool_calls(calls)), Step::text("done")];
        let tool_loop = ToolLoopLayer::new(tools()).concurrent(concurrent).max_calls(budget);
        let agent = Agent::new(mode, tool_loop, script);
        agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
        let record: Vec<_> = agent.record().await.iter().map(found).collect();
        assert_eq!(
            record,
            expected(&round, concurrent, budget),
            "{round:?} {mode:?} streamed {streamed} concurrent {concurrent} {budget:?}"
        );
    }
}

#[tokio::test]
async fn a_call_after_the_call_that_ended_the_run_is_pending_if_trailing_results_are_stored() {
    let reason = "in per-service-call mode, only the record contains the last results";
    Cases::all()
        .modes([PersistenceMode::PerRun, PersistenceMode::Journaled], reason)
        .check(async |case| {
            let store = case.store().await;
            let policy = PersistencePolicy::default().with_trailing_results(true);
            let model = ScriptedModel::new([calls([("stop", "c0"), ("look", "c1")])]);
            let client = case.stack(model, &store, policy, tools());
            send(&client, case.ask("hi")).await.unwrap();
            let rows: Vec<_> = record(&store).await.iter().map(found).collect();
            let stopped = ("c0".to_owned(), ToolStatus::Ok, true, true);
            assert_eq!(rows, [stopped, ("c1".to_owned(), ToolStatus::Pending, false, false)]);
            let last = store.load(&key()).await.unwrap().messages.last().unwrap().clone();
            let texts: Vec<String> = last.results().map(ToolResult::text).collect();
            assert_eq!(texts, ["stopped at c0"]);
        })
        .await;
}

/// Returns every combination of decisions about three calls that wait for approval.
fn approvals() -> impl Iterator<Item = [bool; 3]> {
    (0..8).map(|bits| [bits & 1 != 0, bits & 2 != 0, bits & 4 != 0])
}

#[tokio::test]
async fn every_approved_or_rejected_call_has_the_same_row_in_every_mode() {
    for (concurrent, [stop, pay, look]) in
        BOTH_WAYS.into_iter().flat_map(|concurrent| approvals().map(move |it| (concurrent, it)))
    {
        for (mode, streamed) in every_way() {
            let tools = tools()
                .with(tool_fn(definition("pay").needs_approval(), |_| async { Ok("paid once") }));
            let script =
                vec![calls([("stop", "c0"), ("pay", "c1"), ("look", "c2")]), Step::text("done")];
            let agent = Agent::new(mode, ToolLoopLayer::new(tools).concurrent(concurrent), script);
            let asking = agent.send_as(streamed, ChatRequest::user("hi")).await.unwrap();
            let requests: Vec<_> = asking.approval_requests().cloned().collect();
            let answers = requests.iter().zip([stop, pay, look]).map(|(request, approved)| {
                Part::ApprovalResponse(match approved {
                    true => request.approve(),
                    false => request.reject("no"),
                })
            });
            let message = Message::new(Role::User, answers.collect());
            agent.send_as(streamed, ChatRequest::new(message)).await.unwrap();
            let rows: Vec<_> = agent
                .record()
                .await
                .iter()
                .map(|call| (call.call_id.clone(), call.status))
                .collect();
            let of = |id: &str, approved: bool| {
                let was_ended = stop && !concurrent && id != "c0";
                (
                    id.to_owned(),
                    match approved {
                        false => ToolStatus::RejectedByApproval,
                        true if was_ended => ToolStatus::PendingApproval,
                        true => ToolStatus::Ok,
                    },
                )
            };
            assert_eq!(
                rows,
                [of("c0", stop), of("c1", pay), of("c2", look)],
                "{mode:?} streamed {streamed} concurrent {concurrent}"
            );
        }
    }
}

#[tokio::test]
async fn a_foreign_loop_that_returns_an_answer_of_before_leaves_the_results_of_its_calls() {
    for streamed in BOTH_WAYS {
        let store = memory();
        let script = [calls([("look", "c1")]), Step::error("overloaded")];
        let model = ScriptedModel::new(script);
        let below = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
        let looping = tower::service_fn(move |request: ChatRequest| {
            let below = below.clone();
            async move {
                let first = send(&below, request.clone()).await?;
                let mut next = request;
                let result = ToolResult::new("c1", "a foreign tool looked");
                next.set_messages(Message::tool_results([result]), 0);
                next.history_owner = first.finish.history_owner.clone();
                send(&below, next).await.unwrap_err();
                Ok::<_, BoxError>(tower_chat::ChatResponse::from(first))
            }
        });
        let above = PerRunPersistence::new(store.clone()).mode(PersistenceMode::PerServiceCall);
        let client = boxed(above.layer(looping));
        let answer = send(&client, ask("look", streamed)).await.unwrap();
        assert_eq!(answer.tool_calls().count(), 1);
        assert_eq!(short(&record(&store).await), ["look ok a foreign tool looked"], "{streamed}");
    }
}
