//! Tests requests whose messages have ids. A message with the id of an earlier run of the
//! conversation is already stored. Every other message is new.

use std::sync::Arc;

use tower::Layer;
use tower_chat::{
    ChatRequest, ConversationKey, HistoryStore, Message, layer::PerServiceCallPersistence,
    message::Messages,
};
use tower_chat_testkit::{ScriptedModel, Step};

use crate::common::*;

async fn numbered(store: &Store, key: &ConversationKey) -> Vec<Arc<Message>> {
    store.inner().flush().await.unwrap();
    store.inner().load(key).await.unwrap().messages.iter().cloned().collect()
}

#[tokio::test]
async fn a_message_of_another_conversation_is_new() {
    every_case(async |case| {
        let store = case.store().await;
        let model = ScriptedModel::new([Step::text("noted"), Step::text("there")]);
        let client = case.agent(&model, &store);
        let other = ConversationKey::new("alice", "travel");
        let request = case.way(ChatRequest::user("to Paris").in_conversation(other.clone()));
        send(&client, request).await.unwrap();
        let moved = numbered(&store, &other).await.remove(0);
        assert!(moved.id.is_some());
        let input = [Arc::unwrap_or_clone(moved), Message::user("where?")];
        send(&client, case.request_with(input)).await.unwrap();
        let all = ["user to Paris", "user where?", "assistant there"];
        assert_eq!(sent_texts(&model, 1), all[..2]);
        assert_eq!(stored(&store).await, all);
    })
    .await;
}

#[tokio::test]
async fn a_run_continues_whose_request_repeats_messages_of_the_history() {
    Cases::all()
        .modes([PerServiceCall, Journaled], "per-run mode stores nothing that could be resumed")
        .check(async |case| {
            let (store, ran, model, client) = case
                .begin_with_log([
                    Step::text("hello"),
                    case.calls([("look", "c1")]),
                    Step::error("overloaded"),
                    Step::text("there"),
                ])
                .await;
            send(&client, case.ask("hi")).await.unwrap();
            let mut input = numbered(&store, &key()).await;
            input.push(Message::user("where?").into());
            let input: Vec<_> = input.into_iter().map(Arc::unwrap_or_clone).collect();
            let request = case.way(ChatRequest::new(input).in_conversation(key()));
            send(&client, request.clone()).await.unwrap_err();
            let answer = send(&client, request).await.unwrap();
            let all = [
                "user hi",
                "assistant hello",
                "user where?",
                "assistant look#c1",
                "tool c1=looked c1",
                "assistant there",
            ];
            assert_eq!(shorts(&answer.messages), all[3..]);
            assert_eq!(sent_texts(&model, 3), all[..5]);
            assert_eq!(stored(&store).await, all);
            assert_eq!(ran.names(), ["look"]);
        })
        .await;
}

fn after(mut request: ChatRequest, stored: &[Arc<Message>], text: &str) -> ChatRequest {
    let mut messages = Messages::new();
    messages.extend(stored.iter().cloned());
    messages.push(Arc::new(Message::user(text)));
    request.set_new_messages(messages);
    request
}

#[tokio::test]
async fn a_persister_alone_repeats_the_answer_to_a_request_that_repeats_the_history() {
    for streamed in [false, true] {
        let store = store();
        let model = ScriptedModel::new([Step::text("hello"), Step::text("there")]);
        let client = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
        send(&client, ask("hi", streamed)).await.unwrap();
        let history = numbered(&store, &key()).await;
        let request = after(ask("", streamed), &history, "where?");
        let first = send(&client, request.clone()).await.unwrap();
        let again = send(&client, request).await.unwrap();
        assert_eq!(again.messages, first.messages, "streamed {streamed}");
        let all = ["user hi", "assistant hello", "user where?", "assistant there"];
        assert_eq!(stored(&store).await, all);
        assert_eq!(model.requests().len(), 2);
    }
}

#[tokio::test]
async fn a_persister_alone_does_not_mistake_equal_texts_of_an_earlier_run_for_a_repetition() {
    for streamed in [false, true] {
        let store = store();
        let script = ["hello", "hello", "goodbye"].map(Step::text);
        let model = ScriptedModel::new(script);
        let client = boxed(PerServiceCallPersistence::new(store.clone()).layer(model.clone()));
        send(&client, ask("hi", streamed)).await.unwrap();
        let history = numbered(&store, &key()).await;
        let request = ask("hi", streamed);
        send(&client, request.clone()).await.unwrap();
        let answer = send(&client, after(request, &history, "bye")).await.unwrap();
        assert_eq!(shorts(&answer.messages), ["assistant goodbye"], "streamed {streamed}");
        assert_eq!(model.requests().len(), 3);
    }
}
