//! Tests that a request without content fails before the model is called, and is not stored.

use tower::Layer;
use tower_chat::{
    ChatRequest, Message, PersistenceError, Role,
    layer::{PerServiceCallPersistence, ToolLoopLayer},
    message::Messages,
    validate::{Fault, InvalidRequest, validate_request},
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

fn empty() -> Vec<(Vec<Message>, Fault)> {
    vec![
        (vec![], Fault::NoMessages),
        (vec![Message::new(Role::User, vec![])], Fault::EmptyMessage { message: 0 }),
        (vec![Message::new(Role::System, vec![])], Fault::EmptyMessage { message: 0 }),
        (
            vec![Message::user("hi"), Message::new(Role::User, vec![])],
            Fault::EmptyMessage { message: 1 },
        ),
    ]
}

#[tokio::test]
async fn empty_requests_are_refused_by_the_persistence_layers() {
    for is_first in [true, false] {
        every_case(async |case| {
            let (store, model, client) = case.begin([Step::text("there"), Step::text("on")]).await;
            if !is_first {
                send(&client, case.ask("where?")).await.unwrap();
            }
            let before = (stored(&store).await, model.requests().len());
            // If the conversation has a history, the model can continue it without a new message.
            // Such a request is valid.
            for (messages, fault) in empty().into_iter().skip(usize::from(!is_first)) {
                let mut request = case.way(ChatRequest::new(Messages::from_iter(messages)));
                request = request.in_conversation(key());
                let error = refused(send(&client, request).await);
                let PersistenceError::EmptyRequest { source, .. } = error else {
                    panic!("{error:?}")
                };
                assert_eq!(source.first(), &fault);
                assert_eq!((durable(&store).await, model.requests().len()), before);
            }
            send(&client, case.ask("on?")).await.unwrap();
        })
        .await;
    }
}

#[tokio::test]
async fn empty_requests_are_refused_by_a_persister_alone() {
    for (streamed, has_loop) in [(false, false), (true, false), (false, true), (true, true)] {
        for (messages, fault) in empty() {
            let (store, model) = (store(), ScriptedModel::new([]));
            let below = PerServiceCallPersistence::new(store.clone()).layer(model.clone());
            let client = match has_loop {
                true => boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(below)),
                false => boxed(below),
            };
            let request = ChatRequest::new(Messages::from_iter(messages)).in_conversation(key());
            let request = if streamed { request.streamed() } else { request };
            let error = send(&client, request).await.unwrap_err();
            let found = match (error.downcast_ref(), error.downcast_ref()) {
                (Some(InvalidRequest { source, .. }), _) => source,
                (_, Some(PersistenceError::EmptyRequest { source, .. })) => source,
                _ => panic!("{error:?}"),
            };
            assert_eq!(found.first(), &fault);
            assert!(model.requests().is_empty());
            assert_eq!(stored(&store).await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn empty_requests_are_refused_by_a_tool_loop_alone() {
    for (messages, fault) in empty() {
        for streamed in BOTH_WAYS {
            let model = ScriptedModel::new([]);
            let client = boxed(ToolLoopLayer::new(tools(&ToolLog::default())).layer(model.clone()));
            let request = ChatRequest::new(Messages::from_iter(messages.clone()));
            let request = if streamed { request.streamed() } else { request };
            let error = send(&client, request).await.unwrap_err();
            let invalid: &InvalidRequest = error.downcast_ref().unwrap();
            assert_eq!(invalid.source.first(), &fault);
            assert!(model.requests().is_empty());
        }
    }
}

#[test]
fn validate_request_reports_an_empty_request() {
    let none = ChatRequest::new(Messages::new());
    assert_eq!(validate_request(&none).unwrap_err().first(), &Fault::NoMessages);
    let without_parts = ChatRequest::new([Message::user("a"), Message::new(Role::User, vec![])]);
    let fault = Fault::EmptyMessage { message: 1 };
    assert_eq!(validate_request(&without_parts).unwrap_err().first(), &fault);
}

#[tokio::test]
async fn an_empty_request_with_a_queued_message_is_not_empty() {
    every_case(async |case| {
        let (store, model, client) = case.begin([Step::text("there")]).await;
        let mut request = case.way(ChatRequest::new(Messages::new())).in_conversation(key());
        request.run_handle().queue(Message::user("where?"));
        send(&client, request).await.unwrap();
        assert_eq!(sent_texts(&model, 0), ["user where?"]);
        assert_eq!(stored(&store).await, ["user where?", "assistant there"]);
    })
    .await;
}
