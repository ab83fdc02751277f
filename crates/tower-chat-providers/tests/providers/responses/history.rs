//! Tests of the history owner in requests and in answers.

use serde_json::{Value, json};
use tower_chat_core::{Answer, ChatRequest, HistoryOwner};
use tower_chat_providers::{HistoryStorage, ProviderError, ProviderErrorKind as Kind};

use super::{streamed, text_response};
use crate::{
    client::{ask, provider_error},
    server::{Received, Reply, Server},
};

/// Returns the answer to a request, and the body that was sent.
async fn exchange(
    storage: HistoryStorage,
    request: ChatRequest,
    replies: impl IntoIterator<Item = Value>,
) -> (Answer, Vec<Received>) {
    let is_streamed = request.options.stream;
    let replies = replies.into_iter().map(|reply| {
        let is_response = reply["object"] == "response";
        if is_streamed && is_response {
            Reply::stream(streamed(&reply))
        } else {
            Reply::json(200, reply.to_string())
        }
    });
    let server = Server::start(replies).await;
    let mut model = server.responses().with_history_storage(storage);
    let answer = ask(&mut model, request).await.unwrap();
    (answer, server.received())
}

fn whole_and_streamed() -> [ChatRequest; 2] {
    [ChatRequest::user("hi"), ChatRequest::user("hi").streamed()]
}

fn id(answer: &Answer) -> Option<&str> {
    let id = answer.finish.history_owner.as_ref()?;
    id.service_id().map(|id| &**id)
}

#[tokio::test]
async fn if_the_caller_stores_the_history_the_service_stores_nothing_and_returns_no_id() {
    for request in whole_and_streamed() {
        let (answer, sent) =
            exchange(HistoryStorage::default(), request, [text_response("resp_1", "hello")]).await;
        assert_eq!(id(&answer), None);
        assert_eq!(sent[0].body["store"], false);
        assert_eq!(sent[0].body["include"], json!(["reasoning.encrypted_content"]));
    }
}

#[tokio::test]
async fn if_the_service_stores_responses_each_request_names_the_previous_response() {
    for request in whole_and_streamed() {
        let replies = [text_response("resp_1", "hello")];
        let (answer, sent) = exchange(HistoryStorage::Response, request.clone(), replies).await;
        assert_eq!(id(&answer), Some("resp_1"));
        assert_eq!(sent[0].body["store"], true);
        assert_eq!(sent[0].body.get("include"), None::<&Value>);
        assert_eq!(sent[0].body.get("previous_response_id"), None::<&Value>);

        let request = request.with_service_id("resp_1");
        let replies = [text_response("resp_2", "bye")];
        let (answer, sent) = exchange(HistoryStorage::Response, request, replies).await;
        assert_eq!(id(&answer), Some("resp_2"));
        assert_eq!(sent[0].body["previous_response_id"], "resp_1");
        assert_eq!(sent[0].body.get("conversation"), None::<&Value>);
    }
}

#[tokio::test]
async fn a_conversation_of_the_service_is_created_once_and_keeps_its_id() {
    for request in whole_and_streamed() {
        let made = json!({"id": "conv_1", "object": "conversation"});
        let mut answered = text_response("resp_1", "hello");
        answered["conversation"] = json!({"id": "conv_1"});
        let replies = [made, answered.clone()];
        let (answer, sent) = exchange(HistoryStorage::Conversation, request.clone(), replies).await;
        assert_eq!(id(&answer), Some("conv_1"));
        assert!(sent[0].head.starts_with("post /v1/conversations "), "{}", sent[0].head);
        assert_eq!(sent[0].body, json!({}));
        assert_eq!(sent[1].body["conversation"], "conv_1");
        assert_eq!(sent[1].body.get("previous_response_id"), None::<&Value>);

        let request = request.with_service_id("conv_1");
        let (answer, sent) = exchange(HistoryStorage::Conversation, request, [answered]).await;
        assert_eq!((id(&answer), sent.len()), (Some("conv_1"), 1));
        assert_eq!(sent[0].body["conversation"], "conv_1");
    }
}

#[tokio::test]
async fn a_request_with_a_service_id_continues_that_history_under_every_setting() {
    for storage in [HistoryStorage::Caller, HistoryStorage::Response, HistoryStorage::Conversation]
    {
        let request = ChatRequest::user("hi").with_service_id("resp_1");
        let (answer, sent) = exchange(storage, request, [text_response("resp_2", "hello")]).await;
        assert_eq!(id(&answer), Some("resp_2"), "{storage:?}");
        assert_eq!(sent[0].body["previous_response_id"], "resp_1");
        assert_eq!(sent[0].body["store"], true);

        let request = ChatRequest::user("hi").with_service_id("conv_1");
        let (answer, sent) = exchange(storage, request, [text_response("resp_2", "hello")]).await;
        assert_eq!(id(&answer), Some("conv_1"), "{storage:?}");
        assert_eq!(sent[0].body["conversation"], "conv_1");
    }
}

#[tokio::test]
async fn an_answer_that_the_service_did_not_store_has_no_id_to_continue_from() {
    for request in whole_and_streamed() {
        let mut forgotten = text_response("resp_1", "hello");
        forgotten["store"] = json!(false);
        let (answer, _) = exchange(HistoryStorage::Response, request, [forgotten]).await;
        assert_eq!(id(&answer), None);
    }
}

#[tokio::test]
async fn a_conversation_that_cannot_be_created_fails_the_service_call() {
    let refusal = r#"{"error":{"message":"slow down","code":"rate_limit"}}"#;
    for (reply, is_retryable) in [
        (Reply::json(429, refusal).header("retry-after", "3"), true),
        (Reply::json(200, "{}"), false),
    ] {
        let server = Server::start([reply]).await;
        let mut model = server.responses().with_history_storage(HistoryStorage::Conversation);
        let error = ask(&mut model, ChatRequest::user("hi")).await.unwrap_err();
        let error = error.downcast::<ProviderError>().unwrap();
        assert_eq!(error.is_retryable(), is_retryable, "{error}");
        assert_eq!(server.received().len(), 1);
    }
}

#[tokio::test]
async fn the_sentinel_is_refused_before_a_request_is_sent() {
    let server = Server::start([]).await;
    for storage in [HistoryStorage::Caller, HistoryStorage::Response, HistoryStorage::Conversation]
    {
        let mut request = ChatRequest::user("hi");
        request.history_owner = Some(HistoryOwner::Local);
        let mut model = server.responses().with_history_storage(storage);
        let error = ask(&mut model, request).await.unwrap_err();
        assert!(matches!(provider_error(error).kind(), Kind::Sentinel(_)));
    }
    assert!(server.received().is_empty());
}
