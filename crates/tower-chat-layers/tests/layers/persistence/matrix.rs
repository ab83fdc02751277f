//! Tests each row of the configuration matrix in `README.md`, and the configurations that the
//! builder refuses.

use tower::{Layer, Service};
use tower_chat::store::Journal;
use tower_chat::{
    BoxError, ChatPipeline, ChatRequest, ChatResponse, PersistenceError, PersistenceMode, Tools,
    error::{BuildError, ToolLoopError},
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::MissingPersister,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

const WHOLE_RUN: [&str; 4] =
    ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];

fn one_round() -> ScriptedModel {
    ScriptedModel::new([calls([("look", "c1")]), Step::text("there")])
}

fn pipeline(builder: tower_chat::layer::ChatPipelineBuilder<impl Model>) -> Client {
    boxed(builder.build().unwrap())
}

trait Model:
    Service<ChatRequest, Response = ChatResponse, Error = BoxError, Future: Send>
    + Clone
    + Send
    + Sync
    + 'static
{
}
impl<S> Model for S where
    S: Service<ChatRequest, Response = ChatResponse, Error = BoxError, Future: Send>
        + Clone
        + Send
        + Sync
        + 'static
{
}

fn own_stack(model: &ScriptedModel, store: &Store, tool_log: &ToolLog) -> Client {
    let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
    boxed(ToolLoopLayer::new(tools(tool_log)).layer(below))
}

fn own_stack_without_persister(model: &ScriptedModel, tool_log: &ToolLog) -> Client {
    boxed(ToolLoopLayer::new(tools(tool_log)).layer(model.clone()))
}

#[tokio::test]
async fn row_1_own_layers_per_run_appends_once_at_the_end() {
    Cases::all()
        .modes([PerRun], "this row of the table is for one mode")
        .check(async |case| {
            let (store, model) = (case.store().await, one_round());
            let builder = ChatPipeline::builder(model.clone()).tools(tools(&ToolLog::default()));
            let client = pipeline(builder.history(store.clone()));
            send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(stored(&store).await, WHOLE_RUN);
            assert_eq!(store.appends(), 1, "per-run mode is the default");
        })
        .await;
}

#[tokio::test]
async fn row_2_own_layers_per_service_call_appends_each_call() {
    Cases::all()
        .modes([PerServiceCall], "this row of the table is for one mode")
        .check(async |case| {
            let (store, model) = (case.store().await, one_round());
            let builder = ChatPipeline::builder(model.clone()).tools(tools(&ToolLog::default()));
            let client = pipeline(builder.history(store.clone()).persistence(case.mode));
            send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(stored(&store).await, WHOLE_RUN);
            assert_eq!(store.appends(), 2);
        })
        .await;
}

#[tokio::test]
async fn row_3_client_as_is_per_run_appends_once_at_the_end() {
    Cases::all()
        .modes([PerRun], "this row of the table is for one mode")
        .check(async |case| {
            for holds_persister in [false, true] {
                let (store, model, tool_log) =
                    (case.store().await, one_round(), ToolLog::default());
                let own = match holds_persister {
                    true => own_stack(&model, &store, &tool_log),
                    false => own_stack_without_persister(&model, &tool_log),
                };
                let builder = ChatPipeline::builder(own).use_client_as_is(true);
                let client = pipeline(builder.history(store.clone()).persistence(case.mode));
                send(&client, case.ask("where?")).await.unwrap();
                assert_eq!(stored(&store).await, WHOLE_RUN);
                assert_eq!(store.appends(), 1);
                assert_eq!(
                    model.requests()[0].options.tools.len(),
                    tools(&tool_log).len(),
                    "the stack contains one tool loop"
                );
            }
        })
        .await;
}

#[tokio::test]
async fn row_4_client_as_is_per_service_call_leaves_writing_to_the_clients_own_layer() {
    Cases::all()
        .modes([PerServiceCall], "this row of the table is for one mode")
        .check(async |case| {
            let (store, model) = (case.store().await, one_round());
            let own = own_stack(&model, &store, &ToolLog::default());
            let policy = policy().on_missing_persister(MissingPersister::Fail);
            let builder = ChatPipeline::builder(own).use_client_as_is(true).policy(policy);
            let client = pipeline(builder.history(store.clone()).persistence(case.mode));
            let logged = logged();
            send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(stored(&store).await, WHOLE_RUN);
            assert_eq!(store.appends(), 2, "the end of the run is not written again");
            assert_eq!(logged.lines("WARN"), 0);
        })
        .await;
}

#[tokio::test]
async fn row_4_without_the_layer_warns_once_and_stores_nothing() {
    Cases::all()
        .modes([PerServiceCall], "this row of the table is for one mode")
        .check(async |case| {
            let (store, model, tool_log) = (case.store().await, one_round(), ToolLog::default());
            let own = own_stack_without_persister(&model, &tool_log);
            let builder = ChatPipeline::builder(own).use_client_as_is(true);
            let client = pipeline(builder.history(store.clone()).persistence(case.mode));
            let logged = logged();
            let answer = send(&client, case.ask("where?")).await.unwrap();
            assert_eq!(answer.text(), "there");
            assert_eq!(stored(&store).await, [""; 0]);
            assert_eq!(logged.lines("PerServiceCallPersistence is missing below the tool loop"), 1);
            assert_eq!(
                answer.finish.saved.unwrap().messages,
                0,
                "the answer reports that nothing was stored"
            );
        })
        .await;
}

#[tokio::test]
async fn row_4_strict_without_the_layer_fails_before_any_tool_runs() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode needs no layer below the tool loop")
        .check(async |case| {
            let (store, model, tool_log) = (case.store().await, one_round(), ToolLog::default());
            let own = own_stack_without_persister(&model, &tool_log);
            let policy = policy().on_missing_persister(MissingPersister::Fail);
            let builder = ChatPipeline::builder(own).use_client_as_is(true).policy(policy);
            let client = pipeline(builder.history(store.clone()).persistence(case.mode));
            let error = refused(send(&client, case.ask("where?")).await);
            assert!(matches!(error, PersistenceError::PersisterMissing { .. }), "{error:?}");
            assert_eq!(stored(&store).await, [""; 0]);
            assert_eq!(model.requests().len(), 0);
            assert_eq!(tool_log.names(), [""; 0]);
        })
        .await;
}

#[tokio::test]
async fn row_4_with_a_bare_model_warns_or_fails() {
    Cases::all()
        .modes([PerServiceCall], "this row of the table is for one mode")
        .check(async |case| {
            for missing in [MissingPersister::Warn, MissingPersister::Fail] {
                let (store, model) =
                    (case.store().await, ScriptedModel::new([Step::text("hello")]));
                let policy = policy().on_missing_persister(missing);
                let builder = ChatPipeline::builder(model).use_client_as_is(true).policy(policy);
                let client = pipeline(builder.history(store.clone()).persistence(case.mode));
                let logged = logged();
                let result = send(&client, case.ask("hi")).await;
                assert_eq!(stored(&store).await, [""; 0]);
                match missing {
                    MissingPersister::Warn => {
                        assert_eq!(result.unwrap().text(), "hello");
                        assert_eq!(
                            logged
                                .lines("PerServiceCallPersistence is missing below the tool loop"),
                            1
                        );
                    }
                    _ => {
                        let error = refused(result);
                        assert!(matches!(error, PersistenceError::PersisterMissing { .. }));
                    }
                }
            }
        })
        .await;
}

#[tokio::test]
async fn the_mode_of_one_request_is_chosen_by_an_extension() {
    every_case(async |case| {
        for built in MODES {
            let (store, model) = (case.store().await, one_round());
            let client = agent(&model, &store, built);
            send(&client, case.ask("where?").with_extension(case.mode)).await.unwrap();
            let appends = match case.mode {
                PerRun => 1,
                PerServiceCall => 2,
                // The four writes contain the input, the answer with its calls, the outcome of the
                // call, and the final answer with the commit.
                _ => 4,
            };
            assert_eq!(store.appends(), appends, "built {built:?}");
            assert_eq!(stored(&store).await, WHOLE_RUN);
        }
    })
    .await;
}

#[tokio::test]
async fn modes_may_change_from_run_to_run() {
    every_case(async |case| {
        let store = case.store().await;
        let round = || [case.calls([("look", "c1")]), Step::text("there")];
        let model = ScriptedModel::new((0..6).flat_map(|_| round()));
        let client = case.agent(&model, &store);
        for mode in MODES.into_iter().chain(MODES.into_iter().rev()) {
            send(&client, case.ask("where?").with_extension(mode)).await.unwrap();
        }
        assert_eq!(stored(&store).await, WHOLE_RUN.repeat(6));
        assert_eq!(sent_texts(&model, 11), stored(&store).await[..23]);
    })
    .await;
}

#[tokio::test]
async fn without_a_store_nothing_is_kept_and_no_conversation_is_needed() {
    Cases::all()
        .only("without a store, the mode has no effect", |case| case.mode == PerRun)
        .check(async |case| {
            let model = one_round();
            let client =
                pipeline(ChatPipeline::builder(model.clone()).tools(tools(&ToolLog::default())));
            let request = ChatRequest::user("where?");
            let request = case.way(request);
            let answer = send(&client, request).await.unwrap();
            assert_eq!(answer.text(), "there");
            assert_eq!(answer.finish.saved, None);
        })
        .await;
}

#[tokio::test]
async fn without_a_tool_loop_calls_go_back_to_the_caller_and_are_stored() {
    every_case(async |case| {
        let (store, model) = (case.store().await, one_round());
        let builder = ChatPipeline::builder(model.clone()).without_tool_loop();
        let client = pipeline(builder.history(store.clone()).persistence(case.mode));
        let answer = send(&client, case.ask("where?")).await.unwrap();
        assert_eq!(answer.tool_calls().count(), 1);
        assert_eq!(answer.finish.history_owner, None);
        assert_eq!(stored(&store).await, WHOLE_RUN[..2]);
    })
    .await;
}

#[test]
fn build_fails_if_tools_are_set_for_a_client_used_as_is() {
    let builder = || ChatPipeline::builder(one_round()).use_client_as_is(true);
    let error = builder().tools(Tools::new()).build().unwrap_err();
    assert_eq!(error, BuildError::ToolsForClientAsIs);
    let error = builder().tool_loop(ToolLoopLayer::new(Tools::new())).build().unwrap_err();
    assert_eq!(error, BuildError::ToolsForClientAsIs);
}

#[test]
fn build_fails_if_tools_are_set_without_a_tool_loop() {
    let builder = ChatPipeline::builder(one_round()).without_tool_loop();
    assert_eq!(builder.tools(Tools::new()).build().unwrap_err(), BuildError::ToolsWithoutLoop);
}

#[test]
fn build_fails_if_a_mode_or_a_policy_is_set_without_a_store() {
    for mode in BOTH_MODES {
        let error = ChatPipeline::builder(one_round()).persistence(mode).build().unwrap_err();
        assert_eq!(error, BuildError::NoStore, "the builder does not ignore the mode");
    }
    let error = ChatPipeline::builder(one_round()).policy(policy()).build().unwrap_err();
    assert_eq!(error, BuildError::NoStore);
}

/// The position of a persistence layer in a client to which the pipeline adds the same layer again.
#[derive(Debug, Clone, Copy)]
enum Twice {
    AboveRuns,
    AboveRunsAsIs,
    BelowLoop,
    BelowOwnLoop,
}

impl Twice {
    const ALL: [Self; 4] =
        [Self::AboveRuns, Self::AboveRunsAsIs, Self::BelowLoop, Self::BelowOwnLoop];

    fn client(self, model: &ScriptedModel, store: &Store) -> Client {
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let above = PerRunPersistence::new(store.clone());
        match self {
            Self::AboveRuns => boxed(above.layer(model.clone())),
            Self::AboveRunsAsIs => boxed(above.layer(below)),
            Self::BelowLoop => boxed(below),
            Self::BelowOwnLoop => boxed(ToolLoopLayer::new(Tools::new()).layer(below)),
        }
    }

    fn explains(self, error: &BoxError) -> bool {
        let layer = error.downcast_ref::<PersistenceError>();
        let is_twice = matches!(layer, Some(PersistenceError::LayerTwice { .. }));
        match self {
            Self::AboveRunsAsIs | Self::BelowLoop => is_twice,
            Self::AboveRuns => matches!(
                error.downcast_ref::<ToolLoopError>(),
                Some(ToolLoopError::PerRunPersistenceBelow { .. })
            ),
            Self::BelowOwnLoop => matches!(
                error.downcast_ref::<ToolLoopError>(),
                Some(ToolLoopError::PersisterAbove { .. })
            ),
        }
    }
}

#[tokio::test]
async fn the_first_call_fails_if_the_stack_has_two_persisters() {
    every_case(async |case| {
        for twice in Twice::ALL {
            let (store, model) = (case.store().await, one_round());
            let as_is = matches!(twice, Twice::AboveRunsAsIs);
            let builder = ChatPipeline::builder(twice.client(&model, &store))
                .use_client_as_is(as_is)
                .history(store.clone());
            let client = pipeline(builder.persistence(case.mode));
            let error = send(&client, case.ask("hi")).await.unwrap_err();
            assert!(twice.explains(&error), "{twice:?} {case}: {error:?}");
            assert_eq!(model.requests().len(), 0, "{twice:?} {case}");
            assert_eq!(stored(&store).await, [""; 0], "{twice:?} {case}");
            let open = store.inner().open_run(&key()).await.unwrap();
            assert!(open.is_none(), "{twice:?} {case}");
        }
    })
    .await;
}

#[test]
fn build_errors_contain_the_cause_and_a_remedy() {
    for error in [BuildError::ToolsForClientAsIs, BuildError::ToolsWithoutLoop, BuildError::NoStore]
    {
        let text = error.to_string();
        assert!(text.contains(": ") && text.len() > 40, "{text}");
    }
}

#[test]
fn the_default_mode_is_per_run() {
    assert_eq!(PersistenceMode::default(), PerRun);
}
