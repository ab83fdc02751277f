//! Tests the limits of calls and rounds in a resumed run. They apply to the sum of all attempts.

use tower_chat::{
    BoxError, Finish,
    layer::ToolLoopLayer,
    store::{InvocationQuery, ToolCallQueries},
    tool::{ToolStatus, TypedTool},
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

#[derive(serde::Deserialize, schemars::JsonSchema)]
#[allow(dead_code, reason = "only its shape matters")]
struct City {
    city: String,
}

#[tokio::test]
async fn limits_count_what_earlier_attempts_have_used() {
    for (interrupted_call, mode) in cases!([1, 2], [PerServiceCall, JOURNALED]) {
        let store = store();
        let setup = Setup::new(&store).mode(mode);
        let booking_tools = BookingTools::default();
        let budget = |booking_tools: &BookingTools| {
            ToolLoopLayer::new(booking_tools.tools()).max_calls(Some(2))
        };
        let two = || calls([("book", "c1"), ("seat", "c2")]);
        let one = || calls([("book", "c3")]);
        let mut steps = vec![two(), one(), Step::text("booked")];
        steps.insert(interrupted_call, Step::error("overloaded"));
        let model = ScriptedModel::new(steps);
        let request = ask("trip", false);
        send(&setup.looped(&model, budget(&booking_tools)), request.clone()).await.unwrap_err();
        send(&setup.looped(&model, budget(&booking_tools)), request).await.unwrap();
        assert_eq!(booking_tools.ran(), ["c1", "c2"]);
        assert!(stored(&store).await[4].contains("no more than 2"));
    }
    let store = store();
    let setup = Setup::new(&store);
    let booking_tools = BookingTools::default();
    let rounds = |booking_tools: &BookingTools| {
        ToolLoopLayer::new(booking_tools.tools()).max_rounds(2).unwrap()
    };
    let model = booking_model_with(2, [Step::error("overloaded")]);
    let request = ask("trip", false);
    send(&setup.looped(&model, rounds(&booking_tools)), request.clone()).await.unwrap_err();
    send(&setup.looped(&model, rounds(&booking_tools)), request).await.unwrap();
    let requests = model.requests();
    assert!(
        requests[2].options.tools.is_empty(),
        "the last service call of an uninterrupted run declares no tools"
    );
    assert!(
        requests[3].options.tools.is_empty(),
        "the last service call of a resumed run declares no tools"
    );
}

#[tokio::test]
async fn a_resumed_run_charges_the_calls_of_all_earlier_rounds_to_its_limit() {
    for (limit, mode, streamed) in cases!([3, 4], [PerServiceCall, JOURNALED], BOTH_WAYS) {
        let store = store();
        let setup = Setup::new(&store).mode(mode);
        let booking_tools = BookingTools::default();
        let looping = || ToolLoopLayer::new(booking_tools.tools()).max_calls(Some(limit));
        let model = ScriptedModel::new([
            calls([("book", "c1"), ("seat", "c2")]),
            calls([("book", "c3")]),
            Step::error("overloaded"),
            calls([("seat", "c4")]),
            Step::text("booked"),
        ]);
        let request = ask("trip", streamed);
        send(&setup.looped(&model, looping()), request.clone()).await.unwrap_err();
        send(&setup.looped(&model, looping()), request).await.unwrap();
        let ran = booking_tools.ran();
        assert_eq!(ran, ["c1", "c2", "c3", "c4"][..limit], "{mode:?} streamed {streamed}");
    }
}

#[tokio::test]
async fn the_call_limit_counts_calls_with_rejected_arguments_but_no_calls_of_unknown_tools() {
    every_case(async |case| {
        let store = case.store().await;
        let setup = Setup::new(&store).mode(case.mode);
        let booking_tools = BookingTools::default();
        let looping = || {
            let weather =
                TypedTool::new("weather", "", |_: City, _| async { Ok::<_, BoxError>("rain") });
            ToolLoopLayer::new(booking_tools.tools().with(weather)).max_calls(Some(3))
        };
        let rounds = || {
            let first = calls([("weather", "c1"), ("unregistered", "c2"), ("unknown", "c3")]);
            [first, calls([("book", "c4")])]
        };
        // Per-run mode stores nothing before the end of the run. The second attempt therefore
        // repeats all service calls.
        let again = case.is(PerRun).then(rounds).into_iter().flatten();
        let rest = [calls([("seat", "c5"), ("book", "c6")]), Step::text("booked")];
        let model = ScriptedModel::new(
            rounds().into_iter().chain([Step::error("overloaded")]).chain(again).chain(rest),
        );
        let request = case.ask("trip");
        send(&setup.looped(&model, looping()), request.clone()).await.unwrap_err();
        send(&setup.looped(&model, looping()), request).await.unwrap();
        let twice = if case.is(PerRun) { vec!["c4"] } else { Vec::new() };
        assert_eq!(booking_tools.ran(), [twice, vec!["c4", "c5"]].concat());
        let found = store.inner().invocations(&InvocationQuery::of(&key())).await.unwrap().found;
        let statuses: Vec<_> = found.iter().map(|(_, call)| call.status).collect();
        let [rejected, unknown] = [ToolStatus::RejectedArguments, ToolStatus::UnknownTool];
        let ran = [ToolStatus::Ok, ToolStatus::Ok, ToolStatus::SkippedBudget];
        assert_eq!(statuses, [&[rejected, unknown, unknown][..], &ran].concat());
    })
    .await;
}

#[tokio::test]
async fn a_round_of_two_messages_is_one_round() {
    let store = store();
    let setup = Setup::new(&store);
    let booking_tools = BookingTools::default();
    let rounds = |booking_tools: &BookingTools| {
        ToolLoopLayer::new(booking_tools.tools()).max_rounds(2).unwrap()
    };
    let both = [call_message([("book", "c1")]), call_message([("seat", "c2")])];
    let model = ScriptedModel::new([
        Step::answer(both, Finish::stop()),
        Step::error("overloaded"),
        calls([("book", "c3")]),
        Step::text("booked"),
    ]);
    let request = ask("trip", false);
    send(&setup.looped(&model, rounds(&booking_tools)), request.clone()).await.unwrap_err();
    send(&setup.looped(&model, rounds(&booking_tools)), request).await.unwrap();
    assert_eq!(booking_tools.ran(), ["c1", "c2", "c3"]);
}
