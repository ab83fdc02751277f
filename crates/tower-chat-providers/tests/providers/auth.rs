//! Tests that keys and tokens are sent, renewed, and removed from errors.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use tower_chat_core::{BoxError, ChatRequest};
use tower_chat_providers::{
    OpenAiChat, ProviderError,
    auth::{AuthHeader, AuthLayer, Token},
};

use crate::{
    client::ask,
    server::{Reply, Server},
};

const ANSWER: &str = r#"{"choices":[{"index":0,"finish_reason":"stop",
    "message":{"role":"assistant","content":"Yes."}}]}"#;

/// Returns a source that returns the tokens `token-1`, `token-2` and so on, and the number of
/// tokens that the source has returned.
fn numbered_tokens(
    lifetime: Duration,
) -> (Arc<AtomicUsize>, impl tower_chat_providers::auth::TokenSource) {
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let source = move || {
        let counter = counter.clone();
        async move {
            tokio::task::yield_now().await;
            let number = counter.fetch_add(1, Ordering::SeqCst) + 1;
            let expiry = SystemTime::now() + lifetime;
            Ok::<_, BoxError>(Token::new(format!("token-{number}")).expires_at(expiry))
        }
    };
    (count, source)
}

fn authorization_headers(server: &Server) -> Vec<String> {
    let received = server.received();
    received.iter().map(|it| it.header("authorization").unwrap().to_owned()).collect()
}

#[tokio::test]
async fn concurrent_requests_fetch_a_token_once() {
    let server = Server::start(vec![Reply::json(200, ANSWER); 3]).await;
    let (count, source) = numbered_tokens(Duration::from_secs(3600));
    let layer = AuthLayer::from_source(AuthHeader::Bearer, source);
    let client = OpenAiChat::compatible(&server.url).unwrap().with_auth(layer);
    let requests = ["one", "two", "three"].map(|text| {
        let mut client = client.clone();
        async move { ask(&mut client, ChatRequest::user(text)).await.unwrap() }
    });
    futures_util::future::join_all(requests).await;
    assert_eq!(count.load(Ordering::SeqCst), 1);
    assert_eq!(authorization_headers(&server), ["Bearer token-1"; 3]);
}

#[tokio::test]
async fn an_expired_token_is_fetched_again() {
    let server = Server::start(vec![Reply::json(200, ANSWER); 3]).await;
    let count = Arc::new(AtomicUsize::new(0));
    // The source returns a first token that has already expired, and then tokens that are valid for
    // an hour.
    let source = move || {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        let (now, hour) = (SystemTime::now(), Duration::from_secs(3600));
        let expiry = if number == 1 { now - hour } else { now + hour };
        let token = Token::new(format!("token-{number}")).expires_at(expiry);
        async move { Ok::<_, BoxError>(token) }
    };
    let layer = AuthLayer::from_source(AuthHeader::Bearer, source);
    let mut client = OpenAiChat::compatible(&server.url).unwrap().with_auth(layer);
    ask(&mut client, ChatRequest::user("expired")).await.unwrap();
    ask(&mut client, ChatRequest::user("renewed")).await.unwrap();
    ask(&mut client, ChatRequest::user("still valid")).await.unwrap();
    assert_eq!(
        authorization_headers(&server),
        ["Bearer token-1", "Bearer token-2", "Bearer token-2"]
    );
}

#[tokio::test]
async fn a_refused_token_is_fetched_again_and_the_request_is_sent_a_second_time() {
    let refusal = Reply::json(401, r#"{"error":{"message":"expired"}}"#);
    let replies = [refusal.clone(), Reply::json(200, ANSWER), refusal.clone(), refusal];
    let server = Server::start(replies).await;
    let (_, source) = numbered_tokens(Duration::from_secs(3600));
    let layer = AuthLayer::from_source(AuthHeader::Bearer, source);
    let mut client = OpenAiChat::compatible(&server.url).unwrap().with_auth(layer);
    ask(&mut client, ChatRequest::user("renew")).await.unwrap();
    let error = ask(&mut client, ChatRequest::user("refuse")).await.unwrap_err();
    assert_eq!(error.downcast::<ProviderError>().unwrap().status(), Some(401));
    let expected = ["Bearer token-1", "Bearer token-2", "Bearer token-2", "Bearer token-3"];
    assert_eq!(authorization_headers(&server), expected);
}

#[tokio::test]
async fn a_failed_token_source_fails_all_requests_that_wait_for_the_token() {
    let server = Server::start([]).await;
    let count = Arc::new(AtomicUsize::new(0));
    let counter = count.clone();
    let source = move || {
        let counter = counter.clone();
        async move {
            // Yields, so that the other request also begins to wait.
            for _ in 0..10 {
                tokio::task::yield_now().await;
            }
            counter.fetch_add(1, Ordering::SeqCst);
            Err::<Token, BoxError>("the metadata server is away".into())
        }
    };
    let layer = AuthLayer::from_source(AuthHeader::Bearer, source);
    let client = OpenAiChat::compatible(&server.url).unwrap().with_auth(layer);
    let requests = ["red", "green"].map(|text| {
        let mut client = client.clone();
        async move { ask(&mut client, ChatRequest::user(text)).await.unwrap_err() }
    });
    for error in futures_util::future::join_all(requests).await {
        let error = error.downcast::<ProviderError>().unwrap();
        assert!(error.is_retryable(), "{error}");
        assert!(error.to_string().contains("the metadata server is away"), "{error}");
    }
    assert_eq!(count.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn errors_and_debug_output_omit_a_key_even_if_the_service_repeats_the_key() {
    const KEY: &str = "sk-1234567890-abcdef";
    let body = format!(r#"{{"error":{{"code":"bad_key","message":"{KEY} is not a key"}}}}"#);
    let server = Server::start([Reply::json(401, body)]).await;
    let client = OpenAiChat::compatible(&server.url).unwrap();
    let mut client = client.with_header("x-key", KEY).unwrap().with_key(KEY).unwrap();
    assert!(!format!("{client:?}").contains(KEY), "{client:?}");
    let error = ask(&mut client, ChatRequest::user("who am I?")).await.unwrap_err();
    assert_eq!(server.received()[0].header("authorization"), Some(&*format!("Bearer {KEY}")));
    assert!(error.to_string().contains("[redacted] is not a key"), "{error}");
    assert!(!format!("{error:?} {error}").contains(KEY), "{error:?}");
}

#[test]
fn a_key_that_is_not_valid_in_a_header_is_refused_with_an_error_without_the_key() {
    let error = AuthLayer::new(AuthHeader::Bearer, "se\ncret").unwrap_err();
    assert!(!format!("{error:?} {error}").contains("cret"), "{error:?}");
    let error = AuthLayer::from_env(AuthHeader::Bearer, "TOWER_CHAT_NO_SUCH_KEY").unwrap_err();
    assert!(error.to_string().contains("TOWER_CHAT_NO_SUCH_KEY"), "{error}");
}
