//! Tests of opening a store, and of its errors.

use std::{error::Error, time::Duration};

use crate::common::{address, append, ask, key, open, options, raw, start, texts, write};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};
use tower_chat_core::store::{Directory, HistoryStore, Revision, StoreError};
use tower_chat_redis::{OpenError, RedisStore, WriteConcern};
use tower_chat_testkit::server::free_port;

const SECRET: &str = "very secret";

/// Returns the messages of an error and of all its sources.
fn all_words(error: &dyn Error) -> String {
    let mut words = format!("{error:?} {error}");
    let mut source = error.source();
    while let Some(error) = source {
        words.push_str(&format!(" {error:?} {error}"));
        source = error.source();
    }
    words
}

#[tokio::test]
async fn connecting_needs_the_password_of_the_server_and_no_error_contains_the_password() {
    let server = start(&["--requirepass", SECRET]);
    let port = server.port();
    let with = |user: &str, password: &str| {
        let password = password.replace(' ', "%20");
        format!("redis://{user}:{password}@127.0.0.1:{port}/3")
    };
    let store = options().connect(&with("", SECRET)).await.unwrap();
    append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
    assert_eq!(texts(&store, &key("a")).await, ["a"]);
    assert!(!format!("{store:?}").contains("secret"), "{store:?}");

    for wrong in [with("", "wrong secret"), with("nobody", SECRET), server.address(0)] {
        let error = options().connect(&wrong).await.unwrap_err();
        assert!(matches!(error, OpenError::Refused { .. }), "{error:?}");
        assert!(!error.is_retryable());
        assert!(!all_words(&error).contains("secret"), "{}", all_words(&error));
    }
    for malformed in ["redis://:secret@host:port/", "secret", "http://:secret@host/"] {
        let error = options().connect(malformed).await.unwrap_err();
        assert!(matches!(error, OpenError::Address { .. }), "{error:?}");
        assert!(!all_words(&error).contains("secret"), "{}", all_words(&error));
    }
    // The data must be only in the database that the address names.
    let mut connection = raw(&with("", SECRET)).await;
    assert!(ask::<u64>(&mut connection, &["DBSIZE"]).await.unwrap() > 0);
    let mut other = raw(&with("", SECRET).replace("/3", "/0")).await;
    assert_eq!(ask::<u64>(&mut other, &["DBSIZE"]).await.unwrap(), 0);
}

#[tokio::test]
async fn a_user_with_permissions_for_one_prefix_can_use_the_store_only_with_this_prefix() {
    let server = start(&[]);
    let mut connection = raw(&server.address(0)).await;
    let user = "ACL SETUSER chat on >word ~tower-chat:* -@all +@connection +info +@scripting \
        +@read +@write +time";
    ask::<()>(&mut connection, &user.split_whitespace().collect::<Vec<_>>()).await.unwrap();
    let address = server.address(0).replace("//", "//chat:word@");
    let store = RedisStore::connect(&address).await.unwrap();
    let revision = append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
    append(&store, write(&key("a"), revision, &["b"])).await.unwrap();
    assert_eq!(store.list("scope", None, 10).await.unwrap(), [key("a")]);
    let outside = RedisStore::options().with_prefix("outside").connect(&address).await.unwrap();
    let error = append(&outside, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap_err();
    assert!(matches!(error.source, StoreError::Backend { retryable: false, .. }), "{error:?}");
}

#[tokio::test]
async fn connecting_to_an_address_without_a_server_fails_with_a_retryable_error() {
    let nobody = format!("redis://127.0.0.1:{}/", free_port());
    let error = options().connect(&nobody).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
    assert!(error.is_retryable());
}

/// Starts a server that reports the given version of Redis and answers every other command with a
/// success.
async fn server_of_version(version: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("redis://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut asked = vec![0; 4096];
                while let Ok(length @ 1..) = client.read(&mut asked).await {
                    let asked = String::from_utf8_lossy(&asked[..length]).to_string();
                    for command in asked.split('*').skip(1) {
                        let info = format!("redis_version:{version}\r\n");
                        let answer = match command.contains("INFO\r\n") && !command.contains("LIB")
                        {
                            true => format!("${}\r\n{info}\r\n", info.len()),
                            false => "+OK\r\n".to_owned(),
                        };
                        client.write_all(answer.as_bytes()).await.unwrap();
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn a_server_that_is_too_old_is_refused() {
    let error = options().connect(&server_of_version("6.2.14").await).await.unwrap_err();
    assert!(
        matches!(&error, OpenError::TooOld { version, .. } if version == "6.2.14"),
        "{error:?}"
    );
    assert!(!error.is_retryable());
    options().connect(&server_of_version("7.0.0").await).await.unwrap();
}

#[tokio::test]
async fn connecting_with_synced_writes_fails_if_the_server_cannot_sync_each_write() {
    let options = options().with_write_concern(WriteConcern::Synced { replicas: 0 });
    let error = options.clone().connect(&server_of_version("7.0.15").await).await.unwrap_err();
    assert!(matches!(error, OpenError::TooOld { needed: "7.2", .. }), "{error:?}");
    let error = options.connect(&server_of_version("7.2.4").await).await.unwrap_err();
    assert!(matches!(error, OpenError::NotAppendOnly), "{error:?}");
}

#[tokio::test]
async fn connecting_to_a_server_that_may_evict_keys_is_refused() {
    let server = start(&["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]);
    let error = options().connect(&server.address(0)).await.unwrap_err();
    assert!(matches!(error, OpenError::Evicts { .. }), "{error:?}");
    options().allow_eviction().connect(&server.address(0)).await.unwrap();
}

#[tokio::test]
async fn settings_out_of_range_are_refused() {
    let options = || RedisStore::options().with_retry_timeout(Duration::ZERO);
    for (refused, name) in [
        (options().with_max_connections(0), "max_connections"),
        (options().with_max_queued(0), "max_queued"),
        (options().with_response_timeout(Duration::ZERO), "response_timeout"),
        (options().with_time_to_live(Duration::from_micros(1)), "time_to_live"),
        (options().with_time_to_live(Duration::MAX), "time_to_live"),
    ] {
        let error = refused.connect(&address()).await.unwrap_err();
        let is_so = matches!(&error, OpenError::InvalidOption { option, .. } if *option == name);
        assert!(is_so, "{error:?}");
    }
    for prefix in ["{", "a}b"] {
        let error = options().with_prefix(prefix).connect(&address()).await.unwrap_err();
        assert!(matches!(error, OpenError::InvalidPrefix { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn the_retry_timeout_may_be_unlimited() {
    let store = open(options().with_retry_timeout(Duration::MAX)).await;
    append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
    assert_eq!(texts(&store, &key("a")).await, ["a"]);
}

#[tokio::test]
async fn a_store_returns_no_conversation_of_a_store_with_another_prefix() {
    let one = options();
    let (first, second) = (open(one.clone()).await, open(options()).await);
    append(&first, write(&key("kept"), Revision::ABSENT, &["a"])).await.unwrap();
    assert_eq!(texts(&second, &key("kept")).await, Vec::<String>::new());
    assert_eq!(second.list("scope", None, 10).await.unwrap(), []);
    first.close().await.unwrap();
    assert_eq!(texts(&open(one).await, &key("kept")).await, ["a"]);
}
