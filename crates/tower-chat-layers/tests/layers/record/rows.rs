//! Tests that each call has one row in the record, which is the same in each mode.

use tower_chat::{
    ChatRequest, Message, Part, PersistencePolicy, Role, ToolContext, ToolResult, Tools,
    layer::ToolLoopLayer,
    replay::Truncation,
    tool::{ToolOutput, ToolStatus, TypedTool},
    tool_fn,
};
use tower_chat_testkit::Step;

use super::*;
use crate::{case::every_id, common::send};

fn look() -> Tools {
    Tools::new().with(tool_fn(definition("look"), |_| async { Ok("looked") }))
}

#[tokio::test]
async fn a_call_that_was_answered_has_its_result_its_place_and_its_times() {
    every_case(async |case| {
        let script = vec![
            calls([("look", "c1"), ("look", "c2")]),
            calls([("look", "c3")]),
            Step::text("done"),
        ];
        let agent = Agent::of(case, ToolLoopLayer::new(look()), script).await;
        agent.ask("hi").await.unwrap();
        let record = agent.record().await;
        let positions: Vec<_> = record
            .iter()
            .map(|call| {
                (call.sequence, call.round_index, call.sequence_index, call.call_id.as_str())
            })
            .collect();
        assert_eq!(positions, [(2, 0, 0, "c1"), (2, 0, 1, "c2"), (4, 1, 0, "c3")]);
        assert!(record.iter().all(|call| call.status == ToolStatus::Ok));
        assert!(record.iter().all(|call| call.result.as_ref().unwrap().text() == "looked"));
        assert!(record.iter().all(|call| call.arguments == r#"{"secret": 7}"#));
        let times: Vec<_> = record.iter().map(|call| (call.started_at, call.finished_at)).collect();
        assert!(times.iter().all(|(started, finished)| started.unwrap() < finished.unwrap()));
        assert!(times[0].1 < times[1].0 && times[1].1 < times[2].0, "{times:?}");
    })
    .await;
}

#[tokio::test]
async fn rounds_are_counted_anew_in_every_turn() {
    every_case(async |case| {
        let script = vec![
            calls([("look", "c1")]),
            Step::text("done"),
            calls([("look", "c1")]),
            calls([("look", "c1")]),
            Step::text("done"),
        ];
        let agent = Agent::of(case, ToolLoopLayer::new(look()), script).await;
        agent.ask("one").await.unwrap();
        agent.ask("two").await.unwrap();
        let rounds: Vec<_> = agent.record().await.iter().map(|call| call.round_index).collect();
        assert_eq!(rounds, [0, 0, 1]);
    })
    .await;
}

#[tokio::test]
async fn calls_that_were_not_run_have_rows_that_say_why() {
    every_case(async |case| {
        #[derive(serde::Deserialize, schemars::JsonSchema)]
        #[allow(dead_code, reason = "only its shape matters")]
        struct City {
            city: String,
        }
        let tools = look()
            .with(tool_fn(definition("fail"), |_| async {
                Err::<ToolOutput, _>("disk on fire".into())
            }))
            .with(TypedTool::new("weather", "", |_: City, _| async { Ok("rain") }));
        let script = vec![
            calls([("fail", "1"), ("nobody", "2"), ("weather", "3"), ("look", "4")]),
            Step::text("done"),
        ];
        let agent = Agent::of(case, ToolLoopLayer::new(tools).max_calls(Some(2)), script).await;
        agent.ask("hi").await.unwrap();
        let record = agent.record().await;
        let statuses: Vec<_> = record.iter().map(|call| call.status).collect();
        assert_eq!(
            statuses,
            [
                ToolStatus::Error,
                ToolStatus::UnknownTool,
                ToolStatus::RejectedArguments,
                ToolStatus::SkippedBudget,
            ]
        );
        assert!(record[0].error.as_ref().unwrap().contains("disk on fire"));
        assert!(!record[0].result.as_ref().unwrap().text().contains("disk on fire"));
        assert!(record[1].started_at.is_none() && record[3].started_at.is_none());
    })
    .await;
}

#[tokio::test]
async fn a_long_result_that_is_in_the_record_alone_is_truncated_there() {
    every_case(async |case| {
        let tools = Tools::new().with(tool_fn(definition("stop"), |_| async {
            Ok(ToolOutput::from("long ".repeat(2_000)).terminate())
        }));
        let store = case.store().await;
        let policy = PersistencePolicy::default().with_truncation(Truncation::to(200));
        let model = ScriptedModel::new([calls([("stop", "c1")])]);
        let client = case.stack(model, &store, policy, tools);
        send(&client, case.ask("hi")).await.unwrap();
        let text = record(&store).await[0].result.as_ref().unwrap().text();
        assert!(text.starts_with("long long") && text.len() < 300, "{} bytes", text.len());
    })
    .await;
}

#[tokio::test]
async fn results_that_end_the_run_are_in_the_record_alone() {
    every_case(async |case| {
        let tools = look().with(tool_fn(definition("stop"), |_| async {
            Ok(ToolOutput::from("stopped").terminate())
        }));
        let script = vec![calls([("look", "c1"), ("stop", "c2"), ("look", "c3")])];
        let agent = Agent::of(case, ToolLoopLayer::new(tools), script).await;
        agent.ask("hi").await.unwrap();
        let roles: Vec<Role> = agent.stored().await.iter().map(|message| message.role).collect();
        assert_eq!(roles, [Role::User, Role::Assistant]);
        assert_eq!(
            short(&agent.record().await),
            ["look ok looked", "stop ok stopped", "look pending -"]
        );
    })
    .await;
}

#[tokio::test]
async fn the_row_of_a_call_that_waits_for_approval_is_updated_after_the_decision() {
    every_case(async |case| {
        for (approve, after) in [(true, "pay ok paid"), (false, "pay rejected_by_approval")] {
            let pay = tool_fn(definition("pay").needs_approval(), |_| async { Ok("paid") });
            let script = vec![calls([("pay", "c1")]), Step::text("done")];
            let agent = Agent::of(case, ToolLoopLayer::new(Tools::new().with(pay)), script).await;
            let answer = agent.ask("hi").await.unwrap();
            assert_eq!(short(&agent.record().await), ["pay pending_approval -"]);
            let request = answer.approval_requests().next().unwrap();
            let response = if approve { request.approve() } else { request.reject("no") };
            let message = Message::new(Role::User, vec![Part::ApprovalResponse(response)]);
            agent.send_as(agent.streamed, ChatRequest::new(message)).await.unwrap();
            let record = short(&agent.record().await);
            assert_eq!(record.len(), 1, "{record:?}");
            assert!(record[0].starts_with(after), "{case} {record:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn a_result_that_the_caller_brings_updates_the_row_of_its_call() {
    every_case(async |case| {
        let tools = Tools::new().declare(definition("ask"));
        let script = vec![calls([("ask", "c1")]), Step::text("done")];
        let agent = Agent::of(case, ToolLoopLayer::new(tools), script).await;
        agent.ask("hi").await.unwrap();
        assert_eq!(short(&agent.record().await), ["ask returned -"]);
        let result = tower_chat::ToolResult::new("c1", "forty-two");
        agent
            .send_as(agent.streamed, ChatRequest::new(Message::tool_results([result])))
            .await
            .unwrap();
        assert_eq!(short(&agent.record().await), ["ask ok forty-two"]);
    })
    .await;
}

fn stopping() -> Tools {
    look().with(tool_fn(definition("stop"), |_| async {
        Ok(ToolOutput::from("stopped").terminate())
    }))
}

#[tokio::test]
async fn results_left_out_can_be_fetched_and_given_to_the_next_run() {
    every_case(async |case| {
        let script =
            vec![calls([("look", "c1"), ("stop", "c2"), ("look", "c3")]), Step::text("done")];
        let agent = Agent::of(case, ToolLoopLayer::new(stopping()), script).await;
        agent.ask("hi").await.unwrap();
        let pending =
            tower_chat::tool::pending_results(&agent.store, &key()).await.unwrap().unwrap();
        assert_eq!(pending.results().count(), 2);
        let input = [pending, Message::user("go on")];
        agent.send_as(agent.streamed, ChatRequest::new(input)).await.unwrap();
        let seen = agent.model.requests()[1].messages().clone();
        let results: Vec<String> =
            seen.iter().flat_map(|message| message.results()).map(|result| result.text()).collect();
        assert_eq!(results, ["looked", "stopped"]);
        assert_eq!(tower_chat::tool::pending_results(&agent.store, &key()).await.unwrap(), None);
    })
    .await;
}

#[tokio::test]
async fn replay_can_complete_dangling_calls_from_the_record() {
    every_case(async |case| {
        let store = MemoryStore::new();
        let model = ScriptedModel::new([
            calls([("look", "c1"), ("stop", "c2"), ("look", "c3")]),
            Step::text("done"),
            Step::text("bye"),
        ]);
        let policy = tower_chat::PersistencePolicy::default()
            .with_dangling_calls(tower_chat::replay::DanglingCalls::FromRecord);
        let mut client = ChatPipeline::builder(model.clone())
            .tools(stopping())
            .history(store.clone())
            .persistence(case.mode)
            .policy(policy)
            .build()
            .unwrap();
        for text in ["hi", "and?", "bye"] {
            let request = ChatRequest::user(text).in_conversation(key());
            client.ready().await.unwrap().call(request).await.unwrap();
        }
        for request in &model.requests()[1..] {
            let seen: Vec<Role> = request.messages().iter().take(4).map(|m| m.role).collect();
            assert_eq!(seen, [Role::User, Role::Assistant, Role::Tool, Role::User]);
            let results = request.messages().get(2).unwrap().results().count();
            assert_eq!(results, 2);
        }
    })
    .await;
}

#[tokio::test]
async fn a_run_that_is_sent_again_counts_its_rounds_on() {
    let script = vec![
        calls([("look", "c1")]),
        Step::error("overloaded"),
        calls([("look", "c2")]),
        Step::text("done"),
    ];
    let agent = Agent::new(PersistenceMode::PerServiceCall, ToolLoopLayer::new(look()), script);
    let request = ChatRequest::user("hi").in_conversation(key());
    for _ in 0..2 {
        let _first_fails = agent.client.clone().ready().await.unwrap().call(request.clone()).await;
    }
    let rounds: Vec<_> =
        agent.record().await.iter().map(|call| (call.call_id.clone(), call.round_index)).collect();
    assert_eq!(rounds, [("c1".to_owned(), 0), ("c2".to_owned(), 1)]);
}

#[tokio::test]
async fn calls_in_two_messages_of_one_answer_are_one_round_and_have_the_ids_of_their_results() {
    every_id(async |case| {
        let echo = tool_fn(definition("look"), |context: ToolContext| async move {
            Ok(ToolOutput::from(format!("looked {}", crate::common::label_of(&context))))
        });
        let answer = [case.call_message([("look", "c1")]), case.call_message([("look", "c2")])];
        let script = vec![
            Step::answer(answer, tower_chat::Finish::stop()),
            case.calls([("look", "c3")]),
            Step::text("done"),
        ];
        let agent = Agent::of(case, ToolLoopLayer::new(Tools::new().with(echo)), script).await;
        agent.ask("hi").await.unwrap();
        let record = agent.record().await;
        let rounds: Vec<_> = record.iter().map(|call| call.round_index).collect();
        assert_eq!(rounds, [0, 0, 1], "{case}: one answer is one round");
        let rows: Vec<(String, String)> = record
            .iter()
            .map(|call| (call.call_id.clone(), call.result.as_ref().unwrap().text()))
            .collect();
        let stored = agent.stored().await;
        let results: Vec<(String, String)> = stored
            .iter()
            .flat_map(|message| message.results())
            .map(|result| (result.call_id.clone().unwrap_or_default(), result.text()))
            .collect();
        assert_eq!(rows, results, "{case}");
        let texts: Vec<&str> = rows.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(texts, ["looked c1", "looked c2", "looked c3"], "{case}");
    })
    .await;
}

#[tokio::test]
async fn late_results_keep_the_rounds_of_their_calls_and_are_stored_as_they_were_given() {
    every_case(async |case| {
        let tools = look().declare(definition("ask"));
        let script = vec![
            calls([("look", "c1")]),
            calls([("ask", "c2"), ("ask", "c3")]),
            Step::text("done"),
        ];
        let agent = Agent::of(case, ToolLoopLayer::new(tools), script).await;
        agent.ask("hi").await.unwrap();
        // A tool message without results is between the two messages with results.
        let input = [
            Message::tool_results([
                ToolResult::new("c9", "answers no call"),
                ToolResult::new("c2", "late two"),
            ]),
            Message::new(Role::Tool, vec![Part::text("no result")]),
            Message::tool_results([ToolResult::new("c3", "late three")]),
        ];
        agent.send_as(case.streamed, ChatRequest::new(input)).await.unwrap();
        let record = agent.record().await;
        let rows: Vec<_> = record
            .iter()
            .map(|call| {
                let result = call.result.as_ref().map(|result| result.text());
                (call.call_id.as_str(), call.round_index, result.unwrap_or_default())
            })
            .collect();
        let expected = [("c1", 0, "looked"), ("c2", 1, "late two"), ("c3", 1, "late three")];
        assert_eq!(rows, expected.map(|(id, round, text)| (id, round, text.to_owned())));
        let stored = agent.stored().await;
        let late = stored
            .iter()
            .filter(|message| message.results().any(|result| result.text().starts_with("late")));
        for message in late {
            assert!(message.metadata.is_empty(), "{case} {:?}", message.metadata);
        }
    })
    .await;
}
