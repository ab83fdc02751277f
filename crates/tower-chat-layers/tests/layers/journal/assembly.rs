//! Tests stacks in which a layer is missing or misplaced. A request to such a stack fails before
//! the model is called and before any tool runs.

use tower::{Layer, buffer::BufferLayer};
use tower_chat::{
    ChatPipeline, ChatRequest, Message, PersistenceError, PersistenceMode, Role,
    error::ToolLoopError,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    policy::MissingPersister,
    tool::ApprovalRequest,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use super::booking_tools::*;
use crate::common::*;

const BELOW_MODES: [PersistenceMode; 2] = [PerServiceCall, JOURNALED];

/// Creates a conversation with a payment that waits for approval, with a complete stack.
async fn waiting(store: &Store, mode: PersistenceMode, streamed: bool) -> ApprovalRequest {
    let setup = Setup::new(store).mode(mode);
    let model = ScriptedModel::new([calls([("pay", "c1")])]);
    let client = setup.stack(&model, tools(&ToolLog::default()));
    let answer = send(&client, ask("buy", streamed)).await.unwrap();
    answer.approval_requests().next().unwrap().clone()
}

fn approving(request: &ApprovalRequest, streamed: bool) -> ChatRequest {
    request_with([Message::new(Role::User, vec![request.approve().into()])], streamed)
}

#[tokio::test]
async fn approved_tools_do_not_run_in_a_stack_without_a_persister() {
    for (streamed, mode, missing, as_is) in cases!(
        BOTH_WAYS,
        BELOW_MODES,
        [None, Some(MissingPersister::Warn), Some(MissingPersister::Fail)],
        [false, true]
    ) {
        let (store, tool_log) = (store(), ToolLog::default());
        let asked = waiting(&store, mode, streamed).await;
        let before = stored(&store).await;
        let model = ScriptedModel::new([Step::text("done")]);
        let looped = ToolLoopLayer::new(tools(&tool_log)).layer(model.clone());
        let policy = missing
            .into_iter()
            .fold(policy(), |policy, missing| policy.on_missing_persister(missing));
        let client = match as_is {
            true => {
                let built = ChatPipeline::builder(looped).use_client_as_is(true);
                let built = built.history(store.clone()).persistence(mode);
                boxed(built.policy(policy).build().unwrap())
            }
            false => {
                let above = PerRunPersistence::new(store.clone()).mode(mode);
                boxed(above.policy(policy).layer(looped))
            }
        };
        let error = refused(send(&client, approving(&asked, streamed)).await);
        let is_missing = matches!(error, PersistenceError::PersisterMissing { .. });
        assert!(is_missing, "{error:?}");
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(
            model.requests().len(),
            0,
            "the model must not receive a result without its call"
        );
        assert_eq!(stored(&store).await, before);
        assert!(open(&store).await.is_none());

        let model = ScriptedModel::new([Step::text("done")]);
        let client = Setup::new(&store).mode(mode).stack(&model, tools(&tool_log));
        send(&client, approving(&asked, streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"], "the approval can be sent again");
    }
}

#[tokio::test]
async fn a_stack_without_a_persister_is_refused_before_the_model_is_called() {
    for (streamed, mode, as_is) in cases!(BOTH_WAYS, BELOW_MODES, [false, true]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([calls([("look", "c1")]), Step::text("there")]);
        let looped = boxed(ToolLoopLayer::new(tools(&tool_log)).layer(model.clone()));
        let client = match as_is {
            true => {
                let policy = policy().on_missing_persister(MissingPersister::Fail);
                let built = ChatPipeline::builder(looped).use_client_as_is(true);
                let built = built.history(store.clone()).persistence(mode);
                boxed(built.policy(policy).build().unwrap())
            }
            false => boxed(PerRunPersistence::new(store.clone()).mode(mode).layer(looped)),
        };
        let error = refused(send(&client, ask("where?", streamed)).await);
        let is_missing = matches!(error, PersistenceError::PersisterMissing { .. });
        assert!(is_missing, "{error:?}");
        assert_eq!(model.requests().len(), 0);
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(stored(&store).await, [""; 0]);
        assert!(open(&store).await.is_none());
    }
}

#[tokio::test]
async fn a_persister_behind_ordinary_layers_is_found() {
    for (streamed, mode) in cases!(BOTH_WAYS, BELOW_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let asked = waiting(&store, mode, streamed).await;
        let model = ScriptedModel::new([Step::text("done"), Step::text("bye")]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let below = tower::ServiceBuilder::new()
            .timeout(std::time::Duration::from_secs(60))
            .concurrency_limit(1)
            .service(boxed(below));
        let looped = ToolLoopLayer::new(tools(&tool_log)).layer(boxed(below));
        let client = boxed(PerRunPersistence::new(store.clone()).mode(mode).layer(looped));
        send(&client, approving(&asked, streamed)).await.unwrap();
        send(&client, ask("ok", streamed)).await.unwrap();
        assert_eq!(tool_log.names(), ["pay"]);
        let found = ["tool c1=payed c1", "assistant done", "user ok", "assistant bye"];
        assert_eq!(stored(&store).await[3..], found);
    }
}

#[tokio::test]
async fn a_persister_that_a_buffer_hides_has_to_be_declared() {
    for (streamed, mode, declared) in cases!(BOTH_WAYS, BELOW_MODES, [false, true]) {
        let (store, tool_log) = (store(), ToolLog::default());
        let asked = waiting(&store, mode, streamed).await;
        let model = ScriptedModel::new([Step::text("done")]);
        let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
        let hidden = BufferLayer::<ChatRequest>::new(4).layer(boxed(below));
        let tool_loop = ToolLoopLayer::new(tools(&tool_log)).assume_persister_below(declared);
        let looped = tool_loop.layer(boxed(hidden));
        let client = boxed(PerRunPersistence::new(store.clone()).mode(mode).layer(looped));
        let answer = send(&client, approving(&asked, streamed)).await;
        if declared {
            answer.unwrap();
            assert_eq!(tool_log.names(), ["pay"]);
        } else {
            let error = refused(answer);
            assert!(matches!(error, PersistenceError::PersisterMissing { .. }));
            assert!(error.to_string().contains("assume_persister_below"), "{error}");
            assert_eq!((tool_log.names().len(), model.requests().len()), (0, 0));
        }
    }
}

#[tokio::test]
async fn per_run_persistence_below_the_loop_is_refused() {
    for (streamed, mode) in cases!(BOTH_WAYS, ALL_MODES) {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([calls([("look", "c1")]), Step::text("there")]);
        let below = PerRunPersistence::new(store.clone()).mode(mode).layer(model.clone());
        let hidden = BufferLayer::<ChatRequest>::new(4).layer(boxed(below.clone()));
        for below in [boxed(below), boxed(hidden)] {
            let client = boxed(ToolLoopLayer::new(tools(&tool_log)).layer(below));
            let error = send(&client, ask("where?", streamed)).await.unwrap_err();
            let by_loop = error.downcast_ref::<ToolLoopError>();
            let by_loop = matches!(by_loop, Some(ToolLoopError::PerRunPersistenceBelow { .. }));
            let by_layer = error.downcast_ref::<PersistenceError>();
            let by_layer = matches!(by_layer, Some(PersistenceError::BelowToolLoop { .. }));
            assert!(by_loop || by_layer, "{error:?}");
            assert!(error.to_string().contains("PerRunPersistence"), "{error}");
            assert_eq!(model.requests().len(), 0);
            assert_eq!(tool_log.names(), [""; 0]);
            assert_eq!(stored(&store).await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn a_pipeline_refuses_per_run_persistence_below_its_loop() {
    for streamed in BOTH_WAYS {
        let (store, tool_log) = (store(), ToolLog::default());
        let model = ScriptedModel::new([calls([("look", "c1")]), Step::text("there")]);
        let client = PerRunPersistence::new(store.clone()).layer(model.clone());
        let client = boxed(ChatPipeline::builder(client).tools(tools(&tool_log)).build().unwrap());
        let error = send(&client, ask("where?", streamed)).await.unwrap_err();
        let error = error.downcast_ref::<ToolLoopError>();
        assert!(matches!(error, Some(ToolLoopError::PerRunPersistenceBelow { .. })), "{error:?}");
        assert_eq!(model.requests().len(), 0);
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(stored(&store).await, [""; 0]);
    }
}
