//! Tests which activity of a run the store records in its list of conversations: the mode, the time
//! of the last activity, and the usage of each answered service call.

use std::time::{Duration, SystemTime};

use tower::{Layer, ServiceExt, service_fn};
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, Finish, Message, PersistenceMode,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::{Price, PriceList},
    recovery::{self, RunEnd},
    request::Usage,
    run::RunId,
    store::{
        ConversationState, Directory, ModelUsage, RunSummary, UsageGrouping, UsageQuery, UsageSum,
    },
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

fn finish(model: &str, input: u64, output: u64) -> Finish {
    let mut finish = Finish::stop().with_usage(Usage::new(input, output));
    finish.model = (!model.is_empty()).then(|| model.to_owned());
    finish
}

fn asks<const N: usize>(calls: [(&str, &str); N], finish: Finish) -> Step {
    Step::answer([call_message(calls)], finish)
}

fn answers(text: &str, finish: Finish) -> Step {
    Step::answer([Message::assistant(text)], finish)
}

fn used(model: &str, calls: (u64, u64), tokens: (u64, u64), cost: Option<u64>) -> ModelUsage {
    let sum = UsageSum::of_calls(calls.0, calls.1)
        .with_tokens(Usage::new(tokens.0, tokens.1))
        .with_cost_nanos(cost);
    ModelUsage::new(Some(model.into()), sum)
}

/// Returns the steps of a run with three service calls, by two models, and three tool calls.
fn script() -> [Step; 3] {
    [
        asks([("look", "c1"), ("look", "c2")], finish("small", 100, 10)),
        asks([("look", "c3")], finish("large", 200, 20)),
        answers("there", finish("small", 300, 30)),
    ]
}

/// Returns the usage of [`script`] for each model.
fn used_by_script(priced: bool) -> [ModelUsage; 2] {
    [
        used("large", (1, 1), (200, 20), None),
        used("small", (2, 2), (400, 40), priced.then_some(400 + 80)),
    ]
}

fn prices() -> PriceList {
    PriceList::new().with_model("small", Price::per_million(1_000_000, 2_000_000))
}

async fn runs(store: &Store) -> Vec<RunSummary> {
    store.runs(&key(), None, 100).await.unwrap()
}

async fn one_run(store: &Store) -> RunSummary {
    let mut runs = runs(store).await;
    assert_eq!(runs.len(), 1);
    runs.remove(0)
}

fn every_mode() -> impl Iterator<Item = (PersistenceMode, bool)> {
    MODES.into_iter().flat_map(|mode| BOTH_WAYS.map(|streamed| (mode, streamed)))
}

#[tokio::test]
async fn each_service_call_is_reported_with_its_model_tokens_tools_and_cost() {
    for (mode, streamed) in every_mode() {
        for priced in [false, true] {
            let (store, model) = (store(), ScriptedModel::new(script()));
            let policy = if priced { policy().with_prices(prices()) } else { policy() };
            let client = stack(model, &store, mode, policy, tools(&ToolLog::default()));
            let before = SystemTime::now() - Duration::from_millis(1);
            let request = ask("where?", streamed);
            let run = request.conversation().unwrap().run;
            send(&client, request).await.unwrap();
            let summary = store.summary(&key()).await.unwrap().unwrap();
            let what = format!("{mode}, streamed: {streamed}");
            let mut sum = UsageSum::default();
            used_by_script(priced).iter().for_each(|usage| sum += &usage.sum);
            assert_eq!((summary.usage, summary.runs), (sum, 1), "{what}");
            assert_eq!(summary.last_mode, Some(mode), "{what}");
            assert_eq!(summary.messages as usize, stored(&store).await.len(), "{what}");
            assert_eq!(summary.state, ConversationState::Idle, "{what}");
            assert!((before..=SystemTime::now()).contains(&summary.last_active_at), "{what}");
            let reported = one_run(&store).await;
            assert_eq!(
                (reported.run, reported.mode, reported.is_open),
                (run, Some(mode), false),
                "{what}"
            );
            assert_eq!(reported.usage, used_by_script(priced), "{what}");
            let by_model = UsageQuery::of(&key(), UsageGrouping::Model);
            let totals = store.usage(&by_model).await.unwrap();
            let totals: Vec<_> = totals.iter().map(|total| (total.runs, total.sum)).collect();
            assert_eq!(totals, used_by_script(priced).map(|usage| (1, usage.sum)), "{what}");
        }
    }
}

#[tokio::test]
async fn each_run_is_counted_and_the_usage_of_a_model_without_a_name_has_no_model() {
    for (mode, streamed) in every_mode() {
        let script = [answers("first", finish("", 1, 2)), answers("second", finish("", 3, 4))];
        let (store, model) = (store(), ScriptedModel::new(script));
        let client = agent(&model, &store, mode);
        for text in ["one?", "two?"] {
            send(&client, ask(text, streamed)).await.unwrap();
        }
        let summary = store.summary(&key()).await.unwrap().unwrap();
        let sum = UsageSum::of_calls(2, 0).with_tokens(Usage::new(4, 6));
        assert_eq!((summary.runs, summary.usage), (2, sum), "{mode}, streamed: {streamed}");
        let models: Vec<_> = runs(&store).await.into_iter().flat_map(|run| run.usage).collect();
        assert!(models.iter().all(|usage| usage.model.is_none()));
        assert_eq!(models.len(), 2);
    }
}

#[tokio::test]
async fn a_request_that_is_sent_again_adds_nothing() {
    for (mode, streamed) in every_mode() {
        let (store, model) = (store(), ScriptedModel::new(script()));
        let client = agent(&model, &store, mode);
        let request = ask("where?", streamed);
        for _ in 0..2 {
            send(&client, request.clone()).await.unwrap();
        }
        assert_eq!(model.remaining(), 0);
        let reported = one_run(&store).await;
        assert_eq!(reported.usage, used_by_script(false), "{mode}, streamed: {streamed}");
        assert_eq!(store.summary(&key()).await.unwrap().unwrap().runs, 1);
    }
}

/// The recorded usage of a failed run depends on its mode:
///
/// - per-run mode: none
/// - per-service-call mode: the usage of the stored service calls
/// - journaled mode: the usage of the staged service calls
///
/// The attempt that resumes the run adds the usage of its own service calls.
#[tokio::test]
async fn the_usage_of_a_failed_run_that_continues_is_recorded_according_to_its_mode() {
    for (mode, streamed) in every_mode() {
        let [first, second, third] = script();
        let script = [first, Step::error("overloaded"), second, third];
        let (store, model) = (store(), ScriptedModel::new(script));
        let client = agent(&model, &store, mode);
        let request = ask("where?", streamed);
        send(&client, request.clone()).await.unwrap_err();
        let what = format!("{mode}, streamed: {streamed}");
        let of_first = used("small", (1, 2), (100, 10), None);
        match mode {
            PerRun => assert_eq!(store.summary(&key()).await.unwrap(), None, "{what}"),
            PerServiceCall | Journaled => {
                let reported = one_run(&store).await;
                assert_eq!(reported.usage, [of_first], "{what}");
                assert_eq!(reported.is_open, mode == Journaled, "{what}");
            }
        }
        if mode == PerRun {
            continue;
        }
        send(&client, request).await.unwrap();
        let reported = one_run(&store).await;
        assert_eq!(
            (reported.usage, reported.is_open),
            (used_by_script(false).to_vec(), false),
            "{what}"
        );
        let summary = store.summary(&key()).await.unwrap().unwrap();
        assert_eq!((summary.runs, summary.state), (1, ConversationState::Idle), "{what}");
    }
}

#[tokio::test]
async fn a_journaled_run_that_is_discarded_leaves_its_usage() {
    for streamed in BOTH_WAYS {
        let [first, ..] = script();
        let (store, model) = (store(), ScriptedModel::new([first, Step::error("overloaded")]));
        let client = agent(&model, &store, Journaled);
        send(&client, ask("where?", streamed)).await.unwrap_err();
        let open = store.summary(&key()).await.unwrap().unwrap();
        assert_eq!((open.state, open.runs, open.messages), (ConversationState::RunOpen, 1, 0));
        assert!(recovery::close(&store, &key(), RunEnd::Discard).await.unwrap());
        let discarded = store.summary(&key()).await.unwrap().unwrap();
        assert_eq!((discarded.state, discarded.runs), (ConversationState::Idle, 0));
        assert_eq!(discarded.usage, used("small", (1, 2), (100, 10), None).sum);
        assert_eq!(discarded.last_mode, Some(Journaled));
        assert!(discarded.last_active_at >= open.last_active_at);
    }
}

#[tokio::test]
async fn a_write_from_the_outbox_records_its_usage_once() {
    for streamed in BOTH_WAYS {
        for stores_first in [false, true] {
            let (store, model) = (store(), ScriptedModel::new(script()));
            match stores_first {
                true => store.fail_next_append_after_storing(disk_full()),
                false => store.fail_next_append(disk_full()),
            }
            let client = agent(&model, &store, PerServiceCall);
            send(&client, ask("where?", streamed)).await.unwrap();
            let reported = one_run(&store).await;
            assert_eq!(reported.usage, used_by_script(false), "stored first: {stores_first}");
        }
    }
}

/// The recorded usage depends on the stack: without `PerServiceCallPersistence`, the tool loop
/// records the usage of all answers. If there is also no tool loop of this crate,
/// `PerRunPersistence` records the usage of the last answer.
#[tokio::test]
async fn usage_is_recorded_without_a_persister_and_without_a_tool_loop() {
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), ScriptedModel::new(script()));
        let above = PerRunPersistence::new(store.clone());
        let without_persister = ToolLoopLayer::new(tools(&ToolLog::default())).layer(model);
        let client = boxed(above.layer(without_persister));
        send(&client, ask("where?", streamed)).await.unwrap();
        assert_eq!(
            one_run(&store).await.usage,
            used_by_script(false),
            "no layer below the tool loop"
        );
    }
    for streamed in BOTH_WAYS {
        let model = ScriptedModel::new([answers("from afar", finish("foreign", 50, 5))]);
        let store = store();
        let client = boxed(PerRunPersistence::new(store.clone()).layer(model));
        send(&client, ask("where?", streamed)).await.unwrap();
        let expected = [used("foreign", (1, 0), (50, 5), None)];
        assert_eq!(one_run(&store).await.usage, expected, "no tool loop of this crate");
    }
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), ScriptedModel::new(script()));
        let below = PerServiceCallPersistence::new(store.clone()).layer(model);
        let client = boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(below));
        send(&client, ask("where?", streamed)).await.unwrap();
        let reported = one_run(&store).await;
        assert_eq!(reported.usage, used_by_script(false), "no layer above the tool loop");
        assert_eq!(reported.mode, Some(PerServiceCall));
    }
}

#[tokio::test]
async fn a_pipeline_takes_a_price_list() {
    async fn echo(_: ChatRequest) -> Result<ChatResponse, BoxError> {
        Ok(ChatResponse::whole([Message::assistant("yes")], finish("small", 1000, 100)))
    }
    let store = store();
    let pipeline = ChatPipeline::builder(service_fn(echo))
        .history(store.clone())
        .policy(policy().with_prices(prices()))
        .build()
        .unwrap();
    let request = ChatRequest::user("well?").in_conversation(key());
    let run: RunId = request.conversation().unwrap().run;
    pipeline.oneshot(request).await.unwrap().collect().await.unwrap();
    let reported = one_run(&store).await;
    assert_eq!(reported.run, run);
    assert_eq!(reported.usage, [used("small", (1, 0), (1000, 100), Some(1200))]);
}
