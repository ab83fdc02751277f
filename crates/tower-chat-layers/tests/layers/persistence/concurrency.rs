//! Tests the layers of this crate below layers of tower (a concurrency limit, a buffer, a box), and
//! in many concurrent conversations.

use std::time::Duration;

use tower::{
    BoxError, Layer, ServiceBuilder, ServiceExt, buffer::BufferLayer, limit::ConcurrencyLimitLayer,
};
use tower_chat::{
    ChatRequest, ChatResponse, ConversationKey, PersistenceError, PersistenceMode, Tools,
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    tool::ToolOutput,
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

/// Fails a test that would otherwise wait forever.
async fn in_time<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(3600), future).await.expect("no deadlock")
}

/// Returns a model client for this number of runs. It calls `look` once in each.
fn one_round_each(runs: usize) -> ScriptedModel {
    let by_request = || {
        Step::respond(|request| match request.messages().last().unwrap().results().next() {
            Some(_) => Step::text("there"),
            None => calls([("look", "c1")]),
        })
    };
    ScriptedModel::new((0..2 * runs).map(|_| by_request()))
}

const WHOLE_RUN: [&str; 4] =
    ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];

fn layered(model: Client, store: &Store, mode: PersistenceMode) -> Client {
    stack(model, store, mode, policy(), tools(&ToolLog::default()))
}

#[tokio::test(start_paused = true)]
async fn a_run_completes_with_a_concurrency_limit_of_one_above_and_below_the_layers() {
    for (streamed, mode) in cases!(BOTH_WAYS, BOTH_MODES) {
        let (store, model) = (store(), one_round_each(1));
        let limit = ConcurrencyLimitLayer::new(1);
        let client = boxed(ServiceBuilder::new().layer(limit.clone()).service(layered(
            boxed(limit.layer(model.clone())),
            &store,
            mode,
        )));
        in_time(send(&client, ask("where?", streamed))).await.unwrap();
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test(start_paused = true)]
async fn a_run_completes_with_a_buffer_above_and_below_the_layers() {
    for (streamed, mode) in cases!(BOTH_WAYS, BOTH_MODES) {
        let (store, model) = (store(), one_round_each(1));
        let below = BufferLayer::<ChatRequest>::new(1).layer(boxed(model.clone()));
        let whole = layered(boxed(below), &store, mode);
        let above = BufferLayer::<ChatRequest>::new(1).layer(whole);
        in_time(send(&boxed(above), ask("where?", streamed))).await.unwrap();
        assert_eq!(stored(&store).await, WHOLE_RUN);
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_may_use_the_same_bounded_client_in_a_conversation_of_its_own() {
    for mode in BOTH_MODES {
        let store = store();
        let model = ScriptedModel::new([
            calls([("delegate", "c1")]),
            Step::text("nested"),
            Step::text("done"),
        ]);
        let bounded = boxed(ConcurrencyLimitLayer::new(1).layer(model.clone()));
        let nested = layered(bounded.clone(), &store, mode);
        let delegate = tool_fn(definition("delegate"), move |context| {
            let nested = nested.clone();
            async move {
                let key = ConversationKey::new("alice", "sub");
                let request = context.nest(ChatRequest::user("sub").in_conversation(key));
                Ok(ToolOutput::from(send(&nested, request).await?.text()))
            }
        });
        let client = stack(bounded, &store, mode, policy(), Tools::new().with(delegate));
        in_time(send(&client, ask("go", false))).await.unwrap();
        assert_eq!(stored(&store).await.len(), 4);
    }
}

#[tokio::test]
async fn layers_stack_in_a_service_builder_and_can_be_boxed_and_cloned() {
    for streamed in BOTH_WAYS {
        let (store, model) = (store(), one_round_each(2));
        let client = ServiceBuilder::new()
            .boxed_clone()
            .layer(PerRunPersistence::new(store.clone()).mode(PerServiceCall))
            .layer(ToolLoopLayer::new(tools(&ToolLog::default())))
            .layer(PerServiceCallPersistence::new(store.clone()))
            .service(model);
        fn is_usable<S>(_: &S)
        where
            S: tower::Service<ChatRequest, Response = ChatResponse, Error = BoxError>
                + Clone
                + Send
                + 'static,
        {
        }
        is_usable(&client);
        for _ in 0..2 {
            let response = client.clone().oneshot(ask("where?", streamed)).await.unwrap();
            response.collect().await.unwrap();
        }
        assert_eq!(stored(&store).await, WHOLE_RUN.repeat(2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_conversations_do_not_affect_each_other() {
    for (streamed, mode) in cases!(BOTH_WAYS, BOTH_MODES) {
        const CONVERSATIONS: usize = 50;
        let (store, model) = (store(), one_round_each(2 * CONVERSATIONS));
        let client = agent(&model, &store, mode);
        let key = |number| ConversationKey::new("tenant", format!("c{number}"));
        let runs = (0..CONVERSATIONS).map(|number| {
            let client = client.clone();
            tokio::spawn(async move {
                for text in ["where?", "and now?"] {
                    let text = format!("{number} {text}");
                    let request = ChatRequest::user(text).in_conversation(key(number));
                    let request = if streamed { request.streamed() } else { request };
                    send(&client, request).await.unwrap();
                }
            })
        });
        for run in runs.collect::<Vec<_>>() {
            run.await.unwrap();
        }
        for number in 0..CONVERSATIONS {
            let messages = stored_of(&store, &key(number)).await;
            assert_eq!(messages.len(), 8);
            assert_eq!(messages[0], format!("user {number} where?"));
            assert_eq!(messages[4], format!("user {number} and now?"));
        }
        assert_eq!(model.remaining(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_many_runs_at_once_on_one_conversation_each_is_stored_whole_or_refused() {
    for mode in BOTH_MODES {
        let (store, model) = (store(), one_round_each(20));
        let processes =
            [agent(&model, &store, mode), agent(&model, &store.in_another_process(), mode)];
        let runs: Vec<_> = (0..20)
            .map(|run| {
                let client = processes[run % 2].clone();
                tokio::spawn(async move { send(&client, ask("where?", false)).await })
            })
            .collect();
        let mut done = 0;
        for run in runs {
            match run.await.unwrap() {
                Ok(_) => done += 1,
                Err(error) => match refused(Err(error)) {
                    PersistenceError::NotStored(not_stored) => {
                        assert!(not_stored.conflict().is_some());
                    }
                    error => {
                        assert!(matches!(error, PersistenceError::RunUnderWay { .. }), "{error:?}")
                    }
                },
            }
        }
        assert!(done >= 1);
        let messages = stored(&store).await;
        if mode == PerRun {
            assert_eq!(messages, WHOLE_RUN.repeat(done));
        }
        let answers = messages.iter().filter(|message| *message == "assistant there").count();
        assert_eq!(answers, done);
    }
}
