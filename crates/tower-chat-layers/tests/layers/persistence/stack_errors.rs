//! Tests that invalid stacks fail with an error, and that no message is stored twice below the tool
//! loop of an application.

use std::sync::Arc;

use tower::{Layer, Service};
use tower_chat::{
    Answer, BoxError, ChatRequest, ChatResponse, ConversationKey, Message, PersistenceError,
    ToolResult, Tools,
    error::{SentinelAtClient, ToolLoopError},
    layer::{PerRunPersistence, PerServiceCallPersistence, ToolLoopLayer},
    message::MessageId,
    request::HistoryOwner,
    tool::{NestedInAncestor, ToolOutput},
    tool_fn,
};
use tower_chat_testkit::{ScriptedModel, Step, cases};

use crate::common::*;

fn persister(model: &ScriptedModel, store: &Store) -> Client {
    boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()))
}

fn one_round() -> ScriptedModel {
    ScriptedModel::new([calls([("look", "c1")]), Step::text("there")])
}

#[tokio::test]
async fn a_request_without_a_conversation_is_an_error_that_names_the_layer() {
    let (store, model) = (store(), one_round());
    for (client, name) in [
        (agent(&model, &store, PerRun), "PerRunPersistence"),
        (agent(&model, &store, PerServiceCall), "PerRunPersistence"),
        (persister(&model, &store), "PerServiceCallPersistence"),
    ] {
        let error = refused(send(&client, ChatRequest::user("hi")).await);
        let PersistenceError::NoConversation { layer } = error else { panic!("{error:?}") };
        assert_eq!(layer, name);
        assert!(error.to_string().contains("in_conversation"));
    }
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn a_stack_with_two_layers_of_a_kind_is_refused_before_the_model_is_called() {
    every_case(async |case| {
        let (store, model) = (case.store().await, one_round());
        let below = persister(&model, &store);
        let twice = boxed(PerServiceCallPersistence::new(store.clone()).layer(below.clone()));
        let client =
            boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(twice.clone()));
        let error = refused(send(&client, case.ask("hi")).await);
        assert!(matches!(error, PersistenceError::LayerTwice { .. }), "{error:?}");
        let error = refused(send(&twice, case.ask("hi")).await);
        assert!(matches!(error, PersistenceError::LayerTwice { .. }), "{error:?}");
        let above = PerRunPersistence::new(store.clone()).mode(case.mode);
        let client = boxed(above.layer(above.layer(below)));
        let error = refused(send(&client, case.ask("hi")).await);
        assert!(matches!(error, PersistenceError::LayerTwice { .. }), "{error:?}");
        assert_eq!(model.requests().len(), 0);
        assert_eq!(stored(&store).await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn a_stack_with_two_stores_is_refused() {
    every_case(async |case| {
        let (above, below, model) = (case.store().await, case.store().await, one_round());
        let below = persister(&model, &below);
        let client = boxed(PerRunPersistence::new(above.clone()).mode(case.mode).layer(below));
        let error = refused(send(&client, case.ask("hi")).await);
        assert!(matches!(error, PersistenceError::DifferentStores { .. }), "{error:?}");
        assert_eq!(model.requests().len(), 0);
    })
    .await;
}

#[tokio::test]
async fn a_persister_above_the_tool_loop_is_refused() {
    for (streamed, mode) in cases!(BOTH_WAYS, BOTH_MODES) {
        let (store, model, tool_log) = (store(), one_round(), ToolLog::default());
        let looped = ToolLoopLayer::new(tools(&tool_log)).layer(model.clone());
        let alone = boxed(PerServiceCallPersistence::new(store.clone()).layer(looped));
        let client = boxed(PerRunPersistence::new(store.clone()).mode(mode).layer(alone.clone()));
        let whole = ToolLoopLayer::new(tools(&tool_log)).layer(persister(&model, &store));
        let whole = boxed(PerRunPersistence::new(store.clone()).mode(mode).layer(whole));
        let above_all = boxed(PerServiceCallPersistence::new(store.clone()).layer(whole));
        for client in [alone, client, above_all] {
            let error = send(&client, ask("hi", streamed)).await.unwrap_err();
            let error = error.downcast_ref::<ToolLoopError>().expect("the loop's error");
            assert!(matches!(error, ToolLoopError::PersisterAbove { .. }), "{error:?}");
        }
        assert_eq!(model.requests().len(), 0);
        assert_eq!(tool_log.names(), [""; 0]);
        assert_eq!(stored(&store).await, [""; 0]);
    }
}

#[tokio::test]
async fn a_persister_is_found_below_a_loop_that_was_called_without_being_polled() {
    let cases = Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode needs no layer below the tool loop");
    cases
        .check(async |case| {
            let (store, model, tool_log) = (case.store().await, one_round(), ToolLog::default());
            let looped = ToolLoopLayer::new(tools(&tool_log)).layer(persister(&model, &store));
            let hasty = tower::service_fn(move |request: ChatRequest| looped.clone().call(request));
            let client = boxed(PerRunPersistence::new(store.clone()).mode(case.mode).layer(hasty));
            assert_eq!(send(&client, case.ask("hi")).await.unwrap().text(), "there");
            let all = ["user hi", "assistant look#c1", "tool c1=looked c1", "assistant there"];
            assert_eq!(stored(&store).await, all);
        })
        .await;
}

#[tokio::test]
async fn a_lone_persister_refuses_per_run_mode() {
    let (store, model) = (store(), one_round());
    let request = ask("hi", false).with_extension(PerRun);
    let error = refused(send(&persister(&model, &store), request).await);
    assert!(matches!(error, PersistenceError::RunMissing { mode: "per-run", .. }), "{error:?}");
    assert_eq!(model.requests().len(), 0);
}

#[tokio::test]
async fn the_sentinel_at_a_model_is_an_error() {
    let model = one_round();
    let mut request = ask("hi", false);
    request.history_owner = Some(HistoryOwner::Local);
    let error = send(&boxed(model), request).await.unwrap_err();
    assert!(error.downcast_ref::<SentinelAtClient>().is_some());
}

/// Returns the second request of an application's tool loop, for the first request and its answer.
type Resend = fn(&ChatRequest, &Answer) -> ChatRequest;

/// Executes one round of an application's tool loop.
async fn foreign_loop(
    client: &Client,
    request: ChatRequest,
    resend: Resend,
) -> Result<Answer, BoxError> {
    let first = send(client, request.clone()).await?;
    send(client, resend(&request, &first)).await
}

fn result() -> Arc<Message> {
    Message::tool_results([ToolResult::new("c1", "looked c1")]).into()
}

fn only_what_is_new(request: &ChatRequest, first: &Answer) -> ChatRequest {
    let mut next = request.clone();
    next.set_new_messages(Message::clone(&result()));
    next.history_owner = first.finish.history_owner.clone();
    next
}

fn everything_with_ids(request: &ChatRequest, first: &Answer) -> ChatRequest {
    let mut next = request.clone();
    first.messages.iter().for_each(|message| next.push(message.clone()));
    next.push(result());
    next
}

fn everything_without_ids(request: &ChatRequest, first: &Answer) -> ChatRequest {
    let mut next = everything_with_ids(request, first);
    let messages = next
        .messages()
        .iter()
        .map(|message| {
            let mut message = Message::clone(message);
            message.id = None;
            message
        })
        .collect::<Vec<_>>();
    next.set_messages(messages, next.history_len());
    next
}

#[tokio::test]
async fn a_foreign_loop_that_honours_the_sentinel_stores_nothing_twice() {
    for (streamed, resend, with_run) in cases!(
        BOTH_WAYS,
        [only_what_is_new as Resend, everything_with_ids, everything_without_ids],
        [false, true]
    ) {
        let (store, model) = (store(), one_round());
        let below = persister(&model, &store);
        let all = ["user where?", "assistant look#c1", "tool c1=looked c1", "assistant there"];
        let request = ask("where?", streamed);
        if with_run {
            let looping = boxed(tower::service_fn(move |request: ChatRequest| {
                let below = below.clone();
                async move {
                    let answer = foreign_loop(&below, request, resend).await?;
                    Ok::<_, BoxError>(ChatResponse::from(answer))
                }
            }));
            let above = PerRunPersistence::new(store.clone()).mode(PerServiceCall);
            let answer = send(&boxed(above.layer(looping)), request).await.unwrap();
            assert_eq!(answer.finish.history_owner, None);
            assert_eq!(store.loads(), 0);
        } else {
            let answer = foreign_loop(&below, request, resend).await.unwrap();
            assert_eq!(answer.finish.history_owner, Some(HistoryOwner::Local));
        }
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 1), all[..3]);
    }
}

#[tokio::test]
async fn a_lone_persister_serves_a_conversation_run_by_run() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model =
            ScriptedModel::new([calls([("look", "c1")]), Step::text("there"), Step::text("bye")]);
        let client =
            boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(persister(&model, &store)));
        let answer = send(&client, ask("where?", streamed)).await.unwrap();
        assert_eq!(answer.finish.history_owner, None, "the tool loop does not return the sentinel");
        send(&client, ask("ok", streamed)).await.unwrap();
        let all = [
            "user where?",
            "assistant look#c1",
            "tool c1=looked c1",
            "assistant there",
            "user ok",
            "assistant bye",
        ];
        assert_eq!(stored(&store).await, all);
        assert_eq!(sent_texts(&model, 2), all[..5]);
        let ids: Vec<_> = model.requests()[2].messages().iter().filter_map(|m| m.id).collect();
        let distinct: std::collections::HashSet<MessageId> = ids.iter().copied().collect();
        assert_eq!(distinct.len(), ids.len());
    }
}

#[tokio::test]
async fn few_shot_examples_in_the_input_are_not_mistaken_for_history_sent_again() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = ScriptedModel::new([Step::error("overloaded"), Step::text("4")]);
        let client = persister(&model, &store);
        let shots = [Message::user("1+1"), Message::assistant("2"), Message::user("2+2")];
        let request = request_with(shots, streamed);
        send(&client, request.clone()).await.unwrap_err();
        send(&client, request).await.unwrap();
        assert_eq!(stored(&store).await, ["user 1+1", "assistant 2", "user 2+2", "assistant 4"]);
    }
}

#[tokio::test]
async fn another_message_of_the_same_run_is_answered_by_the_model() {
    for streamed in BOTH_WAYS {
        let store = store();
        let model = ScriptedModel::new([Step::text("there"), Step::text("10 km")]);
        let client = persister(&model, &store);
        let first = ask("where?", streamed);
        let mut next = first.clone();
        next.set_new_messages(Message::user("how far?"));
        send(&client, first).await.unwrap();
        assert_eq!(send(&client, next).await.unwrap().text(), "10 km");
        let all = ["user where?", "assistant there", "user how far?", "assistant 10 km"];
        assert_eq!(stored(&store).await, all);
    }
}

#[tokio::test]
async fn a_nested_run_on_an_ancestors_conversation_is_refused() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([
            case.calls([("delegate", "c1")]),
            Step::text("nested"),
            Step::text("done"),
        ]);
        let own = case.agent(&model, &store);
        let lone = persister(&model, &store);
        let delegate = tool_fn(definition("delegate"), move |context| {
            let (own, lone) = (own.clone(), lone.clone());
            async move {
                for client in [&own, &lone] {
                    let error = send(client, context.nest(case.ask("sub"))).await.unwrap_err();
                    assert!(error.downcast_ref::<NestedInAncestor>().is_some(), "{error:?}");
                }
                let other = ConversationKey::new("alice", "support/sub");
                let request = ChatRequest::user("sub").in_conversation(other);
                let answer = send(&own, context.nest(request)).await?;
                Ok(ToolOutput::from(answer.text()))
            }
        });
        let tools = Tools::new().with(delegate);
        let client = case.stack(model.clone(), &store, policy(), tools);
        send(&client, case.ask("go")).await.unwrap();
        let all = ["user go", "assistant delegate#c1", "tool c1=nested", "assistant done"];
        assert_eq!(stored(&store).await, all);
        let nested = stored_of(&store, &ConversationKey::new("alice", "support/sub")).await;
        assert_eq!(nested, ["user sub", "assistant nested"]);
    })
    .await;
}
