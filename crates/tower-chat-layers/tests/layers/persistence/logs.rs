//! Tests the logged warnings of runs that do not end as expected. The warnings do not contain the
//! texts of users and models.

use tower::Layer;
use tower_chat::{
    HistoryStore, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    request::EndedBy,
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_testkit::{Gate, ScriptedModel, Step};

use crate::common::*;

fn failing_tools() -> Tools {
    Tools::new()
        .with(tool_fn(definition("fails"), |_| async { Err::<ToolOutput, _>("no disk".into()) }))
        .with(tool_fn(definition("panics"), |_| async {
            if true {
                panic!("out of range");
            }
            Ok(ToolOutput::from("never"))
        }))
        .with(tool_fn(definition("says"), |_| async { Ok(ToolOutput::error("the user's secret")) }))
}

#[tokio::test]
async fn each_failure_of_a_tool_is_logged_once() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([
            case.calls([("fails", "c1"), ("panics", "c2"), ("says", "c3")]),
            Step::text("there"),
        ]);
        let client = case.stack(model, &store, policy(), failing_tools());
        let logged = logged();
        send(&client, case.ask("where?")).await.unwrap();
        assert_eq!(logged.lines("WARN"), 3);
        for (tool, call, line) in [
            ("fails", "c1", "a tool failed"),
            ("panics", "c2", "a tool failed"),
            ("says", "c3", "a tool answered with an error"),
        ] {
            let (tool, call) = (format!("tool=\"{tool}\""), format!("call_id=\"{call}\""));
            assert_eq!(logged.lines_with(&[line, &tool, &call, "alice/support"]), 1, "{tool}");
        }
        assert_eq!(logged.lines("no disk"), 1);
        assert_eq!(logged.lines("out of range"), 1);
        assert_eq!(logged.lines("secret"), 0, "the text of a tool is not logged");
    })
    .await;
}

#[tokio::test]
async fn a_reached_round_limit_is_logged_and_reported_in_the_finish() {
    every_case(async |case| {
        for last in [case.calls([("look", "c2")]), Step::text("I give up")] {
            let store = case.store().await;
            let asks_again = format!("{last:?}").contains("c2");
            let model = ScriptedModel::new([case.calls([("look", "c1")]), last]);
            let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
            let tool_loop = ToolLoopLayer::new(tools(&ToolLog::default())).max_rounds(1).unwrap();
            let above = PerRunPersistence::new(store.clone()).mode(case.mode);
            let client = boxed(above.layer(tool_loop.layer(below)));
            let logged = logged();
            let answer = send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(answer.finish.ended_by, Some(EndedBy::RoundLimit));
            let last = if asks_again { "assistant look#c2" } else { "assistant I give up" };
            let all = ["assistant look#c1", "tool c1=looked c1", last];
            assert_eq!(shorts(&answer.messages), all);
            assert_eq!(logged.lines("rounds of tool calls"), 1);
        }
    })
    .await;
}

#[tokio::test]
async fn the_finish_reports_whether_a_tool_ended_the_run() {
    every_case(async |case| {
        let (_, _, client) = case.begin([case.calls([("stop", "c1")]), Step::text("there")]).await;
        let answer = send(&client, case.ask("where?")).await.unwrap();
        assert_eq!(answer.finish.ended_by, Some(EndedBy::Tool));
        let answer = send(&client, case.ask("well?")).await.unwrap();
        assert_eq!(answer.finish.ended_by, None, "the model has ended the run");
    })
    .await;
}

#[tokio::test]
async fn a_run_that_is_taken_over_is_logged() {
    let cases = Cases::all().modes([Journaled], "only a journaled run remains open");
    cases
        .check(async |case| {
            let (_, _, client) = case
                .begin([
                    case.calls([("look", "c1")]),
                    Step::error("overloaded"),
                    Step::text("there"),
                ])
                .await;
            let request = case.ask("where?");
            send(&client, request.clone()).await.unwrap_err();
            let logged = logged();
            send(&client, request).await.unwrap();
            assert_eq!(logged.lines_with(&["is taken over", "attempt=2", "alice/support"]), 1);
        })
        .await;
}

#[tokio::test]
async fn a_call_without_a_result_is_a_warning_once() {
    let cases =
        Cases::all().modes([PerServiceCall], "the other modes store no call without a result");
    cases
        .check(async |case| {
            let (store, tool_log, gate) = (case.store().await, ToolLog::default(), Gate::closed());
            let texts = ["one", "two", "three"].map(Step::text);
            let model = ScriptedModel::new([case.calls([("wait", "c1")])].into_iter().chain(texts));
            let client = case.stack(model, &store, policy(), tools_with_gate(&tool_log, &gate));
            tokio::select! {
                biased;
                answer = send(&client, case.ask("where?")) => panic!("{answer:?}"),
                () = gate.reached(1) => {}
            }
            store.inner().flush().await.unwrap();
            for warnings in [1, 0, 0] {
                let logged = logged();
                send(&client, case.ask("and?")).await.unwrap();
                let line = "stored tool calls have no result";
                assert_eq!(logged.lines_with(&["WARN", line]), warnings);
            }
        })
        .await;
}
